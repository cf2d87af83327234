"""A partial: what one shard came to, in a folder named by the fingerprint of its inputs and settings.

A folder holds the description (shard.json) and the counts in pieces, each a range of hashes in order, so that a merge
reads any range of problems from every partial, whatever the size of the lake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.counts import DOUBT, HASH, OUTCOMES, PROBLEM, TOLD, Counts
from scorelake.store.disk import checksum
from scorelake.store.files import File
from scorelake.store.parquet import arrow
from scorelake.tables import KEYS

DESCRIPTION = "shard.json"
_ROW_GROUP = 1 << 23


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
            f"counts-{self.number:05d}.parquet",
            *([f"details-{self.number:05d}.parquet"] if self.details else []),
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
        """Rows that a merge of it may read."""
        return sum(max(piece.problems, piece.details) for piece in self.pieces)

    def contents(self, home: Path) -> list[Path]:
        return [home / name for piece in self.pieces for name in piece.names]


def describe(home: Path, partial: Partial, identity: Mapping[str, Any]) -> None:
    (home / DESCRIPTION).write_text(json.dumps(asdict(partial) | {"identity": dict(identity)}))


def described(home: Path, identity: Mapping[str, Any] | None = None) -> Partial | None:
    """The partial of a folder by its own word; None if there is none, or none that can be read, or another's."""
    try:
        told = json.loads((home / DESCRIPTION).read_text())
        if told.pop("identity") != identity and identity is not None:
            return None
        told["files"] = tuple(File(**file) for file in told["files"])
        told["pieces"] = tuple(Piece(**piece) for piece in told["pieces"])
        for key in ("rejects", "quarantine"):
            told[key] = tuple(tuple(entry) for entry in told[key])
        return Partial(**told)
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError, AttributeError):
        return None


def sound(home: Path, partial: Partial) -> bool:
    """What is on the disk is what was written; if not, the shard is simply counted again."""
    try:
        return checksum(*partial.contents(home)) == partial.checksum
    except FileNotFoundError:
        return False


# --- counts in files ----------------------------------------------------------------------------------------


def write(counts: Counts, home: Path, number: int) -> Piece:
    """Counts in the order of their hashes into a folder. What the file must hold is taken from the counts."""
    problems, details = counts.problems, counts.details
    hashes = problems[HASH].to_numpy()
    made = Piece(
        number,
        int(hashes[0]) if hashes.size else 0,
        int(hashes[-1]) if hashes.size else 0,
        problems.height,
        counts.rows,
        0 if details is None else details.height,
    )
    columns: dict[str, Any] = {}
    for name in problems.columns:
        column = problems[name]
        columns[name] = (
            as_dictionary(column.to_numpy(), counts.texts[name]) if name in KEYS else _narrow(column).to_arrow()
        )
    _write(table(columns, [name for name in problems.columns if problems[name].null_count()]), home / made.names[0])
    if details is not None and details.height:
        narrow = details.with_columns(_narrow(details[name]) for name in OUTCOMES)
        _write(narrow.to_arrow(), home / made.names[1])
    return made


def _narrow(column: pl.Series) -> pl.Series:
    if column.name not in (*OUTCOMES, TOLD):
        return column
    most = int(column.to_numpy().max(initial=0))
    return column.cast(pl.UInt8 if most < 1 << 8 else pl.Int32 if most < 1 << 31 else pl.Int64)


def _write(content: pa.Table, path: Path) -> None:
    """For ourselves, and soon: statistics only where they say what to skip, dictionaries only of texts."""
    texts = [name for name in content.column_names if name in KEYS]
    pq.write_table(
        content,
        path,
        row_group_size=_ROW_GROUP,
        compression="lz4",
        use_dictionary=texts,  # type: ignore[arg-type]
        write_statistics=[HASH, PROBLEM],
        dictionary_pagesize_limit=1 << 28,
        store_schema=True,
        write_page_checksum=False,
    )


def read(home: Path, piece: Piece, low: int, high: int, details: bool) -> Counts | None:
    """The problems of a piece whose hashes are from low to high, with details if wanted; None if there are none."""
    if piece.low > high or piece.high < low or not piece.problems:
        return None
    whole, at = _rows(home / piece.names[0], HASH, np.uint64(low), np.uint64(high))
    if not whole.num_rows:
        return None
    texts, columns = {}, []
    for key in KEYS:
        column: Any = whole[key].unify_dictionaries().combine_chunks()
        column = column if isinstance(column, pa.DictionaryArray) else column.chunk(0)
        texts[key] = column.dictionary
        columns.append(pl.Series(key, column.indices.to_numpy().astype(np.uint32)))
    problems = pl.DataFrame(whole.drop_columns(list(KEYS)))
    problems = problems.with_columns(*columns, pl.col(*OUTCOMES, TOLD).cast(pl.Int64), pl.col(DOUBT).cast(pl.Boolean))
    told = None
    if details and piece.details:
        inside, _ = _rows(home / piece.names[1], PROBLEM, np.uint32(at), np.uint32(at + whole.num_rows - 1))
        told = pl.DataFrame(inside).with_columns(pl.col(PROBLEM) - at, pl.col(OUTCOMES).cast(pl.Int64))
    return Counts(texts, problems, told)


def _rows(path: Path, by: str, low: Any, high: Any) -> tuple[pa.Table, int]:
    """The rows of a file, sorted by a column, where that is from low to high; and the number of the first."""
    file = pq.ParquetFile(path, read_dictionary=list(KEYS) if by == HASH else None, pre_buffer=False)
    place = file.schema_arrow.names.index(by)
    told: list[Any] = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    ends = [(group.column(place).statistics, group.num_rows) for group in told]
    groups = [i for i, (known, _) in enumerate(ends) if known.max >= low and known.min <= high]
    whole = file.read_row_groups(groups, use_threads=False)
    values = whole[by].to_numpy()
    first = int(np.searchsorted(values, low))
    skipped = sum(rows for _, rows in ends[: groups[0]]) if groups else 0
    return whole.slice(first, int(np.searchsorted(values, high, side="right")) - first), skipped + first


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
