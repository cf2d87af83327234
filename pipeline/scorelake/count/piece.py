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

from scorelake.count.columns import protocol_label
from scorelake.count.kinds import COUNTED
from scorelake.count.rows import Codebook
from scorelake.count.shape import Shape
from scorelake.count.tally import KIND_BITS, LOW_BITS, NAME_BITS, Cells
from scorelake.counts import (
    DOUBT,
    HASH,
    INTEGER,
    KINDS,
    OUTCOMES,
    PROBLEM,
    TOLD,
    Counts,
    Ints,
    Words,
    problem_hashes,
    repeated,
)
from scorelake.store.parquet import arrow
from scorelake.tables import GROUP, KEYS


@dataclass(frozen=True)
class Texts:
    """What the codes of a codebook stand for, made once for all pieces."""

    texts: dict[str, pa.Array[Any]]
    group: dict[str, NDArray[np.uint32]]
    """For each column of GROUP, the place of a group's text."""
    name: NDArray[np.uint32]
    """The place of a name's text."""
    hashes: tuple[Words, Words]
    carries: NDArray[np.uint32]
    carried: dict[str, pl.Series]

    @classmethod
    def of(cls, book: Codebook) -> Texts:
        tuples = book.tuples(book.groups, len(book.columns))
        texts = {key: book.columns[key].texts() for key in GROUP[:-1]}
        group = {key: tuples[:, i] for i, key in enumerate(GROUP[:-1])}
        given = list(book.columns)[len(GROUP) - 1 :]
        spelled = [book.columns[name].texts().to_pylist() for name in given]
        labels = [
            protocol_label({n.removeprefix("protocol "): s[c] for n, s, c in zip(given, spelled, codes, strict=True)})
            for codes in tuples[:, len(GROUP) - 1 :].tolist()
        ]
        known = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        texts["protocol"] = pa.array(list(known), pa.large_string())
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
    spelled = any(cells.used for cells in told)
    parts = [_partition(a, b, shape, spelled, texts) for a, b in both]
    alone = all(starts.size == owner.size for _, starts, owner, _ in parts)  # the bits of one cell tell all of it
    listed = shape.scored or shape.answered or spelled or (shape.words > 0 and not alone)
    problems, details, below = [], [], 0
    for table, starts, owner, keys in parts:
        problems.append(keys | table.sums(owner, starts, texts))
        if listed:
            details.append(table.details(owner + np.uint32(below)))
        below += starts.size
    return Counts(texts.texts, _joined(problems), _joined(details) if listed else None)


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


def _partition(
    main: Cells | None, told: Cells | None, shape: Shape, spelled: bool, texts: Texts
) -> tuple[_Table, Ints, NDArray[np.uint32], dict[str, Any]]:
    """Cells in the order of their hashes: where problems begin, which one a cell is of, and the keys of each."""
    plain = _cells(main, shape.width + (2 * shape.words or 1))
    table = _Table(plain, _cells(told, shape.wider + 1), shape, spelled)
    key = table.key >> np.uint64(LOW_BITS)
    group = (key >> np.uint64(NAME_BITS)).astype(np.uint32)
    name = (key & np.uint64((1 << NAME_BITS) - 1)).astype(np.uint32)
    hashes = problem_hashes(texts.hashes[0][group], texts.hashes[1][name])
    place = np.argsort(hashes)
    if _mixed(hashes[place], key[place]):  # two problems share a hash
        place = np.lexsort([key, hashes])
    fresh = np.ones(place.size, bool)
    fresh[1:] = key[place[1:]] != key[place[:-1]]
    starts = np.flatnonzero(fresh)
    first = place[starts]
    keys: dict[str, Any] = {HASH: hashes[first]}
    keys |= {key: texts.group[key][group[first]] for key in GROUP} | {KEYS[-1]: texts.name[name[first]]}
    return table.gather(place), starts, (np.cumsum(fresh) - 1).astype(np.uint32), keys


def _cells(part: Cells | None, width: int) -> Words:
    return np.empty((0, width), np.uint64) if part is None else part.cells[: part.used]


def _mixed(hashes: Words, keys: Words) -> bool:
    """Rows of one hash are of several problems."""
    return bool(((hashes[1:] == hashes[:-1]) & (keys[1:] != keys[:-1])).any())


