"""What the attempts of one or many sources add up to: rows, verdicts, repeats, contradictions, the histogram of n.

A ledger is a file of fixed-size entries, one per attempt, that tell problem and attempt by 64 bits of hash each. It
is read in as many passes as it takes to hold only a part of it, so any source is added up in bounded memory, whether
it has many problems or one problem with many attempts.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PASS = 1 << 17
"""Entries that are looked at together."""


ENTRY = np.dtype(
    [("problem", "u8"), ("attempt", "u8"), ("value", "f8"), ("asked", "u4"), ("benchmark", "u2"), ("error", "?")]
)
"""value is NaN where there is none; asked is a checksum of what the problem is, 0 where nobody tells."""
_FOUND = np.dtype([*ENTRY.descr, ("source", "u4"), ("row", "i8")])
_PROBLEM = np.dtype(
    [("problem", "u8"), ("n", "i8"), ("total", "f8"), ("low", "u4"), ("high", "u4"), ("benchmark", "u2")]
)


@dataclass
class Board:
    """What is known of the attempts of one benchmark."""

    problems: int = 0
    attempts: int = 0
    """With a verdict."""
    total: float = 0.0
    means: float = 0.0
    """The sum of the problems' means."""
    cells: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Problems per (n, c)."""

    def value(self, metric: str) -> float | None:
        """A metric as the tools define it; None where it has no value."""
        if metric == "mean":
            return self.total / self.attempts if self.attempts else None
        scored = sum(many for (n, _), many in self.cells.items() if n)
        if metric == "problems":
            return self.means / scored if scored else None
        k = int(metric[5:])
        if not scored or any(0 < n < k for n, _ in self.cells):
            return None
        draw = _at_least_one if metric[4] == "@" else _all
        return math.fsum(many * draw(n, c, k) for (n, c), many in self.cells.items() if n) / scored


def _at_least_one(n: int, c: int, k: int) -> float:
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def _all(n: int, c: int, k: int) -> float:
    return math.comb(c, k) / math.comb(n, k)


@dataclass
class Tally:
    """Rows = graded + ungraded + duplicate. Of an attempt that is there twice, one row counts."""

    rows: int = 0
    graded: int = 0
    ungraded: int = 0
    duplicate: int = 0
    errors: int = 0
    """Attempts without a verdict, or with one that the tool made up for an error."""
    total: float = 0.0
    """The sum of all values; the number of passes where values are verdicts."""
    verdicts: int = 0
    """Attempts with a verdict of their own."""
    earned: float = 0.0
    """The sum of their values."""
    low: float = math.inf
    high: float = -math.inf
    odd: int = 0
    """Values that are neither 0 nor 1."""
    histogram: Counter[int] = field(default_factory=Counter)
    """Problems per n."""
    boards: dict[int, Board] = field(default_factory=dict)
    conflicts: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    """(source, row) twice: one attempt that has two values. At most a few."""
    conflicting: set[int] = field(default_factory=set)
    """Sources that have such attempts."""
    repeated: tuple[int, int] | None = None
    """The first row whose attempt was there before."""
    mixed: int | None = None
    """The hash of a problem of which two rows tell different things."""


Ledgers = Sequence[tuple[Path, object]]
"""Files, and beside each whatever tells its problems from those of the others."""


def tally(ledgers: Ledgers, most: int = PASS) -> Tally:
    """Add up ledgers, some problems at a time, and where these have too many attempts, some attempts at a time."""
    out = Tally()
    rows = sum(path.stat().st_size for path, _ in ledgers) // ENTRY.itemsize
    passes = np.uint64(max(1, -(-rows // most)))
    sizes = np.zeros(int(passes), np.int64)
    for problem, _ in _pieces(ledgers, most):
        sizes += np.bincount((problem % passes).astype(np.int64), minlength=int(passes))
    for number in np.flatnonzero(sizes):
        parts = -(-int(sizes[number]) // (2 * most))
        mine = partial(_in, passes, np.uint64(number))
        some = [_attempts(out, np.concatenate([*_some(ledgers, most, mine, parts, i)])) for i in range(parts)]
        _problems(out, np.concatenate(some))
    return out


Problems = NDArray[np.uint64]
"""Hashes that tell problems apart across sources."""


def _in(passes: np.uint64, number: np.uint64, problem: Problems) -> NDArray[np.bool_]:
    mine: NDArray[np.bool_] = problem % passes == number
    return mine


def _pieces(ledgers: Ledgers, most: int) -> Iterator[tuple[Problems, Callable[[NDArray[Any]], NDArray[Any]]]]:
    """Ledgers a piece at a time: the problems of the entries, and the entries of those rows that are wanted."""
    for i, (path, told) in enumerate(ledgers):
        salt = _salt(told)
        with path.open("rb") as file:
            at = 0
            while len(raw := np.fromfile(file, ENTRY, most)):
                problem = _mixed(raw["problem"], salt)
                yield problem, partial(_found, raw, problem, salt, i, at)
                at += len(raw)


def _found(
    raw: NDArray[Any], problem: Problems, salt: np.uint64, source: int, at: int, rows: NDArray[Any]
) -> NDArray[Any]:
    out = np.empty(len(rows), _FOUND)
    for key in ENTRY.names or ():
        out[key] = raw[key][rows]
    out["problem"], out["attempt"] = problem[rows], _mixed(out["attempt"], salt)
    out["source"], out["row"] = source, rows + at
    return out


def _some(
    ledgers: Ledgers, most: int, mine: Callable[[Problems], NDArray[Any]], parts: int, part: int
) -> Iterator[Any]:
    """Entries of some problems; of several parts, those whose attempts are in one of them."""
    for problem, found in _pieces(ledgers, most):
        entries = found(np.flatnonzero(mine(problem)))
        yield entries[entries["attempt"] % np.uint64(parts) == part] if parts > 1 else entries


def example(ledgers: Ledgers, problem: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(source, row) of two rows of a problem that tell different things of it."""
    every = np.concatenate([*_some(ledgers, PASS, lambda problems: problems == problem, 1, 0)])
    told = every[every["asked"] > 0]
    one, two = told[told["asked"].argmin()], told[told["asked"].argmax()]
    return (int(one["source"]), int(one["row"])), (int(two["source"]), int(two["row"]))


