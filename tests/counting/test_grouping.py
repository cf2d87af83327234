"""Rows of a partition against sorted lists: problem after problem, in order, equal ones together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from scorelake.counting.grouping import Grouped
from scorelake.counting.kinds import COUNTED, FAILED, PASSED, UNGRADED
from scorelake.counting.tally import KIND_BITS, LOW_BITS
from scorelake.counts import INTEGER, PROBLEM, Ints, Words


def made(seed: int, many: int, extra: int, different: int, problems: int = 7) -> tuple[Words, Ints]:
    """Rows of random cells, and the problem of each cell: two cells may be of one."""
    rng = np.random.default_rng(seed)
    cell, number, kind = rng.integers(0, 2 * problems, many), rng.integers(0, 256, many), rng.integers(0, 3, many)
    first = cell << LOW_BITS | number << KIND_BITS | kind
    words = rng.integers(0, different, (many, extra)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.column_stack([first.astype(np.uint64), words]), rng.permutation(2 * problems) // 2


def by_problem(rows: Words, problem: Ints) -> list[tuple[int, ...]]:
    """(problem, further words, number and kind), sorted."""
    return sorted(
        (int(problem[row[0] >> LOW_BITS]), *row[1:], row[0] & ((1 << LOW_BITS) - 1)) for row in rows.tolist()
    )


@pytest.mark.parametrize("extra", [1, 2, 5])
@pytest.mark.parametrize("many", [0, 1, 2, 100, 113, 1000, 9000])
@pytest.mark.parametrize("different", [2, 1 << 40])
def test_rows_are_in_order(many: int, extra: int, different: int) -> None:
    rows, problem = made(many, many, extra, different)
    want = by_problem(rows, problem)
    grouped = Grouped(rows.copy(), problem, 7, numbered=False)
    low = (1 << LOW_BITS) - 1
    assert [(row[0] >> LOW_BITS, *row[1:], row[0] & low) for row in grouped.rows.tolist()] == want
    assert grouped.different == len({row[:-1] for row in want})


@pytest.mark.parametrize("different", [2, 50])
def test_equal_rows_are_counted_together(different: int) -> None:
    rows, problem = made(3, 5000, 2, different)
    want = by_problem(rows, problem)
    first, told = Grouped(rows.copy(), problem, 7, numbered=False).together(words=0)
    keys = list(zip(told[PROBLEM].tolist(), *first[:, 1:].T.tolist(), strict=True))
    assert keys == sorted({row[:-1] for row in want})
    for name, kind in COUNTED.items():
        many = Counter(row[:-1] for row in want if row[-1] & 3 == kind)
        assert dict(zip(keys, told[name].tolist(), strict=True)) == {key: many[key] for key in keys}


@pytest.mark.parametrize("different", [1, 50])
def test_attempts_as_bits(different: int) -> None:
    """Every row has a bit of its own: of two with the same number, the second is in another row of bits."""
    rows, problem = made(3, 5000, 1, different)
    want = Counter(by_problem(rows, problem))
    first, told = Grouped(rows.copy(), problem, 7, numbered=True).together(words=4)
    found = Counter[tuple[int, ...]]()
    for i, (owner, word) in enumerate(zip(told[PROBLEM].tolist(), first[:, 1].tolist(), strict=True)):
        seen, graded, right = (
            sum(int(told[f"{kind}{w}"][i]) << 64 * w for w in range(4)) for kind in ("seen", "graded", "right")
        )
        for number in (number for number in range(256) if seen >> number & 1):
            kind = PASSED if right >> number & 1 else FAILED if graded >> number & 1 else UNGRADED
            found[owner, word, number << KIND_BITS | kind] += 1
        assert seen.bit_count() == sum(int(told[name][i]) for name in COUNTED)
    assert found == want


def test_every_row_by_itself() -> None:
    rows, problem = made(4, 300, 1, 1 << 40)
    want = by_problem(rows, problem)
    grouped = Grouped(rows.copy(), problem, 7, numbered=True)
    told = grouped.single()
    assert told[PROBLEM].tolist() == [row[0] for row in want]
    assert told["attempt_low"].tolist() == [row[-1] >> KIND_BITS for row in want]
    assert set(told["attempt_high"].tolist()) == {INTEGER}
    assert told["ungraded"].tolist() == [int(row[-1] & 3 == UNGRADED) for row in want]


def test_attempts_that_occur_twice() -> None:
    """Null is no attempt; a small number is only spelled out when its bit was there already."""
    rows = np.array(
        [(cell << LOW_BITS, high, low)
         for cell, high, low in [(0, 5, 1), (0, 5, 2), (1, 5, 1), (1, 5, 1), (2, 0, 0), (2, 0, 0), (3, INTEGER, 63),
                                 (4, INTEGER, 64), (5, 6, 9), (6, 6, 9)]],
        np.uint64,
    )  # fmt: skip
    problem = np.array([0, 1, 2, 3, 4, 5, 5])
    told, twice = Grouped(rows, problem, 6, numbered=False).attempts(6, below=64)
    assert told.tolist() == [2, 2, 0, 1, 1, 2]
    assert twice.tolist() == [False, True, False, True, False, True]
