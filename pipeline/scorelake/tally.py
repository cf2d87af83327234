"""The inner loop of stage 2: attempts -> exact counts per key, without grouping by strings.

Strings are what makes a GROUP BY slow, so rows are counted by a 54-bit hash of their key and the strings are
looked at once per key. A row becomes one integer: its hash, then the number of its attempt in eight bits, then
the kind of its outcome in two. Sorting such integers in blocks puts the rows of a key together, to be counted.
Where a key's rows follow each other in the lake they lie together already and nothing is sorted.

Hashes can collide, and a count must not be a guess. Every row also adds a second, independent hash of its key
to one running sum; at the end the sum is made again from the keys found and their counts. Two keys counted as
one make the sums differ, and then the shard is counted once more by its strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake import duplicates
from scorelake.footer import BYTE_ARRAY, Chunk, Footer

Hashes: TypeAlias = NDArray[np.uint64]
Counts: TypeAlias = NDArray[np.integer[Any]]
Part: TypeAlias = tuple[Hashes, Counts]
"""Different hashes and, for each, the number of rows of every kind, then the sums that prove attempts different."""
Rows: TypeAlias = NDArray[np.intp]
Hasher: TypeAlias = Callable[[Sequence[str], int], pl.Expr]

FAILED, PASSED, UNGRADED, BAD = range(4)
"""Kinds of outcome, in the two lowest bits of a packed row."""
KIND = np.uint64(3)
LOW = np.uint64(1023)
"""The bits of a packed row that are not its key's hash: attempt and kind."""
BATCH = 1 << 20
"""The most rows handled at once while their strings are at hand; usually a batch is what Polars hands over."""
PIECE = 1 << 18
"""Rows or partial counts worked on at once where the order allows it."""
BLOCK = 1 << 24
"""Rows sorted together; the larger, the fewer partial runs there are to add up."""
TOGETHER = 1 << 22
"""Rows of small files that are read in one query."""
LEVELS = 4
"""Tables of known hashes, each half of the one before."""
FIRST, SECOND = 1, 1001
"""Seeds of the two hashes."""
_LANE = np.array([0, 1, 1 << 21, 1 << 42], dtype=np.int64)
_LANE_FULL = (1 << 21) - 1
_ROW, _PROOF = "_row", "_proof"


def tally(
    frames: Sequence[pl.LazyFrame],
    heights: Sequence[int] | None = None,
    words: int = 0,
    *,
    batch: int = BATCH,
    block: int = BLOCK,
    hasher: Hasher | None = None,
) -> pl.DataFrame:
    """Counts per key of all frames; with rewards, per key and reward.

    In: frames of canonical columns (keys; `carry:` columns; `_bad`, `_graded`, and `_passed`, `_score` or both);
    if known, the number of rows of each; and how many words of 64 attempts `_number` needs, if it is there.
    Out: keys, `_score` if there is one, rows, n, bad, `c` if there are verdicts, and the smallest and largest
    value of every carried column as `min:` and `max:`; with words, the sums of duplicates.py. In the order of the
    hash, whatever the batch size.
    """
    if not frames:
        return pl.DataFrame()
    attempts = pl.concat(frames, how="vertical_relaxed")
    shape = Shape.of(attempts.collect_schema(), words)
    if not shape.hashable:
        return by_strings(attempts, shape)
    together = [pl.concat(some, how="vertical_relaxed") for some in _together(frames, heights)]
    counted = _by_hash(together, attempts, shape, batch, block, hasher or _hash)
    return by_strings(attempts, shape) if counted is None else with_ends(counted, shape)


@dataclass(frozen=True)
class Shape:
    """Which columns there are. `identity` is what is counted apart: carried values are folded afterwards."""

    keys: tuple[str, ...]
    carried: tuple[str, ...]
    verdicts: bool
    hashable: bool
    words: int

    @staticmethod
    def of(schema: pl.Schema, words: int = 0) -> Shape:
        keys = [name for name in schema if not name.startswith("_") and ":" not in name]
        keys += [name for name in schema if name == "_score"]
        carried = [name for name in schema if name.startswith("carry:")]
        hashable = not any(schema[name].is_nested() or schema[name].is_object() for name in (*keys, *carried))
        return Shape(tuple(keys), tuple(carried), "_passed" in schema, hashable, words)

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.keys, *self.carried)

    @property
    def sums(self) -> tuple[str, ...]:
        return ("rows", "n", "bad", *(["c"] if self.verdicts else []), *duplicates.sums(self.words))


