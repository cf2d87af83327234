"""Batches of a file -> coded rows, for the tally: every text a number, every row a few words.

Texts are looked at once per dictionary, not once per row. Where a column holds one value throughout, nothing is done
per row at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counting.columns import Canonical, Source, answer_text, carried_value, key_text, protocol_text
from scorelake.counting.kinds import BAD, UNGRADED
from scorelake.counting.tally import GROUP_BITS, NAME_BITS, pack
from scorelake.counting.values import Spelling, distinct, outcomes, series, strings
from scorelake.counting.vocabulary import Codes, Vocabulary, identify
from scorelake.counts import Words, group_hashes
from scorelake.errors import DataError
from scorelake.schemas import GROUP, NAMED
from scorelake.storage.arrays import arrow, buffer, numbers, texts

INTEGER = np.uint64(1 << 56)
"""The high word of an attempt that is a whole number."""
_NONE = np.empty(0, np.int32)
_FEW = 1 << 20
"""Combinations of codes for which a table is faster than a search."""
Column: TypeAlias = tuple[NDArray[Any] | None, Codes]
"""For every row a place, or None for one and the same; and the codes at these places."""


@dataclass(frozen=True)
class Rows:
    """Coded rows of a batch that are not bad, and how many are."""

    bad: int
    first: Words
    """Problem and kind; the bits of an attempt's number are still free."""
    more: list[Words]
    """What else is told apart: carried values, reward, answer."""
    attempt: tuple[Words | None, Words] | None
    """128 bits for each attempt, where attempts are told apart; the first are None if all are whole numbers."""
    at: Words | None
    """File and row, where their order decides."""


class Codebook:
    """The codes of one piece of work, shared by all threads: of groups, of problem ids, of carried values."""

    def __init__(self, protocol: Sequence[str], carried: Sequence[str]) -> None:
        self.names = Vocabulary()
        self.columns = {key: Vocabulary() for key in (*GROUP[:-1], *(f"protocol {name}" for name in protocol))}
        self.groups = Vocabulary()
        self.group_hashes: tuple[Words, Words] = (np.zeros(1, np.uint64), np.zeros(1, np.uint64))
        self.lock = Lock()
        self.carried = {name: Carried() for name in carried}
        self.carries = Vocabulary()

    @property
    def bytes(self) -> int:
        all_of_them = (self.names, self.groups, self.carries, *self.columns.values())
        return sum(each.bytes for each in all_of_them) + sum(each.bytes for each in self.carried.values())

    def hashes(self) -> tuple[Words, Words, Words]:
        """Of benchmark and subject of a group, of all of it, and of names, by their codes."""
        if self.group_hashes[0].size <= self.groups.count:
            with self.lock:
                self.group_hashes = _hash_groups(self)
        return *self.group_hashes, self.names.hashes

    def tuples(self, vocabulary: Vocabulary, width: int) -> Codes:
        """The codes that a code of several columns stands for, one row each; the first is of nothing."""
        count = vocabulary.count  # first: what is learnt meanwhile may be in the arena, but not the other way round
        used = vocabulary.arena[: 4 * width * count]
        return np.concatenate([np.zeros((1, width), np.uint32), used.view(np.uint32).reshape(count, width)])


def _hash_groups(book: Codebook) -> tuple[Words, Words]:
    """The hashes of every group, of its texts alone; protocol columns one after the other."""
    tuples = book.tuples(book.groups, len(book.columns))
    return group_hashes([each.hashes[tuples[:, i]] for i, each in enumerate(book.columns.values())])


class Carried:
    """A carried column: its values by their codes, as they are and not as texts."""

    def __init__(self) -> None:
        self.vocabulary, self.lock = Vocabulary(), Lock()
        self.known = np.zeros(1, bool)
        self.codes: list[Codes] = []
        self.values: list[pl.Series] = []

    @property
    def bytes(self) -> int:
        return self.vocabulary.bytes + sum(int(values.estimated_size()) for values in self.values)

    def learn(self, values: pl.Series) -> Codes:
        values = carried_value(values)
        codes = self.vocabulary.codes(_strings(values))
        with self.lock:
            if self.known.size <= self.vocabulary.count:
                self.known = np.concatenate([self.known, np.zeros(self.vocabulary.count + 1, bool)])
            new = np.flatnonzero(~self.known[codes])
            if new.size:
                self.known[codes[new]] = True
                self.codes.append(codes[new])
                self.values.append(values.gather(new))
        return codes

    def table(self) -> pl.Series:
        """Every value at the place of its code."""
        if not self.codes:
            return pl.Series([None])
        codes = np.concatenate(self.codes)
        values = pl.concat([each.alias("").to_frame() for each in self.values], how="vertical_relaxed").to_series()
        place = np.zeros(self.vocabulary.count + 1, np.int64)
        place[codes] = np.arange(codes.size)
        null = values.head(0).extend_constant(None, 1)
        return null.append(values.gather(place[1:]))


