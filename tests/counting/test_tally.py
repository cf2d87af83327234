"""Cells against a dictionary: rows of a problem are counted together, what else they tell is kept, and an attempt
that comes again goes aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scorelake.counting.kinds import FAILED, PASSED, UNGRADED
from scorelake.counting.tally import KIND_BITS, LOW_BITS, NAME_BITS, Cells, Tally
from scorelake.counts import Words, problem_hashes

STATES = {FAILED: (1, 0), PASSED: (0, 1), UNGRADED: (1, 1)}
Rows = Sequence[tuple[int, ...]]


def words(rows: Rows) -> Words:
    return np.array(rows, np.uint64)


def counted(cells: Cells) -> dict[tuple[int, ...], int]:
    """What tells a cell apart with a kind, and how often it came."""
    used = cells.cells[: cells.used].tolist()
    out = {(row[0] | kind, *row[1 : cells.width]): row[cells.width + kind] for row in used for kind in range(3)}
    assert len(out) == 3 * len(used), "one cell for equal rows"
    return {key: many for key, many in out.items() if many}


def kept(cells: Cells) -> Counter[tuple[int, ...]]:
    """The rows that were kept, as they came."""
    first = cells.cells[: cells.used]
    rows = cells.rows()
    low = rows[:, 0] & np.uint64((1 << LOW_BITS) - 1)
    cell = first[(rows[:, 0] >> np.uint64(LOW_BITS)).astype(np.int64)]
    whole = np.column_stack([cell[:, 0] | low, cell[:, 1 : cells.width], rows[:, 1:]])
    return Counter(tuple(row) for row in whole.tolist())


def noted(cells: Cells) -> dict[tuple[tuple[int, ...], int], tuple[int, int]]:
    """The two bits of every attempt that has them, by its cell and number."""
    out = {}
    for row in cells.cells[: cells.used].tolist():
        key = tuple(row[: cells.width])
        for number in range(64 * cells.words):
            low, high = (row[cells.width + 2 * (number // 64) + i] >> number % 64 & 1 for i in range(2))
            if low or high:
                out[key, number] = low, high
    return out


@pytest.mark.parametrize("extra", [0, 1, 3])
@pytest.mark.parametrize("width", [1, 2])
def test_rows_are_counted(width: int, extra: int) -> None:
    """Kinds are told apart, and carried values; further words are kept with the row."""
    rng = np.random.default_rng(width)
    cells, want, rest = Cells(width, 0, extra), Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for many in (1, 127, 128, 5000, 0, 3):
        rows = rng.integers(0, 9, (many, width + extra)).astype(np.uint64)
        rows[:, 0] = rows[:, 0] << np.uint64(LOW_BITS) | rng.integers(0, 3, many).astype(np.uint64)
        assert len(cells.add(rows)) == 0
        want.update(tuple(row[:width]) for row in rows.tolist())
        rest.update(tuple(row) for row in rows.tolist())
        assert counted(cells) == want
    assert kept(cells) == (rest if extra else Counter())
    assert kept(cells) == Counter(), "held no longer"


def test_growth() -> None:
    """Every row another cell; each is still there after the tables have grown, and is found again."""
    cells = Cells(2, 0, 0)
    rows = [(i << LOW_BITS, i % 3) for i in range(20_000)]
    cells.add(words(rows))
    assert counted(cells) == dict.fromkeys(rows, 1)
    cells.add(words(rows[::-1]))
    assert counted(cells) == dict.fromkeys(rows, 2)
    assert cells.bytes > 20_000 * 5 * 8
    cells.clear()
    assert counted(cells) == {}
    cells.add(words(rows[:5]))
    assert counted(cells) == dict.fromkeys(rows[:5], 1)


@pytest.mark.parametrize("bits", [1, 4])
def test_attempts_are_bits(bits: int) -> None:
    """Failed 01, passed 10, ungraded 11, once per attempt; who comes again goes aside, in the order of arrival."""
    rng = np.random.default_rng(bits)
    cells, rest = Cells(2, bits, 1), Counter[tuple[int, ...]]()
    want: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}
    total, aside = 0, 0
    for many in (1, 300, 5000, 20_000):
        problem, other = rng.integers(0, 60, many), rng.integers(0, 3, many)
        number, kind = rng.integers(0, 64 * bits, many), rng.integers(0, 3, many)
        first = problem << LOW_BITS | number << KIND_BITS | kind
        rows = np.column_stack([first, other, rng.integers(0, 5, many)]).astype(np.uint64)
        again = []
        for p, o, n, k, row in zip(*(x.tolist() for x in (problem, other, number, kind)), rows, strict=True):
            cell = ((p << LOW_BITS, o), n)
            if cell in want:
                again.append(row)
            else:
                want[cell] = STATES[k]
                rest[tuple(row.tolist())] += 1
        assert cells.add(rows).tolist() == [row.tolist() for row in again]
        assert noted(cells) == want
        total, aside = total + many, aside + len(again)
    assert total == aside + len(want), "no row lost"
    assert aside > 1 << 12, "more than go aside at once"
    assert kept(cells) == rest, "who goes aside is not kept as well"


@pytest.mark.parametrize("bits", [0, 4])
def test_partitions(bits: int) -> None:
    """Rows dealt to partitions, some in hand until the end: all are counted, and a problem's rows meet in one."""
    rng = np.random.default_rng(bits)
    group, name = (rng.integers(0, 1 << 63, many).astype(np.uint64) for many in (5, 1000))
    tally, seen, again = Tally(2, bits, 0, room=1 << 12, partitions=4), Counter[tuple[int, ...]](), 0
    lock_step = []
    for _ in range(30):
        many = int(rng.integers(0, 3000))
        problem = rng.integers(0, 5, many) << NAME_BITS | rng.integers(0, 1000, many)
        first = (problem << LOW_BITS | rng.integers(0, 4, many) << KIND_BITS | rng.integers(0, 3, many)).astype(
            np.uint64
        )
        more = rng.integers(0, 2, (many, 1)).astype(np.uint64)
        seen.update(zip(first.tolist(), more[:, 0].tolist(), strict=True))
        lock_step.append((first, more))

    def take(work: tuple[Words, Words]) -> int:
        return sum(len(rows) for rows in tally.take(*work, group, name))

    with ThreadPoolExecutor(4) as pool:
        again += sum(pool.map(take, lock_step))
    again += sum(len(rows) for rows in tally.flush())
    assert tally.flush() == [], "nothing is in hand any more"
    assert tally.used == sum(part.used for part in tally.parts) > 0
    homes: dict[int, int] = {}
    for i, part in enumerate(tally.parts):
        for cell in part.cells[: part.used, 0].tolist():
            assert homes.setdefault(cell >> LOW_BITS, i) == i, "a problem in two partitions"
    for number, home in homes.items():
        key = np.array([number], np.uint64)
        hashes = problem_hashes(group[key >> np.uint64(NAME_BITS)], name[key & np.uint64((1 << NAME_BITS) - 1)])
        assert int(hashes[0]) >> 60 == home, "partitions are ranges of the hash"
    if bits:
        marked = sum(len(noted(part)) for part in tally.parts)
        assert marked == len({(first >> KIND_BITS, other) for first, other in seen})
        assert marked + again == seen.total()
    else:
        assert again == 0
        bare = Counter[tuple[int, ...]]()  # without numbers, which only bits tell apart
        for (first, other), many in seen.items():
            bare[first & ~(255 << KIND_BITS), other] += many
        assert Counter({k: v for part in tally.parts for k, v in counted(part).items()}) == bare
