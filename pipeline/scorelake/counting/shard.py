"""The files of a shard -> Counts, in pieces that fit into memory.

Row groups are read side by side, coded and tallied. When what is held takes a quarter of the memory allowed, it is
handed over as finished pieces and counting goes on with nothing: pieces of the same problems are added up later like
any others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from scorelake.counting.piece import Texts, piece
from scorelake.counting.reading import Source
from scorelake.counting.rows import INTEGER, Codebook, Coder, Rows
from scorelake.counting.shape import Shape, Tallied
from scorelake.counting.tally import KIND_BITS, NUMBER_BITS, Tally
from scorelake.counts import WORD, Counts, Words
from scorelake.storage.arrays import texts

_FEWEST, _MOST, _FULL = 3, 8, 1 << 14
"""Partitions, as powers of two, and the rows that each of them should have: its table fits into the cache, and there
are no more of them than that takes, since each costs a millisecond however few rows it has. (64 files of 16,000 rows,
each a shard: 14 s with 256 partitions.)"""
_STEP = 8
"""Partitions that become counts together: two such pieces, each several times its cells, are in memory at once."""
_NUMBER = np.uint64(((1 << NUMBER_BITS) - 1) << KIND_BITS)
_HANDS = 1 << 26
"""Bytes of rows that a thread holds before it puts them into their cells; a sixteenth of the memory at most."""


class _Work:
    """What is held between two handings-over."""

    def __init__(self, shape: Shape, protocol: Sequence[str], carried: Sequence[str], memory: int, rows: int) -> None:
        self.shape, self.memory, self.lock = shape, memory, Lock()
        self.book = Codebook(protocol, carried)
        room = min(_HANDS, memory // 32)
        plain = shape.words or not shape.told
        bits = min(_MOST, max(_FEWEST, (rows // _FULL).bit_length()))
        self.main = Tally(shape.width, shape.words, shape.extra, room, bits) if plain else None
        self.told = Tally(shape.width, 0, shape.spelled, room, bits) if shape.told else None
        self.bad = 0

    @property
    def full(self) -> bool:
        tallies = (tally.bytes for tally in (self.main, self.told) if tally)
        return self.book.bytes + sum(tallies) > self.memory // 4

    def take(self, rows: Rows) -> None:
        with self.lock:
            self.bad += rows.bad
        if self.told is None:
            self._plain(rows.first, rows.more)
            return
        if rows.attempt is None:  # a file without attempts among others that have them
            none = np.zeros(rows.first.size, np.uint64)
            rows = replace(rows, attempt=(none, none))
        assert rows.attempt is not None
        high, low = rows.attempt
        if not self.shape.words:
            self._spelled(rows, slice(None))
            return
        small = low < np.uint64(WORD * self.shape.words)
        small = small if high is None else small & (high == INTEGER)
        if small.all():
            self._plain(rows.first | low << np.uint64(KIND_BITS), rows.more)
            return
        first = (rows.first | low << np.uint64(KIND_BITS))[small]
        self._plain(first, [words[small] for words in rows.more])
        self._spelled(rows, ~small)

    def _plain(self, first: Words, more: Sequence[Words]) -> None:
        assert self.main is not None
        for again in self.main.take(first, _columns(more, first.size), *self._hashes()):
            self.repeat(again)

    def _spelled(self, rows: Rows, which: slice | NDArray[np.bool_]) -> None:
        assert self.told is not None
        assert rows.attempt is not None
        high, low = rows.attempt
        attempt = np.full(low.size, INTEGER) if high is None else high, low
        words, carried = rows.more, self.shape.carried
        words = [*words[:carried], *attempt, *words[carried:], *([] if rows.at is None else [rows.at])]
        first = rows.first[which]
        self.told.take(first, _columns([column[which] for column in words], first.size), *self._hashes())

    def _hashes(self) -> tuple[Words, Words]:
        """Rows are dealt by their problem, whoever attempted it."""
        place, _, names = self.book.hashes()
        return place, names

    def repeat(self, again: Words) -> None:
        """Rows whose attempt has its bits already, with the attempt spelled out."""
        assert self.told is not None
        number = (again[:, 0] & _NUMBER) >> np.uint64(KIND_BITS)
        words, carried = list(again[:, 1:].T), self.shape.carried
        words = [*words[:carried], np.full(number.size, INTEGER), number, *words[carried:]]
        self.told.take(again[:, 0] & ~_NUMBER, _columns(words, number.size), *self._hashes())

    def counts(self, threads: int) -> Iterator[Counts]:
        """Everything that was taken, in pieces; what was handed over is held no longer."""
        if self.main:
            for again in self.main.flush(threads):
                self.repeat(again)
        if self.told:
            self.told.flush(threads)
        texts = Texts.of(self.book)
        sorts = [tally.parts for tally in (self.main, self.told) if tally]
        many = len(sorts[0])

        def one(at: int) -> Counts | None:
            main = self.main.parts[at : at + _STEP] if self.main else []
            told = self.told.parts[at : at + _STEP] if self.told else []
            made = piece(main, told, self.shape, texts) if any(part.used for part in (*main, *told)) else None
            for part in (*main, *told):
                part.clear()
            return made

        with ThreadPoolExecutor(min(2, threads)) as pool:  # two at a time: more would only wait in memory
            waiting: deque[Future[Counts | None]] = deque()
            for at in range(0, many, _STEP):
                waiting.append(pool.submit(one, at))
                if len(waiting) == 2:
                    yield from (made for made in [waiting.popleft().result()] if made)
            yield from (made for made in (each.result() for each in waiting) if made)


def _columns(words: Sequence[Words], rows: int) -> Words:
    return np.column_stack(words) if words else np.empty((rows, 0), np.uint64)


def ready() -> None:
    """Load what is compiled: looking up one text is enough."""
    Codebook((), ()).names.codes(texts(["a"]))


def tally(
    source: Source,
    shape: Shape,
    protocol: Sequence[str],
    carried: Sequence[str],
    told: Tallied,
    *,
    most: int,
    threads: int,
) -> Iterator[Counts]:
    """Counts of all rows of the files, in pieces; `told` is complete when the last one was taken."""
    lock = Lock()

    def worker(work: _Work) -> None:
        while (found := source.next()) is not None:
            opened, at, batch = found
            coder = Coder(opened.canonical, work.book, opened.number if shape.ordered else None)
            work.take(coder.rows(batch, at))
            with lock:
                told.read += batch.num_rows
            if work.full:
                return

    with ThreadPoolExecutor(threads) as pool:
        while not source.empty:
            work = _Work(shape, protocol, carried, most, source.rows)
            try:
                for done in [pool.submit(worker, work) for _ in range(threads)]:
                    done.result()
            except BaseException:
                source.stop()  # or the others would go on to the end
                raise
            told.bad += work.bad
            yield from work.counts(threads)
