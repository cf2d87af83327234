"""Check counts given by users, and collapse them to distinct pairs (n, c)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints

_DENSE = 1 << 16


class Distinct(NamedTuple):
    """The distinct (n, c) of many problems in ascending order, and the index of the pair of each problem."""

    n: Ints
    c: Ints
    inverse: NDArray[Any]


def whole_numbers(name: str, values: ArrayLike) -> Ints:
    """Return an array of non-negative whole numbers; raise with the first value that is not one."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iub":
            numbers = array.astype(np.int64)
            bad = numbers < 0
        else:
            floats = array.astype(np.float64)
            bad = ~((floats >= 0) & (floats == np.floor(floats)) & (floats < 2.0**53))
            numbers = np.where(bad, 0, floats).astype(np.int64)
    except (TypeError, ValueError):
        raise MetricError(f"{name} must be whole numbers >= 0, got {values!r}") from None
    if bad.any():
        raise MetricError(f"{name} must be whole numbers >= 0, got {_first(array, bad)}")
    return numbers


def pairs(n: ArrayLike, c: ArrayLike) -> tuple[Ints, Ints]:
    """Return n and c as arrays of equal shape; raise unless 0 <= c <= n."""
    all_n, all_c = whole_numbers("n", n), whole_numbers("c", c)
    try:
        all_n, all_c = np.broadcast_arrays(all_n, all_c)
    except ValueError:
        raise MetricError(f"n and c differ in shape: {all_n.shape} and {all_c.shape}") from None
    over = all_c > all_n
    if over.any():
        raise MetricError(f"c must not exceed n, got n={_first(all_n, over)}, c={_first(all_c, over)}")
    return all_n, all_c


def distinct(n: Ints, c: Ints) -> Distinct:
    """Return the distinct pairs, and the index of the pair of each problem."""
    n, c = n.ravel(), c.ravel()
    top = int(n.max(initial=0))
    size = (top + 1) * (top + 2) // 2
    if size <= max(_DENSE, 4 * n.size):  # nearly always: a table of flags is faster than a sort
        code = (n * (n + 1) >> 1) + c
        seen = np.zeros(size, dtype=bool)
        seen[code] = True
        keys = np.flatnonzero(seen)
        first_n = np.repeat(np.arange(top + 1), np.arange(1, top + 2))[keys]
        return Distinct(first_n, keys - first_n * (first_n + 1) // 2, (np.cumsum(seen) - 1)[code])
    both, index = np.unique(np.stack([n, c]), axis=1, return_inverse=True)
    return Distinct(both[0], both[1], index.ravel())


def totals(owner: Ints, numbers: Ints, owners: int) -> Ints:
    """Sum whole numbers by owner, exactly (bincount adds floats)."""
    out = np.zeros(owners, dtype=np.int64)
    np.add.at(out, owner, numbers)
    return out


def prior_pair(prior: tuple[float, float]) -> tuple[float, float]:
    """Return the two pseudo-counts of a Beta prior; raise unless both are positive and finite."""
    try:
        alpha, beta = (float(x) for x in prior)
    except (TypeError, ValueError):
        raise MetricError(f"prior must be two positive numbers (alpha, beta), got {prior!r}") from None
    if not (0 < alpha < np.inf and 0 < beta < np.inf):
        raise MetricError(f"prior must be two positive numbers (alpha, beta), got ({alpha:g}, {beta:g})")
    return alpha, beta


def level_table(rewards: ArrayLike, counts: ArrayLike) -> tuple[Floats, Ints]:
    """Return ascending rewards, and counts (problems x levels) with columns in that order."""
    levels = np.asarray(rewards, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0 or not np.isfinite(levels).all():
        raise MetricError(f"rewards must be a list of finite numbers, got {rewards!r}")
    table = whole_numbers("counts", counts)
    if table.ndim != 2 or table.shape[1] != levels.size:
        raise MetricError(f"counts must have shape (problems, {levels.size}), got {table.shape}")
    order = np.argsort(levels, kind="stable")
    return levels[order], table[:, order]


def level_prior(rewards: ArrayLike, prior_counts: ArrayLike | None) -> Floats:
    """Return the prior mass per level, in the order of level_table: one plus the prior outcomes."""
    levels = np.asarray(rewards, dtype=np.float64)
    extra = np.zeros(levels.size) if prior_counts is None else np.asarray(prior_counts, dtype=np.float64)
    if extra.shape[-1:] != levels.shape or extra.ndim > 2 or not (np.isfinite(extra) & (extra >= 0)).all():
        raise MetricError(
            f"prior_counts must be >= 0, of shape ({levels.size},) or (problems, {levels.size}), got {prior_counts!r}"
        )
    return np.atleast_2d(1.0 + extra)[:, np.argsort(levels, kind="stable")]


def _first(array: np.ndarray, bad: np.ndarray) -> object:
    """Return the first invalid value as it was given."""
    return np.broadcast_to(array, bad.shape)[bad].tolist()[0]
