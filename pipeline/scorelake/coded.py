"""Counts whose keys are codes: a problem's name is held, sorted and written once, however many models tried it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from polars import selectors

from scorelake.tables import COUNTS, KEYS
from scorelake.threads import side_by_side

HASH = "_hash"
DICTIONARIES: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": list(KEYS),
    "column_encoding": dict.fromkeys(COUNTS, "DELTA_BINARY_PACKED"),
    "write_statistics": False,
    "dictionary_pagesize_limit": 1 << 28,
    "store_schema": False,
}
"""How texts stay dictionaries on the disk, and are plain texts to every reader. Statistics would be a third of the
work, and skip nothing: every row group has problems of all models."""
ROW_GROUP, CODED_ROW_GROUP = 1 << 16, 1 << 19


@dataclass(frozen=True)
class Counted:
    """Counts per key. Where `texts` has a key, its column holds codes: places in those texts, null where null."""

    counts: pl.DataFrame
    texts: dict[str, pl.Series]
    overlap: bool = False
    """Whether there are other counts of the same keys."""

    def spelled(self, *keys: str) -> Counted:
        """The same with these keys, or all of them, as they are written."""
        texts = {key: text for key, text in self.texts.items() if not keys or key in keys}
        columns = [text.gather(self.counts[key]).alias(key) for key, text in texts.items()]
        rest = {key: text for key, text in self.texts.items() if key not in texts}
        return Counted(self.counts.with_columns(columns), rest, self.overlap)


def hashed(counts: pl.DataFrame, texts: Mapping[str, pl.Series] = MappingProxyType({})) -> pl.Series:
    """A hash of every row's keys, which depends on their texts alone, however they are held."""
    each = [
        texts[key].hash(i).gather(counts[key]) if key in texts else counts[key].hash(i) for i, key in enumerate(KEYS)
    ]
    return reduce(add, each).alias(HASH)


def by_hash(counted: Counted) -> Counted:
    """Rows in the order of their hashes."""
    counted = counted if counted.counts.height else counted.spelled()
    counts, texts = counted.counts, counted.texts
    hashes = hashed(counts, texts)
    order = [*KEYS, *sorted(set(counts.columns) - set(KEYS))]
    if not texts:
        return replace(counted, counts=counts.select(hashes, *order).sort(HASH, *KEYS))
    place = np.argsort(hashes.to_numpy())
    hashes = hashes.gather(place)
    if (hashes == hashes.shift()).any():  # two problems with one hash: only their texts can order them
        return by_hash(counted.spelled())
    return replace(counted, counts=counts[place].select(hashes, *order))


def added_by_hash(counts: pl.DataFrame) -> pl.DataFrame | None:
    """Rows of the same problem added up; None if two problems share a hash, or a key is missing.

    In: rows with their hash, their keys as codes and nothing but numbers; as they come from partials, in several
    sequences sorted by hash, which a stable sort only has to merge.
    """
    if any(counts[key].null_count() for key in KEYS):
        return None
    hashes = counts[HASH].to_numpy()
    place = np.argsort(hashes, kind="stable")
    hashes = hashes[place]
    fresh = np.concatenate([[True], hashes[1:] != hashes[:-1]])[: place.size]
    starts = np.flatnonzero(fresh)
    again = np.flatnonzero(~fresh)

    def added(name: str) -> NDArray[Any] | None:
        column = counts[name].fill_null(0).to_numpy()[place]
        if name not in KEYS:
            return np.add.reduceat(column, starts) if starts.size else column
        return None if (column[again] != column[again - 1]).any() else column[starts]

    names = [name for name in counts.columns if name != HASH]
    out = dict(zip(names, side_by_side(added, names), strict=True))
    return None if any(column is None for column in out.values()) else pl.DataFrame(out)


def write(counted: Counted, path: Path) -> None:
    """A partial's counts; texts are written as such, whether they are held as codes or not."""
    counts, texts = counted.counts, counted.texts
    if not texts:
        counts.write_parquet(path, row_group_size=ROW_GROUP, statistics=True)
        return
    spelled = {key: text.to_arrow(compat_level=pl.CompatLevel.oldest()) for key, text in texts.items()}
    writer = None
    narrow = [name for name in COUNTS if name in counts.columns and not (counts[name] >= 1 << 31).any()]
    for part in counts.with_columns(pl.col(narrow).cast(pl.Int32)).iter_slices(CODED_ROW_GROUP):
        table = required(
            {
                name: as_dictionary(part[name].to_numpy(), spelled[name]) if name in texts else part[name].to_arrow()
                for name in counts.columns
            },
            [name for name in counts.columns if counts[name].null_count()],
        )
        writer = writer or pq.ParquetWriter(path, table.schema, **_quick(table.column_names))
        writer.write_table(table)
    assert writer is not None
    writer.close()


def required(columns: Mapping[str, Any], missing: Sequence[str]) -> pa.Table:
    """A table that says which columns have no nulls: a third less to write, and to read."""
    fields = [pa.field(name, column.type, nullable=name in missing) for name, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _quick(names: Sequence[str]) -> dict[str, Any]:
    """For partial counts, which are read by nobody else and soon; a hash, or who passed, is not worth compressing."""
    packed = {name: "none" if name == HASH or name.startswith("passed") else "lz4" for name in names}
    plain = {"compression": packed, "compression_level": None, "column_encoding": None, "write_statistics": [HASH]}
    return DICTIONARIES | plain


def widened(table: pl.LazyFrame) -> pl.LazyFrame:
    """Counts as they are added up, however narrow they were written."""
    return table.with_columns(selectors.by_name(*COUNTS, require_all=False).cast(pl.Int64))


def as_dictionary(codes: NDArray[np.uint32], texts: pa.Array[Any]) -> pa.Array[Any]:
    """Codes with the texts that they use, and no others."""
    used = np.flatnonzero(np.bincount(codes, minlength=1)) if len(texts) < 4 * codes.size else np.unique(codes)
    place = np.zeros(int(used.max(initial=0)) + 1, dtype=np.int32)
    place[used] = np.arange(used.size)
    indices: Any = pa.array(place[codes])
    return pa.DictionaryArray.from_arrays(indices, texts.take(pa.array(used)))  # type: ignore[arg-type]


def ranked(column: pa.ChunkedArray[Any]) -> tuple[pl.Series, NDArray[np.uint32]]:
    """The texts of a dictionary column in order, and every row's place among them."""
    chunks: list[Any] = column.chunks
    texts = pl.Series(chunks[0].dictionary) if chunks else pl.Series([], dtype=pl.String)
    order = texts.arg_sort()
    rank = np.empty(texts.len(), dtype=np.uint32)
    rank[order.to_numpy()] = np.arange(texts.len(), dtype=np.uint32)
    codes = [rank[chunk.indices.to_numpy(zero_copy_only=False)] for chunk in chunks]
    return texts.gather(order), np.concatenate([*codes, np.empty(0, dtype=np.uint32)])


def bucket_table(path: Path, low: int, high: int) -> pa.Table:
    """The rows of a partial whose hash is from low to high, read by the row groups that can hold them."""
    file = pq.ParquetFile(path, read_dictionary=list(KEYS))
    told: list[Any] = [file.metadata.row_group(i).column(0).statistics for i in range(file.metadata.num_row_groups)]
    groups = [i for i, ends in enumerate(told) if ends and ends.max >= low and ends.min <= high]
    table = file.read_row_groups(groups)
    hashes = table[HASH].to_numpy()
    first = int(np.searchsorted(hashes, np.uint64(low)))
    return table.slice(first, int(np.searchsorted(hashes, np.uint64(high), side="right")) - first)
