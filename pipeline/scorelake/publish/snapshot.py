"""An immutable snapshot, then one leaderboard.duckdb, each put in place by a single rename.

A reader sees the old file or the new one, never a mixture: everything is written aside and flushed to disk
first.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl

from scorelake.errors import LockedError
from scorelake.problems import Problems
from scorelake.settings import PATIENCE, Storage
from scorelake.store.disk import abandoned, checksum, is_remote, remove, settle, writing

if TYPE_CHECKING:
    from scorelake.store.mirror import Mirror
    from scorelake.store.objects import Object


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
        from scorelake.store.mirror import Mirror  # noqa: PLC0415  (loaded where it is used)

        mirror = Mirror.of(str(location), storage)
        return cls(Path(mirror.folder), mirror)

    def fresh(self) -> Output:
        """The same output, its mirror up to date if it has one."""
        if self.mirror is None:
            return self
        with locked(self), writing(self.root):
            return replace(self, seen=self.mirror.pull())

    @contextmanager
    def passing(self) -> Iterator[Output]:
        """The output for somebody who only adds partial counts: itself, or a small mirror for the time being."""
        if self.mirror is None:
            yield self
            return
        cache = Path(self.mirror.folder).parent
        with writing(cache):
            cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="part-", dir=cache) as folder:
            out = replace(self, root=Path(folder), mirror=replace(self.mirror, folder=folder))
            assert out.mirror is not None
            with writing(cache):
                out.mirror.pull(partials=False)
                out.mirror.describe((out.current() or {}).get("partials", ()))
            yield out

    @property
    def name(self) -> str:
        """As its users know it."""
        return self.mirror.url if self.mirror else str(self.root)

    @property
    def leaderboard(self) -> Path:
        return self.root / "leaderboard.duckdb"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def partials(self) -> Path:
        return self.root / "partials"

    def manifests(self) -> list[dict[str, Any]]:
        """The manifests of every finished snapshot, oldest first."""
        told = [json.loads(path.read_text()) for path in self.snapshots.glob("[!.]*/manifest.json")]
        return sorted(told, key=lambda manifest: (manifest["run"]["started"], manifest["run"]["run_id"]))

    def table(self, manifest: dict[str, Any], name: str) -> pl.DataFrame:
        """One table of a finished snapshot."""
        return pl.read_parquet(self.snapshots / manifest["run"]["run_id"] / f"{name}.parquet", glob=False)

    def current(self) -> dict[str, Any] | None:
        """The manifest of the run that leaderboard.duckdb shows."""
        if not self.leaderboard.exists():
            return None
        from scorelake.publish import leaderboard  # noqa: PLC0415  (DuckDB loads slowly)

        home = self.snapshots / (leaderboard.shown(self.leaderboard) or "") / "manifest.json"
        return json.loads(home.read_text()) if home.exists() else None


@contextmanager
def locked(out: Output) -> Iterator[None]:
    """Hold the one writer's lock. The system drops it with its holder, so a crash leaves nothing behind."""
    with writing(out.root):
        out.root.mkdir(parents=True, exist_ok=True)
        file = (out.root / ".lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(
                "another run is writing here", where=out.name, hint="wait for it, or give another --out"
            ) from None
        yield


def stage(out: Output, run_id: str) -> Path:
    """An empty folder aside for a new snapshot; what a crash left of earlier ones is swept away."""
    with writing(out.root):
        return _stage(out, run_id)


def _stage(out: Output, run_id: str) -> Path:
    counting = [path for path in out.partials.glob(".*") if abandoned(path)]  # others may be counting right now
    for leftover in [*out.snapshots.glob(".*"), *counting, *out.root.glob(".leaderboard-*")]:
        remove(leftover)
    home = out.snapshots / f".{run_id}"
    (home / "problem_counts").mkdir(parents=True)
    return home


def publish(
    out: Output, staged: Path, manifest: dict[str, Any], tables: dict[str, pl.DataFrame], problems: Problems
) -> None:
    """Complete the staged snapshot, rename it into place, and replace the leaderboard."""
    with writing(out.root):
        _publish(out, staged, manifest, tables, problems)


def _publish(
    out: Output, staged: Path, manifest: dict[str, Any], tables: dict[str, pl.DataFrame], problems: Problems
) -> None:
    for name, frame in tables.items():
        frame.write_parquet(staged / f"{name}.parquet")
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    manifest = manifest | {
        "files": {path.relative_to(staged).as_posix(): checksum(path) for path in files},
    }
    (staged / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
    final = staged.with_name(staged.name.removeprefix("."))
    settle(staged, final)
    aside = out.root / f".leaderboard-{manifest['run']['run_id']}"
    from scorelake.publish import leaderboard  # noqa: PLC0415  (DuckDB loads slowly)

    leaderboard.build(aside, out.manifests(), final, problems.moved(final / "problem_counts"))
    etag = out.mirror.publish(final, aside, out.seen) if out.mirror else ""
    settle(aside, out.leaderboard)
    if out.mirror:
        out.mirror.remember(etag)
