"""Files of the common shape -> counts per key as codes, and the texts that the codes stand for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from threading import Lock, local
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake import duplicates
from scorelake.coded import Counted
from scorelake.compact import cells, decode, pages
from scorelake.compact.cells import BAD, FAILED, PASSED, UNGRADED, Hand, Kept, Packed, Partition, Split
from scorelake.compact.pages import Scratch
from scorelake.compact.shape import OtherShapeError, Source
from scorelake.compact.spelling import Spelling
from scorelake.compact.vocabulary import Pairs, Vocabulary
from scorelake.footer import BYTE_ARRAY, INT32, INT64, Chunk, DamagedError

Codes: TypeAlias = NDArray[np.uint32]
LEAST_ROOM, MOST_ROOM = 1 << 20, 1 << 26
"""Rows that a thread holds before they are counted, partition by partition."""
PIECE = 1 << 18
"""Keys that are handed out together."""
_AT_ONCE = 32
"""Reads before the memory taken is looked at."""
_TOGETHER, _FILES = 1 << 20, 64
"""Rows, and row groups, up to which those are read together: every step of a read costs a little of its own, and two
threads wait for each other between steps. Each may be of another file, all of which are open then."""
_RUN, _GLANCE, _CELLS = 4, 4096, 1 << 20
"""Rows of one key in sequence that make it worth looking for runs, rows looked at to tell, cells put in at once."""
_MOST_REST, _MOST_ROWS = 1 << 22, 1 << 32
"""What a packed row has bits for, and what a count of rows has."""
_PARTITION, _MOST_PARTS, _VISITS = 1 << 18, 11, 4
"""Rows that make a partition worth having, the bits that tell the most partitions there can be apart, and how often a
partition is visited by a thread: its cells are in the processor's cache for as many rows as are held for it."""
_MANY, _SPIN = 16, 0x9E3779B1
"""Problems per partition from which on they are parted by problem alone, so that a name is in one piece only; else
what the rest is multiplied with to part keys."""
_NARROW = 1 << 11
"""Codes below which a problem, without what its partition tells, and the rest fit into a row of 32 bits."""
_MINE = local()
_KEPT = 16
"""The part of the memory that may be taken to know of which keys cells are kept."""
_NEWS = 1 << 16
"""Values without a code that are put down before the lock is taken to learn them."""
_WIDTH = {BYTE_ARRAY: 0, INT32: 4, INT64: 8}


