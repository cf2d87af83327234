"""Which models may be compared and ranked: the same problems and about the same n; and the reasons why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Coverage, number_range
from scorelake.metrics import Metric
from scorelake.metrics.distributions import Ints
from scorelake.settings import Compare

Codes = NDArray[np.int8]
Counts = NDArray[np.integer[Any]]
REFUSED = "not comparable: "
"""Start of a claim that gives a reason instead of a result."""


def comparability(coverage: Coverage, shared: Counts, usable: Counts, settings: Compare) -> Codes:
    """Return the reason why two models are not comparable, models x models: 1 to 4, or 0 if they are.

    `shared` counts the problems that both attempted, `usable` those on which both have a score.
    """
    few = shared < settings.min_problems
    same_problems = few & (shared == coverage.problems[:, None]) & (shared == coverage.problems)
    n_differs = coverage.n_differs() if not settings.allow_different_n else np.zeros(few.shape, dtype=bool)
    conditions = [same_problems, few, n_differs, usable < settings.min_problems]
    return np.asarray(np.select(conditions, np.arange(1, 5, dtype=np.int8), np.int8(0)), dtype=np.int8)


def refusals(
    coverage: Coverage,
    codes: Codes,
    shared: Counts,
    usable: Counts,
    a: Ints,
    b: Ints,
    metric: Metric,
    settings: Compare,
) -> tuple[pl.Series, pl.Series]:
    """Return the reasons of pairs as texts, null where there is none: as B against A, and as A against B.

    `codes`, `shared` and `usable` have an entry per pair.
    """
    if not codes.any():
        none = pl.Series([None], dtype=pl.String).new_from_index(0, codes.size)
        return none, none
    attempts = pl.Series(coverage.attempts(), dtype=pl.String)
    out = []
    for one, two in ((a, b), (b, a)):
        pairs = pl.DataFrame({"code": codes, "shared": shared, "usable": usable}).with_columns(
            pl.Series("problems", coverage.problems[one]),
            pl.Series("other_problems", coverage.problems[two]),
            attempts.gather(one).alias("n"),
            attempts.gather(two).alias("other_n"),
        )
        out.append(pairs.select(_reason(metric, settings.min_problems)).to_series())
    return out[0], out[1]


def _reason(metric: Metric, needed: int) -> pl.Expr:
    texts = (
        pl.format("too few problems ({} in common, {} needed)", "shared", pl.lit(needed)),
        pl.format(
            "problem sets differ ({} of {} and {} problems in common, {} needed)",
            *("shared", "problems", "other_problems", pl.lit(needed)),
        ),
        pl.format("n differs ({} and {} attempts per problem)", "n", "other_n"),
        pl.format(
            f"n is below k = {metric.draws} (both models have enough attempts on {{}} problems, {{}} needed)",
            *("usable", pl.lit(needed)),
        ),
    )
    reason = pl.lit(None, pl.String)
    for code, text in enumerate(texts, start=1):
        reason = pl.when(pl.col("code") == code).then(text).otherwise(reason)
    return (pl.lit(REFUSED) + reason).alias("refused")


def rank_eligibility(coverage: Coverage, settings: Compare) -> list[str | None]:
    """Return the reason why each model is not ranked; None if it is.

    Models that attempted enough of the problems are ranked, and of those the largest set that may all be compared
    with each other by their n: ranges that overlap two by two all contain one n.
    """
    needed = max(1, int(np.ceil(settings.min_share * coverage.total - 1e-9)))
    enough = coverage.problems >= needed
    out: list[str | None] = [
        None if fine else f"attempted {problems:,} of {coverage.total:,} problems, {needed:,} needed to be ranked"
        for problems, fine in zip(coverage.problems.tolist(), enough, strict=True)
    ]
    if settings.allow_different_n or not enough.any():
        return out
    common_n = np.unique(coverage.min_n[enough])[:, None]
    contains = (coverage.min_n <= common_n) & (coverage.max_n >= common_n) & enough
    size = contains.sum(axis=1)
    ranked = contains[np.flatnonzero(size == size.max())[-1]]  # of several sets, the one with the largest n
    n = number_range(coverage.min_n[ranked].max(), coverage.max_n[ranked].min())
    for i in np.flatnonzero(enough & ~ranked):
        attempts = number_range(coverage.min_n[i], coverage.max_n[i])
        plural = "" if coverage.max_n[i] == 1 else "s"
        out[i] = f"n differs ({attempts} attempt{plural} per problem, the ranked models share n = {n})"
    return out
