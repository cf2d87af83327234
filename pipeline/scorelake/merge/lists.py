"""What a problem's attempts were worth and what they answered, as two lists per problem: values and how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counts import PROBLEM, Ints
from scorelake.merge.duplicates import ANSWER, graded_rows
from scorelake.storage.arrays import arrow


def rewards(certain: pl.DataFrame | None, resolved: pl.DataFrame | None, problems: int) -> list[pl.Series]:
    """The rewards of every problem, rising, and how many attempts got each; and their mean and the best of them."""
    rows = _rows(certain, resolved)
    owner, score, n = (rows[name].to_numpy() for name in (PROBLEM, "score", "n"))
    if not _sorted(owner, score):  # as every partial has them
        order = _rising(owner, score)
        owner, score, n = owner[order], score[order], n[order]
    starts = np.flatnonzero(_new(owner, score))
    owner, score, n = owner[starts], score[starts], _summed(n, starts)
    lists = _lists(owner, {"rewards": score, "reward_counts": n}, problems)
    return [*lists, *_ends(owner, score, n, problems)]


def _ends(owner: Ints, score: NDArray[np.float64], n: Ints, problems: int) -> list[pl.Series]:
    """Mean and best reward of every problem, null where it has none."""
    with np.errstate(over="ignore", invalid="ignore"):  # rewards too large to be added up are refused by name later
        total, many = (np.bincount(owner, each, problems) for each in (score * n, n))
        mean = np.divide(total, many, out=np.full(problems, np.nan), where=many > 0)
    last = np.flatnonzero(np.diff(owner, append=-1))  # rewards rise
    best = np.full(problems, np.nan)
    best[owner[last]] = score[last]
    ends = zip(("reward_mean", "reward_max"), (mean, best), strict=True)
    return [pl.Series(name, np.where(many > 0, column, np.nan)).fill_nan(None) for name, column in ends]


def answers(certain: pl.DataFrame | None, resolved: pl.DataFrame | None, problems: int) -> list[pl.Series]:
    """How many attempts gave each answer of a problem and how many of those passed, the most common first."""
    rows = _rows(certain, resolved).filter(pl.col(ANSWER[0]) > 0)
    owner, high, low, n, c = (rows[name].to_numpy() for name in (PROBLEM, *ANSWER, "n", "c"))
    if not _sorted(owner, high, low):
        order = np.lexsort([low, high, owner])
        owner, high, low, n, c = (column[order] for column in (owner, high, low, n, c))
    starts = np.flatnonzero(_new(owner, high, low))
    owner, n, c = owner[starts], _summed(n, starts), _summed(c, starts)
    order = _fewest_last(owner, n, c)
    return _lists(owner[order], {"answer_counts": n[order], "answer_passes": c[order]}, problems)


def _fewest_last(owner: NDArray[Any], n: Ints, c: Ints) -> Ints:
    """Answers by problem, and within each the most common first, then those that passed most often.

    In one sort of 64 bits where the numbers fit, which is three times faster than by three columns.
    """
    most = int(n.max(initial=0))
    room = most.bit_length()
    if 2 * room + int(owner.max(initial=0)).bit_length() > 64:
        return np.lexsort([-c, -n, owner])
    words = owner.astype(np.uint64) << np.uint64(2 * room) | (most - n).astype(np.uint64) << np.uint64(room)
    return np.argsort(words | (most - c).astype(np.uint64), kind="stable")


def _sorted(*columns: NDArray[Any]) -> bool:
    """Rows are in the order of the columns, the first of them first."""
    rising = np.ones(max(0, columns[0].size - 1), bool)
    for column in reversed(columns):
        rising &= column[1:] == column[:-1]
        rising |= column[1:] > column[:-1]
    return bool(rising.all())


def _rows(certain: pl.DataFrame | None, resolved: pl.DataFrame | None) -> pl.DataFrame:
    frames = [graded_rows(certain)] if certain is not None else []
    return pl.concat([*frames, *([resolved] if resolved is not None else [])], rechunk=True)


def _rising(owner: NDArray[Any], score: NDArray[np.float64]) -> Ints:
    """Rows by problem, and within each by reward.

    One sort of 64 bits, the problem's number and the first bits of the reward, is five times faster than a sort by
    two columns, and nearly always enough; where two rewards differ only in later bits, it is done the long way.
    """
    bits = score.view(np.int64)
    rising = (bits ^ ((bits >> 63) & np.int64((1 << 63) - 1))).view(np.uint64) ^ np.uint64(1 << 63)
    room = max(1, int(owner.max(initial=0)).bit_length())
    order = np.argsort(owner.astype(np.uint64) << np.uint64(64 - room) | rising >> np.uint64(room))
    mine, worth = owner[order], score[order]
    if ((mine[1:] == mine[:-1]) & (worth[1:] < worth[:-1])).any():
        return np.lexsort([score, owner])
    return order


def _summed(column: Ints, starts: Ints) -> Ints:
    return np.add.reduceat(column, starts) if starts.size else column[:0]


def _new(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    out = np.zeros(columns[0].size, bool)
    out[:1] = True
    for column in columns:
        out[1:] |= column[1:] != column[:-1]
    return out


def _lists(owner: Ints, columns: dict[str, NDArray[Any]], problems: int) -> list[pl.Series]:
    """One list per problem, empty where there is nothing."""
    offsets = np.searchsorted(owner, np.arange(problems + 1)).astype(np.int64)
    return [
        pl.Series(name, pa.LargeListArray.from_arrays(arrow(offsets), arrow(values)))
        for name, values in columns.items()
    ]
