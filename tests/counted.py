"""Lakes from counts: write the attempts that give each problem its (n, c), score them, read the tables back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.read.claim import PairRequest, compare_models
from scorelake.read.session import query, reading
from scorelake.settings import Settings

Row = dict[str, Any]


def lake(home: Path, counts: Iterable[Row] | pl.DataFrame) -> Path:
    """Attempts of rows that have n, c and any key columns (model, problem_id, subject, ...), or of a frame."""
    if not isinstance(counts, pl.DataFrame):
        keys = [({key: row[key] for key in row if key not in ("n", "c")}, row["n"], row["c"]) for row in counts]
        counts = pl.DataFrame([{**key, "passed": i < c} for key, n, c in keys for i in range(n)])
    home.mkdir(parents=True, exist_ok=True)
    counts.write_parquet(home / "part-0.parquet")
    return home


def scored(home: Path, counts: Iterable[Row] | pl.DataFrame, **settings: Any) -> Path:
    """The output folder of a lake of such counts."""
    out = home / "out"
    score_lake(lake(home / "lake", counts), Output(out), Settings.model_validate(settings))
    return out


def rows(out: Path, sql: str) -> list[Row]:
    columns, values = query(out, sql, problems=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def claims(out: str, request: PairRequest) -> list[str]:
    """What a comparison says, as text."""
    with reading(out) as folder:
        return [result.text() for result in compare_models(folder, out, request)]