def _strings(values: pl.Series) -> pa.Array[Any]:
    """Texts of values as Arrow strings, nulls where they are null."""
    if values.dtype.is_temporal():
        values = values.to_physical()  # a date that no calendar has is still told from others
    texts = values if values.dtype == pl.String else protocol_text(values)
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest())


class Coder:
    """Batches of one file -> rows."""

    def __init__(self, canonical: Canonical, book: Codebook, file: int | None) -> None:
        self.canonical, self.book, self.file = canonical, book, file

    def rows(self, batch: pa.RecordBatch, at: int) -> Rows:
        """The rows of a batch that begins at this row of its file."""
        canonical = self.canonical
        frame = outcomes(batch, canonical)
        kind: NDArray[np.uint8] = frame["kind"].to_numpy()
        bad = kind == BAD
        group = self._group(batch, bad)
        name = self._text(batch, "problem_id", self.book.names, bad)
        if max(self.book.groups.count >> GROUP_BITS, self.book.names.count >> NAME_BITS):
            raise DataError(
                f"more than {1 << GROUP_BITS:,} groups or {1 << NAME_BITS:,} problem ids are counted together",
                hint="cut the work smaller with [run] shard_mb or memory_gb",
            )
        place, codes = name
        first = np.empty(kind.size, np.uint64)
        pack(group, codes, _NONE if place is None else place, kind, first)
        more = self._more(batch, frame, kind)
        attempt = None if canonical.attempt is None else attempts(batch.column(canonical.attempt))
        order = None
        if self.file is not None:
            order = np.arange(at, at + kind.size, dtype=np.uint64) | np.uint64(self.file << 40)
        many = int(np.count_nonzero(bad))
        if many:
            good = ~bad
            first, more = first[good], [words[good] for words in more]
            if attempt is not None:
                high, low = attempt
                attempt = (None if high is None else high[good]), low[good]
            order = None if order is None else order[good]
        return Rows(many, first, more, attempt, order)

    def _column(self, batch: pa.RecordBatch, source: Source, vocabulary: Vocabulary, text: Spelling) -> Column:
        """The codes of a column; a value for the whole file is one code."""
        if source.column is None:
            return None, vocabulary.codes(texts([source.value]))
        place, values = distinct(batch.column(source.column))
        codes = vocabulary.codes(strings(values, text))
        if place is not None and len(codes) == 1 and values.null_count == 0:
            return None, codes
        return place, codes

    def _text(self, batch: pa.RecordBatch, key: str, vocabulary: Vocabulary, bad: NDArray[np.bool_]) -> Column:
        """One of our own keys. Rows without it, or against the name of their folder, are bad."""
        source = self.canonical.keys[key]
        place, codes = self._column(batch, source, vocabulary, key_text)
        wrong = codes == 0
        if source.agree:
            wrong = wrong | (codes != vocabulary.codes(texts([source.value])))
        if wrong.any():
            np.logical_or(bad, wrong if place is None else wrong[place], out=bad)
        return place, codes

    def _group(self, batch: pa.RecordBatch, bad: NDArray[np.bool_]) -> Codes:
        book = self.book
        columns = [self._text(batch, key, book.columns[key], bad) for key in NAMED[:-1]]
        for name, source in self.canonical.protocol.items():
            columns.append(self._column(batch, source, book.columns[f"protocol {name}"], protocol_text))
        return combined(columns, book.groups)

    def _more(self, batch: pa.RecordBatch, frame: pl.DataFrame, kind: NDArray[np.uint8]) -> list[Words]:
        canonical, out = self.canonical, list[Words]()
        if canonical.carried:
            columns = list[Column]()
            for name, source in canonical.carried.items():
                carried = self.book.carried[name]
                if source.column is None:
                    columns.append((None, carried.learn(pl.Series([source.value], dtype=pl.String))))
                else:
                    place, values = distinct(batch.column(source.column))
                    columns.append((place, carried.learn(series(values))))
            codes = combined(columns, self.book.carries).astype(np.uint64)
            out.append(np.broadcast_to(codes, kind.shape) if codes.size == 1 else codes)
        if canonical.score is not None:
            score = frame["score"].fill_null(np.nan).to_numpy()
            out.append(sortable(np.where(kind == UNGRADED, np.nan, score)))
        if canonical.answer is not None:
            graded = kind < UNGRADED
            out += [np.where(graded, words, np.uint64(0)) for words in answers(batch.column(canonical.answer))]
        return out


