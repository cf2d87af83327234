"""Every published run and its scores, kept independently of snapshots.

leaderboard.duckdb contains both as tables and is published by one rename; runs.parquet and history.parquet are copies
that survive it. Rows are only added. After a crash between the rename and the copies, the next run reads the missing
rows from the leaderboard; if the leaderboard is lost, the copies are the record. A snapshot that was not published is
in neither, and is not a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.schemas import HISTORY, QUARANTINE, RECORD, RUN, SETTING, Table
from scorelake.storage.disk import atomic_replace, temp_path

RUNS_FILE, HISTORY_FILE = "runs.parquet", "history.parquet"


@dataclass(frozen=True)
class RunHistory:
    """Runs in the order of their numbers, and their scores."""

    runs: pl.DataFrame
    scores: pl.DataFrame

    def with_run(self, manifest: dict[str, Any], summary: pl.DataFrame) -> RunHistory:
        """Add the run of a manifest with the scores of its model summary."""
        run = manifest["run"]
        values = run | {
            "settings": hashlib.sha256(run["settings"].encode()).hexdigest()[:16],
            "settings_json": run["settings"],
            "quarantine_json": json.dumps(manifest["quarantine"]),
        }
        times = [pl.col(name).str.to_datetime("%+", time_zone="UTC") for name in ("started", "finished")]
        schema = RECORD.schema | {"started": pl.String(), "finished": pl.String()}
        record = pl.DataFrame([{name: values[name] for name in schema}], schema=schema)
        record = record.with_columns(time.dt.replace_time_zone(None).cast(pl.Datetime("us")) for time in times)
        scores = summary.join(record.select("run_id", "number", "started"), how="cross").select(*HISTORY.columns)
        return self.merge(RunHistory(record, scores))

    def merge(self, other: RunHistory) -> RunHistory:
        """Add the runs of another history that are missing here."""
        runs = pl.concat([self.runs, other.runs.join(self.runs, on="run_id", how="anti")])
        scores = pl.concat([self.scores, other.scores.join(self.runs, on="run_id", how="anti")])
        return RunHistory(runs.sort("number", "run_id"), scores.sort("number", maintain_order=True))

    def conform(self) -> RunHistory:
        """Select exactly the columns of this version, whichever version wrote them."""
        return RunHistory(_conform(self.runs, RECORD), _conform(self.scores, HISTORY))

    @property
    def next_number(self) -> int:
        return 1 + int(self.runs["number"].max() or 0)  # type: ignore[arg-type]

    def tables(self, current: str) -> dict[Table, pl.DataFrame]:
        """Return the tables of a leaderboard that contains the run `current`."""
        shown = (pl.col("run_id") == pl.lit(current)).alias("shown")
        quarantine = [
            (run_id, *entry)
            for run_id, text in self.runs.select("run_id", "quarantine_json").rows()
            for entry in json.loads(text)
        ]
        unique = self.runs.select("settings", "settings_json").unique("settings")
        settings = [
            (digest, key, value)
            for digest, text in unique.sort("settings").rows()
            for key, value in flatten_settings(json.loads(text))
        ]
        return {
            RECORD: self.runs,
            RUN: self.runs.select(*(name for name in RUN.columns if name != "shown"), shown),
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


def read_history(root: Path) -> RunHistory | None:
    """Read both files of an output; None unless both exist. Raises if one cannot be read."""
    paths = [root / RUNS_FILE, root / HISTORY_FILE]
    if not all(path.exists() for path in paths):
        return None
    for path in paths:
        path.open("rb").close()  # Polars would read the files inside a folder of this name
    return RunHistory(*(pl.read_parquet(path, glob=False) for path in paths)).conform()


def write_history(root: Path, history: RunHistory) -> None:
    """Replace both files, each atomically."""
    for name, frame in ((HISTORY_FILE, history.scores), (RUNS_FILE, history.runs)):
        temporary = temp_path(root / name)
        frame.write_parquet(temporary)
        atomic_replace(temporary, root / name)


def _conform(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    return frame.select(
        pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, dtype=kind).alias(name)
        for name, kind in table.schema.items()
    )
