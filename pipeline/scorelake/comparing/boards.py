"""Boards: the models that attempted a benchmark, or one subject of it, under one protocol.

Everything here follows from the survey; no problem is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from scorelake.hashing import Hashes
from scorelake.metrics.bootstrap import MAX_UNITS
from scorelake.metrics.distributions import Floats, Ints
from scorelake.scoring.survey import ALL, Survey


@dataclass(frozen=True)
class Coverage:
    """What the models of a board attempted; arrays have an entry per model."""

    total: int
    """Problems that any model attempted."""
    problems: Ints
    """Problems with a graded attempt of the model."""
    ungraded: Ints
    """Problems of which the model has ungraded attempts only."""
    mean_n: Floats
    """Graded attempts of the model per problem."""


@dataclass(frozen=True)
class ModelBoard:
    """The models of a benchmark, or of one subject of it, under one protocol."""

    benchmark: str
    subject: str | None
    """None for all subjects."""
    protocol: str
    models: list[str]
    coverage: Coverage


@dataclass(frozen=True)
class Benchmark:
    """All boards of a benchmark under one protocol; they share the units that are resampled."""

    overall: ModelBoard
    subjects: tuple[ModelBoard, ...]
    """A single subject has the same models and problems as the benchmark."""
    unit_keys: Hashes | None
    """Distinct keys of problems or clusters; None where they are too many to be resampled one by one."""
    clustered: bool
    """Some units are clusters of several problems."""

    @property
    def boards(self) -> tuple[ModelBoard, ...]:
        """Return the boards to compare: the benchmark, then its subjects if there are several."""
        return (self.overall, *(self.subjects if len(self.subjects) > 1 else ()))

    @property
    def units(self) -> Hashes:
        return np.arange(MAX_UNITS, dtype=np.uint64) if self.unit_keys is None else self.unit_keys


def list_benchmarks(survey: Survey) -> list[Benchmark]:
    """Return all boards, in the order of benchmark and protocol."""
    keys, is_graded = ("benchmark", "protocol", "subject", "model"), pl.col("n") > 0
    models = (
        survey.histograms[ALL].group_by(keys)
        .agg(
            problems=pl.col("problems").filter(is_graded).sum(),
            ungraded=pl.col("problems").filter(~is_graded).sum(),
            graded=(pl.col("n") * pl.col("problems")).sum(),
        )
        .filter(pl.col("problems") > 0)
    )  # fmt: skip
    totals = survey.coverage[ALL].select("benchmark", "protocol", "subject", "attempted")
    problems = {(b, p, s): total for b, p, s, total in totals.iter_rows()}
    out = []
    for frame in models.sort(keys).partition_by("benchmark", "protocol", maintain_order=True):
        benchmark, protocol = frame.select("benchmark", "protocol").row(0)
        subjects = []
        for part in frame.partition_by("subject", maintain_order=True):
            subject = part["subject"][0]
            subjects.append(_board(benchmark, subject, protocol, part, problems[benchmark, protocol, subject]))
        total = sum(board.coverage.total for board in subjects)
        counts = frame.group_by("model").agg(pl.col("problems", "ungraded", "graded").sum())
        overall = _board(benchmark, None, protocol, counts.sort("model"), total)
        unit_keys = survey.units[benchmark, protocol]
        clustered = unit_keys is not None and unit_keys.size < total
        few = unit_keys if unit_keys is not None and unit_keys.size <= MAX_UNITS else None
        out.append(Benchmark(overall, tuple(subjects), few, clustered))
    return out


def _board(benchmark: str, subject: str | None, protocol: str, models: pl.DataFrame, total: int) -> ModelBoard:
    problems, ungraded, graded = (models[name].to_numpy() for name in ("problems", "ungraded", "graded"))
    coverage = Coverage(total, problems, ungraded, graded / problems)
    return ModelBoard(benchmark, subject, protocol, models["model"].to_list(), coverage)