def sortable(score: NDArray[np.float64]) -> Words:
    """Rewards as words that are in the same order; none, which is NaN, comes last."""
    bits = score.view(np.int64)
    return (bits ^ (bits >> 63 | np.int64(-1 << 63))).view(np.uint64)


def unsorted(words: Words) -> NDArray[np.float64]:
    """The rewards of such words."""
    bits = words.view(np.int64)
    return (bits ^ (~bits >> 63 | np.int64(-1 << 63))).view(np.float64)


def attempts(column: pa.Array[Any]) -> tuple[Words | None, Words]:
    """128 bits that tell attempts apart; a whole number is itself, null is (0, 0). None if all are whole numbers."""
    if pa.types.is_integer(column.type):
        ends: Any = series(column)
        if not (max(abs(int(ends.min() or 0)), abs(int(ends.max() or 0))) >= 10**18):  # longer ones are texts
            low = ends.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
            if not column.null_count:
                return None, low
            return np.where(numbers(column.is_null()), np.uint64(0), INTEGER), low
    return _identified(column, key_text)


def answers(column: pa.Array[Any]) -> tuple[Words, Words]:
    return _identified(column, answer_text)


def _identified(column: pa.Array[Any], text: Spelling) -> tuple[Words, Words]:
    place, values = distinct(column)
    texts = strings(values, text)
    texts.validate(full=True)  # what is no UTF-8 is refused, whichever way it is counted
    high, low = identify(texts)
    return (high, low) if place is None else (high[place], low[place])


def combined(columns: Sequence[Column], vocabulary: Vocabulary) -> Codes:
    """One code for the codes of several columns: for every row, or one for all of them."""
    place: NDArray[Any] = np.zeros(1, np.int32)
    tuples, room = np.zeros((1, 0), np.uint32), 1
    pending: list[Codes] = []
    for where, codes in (_placed(column) for column in columns):
        if room * codes.size > _FEW:
            tuples, place = _settled(tuples, place, room, pending)
            room, pending = len(tuples), []
        if where is not None:
            wide: Any = np.int32 if room * codes.size < 1 << 31 else np.int64
            place = where if room == 1 else np.multiply(place, codes.size, dtype=wide) + where
        room, pending = room * codes.size, [*pending, codes]
    tuples, place = _settled(tuples, place, room, pending)
    rows = np.ascontiguousarray(tuples, dtype=np.uint32)
    offsets = buffer(np.arange(len(rows) + 1, dtype=np.int64) * (4 * rows.shape[1]))
    keys = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [None, offsets, buffer(rows)])
    code = vocabulary.codes(keys)
    return code if place.size == 1 else code[place]


def _placed(column: Column) -> Column:
    """Where every row has a value of its own, its code is its place."""
    where, codes = column
    if where is not None or codes.size == 1:
        return column
    return codes, np.arange(int(codes.max(initial=0)) + 1, dtype=np.uint32)


def _settled(tuples: Codes, place: NDArray[Any], room: int, pending: list[Codes]) -> tuple[Codes, NDArray[Any]]:
    """The different combinations that occur, with the codes of the pending columns, and every row's place in them."""
    if room <= _FEW:
        seen = np.zeros(room, bool)
        seen[place] = True
        combos, rank = np.flatnonzero(seen), np.cumsum(seen, dtype=np.int32)
        rank -= 1
        place = rank[place] if combos.size < room else place
    else:
        encoded: Any = arrow(place).dictionary_encode()
        combos, place = numbers(encoded.dictionary), numbers(encoded.indices)
    added = []
    for codes in reversed(pending):
        combos, which = np.divmod(combos, codes.size)
        added.append(codes[which])
    return np.column_stack([tuples[combos], *reversed(added)]), place
