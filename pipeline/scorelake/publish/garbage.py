"""Remove old snapshots and unused partial counts.

Only in an output with our mark, and only files with names that scorelake gives. History is never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scorelake.publish.current_run import load_state
from scorelake.publish.snapshot import Output
from scorelake.storage.disk import PARTIAL, RUN_ID, remove


@dataclass(frozen=True)
class Removed:
    """Names of what was removed, and its size."""

    snapshots: tuple[str, ...]
    partials: tuple[str, ...]
    bytes: int


def collect_garbage(out: Output, keep: int) -> Removed:
    """Remove all but the newest `keep` snapshots (never the published one), and partials that none of them uses.

    Partials younger than the published snapshot stay: they may belong to a count in progress, or to the next run.
    Both ages are times of the file system.
    """
    state = load_state(out.require())
    current, published_ids = state.current.run_id, set(state.history.runs["run_id"])
    published = [m for m in out.manifests() if m["run"]["run_id"] in published_ids]
    newest = published[max(0, len(published) - keep) :]
    kept = {m["run"]["run_id"]: m for m in published if m in newest or m["run"]["run_id"] == current}
    used = {name for manifest in kept.values() for name in manifest["partials"]}
    snapshots = [path for path in _named(out.snapshots, RUN_ID) if path.name not in {*kept, current}]
    if out.mirror:
        out.mirror.sweep(published_ids)
        snapshots = [path for path in snapshots if path.name in published_ids]  # others may be publishing
    since = _modified(out.snapshots / current / "manifest.json") if current else 0.0
    partials = [path for path in _named(out.partials, PARTIAL) if path.name not in used and _modified(path) < since]
    if out.mirror:
        out.mirror.remove([path.relative_to(out.root).as_posix() for path in [*snapshots, *partials]])
    size = sum(_size(path) for path in [*snapshots, *partials])
    for path in [*snapshots, *partials]:
        remove(path)
    return Removed(tuple(path.name for path in snapshots), tuple(path.name for path in partials), size)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in folder.glob("[!.]*") if pattern.fullmatch(path.name))


def _modified(path: Path) -> float:
    """Return the time of the last change; 0 if the file is gone, so that nothing counts as older."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if each.is_file())
