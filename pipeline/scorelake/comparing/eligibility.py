"""Which models may be compared and ranked, and the reasons why not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.comparing.boards import Coverage
from scorelake.metrics.counts import needs_equal_n
from scorelake.metrics.families import Metric
from scorelake.settings import Compare

Codes = NDArray[np.int8]
Counts = NDArray[np.integer[Any]]
REFUSED = "not comparable: "
"""Start of a claim that gives a reason instead of a result."""
N_DIFFERS = 3
REASONS = (
    "too few problems ({shared} in common, {needed} needed)",
    "problem sets differ ({shared} of {problems} and {other_problems} problems in common, {needed} needed)",
    "n differs ({n} and {other_n} attempts per problem{spread}; {metric} is biased by n: use {instead} instead)",
    "n is below k = {k} (both models have enough attempts on {usable} problems, {needed} needed)",
    "too few clusters (1 in common, 2 needed)",
)
SINGLE_CLUSTER = len(REASONS)


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
