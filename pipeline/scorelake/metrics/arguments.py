"""Arguments of the public functions: counts n and c, or a matrix R of attempts with weights of its outcomes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.attempts import Attempts, categories, tallied
from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, Ints

_HINT = "give n and c, or a matrix of attempts as R=..."


def problem_counts(n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None) -> tuple[Ints, Ints]:
    """Return n and c of every problem, from counts or from a matrix."""
    if matrix is not None:
        if n is not None or c is not None:
            raise MetricError("n and c are given, and R as well", hint=_HINT)
        return tallied(matrix)
    if n is None and c is None:
        raise MetricError("there are no attempts", hint=_HINT)
    return pairs(n, c)  # type: ignore[arg-type]  # pairs() reports that one of them is None


def outcome_counts(
    n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None, w: ArrayLike | None
) -> tuple[Floats, Ints]:
    """Return the weight of every outcome (default: failed 0, passed 1) and its count, problems x outcomes."""
    weights = np.array([0.0, 1.0] if w is None else w, dtype=np.float64)
    if weights.ndim != 1 or weights.size < 2 or not np.isfinite(weights).all():
        raise MetricError(f"w must be two or more finite numbers, one per outcome 0, 1, ..., got {w!r}")
    if matrix is not None and n is None and c is None:
        return weights, categories(matrix, weights.size)
    if weights.size != 2:
        raise MetricError(f"n and c have two outcomes, w has {weights.size}", hint="give the outcomes as R=...")
    attempts, passed = problem_counts(n, c, matrix)
    return weights, np.stack([np.ravel(attempts - passed), np.ravel(passed)], axis=1)


def prior_outcome_counts(matrix: Attempts | None, outcomes: int, problems: int) -> Ints:
    """Return the counts of earlier outcomes, problems x outcomes; one row of zeros without a matrix."""
    if matrix is None:
        return np.zeros((1, outcomes), dtype=np.int64)
    counts = categories(matrix, outcomes, "R0")
    if len(counts) != problems:
        raise MetricError(f"R0 has {len(counts):,} problems, R has {problems:,}")
    return counts


def check_k(name: str, k: int | None) -> int:
    """Return k as a whole number >= 1."""
    if k is None:
        raise MetricError(f"{name}: k is missing", hint=f"k is the number of attempts drawn; {_HINT}")
    if isinstance(k, bool) or k != int(k) or k < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    return int(k)
