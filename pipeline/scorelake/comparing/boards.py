"""Boards: which models of a benchmark are held against each other, under one protocol, and what they attempted.

All of it follows from the survey: no problem is looked at yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.metrics.chance import MOST_UNITS, Words
from scorelake.metrics.distributions import Ints
from scorelake.metrics.gaps import grid
from scorelake.schemas import GROUP
from scorelake.survey import ALL, Survey


@dataclass(frozen=True)
class Place:
    """Which board: the models of a benchmark, or of one subject of it, under one protocol."""

    benchmark: str
    subject: str | None
    """None for all of them."""
    protocol: str
    models: list[str]


@dataclass(frozen=True)
class Tried:
    """What the models of a board attempted."""

    problems: int
    many: Ints
    """Problems of each model."""
    least: Ints
    most: Ints
    """The fewest and the most attempts of a model on a problem."""

    def spans(self) -> list[str]:
        """Attempts per problem of each model, as text."""
        return [span(low, high) for low, high in zip(self.least.tolist(), self.most.tolist(), strict=True)]

    def apart(self) -> NDArray[np.bool_]:
        """Models whose n have nothing in common, models x models."""
        below: NDArray[np.bool_] = self.most[:, None] < self.least
        return below | below.T


def span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Board:
    """A board, and on which grid its scores by each metric are added up."""

    place: Place
    tried: Tried
    steps: tuple[float, ...]


@dataclass(frozen=True)
class Benchmark:
    """All boards of a benchmark under one protocol; they share what is drawn and flipped as a whole."""

    whole: Board
    subjects: tuple[Board, ...]
    """One for each; none where there is only one subject, which would be the same."""
    only: str
    """The first of the subjects."""
    known: Words | None
    """The numbers of problems or clusters; None where they are too many to be drawn one by one."""
    clustered: bool
    """Some problems belong together."""


def benchmarks(told: Survey, bounds: Sequence[float | None]) -> list[Benchmark]:
    """In the order of benchmark and protocol.

    In: how large a score by each metric may be; None where it is as large as the largest score of the lake.
    """
    tried = _attempts(told)
    asked = told.asked[ALL].filter(pl.col("attempted") > 0)
    problems = {(b, s, p): many for b, s, p, many in asked.select(*_SUBJECT, "attempted").iter_rows()}
    out = []
    for board in tried.partition_by("benchmark", "protocol", maintain_order=True):
        benchmark, protocol = board.select("benchmark", "protocol").row(0)
        subjects = board.partition_by("subject", maintain_order=True)
        names = [each["subject"][0] for each in subjects]
        each = [problems[benchmark, name, protocol] for name in names]
        whole = _board(Place(benchmark, None, protocol, []), _together(board), sum(each), bounds)
        parts = [
            _board(Place(benchmark, name, protocol, []), part, many, bounds)
            for name, part, many in zip(names, subjects, each, strict=True)
        ]
        known = told.units[benchmark, protocol]
        clustered = known is not None and known.size < sum(each)
        few = known if known is not None and known.size <= MOST_UNITS else None
        out.append(Benchmark(whole, tuple(parts) if len(parts) > 1 else (), names[0], few, clustered))
    return out


_SUBJECT = ("benchmark", "subject", "protocol")


def _attempts(told: Survey) -> pl.DataFrame:
    """GROUP, and what the model attempted there; only where it did."""
    fine = told.histograms[ALL].coarser(GROUP)
    found = (
        fine.cells.filter(pl.col("n") > 0)
        .group_by("group")
        .agg(many=pl.col("problems").sum(), least=pl.col("n").min(), most=pl.col("n").max())
        .sort("group")
    )
    named = fine.groups[found["group"]].select(*GROUP, "largest")
    return pl.concat([named, found.drop("group")], how="horizontal").sort("benchmark", "protocol", "subject", "model")


def _together(board: pl.DataFrame) -> pl.DataFrame:
    """What models attempted of all subjects."""
    ends = (pl.col("many").sum(), pl.col("least").min(), pl.col("most").max(), pl.col("largest").max())
    return board.group_by("model").agg(ends).sort("model")


def _board(place: Place, tried: pl.DataFrame, problems: int, bounds: Sequence[float | None]) -> Board:
    largest = float(tried["largest"].max() or 0.0)  # type: ignore[arg-type]
    steps = tuple(grid(largest if bound is None else bound, problems) for bound in bounds)
    models = tried["model"].to_list()
    mine = Place(place.benchmark, place.subject, place.protocol, models)
    return Board(mine, Tried(problems, *(tried[name].to_numpy() for name in ("many", "least", "most"))), steps)
