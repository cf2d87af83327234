"""An output: where its parts are, whether it is ours, its lock, and its snapshots, which never change.

Only a folder that carries our mark is written to, cleaned or rolled back. No link is followed for writing.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from scorelake.errors import DataError, LakeError, LockedError, UsageError
from scorelake.publish.history import HISTORY_FILE, RUNS_FILE
from scorelake.settings import PATIENCE, Storage
from scorelake.storage.disk import (
    BOARD,
    RUN_ID,
    SNAPSHOTS,
    is_marked,
    is_remote,
    literal,
    mark,
    open_real,
    read_json,
    storage_errors,
)

if TYPE_CHECKING:
    from scorelake.storage.mirror import Mirror
    from scorelake.storage.objects import Object

Manifest: TypeAlias = dict[str, Any]
PARTIALS = "partials"
PARTS = (BOARD, SNAPSHOTS, PARTIALS, RUNS_FILE, HISTORY_FILE)


@dataclass(frozen=True)
class Output:
    """The folder a job writes to: the output itself, or on this machine the mirror of one in object storage."""

    root: Path
    mirror: Mirror | None = None
    seen: Object | None = None
    """The published leaderboard of an output in object storage when its mirror was brought up to date."""

    @classmethod
    def at(cls, location: str | Path, storage: Storage = PATIENCE) -> Output:
        """The output at a path or an address."""
        if not is_remote(location):
            return cls(Path(location))
        from scorelake.storage.mirror import Mirror  # noqa: PLC0415  (loaded where it is used)

        mirror = Mirror.of(str(location), storage)
        return cls(Path(mirror.folder), mirror)

    def fresh(self) -> Output:
        """The same output, its mirror up to date if it has one; under the lock."""
        if self.mirror is None:
            return self
        with storage_errors(self.root):
            return replace(self, seen=self.mirror.pull())

    def claimed(self) -> Output:
        """The same output, marked as ours if nothing else is there; refused if it is somebody else's."""
        if not self.is_ours():
            _refuse_foreign(self)
        if not is_marked(self.root):
            with storage_errors(self.root):
                mark(self.root)
                if self.mirror:
                    self.mirror.send_mark()
        return self

    def is_ours(self) -> bool:
        """It carries our mark, or, should that be lost, a snapshot that says so itself."""
        return is_marked(self.root) or bool(self.manifests())

    def known(self) -> Output:
        """The same output; refused if there is none of ours."""
        if not self.is_ours():
            raise LakeError(
                "not an output of scorelake", where=self.name, hint="give the folder that `scorelake score` wrote to"
            )
        return self

    @contextmanager
    def held(self) -> Iterator[Output]:
        """The output, which must be there already, up to date and under the lock."""
        if self.mirror is None:
            self.known()  # nothing is made where there is none
        with locked(self):
            yield self.fresh().known()

    @contextmanager
    def passing(self) -> Iterator[Output]:
        """The output for somebody who only adds partial counts: itself, or a small mirror for the time being."""
        if self.mirror is None:
            if not self.is_ours():
                _refuse_foreign(self)
            with storage_errors(self.root):
                self.root.mkdir(parents=True, exist_ok=True)
            yield self.claimed()
            return
        cache = Path(self.mirror.folder).parent
        with storage_errors(cache):
            cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="part-", dir=cache) as folder:
            out = replace(self, root=Path(folder), mirror=replace(self.mirror, folder=folder))
            assert out.mirror is not None
            with storage_errors(cache):
                out.mirror.pull(partials=False)
                out.mirror.describe((out.current() or {}).get("partials", ()))
            yield out.claimed()

    @property
    def name(self) -> str:
        """As its users know it."""
        return self.mirror.url if self.mirror else str(self.root)

    @property
    def leaderboard(self) -> Path:
        return self.root / BOARD

    @property
    def snapshots(self) -> Path:
        return self.root / SNAPSHOTS

    @property
    def partials(self) -> Path:
        return self.root / PARTIALS

    @property
    def histories(self) -> tuple[Path, Path]:
        return self.root / RUNS_FILE, self.root / HISTORY_FILE

    def manifest(self, run_id: str) -> Manifest | None:
        """What a snapshot says of itself; None if there is none. Raises if it cannot be understood."""
        path = self.snapshots / run_id / "manifest.json"
        if not path.exists():
            return None
        told = read_json(path)
        if not _is_manifest(told, run_id):
            raise DataError(
                "is damaged",
                where=str(path),
                hint=f"move {path.parent} away; score publishes again",
            )
        return told  # type: ignore[no-any-return]

    def manifests(self) -> list[Manifest]:
        """The manifests of every whole snapshot that can be understood, in the order of their runs."""
        out = []
        for path in self.snapshots.glob("[!.]*"):
            if RUN_ID.fullmatch(path.name):
                try:
                    out.append(self.manifest(path.name))
                except DataError:
                    continue
        return sorted((m for m in out if m is not None), key=lambda m: (m["run"]["number"], m["run"]["run_id"]))

    def table(self, manifest: Manifest, name: str) -> pl.DataFrame:
        """One table of a finished snapshot."""
        return pl.read_parquet(self.snapshots / manifest["run"]["run_id"] / f"{name}.parquet", glob=False)

    def current(self) -> Manifest | None:
        """The manifest of the run that leaderboard.duckdb shows."""
        from scorelake.publish.shown import look  # noqa: PLC0415  (which is told by an output in turn)

        run_id = look(self).run_id
        return self.manifest(run_id) if run_id else None


