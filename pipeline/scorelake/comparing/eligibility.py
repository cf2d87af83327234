"""Which models may be compared and ranked, and the reasons why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Coverage
from scorelake.metrics.counts import needs_equal_n
from scorelake.metrics.distributions import Ints
from scorelake.metrics.families import Metric
from scorelake.settings import Compare

Codes = NDArray[np.int8]
Counts = NDArray[np.integer[Any]]
REFUSED = "not comparable: "
"""Start of a claim that gives a reason instead of a result."""
N_DIFFERS = 3
_INSTEAD = {"bayes@N": "avg@N", "geom@k": "geom-ds@k, pass@k or pass^k"}
"""What to use where n must be the same."""


def n_ratio(sums: NDArray[np.float32], shared: Counts) -> NDArray[np.float32]:
    """Return how many times as many attempts one of two models has on the problems they share, on average.

    Takes what sum_n_ratios returns, and the number of shared problems.
    """
    mean = np.broadcast_to(sums / np.maximum(shared, 1), shared.shape)
    return np.maximum(mean, mean.T)


def comparability(
    coverage: Coverage,
    shared: Counts,
    usable: Counts,
    n_ratio: NDArray[np.float32],
    metric: Metric,
    settings: Compare,
) -> Codes:
    """Return the reason why two models are not comparable, models x models: 1 to 4, or 0 if they are.

    `shared` counts the problems that both attempted, `usable` those on which both have a score.
    """
    few = shared < settings.min_problems
    same_problems = few & (shared == coverage.problems[:, None]) & (shared == coverage.problems)
    n_differs = needs_equal_n(metric.name, n_ratio)
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
    attempts = pl.Series([f"{n:,.1f}".removesuffix(".0") for n in coverage.mean_n.tolist()], dtype=pl.String)
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
    n_rule = f"{metric.name} is biased by n: use {_INSTEAD.get(metric.family.name)} instead"
    texts = (
        pl.format("too few problems ({} in common, {} needed)", "shared", pl.lit(needed)),
        pl.format(
            "problem sets differ ({} of {} and {} problems in common, {} needed)",
            *("shared", "problems", "other_problems", pl.lit(needed)),
        ),
        pl.format(f"n differs ({{}} and {{}} attempts per problem; {n_rule})", "n", "other_n"),
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
    """Return the reason why each model is not ranked; None if it is. Models are ranked whatever their n is."""
    needed = max(1, int(np.ceil(settings.min_share * coverage.total - 1e-9)))
    out: list[str | None] = []
    for problems, ungraded in zip(coverage.problems.tolist(), coverage.ungraded.tolist(), strict=True):
        verb, more = "attempted", ""
        if ungraded:
            verb, more = "has graded attempts on", f" and only ungraded ones on {ungraded:,}"
        reason = f"{verb} {problems:,} of {coverage.total:,} problems{more}, {needed:,} needed to be ranked"
        out.append(None if problems >= needed else reason)
    return out
