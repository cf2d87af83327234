"""Cells of the tally -> Counts: codes become texts, words become columns, and doubt is looked for.

In doubt is a problem of which an attempt may occur twice. All others are proven: their counts can be believed as they
are, whatever else is added, as long as no attempt is seen again there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counting.columns import protocol_label
from scorelake.counting.grouping import Grouped
from scorelake.counting.kinds import COUNTED
from scorelake.counting.rows import Codebook, unsorted
from scorelake.counting.shape import Shape
from scorelake.counting.tally import LOW_BITS, NAME_BITS, Cells
from scorelake.counts import DOUBT, HASH, KINDS, PROBLEM, TOLD, WORD, Counts, Ints, Words, key_hashes
from scorelake.schemas import GROUP, KEYS
from scorelake.storage.arrays import arrow
from scorelake.storage.arrays import texts as array_of


@dataclass(frozen=True)
class Texts:
    """What the codes of a codebook stand for, made once for all pieces."""

    texts: dict[str, pa.Array[Any]]
    group: dict[str, NDArray[np.uint32]]
    """For each column of GROUP, the place of a group's text."""
    name: NDArray[np.uint32]
    """The place of a name's text."""
    hashes: tuple[Words, Words, Words]
    carries: NDArray[np.uint32]
    carried: dict[str, pl.Series]

    @classmethod
    def of(cls, book: Codebook) -> Texts:
        tuples = book.tuples(book.groups, len(book.columns))
        texts = {key: book.columns[key].texts() for key in GROUP[:-1]}
        group = {key: tuples[:, i] for i, key in enumerate(GROUP[:-1])}
        given = list(book.columns)[len(GROUP) - 1 :]
        spelled = [book.columns[name].texts(null=True).to_pylist() for name in given]
        labels = [
            protocol_label({n.removeprefix("protocol "): s[c] for n, s, c in zip(given, spelled, codes, strict=True)})
            for codes in tuples[:, len(GROUP) - 1 :].tolist()
        ]
        known = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        texts["protocol"] = array_of(list(known))
        group["protocol"] = np.array([known[label] for label in labels], np.uint32)
        names: Any = book.names.texts()
        order = pl.Series(names).arg_sort().to_numpy()  # once here, and no merge has to sort them again
        rank = np.empty(order.size, np.uint32)
        rank[order] = np.arange(order.size, dtype=np.uint32)
        texts["problem_id"] = names.take(arrow(order))
        carries = book.tuples(book.carries, len(book.carried))
        return cls(
            texts, group, rank, book.hashes(), carries, {name: each.table() for name, each in book.carried.items()}
        )


def piece(main: Sequence[Cells], told: Sequence[Cells], shape: Shape, texts: Texts) -> Counts:
    """Some partitions as counts; one at a time, which the cache holds. They are ranges of hashes, in order."""
    none = [None] * max(len(main), len(told))
    both = [(a, b) for a, b in zip(main or none, told or none, strict=True) if any(c and c.used for c in (a, b))]
    parts = [_Part(a, b, shape, texts) for a, b in both]
    problems = _joined([part.problems for part in parts])
    return Counts(texts.texts, problems, _details(parts, shape))


def _details(parts: Sequence[_Part], shape: Shape) -> pl.DataFrame | None:
    """What rows tell besides their outcome, in the order of problems; None if that is nothing."""
    below = np.cumsum([0, *(part.many for part in parts)])
    frames: list[list[dict[str, Any]]] = []
    if shape.extra:
        rows, different = (sum(int(each) for each in some) for some in zip(*(p.sizes for p in parts), strict=True))
        single = shape.words > 0 and 2 * different > rows  # hardly two are alike: a number says what bits would
        frames.append([part.rows(shape, single) for part in parts])
    else:
        frames.append([part.doubtful() for part in parts])
    frames.append([part.spelled(shape) for part in parts])
    for some in frames:
        for table, first in zip(some, below, strict=False):
            if table:
                table[PROBLEM] = table[PROBLEM] + np.uint32(first)
    made = [_joined(present) for present in ([t for t in some if t] for some in frames) if present]
    if len(made) < 2:
        return made[0] if made else None
    return pl.concat(made, how="diagonal_relaxed").sort(PROBLEM, maintain_order=True)


