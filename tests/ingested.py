"""What is in a lake, counted without any of our own code: exact fractions over the rows of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from math import comb
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


def mean(found: Problems, draw: Any) -> Fraction:
    """A mean over the problems that have attempts."""
    scored = [draw(values) for values in found.values() if values]
    return sum(scored, Fraction(0)) / len(scored)


def pass_at(found: Problems, k: int) -> float:
    return float(mean(found, lambda v: 1 - Fraction(comb(v.count(False), k), comb(len(v), k))))


def pass_all(found: Problems, k: int) -> float:
    return float(mean(found, lambda v: Fraction(comb(v.count(True), k), comb(len(v), k))))


def average(found: Problems) -> float:
    """The mean of all attempts, not of the problems."""
    values = [Fraction(value) for told in found.values() for value in told]
    return float(sum(values) / len(values))


def best_of(found: Problems, k: int) -> float:
    """The expected largest of k rewards drawn without replacement."""

    def draw(values: list[float]) -> Fraction:
        ordered = sorted(values)
        return sum((Fraction(value) * comb(i, k - 1) for i, value in enumerate(ordered)), Fraction(0)) / comb(
            len(ordered), k
        )

    return float(mean(found, draw))


def counts(found: Problems) -> tuple[int, int]:
    """(passes, graded attempts)."""
    values = [value for told in found.values() for value in told]
    return sum(value is True for value in values), len(values)
