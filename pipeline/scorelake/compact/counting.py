"""Files of the common shape -> counts per key as codes, and the texts that the codes stand for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from threading import local
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake import duplicates
from scorelake.coded import Counted
from scorelake.compact import cells, decode, pages
from scorelake.compact.cells import BAD, FAILED, PARTITIONS, PASSED, UNGRADED, Packed, Partition
from scorelake.compact.shape import OtherShapeError, Source
from scorelake.compact.vocabulary import Pairs, Vocabulary
from scorelake.footer import BYTE_ARRAY, INT32, INT64, Chunk, DamagedError

Codes: TypeAlias = NDArray[np.uint32]
BLOCK = 1 << 22
"""Rows that a thread collects before they are counted, partition after partition."""
PIECE = 1 << 19
"""Keys that are handed out together."""
_AT_ONCE = 32
"""Row groups read before the memory taken is looked at."""
_MOST_REST, _MOST_ROWS = 1 << 22, 1 << 32
"""What a packed row has bits for, and what a count of rows has."""
_WIDTH = {BYTE_ARRAY: 0, INT32: 4, INT64: 8}


def count(
    sources: Sequence[Source], words: int, *, memory: int, fail_ungraded: bool = False, block: int = BLOCK
) -> Iterator[Counted]:
    """Counts per key of all files. If it raises DamagedError or OtherShapeError, what it gave before is void.

    In: files of the same canonical keys, how many words of 64 attempts the numbers need (0 to ignore them), and how
    many bytes may be taken by what is counted: beyond them it is handed out, and counting begins anew.
    Out: pieces with a row per key: rows, n, bad, c and the sums of duplicates.py, in no particular order.
    """
    blank, kinds, overlap = FAILED if fail_ungraded else UNGRADED, _kinds(sources), False
    first = sources[0].constants
    same = {
        name for name in first if all(name in one.constants and one.constants[name] == first[name] for one in sources)
    }
    same -= {"problem_id"}
    if sum(source.footer.rows for source in sources) >= _MOST_ROWS:
        raise OtherShapeError("too many rows")
    block = min(block, max(1 << 16, memory // (64 * pl.thread_pool_size())))
    job = _Job(kinds, same, words, blank, block)
    with ThreadPoolExecutor(pl.thread_pool_size()) as threads:
        groups = _groups(sources)
        while some := list(islice(groups, _AT_ONCE)):
            list(threads.map(job.read, some))
            if job.size() > memory:
                overlap = True
                yield from job.pieces(threads, overlap)
                job = _Job(kinds, same, words, blank, block)
        yield from job.pieces(threads, overlap)


def _kinds(sources: Sequence[Source]) -> dict[str, int]:
    """How each key is stored, which must be the same in all files: 7 and "7" are one key, but other bytes."""
    kinds: dict[str, int] = {}
    for source in sources:
        here = {name: source.footer.of(column)[0].kind for name, column in source.keys.items() if source.footer.rows}
        here |= dict.fromkeys(source.constants, BYTE_ARRAY)
        if any(kinds.setdefault(name, kind) != kind for name, kind in here.items()):
            raise OtherShapeError("a key that is text in one file and a number in another")
    return dict(sorted(kinds.items()))


def _groups(sources: Sequence[Source]) -> Iterator[tuple[Source, dict[str, Chunk]]]:
    """Row group by row group: the unit that a thread works on."""
    for source in sources:
        groups: list[dict[str, Chunk]] = [{} for _ in range(source.footer.groups)]
        for chunk in source.footer.chunks:
            groups[chunk.group][chunk.name] = chunk
        yield from ((source, group) for group in groups)


class _Job:
    """What the threads share: a vocabulary per key, the pairs that fold keys into one, and the cells."""

    def __init__(self, kinds: dict[str, int], same: set[str], words: int, blank: int, block: int) -> None:
        self.kinds, self.words, self.blank, self.block_size = kinds, words, blank, block
        names = list(kinds)
        self.vocabularies = {name: Vocabulary() for name in names}
        carried = [name for name in names if name.startswith("carry:") and name not in same]
        self.problem = _Fold(["problem_id", *carried])
        self.rest = _Fold([name for name in names if name not in self.problem.names and name not in same])
        self.same = same
        self.partitions = [Partition(words) for _ in range(PARTITIONS)]
        self.blocks: list[_Block] = []
        self.mine = local()

    def read(self, group: tuple[Source, dict[str, Chunk]]) -> None:
        """Decode a row group and put its rows, packed, into this thread's block."""
        source, chunks = group
        rows = chunks[source.passed].rows
        codes = {
            name: np.array([self.vocabularies[name].code(None if text is None else text.encode())], dtype=np.uint32)
            for name, text in source.constants.items()
        }
        with open(source.path, "rb") as file:
            for name, column in source.keys.items():
                codes[name] = _coded(_pages(file.fileno(), chunks[column]), chunks[column], self.vocabularies[name])
            kinds = _verdicts(_pages(file.fileno(), chunks[source.passed]), chunks[source.passed], self.blank)
            numbers = np.zeros(1, dtype=np.uint8)
            if source.number is not None and self.words:
                chunk = chunks[source.number]
                numbers = _numbers(_pages(file.fileno(), chunk), chunk)
        rest, problem = self.rest.join(codes), self.problem.join(codes)
        if rest.max(initial=0) >= _MOST_REST:
            raise OtherShapeError("too many combinations of keys")
        packed = np.empty(rows, dtype=np.uint64)
        cells.pack(rest, problem, numbers, kinds, packed)
        if not hasattr(self.mine, "block"):
            self.mine.block = _Block(self.partitions, self.block_size, len(self.blocks))
            self.blocks.append(self.mine.block)
        self.mine.block.put(packed)

    def size(self) -> int:
        """Bytes taken by what has been counted."""
        cells = sum(part.cells.nbytes + part.slots.nbytes for part in self.partitions)
        aside = sum(rows.nbytes for part in self.partitions for rows in part.aside)
        return cells + aside + sum(vocabulary.size() for vocabulary in self.vocabularies.values())

    def pieces(self, threads: ThreadPoolExecutor, overlap: bool) -> Iterator[Counted]:
        """Every cell as counts, with its key as codes; some partitions at a time, which are given up."""
        list(threads.map(_Block.flush, self.blocks))
        self.blocks.clear()
        texts = {name: _texts(vocabulary, self.kinds[name]) for name, vocabulary in self.vocabularies.items()}
        some: list[Partition] = []
        while self.partitions:
            some.append(self.partitions.pop())
            if not self.partitions or sum(part.used for part in some) >= PIECE:
                yield Counted(self._counts(some), texts, overlap)
                some = []

    def _counts(self, partitions: list[Partition]) -> pl.DataFrame:
        found = np.concatenate([part.cells[: part.used] for part in partitions])
        odd = np.concatenate([np.empty(0, dtype=np.uint64), *(rows for part in partitions for rows in part.aside)])
        columns = _from_bits(found, odd, self.words) if self.words else _from_counts(found)
        keys = found[:, 0]
        codes = self.rest.parts((keys >> np.uint64(32)).astype(np.uint32))
        codes |= self.problem.parts(keys.astype(np.uint32))
        codes |= {name: np.full(keys.size, len(self.vocabularies[name]) - 1, np.uint32) for name in self.same}
        return pl.DataFrame({name: _nullable(codes[name]) for name in self.vocabularies} | columns)


