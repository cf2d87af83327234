"""What is in a lake, counted without any of our own code: exact fractions over the rows of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

Problems = dict[tuple[Any, ...], list[Any]]


def rows(lake: Path) -> Iterator[dict[str, Any]]:
    """Every row of every file, with the benchmark of its folder."""
    for path in sorted(lake.rglob("*.parquet")):
        benchmark = unquote(path.parent.name.removeprefix("benchmark="))
        yield from (
            {**row, "benchmark": benchmark} for row in pl.read_parquet(path, hive_partitioning=False).to_dicts()
        )


def problems(lake: Path, benchmark: str | None = None) -> Problems:
    """Verdicts or rewards of the graded attempts per problem, model and protocol; an attempt counts once."""
    attempts: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for row in rows(lake):
        if benchmark in (None, row["benchmark"]):
            key = tuple(
                row.get(k) for k in ("benchmark", "subject", "model", "temperature", "grader", "setup", "problem_id")
            )
            value = row["score"] if "score" in row else row["passed"]
            if attempts[key].get(row["attempt"]) is None:
                attempts[key][row["attempt"]] = value
    return {key: [value for value in told.values() if value is not None] for key, told in attempts.items()}


def average(found: Problems) -> float:
    """The mean of all attempts, not of the problems."""
    values = [Fraction(value) for told in found.values() for value in told]
    return float(sum(values) / len(values))


def counts(found: Problems) -> tuple[int, int]:
    """(passes, graded attempts)."""
    values = [value for told in found.values() for value in told]
    return sum(value is True for value in values), len(values)
