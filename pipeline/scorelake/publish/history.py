"""Every run that was ever published, and its scores: for ever, apart from snapshots.

leaderboard.duckdb holds both as tables and is published by one rename; runs.parquet and history.parquet beside it are
copies that survive it. They only grow. Should a crash come between the rename and the copies, the next run takes what
they lack from the leaderboard; should the leaderboard be lost, they are what is known. A snapshot whose publication
came to nothing is in neither, and is no run.
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
class Past:
    """Runs in the order of their numbers, and their scores."""

    runs: pl.DataFrame
    scores: pl.DataFrame

    def grown(self, manifest: dict[str, Any], summary: pl.DataFrame) -> Past:
        """The same with one more run, of which the manifest tells, and the scores of its model summary."""
        run = manifest["run"]
        told = dict(run) | {
            "settings": settings_digest(run["settings"]),
            "settings_json": run["settings"],
            "quarantine_json": json.dumps(manifest["quarantine"]),
        }
        stamps = [pl.col(name).str.to_datetime("%+", time_zone="UTC") for name in ("started", "finished")]
        texts = RECORD.schema | {"started": pl.String(), "finished": pl.String()}
        record = pl.DataFrame([{name: told[name] for name in texts}], schema=texts)
        record = record.with_columns(stamp.dt.replace_time_zone(None).cast(pl.Datetime("us")) for stamp in stamps)
        whose = record.select("run_id", "number", "started")
        scores = summary.join(whose, how="cross").select(*HISTORY.columns)
        return self.joined(Past(record, scores))

    def joined(self, other: Past) -> Past:
        """All runs of both; of one that both know, what this one knows."""
        more = other.runs.join(self.runs, on="run_id", how="anti")
        scores = other.scores.join(self.runs, on="run_id", how="anti")
        runs = pl.concat([self.runs, more]).sort("number", "run_id")
        return Past(runs, pl.concat([self.scores, scores]).sort("number", maintain_order=True))

    @property
    def next_number(self) -> int:
        return 1 + int(self.runs["number"].max() or 0)  # type: ignore[arg-type]

    def tables(self, shown: str) -> dict[Table, pl.DataFrame]:
        """Both as tables of a leaderboard that shows one of the runs."""
        run = self.runs.select(
            *(name for name in RUN.columns if name != "shown"), shown=pl.col("run_id") == pl.lit(shown)
        )
        left_out = [
            (run_id, *entry)
            for run_id, text in self.runs.select("run_id", "quarantine_json").rows()
            for entry in json.loads(text)
        ]
        spelled = [
            (digest, key, value)
            for digest, text in self.runs.select("settings", "settings_json")
            .unique("settings")
            .sort("settings")
            .rows()
            for key, value in flat(json.loads(text))
        ]
        return {
            RUN: run,
            RECORD: self.runs,
            HISTORY: self.scores,
            QUARANTINE: pl.DataFrame(left_out, schema=QUARANTINE.schema, orient="row"),
            SETTING: pl.DataFrame(spelled, schema=SETTING.schema, orient="row"),
        }


NOTHING = Past(pl.DataFrame(schema=RECORD.schema), pl.DataFrame(schema=HISTORY.schema))


def settings_digest(settings: str) -> str:
    """A short name for settings in JSON."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings as dotted keys and JSON values."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", json.dumps(value)


def read(root: Path) -> Past | None:
    """What the two files of an output hold; None if they are not both there. Raises if they cannot be read."""
    paths = [root / RUNS_FILE, root / HISTORY_FILE]
    if not all(path.exists() for path in paths):
        return None
    for path in paths:
        path.open("rb").close()
    runs, scores = (
        _fitted(pl.read_parquet(path, glob=False), t) for path, t in zip(paths, (RECORD, HISTORY), strict=True)
    )
    return Past(runs, scores)


def fitted(past: Past) -> Past:
    """The same with exactly our columns, whatever version wrote them."""
    return Past(_fitted(past.runs, RECORD), _fitted(past.scores, HISTORY))


def _fitted(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    own = [
        pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, dtype=kind).alias(name)
        for name, kind in table.schema.items()
    ]
    return frame.select(own)


def write(root: Path, past: Past) -> None:
    """Replace both files, each in one step."""
    for name, frame in ((HISTORY_FILE, past.scores), (RUNS_FILE, past.runs)):
        aside = temp_path(root / name)
        frame.write_parquet(aside)
        atomic_replace(aside, root / name)
