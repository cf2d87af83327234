"""A partial: what one shard came to, in a folder named by the fingerprint of its inputs and settings.

A folder holds the description (shard.json) and the counts in pieces, each a range of hashes in order, so that a merge
reads any range of problems from every partial, whatever the size of the lake. Files are Arrow's own,
compressed by lz4, which takes a third of the time of Parquet. Every piece has its own texts: pieces are cut by
problem, so that hardly any problem id is in two of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.counts import HASH, OUTCOMES, PROBLEM, TOLD, Counts
from scorelake.schemas import KEYS
from scorelake.storage.arrays import arrow, numbers
from scorelake.storage.disk import checksum, read_json
from scorelake.storage.files import File

DESCRIPTION = "shard.json"


@dataclass(frozen=True)
class Piece:
    """One file of counts: a range of hashes, and what it holds."""

    number: int
    low: int
    high: int
    problems: int
    rows: int
    details: int
    """Rows of the file beside it; 0 if there is none."""

    @property
    def names(self) -> list[str]:
        return [
            f"counts-{self.number:05d}.arrow",
            f"texts-{self.number:05d}.arrow",
            *([f"details-{self.number:05d}.arrow"] if self.details else []),
        ]


@dataclass(frozen=True)
class Partial:
    """What one shard contributed; read = passed + failed + ungraded + rejected, duplicates still among them."""

    name: str
    files: tuple[File, ...]
    way: str
    """How it was counted: tally or plain, and why."""
    read: int
    graded: int
    ungraded: int
    rejected: int
    rejects: tuple[tuple[str, str, int], ...]
    """(file, reason, rows) of what was rejected."""
    quarantine: tuple[tuple[str, str], ...]
    """(file, reason) of what could not be read."""
    binary: bool
    rewards: bool
    answers: str
    """none, ignored or counted: whether the files have answers to vote with, and what was done with them."""
    carried: dict[str, str]
    """What sort of values the carried columns have."""
    pieces: tuple[Piece, ...]
    checksum: str = ""

    @property
    def problems(self) -> int:
        return sum(piece.problems for piece in self.pieces)

    @property
    def weight(self) -> int:
        """Rows that a merge of it may read; a detail takes a quarter of the memory of a problem."""
        return sum(piece.problems + piece.details // 4 for piece in self.pieces)

    def contents(self, home: Path) -> list[Path]:
        return [home / name for piece in self.pieces for name in piece.names]


def describe(home: Path, partial: Partial, identity: Mapping[str, Any]) -> None:
    told = json.loads(json.dumps(asdict(partial) | {"identity": dict(identity)}))
    (home / DESCRIPTION).write_text(json.dumps(told | {"digest": _digest(told)}))


def _digest(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def described(home: Path, identity: Mapping[str, Any] | None = None) -> Partial | None:
    """The partial of a folder by its own word; None if there is none, or none that can be read, or another's."""
    try:
        told = read_json(home / DESCRIPTION)
        if told.pop("digest") != _digest(told) or told["name"] != home.name:
            return None
        if told.pop("identity") != identity and identity is not None:
            return None
        told["files"] = tuple(File(**file) for file in told["files"])
        told["pieces"] = tuple(Piece(**piece) for piece in told["pieces"])
        for key in ("rejects", "quarantine"):
            told[key] = tuple(tuple(entry) for entry in told[key])
        return Partial(**told)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def sound(home: Path, partial: Partial) -> bool:
    """What is on the disk is what was written; if not, the shard is simply counted again."""
    try:
        return checksum(*partial.contents(home)) == partial.checksum
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


# --- counts in files ----------------------------------------------------------------------------------------


class Writer:
    """Counts into a folder, piece by piece."""

    def __init__(self, home: Path) -> None:
        self.home, self.pieces = home, 0

    def write(self, counts: Counts) -> Piece:
        """Counts in the order of their hashes. What the file must hold is taken from the counts."""
        counts = _used(counts)
        problems, details = counts.problems, counts.details
        hashes = problems[HASH].to_numpy()
        made = Piece(
            self.pieces,
            int(hashes[0]) if hashes.size else 0,
            int(hashes[-1]) if hashes.size else 0,
            problems.height,
            counts.rows,
            0 if details is None else details.height,
        )
        self.pieces += 1
        path, texts = (self.home / name for name in made.names[:2])
        _write(pa.table({key: _one(counts.texts[key]) for key in KEYS}), texts, compression=None)
        _write(_narrow(problems), path)
        if made.details:
            assert details is not None
            _write(_narrow(details), self.home / made.names[2])
        return made