def by_strings(attempts: pl.LazyFrame, shape: Shape) -> pl.DataFrame:
    """The plain way, which is the specification of the fast one and its refuge when two hashes collide."""
    verdicts = [pl.col("_passed").sum().cast(pl.Int64).alias("c")] if shape.verdicts else []
    return (
        attempts.group_by(shape.keys)
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("_graded").sum().cast(pl.Int64).alias("n"),
            pl.col("_bad").sum().cast(pl.Int64).alias("bad"),
            *verdicts,
            *duplicates.powers(shape.words),
            *_ends(shape, "carry:", "carry:"),
        )
        .collect(engine="streaming")
    )


def _ends(shape: Shape, low: str, high: str) -> list[pl.Expr]:
    names = [name.removeprefix("carry:") for name in shape.carried]
    return [pl.col(low + name).min().alias("min:" + name) for name in names] + [
        pl.col(high + name).max().alias("max:" + name) for name in names
    ]


def with_ends(counted: pl.DataFrame, shape: Shape) -> pl.DataFrame:
    """From one row per key and carried values to one row per key with the smallest and the largest."""
    if not shape.carried:
        return counted
    sums = [pl.col(name).sum() for name in shape.sums]
    return counted.group_by(shape.keys, maintain_order=True).agg(*sums, *_ends(shape, "carry:", "carry:"))


# --- by hash --------------------------------------------------------------------------------------------------


def _hash(columns: Sequence[str], seed: int) -> pl.Expr:
    """One hash of several columns: each with a seed of its own, so that equal texts in two do not cancel."""
    return reduce(add, (pl.col(name).hash(seed + i) for i, name in enumerate(columns)))


def _packed(shape: Shape, hasher: Hasher) -> pl.Expr:
    """A row as one integer: 54 bits of its key's hash, its attempt's number, and the kind of its outcome."""
    odd = pl.col("_bad") | pl.col("_passed") if shape.verdicts else pl.col("_bad")
    kind = (~pl.col("_graded")).cast(pl.UInt64) * 2 + odd.cast(pl.UInt64)
    if shape.words:
        kind = kind + pl.col("_number").cast(pl.UInt64) * 4
    return (hasher(shape.identity, FIRST) * 1024 + kind).alias(_ROW)


def _together(frames: Sequence[pl.LazyFrame], heights: Sequence[int] | None) -> Iterator[list[pl.LazyFrame]]:
    """Small files are read together, large ones each alone: Polars reads ahead in all files of a query."""
    some: list[pl.LazyFrame] = []
    total = 0
    for frame, height in zip(frames, heights or [BLOCK] * len(frames), strict=True):
        if some and total + height > TOGETHER:
            yield some
            some, total = [], 0
        some.append(frame)
        total += height
    yield some


def _by_hash(
    together: list[pl.LazyFrame], attempts: pl.LazyFrame, shape: Shape, batch: int, block: int, hasher: Hasher
) -> pl.DataFrame | None:
    """Counts by hash with the keys put back; None if the proof shows that two keys share a hash."""
    columns = [*shape.identity, _packed(shape, hasher), hasher(shape.identity, SECOND).alias(_PROOF)]
    keys, proof = _Keys(shape.identity), 0
    with ThreadPoolExecutor(2) as worker:
        runs = _Runs(block, worker, shape.words)
        for part in _batches([frame.select(columns) for frame in together], batch):
            packed = part[_ROW].to_numpy()
            proof += int(part[_PROOF].to_numpy().sum(dtype=np.uint64))
            starts = _starts(packed & ~LOW)
            if starts.size * 4 < packed.size:
                runs.add(_count_runs(packed, starts, shape.words))
                keys.learn(part, packed, starts)
            else:
                runs.put(packed)
                keys.learn(part, packed)
        hashes, counts = runs.total()
    if not hashes.size:
        counts = np.zeros((0, BAD + 1 + len(duplicates.sums(shape.words))), dtype=np.int64)
    found = keys.found(hashes, attempts.select(columns))
    found = found.select(
        *shape.identity,
        pl.Series("rows", counts[:, : BAD + 1].sum(axis=1, dtype=np.int64)),
        pl.Series("n", counts[:, :UNGRADED].sum(axis=1, dtype=np.int64)),
        pl.Series("bad", counts[:, BAD].astype(np.int64)),
        *([pl.Series("c", counts[:, PASSED].astype(np.int64))] if shape.verdicts else []),
        *(
            pl.Series(name, counts[:, BAD + 1 + i].astype(np.int64).view(np.uint64))
            for i, name in enumerate(duplicates.sums(shape.words))
        ),
    )
    again = found.select((hasher(shape.identity, SECOND) * pl.col("rows").cast(pl.UInt64)).sum()).item()
    return found if again == proof % (1 << 64) else None