class _Fold:
    """Several codes -> one, pair after pair, and back."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.pairs = [Pairs() for _ in names[1:]]

    def join(self, codes: dict[str, Codes]) -> Codes:
        if not self.names:
            return np.zeros(1, dtype=np.uint32)
        out = codes[self.names[0]]
        for name, pairs in zip(self.names[1:], self.pairs, strict=True):
            out = pairs.join(out, codes[name])
        return out

    def parts(self, joined: Codes) -> dict[str, Codes]:
        out: dict[str, Codes] = {}
        if not self.names:
            return out
        for name, pairs in zip(reversed(self.names[1:]), reversed(self.pairs), strict=True):
            left, right = pairs.both()
            out[name], joined = right[joined], left[joined]
        return {self.names[0]: joined, **out}


class _Block:
    """Packed rows of one thread, counted whenever they are many."""

    def __init__(self, partitions: list[Partition], size: int, turn: int) -> None:
        self.partitions, self.size, self.filled = partitions, size, 0
        self.rows: Packed = np.empty(size, dtype=np.uint64)
        self.spread: Packed = np.empty(size, dtype=np.uint64)
        self.edges = np.empty(PARTITIONS + 1, dtype=np.int64)
        self.first = turn * PARTITIONS // 2  # threads begin at different partitions, not to wait for each other

    def put(self, packed: Packed) -> None:
        while packed.size:
            room = min(self.size - self.filled, packed.size)
            self.rows[self.filled : self.filled + room] = packed[:room]
            self.filled += room
            packed = packed[room:]
            if self.filled == self.size:
                self.flush()

    def flush(self) -> None:
        cells.spread(self.rows[: self.filled], self.spread, self.edges)
        for i in range(PARTITIONS):
            p = (self.first + i) % PARTITIONS
            low, high = self.edges[p], self.edges[p + 1]
            if low < high:
                self.partitions[p].add(self.spread[low:high])
        self.filled = 0


def _from_counts(found: Packed) -> dict[str, pl.Series]:
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    failed, passed, ungraded, bad = found[:, 1] & low, found[:, 1] >> half, found[:, 2] & low, found[:, 2] >> half
    told = {"rows": failed + passed + ungraded + bad, "n": failed + passed, "bad": bad, "c": passed}
    return {name: pl.Series(values.astype(np.int64)) for name, values in told.items()}


def _from_bits(found: Packed, odd: Packed, words: int) -> dict[str, pl.Series]:
    """Counts and sums from two bits per attempt, and the rows that were set aside."""
    rows, n, c, bad = (np.zeros(found.shape[0], dtype=np.int64) for _ in range(4))
    sums = np.empty((3 * words, found.shape[0]), dtype=np.uint64)
    cells.read_bits(found, words, rows, n, c, sums)
    if odd.size:
        order = np.argsort(found[:, 0])
        at = order[np.searchsorted(found[:, 0], odd >> np.uint64(10), sorter=order)]
        kind, number = odd & np.uint64(3), odd >> np.uint64(2) & np.uint64(255)
        word, power = (number >> np.uint64(6)).astype(np.int64), np.uint64(1) << (number & np.uint64(63))
        for flag, counted in ((kind <= BAD, rows), (kind <= PASSED, n), (kind == PASSED, c), (kind == BAD, bad)):
            np.add.at(counted, at[flag], 1)
        for i, flag in enumerate((kind != BAD, kind <= PASSED, kind == PASSED)):
            np.add.at(sums, (i * words + word[flag], at[flag]), power[flag])
    told = {"rows": rows, "n": n, "bad": bad, "c": c}
    named = zip(duplicates.sums(words), sums, strict=True)
    return {name: pl.Series(values) for name, values in (*told.items(), *named)}


def _texts(vocabulary: Vocabulary, kind: int) -> pl.Series:
    """What every code stands for, as text."""
    if kind == BYTE_ARRAY:
        return pl.Series(vocabulary.texts())
    numbers = (
        vocabulary.words().astype(np.uint32).view(np.int32) if kind == INT32 else vocabulary.words().view(np.int64)
    )
    return pl.Series([None]).cast(pl.String).append(pl.Series(numbers).cast(pl.String))


def _nullable(codes: Codes) -> pl.Series:
    """Code 0 is null."""
    column = pl.Series(codes)
    return column if codes.size == 0 or codes.min() else column.set(column == 0, None)


# --- one column of one row group ------------------------------------------------------------------------------


def _pages(handle: int, chunk: Chunk) -> pages.Pages:
    if chunk.start + chunk.size > os.fstat(handle).st_size:
        raise DamagedError(f"column {chunk.name}, row group {chunk.group}: the file ends before it")
    return pages.read(os.pread(handle, chunk.size, chunk.start), chunk)


def _coded(column: pages.Pages, chunk: Chunk, vocabulary: Vocabulary) -> Codes:
    """The code of every row."""
    out, remap, low = np.empty(chunk.rows, dtype=np.uint32), np.empty(0, dtype=np.uint32), 0
    width, present = _WIDTH[chunk.kind], column.present()
    for page in column.table:
        values = int(page[decode.VALUES])
        if page[decode.TYPE] == decode.DICTIONARY:
            remap = np.empty(values, dtype=np.uint32)
            look = partial(decode.entries, column.words, page, width, remap)
        else:
            look = partial(decode.codes, column.words, page, chunk.optional, width, remap, present, out, low)
            low += values
        went = look(*vocabulary.known(), False)
        if went == decode.NEWS:
            with vocabulary.lock:
                room = vocabulary.room(values, int(page[decode.SIZE]) // 8 + 2 * values)
                went = look(room, 0, True)
        _check(went, chunk)
    return out


def _numbers(column: pages.Pages, chunk: Chunk) -> NDArray[np.uint8]:
    """Every row's number, 0 to 255."""
    out, values, low = np.empty(chunk.rows, dtype=np.uint8), np.empty(0, dtype=np.uint8), 0
    width, present = _WIDTH[chunk.kind], column.present()
    for page in column.table:
        many = int(page[decode.VALUES])
        if page[decode.TYPE] == decode.DICTIONARY:
            if many * width > page[decode.SIZE]:
                raise DamagedError(f"column {chunk.name}, row group {chunk.group}: its dictionary is cut short")
            values = np.empty(many, dtype=np.uint8)
            _check(decode.small(column.words, page[decode.START], width, many, values, 0), chunk)
            continue
        _check(decode.numbers(column.words, page, chunk.optional, width, values, present, out, low), chunk)
        low += many
    return out


def _verdicts(column: pages.Pages, chunk: Chunk, blank: int) -> NDArray[np.uint8]:
    """Every row's kind of outcome."""
    out, low, present = np.empty(chunk.rows, dtype=np.uint8), 0, column.present()
    for page in column.table:
        _check(decode.verdicts(column.words, page, chunk.optional, blank, present, out, low), chunk)
        low += int(page[decode.VALUES])
    return out


def _check(went: int, chunk: Chunk) -> None:
    where = f"column {chunk.name}, row group {chunk.group}"
    if went == decode.UNKNOWN:
        raise OtherShapeError(f"{where}: an encoding that is not read here")
    if went != decode.FINE:
        raise DamagedError(f"{where}: a page makes no sense")
