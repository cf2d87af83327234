"""A run becomes visible: a snapshot put in place by one rename, then leaderboard.duckdb by another.

A reader sees the old file or the new one, never a mixture: everything is written aside and flushed to disk first. The
second rename (in object storage one conditional put) is the publication; what comes before it is no run yet, and what
comes after it is made up for by the next run should it be lost.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import polars as pl

from scorelake.errors import DataError, ScorelakeError, UnsettledError, UsageError
from scorelake.publish.alarms import NAME as REPORT
from scorelake.publish.history import HISTORY_FILE, RUNS_FILE, Past
from scorelake.publish.history import write as write_history
from scorelake.publish.shown import REMEMBERED, Base, base, log, remember
from scorelake.publish.snapshot import Manifest, Output, problem_files
from scorelake.schemas import MODEL_SUMMARY
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
)
from scorelake.survey import ALL, Survey
from scorelake.version import __version__

_SINGLE = (MARK, REMEMBERED, REPORT, RUNS_FILE, HISTORY_FILE)
"""Files of an output that are replaced in one step."""


def stage(out: Output, run_id: str) -> Path:
    """An empty folder aside for a new snapshot; what a crash left of earlier ones is swept away."""
    with storage_errors(out.root):
        for leftover in _leftovers(out):
            remove(leftover)
        home = out.snapshots / f".{run_id}"
        (home / "problem_counts").mkdir(parents=True)
        return home


def _leftovers(out: Output) -> list[Path]:
    """What no living process of ours is writing; only names that we give."""
    staged = [path for path in out.snapshots.glob(".*") if RUN_ID.fullmatch(path.name[1:])]
    boards = [
        path for path in out.root.glob(".leaderboard-*") if RUN_ID.match(path.name.removeprefix(".leaderboard-"))
    ]
    asides = [path for path in out.partials.glob(".*") if PARTIAL.match(path.name[1:])]
    asides += [path for name in _SINGLE for path in out.root.glob(f".{name}.*-*-*-*")]
    return [*staged, *boards, *(path for path in asides if is_abandoned(path))]  # others may be counting right now


def unstage(staged: Path) -> None:
    """A run that came to nothing leaves nothing."""
    shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def getting_ready(out: Output, staged: Path, told: Survey, most: int) -> Iterator[None]:
    """Make meanwhile what can be made of a leaderboard before there are scores.

    It saves 0.1 to 0.2 of 4.7 seconds on two cores. Where it fails, it is made when it is needed, and then it is told
    why it cannot be.
    """

    def work() -> None:
        from scorelake.publish.leaderboard import get_ready  # noqa: PLC0415  (DuckDB loads slowly)

        with suppress(Exception):
            get_ready(staged, told.histograms[ALL].groups["protocol"].unique().sort().to_list())

    beside = Thread(target=bool if _apart(out, told.problems, most) else work, daemon=True)
    beside.start()
    try:
        yield
    finally:
        beside.join()  # it writes into the folder that is removed if this came to nothing


def publish(
    out: Output,
    staged: Path,
    manifest: Manifest,
    tables: dict[str, pl.DataFrame],
    before: Base,
) -> None:
    """Complete the staged snapshot, rename it into place, and replace the leaderboard if it is the one seen."""
    with storage_errors(out.root):
        for name, frame in tables.items():
            frame.write_parquet(staged / f"{name}.parquet")
        files = sorted(path for path in staged.rglob("*") if path.is_file())
        manifest = manifest | {"files": {path.relative_to(staged).as_posix(): checksum(path) for path in files}}
        (staged / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
        final = staged.with_name(staged.name.removeprefix("."))
        atomic_replace(staged, final)
    past = before.past.grown(manifest, tables[MODEL_SUMMARY.name])
    try:
        _show(out, manifest, past, before, sent=False)
    except UnsettledError:
        raise  # it may be the one that is shown
    except BaseException:
        _withdraw(out, final)
        raise


def _withdraw(out: Output, snapshot: Path) -> None:
    """The snapshot of a run that was not published: no run needs it."""
    with suppress(OSError, ScorelakeError):
        remove(snapshot)
        if out.mirror:
            out.mirror.remove([f"snapshots/{snapshot.name}"])


def rollback(out: Output, run_id: str) -> Manifest:
    """Show an earlier run again, from its snapshot; under the lock. The next `score` shows the lake as it is."""
    before = base(out)
    manifest = out.manifest(run_id) if RUN_ID.fullmatch(run_id) else None
    known = before.past.runs["run_id"].to_list()
    if manifest is None or run_id not in known:
        kept = [m["run"]["run_id"] for m in out.manifests() if m["run"]["run_id"] in known]
        why = "its snapshot has been removed" if run_id in known else "no such run"
        raise UsageError(f"{run_id}: {why}", where=out.name, hint=f"runs that are kept: {', '.join(kept) or 'none'}")
    if out.mirror:
        out.mirror.complete(run_id)
    home = out.snapshots / run_id
    wrong = damaged(home, manifest)
    if wrong:
        raise DataError(f"damaged or missing: {', '.join(wrong)}", where=str(home), hint="choose another run")
    if manifest["run"]["version"] != __version__:
        raise DataError(
            f"was made by scorelake {manifest['run']['version']}; this is {__version__}",
            where=str(home),
            hint="roll back with that version, or score the lake as it was",
        )
    _show(out, manifest, before.past, before, sent=True, rolled_back=True)
    return manifest


def damaged(home: Path, manifest: Manifest) -> list[str]:
    """Files of a snapshot that are not what they were when it was made."""
    return [
        name
        for name, digest in manifest["files"].items()
        if not (home / name).is_file() or checksum(home / name) != digest
    ]


def _show(
    out: Output,
    manifest: Manifest,
    past: Past,
    before: Base,
    *,
    sent: bool,
    rolled_back: bool = False,
) -> None:
    """Build a leaderboard of a snapshot aside, and make it the one that is shown."""
    from scorelake.publish.leaderboard import build  # noqa: PLC0415  (DuckDB loads slowly)

    run_id, most = manifest["run"]["run_id"], json.loads(manifest["run"]["settings"])["publish"]["max_problems"]
    apart = _apart(out, manifest["size"]["problems"], most)
    snapshot, aside = out.snapshots / run_id, out.root / f".leaderboard-{run_id}"
    with storage_errors(out.root):
        build(aside, run_id, past, snapshot, rolled_back, apart)
        etag = ""
        if out.mirror:
            if not sent:
                out.mirror.send(snapshot)
            etag = out.mirror.publish(aside, out.seen)
        else:
            before.still(out)
        _make_way(out, before)
        try:
            atomic_replace(aside, out.leaderboard)
        except KeyboardInterrupt:
            if aside.exists():
                raise
    # From here on it is published, whatever happens.
    with suppress(OSError, ScorelakeError, KeyboardInterrupt):
        write_history(out.root, past)
        remember(out, run_id, rolled_back, problem_files(snapshot) if apart else "")
        if out.mirror:
            out.mirror.remember(BOARD, etag)
            out.mirror.send_tops([path.name for path in out.histories])


def _apart(out: Output, problems: int, most: int) -> bool:
    """Tables per problem stay in the snapshot; files in a store are out of reach for who opens the leaderboard."""
    return out.mirror is None and problems > most


def _make_way(out: Output, before: Base) -> None:
    """What is no leaderboard of ours is kept, and changes that a session left for the old one never reach the new."""
    board = out.leaderboard
    if log(board).exists():
        set_aside(log(board), out.root)
    if not before.shown.ours and board.exists():
        kept = set_aside(board, out.root)
        if kept.is_file():
            os.link(kept, board)  # until the new one takes its place