class _Table:
    """Cells of both sorts as columns."""

    def __init__(self, plain: Words, spelled: Words, shape: Shape, named: bool) -> None:
        self.shape, many = shape, len(plain)
        both = (plain, spelled) if len(spelled) else (plain,)
        self.key = np.concatenate([cells[:, 0] for cells in both])
        self.more = [np.concatenate([cells[:, i] for cells in both]) for i in range(1, shape.width)]
        self.attempt: list[Words] = []
        if named:
            self.attempt = [_beside(many, spelled[:, shape.width + i]) for i in range(2 + shape.ordered)]
        counts = _counts(plain, shape) if many else {}
        again = _by_kind(spelled[:, 0], spelled[:, -1])
        self.outcomes = {k: np.concatenate([counts[k], again[k]]) if many else again[k] for k in OUTCOMES}
        self.bits: dict[str, Words] = {}
        for word in range(shape.words):
            low, high = (plain[:, shape.width + 2 * word + i] for i in range(2))
            for kind, column in zip(KINDS, (low | high, low ^ high, high & ~low), strict=True):
                self.bits[f"{kind}{word}"] = np.concatenate([column, np.zeros(len(spelled), np.uint64)])

    def gather(self, place: Ints) -> _Table:
        out = object.__new__(_Table)
        out.shape, out.key = self.shape, self.key[place]
        out.more, out.attempt = ([column[place] for column in some] for some in (self.more, self.attempt))
        out.outcomes = {name: column[place] for name, column in self.outcomes.items()}
        out.bits = {name: column[place] for name, column in self.bits.items()}
        return out

    def sums(self, owner: NDArray[np.uint32], starts: Ints, texts: Texts) -> dict[str, Any]:
        """One row per problem."""
        out: dict[str, Any] = {name: np.add.reduceat(column, starts) for name, column in self.outcomes.items()}
        return out | self.proof(owner, starts) | (self.carried(starts, texts) if self.shape.carried else {})

    def proof(self, owner: NDArray[np.uint32], starts: Ints) -> dict[str, Any]:
        """Bits of all attempts of a problem, rows whose attempt is spelled out, and whether one occurs twice."""
        out: dict[str, Any] = {name: np.bitwise_or.reduceat(column, starts) for name, column in self.bits.items()}
        doubt = np.zeros(starts.size, bool)
        if self.bits:
            seen = [f"{KINDS[0]}{word}" for word in range(self.shape.words)]
            apart = sum(np.add.reduceat(np.bitwise_count(self.bits[n]).astype(np.int64), starts) for n in seen)
            doubt |= apart != sum(np.bitwise_count(out[n]).astype(np.int64) for n in seen)
        told = np.zeros(starts.size, np.int64)
        if self.attempt:
            high, low = self.attempt[:2]
            rows = sum(self.outcomes.values())
            known = high > 0
            told = np.add.reduceat(np.where(known, rows, 0), starts)
            small = (high == np.uint64(INTEGER)) & (low < np.uint64(64 * self.shape.words))
            again = known & ((rows > 1) | small)
            again[repeated(owner, high, low)] = True
            doubt |= np.logical_or.reduceat(again, starts)
        return {TOLD: told, DOUBT: doubt, **out}

    def carried(self, starts: Ints, texts: Texts) -> dict[str, pl.Series]:
        """The smallest and largest non-null value of each problem."""
        out, codes = {}, texts.carries[self.more[0].astype(np.int64)]
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

    def details(self, owner: NDArray[np.uint32]) -> dict[str, Any]:
        """One row per cell."""
        shape, columns = self.shape, dict[str, Any]({PROBLEM: owner})
        more = self.more[shape.carried :]
        if shape.scored:
            columns["score"] = pl.Series(more.pop(0).view(np.float64)).fill_nan(None)
        if shape.answered:
            columns |= {"answer_high": more[0], "answer_low": more[1]}
        if self.attempt:
            columns |= dict(zip(("attempt_high", "attempt_low", "at"), self.attempt, strict=False))
        return {**columns, **self.outcomes, **self.bits}


def _beside(many: int, column: Words) -> Words:
    return np.concatenate([np.zeros(many, np.uint64), column])


def _counts(plain: Words, shape: Shape) -> dict[str, Ints]:
    if not shape.words:
        return _by_kind(plain[:, 0], plain[:, -1])
    out = {name: np.zeros(len(plain), np.int64) for name in OUTCOMES}
    for word in range(shape.words):
        low, high = (plain[:, shape.width + 2 * word + i] for i in range(2))
        for name, column in (("passed", high & ~low), ("failed", low & ~high), ("ungraded", low & high)):
            out[name] += np.bitwise_count(column)
    return out


def _by_kind(key: Words, count: Words) -> dict[str, Ints]:
    kind, many = key & np.uint64((1 << KIND_BITS) - 1), count.astype(np.int64)
    return {name: np.where(kind == which, many, 0) for name, which in COUNTED.items()}
