"""Count the attempts of a lake without code of the package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

Problems = dict[tuple[Any, ...], list[Any]]


def rows(lake: Path) -> Iterator[dict[str, Any]]:
    """Yield every row of every file, with the benchmark of its folder."""
    for path in sorted(lake.rglob("*.parquet")):
        benchmark = unquote(path.parent.name.removeprefix("benchmark="))
        yield from (
            {**row, "benchmark": benchmark} for row in pl.read_parquet(path, hive_partitioning=False).to_dicts()
        )


def problems(lake: Path, benchmark: str | None = None) -> Problems:
    """Return verdicts or rewards of the graded attempts per problem, model and protocol; an attempt counts once."""
    attempts: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for row in rows(lake):
        if benchmark in (None, row["benchmark"]):
            key = tuple(
                row.get(k) for k in ("benchmark", "subject", "model", "temperature", "grader", "setup", "problem_id")
            )
            value = row["score"] if "score" in row else row["passed"]
            if attempts[key].get(row["attempt"]) is None:
                attempts[key][row["attempt"]] = value
    return {key: [value for value in values.values() if value is not None] for key, values in attempts.items()}


def counts(problems: Problems) -> tuple[int, int]:
    """Return passes and graded attempts."""
    values = [value for each in problems.values() for value in each]
    return sum(value is True for value in values), len(values)