def problem_files(snapshot: Path) -> str:
    """The files of a snapshot that have its problems, by their real place, as DuckDB is told."""
    return f"{literal(str(snapshot.resolve()))}/problem_counts/*.parquet"


def _is_manifest(told: Any, run_id: str) -> bool:
    try:
        run = told["run"]
        numbers = [run[key] for key in ("number", "rows_read", "graded", "ungraded", "duplicates", "rejected")]
        return (
            run["run_id"] == run_id
            and all(isinstance(number, int) for number in numbers)
            and all(isinstance(run[key], str) for key in ("started", "settings", "lake"))
            and isinstance(told["inputs"], str)
            and all(isinstance(name, str) for name in told["partials"])
            and all(isinstance(digest, str) for digest in told["files"].values())
            and all(len(entry) == 2 for entry in told["quarantine"])
            and isinstance(told["size"], dict)
            and isinstance(json.loads(run["settings"]), dict)
        )
    except (TypeError, KeyError, AttributeError, ValueError):
        return False


def _refuse_foreign(out: Output) -> None:
    """Raise if something is there that we would write into or over, and it is not ours."""
    if out.root.exists() and not out.root.is_dir():
        raise UsageError("is a file; the output is a folder", where=out.name, hint="give another --out")
    there = [name for name in PARTS if _is_something(out.root / name)]
    if there:
        what = "not a leaderboard of ours" if there[0] == BOARD else "not ours"
        raise DataError(
            f"{there[0]} is here already, and it is {what}",
            where=out.name,
            hint="give another --out, or move it away and run again",
        )


def _is_something(path: Path) -> bool:
    return path.is_symlink() or (any(path.iterdir()) if path.is_dir() else path.exists())


@contextmanager
def locked(out: Output) -> Iterator[None]:
    """Hold the one writer's lock. The system drops it with its holder, so a crash leaves nothing behind."""
    if out.mirror is None and not out.is_ours():
        _refuse_foreign(out)
    for folder in (out.snapshots, out.partials):
        if folder.is_symlink():
            raise UsageError(
                "is a link", where=str(folder), hint="nothing is written through links: give the real --out"
            )
    with storage_errors(out.root):
        out.root.mkdir(parents=True, exist_ok=True)
        file = open_real(out.root / ".lock")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(
                "another run is writing here", where=out.name, hint="wait for it, or give another --out"
            ) from None
        yield
