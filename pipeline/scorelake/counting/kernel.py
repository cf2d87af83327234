"""The count query for pass/fail lakes in numpy: rows become 64-bit words, and equal problems meet by sorting them.

It gives the same frame as the group_by in query.py, and exists for its speed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.counting.canonical import CATEGORIES, OUTCOMES, PROTOCOL_PREFIX, REJECTED, attempt_columns
from scorelake.counting.scan import BITS_PER_WORD, LakeFile, PartialLayout, RowGroups, read_batches
from scorelake.hashing import Hashes
from scorelake.threads import parallel_map

BYTES_PER_ROW = 48
"""Memory that a chunk needs per row: its word, twice while words are put together, its bit and a table of counts."""
_ATTEMPT, _OUTCOME, _PROBLEM, _GROUP = 8, 2, 32, 22
"""Bits of a word, from the lowest: attempt number, outcome, problem, and what else the problem is counted by."""
_PROBLEM_SHIFT = np.uint64(_ATTEMPT + _OUTCOME)
_WORD = 6
_MAX_TABLE = 1 << 20


class TooManyGroupsError(Exception):
    """More combinations of benchmark, subject, model and protocol than a word has bits for."""


def fits(files: Sequence[LakeFile], layout: PartialLayout) -> bool:
    """Whether the rows of these files can be packed into words."""
    return not layout.lists and not any(file.canonical.carried for file in files)


def count_rows(
    chunk: Sequence[RowGroups], layout: PartialLayout, max_groups: int = 1 << _GROUP
) -> tuple[pl.DataFrame, int]:
    """Return the counts of a chunk, as the group_by of the count query does, and the number of rejected rows."""
    anchors = [pl.Series([], dtype=kind) for kind in CATEGORIES.values()]  # codes stay valid while these exist
    groups = _Groups(max_groups)
    words = np.concatenate(parallel_map(lambda part: _pack(part, groups, layout), chunk))
    words.sort()
    # in slices that stay in the cache, none of which ends within a problem
    problems = words[:: 1 << 17] >> _PROBLEM_SHIFT << _PROBLEM_SHIFT
    edges = np.append(np.unique(np.searchsorted(words, problems)), words.size)
    slices = [words[low:high] for low, high in pairwise(edges)] or [words]
    counts = pl.concat(parallel_map(lambda each: _count_words(each, groups, layout), slices))
    del anchors
    return counts, sum(part.kept for part in chunk) - words.size


def _pack(part: RowGroups, groups: _Groups, layout: PartialLayout) -> Hashes:
    """Return one word per row that is not rejected."""
    columns = attempt_columns(part.file.canonical, part.file.schema)
    names = [name for name in columns if name.startswith(PROTOCOL_PREFIX)]
    out, size = np.empty(part.rows, np.uint64), 0
    for batch in read_batches(part, layout):
        rows = batch.select(**columns).filter(pl.col("outcome") != REJECTED)
        word = groups.number(rows.select("benchmark", "subject", "model", *names)) << np.uint64(_PROBLEM)
        word |= rows["problem_id"].to_physical().to_numpy()
        word = word << np.uint64(_OUTCOME) | rows["outcome"].to_numpy()
        word <<= np.uint64(_ATTEMPT)
        if layout.words:
            word |= rows["attempt"].to_numpy().view(np.uint64)
        out[size : size + word.size] = word
        size += word.size
    return out[:size]


class _Groups:
    """Numbers the distinct combinations of benchmark, subject, model and protocol of a chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames: list[pl.DataFrame] = []
        self._lock = Lock()

    def number(self, keys: pl.DataFrame) -> Hashes:
        """Return the number of the combination in every row."""
        # dictionary codes, -1 for null
        codes = [column.to_physical().fill_null((1 << 32) - 1).to_numpy().view(np.int32) for column in keys]
        mixed, limit = np.zeros(keys.height, np.int64), 1
        for code in codes:
            low, high = int(code.min(initial=0)), int(code.max(initial=0))
            if low < high:
                mixed *= high - low + 1
                mixed += code - low
                limit *= high - low + 1
                if limit >= 1 << 62:
                    raise TooManyGroupsError
        if limit > _MAX_TABLE:
            _, row, inverse = np.unique(mixed, return_index=True, return_inverse=True)
            return self._lookup(keys, codes, row)[inverse].view(np.uint64)
        # a table of all combinations takes a tenth of the time of np.unique
        table = np.full(limit, -1, np.int64)
        table[mixed] = np.arange(mixed.size)
        present = np.flatnonzero(table >= 0)
        table[present] = self._lookup(keys, codes, table[present])
        return table[mixed].view(np.uint64)

    def _lookup(self, keys: pl.DataFrame, codes: Sequence[NDArray[Any]], rows: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of the combinations in some rows, new ones for those that were not seen before."""
        combinations = list(zip(*(code[rows].tolist() for code in codes), strict=True))
        with self._lock:
            fresh = [i for i, each in enumerate(combinations) if each not in self._numbers]
            if fresh or not self._frames:
                self._numbers |= {combinations[i]: len(self._numbers) + j for j, i in enumerate(fresh)}
                self._frames.append(keys[rows[fresh]])
            if len(self._numbers) > self._limit:
                raise TooManyGroupsError
            return np.array([self._numbers[each] for each in combinations], np.int64)

    def frame(self, numbers: Hashes) -> pl.DataFrame:
        """Return the combinations with these numbers."""
        return pl.concat(self._frames)[numbers]


def _count_words(words: Hashes, groups: _Groups, layout: PartialLayout) -> pl.DataFrame:
    """Count sorted words: one row per problem and group."""
    new_problem = changes(words >> _PROBLEM_SHIFT)
    starts = np.flatnonzero(new_problem)
    key = words[starts] >> _PROBLEM_SHIFT
    counts = {"rows": np.diff(starts, append=words.size), "rejected": np.zeros(key.size, np.int64)}
    # the rows of a problem with one outcome are neighbours, and so are those of them that share a word of bits
    shift = np.uint64(_WORD if layout.words else _ATTEMPT)
    segments = np.flatnonzero(changes(words >> shift))
    owner = np.cumsum(new_problem[segments]) - 1
    kind = words[segments] >> shift & np.uint64((1 << _ATTEMPT + _OUTCOME - int(shift)) - 1)
    if layout.words:
        values = np.bitwise_or.reduceat(np.left_shift(np.uint64(1), words & np.uint64(BITS_PER_WORD - 1)), segments)
    else:
        values = np.diff(segments, append=words.size)
    for name, outcome in OUTCOMES.items():
        for word in range(layout.words or 1):
            mine = kind == (outcome << _ATTEMPT - int(shift)) + word
            column = np.zeros(key.size, values.dtype)
            column[owner[mine]] = values[mine]
            counts[f"{name}_bits_{word}" if layout.words else name] = column
    problems = pl.Series((key & np.uint64((1 << _PROBLEM) - 1)).astype(np.uint32)).cat.to(CATEGORIES["problem_id"])
    frame = groups.frame(key >> np.uint64(_PROBLEM)).with_columns(problem_id=problems)
    return frame.with_columns(**{name: pl.Series(column) for name, column in counts.items()})


def changes(values: Hashes) -> NDArray[np.bool_]:
    """Return for every value whether it is the first or differs from the one before it."""
    changes = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
