"""Which run is published, and is leaderboard.duckdb still the file that was published?

The file names its run. Its checksum is recorded in published.json before the rename that publishes it, together with
that of the file it replaces: after a crash on either side of the rename, the file that is there is on record. Nothing
is inferred from clocks, names or order.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scorelake.errors import DataError, LockedError
from scorelake.publish.history import EMPTY, RunHistory, read_history
from scorelake.publish.snapshot import PUBLISHED_FILE, Manifest, Output, problem_files
from scorelake.storage.disk import checksum, private_copy, read_json, replace_text, set_aside


@dataclass(frozen=True)
class CurrentRun:
    """The run in leaderboard.duckdb, and what is wrong with that file."""

    run_id: str = ""
    rolled_back: bool = False
    problem_files: str = ""
    """The files from which its views read the problems; empty if they are tables of the file."""
    sha256: str = ""
    """Checksum of the file; empty if there is none."""
    defect: str = ""
    """How the file differs from the published one; empty if it does not, or if there is none."""
    is_ours: bool = True
    """False if the file is not a leaderboard of scorelake; then it is kept when it is replaced."""

    @property
    def is_intact(self) -> bool:
        return bool(self.run_id) and not self.defect


def find_current_run(out: Output) -> CurrentRun:
    """Read which run the leaderboard of an output contains."""
    board = out.leaderboard
    if not board.exists():
        return CurrentRun()
    if not board.is_file():
        return CurrentRun(defect="is not a file", is_ours=False)
    sha256 = checksum(board)
    if wal_path(board).exists():
        return CurrentRun(defect=f"has changes of another session in {wal_path(board).name}", sha256=sha256)
    records = _read_records(out)
    current = records.get(sha256)
    if current is None:
        return _inspect(out, sha256, bool(records))
    if current.problem_files in ("", problem_files(out.snapshots / current.run_id)):
        return current
    return replace(current, defect=f"reads its problems from a previous location ({current.problem_files})")


def _inspect(out: Output, sha256: str, has_record: bool) -> CurrentRun:
    """Open a leaderboard that is not on record."""
    from scorelake.publish.leaderboard import run_in_board  # noqa: PLC0415  (DuckDB loads slowly)

    with private_copy(out.leaderboard) as copy:
        run = run_in_board(copy)
    if run is None:
        return CurrentRun(defect="is damaged or not a leaderboard of scorelake", sha256=sha256, is_ours=False)
    if out.mirror:  # another machine may have published it; objects are replaced as a whole, never edited
        return CurrentRun(*run, sha256=sha256)
    defect = "was changed after it was published" if has_record else f"cannot be verified without {PUBLISHED_FILE}"
    return CurrentRun(*run, sha256=sha256, defect=defect)


def record_board(out: Output, board: CurrentRun, previous: CurrentRun) -> None:
    """Record a leaderboard that is about to be published, beside the one that it replaces."""
    path = out.root / PUBLISHED_FILE
    if path.is_dir():
        set_aside(path, out.root)
    records = [board, *([previous] if previous.is_intact else [])]
    replace_text(path, json.dumps([_record(each) for each in records], indent=1) + "\n")


def _record(board: CurrentRun) -> dict[str, Any]:
    return {name: value for name, value in asdict(board).items() if name not in ("defect", "is_ours")}


def _read_records(out: Output) -> dict[str, CurrentRun]:
    """Return the recorded leaderboards by their checksums; none if the record cannot be read."""
    try:
        records = [CurrentRun(**record) for record in read_json(out.root / PUBLISHED_FILE)]
        return {record.sha256: record for record in records}
    except TypeError:
        return {}


def wal_path(board: Path) -> Path:
    """Return the path of DuckDB's write-ahead log; DuckDB applies it to whatever file has the board's name."""
    return board.with_name(f"{board.name}.wal")


@dataclass(frozen=True)
class PublishedState:
    """What a new run builds on: the current run, all earlier runs, and notes about damaged files."""

    current: CurrentRun
    manifest: Manifest | None
    history: RunHistory
    notes: tuple[str, ...]

    def is_up_to_date(self, inputs: str) -> bool:
        """Return whether a run with these inputs would publish the current run again."""
        return self.current.is_intact and self.manifest is not None and self.manifest["inputs"] == inputs

    def check_unchanged(self, out: Output) -> None:
        """Raise if another run has replaced the leaderboard since: it may have seen a newer lake."""
        board = out.leaderboard
        if (checksum(board) if board.is_file() else "") != self.current.sha256:
            hint = "run again: all counts are kept"
            raise LockedError("another run has published here in the meantime", where=out.name, hint=hint)


def load_state(out: Output) -> PublishedState:
    """Read the state of an output under its lock. Damaged parts that can be rebuilt are named and set aside."""
    current = find_current_run(out)
    board = out.leaderboard.name
    notes = [f"{board} {current.defect}; it is published again"] if current.defect else []
    history, damaged = _load_history(out, current, repair=True)
    run_id = current.run_id
    if not current.is_intact and history.runs.height:
        if not out.leaderboard.exists():
            notes.append(f"{board} is missing; it is published again")
        run_id = str(history.runs["run_id"][-1])
    manifest = None
    try:
        manifest = out.manifest(run_id) if run_id else None
        if run_id and manifest is None:
            notes.append(f"snapshots/{run_id} is missing; its run is published again")
    except DataError as error:
        kept = set_aside(out.snapshots / run_id, out.root)
        notes.append(f"{error.where} {error.what}; its snapshot is now {kept.relative_to(out.root)}")
    return PublishedState(current, manifest, history, (*notes, *damaged))


def describe_runs(out: Output) -> list[str]:
    """Return one line per published run: the current one, those with a snapshot to roll back to, and the others."""
    with out.synced() as local:
        current = find_current_run(local)
        kept = {manifest["run"]["run_id"] for manifest in local.manifests()}
        runs = _load_history(local, current, repair=False)[0].runs
    return [
        f"{row['number']:>5}  {row['run_id']}  {row['started']:%Y-%m-%d %H:%M}  {row['files']:>9,} files  "
        f"{row['rows_read']:>13,} rows  {row['models']:>5,} models  "
        + ("shown" if row["run_id"] == current.run_id else "kept" if row["run_id"] in kept else "history only")
        for row in runs.iter_rows(named=True)
    ]


def _load_history(out: Output, current: CurrentRun, repair: bool) -> tuple[RunHistory, list[str]]:
    """Read the history files, and from the leaderboard the runs that they lack."""
    notes, history = [], None
    try:
        history = read_history(out.root)
    except Exception as error:  # whatever Polars raises over a damaged file
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        for path in out.histories:
            if repair and path.exists():
                kept = set_aside(path, out.root).relative_to(out.root)
                notes.append(f"{path.name} cannot be read ({first}); it is now {kept}, and is written again")
    if current.is_intact and (history is None or current.run_id not in history.runs["run_id"]):
        from scorelake.publish.leaderboard import history_in_board  # noqa: PLC0415  (DuckDB loads slowly)

        with private_copy(out.leaderboard) as copy:
            history = (history or EMPTY).merge(history_in_board(copy).conform())
    return history or EMPTY, notes
