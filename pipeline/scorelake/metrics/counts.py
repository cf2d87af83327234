"""What comes in: counts per problem, checked once, and collapsed to the distinct pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints, blocks
from scorelake.threads import parallel_map

_CACHED = 8
"""Numbers made for each row on the way, which stay in the cache a block at a time."""
_DENSE = 1 << 16
"""A table of flags this small finds distinct pairs faster than a sort, however few the problems."""

_MOST = 2**63 - 1
"""The largest number a key of a pair may be."""


class Distinct(NamedTuple):
    """The distinct (n, c) of many problems, in rising order, and for each problem the place of its own."""

    n: Ints
    c: Ints
    place: NDArray[Any]


def whole(what: str, values: ArrayLike) -> Ints:
    """Non-negative whole numbers out of any array-like; anything else is an error that shows the value."""
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
        raise MetricError(f"{what} must be whole numbers >= 0, got {values!r}") from None
    if bad.any():
        raise MetricError(f"{what} must be whole numbers >= 0, got {_first(array, bad)}")
    return numbers


def pairs(n: ArrayLike, c: ArrayLike) -> tuple[Ints, Ints]:
    """n and c of equal shape, c <= n; scalars stretch to the other's shape."""
    whole_n, whole_c = whole("n", n), whole("c", c)
    try:
        whole_n, whole_c = np.broadcast_arrays(whole_n, whole_c)
    except ValueError:
        raise MetricError(f"n and c differ in shape: {whole_n.shape} and {whole_c.shape}") from None
    over = whole_c > whole_n
    if over.any():
        raise MetricError(f"c must not exceed n, got n={_first(whole_n, over)}, c={_first(whole_c, over)}")
    return whole_n, whole_c


def distinct(n: Ints, c: Ints) -> Distinct:
    """Collapse pairs to the distinct ones, in linear time when they are dense (they nearly always are)."""
    n, c = n.ravel(), c.ravel()
    top = int(n.max(initial=0))
    size = (top + 1) * (top + 2) // 2
    if size <= max(_DENSE, 4 * n.size):
        seen, number = np.zeros(size, dtype=bool), np.zeros(size, dtype=np.int64)
        place = np.empty(n.size, dtype=np.int64)

        def look(rows: slice) -> None:
            place[rows] = (n[rows] * (n[rows] + 1) >> 1) + c[rows]
            seen[place[rows]] = True

        def tell(rows: slice) -> None:
            place[rows] = number[place[rows]]

        parallel_map(look, blocks(n.size, _CACHED))
        keys = np.flatnonzero(seen)
        number[keys] = np.arange(keys.size)
        parallel_map(tell, blocks(n.size, _CACHED))
        first_n = np.repeat(np.arange(top + 1), np.arange(1, top + 2))[keys]
        return Distinct(first_n, keys - first_n * (first_n + 1) // 2, place)
    if (top + 1) ** 2 <= _MOST:
        both, inverse = np.unique(n * (top + 1) + c, return_inverse=True)
        return Distinct(both // (top + 1), both % (top + 1), inverse)
    (n_, at_n), (c_, at_c) = (np.unique(x, return_inverse=True) for x in (n, c))  # their product would not fit
    both, inverse = np.unique(at_n * c_.size + at_c, return_inverse=True)
    return Distinct(n_[both // c_.size], c_[both % c_.size], inverse)


def totals(owner: Ints, numbers: Ints, owners: int) -> Ints:
    """Sums of whole numbers by owner, exact at any size."""
    out = np.zeros(owners, dtype=np.int64)
    np.add.at(out, owner, numbers)
    return out


def prior_pair(prior: tuple[float, float]) -> tuple[float, float]:
    """The Beta prior's two pseudo-counts, both positive and finite."""
    try:
        alpha, beta = (float(x) for x in prior)
    except (TypeError, ValueError):
        raise MetricError(f"prior must be two positive numbers (alpha, beta), got {prior!r}") from None
    if not (0 < alpha < np.inf and 0 < beta < np.inf):
        raise MetricError(f"prior must be two positive numbers (alpha, beta), got ({alpha:g}, {beta:g})")
    return alpha, beta


def level_table(rewards: ArrayLike, counts: ArrayLike) -> tuple[Floats, Ints]:
    """Rewards sorted upwards, and counts (problems x levels) with their columns in the same order."""
    levels = np.asarray(rewards, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0 or not np.isfinite(levels).all():
        raise MetricError(f"rewards must be a list of finite numbers, got {rewards!r}")
    table = whole("counts", counts)
    if table.ndim != 2 or table.shape[1] != levels.size:
        raise MetricError(f"counts must have shape (problems, {levels.size}), got {table.shape}")
    order = np.argsort(levels, kind="stable")
    return levels[order], table[:, order]


def level_prior(rewards: ArrayLike, prior_counts: ArrayLike | None) -> Floats:
    """Prior mass per level, columns in the order of level_table: one each, and the prior outcomes on top."""
    levels = np.asarray(rewards, dtype=np.float64)
    extra = np.zeros(levels.size) if prior_counts is None else np.asarray(prior_counts, dtype=np.float64)
    if extra.shape[-1:] != levels.shape or extra.ndim > 2 or not (np.isfinite(extra) & (extra >= 0)).all():
        raise MetricError(
            f"prior_counts must be >= 0, of shape ({levels.size},) or (problems, {levels.size}), got {prior_counts!r}"
        )
    return np.atleast_2d(1.0 + extra)[:, np.argsort(levels, kind="stable")]


def _first(array: np.ndarray, bad: np.ndarray) -> object:
    """The first offending value, as the user wrote it."""
    return np.broadcast_to(array, bad.shape)[bad].tolist()[0]
