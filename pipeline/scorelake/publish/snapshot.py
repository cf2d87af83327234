"""The output folder: its paths, its lock, its mark, and its immutable snapshots.

Only folders marked as an output of scorelake are written to, cleaned or rolled back. Links are never followed for
writing.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from scorelake.errors import DataError, LakeError, LockedError, UsageError
from scorelake.settings import PATIENCE, Settings, Storage
from scorelake.storage import disk

if TYPE_CHECKING:
    from scorelake.storage.mirror import Mirror
    from scorelake.storage.objects import Object

Manifest: TypeAlias = dict[str, Any]
PARTIALS = "partials"
RUNS_FILE, HISTORY_FILE = "runs.parquet", "history.parquet"
CALIBRATION_FILE = "calibration.json"
PUBLISHED_FILE = "published.json"  # checksum of the published leaderboard.duckdb (see runs.py)
PARTS = (disk.BOARD, disk.SNAPSHOTS, PARTIALS, RUNS_FILE, HISTORY_FILE, PUBLISHED_FILE)


@dataclass(frozen=True)
class Output:
    """The folder a job writes to: the output itself, or the local mirror of an output in object storage."""

    root: Path
    mirror: Mirror | None = None
    seen: Object | None = None  # the published leaderboard in object storage when the mirror was last updated

    @classmethod
    def at(cls, location: str | Path, storage: Storage = PATIENCE) -> Output:
        """Return the output at a path or URL."""
        if not disk.is_remote(location):
            return cls(Path(location))
        from scorelake.storage.mirror import Mirror  # noqa: PLC0415  (obstore loads slowly)

        mirror = Mirror.of(str(location), storage)
        return cls(Path(mirror.folder), mirror)

    def fresh(self) -> Output:
        """Update the mirror, if there is one; under the lock."""
        if self.mirror is None:
            return self
        with disk.storage_errors(self.root):
            return replace(self, seen=self.mirror.pull())

    def claimed(self) -> Output:
        """Mark the folder as an output of scorelake; refuse a folder with other data."""
        _refuse_foreign(self)
        if not disk.is_marked(self.root):
            with disk.storage_errors(self.root):
                disk.mark(self.root)
                if self.mirror:
                    self.mirror.send_tops([disk.MARK])
        return self

    def is_ours(self) -> bool:
        """Return whether the folder has our mark or, if that was lost, a snapshot."""
        return disk.is_marked(self.root) or bool(self.manifests())

    def require(self) -> Output:
        """Raise unless the folder is an output of scorelake."""
        if not self.is_ours():
            hint = "use the folder given to `scorelake score --out`"
            raise LakeError("not an output of scorelake", where=self.name, hint=hint)
        return self

    @contextmanager
    def held(self) -> Iterator[Output]:
        """Lock and update an existing output."""
        if self.mirror is None:
            self.require()  # before the lock creates a folder
        with locked(self):
            yield self.fresh().require()

    @contextmanager
    def synced(self) -> Iterator[Output]:
        """Open an existing output to read it; a mirror is updated first, under the lock."""
        if self.mirror is None:
            yield self.require()
        else:
            with self.held() as out:
                yield out

    @contextmanager
    def passing(self) -> Iterator[Output]:
        """Open the output to add partial counts only: itself, or a small temporary mirror."""
        if self.mirror is None:
            _refuse_foreign(self)
            with disk.storage_errors(self.root):
                self.root.mkdir(parents=True, exist_ok=True)
            yield self.claimed()
            return
        cache = Path(self.mirror.folder).parent
        with disk.storage_errors(cache):
            cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="part-", dir=cache) as folder:
            out = replace(self, root=Path(folder), mirror=replace(self.mirror, folder=folder))
            assert out.mirror is not None
            with disk.storage_errors(cache):
                out.mirror.pull(partials=False)
                out.mirror.describe((out.current() or {}).get("partials", ()))
            yield out.claimed()

    @property
    def name(self) -> str:
        """The path or URL that the user gave."""
        return self.mirror.url if self.mirror else str(self.root)

    @property
    def leaderboard(self) -> Path:
        return self.root / disk.BOARD

    @property
    def snapshots(self) -> Path:
        return self.root / disk.SNAPSHOTS

    @property
    def partials(self) -> Path:
        return self.root / PARTIALS

    @property
    def histories(self) -> tuple[Path, Path]:
        return self.root / RUNS_FILE, self.root / HISTORY_FILE

    def manifest(self, run_id: str) -> Manifest | None:
        """Read the manifest of a snapshot; None if there is none. Raises if it is damaged."""
        path = self.snapshots / run_id / "manifest.json"
        if not path.exists():
            return None
        manifest = disk.read_json(path)
        if not _is_manifest(manifest, run_id):
            hint = f"move {path.parent} away and run score again"
            raise DataError("is damaged", where=str(path), hint=hint)
        return manifest  # type: ignore[no-any-return]

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all complete, undamaged snapshots in the order of their runs."""
        manifests = []
        for path in self.snapshots.glob("[!.]*"):
            if disk.RUN_ID.fullmatch(path.name):
                with suppress(DataError):
                    manifests.append(self.manifest(path.name))
        return sorted((m for m in manifests if m), key=lambda m: (m["run"]["number"], m["run"]["run_id"]))

    def current(self) -> Manifest | None:
        """Read the manifest of the published run."""
        from scorelake.publish.runs import find_current_run  # noqa: PLC0415  (which imports this module)

        run_id = find_current_run(self).run_id
        return self.manifest(run_id) if run_id else None


