"""Counts of attempts: checked arguments of the public functions, matrices of attempts, and distinct pairs (n, c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints

Attempts: TypeAlias = NDArray[Any] | Sequence[object]
"""problems x attempts: a numpy array, masked or not, or lists of lists, which may be ragged and hold None or NaN.

Type checkers see `list[object]` where some rows hold None, so the type is this wide; entries() checks the rest.
"""
Counts: TypeAlias = ArrayLike | None
Matrix: TypeAlias = Attempts | None

_HINT = "give n and c, or a matrix of attempts as R=..."
_SHAPE = "a matrix has a row per problem and an entry per attempt: [[0, 1, 1], [1, None]]"
_DENSE = 1 << 17


def distinct(n: Ints, c: Ints) -> tuple[Ints, Ints, NDArray[Any]]:
    """Return the distinct (n, c) of many problems in ascending order, and the index of the pair of each problem."""
    n, c = n.ravel(), c.ravel()
    width = int(n.max(initial=0)) + 1
    if width**2 <= max(_DENSE, 8 * n.size):  # nearly always: a table of flags is faster than a sort
        seen = np.zeros((width, width), dtype=bool)
        seen[n, c] = True
        first_n, first_c = np.nonzero(seen)
        return first_n, first_c, (np.cumsum(seen) - 1)[n * width + c]
    both, index = np.unique(np.stack([n, c]), axis=1, return_inverse=True)
    return both[0], both[1], index.ravel()


def totals(owner: Ints, numbers: Ints, owners: int) -> Ints:
    """Sum whole numbers by owner, exactly (bincount adds floats)."""
    out = np.zeros(owners, dtype=np.int64)
    np.add.at(out, owner, numbers)
    return out


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
        raise MetricError(f"{name} must be whole numbers >= 0, got {array[bad].tolist()[0]}")
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
        raise MetricError(f"c must not exceed n, got n={all_n[over][0]}, c={all_c[over][0]}")
    return all_n, all_c


def problem_counts(n: Counts, c: Counts, matrix: Matrix) -> tuple[Ints, Ints]:
    """Return n and c of every problem, from counts or from a matrix."""
    if matrix is not None:
        if n is not None or c is not None:
            raise MetricError("n and c are given, and R as well", hint=_HINT)
        counts = categories(matrix, 2)
        return counts.sum(axis=1), counts[:, 1]
    if n is None and c is None:
        raise MetricError("there are no attempts", hint=_HINT)
    return pairs(n, c)  # type: ignore[arg-type]  # pairs() reports that one of them is None


def outcome_counts(n: Counts, c: Counts, matrix: Matrix, w: ArrayLike | None) -> tuple[Floats, Ints]:
    """Return the reward of every outcome (default: failed 0, passed 1) and its count, problems x outcomes."""
    rewards = np.array([0.0, 1.0] if w is None else w, dtype=np.float64)
    if rewards.ndim != 1 or rewards.size < 2 or not np.isfinite(rewards).all():
        raise MetricError(f"w must be two or more finite numbers, one per outcome 0, 1, ..., got {w!r}")
    if matrix is not None and n is None and c is None:
        return rewards, categories(matrix, rewards.size)
    if rewards.size != 2:
        raise MetricError(f"n and c have two outcomes, w has {rewards.size}", hint="give the outcomes as R=...")
    attempts, passed = problem_counts(n, c, matrix)
    return rewards, np.stack([np.ravel(attempts - passed), np.ravel(passed)], axis=1)


def prior_outcome_counts(matrix: Matrix, outcomes: int, problems: int) -> Ints:
    """Return the counts of earlier outcomes, problems x outcomes; one row of zeros without a matrix."""
    if matrix is None:
        return np.zeros((1, outcomes), dtype=np.int64)
    counts = categories(matrix, outcomes, "R0")
    if len(counts) != problems:
        raise MetricError(f"R0 has {len(counts):,} problems, R has {problems:,}")
    return counts


def reward_levels(rewards: ArrayLike, counts: ArrayLike, prior_counts: Counts) -> tuple[Floats, Ints, Floats]:
    """Return rising rewards, and in their order the counts (problems x levels) and the prior: 1 + prior_counts."""
    levels = np.asarray(rewards, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0 or not np.isfinite(levels).all():
        raise MetricError(f"rewards must be a list of finite numbers, got {rewards!r}")
    table = whole_numbers("counts", counts)
    if table.ndim != 2 or table.shape[1] != levels.size:
        raise MetricError(f"counts must have shape (problems, {levels.size}), got {table.shape}")
    extra = np.zeros(levels.size) if prior_counts is None else np.asarray(prior_counts, dtype=np.float64)
    if extra.shape[-1:] != levels.shape or extra.ndim > 2 or not (np.isfinite(extra) & (extra >= 0)).all():
        raise MetricError(
            f"prior_counts must be >= 0, of shape ({levels.size},) or (problems, {levels.size}), got {prior_counts!r}"
        )
    prior = np.atleast_2d(1.0 + extra)
    if len(prior) not in (1, len(table)):
        raise MetricError(f"prior_counts has {len(prior)} rows for {len(table)} problems")
    order = np.argsort(levels, kind="stable")
    return levels[order], table[:, order], prior[:, order]


@dataclass(frozen=True)
class Entries:
    """The entries of a matrix one after another: their values, whether they are there, their rows and columns."""

    value: Floats
    there: NDArray[np.bool_]
    problem: Ints
    position: Ints
    problems: int


def entries(matrix: Attempts, what: str = "R") -> Entries:
    """Return the attempts of a matrix; raise if it is not a matrix of numbers."""
    # NaN is an attempt that was not made, so that rows of unequal length fit into one array. None and masked entries
    # are attempts without a verdict.
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.dtype.kind in "biuf":
        problem, position = np.divmod(np.arange(matrix.size), max(matrix.shape[1], 1))
        there = ~np.ma.getmaskarray(matrix).ravel()
        value = np.where(there, np.ma.getdata(matrix).ravel(), 0).astype(np.float64)
        made = ~np.isnan(value)
        return Entries(value[made], there[made], problem[made], position[made], len(matrix))
    if isinstance(matrix, np.ndarray) and matrix.ndim not in (1, 2):
        raise MetricError(f"{what} has {matrix.ndim} dimensions", hint=_SHAPE)
    if (listed := _as_list(matrix)) is None:
        raise MetricError(f"{what} is a {type(matrix).__name__}, no matrix of attempts", hint=_SHAPE)
    nested = [_as_list(row) for row in listed]
    rows = [row for row in nested if row is not None] or [listed]  # one flat row is one problem
    if not listed or 0 < nested.count(None) < len(nested):
        raise MetricError(f"{what} is no matrix of attempts", hint=_SHAPE)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    problem = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(problem.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = list(chain.from_iterable(rows))
    for entry in flat:
        if not isinstance(entry, Real | np.bool_ | None):
            raise MetricError(f"{what}: an entry must be a number, a boolean or None, got {entry!r}", hint=_SHAPE)
    there = np.array([entry is not None for entry in flat], dtype=bool)
    value = np.array([0.0 if entry is None else float(entry) for entry in flat])
    made = ~np.isnan(value)
    return Entries(value[made], there[made], problem[made], position[made], len(rows))


def categories(matrix: Attempts, many: int, what: str = "R") -> Ints:
    """Count how often every problem has each of the outcomes 0, 1, ...: problems x outcomes."""
    given = entries(matrix, what)
    value = given.value[given.there]
    odd = ~((value >= 0) & (value < many) & (value == np.floor(value)))
    if odd.any():
        raise MetricError(
            f"{what}: an entry must be {'0 or 1' if many == 2 else f'from 0 to {many - 1}'}, got {value[odd][0]:g}",
            hint="None and NaN stand for a missing attempt; outcomes of more kinds need their weights w",
        )
    code = given.problem[given.there] * many + value.astype(np.int64)
    return np.bincount(code, minlength=given.problems * many).reshape(given.problems, many)


def _as_list(row: Any) -> list[Any] | None:
    """Return a row as a list, None where a masked array is masked; None if it is not a row."""
    if isinstance(row, np.ndarray):
        return row.tolist()  # type: ignore[no-any-return]
    return list(row) if isinstance(row, Sequence) and not isinstance(row, str | bytes) else None


def prior_pair(prior: tuple[float, float]) -> tuple[float, float]:
    """Return the two pseudo-counts of a Beta prior; raise unless both are positive and finite."""
    try:
        alpha, beta = (float(x) for x in prior)
    except (TypeError, ValueError):
        alpha = beta = np.nan
    if not (0 < alpha < np.inf and 0 < beta < np.inf):
        raise MetricError(f"prior must be two positive numbers (alpha, beta), got {prior!r}")
    return alpha, beta


def check_k(name: str, k: int | None) -> int:
    """Return k as a whole number >= 1."""
    if k is None:
        raise MetricError(f"{name}: k is missing", hint=f"k is the number of attempts drawn; {_HINT}")
    if isinstance(k, bool) or k != int(k) or k < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    return int(k)


def check_enough(name: str, attempts: Ints, k: int) -> None:
    """Raise if a problem has fewer than k attempts."""
    short = int((attempts < k).sum())
    if short or not attempts.size:
        few = f"{short:,} of {attempts.size:,} problems have fewer than {k:,} attempts"
        raise MetricError(
            f"{name}: {few if short else 'there are no problems'}",
            hint="summarize() averages over the other problems and counts them",
        )
