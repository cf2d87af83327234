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
import polars as pl
from numpy.typing import NDArray

PASS = 1 << 20
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
            problem = _mixed(book["problem"], salt)
            mine = np.flatnonzero(problem % passes == number)
            entries = book[mine]
            parts.append(
                pl.DataFrame(
                    {
                        "source": np.full(len(mine), i, np.uint32),
                        "row": mine,
                        "problem": problem[mine],
                        "attempt": _mixed(entries["attempt"], salt),
                        "value": entries["value"].astype(np.float64),
                        "error": entries["error"].astype(np.bool_),
                        "benchmark": entries["benchmark"].astype(np.uint16),
                    }
                )
            )
        if parts:
            _add(out, pl.concat(parts))
    return out


def _salt(told: object) -> np.uint64:
    digest = hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def _mixed(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    """Hashes of one source, made those of what the source is about."""
    mixed = (np.asarray(hashes) ^ salt) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def _add(out: Tally, frame: pl.DataFrame) -> None:
    if frame.is_empty():
        return
    value = pl.col("value")
    attempts = (
        frame.with_columns(value.fill_nan(None))
        .group_by("problem", "attempt")
        .agg(
            pl.len().alias("rows"),
            value.min().alias("low"),
            value.max().alias("value"),
            pl.col("error").filter(value.is_not_null()).all().alias("made_up"),
            pl.col("error").all(),
            pl.col("benchmark").first(),
            pl.struct("source", "row").sort_by(value).first().alias("first"),
            pl.struct("source", "row").sort_by(value).last().alias("last"),
        )
    )
    graded = attempts.filter(value.is_not_null())
    own = graded.filter(~pl.col("made_up"))
    out.rows += len(frame)
    out.graded += len(graded)
    out.ungraded += len(attempts) - len(graded)
    out.duplicate += len(frame) - len(attempts)
    out.errors += int(attempts["error"].sum())
    out.total += math.fsum(graded["value"])
    out.verdicts += len(own)
    out.earned += math.fsum(own["value"])
    out.low = min(out.low, _number(graded["low"].min(), math.inf))
    out.high = max(out.high, _number(graded["value"].max(), -math.inf))
    out.odd += int(graded.select(~pl.col("value").is_in([0.0, 1.0])).to_series().sum())
    differ = graded.filter(pl.col("low") != pl.col("value"))
    for end in ("first", "last"):
        out.conflicting |= set(differ[end].struct.field("source").unique().to_list())
    for first, last in differ.select("first", "last").head(max(0, 3 - len(out.conflicts))).rows():
        out.conflicts.append(((first["source"], first["row"]), (last["source"], last["row"])))
    _boards(out, attempts)


def _number(found: Any, default: float) -> float:
    return default if found is None else float(found)


def _boards(out: Tally, attempts: pl.DataFrame) -> None:
    value = pl.col("value")
    problems = attempts.group_by("problem").agg(
        value.count().alias("n"), value.sum().alias("total"), value.mean().alias("mean"), pl.col("benchmark").first()
    )
    cells = problems.group_by("benchmark", "n", "total").agg(pl.len().alias("many"), pl.col("mean").sum())
    for code, n, total, many, means in cells.rows():
        board = out.boards.setdefault(code, Board())
        board.problems += many
        board.attempts += n * many
        board.total += total * many
        board.means += means
        board.cells[n, int(total)] += many
        out.histogram[n] += many