def _used(counts: Counts) -> Counts:
    """The same counts with no text that none of them has."""
    texts, columns = {}, []
    for key in KEYS:
        codes = counts.problems[key].to_numpy()
        there = np.zeros(len(counts.texts[key]), dtype=bool)
        there[codes] = True
        used = np.flatnonzero(there)
        place = np.empty(there.size, dtype=np.uint32)
        place[used] = np.arange(used.size, dtype=np.uint32)
        texts[key] = counts.texts[key].take(arrow(used))
        columns.append(pl.Series(key, place[codes]))
    return replace(counts, texts=texts, problems=counts.problems.with_columns(columns))


def _one(texts: pa.Array[Any]) -> pa.Array[Any]:
    """All texts as one value, so that columns of any length are in one table."""
    whole = texts.cast(pa.large_string())
    return pa.LargeListArray.from_arrays(arrow(np.array([0, len(whole)])), whole)


def _narrow(frame: pl.DataFrame) -> pa.Table:
    """Whole numbers in as few bytes as hold them; one that is the same throughout is said once, in the header."""
    columns: dict[str, Any] = {}
    same: dict[bytes, bytes] = {}
    for name in frame.columns:
        column = frame[name]
        if _ours(column):
            words = column.fill_null(0).to_numpy()
            low, high = int(words.min(initial=0)), int(words.max(initial=0))
            if words.size and low == high == int(words[0]) and name != HASH:
                same[name.encode()] = str(low).encode()
                continue
            columns[name] = arrow(words.astype(np.min_scalar_type(high)))
        else:
            columns[name] = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.table(columns).replace_schema_metadata(same)


def _write(content: pa.Table, path: Path, compression: Literal["lz4"] | None = "lz4") -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, content.schema, options=options) as file:
        file.write_table(content)


def _table(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _texts(home: Path, piece: Piece) -> dict[str, pa.Array[Any]]:
    """What the codes of a piece stand for; not read from the disk before it is looked at."""
    told = _table(home / piece.names[1])
    lists: Any = {key: told[key].chunk(0) for key in KEYS}
    return {key: lists[key].values for key in KEYS}


def read(home: Path, piece: Piece, low: int, high: int, details: bool) -> Counts | None:
    """The problems of a piece whose hashes are from low to high, with details if wanted; None if there are none."""
    if piece.low > high or piece.high < low or not piece.problems:
        return None
    whole = _table(home / piece.names[0])
    hashes = numbers(whole[HASH])
    first, end = int(np.searchsorted(hashes, np.uint64(low))), int(np.searchsorted(hashes, np.uint64(high), "right"))
    if first == end:
        return None
    problems = _wide(whole.slice(first, end - first))
    told = None
    if details and piece.details:
        told = _wide(_table(home / piece.names[2]))
        if end - first < piece.problems:
            owner = told[PROBLEM].to_numpy()
            begin = int(np.searchsorted(owner, np.uint32(first)))
            told = told.slice(begin, int(np.searchsorted(owner, np.uint32(end))) - begin)
            told = told.with_columns(pl.col(PROBLEM) - first)
    counts = Counts(_texts(home, piece), problems, told)
    return counts if end - first == piece.problems else _used(counts)


def _wide(content: pa.Table) -> pl.DataFrame:
    """As it was before it was made narrow."""
    frame = pl.DataFrame(content)
    whole = {column.name: _whole(column.name) for column in frame if _ours(column)}
    same = {name.decode(): int(number) for name, number in (content.schema.metadata or {}).items()}
    return frame.with_columns(
        *(pl.col(name).cast(kind) for name, kind in whole.items()),
        *(pl.lit(number, _whole(name)).alias(name) for name, number in same.items()),
    )


def _ours(column: pl.Series) -> bool:
    """Whole numbers that are not a carried column's, which stay as they are."""
    return column.dtype.is_integer() and not column.name.startswith(("min:", "max:"))


def _whole(name: str) -> type[pl.DataType]:
    if name in (*OUTCOMES, TOLD):
        return pl.Int64
    return pl.UInt32 if name in (PROBLEM, *KEYS) else pl.UInt64


def as_dictionary(codes: NDArray[np.uint32], texts: pa.Array[Any]) -> pa.Array[Any]:
    """Codes with the texts that they use, and no others."""
    used = np.flatnonzero(np.bincount(codes, minlength=1)) if len(texts) < 4 * codes.size else np.unique(codes)
    place = np.zeros(int(used.max(initial=0)) + 1, dtype=np.int32)
    place[used] = np.arange(used.size)
    mine: Any = texts.take(arrow(used))
    return pa.DictionaryArray.from_arrays(arrow(place[codes]), mine)


def table(columns: Mapping[str, Any], missing: Sequence[str]) -> pa.Table:
    """A table that says which columns have no nulls: a third less to write, and to read."""
    fields = [pa.field(name, column.type, nullable=name in missing) for name, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
