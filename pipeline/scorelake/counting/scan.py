"""Parquet files of a lake as lazy frames whose pages are verified against their checksums.

Plain `scan_parquet` is not used for files of a lake: with one flipped bit it was silently wrong in 56 of 60 files,
where Arrow's page checksums raised an error in 60 of 60. Arrow reads and verifies, Polars sees a LazyFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from scorelake.counting.canonical import Canonical, Schema
from scorelake.storage import parquet
from scorelake.storage.files import File
from scorelake.threads import batch_by_size

ROW = "_row"
"""Position of a row in the lake: number of its file in the shard, shifted by FILE_SHIFT, plus the row in the file."""
FILE_SHIFT = 40
BITS_PER_WORD = 64
LISTED = {
    "attempt": pl.Int64(),
    "outcome": pl.UInt8(),
    "score": pl.Float64(),
    "answer": pl.UInt64(),
    "gold": pl.UInt8(),
    ROW: pl.UInt64(),
}
"""Columns that are kept as lists, one element per attempt, where counts alone do not say everything. Measures, which
are Float64, are kept as well."""


@dataclass(frozen=True)
class LakeFile:
    """A file with a readable footer and understood columns."""

    file: File
    number: int
    """Its position in the shard."""
    path: str
    metadata: pq.FileMetaData
    canonical: Canonical
    schema: Schema
    """Polars types of the columns that are read; texts arrive as Categorical."""
    deleted: NDArray[np.int64]
    """Rising positions of rows that a table has deleted, or that are outside the window."""
    names: Mapping[str, str]
    """Columns of the lake and their names in the file."""

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows) - len(self.deleted)


@dataclass(frozen=True)
class PartialLayout:
    """What a partial keeps of the attempts of a problem, besides their number by outcome."""

    words: int = 0
    """64-bit words per outcome in which numbered attempts are bits; 0 if attempts are not kept as bits."""
    lists: tuple[str, ...] = ()
    """Columns that are kept as lists."""


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a file."""

    file: LakeFile
    groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.file.metadata.row_group(i).num_rows for i in self.groups)

    @property
    def first(self) -> int:
        """The position of the first row in the file."""
        return sum(self.file.metadata.row_group(i).num_rows for i in range(self.groups[0]))

    @property
    def kept(self) -> int:
        """The number of rows that the table has not deleted."""
        low, high = np.searchsorted(self.file.deleted, (self.first, self.first + self.rows))
        return self.rows - int(high - low)


def chunks(files: Sequence[LakeFile], max_rows: int) -> list[tuple[RowGroups, ...]]:
    """Cut files into chunks of at most `max_rows` rows by the row counts of their footers.

    A row group is never cut, so a chunk may be larger than `max_rows` if one row group is.
    """
    rows = min(max_rows, parquet.BATCH_ROWS)
    parts = [RowGroups(file, groups) for file in files for groups in parquet.units(file.metadata, rows)]
    return batch_by_size(parts, lambda part: part.rows, max_rows)


def scan_verified(part: RowGroups, errors: list[BaseException], layout: PartialLayout | None = None) -> pl.LazyFrame:
    """Return row groups as a LazyFrame; an error while reading is kept in `errors`, since Polars rewrites it."""
    layout = layout or PartialLayout()
    with_row = ROW in layout.lists or not part.file.schema
    schema = dict(part.file.schema) | ({ROW: pl.UInt64()} if with_row else {})

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        try:
            for frame in read_batches(part, layout):
                selected = frame if columns is None else frame.select(columns)
                yield selected if predicate is None else selected.filter(predicate)
        except BaseException as error:
            errors.append(error)
            raise

    return register_io_source(read, schema=schema)


def read_batches(part: RowGroups, layout: PartialLayout) -> Iterator[pl.DataFrame]:
    """Yield the columns of row groups batch by batch, in the types of `LakeFile.schema`.

    Raise if their number of rows is not that of the footer: a damaged page header can hide rows from Arrow.
    """
    file, schema = part.file, part.file.schema
    rows = 0
    for batch in parquet.batches(file.path, file.metadata, part.groups, list(schema), file.names):
        first, last = part.first + rows, part.first + rows + batch.num_rows
        rows += batch.num_rows
        if rows > part.rows:
            break
        frame = pl.DataFrame({name: as_series(batch.column(name), kind) for name, kind in schema.items()})
        if ROW in layout.lists or not schema:
            position = (file.number << FILE_SHIFT) + np.arange(first, last, dtype=np.uint64)
            frame = frame.with_columns(pl.Series(ROW, position))
        if layout.words and file.canonical.attempt is not None and file.canonical.attempt.column is not None:
            attempts = frame[file.canonical.attempt.column]
            if attempts.null_count() or not attempts.is_between(0, BITS_PER_WORD * layout.words - 1).all():
                raise parquet.DamagedError(f"column {attempts.name} does not match its statistics in the footer")
        low, high = np.searchsorted(file.deleted, (first, last))
        if low < high:
            is_kept = np.ones(len(frame), dtype=bool)
            is_kept[file.deleted[low:high] - first] = False
            frame = frame.filter(is_kept)
        yield frame
    if rows != part.rows:
        more = "at least " if rows > part.rows else ""
        raise parquet.DamagedError(f"{more}{rows:,} rows were read where the footer says {part.rows:,}")


def as_series(column: pa.Array[Any], kind: pl.DataType) -> pl.Series:
    """Convert a column to a Polars type, once per distinct value where Arrow has a dictionary."""
    if not isinstance(column, pa.DictionaryArray):
        return to_polars(column).cast(kind)
    values, indices = column.dictionary, column.indices
    if indices.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        indices = indices.fill_null(len(values) - 1)
    index = parquet.numbers(indices)
    if index.size and not (index.min() >= 0 and index.max() < len(values)):
        raise parquet.DamagedError("a dictionary index is out of range")
    return to_polars(values).cast(kind).gather(index)


def to_polars(column: pa.Array[Any]) -> pl.Series:
    """Convert an Arrow array; texts are validated first because Polars assumes UTF-8."""
    if any(test(column.type) for test in (pa.types.is_string, pa.types.is_large_string)):
        column.validate(full=True)
    return pl.Series(values=column)
