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
from scorelake.publish import snapshot
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
from scorelake.publish.snapshot import Manifest, Output
from scorelake.schemas import MODEL_SUMMARY, SCHEMA_VERSION
from scorelake.storage import disk
from scorelake.storage.disk import atomic_replace, checksum, remove, storage_errors
from scorelake.version import __version__

_FILES = (
    *(disk.MARK, snapshot.PUBLISHED_FILE, snapshot.CALIBRATION_FILE, REPORT_FILE),
    *(snapshot.RUNS_FILE, snapshot.HISTORY_FILE),
)
"""Single files of an output, each replaced atomically."""


def stage(out: Output, run_id: str) -> Path:
    """Create an empty hidden folder for a new snapshot, and remove what crashed runs left.

    Only names that scorelake gives, and partials only if no running process is writing them.
    """
    with storage_errors(out.root):
        leftovers = [path for path in out.snapshots.glob(".*") if disk.RUN_ID.fullmatch(path.name[1:])]
        boards = out.root.glob(".leaderboard-*")
        leftovers += [path for path in boards if disk.RUN_ID.match(path.name.removeprefix(".leaderboard-"))]
        temporary = [path for path in out.partials.glob(".*") if disk.PARTIAL.match(path.name[1:])]
        temporary += [path for name in _FILES for path in out.root.glob(f".{name}.*-*-*-*")]
        for leftover in [*leftovers, *filter(disk.is_abandoned, temporary)]:
            remove(leftover)
        staged = out.snapshots / f".{run_id}"
        (staged / "problem_counts").mkdir(parents=True)
        return staged


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
        home = staged.with_name(staged.name.removeprefix("."))
        atomic_replace(staged, home)
    history = state.history.with_run(manifest, tables[MODEL_SUMMARY.name])
    try:
        _replace_board(out, manifest, history, state, rolled_back=False)
    except UnsettledError:
        raise  # it may have been published
    except BaseException:
        with suppress(OSError, ScorelakeError):
            remove(home)
            if out.mirror:
                out.mirror.remove([f"snapshots/{home.name}"])
        raise


def rollback(out: Output, name: str) -> Manifest:
    """Publish an earlier run again, by its id or number; under the lock. The next `score` replaces it."""
    state = load_state(out)
    numbers = dict(state.history.runs.select("run_id", "number").iter_rows())
    matching = snapshot.match_runs(name, numbers)
    run_id = matching[0] if len(matching) == 1 else ""
    manifest = out.manifest(run_id) if run_id else None
    if manifest is None:
        kept = [each["run"] for each in out.manifests() if each["run"]["run_id"] in numbers]
        available = ", ".join(f"{run['number']} ({run['run_id']})" for run in kept)
        why = "its snapshot has been removed" if run_id else "more than one run" if matching else "no such run"
        raise UsageError(f"{name}: {why}", where=out.name, hint=f"available runs: {available or 'none'}")
    if out.mirror:
        out.mirror.complete(run_id)
    home = out.snapshots / run_id
    if wrong := damaged_files(home, manifest):
        raise DataError(f"damaged or missing: {', '.join(wrong)}", where=str(home), hint="choose another run")
    if manifest.get("schema_version", 0) > SCHEMA_VERSION:
        what = f"was written by a later scorelake ({manifest['run']['version']}); this is {__version__}"
        raise DataError(what, where=str(home), hint="roll back with that version")
    _replace_board(out, manifest, state.history, state, rolled_back=True)
    return manifest


def damaged_files(home: Path, manifest: Manifest) -> list[str]:
    """Return the files of a snapshot that are missing or do not have the checksum of the manifest."""
    files = {name: home / name for name in manifest["files"]}
    return [n for n, path in files.items() if not path.is_file() or checksum(path) != manifest["files"][n]]


def _replace_board(
    out: Output, manifest: Manifest, history: RunHistory, state: PublishedState, *, rolled_back: bool
) -> None:
    """Build the leaderboard of a snapshot under a temporary name, and publish it."""
    from scorelake.publish.leaderboard import build  # noqa: PLC0415  (DuckDB loads slowly)

    run_id, board = manifest["run"]["run_id"], out.leaderboard
    limit = snapshot.stored_settings(manifest).publish.max_problems
    # files in object storage are out of reach for whoever opens the leaderboard
    external = out.mirror is None and manifest["size"]["problems"] > limit
    home, temporary = out.snapshots / run_id, out.root / f".leaderboard-{run_id}"
    with storage_errors(out.root):
        build(temporary, run_id, history, home, rolled_back, external)
        files = snapshot.problem_files(home) if external else ""
        record_board(out, CurrentRun(run_id, rolled_back, files, checksum(temporary)), state.current)
        etag = ""
        if out.mirror:
            if not rolled_back:
                out.mirror.send(home)
            etag = out.mirror.publish(temporary, out.seen)
        else:
            state.check_unchanged(out)
        if wal_path(board).exists():  # DuckDB would apply it to the new file
            disk.set_aside(wal_path(board), out.root)
        if not state.current.is_ours and board.exists():
            kept = disk.set_aside(board, out.root)
            if kept.is_file():
                os.link(kept, board)  # until the new file replaces it
        try:
            atomic_replace(temporary, board)
        except KeyboardInterrupt:
            if temporary.exists():
                raise
    # From here on it is published, whatever happens.
    with suppress(OSError, ScorelakeError, KeyboardInterrupt):
        write_history(out, history)
        if out.mirror:
            out.mirror.remember(disk.BOARD, etag)
            out.mirror.send_tops([path.name for path in out.histories])


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
    snapshots = [path for path in _named(out.snapshots, disk.RUN_ID) if path.name not in {*kept, current}]
    if out.mirror:
        out.mirror.sweep(published_ids)
        snapshots = [path for path in snapshots if path.name in published_ids]  # others may be publishing
    since = _modified(out.snapshots / current / "manifest.json") if current else 0.0
    named = _named(out.partials, disk.PARTIAL)
    partials = [path for path in named if path.name not in used and _modified(path) < since]
    if out.mirror:
        out.mirror.remove([path.relative_to(out.root).as_posix() for path in [*snapshots, *partials]])
    size = sum(disk.total_size(path) for path in [*snapshots, *partials])
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