def _batches(frames: list[pl.LazyFrame], most: int) -> Iterator[pl.DataFrame]:
    """Rows as they are read, in any order and in the pieces they come in: one piece, one buffer per column."""
    for frame in frames:
        for part in frame.collect_batches(maintain_order=False, engine="streaming"):
            yield from part.iter_slices(most)


def _starts(values: Hashes) -> Rows:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])[: values.size])


def _count_runs(packed: Hashes, starts: Rows, words: int) -> Part:
    """Rows that lie together by key already: per run its hash, the number of rows of each kind, and the sums."""
    lanes = np.add.reduceat(_LANE.take((packed & KIND).view(np.int64)), starts)  # three counts in one integer
    counts = np.empty((starts.size, 4), dtype=np.int64)
    for kind in (PASSED, UNGRADED, BAD):
        counts[:, kind] = lanes >> (21 * (kind - 1)) & _LANE_FULL
    counts[:, FAILED] = np.diff(starts, append=packed.size) - counts[:, PASSED:].sum(axis=1)
    return packed[starts] & ~LOW, _with_sums(counts, packed, starts, words)


def _with_sums(counts: Counts, packed: Hashes, starts: Rows, words: int) -> Counts:
    """Beside the counts, the sums of powers of seen, graded and passed attempts; they may wrap, and stay additive."""
    if not words:
        return counts
    kind, number = packed & KIND, packed >> np.uint64(2) & np.uint64(255)
    power = np.left_shift(np.uint64(1), number & np.uint64(63))
    sums = [
        np.add.reduceat(power * (flag if words == 1 else flag & (number >> np.uint64(6) == word)), starts)
        for flag in (kind != BAD, kind <= PASSED, kind == PASSED)
        for word in range(words)
    ]
    return np.concatenate([counts.astype(np.int64), np.stack(sums, axis=1).view(np.int64)], axis=1)


def _count_block(block: Hashes, words: int) -> Part:
    """Rows in any order, sorted in place: per key its hash, the number of rows of each kind, and the sums."""
    block.sort()
    cuts = [0, *(_next_key(block, at) for at in range(PIECE, block.size, PIECE)), block.size]
    parts = [_count_sorted(block[low:high], words) for low, high in pairwise(cuts) if high > low]
    return _joined(parts)


def _next_key(block: Hashes, at: int) -> int:
    """The first row from here on that belongs to another key than the row before."""
    return int(np.searchsorted(block, block[at - 1] | LOW, side="right"))


def _count_sorted(packed: Hashes, words: int) -> Part:
    hashes = packed & ~LOW
    first = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    starts = np.flatnonzero(first)
    cell = (np.cumsum(first) - 1) * 4 + (packed & KIND).view(np.int64)
    counts = np.bincount(cell, minlength=4 * starts.size).reshape(-1, 4)
    return hashes[starts], _with_sums(counts, packed, starts, words)


