"""Columns of problem_counts that follow from single attempts: rewards, answers and measures.

Attempts are ordered by problem, then outcome, so that what is added up lies side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.counting.canonical import FAILED, MEASURE_PREFIX, OUTCOMES, PASSED, UNGRADED
from scorelake.counting.duplicates import PROBLEM
from scorelake.counting.kernel import as_lists, changes
from scorelake.hashing import Hashes
from scorelake.metrics.costs import BINS
from scorelake.metrics.distributions import Floats, Ints


@dataclass(frozen=True)
class OrderedAttempts:
    """The attempts of a bucket in the order of their problems, then outcomes."""

    rows: pl.DataFrame
    counts: Ints
    """Attempts by problem and outcome: failed, passed, ungraded."""

    @classmethod
    def of(cls, attempts: pl.DataFrame, problems: int) -> OrderedAttempts:
        """Order attempts by one sort of 64 bits."""
        key = attempts[PROBLEM].to_numpy().astype(np.uint64) * np.uint64(len(OUTCOMES))
        key += attempts["outcome"].to_numpy()
        counts = np.bincount(key.view(np.int64), minlength=problems * len(OUTCOMES))
        of_row = np.uint64(key.size.bit_length())
        words = key << of_row
        words |= np.arange(key.size, dtype=np.uint64)
        words.sort()
        words &= (np.uint64(1) << of_row) - np.uint64(1)
        return cls(attempts.drop("outcome")[words.astype(np.uint32)], counts.reshape(-1, len(OUTCOMES)))

    @cached_property
    def outcome(self) -> NDArray[np.uint8]:
        """The outcome of every attempt."""
        return np.repeat(np.tile(np.arange(len(OUTCOMES), dtype=np.uint8), len(self.counts)), self.counts.ravel())

    def graded(self, column: str) -> tuple[pl.DataFrame, NDArray[np.bool_], Ints]:
        """Return the graded attempts that have a value, which of them passed, and how many there are by problem."""
        has_value = self.rows[column].is_not_null().to_numpy() & (self.outcome < UNGRADED)
        if has_value.all():
            return self.rows, self.outcome == PASSED, self.counts.sum(axis=1)
        rows = self.rows.filter(has_value)
        return (
            rows,
            self.outcome[has_value] == PASSED,
            np.bincount(rows[PROBLEM].to_numpy(), minlength=len(self.counts)),
        )

    @cached_property
    def _segments(self) -> tuple[Ints, Ints]:
        """The problems and outcomes that have attempts, and where these start."""
        counts = self.counts.ravel()
        return np.flatnonzero(counts), (np.cumsum(counts) - counts)[counts > 0]

    def add_up(self, operation: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """Reduce values by problem and outcome; 0 where there are none."""
        present, starts = self._segments
        out = np.zeros(self.counts.size, values.dtype)
        if present.size:
            out[present] = operation.reduceat(values, starts)
        return out.reshape(self.counts.shape)


def with_rewards(frame: pl.DataFrame, attempts: OrderedAttempts) -> pl.DataFrame:
    """The rewards of every problem, rising, and how many attempts got each; their mean and the best of them."""
    rows, _, sizes = attempts.graded("score")
    values, starts, distinct = _runs(_sort_within(rows["score"].to_numpy(), sizes), sizes)
    n, owner = np.diff(starts, append=rows.height), np.repeat(np.arange(sizes.size), distinct)
    with np.errstate(over="ignore", invalid="ignore"):  # rewards too large to be added are refused by name later
        total = np.bincount(owner, values * n, frame.height)
        mean = np.divide(total, sizes, out=np.full(frame.height, np.nan), where=sizes > 0)
    ends = np.append(0, np.cumsum(distinct))
    best = np.where(sizes > 0, values[ends[1:] - 1] if values.size else np.nan, np.nan)
    return frame.with_columns(
        as_lists(ends, pl.Series("rewards", values)),
        as_lists(ends, pl.Series("reward_counts", n)),
        pl.Series("reward_mean", mean).fill_nan(None),
        pl.Series("reward_max", best).fill_nan(None),
    )


def with_answers(frame: pl.DataFrame, attempts: OrderedAttempts) -> pl.DataFrame:
    """How many attempts gave each answer and how many of those passed, the most common first."""
    rows, passed, sizes = attempts.graded("answer")
    coded = _sort_within(rows["answer"].to_numpy() << np.uint64(1) | passed, sizes)  # ids have 63 bits
    _, starts, distinct = _runs(coded >> np.uint64(1), sizes)
    n = np.diff(starts, append=coded.size)
    passes = np.add.reduceat((coded & np.uint64(1)).astype(np.int64), starts) if starts.size else n
    by_count = ~_sort_within(~(n << 32 | passes), distinct)
    ends = np.append(0, np.cumsum(distinct))
    return frame.with_columns(
        as_lists(ends, pl.Series("answer_counts", by_count >> 32)),
        as_lists(ends, pl.Series("answer_passes", by_count & (1 << 32) - 1)),
    )


def with_gold(frame: pl.DataFrame, attempts: OrderedAttempts) -> pl.DataFrame:
    """How many graded attempts have a trusted grade; how many of those passed by it, as judged, and both ways."""
    gold = attempts.rows["gold"]
    labelled = attempts.add_up(np.add, gold.is_not_null().to_numpy().astype(np.int64))
    passed = attempts.add_up(np.add, gold.fill_null(0).to_numpy().astype(np.int64))
    return frame.with_columns(
        gold_n=labelled[:, FAILED] + labelled[:, PASSED],
        gold_c=passed[:, FAILED] + passed[:, PASSED],
        gold_judged=labelled[:, PASSED],
        gold_both=passed[:, PASSED],
    )


def with_measure(frame: pl.DataFrame, attempts: OrderedAttempts, name: str, edges: Floats) -> pl.DataFrame:
    """Sums, squares and numbers of a measure over graded, passed and ungraded attempts; bins of the passed ones."""
    column, counts = attempts.rows[MEASURE_PREFIX + name], attempts.counts
    value, has_value = column.fill_null(0.0).to_numpy(), None
    if column.null_count():
        has_value = column.is_not_null().to_numpy()
        counts = attempts.add_up(np.add, has_value.astype(np.int64))
    units = np.rint(value * 1e9)
    number = units.astype(np.uint64)
    sums = _exact(attempts.add_up(np.add, number), attempts.add_up(np.add, units)) / 1e9
    squares = _exact(attempts.add_up(np.add, number * number), attempts.add_up(np.add, units * units)) / 1e18
    columns = dict[str, pl.Series]()
    for prefix, outcomes in (("", [FAILED, PASSED]), ("passed_", [PASSED]), ("ungraded_", [UNGRADED])):
        for end, each in (("sum", sums), ("squares", squares), ("count", counts)):
            columns[prefix + end] = pl.Series(each[:, outcomes].sum(axis=1))
    columns["max"] = pl.Series(attempts.add_up(np.maximum, value)[:, [FAILED, PASSED]].max(axis=1))
    has_bin = attempts.outcome == PASSED if has_value is None else (attempts.outcome == PASSED) & has_value
    owner = attempts.rows[PROBLEM].to_numpy()[has_bin].astype(np.int64)
    binned = np.sort(owner * BINS + np.searchsorted(edges, value[has_bin]))
    ends = np.append(0, np.cumsum(counts[:, PASSED]))
    columns["passed_bins"] = as_lists(ends, pl.Series((binned % BINS).astype(np.uint8)))
    return frame.with_columns(column.alias(f"{name}_{end}") for end, column in columns.items())


def _exact(remainder: Hashes, rounded: Floats) -> Floats:
    """Return sums of whole numbers from their remainders by 2^64, which are exact, and from rounded sums.

    The result does not depend on the order in which the numbers were added.
    """
    low = remainder.astype(np.float64)
    return np.asarray(np.rint((rounded - low) / 2.0**64) * 2.0**64 + low)


def _runs(values: NDArray[Any], sizes: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """Return the distinct values of each segment of sorted values, where they start, and their number by segment."""
    is_new, ends = changes(values), np.cumsum(sizes)
    is_new[(ends - sizes)[sizes > 0]] = True
    before = np.append(0, np.cumsum(is_new))
    starts = np.flatnonzero(is_new)
    return values[starts], starts, before[ends] - before[ends - sizes]


def _sort_within(values: NDArray[Any], sizes: Ints) -> NDArray[Any]:
    """Sort the values of every segment.

    Segments of one size are the rows of a matrix, which numpy sorts in 4 ns per value; a sort by two keys takes 150.
    """
    out, starts = np.empty_like(values), np.cumsum(sizes) - sizes
    by_size = np.argsort(sizes, kind="stable")
    _, first = np.unique(sizes[by_size], return_index=True)
    for same in np.split(by_size, first[1:]) if sizes.size else ():
        size = int(sizes[same[0]])
        index = starts[same][:, None] + np.arange(size)
        out[index] = np.sort(values[index], axis=1)
    return out
