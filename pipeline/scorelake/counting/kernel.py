"""The count query in numpy: rows become 64-bit words, and equal problems meet by sorting them.

It gives the same frame as the group_by in query.py, and exists for its speed only: numpy sorts 64-bit words with SIMD
instructions, in 6 ns per row of 10M, where the group_by takes 250.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counting.canonical import (
    CATEGORIES,
    OUTCOMES,
    PROTOCOL_PREFIX,
    REJECTED,
    attempt_columns,
)
from scorelake.counting.scan import BITS_PER_WORD, LISTED, ROW, PartialLayout, RowGroups, read_batches
from scorelake.hashing import Hashes
from scorelake.storage import parquet
from scorelake.threads import parallel_map

BYTES_PER_ROW = 48
"""Memory that a chunk needs per row: its word, twice while words are put together, its bit and a table of counts."""
_ATTEMPT, _OUTCOME, _PROBLEM, _GROUP = 8, 2, 32, 22
"""Bits of a word, from the lowest: attempt number, outcome, problem, and what else the problem is counted by.

Where attempts are lists, the outcome is in the place of the attempt number, and words become as narrow as they can be
to hold the row as well."""
_PROBLEM_SHIFT = np.uint64(_ATTEMPT + _OUTCOME)
_ANY_OUTCOME = 3
_SLICE = 1 << 17
"""Rows that are worked on at a time, so that they stay in the cache."""
_WORD = 6
_MAX_TABLE = 1 << 20


class TooManyGroupsError(Exception):
    """More combinations of problem, benchmark, subject, model and protocol than a word has bits for."""


@dataclass(frozen=True)
class Attempts:
    """Rows of a chunk, and an order in which those of a problem are neighbours."""

    rows: pl.DataFrame
    order: NDArray[np.uint32]

    def add_to(self, counts: pl.DataFrame) -> pl.DataFrame:
        """Add the rows of every problem as lists; `start` is where they start in the order."""
        ends = np.cumsum(counts["rows"].to_numpy())
        edges = np.searchsorted(ends, np.arange(0, self.order.size, _SLICE))
        edges = np.unique(np.append(edges, counts.height))
        slices = list(pairwise(edges)) or [(0, 0)]
        return pl.concat(parallel_map(lambda edge: self._lists(counts[slice(*edge)]), slices))

    def _lists(self, counts: pl.DataFrame) -> pl.DataFrame:
        start, size = counts["start"].to_numpy(), counts["rows"].to_numpy()
        offsets = np.append(0, np.cumsum(size))
        rows = self.rows[self.order[np.repeat(start - offsets[:-1], size) + np.arange(offsets[-1])]]
        return counts.drop("start").with_columns(as_lists(offsets, column) for column in rows)


def as_lists(offsets: NDArray[np.int64], values: pl.Series) -> pl.Series:
    """Return lists of the values between neighbouring offsets."""
    content: Any = values.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    return pl.Series(values.name, pa.LargeListArray.from_arrays(parquet.arrow(offsets), content))


def count_rows(
    chunk: Sequence[RowGroups], layout: PartialLayout, max_groups: int = 1 << _GROUP
) -> tuple[pl.DataFrame, Attempts | None]:
    """Return the counts of a chunk, as the group_by of the count query does, and the attempts if they are listed."""
    anchors = [pl.Series([], dtype=kind) for kind in CATEGORIES.values()]  # codes stay valid while these exist
    groups = _Groups(max_groups)
    words = np.empty(sum(part.rows for part in chunk), np.uint64)
    edges = np.cumsum([0, *(part.rows for part in chunk)])
    room = [words[low:high] for low, high in pairwise(edges)]
    packed = parallel_map(lambda task: _pack(*task, groups, layout), zip(chunk, room, strict=True))
    if sum(size for size, _ in packed) < words.size:  # some rows are rejected or deleted
        words = np.concatenate([mine[:size] for mine, (size, _) in zip(room, packed, strict=True)])
    if layout.lists:
        counts, attempts = _count_lists(words, pl.concat([rows for _, rows in packed], rechunk=True), groups)
        del anchors
        return counts, attempts
    words.sort()
    # in slices that stay in the cache, none of which ends within a problem
    problems = words[::_SLICE] >> _PROBLEM_SHIFT << _PROBLEM_SHIFT
    edges = np.append(np.unique(np.searchsorted(words, problems)), words.size)
    slices = [words[low:high] for low, high in pairwise(edges)] or [words]
    keys, sizes, values = zip(*parallel_map(lambda each: _count_words(each, layout), slices), strict=True)
    counts = groups.problems(np.concatenate(keys), _PROBLEM).with_columns(rows=np.concatenate(sizes))
    total = np.concatenate(values, axis=2)
    columns = {
        f"{name}_bits_{word}" if layout.words else name: pl.Series(total[outcome, word])
        for name, outcome in OUTCOMES.items()
        for word in range(total.shape[1])
    }
    del anchors
    return counts.with_columns(**columns), None


def _pack(part: RowGroups, words: Hashes, groups: _Groups, layout: PartialLayout) -> tuple[int, pl.DataFrame]:
    """Fill in a word per row that is not rejected; return their number and the columns that are listed."""
    columns = attempt_columns(part.file.canonical, part.file.schema) | (
        {ROW: pl.col(ROW)} if ROW in layout.lists else {}
    )
    names = [name for name in columns if name.startswith(PROTOCOL_PREFIX)]
    absent = {name: pl.lit(None, LISTED.get(name, pl.Float64())) for name in layout.lists if name not in columns}
    total, listed = 0, list[pl.DataFrame]()
    for batch in read_batches(part, layout):
        rows = batch.select(**columns, **absent)
        rows = rows.filter(pl.col("outcome") != REJECTED) if (rows["outcome"] == REJECTED).any() else rows
        word = words[total : total + rows.height]
        total += rows.height
        np.left_shift(groups.number(rows.select("benchmark", "subject", "model", *names)), _PROBLEM, out=word)
        word |= rows["problem_id"].to_physical().to_numpy()
        word <<= np.uint64(_OUTCOME if not layout.lists else _ATTEMPT + _OUTCOME)
        word |= rows["outcome"].to_numpy()
        word <<= np.uint64(_ATTEMPT if not layout.lists else 0)
        if layout.words:
            word |= rows["attempt"].to_numpy().view(np.uint64)
        listed.append(rows.select(layout.lists))
    return total, pl.concat(listed) if listed else pl.DataFrame()


class _Groups:
    """Numbers the distinct combinations of benchmark, subject, model and protocol of a chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames: list[pl.DataFrame] = []
        self._lock = Lock()

    def number(self, keys: pl.DataFrame) -> Hashes:
        """Return the number of the combination in every row."""
        mixed, limit = np.zeros(keys.height, np.int64), 1
        for code in map(_codes, keys):
            low, high = int(code.min(initial=0)), int(code.max(initial=0))
            if low < high:
                mixed *= high - low + 1
                mixed += code - low
                limit *= high - low + 1
                if limit >= 1 << 62:
                    raise TooManyGroupsError
        if limit > _MAX_TABLE:
            _, row, inverse = np.unique(mixed, return_index=True, return_inverse=True)
            return self._lookup(keys, row)[inverse].view(np.uint64)
        # a table of all combinations takes a tenth of the time of np.unique
        table = np.full(limit, -1, np.int64)
        table[mixed] = np.arange(mixed.size)
        present = np.flatnonzero(table >= 0)
        table[present] = self._lookup(keys, table[present])
        return table[mixed].view(np.uint64)

    def _lookup(self, keys: pl.DataFrame, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of the combinations in some rows, new ones for those that were not seen before."""
        combinations = keys[rows].rows()
        with self._lock:
            fresh = [i for i, each in enumerate(combinations) if each not in self._numbers]
            if fresh or not self._frames:
                self._numbers |= {combinations[i]: len(self._numbers) + j for j, i in enumerate(fresh)}
                self._frames.append(keys[rows[fresh]])
            if len(self._numbers) > self._limit:
                raise TooManyGroupsError
            return np.array([self._numbers[each] for each in combinations], np.int64)

    @property
    def size(self) -> int:
        return len(self._numbers)

    def problems(self, keys: Hashes, width: int) -> pl.DataFrame:
        """Return the keys of problems, from numbers of the group and codes of the problem in so many bits."""
        codes = pl.Series((keys & np.uint64((1 << width) - 1)).astype(np.uint32)).cat.to(CATEGORIES["problem_id"])
        return pl.concat(self._frames)[keys >> np.uint64(width)].with_columns(problem_id=codes)


def _codes(column: pl.Series) -> NDArray[np.int32]:
    """Return the dictionary codes of a column, -1 for null."""
    return column.to_physical().fill_null((1 << 32) - 1).to_numpy().view(np.int32)


def _count_lists(words: Hashes, rows: pl.DataFrame, groups: _Groups) -> tuple[pl.DataFrame, Attempts]:
    """Count the rows of every problem and group, ordered by outcome."""
    slices = [slice(low, low + _SLICE) for low in range(0, words.size, _SLICE)]
    in_problem, in_outcome = (np.uint64((1 << width) - 1) for width in (_PROBLEM, _ANY_OUTCOME))
    largest = max((int((words[each] >> _PROBLEM_SHIFT & in_problem).max()) for each in slices), default=0)
    of_problem, of_row = largest.bit_length(), words.size.bit_length()
    if groups.size.bit_length() + of_problem + _ANY_OUTCOME + of_row > 64:
        raise TooManyGroupsError
    for each in slices:
        word = words[each]
        key = word >> np.uint64(_ATTEMPT + _OUTCOME + _PROBLEM) << np.uint64(of_problem)
        key |= word >> _PROBLEM_SHIFT & in_problem
        word &= in_outcome
        word |= key << np.uint64(_ANY_OUTCOME)
        word <<= np.uint64(of_row)
        word |= np.arange(each.start, each.start + word.size, dtype=np.uint64)
    words.sort()
    order, is_start = np.empty(words.size, np.uint32), np.empty(words.size, np.bool_)
    before = ~np.uint64(0)
    for each in slices:
        word = words[each]
        order[each] = word & np.uint64((1 << of_row) - 1)
        key = word >> np.uint64(of_row + _ANY_OUTCOME)
        is_start[each] = changes(key)
        is_start[each.start] = key[0] != before
        before = key[-1]
    starts = np.flatnonzero(is_start)
    key = words[starts] >> np.uint64(of_row + _ANY_OUTCOME)
    frame = groups.problems(key, of_problem)
    return frame.with_columns(start=starts, rows=np.diff(starts, append=words.size)), Attempts(rows, order)


def _count_words(words: Hashes, layout: PartialLayout) -> tuple[Hashes, NDArray[np.int64], NDArray[Any]]:
    """Return the problems of sorted words, their rows, and their counts or bits by outcome and word."""
    new_problem = changes(words >> _PROBLEM_SHIFT)
    starts = np.flatnonzero(new_problem)
    # the rows of a problem with one outcome are neighbours, and so are those of them that share a word of bits
    shift = np.uint64(_WORD if layout.words else _ATTEMPT)
    segments = np.flatnonzero(changes(words >> shift))
    if layout.words:
        values = np.bitwise_or.reduceat(np.left_shift(np.uint64(1), words & np.uint64(BITS_PER_WORD - 1)), segments)
    else:
        values = np.diff(segments, append=words.size)
    in_outcome = words[segments] & np.uint64((1 << _ATTEMPT) - 1)
    outcome = words[segments] >> np.uint64(_ATTEMPT) & np.uint64((1 << _OUTCOME) - 1)
    columns = np.zeros((len(OUTCOMES), layout.words or 1, starts.size), values.dtype)
    columns[outcome, in_outcome >> shift, np.cumsum(new_problem[segments]) - 1] = values
    return words[starts] >> _PROBLEM_SHIFT, np.diff(starts, append=words.size), columns


def changes(values: Hashes) -> NDArray[np.bool_]:
    """Return for every value whether it is the first or differs from the one before it."""
    changes = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