class _Runs:
    """Partial counts by hash: from rows put into blocks and sorted aside, or from runs found in place."""

    def __init__(self, block: int, worker: ThreadPoolExecutor, words: int) -> None:
        self.words = words
        self.spare = [np.empty(block, dtype=np.uint64) for _ in range(2)]  # one is filled while one is sorted
        self.filled = 0
        self.worker = worker
        self.sorting: Future[Part] | None = None
        self.runs: list[Part] = []
        self.parts: list[Part] = []

    def put(self, packed: Hashes) -> None:
        """Add rows to the block, and send it off whenever it is full."""
        while packed.size:
            block = self.spare[0]
            room = min(block.size - self.filled, packed.size)
            block[self.filled : self.filled + room] = packed[:room]
            self.filled += room
            packed = packed[room:]
            if self.filled == block.size:
                self._receive()
                self.sorting = self.worker.submit(_count_block, block, self.words)
                self.spare.reverse()
                self.filled = 0

    def add(self, runs: Part) -> None:
        """Take runs found in place; many small ones make one sorted part."""
        self.runs.append(runs)
        if sum(hashes.size for hashes, _ in self.runs) > PIECE:
            self._settle([_fold(self.runs)])
            self.runs = []

    def total(self) -> Part:
        """Everything added up, in the order of the hashes."""
        self._receive()
        halves = [half for half in np.array_split(self.spare[0][: self.filled], 2) if half.size]
        self.parts += self.worker.map(_count_block, halves, [self.words] * len(halves))
        self.parts += [_fold(self.runs)] if self.runs else []
        return self._folded()

    def _receive(self) -> None:
        if self.sorting is not None:
            self._settle([self.sorting.result()])
            self.sorting = None

    def _settle(self, parts: list[Part]) -> None:
        """Fold the parts once they outgrow what is settled, so that memory follows the number of keys."""
        self.parts += parts
        settled, *pending = (hashes.size for hashes, _ in self.parts)
        if sum(pending) > 2 * max(settled, PIECE):
            self.parts = [self._folded()]

    def _folded(self) -> Part:
        """The parts, each sorted, added up range by range of the hashes: what is in hand stays in the cache."""
        if len(self.parts) == 1:
            return self.parts[0]
        many = 1 + sum(hashes.size for hashes, _ in self.parts) // PIECE
        edges = np.array([(1 << 64) * i // many for i in range(1, many)], dtype=np.uint64)
        cuts = [[0, *np.searchsorted(hashes, edges), hashes.size] for hashes, _ in self.parts]
        ranges = [
            [
                (hashes[cut[i] : cut[i + 1]], counts[cut[i] : cut[i + 1]])
                for (hashes, counts), cut in zip(self.parts, cuts, strict=True)
            ]
            for i in range(many)
        ]
        return _joined(list(self.worker.map(_fold, ranges)))


def _fold(parts: list[Part]) -> Part:
    """Add up partial counts by hash. The parts are mostly sorted, which a stable sort merges in linear time."""
    hashes, counts = _joined(parts)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    starts = _starts(hashes)
    return hashes[starts], np.add.reduceat(counts[order], starts, axis=0, dtype=np.int64) if starts.size else counts


def _joined(parts: list[Part]) -> Part:
    if not parts:
        return np.empty(0, dtype=np.uint64), np.empty((0, 4), dtype=np.int64)
    return np.concatenate([hashes for hashes, _ in parts]), np.concatenate([counts for _, counts in parts])


class _Keys:
    """The key of every hash, taken from a row where it was seen.

    What is known already is looked up in a small cache of hashes, made of a few tables that each hold one hash
    per slot. A hash that finds no place is only learned twice; one that looks like another and is missed is
    noticed in the end and looked for again.
    """

    def __init__(self, identity: Sequence[str]) -> None:
        self.identity = list(identity)
        self.hashes: list[Hashes] = []
        self.keys: list[pl.DataFrame] = []
        self.known = 0
        self.quiet = False
        self._grow(16)

    def learn(self, part: pl.DataFrame, packed: Hashes, rows: Rows | None = None) -> None:
        """Keep the keys not known yet of a batch, or only of the given rows.

        After a batch without any news a sample of each batch decides whether it deserves a full look.
        """
        hashes = (packed if rows is None else packed[rows]) & ~LOW
        if self.quiet and self._unknown(hashes[::16]).size == 0:
            return
        at = self._unknown(hashes)
        self.quiet = at.size == 0
        fresh, first = np.unique(hashes[at], return_index=True)
        if not fresh.size:
            return
        at = at[first] if rows is None else rows[at[first]]
        self.hashes.append(fresh)
        self.keys.append(_compact(part[self.identity][pl.Series(at, dtype=pl.UInt32)]))
        self.known += fresh.size
        if self.known > 1 << (self.bits - 1):
            self._grow(self.known.bit_length() + 1)
        else:
            self._remember(fresh)

    def found(self, hashes: Hashes, rows: pl.LazyFrame) -> pl.DataFrame:
        """The keys of the given hashes, in their order; those that were missed are looked for once more."""
        known = np.concatenate([*self.hashes, np.empty(0, dtype=np.uint64)])
        order = np.argsort(known, kind="stable")
        first = order[_starts(known[order])]
        known = known[first]
        keys = pl.concat(self.keys, rechunk=True)[first] if self.keys else None
        if known.size < hashes.size:
            missed = np.setdiff1d(hashes, known, assume_unique=True)
            wanted = pl.LazyFrame({_ROW: missed})
            more = rows.with_columns(pl.col(_ROW) // 1024 * 1024).join(wanted, on=_ROW, how="semi")
            late = more.unique(subset=_ROW, keep="any").sort(_ROW).collect(engine="streaming")
            order = np.argsort(np.concatenate([known, late[_ROW].to_numpy()]), kind="stable")
            late = late.select(self.identity)
            return (late if keys is None else pl.concat([keys, late]))[order]
        return rows.select(self.identity).limit(0).collect() if keys is None else keys

    def _unknown(self, hashes: Hashes) -> Rows:
        """Positions of the hashes that are in none of the tables."""
        at: Rows | None = None
        for level, table in enumerate(self.tables):
            asked = hashes if at is None else hashes[at]
            miss = np.flatnonzero(table.take(_slot(asked, level, table)) != _mark(asked))
            at = miss if at is None else at[miss]
        assert at is not None
        return at

    def _remember(self, hashes: Hashes) -> None:
        """Put different hashes into the first table where their slot is free."""
        for level, table in enumerate(self.tables):
            slot, mark = _slot(hashes, level, table), _mark(hashes)
            free = table[slot] == 0
            table[slot[free]] = mark[free]
            hashes = hashes[table[slot] != mark]

    def _grow(self, bits: int) -> None:
        """Larger tables, with everything known so far."""
        self.bits = bits
        self.tables = [np.zeros(1 << (bits - level), dtype=np.uint32) for level in range(LEVELS)]
        for hashes in self.hashes:
            self._remember(hashes)


def _slot(hashes: Hashes, level: int, table: NDArray[np.uint32]) -> Rows:
    """A hash's place in a table; every level uses other bits, so that neighbours in one are apart in the next."""
    bits = int(table.size).bit_length() - 1
    return (hashes << np.uint64(10 * level) >> np.uint64(64 - bits)).view(np.int64)


def _mark(hashes: Hashes) -> NDArray[np.uint32]:
    """The low bits, which the slot does not tell already; 0 stands for an empty slot."""
    return (hashes >> np.uint64(10)).astype(np.uint32)


def _compact(keys: pl.DataFrame) -> pl.DataFrame:
    """A copy of the strings themselves: a selection of rows would keep the whole batch's buffers alive."""
    return pl.DataFrame(keys.to_arrow(compat_level=pl.CompatLevel.oldest()), schema=keys.schema)


# --- what a file's footer tells -------------------------------------------------------------------------------


def constants(footer: Footer, schema: Mapping[str, pl.DataType]) -> dict[str, str]:
    """Text columns that hold one value throughout, by the footer's statistics: as literals, they are never read."""
    out = {}
    for name in (name for name, kind in schema.items() if kind == pl.String):
        told = {_only_value(chunk) for chunk in footer.of(name)}
        if len(told) == 1 and (only := told.pop()) is not None:
            out[name] = only
    return out


def _only_value(chunk: Chunk) -> str | None:
    """The one value of a row group. Writers may shorten the ends of long texts, so those are not believed."""
    if chunk.kind != BYTE_ARRAY or chunk.low is None or chunk.low != chunk.high or chunk.nulls != 0:
        return None
    try:
        return chunk.low.decode() if len(chunk.low) < 32 else None
    except UnicodeDecodeError:  # not text after all: reading the column will say so
        return None
