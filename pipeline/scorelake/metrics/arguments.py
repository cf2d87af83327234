"""What a metric may be asked of: counts n and c, or a matrix R of attempts, whose outcomes may be worth something."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.attempts import Attempts, categories, tallied
from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, Ints

_EITHER = "give n and c, or a matrix of attempts as R=..."


def counted(n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None) -> tuple[Ints, Ints]:
    """n and c of every problem, from whichever is given."""
    if matrix is not None:
        if n is not None or c is not None:
            raise MetricError("n and c are given, and R as well", hint=_EITHER)
        return tallied(matrix)
    if n is None and c is None:
        raise MetricError("there are no attempts", hint=_EITHER)
    return pairs(n, c)  # type: ignore[arg-type]  # that one of them is None is told there


def outcomes(
    n: ArrayLike | None, c: ArrayLike | None, matrix: Attempts | None, w: ArrayLike | None
) -> tuple[Floats, Ints]:
    """What every outcome is worth (by default failed 0, passed 1), and how often each problem has it."""
    worth = np.array([0.0, 1.0] if w is None else w, dtype=np.float64)
    if worth.ndim != 1 or worth.size < 2 or not np.isfinite(worth).all():
        raise MetricError(f"w must be two or more finite numbers, one per outcome 0, 1, ..., got {w!r}")
    if matrix is not None and n is None and c is None:
        return worth, categories(matrix, worth.size)
    if worth.size != 2:
        raise MetricError(f"n and c are of two outcomes, w is of {worth.size}", hint="give the outcomes as R=...")
    whole_n, whole_c = counted(n, c, matrix)
    return worth, np.stack([np.ravel(whole_n - whole_c), np.ravel(whole_c)], axis=1)


def prior_outcomes(matrix: Attempts | None, many: int, problems: int) -> Ints:
    """How often each problem had each outcome before; never, where nothing is given."""
    if matrix is None:
        return np.zeros((1, many), dtype=np.int64)
    found = categories(matrix, many, "R0")
    if len(found) != problems:
        raise MetricError(f"R0 has {len(found):,} problems, R has {problems:,}")
    return found


def draws(name: str, k: int | None) -> int:
    """k as a whole number >= 1."""
    if k is None:
        raise MetricError(f"{name}: k is missing", hint=f"k attempts are drawn; {_EITHER}")
    if isinstance(k, bool) or k != int(k) or k < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    return int(k)
