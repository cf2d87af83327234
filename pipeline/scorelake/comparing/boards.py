"""Boards: the models that attempted a benchmark, or one subject of it, under one protocol; which may be compared.

Everything here follows from the survey and from sums; no problem is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.hashing import Hashes
from scorelake.metrics.bootstrap import MAX_UNITS
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.families import Metric, needs_equal_n
from scorelake.scoring.series import without_earlier_points
from scorelake.scoring.survey import ALL, BOARD, Survey
from scorelake.settings import Compare, Settings

Codes = NDArray[np.int8]
Counts = NDArray[np.integer[Any]]
REFUSED = "not comparable: "  # start of a claim that gives a reason instead of a result
N_DIFFERS = 3
REASONS = (
    "too few problems ({shared} in common, {needed} needed)",
    "problem sets differ ({shared} of {problems} and {other_problems} problems in common, {needed} needed)",
    "n differs ({n} and {other_n} attempts per problem{spread}; {metric} is biased by n: use {instead} instead)",
    "n is below k = {k} (both models have enough attempts on {usable} problems, {needed} needed)",
    "too few clusters (1 in common, 2 needed)",
)
_CHANCE = 1.2  # by which n may vary from problem to problem besides, such as 4 to 8 attempts at random
SINGLE_CLUSTER = len(REASONS)


@dataclass(frozen=True)
class ModelBoard:
    """The models of a benchmark, or of one subject of it, under one protocol; arrays have an entry per model."""

    benchmark: str
    subject: str | None  # None for all subjects
    protocol: str
    models: list[str]
    total: int  # problems that any model attempted
    problems: Ints  # problems with a graded attempt of the model
    ungraded: Ints  # problems of which the model has ungraded attempts only
    mean_n: Floats  # graded attempts of the model per problem
    unit_keys: Hashes | None
    """Distinct keys of what is resampled, shared by the boards of a benchmark; None where they are too many."""
    clustered: bool  # some units are clusters of several problems
    only_subject: str | None = None  # set for a benchmark of one subject, which has no board of its own
    by_problem: bool = False  # problems are resampled although clusters are configured: inside a subject that is one


def list_boards(survey: Survey, settings: Settings) -> list[ModelBoard]:
    """Return all benchmarks by protocol, each before its subjects, with the last point of every series."""
    keys, is_graded, by_subject = [*BOARD, "subject", "model"], pl.col("n") > 0, settings.columns.cluster == "subject"
    models = (
        survey.histograms[ALL].group_by(keys)
        .agg(
            problems=pl.col("problems").filter(is_graded).sum(),
            ungraded=pl.col("problems").filter(~is_graded).sum(),
            graded=(pl.col("n") * pl.col("problems")).sum(),
        )
        .filter(pl.col("problems") > 0)
    )  # fmt: skip
    models = without_earlier_points(models, settings)
    totals = survey.coverage[ALL].select(*BOARD, "subject", total="attempted")
    models = models.join(totals, on=[*BOARD, "subject"]).sort(keys)
    out = []
    for frame in models.partition_by(BOARD, maintain_order=True):
        subjects = frame.partition_by("subject", maintain_order=True)
        total, unit_keys = sum(part["total"][0] for part in subjects), survey.units[frame.select(BOARD).row(0)]
        clustered = unit_keys is not None and unit_keys.size < total
        few = unit_keys if unit_keys is not None and unit_keys.size <= MAX_UNITS else None
        every = frame.group_by("model").agg(pl.col(BOARD).first(), pl.col("problems", "ungraded", "graded").sum())
        every = every.with_columns(subject=pl.lit(None, pl.String), total=total).sort("model")
        only = subjects[0]["subject"][0] if len(subjects) == 1 else None
        out.append(_board(every, few, clustered, only_subject=only))
        if only is None:
            units = (None, False) if by_subject else (few, clustered)
            out += [_board(part, *units, by_problem=by_subject) for part in subjects]
    return out


def _board(models: pl.DataFrame, unit_keys: Hashes | None, clustered: bool, **how: Any) -> ModelBoard:
    benchmark, subject, protocol, total = models.select("benchmark", "subject", "protocol", "total").row(0)
    problems, ungraded, graded = (models[name].to_numpy() for name in ("problems", "ungraded", "graded"))
    sizes = (models["model"].to_list(), total, problems, ungraded, graded / problems)
    return ModelBoard(benchmark, subject, protocol, *sizes, unit_keys, clustered, **how)


def n_ratios(sums: NDArray[np.float32], shared: Counts) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return how many times as many attempts one of two models has on the problems they share, on average.

    Takes what sum_n_ratios returns, and the number of shared problems. The second ratio leaves out what makes up for
    itself over problems: 1 where n varies by chance.
    """
    mean = np.broadcast_to(sums / np.maximum(shared, 1), shared.shape)
    largest = np.maximum(mean, mean.T)
    return largest, np.sqrt(largest / np.maximum(np.minimum(mean, mean.T), np.float32(1e-30)))


def comparability(
    board: ModelBoard,
    shared: Counts,
    usable: Counts,
    n_ratios: tuple[NDArray[np.float32], NDArray[np.float32]],
    metric: Metric,
    settings: Compare,
) -> Codes:
    """Return the reason why two models are not comparable, models x models: 1 to 4, or 0 if they are."""
    # `shared` counts the problems that both attempted, `usable` those on which both have a score.
    few = shared < settings.min_problems
    same_problems = few & (shared == board.problems[:, None]) & (shared == board.problems)
    # The bias of one model over the other follows the second ratio, while the first is small.
    n_differs = needs_equal_n(metric.name, np.maximum(n_ratios[0] / _CHANCE, n_ratios[1]))
    conditions = [same_problems, few, n_differs, usable < settings.min_problems]
    return np.asarray(np.select(conditions, np.arange(1, 5, dtype=np.int8), np.int8(0)), dtype=np.int8)


def rank_eligibility(board: ModelBoard, settings: Compare) -> list[str | None]:
    """Return the reason why each model is not ranked; None if it is. Models are ranked whatever their n is."""
    needed = max(1, int(np.ceil(settings.min_share * board.total - 1e-9)))
    out: list[str | None] = []
    for problems, ungraded in zip(board.problems.tolist(), board.ungraded.tolist(), strict=True):
        verb, more = "attempted", ""
        if ungraded:
            verb, more = "has graded attempts on", f" and only ungraded ones on {ungraded:,}"
        reason = f"{verb} {problems:,} of {board.total:,} problems{more}, {needed:,} needed to be ranked"
        out.append(None if problems >= needed else reason)
    return out