def _joined(parts: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Columns of several parts, one after the other."""
    return pl.DataFrame(
        {
            name: pl.concat([part[name] for part in parts])
            if isinstance(parts[0][name], pl.Series)
            else np.concatenate([part[name] for part in parts])
            for name in parts[0]
        }
    )


class _Part:
    """One partition: its problems in the order of their hashes, and its rows."""

    def __init__(self, main: Cells | None, told: Cells | None, shape: Shape, texts: Texts) -> None:
        plain = _cells(main, shape.width + (2 * shape.words or 3))
        spelled = _cells(told, shape.width + 3)
        cells = _Columns(plain, spelled, shape)
        key = cells.key >> np.uint64(LOW_BITS)
        group = (key >> np.uint64(NAME_BITS)).astype(np.uint32)
        name = (key & np.uint64((1 << NAME_BITS) - 1)).astype(np.uint32)
        asked, own, names = texts.hashes
        hashes = key_hashes(asked[group], own[group], names[name])
        place = np.argsort(hashes)
        if _mixed(hashes[place], key[place]):  # two problems share a hash
            place = np.lexsort([key, hashes])
        fresh = np.ones(place.size, bool)
        fresh[1:] = key[place[1:]] != key[place[:-1]]
        starts = np.flatnonzero(fresh)
        self.many = starts.size
        self.problem = np.empty(place.size, np.int64)
        """For every cell its problem."""
        self.problem[place] = np.cumsum(fresh) - 1
        self.cells = cells
        mine, others, words = self.problem[: len(plain)], self.problem[len(plain) :], shape.words > 0
        self.main = Grouped(main.rows(), mine, self.many, words) if main and shape.extra else None
        self.told = Grouped(told.rows(), others, self.many, False) if told and len(spelled) else None
        first = place[starts]
        self.problems: dict[str, Any] = {HASH: hashes[first]}
        self.problems |= {key: texts.group[key][group[first]] for key in GROUP}
        self.problems |= {KEYS[-1]: texts.name[name[first]]}
        self.problems |= cells.sums(place, starts)
        self.problems |= self._prove(cells.overlap(place, starts), shape)
        if shape.carried:
            self.problems |= cells.carried(place, starts, texts)

    def _prove(self, overlap: NDArray[np.bool_], shape: Shape) -> dict[str, Any]:
        """Rows whose attempt is spelled out, and whether an attempt occurs twice."""
        if self.told is None:
            return {TOLD: np.zeros(self.many, np.int64), DOUBT: overlap}
        told, twice = self.told.attempts(self.many, WORD * shape.words)
        return {TOLD: told, DOUBT: overlap | twice}

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows that are told apart, and how many are different."""
        return (len(self.main.rows), self.main.different) if self.main else (0, 0)

    def rows(self, shape: Shape, single: bool) -> dict[str, Any]:
        """Rewards and answers, one row each, or equal ones together."""
        if self.main is None:
            return {}
        if single:
            return self.main.single() | _told(self.main.rows, 1, shape)
        rows, out = self.main.together(shape.words)
        return out | _told(rows, 1, shape)

    def doubtful(self) -> dict[str, Any]:
        """Cells of the problems of which other rows are spelled out or bits overlap: bits alone do not tell all."""
        wanted = self.problems[DOUBT].copy()
        if self.told:
            wanted[(self.told.rows[:, 0] >> np.uint64(LOW_BITS)).astype(np.int64)] = True
        problem = self.problem[: self.cells.plain]
        which = np.flatnonzero(wanted[problem])
        if not which.size:
            return {}
        which = which[np.argsort(problem[which], kind="stable")]
        columns = {**self.cells.outcomes, **self.cells.bits}
        return {PROBLEM: problem[which].astype(np.uint32)} | {name: c[which] for name, c in columns.items()}

    def spelled(self, shape: Shape) -> dict[str, Any]:
        """Rows with their attempts."""
        if self.told is None or not len(self.told.rows):
            return {}
        rows, out = self.told.together(0)
        out |= {"attempt_high": rows[:, 1], "attempt_low": rows[:, 2]}
        return out | _told(rows, 3, shape) | ({"at": rows[:, -1]} if shape.ordered else {})


def _told(rows: Words, at: int, shape: Shape) -> dict[str, Any]:
    """Reward and answer, from this word of the rows on."""
    out: dict[str, Any] = {}
    if shape.scored:
        out["score"] = pl.Series(unsorted(rows[:, at])).fill_nan(None)
    if shape.answered:
        out |= {"answer_high": rows[:, at + shape.scored], "answer_low": rows[:, at + shape.scored + 1]}
    return out


def _cells(part: Cells | None, width: int) -> Words:
    return np.empty((0, width), np.uint64) if part is None else part.cells[: part.used]


def _mixed(hashes: Words, keys: Words) -> bool:
    """Rows of one hash are of several problems."""
    return bool(((hashes[1:] == hashes[:-1]) & (keys[1:] != keys[:-1])).any())


class _Columns:
    """Cells of both sorts as columns, the plain ones first."""

    def __init__(self, plain: Words, spelled: Words, shape: Shape) -> None:
        self.plain, width = len(plain), shape.width
        self.key = np.concatenate([plain[:, 0], spelled[:, 0]])
        self.carry = np.concatenate([plain[:, 1], spelled[:, 1]]) if shape.carried else self.key[:0]
        counts = _counts(plain, shape)
        self.outcomes = {
            name: np.concatenate([counts[name], spelled[:, width + kind].astype(np.int64)])
            for name, kind in COUNTED.items()
        }
        self.bits: dict[str, Words] = {}
        none = np.zeros(len(spelled), np.uint64)
        for word in range(shape.words):
            low, high = (plain[:, width + 2 * word + i] for i in range(2))
            for kind, column in zip(KINDS, (low | high, low ^ high, high & ~low), strict=True):
                self.bits[f"{kind}{word}"] = np.concatenate([column, none])

    def sums(self, place: Ints, starts: Ints) -> dict[str, Any]:
        """One row per problem: outcomes added up, attempts of all cells."""
        out: dict[str, Any] = {name: np.add.reduceat(c[place], starts) for name, c in self.outcomes.items()}
        return out | {name: np.bitwise_or.reduceat(c[place], starts) for name, c in self.bits.items()}

    def overlap(self, place: Ints, starts: Ints) -> NDArray[np.bool_]:
        """Problems of which two cells have seen the same attempt."""
        out = np.zeros(starts.size, bool)
        if starts.size < place.size:
            for name in (name for name in self.bits if name.startswith(KINDS[0])):
                seen = self.bits[name][place]
                apart = np.add.reduceat(np.bitwise_count(seen).astype(np.int64), starts)
                out |= apart != np.bitwise_count(np.bitwise_or.reduceat(seen, starts))
        return out

    def carried(self, place: Ints, starts: Ints, texts: Texts) -> dict[str, pl.Series]:
        """The smallest and largest non-null value of each problem."""
        out, codes = {}, texts.carries[self.carry[place].astype(np.int64)]
        for i, (name, values) in enumerate(texts.carried.items()):
            sorted_ = values.arg_sort(nulls_last=True)
            rank = np.empty(values.len(), np.int64)
            rank[sorted_.to_numpy()] = np.arange(values.len())
            mine, missing = rank[codes[:, i]], values.is_null().to_numpy()[codes[:, i]]
            low = np.minimum.reduceat(np.where(missing, values.len(), mine), starts)
            high = np.maximum.reduceat(np.where(missing, -1, mine), starts)
            ordered = values.gather(sorted_)
            for end, at in (("min", low), ("max", high)):
                there = pl.Series(np.where((at >= 0) & (at < values.len()), at, -1))
                out[f"{end}:{name}"] = ordered.gather(pl.select(pl.when(there >= 0).then(there)).to_series())
        return out


def _counts(plain: Words, shape: Shape) -> dict[str, Ints]:
    if not shape.words:
        return {name: plain[:, shape.width + kind].astype(np.int64) for name, kind in COUNTED.items()}
    out = {name: np.zeros(len(plain), np.int64) for name in COUNTED}
    for word in range(shape.words):
        low, high = (plain[:, shape.width + 2 * word + i] for i in range(2))
        for name, column in (("passed", high & ~low), ("failed", low & ~high), ("ungraded", low & high)):
            out[name] += np.bitwise_count(column)
    return out
