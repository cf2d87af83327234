"""Published runs: the current one in leaderboard.duckdb, and the history of all.

The checksum of the leaderboard is recorded in published.json before the rename that publishes it, beside that of the
file it replaces: after a crash on either side of the rename, the file that is there is on record. The leaderboard
also contains every run and its scores; runs.parquet and history.parquet are copies that survive it. After a crash
between the rename and the copies, the next run reads the missing rows from the leaderboard.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.errors import DataError, LockedError
from scorelake.publish.snapshot import PUBLISHED_FILE, Manifest, Output, problem_files
from scorelake.schemas import HISTORY, QUARANTINE, RECORD, RUN, SETTING, Table
from scorelake.storage import disk


@dataclass(frozen=True)
class CurrentRun:
    """The run in leaderboard.duckdb, and what is wrong with that file."""

    run_id: str = ""
    rolled_back: bool = False
    problem_files: str = ""  # the files from which its views read the problems; empty if they are tables of the file
    sha256: str = ""  # checksum of the file; empty if there is none
    defect: str = ""  # how the file differs from the published one; empty if it does not, or if there is none
    is_ours: bool = True  # false if the file is not a leaderboard of scorelake; then it is kept when it is replaced

    @property
    def is_intact(self) -> bool:
        return bool(self.run_id) and not self.defect


def find_current_run(out: Output) -> CurrentRun:
    """Read which run the leaderboard of an output contains."""
    board = out.leaderboard
    if not board.is_file():
        return CurrentRun(defect="is not a file", is_ours=False) if board.exists() else CurrentRun()
    sha256 = disk.checksum(board)
    if wal_path(board).exists():
        return CurrentRun(defect=f"has changes of another session in {wal_path(board).name}", sha256=sha256)
    try:
        records = [CurrentRun(**record) for record in disk.read_json(out.root / PUBLISHED_FILE)]
    except TypeError:  # missing or damaged
        records = []
    current = next((record for record in records if record.sha256 == sha256), None)
    if current is not None:
        is_moved = current.problem_files not in ("", problem_files(out.snapshots / current.run_id))
        defect = f"reads its problems from a previous location ({current.problem_files})" if is_moved else ""
        return replace(current, defect=defect)
    from scorelake.publish.leaderboard import run_in_board  # noqa: PLC0415  (DuckDB loads slowly)

    with disk.private_copy(board) as copy:
        run = run_in_board(copy)
    if run is None:
        return CurrentRun(defect="is damaged or not a leaderboard of scorelake", sha256=sha256, is_ours=False)
    defect = "was changed after it was published" if records else f"cannot be verified without {PUBLISHED_FILE}"
    if out.mirror:  # another machine may have published it; objects are replaced as a whole, never edited
        defect = ""
    return CurrentRun(*run, sha256=sha256, defect=defect)


def record_board(out: Output, board: CurrentRun, previous: CurrentRun) -> None:
    """Record a leaderboard that is about to be published, beside the one that it replaces."""
    path = out.root / PUBLISHED_FILE
    if path.is_dir():
        disk.set_aside(path, out.root)
    records = [asdict(each) for each in (board, previous) if each is board or each.is_intact]
    for record in records:
        del record["defect"], record["is_ours"]
    disk.replace_text(path, json.dumps(records, indent=1) + "\n")


def wal_path(board: Path) -> Path:
    """Return the path of DuckDB's write-ahead log; DuckDB applies it to whatever file has the board's name."""
    return board.with_name(f"{board.name}.wal")


@dataclass(frozen=True)
class RunHistory:
    """Runs in the order of their numbers, and their scores."""

    runs: pl.DataFrame
    scores: pl.DataFrame

    def with_run(self, manifest: Manifest, summary: pl.DataFrame) -> RunHistory:
        """Add the run of a manifest with the scores of its model summary."""
        run = manifest["run"]
        values = run | {
            "settings": hashlib.sha256(run["settings"].encode()).hexdigest()[:16],
            "settings_json": run["settings"],
            "quarantine_json": json.dumps(manifest["quarantine"]),
        }
        for name in ("started", "finished"):
            values[name] = datetime.fromisoformat(values[name]).astimezone(UTC).replace(tzinfo=None)
        record = pl.DataFrame([{name: values[name] for name in RECORD.schema}], schema=RECORD.schema)
        scores = summary.join(record.select("run_id", "number", "started"), how="cross").select(*HISTORY.columns)
        return self.merge(RunHistory(record, scores))

    def merge(self, other: RunHistory) -> RunHistory:
        """Add the runs of another history that are missing here."""
        runs = pl.concat([self.runs, other.runs.join(self.runs, on="run_id", how="anti")])
        scores = pl.concat([self.scores, other.scores.join(self.runs, on="run_id", how="anti")])
        return RunHistory(runs.sort("number", "run_id"), scores.sort("number", maintain_order=True))

    @property
    def next_number(self) -> int:
        return 1 + int(self.runs["number"].max() or 0)  # type: ignore[arg-type]

    def tables(self, current: str) -> dict[Table, pl.DataFrame]:
        """Return the tables of a leaderboard that contains the run `current`."""
        runs = self.runs.with_columns(shown=pl.col("run_id") == pl.lit(current)).select(*RUN.columns)
        quarantined = self.runs.select("run_id", "quarantine_json").rows()
        quarantine = [(run_id, *entry) for run_id, text in quarantined for entry in json.loads(text)]
        unique = self.runs.select("settings", "settings_json").unique("settings")
        settings = [
            (digest, key, value)
            for digest, text in unique.sort("settings").rows()
            for key, value in flatten_settings(json.loads(text))
        ]
        return {
            RECORD: self.runs,
            RUN: runs,
            HISTORY: self.scores,
            QUARANTINE: pl.DataFrame(quarantine, schema=QUARANTINE.schema, orient="row"),
            SETTING: pl.DataFrame(settings, schema=SETTING.schema, orient="row"),
        }


EMPTY = RunHistory(pl.DataFrame(schema=RECORD.schema), pl.DataFrame(schema=HISTORY.schema))


def flatten_settings(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and JSON values: {"a": {"b": 1}} -> ("a.b", "1")."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)


def write_history(out: Output, history: RunHistory) -> None:
    """Replace both files, each atomically; scores first, so that a run on record has its scores."""
    runs, scores = out.histories
    for path, frame in ((scores, history.scores), (runs, history.runs)):
        temporary = disk.temp_path(path)
        frame.write_parquet(temporary)
        disk.atomic_replace(temporary, path)


def _load_history(out: Output, current: CurrentRun, repair: bool) -> tuple[RunHistory, list[str]]:
    """Read the history files, and from the leaderboard the runs that they lack."""
    notes, history, files = [], None, [path for path in out.histories if path.exists()]
    try:
        if len(files) == len(out.histories):
            for path in files:
                path.open("rb").close()  # Polars would read the files inside a folder of this name
            runs, scores = (pl.read_parquet(path, glob=False) for path in files)
            history = RunHistory(RECORD.conform(runs), HISTORY.conform(scores))
    except Exception as error:  # whatever Polars raises over a damaged file
        for path in files if repair else ():
            kept, why = disk.set_aside(path, out.root).relative_to(out.root), disk.first_line(error)
            notes.append(f"{path.name} cannot be read ({why}); it is now {kept}, and is written again")
    if current.is_intact and (history is None or current.run_id not in history.runs["run_id"]):
        from scorelake.publish.leaderboard import history_in_board  # noqa: PLC0415  (DuckDB loads slowly)

        with disk.private_copy(out.leaderboard) as copy:
            history = (history or EMPTY).merge(history_in_board(copy))
    return history or EMPTY, notes


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
        if (disk.checksum(board) if board.is_file() else "") != self.current.sha256:
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
        kept = disk.set_aside(out.snapshots / run_id, out.root)
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
