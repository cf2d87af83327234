"""What the attempts of one or many sources add up to: rows, verdicts, repeats, contradictions, the histogram of n.

A ledger is a file of fixed-size entries, one per attempt, that tell problem and attempt by 64 bits of hash each. It
is read in as many passes as it takes to hold only a part of it, so any source is added up in bounded memory.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PASS = 1 << 18
"""Entries that are looked at together."""


class LEDGER:
    """The layout of an entry."""

    kind = np.dtype(
        [("problem", "u8"), ("attempt", "u8"), ("value", "f8"), ("error", "?"), ("benchmark", "u2")], align=False
    )

    @classmethod
    def empty(cls, many: int) -> NDArray[Any]:
        return np.empty(many, cls.kind)

    @classmethod
    def open(cls, path: Path) -> NDArray[Any]:
        return np.memmap(path, cls.kind, "r") if path.stat().st_size else cls.empty(0)


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


def tally(ledgers: Sequence[tuple[Path, object]], most: int = PASS) -> Tally:
    """Add up ledgers; beside each, whatever tells its problems from those of the others."""
    books = [LEDGER.open(path) for path, _ in ledgers]
    salts = [_salt(told) for _, told in ledgers]
    passes = np.uint64(max(1, -(-sum(map(len, books)) // most)))
    out = Tally()
    for number in range(int(passes)):
        parts = []
        for i, (book, salt) in enumerate(zip(books, salts, strict=True)):
            mine = np.flatnonzero(_mixed(book["problem"], salt) % passes == number)
            part = np.empty(len(mine), _ENTRY)
            for key in LEDGER.kind.names or ():
                part[key] = book[key][mine]
            part["problem"], part["attempt"] = _mixed(part["problem"], salt), _mixed(part["attempt"], salt)
            part["source"], part["row"] = i, mine
            parts.append(part)
        if parts:
            _add(out, np.concatenate(parts))
    return out


_ENTRY = np.dtype([*LEDGER.kind.descr, ("source", "u4"), ("row", "i8")])


def _salt(told: object) -> np.uint64:
    digest = hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _mixed(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    """Hashes of one source, made those of what the source is about."""
    mixed = (np.asarray(hashes) ^ salt) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def _add(out: Tally, entries: NDArray[Any]) -> None:
    """Entries of whole problems: sorted, rows of one attempt are neighbours, and so are attempts of one problem."""
    if not len(entries):
        return
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
    differ = np.flatnonzero(graded & (low != high))
    _conflicts(out, entries, first, differ)
    starts = np.flatnonzero(_changes(problem[first]))
    _boards(out, np.where(graded, high, 0.0), graded, entries["benchmark"][first], starts)


def _changes(sorted_values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where something else begins."""
    return np.concatenate([[True], sorted_values[1:] != sorted_values[:-1]])


def _conflicts(out: Tally, entries: NDArray[Any], first: NDArray[Any], differ: NDArray[Any]) -> None:
    """Attempts with two values: a few of them by their rows, and every source that has such."""
    ends = np.append(first, len(entries))
    for i in differ:
        rows = entries[ends[i] : ends[i + 1]]
        rows = rows[~np.isnan(rows["value"])]
        out.conflicting |= {int(source) for source in rows["source"]}
        if len(out.conflicts) < 3:
            one, two = rows[rows["value"].argmin()], rows[rows["value"].argmax()]
            out.conflicts.append(((int(one["source"]), int(one["row"])), (int(two["source"]), int(two["row"]))))


def _boards(out: Tally, value: NDArray[Any], graded: NDArray[Any], codes: NDArray[Any], starts: NDArray[Any]) -> None:
    n = np.add.reduceat(graded.astype(np.int64), starts)
    total = np.add.reduceat(value, starts)
    cells, where, many = np.unique(
        np.column_stack([codes[starts].astype(np.float64), n, total]), axis=0, return_inverse=True, return_counts=True
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