def _salt(told: object) -> np.uint64:
    digest = hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _mixed(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    """Hashes of one source, made those of what the source is about."""
    mixed = (np.asarray(hashes) ^ salt) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def _attempts(out: Tally, entries: NDArray[Any]) -> NDArray[Any]:
    """Add up attempts, all of whose rows are here; what they are to their problems."""
    entries = entries[np.lexsort((entries["row"], entries["source"], entries["attempt"], entries["problem"]))]
    value, error, problem = entries["value"], entries["error"], entries["problem"]
    first = np.flatnonzero(_changes(problem) | _changes(entries["attempt"]))
    lacking = np.isnan(value)
    low = np.minimum.reduceat(np.where(lacking, np.inf, value), first)
    high = np.maximum.reduceat(np.where(lacking, -np.inf, value), first)
    graded = low < np.inf
    own = graded & ~np.logical_and.reduceat(error | lacking, first)
    out.rows += len(entries)
    out.graded += int(graded.sum())
    out.ungraded += int((~graded).sum())
    out.duplicate += len(entries) - len(first)
    out.errors += int(np.logical_and.reduceat(error, first).sum())
    out.total += math.fsum(high[graded])
    out.verdicts += int(own.sum())
    out.earned += math.fsum(high[own])
    if graded.any():
        out.low, out.high = min(out.low, float(low[graded].min())), max(out.high, float(high[graded].max()))
    out.odd += int((graded & (high != 0) & (high != 1)).sum())
    _conflicts(out, entries, first, np.flatnonzero(graded & (low != high)))
    return _per_problem(entries, first, graded, high)


def _per_problem(
    entries: NDArray[Any], first: NDArray[Any], graded: NDArray[Any], value: NDArray[Any]
) -> NDArray[Any]:
    starts = np.flatnonzero(_changes(entries["problem"][first]))
    rows = first[starts]
    asked = entries["asked"]
    out = np.empty(len(starts), _PROBLEM)
    out["problem"], out["benchmark"] = entries["problem"][rows], entries["benchmark"][rows]
    out["n"] = np.add.reduceat(graded.astype(np.int64), starts)
    out["total"] = np.add.reduceat(np.where(graded, value, 0.0), starts)
    out["low"] = np.minimum.reduceat(np.where(asked > 0, asked, np.uint32(0xFFFFFFFF)), rows)
    out["high"] = np.maximum.reduceat(asked, rows)
    return out


def _problems(out: Tally, parts: NDArray[Any]) -> None:
    """Add up problems, all of whose attempts are here, in however many parts."""
    parts = parts[np.argsort(parts["problem"], kind="stable")]
    starts = np.flatnonzero(_changes(parts["problem"]))
    n, total = np.add.reduceat(parts["n"], starts), np.add.reduceat(parts["total"], starts)
    low, high = np.minimum.reduceat(parts["low"], starts), np.maximum.reduceat(parts["high"], starts)
    mixed = np.flatnonzero((high > 0) & (low != high))
    if len(mixed) and out.mixed is None:
        out.mixed = int(parts["problem"][starts[mixed[0]]])
    _boards(out, n, total, parts["benchmark"][starts])


def _changes(sorted_values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where something else begins."""
    return np.concatenate([[True], sorted_values[1:] != sorted_values[:-1]])


def _conflicts(out: Tally, entries: NDArray[Any], first: NDArray[Any], differ: NDArray[Any]) -> None:
    """Attempts with two values: a few of them by their rows, and every source that has such."""
    ends = np.append(first, len(entries))
    again = entries[np.setdiff1d(np.arange(len(entries)), first, assume_unique=True)]
    if len(again):
        row = again[np.lexsort((again["row"], again["source"]))[0]]
        found = int(row["source"]), int(row["row"])
        out.repeated = found if out.repeated is None else min(out.repeated, found)
    for i in differ:
        rows = entries[ends[i] : ends[i + 1]]
        rows = rows[~np.isnan(rows["value"])]
        out.conflicting |= {int(source) for source in rows["source"]}
        if len(out.conflicts) < 3:
            one, two = rows[rows["value"].argmin()], rows[rows["value"].argmax()]
            out.conflicts.append(((int(one["source"]), int(one["row"])), (int(two["source"]), int(two["row"]))))


def _boards(out: Tally, n: NDArray[Any], total: NDArray[Any], codes: NDArray[Any]) -> None:
    cells, where, many = np.unique(
        np.column_stack([codes.astype(np.float64), n, total]), axis=0, return_inverse=True, return_counts=True
    )
    means = np.bincount(where.ravel(), np.divide(total, n, out=np.zeros_like(total), where=n > 0), len(cells))
    for (code, n_, total_), problems, mean in zip(cells.tolist(), many.tolist(), means.tolist(), strict=True):
        board = out.boards.setdefault(int(code), Board())
        board.problems += problems
        board.attempts += int(n_) * problems
        board.total += total_ * problems
        board.means += mean
        board.cells[int(n_), int(total_)] += problems
        out.histogram[int(n_)] += problems
