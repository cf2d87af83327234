"""Publish a run: rename the snapshot into place, then leaderboard.duckdb. Roll back, and remove old snapshots.

Everything is written under temporary names and flushed first, so readers see the old file or the new one. The second
rename (in object storage one conditional put) is the publication: without it there is no run, and anything lost after
it is restored by the next run.

Files are removed only in an output with our mark, and only if they have names that scorelake gives.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from scorelake.errors import DataError, ScorelakeError, UnsettledError, UsageError
from scorelake.publish.monitoring import REPORT_FILE
from scorelake.publish.runs import (
    CurrentRun,
    PublishedState,
    RunHistory,
    load_state,
    record_board,
    wal_path,
    write_history,
)
from scorelake.publish.snapshot import (
    HISTORY_FILE,
    PUBLISHED_FILE,
    RUNS_FILE,
    Manifest,
    Output,
    match_runs,
    problem_files,
    stored_settings,
)
from scorelake.schemas import MODEL_SUMMARY, SCHEMA_VERSION
from scorelake.storage.disk import (
    BOARD,
    MARK,
    PARTIAL,
    RUN_ID,
    atomic_replace,
    checksum,
    is_abandoned,
    remove,
    set_aside,
    storage_errors,
    total_size,
)
from scorelake.version import __version__

_FILES = (MARK, PUBLISHED_FILE, REPORT_FILE, RUNS_FILE, HISTORY_FILE)
"""Single files of an output, each replaced atomically."""


def stage(out: Output, run_id: str) -> Path:
    """Create an empty hidden folder for a new snapshot, and remove what crashed runs left."""
    with storage_errors(out.root):
        for leftover in _leftovers(out):
            remove(leftover)
        staged = out.snapshots / f".{run_id}"
        (staged / "problem_counts").mkdir(parents=True)
        return staged


def _leftovers(out: Output) -> list[Path]:
    """Return temporary files that no running process is writing; only names that scorelake gives."""
    staged = [path for path in out.snapshots.glob(".*") if RUN_ID.fullmatch(path.name[1:])]
    staged += [p for p in out.root.glob(".leaderboard-*") if RUN_ID.match(p.name.removeprefix(".leaderboard-"))]
    temporary = [path for path in out.partials.glob(".*") if PARTIAL.match(path.name[1:])]
    temporary += [path for name in _FILES for path in out.root.glob(f".{name}.*-*-*-*")]
    return staged + [path for path in temporary if is_abandoned(path)]  # others may be counting right now


def unstage(staged: Path) -> None:
    """Remove the folder of a run that was not published."""
    remove(staged)


def publish(
    out: Output, staged: Path, manifest: Manifest, tables: dict[str, pl.DataFrame], state: PublishedState
) -> None:
    """Complete the staged snapshot, rename it into place, and replace the leaderboard unless it has changed."""
    with storage_errors(out.root):
        for name, frame in tables.items():
            frame.write_parquet(staged / f"{name}.parquet")
        files = sorted(path for path in staged.rglob("*") if path.is_file())
        checksums = {path.relative_to(staged).as_posix(): checksum(path) for path in files}
        manifest = manifest | {"schema_version": SCHEMA_VERSION, "files": checksums}
        (staged / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
        snapshot = staged.with_name(staged.name.removeprefix("."))
        atomic_replace(staged, snapshot)
    history = state.history.with_run(manifest, tables[MODEL_SUMMARY.name])
    try:
        _replace_board(out, manifest, history, state, rolled_back=False)
    except UnsettledError:
        raise  # it may have been published
    except BaseException:
        _withdraw(out, snapshot)
        raise


def _withdraw(out: Output, snapshot: Path) -> None:
    """Remove the snapshot of a run that was not published."""
    with suppress(OSError, ScorelakeError):
        remove(snapshot)
        if out.mirror:
            out.mirror.remove([f"snapshots/{snapshot.name}"])


def rollback(out: Output, name: str) -> Manifest:
    """Publish an earlier run again, by its id or number; under the lock. The next `score` replaces it."""
    state = load_state(out)
    runs = dict(state.history.runs.select("run_id", "number").iter_rows())
    matching = match_runs(name, runs)
    run_id = matching[0] if len(matching) == 1 else ""
    manifest = out.manifest(run_id) if run_id else None
    if manifest is None:
        kept = [f"{m['run']['number']} ({m['run']['run_id']})" for m in out.manifests() if m["run"]["run_id"] in runs]
        why = "its snapshot has been removed" if run_id else "more than one run" if matching else "no such run"
        raise UsageError(f"{name}: {why}", where=out.name, hint=f"available runs: {', '.join(kept) or 'none'}")
    if out.mirror:
        out.mirror.complete(run_id)
    snapshot = out.snapshots / run_id
    if wrong := damaged_files(snapshot, manifest):
        raise DataError(f"damaged or missing: {', '.join(wrong)}", where=str(snapshot), hint="choose another run")
    if manifest.get("schema_version", 0) > SCHEMA_VERSION:
        what = f"was written by a later scorelake ({manifest['run']['version']}); this is {__version__}"
        raise DataError(what, where=str(snapshot), hint="roll back with that version")
    _replace_board(out, manifest, state.history, state, rolled_back=True)
    return manifest


def damaged_files(snapshot: Path, manifest: Manifest) -> list[str]:
    """Return the files of a snapshot that are missing or do not have the checksum of the manifest."""
    return [
        name
        for name, digest in manifest["files"].items()
        if not (snapshot / name).is_file() or checksum(snapshot / name) != digest
    ]


def _replace_board(
    out: Output, manifest: Manifest, history: RunHistory, state: PublishedState, *, rolled_back: bool
) -> None:
    """Build the leaderboard of a snapshot under a temporary name, and publish it."""
    from scorelake.publish.leaderboard import build  # noqa: PLC0415  (DuckDB loads slowly)

    run_id = manifest["run"]["run_id"]
    limit = stored_settings(manifest).publish.max_problems
    # files in object storage are out of reach for whoever opens the leaderboard
    external = out.mirror is None and manifest["size"]["problems"] > limit
    snapshot, temporary = out.snapshots / run_id, out.root / f".leaderboard-{run_id}"
    with storage_errors(out.root):
        build(temporary, run_id, history, snapshot, rolled_back, external)
        files = problem_files(snapshot) if external else ""
        record_board(out, CurrentRun(run_id, rolled_back, files, checksum(temporary)), state.current)
        etag = ""
        if out.mirror:
            if not rolled_back:
                out.mirror.send(snapshot)
            etag = out.mirror.publish(temporary, out.seen)
        else:
            state.check_unchanged(out)
        _set_aside_foreign(out, state.current)
        try:
            atomic_replace(temporary, out.leaderboard)
        except KeyboardInterrupt:
            if temporary.exists():
                raise
    # From here on it is published, whatever happens.
    with suppress(OSError, ScorelakeError, KeyboardInterrupt):
        write_history(out, history)
        if out.mirror:
            out.mirror.remember(BOARD, etag)
            out.mirror.send_tops([path.name for path in out.histories])


def _set_aside_foreign(out: Output, current: CurrentRun) -> None:
    """Keep a file that is not ours, and move a write-ahead log away: DuckDB would apply it to the new file."""
    board = out.leaderboard
    if wal_path(board).exists():
        set_aside(wal_path(board), out.root)
    if not current.is_ours and board.exists():
        kept = set_aside(board, out.root)
        if kept.is_file():
            os.link(kept, board)  # until the new file replaces it


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
    size = sum(total_size(path) for path in [*snapshots, *partials])
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
