"""What nobody needs any more: old snapshots, and partial counts that none of the kept ones uses.

Only in an output that carries our mark, and only what has a name that we give. History is never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scorelake.publish.shown import base
from scorelake.publish.snapshot import Output
from scorelake.storage.disk import PARTIAL, RUN_ID, remove


@dataclass(frozen=True)
class Removed:
    """What was removed, and how much room it took."""

    snapshots: tuple[str, ...]
    partials: tuple[str, ...]
    bytes: int


def collect_garbage(out: Output, keep: int) -> Removed:
    """Remove all but the newest `keep` snapshots (never the one shown) and the partials none of them uses.

    A partial younger than the snapshot shown may belong to a count that goes on, or that no run has used yet. Both
    ages are as the file system tells them.
    """
    known = base(out.known())
    shown = known.shown.run_id
    numbers = dict(known.past.runs.select("run_id", "number").rows())
    published = [m for m in out.manifests() if m["run"]["run_id"] in numbers]
    kept = published[max(0, len(published) - keep) :]
    kept += [m for m in published if m["run"]["run_id"] == shown and m not in kept]
    names = {m["run"]["run_id"] for m in kept}
    used = {name for m in kept for name in m["partials"]}
    old = [path for path in _named(out.snapshots, RUN_ID) if path.name not in names | {shown}]
    if out.mirror:
        out.mirror.sweep(numbers)
        old = [path for path in old if path.name in numbers]  # another machine may be about to publish it
    since = _age(out.snapshots / shown / "manifest.json") if shown else 0.0
    stale = [path for path in _named(out.partials, PARTIAL) if path.name not in used and _age(path) < since]
    if out.mirror:
        out.mirror.remove([path.relative_to(out.root).as_posix() for path in [*old, *stale]])
    size = sum(_size(path) for path in [*old, *stale])
    for path in [*old, *stale]:
        remove(path)
    return Removed(tuple(path.name for path in old), tuple(path.name for path in stale), size)


def _named(folder: Path, ours: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in folder.glob("[!.]*") if ours.fullmatch(path.name))


def _age(path: Path) -> float:
    """When it was last changed; 0 if it is gone, so that nothing is older."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if each.is_file())