def count(
    sources: Sequence[Source],
    words: int,
    *,
    memory: int,
    threads: int,
    fail_ungraded: bool = False,
    room: int | None = None,
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
    rows = sum(source.footer.rows for source in sources)
    if rows >= _MOST_ROWS:
        raise OtherShapeError("too many rows")
    room = room or min(max(rows // _VISITS, LEAST_ROOM), MOST_ROOM, max(1 << 16, memory // (32 * threads)))
    parts = min(max(rows // _PARTITION, 1).bit_length(), _MOST_PARTS)
    full = True
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        side_by_side = map if pool is None else pool.map
        units = _units(sources)
        while full:
            job = _Job(kinds, same, words, blank, room, parts, memory)
            full = _read_until_full(job, units, memory, pool, threads)
            overlap |= full
            list(side_by_side(_Hands.flush, job.hands))
            yield from job.pieces(overlap, pool)


def _read_until_full(
    job: _Job, units: Iterator[_Unit], memory: int, pool: ThreadPoolExecutor | None, threads: int
) -> bool:
    """Read row groups, no thread waiting for another, until too much memory is taken; False if all are read."""
    waiting: deque[Future[None]] = deque()
    full = False
    for i, unit in enumerate(units, 1):
        if pool is None:
            job.read(unit)
        else:
            waiting.append(pool.submit(job.read, unit))
        if len(waiting) > 2 * threads:
            waiting.popleft().result()
        full = i % _AT_ONCE == 0 and job.size() > memory
        if full:
            break
    for each in waiting:
        each.result()
    return full


def _kinds(sources: Sequence[Source]) -> dict[str, int]:
    """How each key is stored, which must be the same in all files: 7 and "7" are one key, but other bytes."""
    kinds: dict[str, int] = {}
    for source in sources:
        here = {name: source.footer.of(column)[0].kind for name, column in source.keys.items() if source.footer.rows}
        here |= dict.fromkeys(source.constants, BYTE_ARRAY)
        if any(kinds.setdefault(name, kind) != kind for name, kind in here.items()):
            raise OtherShapeError("a key that is text in one file and a number in another")
    return dict(sorted(kinds.items()))


@dataclass(frozen=True)
class _Unit:
    """Row groups that a thread reads together: of one file, or of neighbours that are alike."""

    source: Source
    """One of the files."""
    paths: list[str]
    """The file of each row group."""
    chunks: dict[str, list[Chunk]]
    """Of each column."""


def _units(sources: Sequence[Source]) -> Iterator[_Unit]:
    """All row groups, as many together as are large enough."""
    some: list[tuple[Source, tuple[Chunk, ...]]] = []
    before: Any = None
    for source in sources:
        used = [*source.keys.values(), source.passed, *([source.number] if source.number else [])]
        for chunks in zip(*(source.footer.of(name) for name in used), strict=True):
            stored = [(chunk.kind, chunk.codec, chunk.optional) for chunk in chunks]
            like = source.keys, source.constants, source.passed, source.number, stored
            full = len(some) == _FILES or sum(c[0].rows for _, c in some) + chunks[0].rows > _TOGETHER
            if some and (full or like != before):
                yield _unit(some)
                some = []
            before = like
            some.append((source, chunks))
    if some:
        yield _unit(some)


def _unit(some: list[tuple[Source, tuple[Chunk, ...]]]) -> _Unit:
    columns = [list(column) for column in zip(*(chunks for _, chunks in some), strict=True)]
    return _Unit(some[0][0], [source.path for source, _ in some], {column[0].name: column for column in columns})


class _Job:
    """What the threads share: a vocabulary per key, the pairs that fold keys into one, and the cells."""

    def __init__(
        self, kinds: dict[str, int], same: set[str], words: int, blank: int, room: int, parts: int, memory: int
    ) -> None:
        self.words, self.blank, self.room = words, blank, room
        names = list(kinds)
        self.vocabularies = {name: Vocabulary() for name in names}
        self.spellings = {name: Spelling(self.vocabularies[name], kind) for name, kind in kinds.items()}
        carried = [name for name in names if name.startswith("carry:") and name not in same]
        self.problem = _Fold(["problem_id", *carried])
        self.rest = _Fold([name for name in names if name not in self.problem.names and name not in same])
        self.same = same
        self.partitions = [Partition(words) for _ in range(1 << parts)]
        self.split = Split(np.uint64(parts), np.uint64(_SPIN))
        self.kept = Kept(memory // _KEPT)
        self.lock, self.hands = Lock(), list[_Hands]()
        self.mine = local()

    def read(self, unit: _Unit) -> None:
        """Decode row groups and put their rows, packed, into this thread's hands."""
        source, chunks = unit.source, unit.chunks
        codes = {
            name: np.array([self.vocabularies[name].code(None if text is None else text.encode())], dtype=np.uint32)
            for name, text in source.constants.items()
        }
        scratch = _scratch()
        with ExitStack() as files:
            opened = {path: files.enter_context(open(path, "rb")) for path in dict.fromkeys(unit.paths)}
            handles = [opened[path].fileno() for path in unit.paths]
            for name, column in source.keys.items():
                coded = _coded(handles, chunks[column], self.vocabularies[name], scratch, name)
                same = coded.size and coded[0] == coded[-1] and (coded == coded[0]).all()
                codes[name] = coded[:1] if same else coded
            kinds = _verdicts(handles, chunks[source.passed], self.blank, scratch)
            numbers = np.zeros(1, dtype=np.uint8)
            if source.number is not None and self.words:
                numbers = _numbers(handles, chunks[source.number], duplicates.WORD * self.words, scratch)
        rest, problem = self.rest.join(codes), self.problem.join(codes)
        if rest.max(initial=0) >= _MOST_REST:
            raise OtherShapeError("too many combinations of keys")
        runs = _in_runs(rest, problem)
        # where rows are in order, the rest of the file has other problems
        ahead = -(-source.footer.rows // max(1, kinds.size)) if runs else 1
        self._deal_in(int(rest.max(initial=0)), int(problem.max(initial=0)), ahead)
        if not (runs and self._put_runs(rest, problem, numbers, kinds)):
            self.mine.hands.put(rest, problem, numbers, kinds)

    def _deal_in(self, rest: int, problem: int, ahead: int) -> None:
        """Hands for this thread, wide enough for such codes. The first thread sees by what to part keys."""
        hands: _Hands | None = getattr(self.mine, "hands", None)
        wide = rest >= _NARROW or problem >> int(self.split.bits) >= _NARROW
        if hands is not None and (hands.wide or not wide):
            return
        if hands is not None:
            hands.flush()
        with self.lock:
            if not self.hands and ahead * len(self.vocabularies["problem_id"]) > _MANY * len(self.partitions):
                self.split = Split(self.split.bits, np.uint64(0))
            self.mine.hands = _Hands(self.partitions, self.room, self.split, wide, len(self.hands))
            self.hands.append(self.mine.hands)

    def _put_runs(self, rest: Codes, problem: Codes, numbers: NDArray[np.uint8], kinds: NDArray[np.uint8]) -> bool:
        """Rows in runs of equal keys; False if the runs prove too short, or too much is odd."""
        width, most = 1 + (2 * self.words or 2), kinds.size // _RUN + 1
        found = _scratch().array("runs", most * width, np.uint64).reshape(most, width)
        aside = _scratch().array("aside", most, np.uint64)
        many, odd = cells.runs(rest, problem, numbers, kinds, self.words, found, aside)
        if many < 0:
            return False
        found, aside = found[:many], aside[:odd]
        self.mine.hands.put_cells(*self.kept.sift(found, aside))
        self.mine.hands.put_packed(aside)
        return True

    def size(self) -> int:
        """Bytes taken by what has been counted."""
        cells: int = sum(part.cells.nbytes + part.slots.nbytes for part in self.partitions)
        cells += self.kept.bits.nbytes + self.kept.many * self.partitions[0].cells[0].nbytes
        aside = sum(rows.nbytes for part in self.partitions for rows in part.aside)
        return cells + aside + sum(vocabulary.size() for vocabulary in self.vocabularies.values())

    def pieces(self, overlap: bool, pool: ThreadPoolExecutor | None) -> Iterator[Counted]:
        """Every cell as counts, with its key as codes; some partitions at a time, which are given up."""
        self.hands.clear()
        some: list[list[int]] = [[]]
        many = 0
        for p, partition in enumerate(self.partitions):
            if many >= PIECE:
                some.append([])
                many = 0
            some[-1].append(p)
            many += partition.many()
        waiting: deque[Future[Counted]] = deque()
        for numbers in some:
            if pool is None:
                yield self._counted(numbers, overlap)
                continue
            waiting.append(pool.submit(self._counted, numbers, overlap))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield from (each.result() for each in waiting)

    def _counted(self, numbers: list[int], overlap: bool) -> Counted:
        """Some partitions as counts, with no more of the texts than these use."""
        partitions = [self.partitions[p].whole(p, self.split, self.kept) for p in numbers]
        found, odd = (np.concatenate(each) for each in zip(*partitions, strict=True))
        columns = _from_bits(found, odd, self.words) if self.words else _from_counts(found)
        keys = found[:, 0]
        codes = self.rest.parts((keys >> np.uint64(32)).astype(np.uint32))
        codes |= self.problem.parts(keys.astype(np.uint32))
        codes |= {name: np.full(keys.size, len(self.vocabularies[name]) - 1, np.uint32) for name in self.same}
        texts: dict[str, pl.Series] = {}
        for name, spelling in self.spellings.items():
            codes[name], texts[name] = spelling.only(codes[name])
        return Counted(pl.DataFrame({name: _nullable(codes[name]) for name in texts} | columns), texts, overlap)


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


def _scratch() -> Scratch:
    """This thread's own."""
    if not hasattr(_MINE, "scratch"):
        _MINE.scratch = Scratch()
    scratch: Scratch = _MINE.scratch
    return scratch


class _Hands:
    """Rows that one thread holds for the partitions, each given out when it is full."""

    def __init__(self, partitions: list[Partition], size: int, split: Split, wide: bool, turn: int) -> None:
        self.partitions, self.wide, self.turn = partitions, wide, turn
        self.by = split, np.uint64(32 if wide else _NARROW.bit_length() - 1)
        shape = len(partitions), max(1, size // len(partitions) // (2 if wide else 1))
        self.rows: Hand = np.empty(shape, dtype=np.uint64) if wide else np.empty(shape, dtype=np.uint32)
        self.held = np.zeros(len(partitions), dtype=np.int64)
        self.cells: list[Packed] = []
        self.kept: list[Packed] = []

    def put(self, rest: Codes, problem: Codes, numbers: NDArray[np.uint8], kinds: NDArray[np.uint8]) -> None:
        at = 0
        while at < kinds.size:
            at, full = cells.deal(rest, problem, numbers, kinds, at, self.rows, self.held, *self.by)
            self._give(full)

    def put_packed(self, rows: Packed) -> None:
        at = 0
        while at < rows.size:
            at, full = cells.deal_packed(rows, at, self.rows, self.held, *self.by)
            self._give(full)

    def put_cells(self, kept: Packed, rest: Packed) -> None:
        """Cells, likewise given out when they are many: as they are, or to be looked up."""
        self.kept.append(kept)
        self.cells.append(rest)
        if sum(map(len, self.kept)) >= _CELLS:
            self._give_kept()
        if sum(map(len, self.cells)) >= _CELLS:
            self._give_cells()

    def flush(self) -> None:
        """Give out what is left; nothing comes after, and the room is given up."""
        for p in self._in_turn(self.held):
            self._give(p)
        self._give_kept()
        self._give_cells()
        self.rows = np.empty((0, 0), dtype=np.uint32)

    def _give(self, p: int) -> None:
        if p >= 0:
            self.partitions[p].add(self.rows[p, : self.held[p]], self.by[1])
            self.held[p] = 0

    def _give_kept(self) -> None:
        for p, found in self._apart(self.kept):
            self.partitions[p].kept.append(found)

    def _give_cells(self) -> None:
        for p, found in self._apart(self.cells):
            cells.apart(found[:, 0], self.by[0])
            self.partitions[p].absorb(found)

    def _apart(self, some: list[Packed]) -> Iterator[tuple[int, Packed]]:
        """Cells by their partitions; none remain."""
        if some:
            found, ends = cells.by_partition(np.concatenate(some), self.by[0])
            some.clear()
            begins = np.concatenate([[0], ends[:-1]])
            for p in self._in_turn(ends - begins):
                yield p, found[begins[p] : ends[p]]

    def _in_turn(self, many: NDArray[np.int64]) -> list[int]:
        """The partitions that get something. Every other thread begins at the end, not to wait for the others."""
        some: list[int] = np.flatnonzero(many).tolist()
        return some[::-1] if self.turn % 2 else some


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


def _in_runs(*keys: Codes) -> bool:
    """Whether equal keys follow each other, to judge by the first rows."""
    changes = sum(int(np.count_nonzero(np.diff(key[:_GLANCE]))) for key in keys)
    return changes * _RUN < max(min(key.size, _GLANCE) for key in keys)


def _nullable(codes: Codes) -> pl.Series:
    """Code 0 is null."""
    column = pl.Series(codes)
    return column if codes.size == 0 or codes.min() else column.set(column == 0, None)


# --- one column of some row groups ------------------------------------------------------------------------------


def _coded(handles: list[int], chunks: list[Chunk], vocabulary: Vocabulary, scratch: Scratch, name: str) -> Codes:
    """The code of every row."""
    column, chunk = pages.read(handles, chunks, scratch), chunks[0]
    out = scratch.array(name, _rows(chunks), np.uint32)
    remap = scratch.array("remap", column.entries, np.uint32)
    shape = chunk.optional, _WIDTH[chunk.kind], remap, column.present, out
    news = decode.News(scratch.array("news", 3 * _NEWS, np.int64).reshape(_NEWS, 3), np.zeros(1, dtype=np.int64))
    at = low = 0
    while at < len(column.table):
        went, at, low = decode.codes(column.words, column.table, at, *shape, low, news, *vocabulary.known(), False)
        if went == decode.NEWS:
            page = column.table[at]
            with vocabulary.lock:
                values = int(page[decode.VALUES])
                room = vocabulary.room(values, int(page[decode.SIZE]) // 8 + 2 * values)
                some = column.table[: at + 1]
                went, at, low = decode.codes(column.words, some, at, *shape, low, news, room, 0, True)
        _check(went, chunks)
    if many := int(news.many[0]):
        size = int(news.values[:many, 2].sum()) // 8 + 2 * many
        with vocabulary.lock:
            decode.learn(column.words, news, vocabulary.room(many, size), out)
    return out


def _numbers(handles: list[int], chunks: list[Chunk], most: int, scratch: Scratch) -> NDArray[np.uint8]:
    """Every row's number, all below what the footers tell; a cell has no room for others."""
    column, out = pages.read(handles, chunks, scratch), scratch.array("numbers", _rows(chunks), np.uint8)
    values = scratch.array("values", column.entries, np.uint8)
    shape = chunks[0].optional, _WIDTH[chunks[0].kind]
    _check(decode.numbers(column.words, column.table, *shape, values, column.present, out), chunks)
    _check(decode.FINE if out.max(initial=0) < most else decode.DAMAGED, chunks)
    return out


def _verdicts(handles: list[int], chunks: list[Chunk], blank: int, scratch: Scratch) -> NDArray[np.uint8]:
    """Every row's kind of outcome."""
    column, out = pages.read(handles, chunks, scratch), scratch.array("verdicts", _rows(chunks), np.uint8)
    _check(decode.verdicts(column.words, column.table, chunks[0].optional, blank, column.present, out), chunks)
    return out


def _rows(chunks: list[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def _check(went: int, chunks: list[Chunk]) -> None:
    if went == decode.UNKNOWN:
        raise OtherShapeError(f"{pages.told(chunks)}: an encoding that is not read here")
    if went != decode.FINE:
        raise DamagedError(f"{pages.told(chunks)}: a page makes no sense")