def match_runs(name: str, numbers: Mapping[str, int]) -> list[str]:
    """Return the runs with this id or number; if there are none, those whose id begins so."""
    exact = [run_id for run_id, number in numbers.items() if name in (run_id, str(number))]
    return exact or [run_id for run_id in numbers if name and run_id.startswith(name)]


def stored_settings(manifest: Manifest) -> Settings:
    """Return the settings of a run; keys that this version does not have any more are dropped."""
    run = manifest["run"]
    try:
        return Settings.model_validate(json.loads(run["settings"]), extra="ignore")
    except ValidationError:
        raise UsageError("has settings that this version does not accept", where=f"run {run['run_id']}") from None


def problem_files(snapshot: Path) -> str:
    """Return the glob of a snapshot's problem counts for DuckDB, by their real path."""
    return f"{disk.literal(str(snapshot.resolve()))}/problem_counts/*.parquet"


def _is_manifest(manifest: Any, run_id: str) -> bool:
    try:
        run = manifest["run"]
        numbers = [run[key] for key in ("number", "rows_read", "graded", "ungraded", "duplicates", "rejected")]
        texts = [run["started"], run["settings"], run["lake"], manifest["inputs"], *manifest["partials"]]
        texts += manifest["files"].values()
        return (
            run["run_id"] == run_id
            and all(isinstance(number, int) for number in numbers)
            and all(isinstance(text, str) for text in texts)
            and all(len(entry) == 2 for entry in manifest["quarantine"])
            and isinstance(manifest["size"], dict)
            and isinstance(json.loads(run["settings"]), dict)
        )
    except (TypeError, KeyError, AttributeError, ValueError):
        return False


def _refuse_foreign(out: Output) -> None:
    """Raise if files of others would be overwritten."""
    if out.is_ours():
        return
    if out.root.exists() and not out.root.is_dir():
        raise UsageError("is a file; the output is a folder", where=out.name, hint="choose another --out")
    for name in PARTS:
        path = out.root / name
        if out.mirror and name == PUBLISHED_FILE:
            continue  # never sent to object storage: the mirror keeps it when the output there was deleted
        if path.is_symlink() or (any(path.iterdir()) if path.is_dir() else path.exists()):
            hint = "choose another --out, or move it away and run again"
            raise DataError(f"contains {name}, which scorelake did not write", where=out.name, hint=hint)


@contextmanager
def locked(out: Output) -> Iterator[None]:
    """Hold the lock of the only writer. The system releases it when the process ends, however it ends."""
    if out.mirror is None:
        _refuse_foreign(out)
    for folder in (out.snapshots, out.partials):
        if folder.is_symlink():
            raise UsageError("is a link", where=str(folder), hint="use the real folder as --out")
    with disk.storage_errors(out.root):
        out.root.mkdir(parents=True, exist_ok=True)
        file = disk.open_real(out.root / ".lock")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "wait until it has finished, or choose another --out"
            raise LockedError("another run is writing here", where=out.name, hint=hint) from None
        yield
