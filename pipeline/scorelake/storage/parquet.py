"""Read Parquet files with Arrow, which verifies page checksums and raises an error where Polars may end the process.

Values are converted without `pa.array` and `to_numpy`, which import pandas if it is installed: 0.8 s.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.errors import ScorelakeError, StorageError
from scorelake.threads import batch_by_size

MACHINE = (
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC, errno.EDQUOT),
    *(errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.ENETDOWN, errno.ENODEV, errno.ENXIO),
)
"""Error numbers that say nothing about the content of a file."""
BATCH_ROWS = 1 << 20
"""Rows read at a time: small row groups are combined, large ones are read in several batches."""
STREAM_BYTES = 64 << 20
"""Column chunks larger than this are streamed rather than read at once."""


class DamagedError(Exception):
    """The file is not a Parquet file, or its bytes are not those that were written."""


def machine_trouble(error: BaseException) -> ScorelakeError | None:
    """Return an error of the machine with a hint, or None if the file may be the cause."""
    match = re.search(r"[\[(](?:errno|os error) (\d+)[\])]", str(error))  # as Arrow and Polars write it
    number = getattr(error, "errno", None) or (int(match[1]) if match else None)
    if isinstance(error, MemoryError):
        # an allocation larger than the machine has its size from a damaged file
        size = re.search(r"size (\d+)", str(error))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        number = number if size and int(size[1]) > memory else errno.ENOMEM
    if number not in MACHINE:
        return None
    hint = {
        errno.ENOSPC: "free disk space, then run again; finished counts are kept",
        errno.EMFILE: "raise the limit of open files (ulimit -n), then run again",
        errno.ENOMEM: "limit the memory of the job with --memory, then run again",
        errno.EACCES: "give this user read access to the lake, then run again",
        errno.EPERM: "give this user read access to the lake, then run again",
    }.get(number, "fix the machine or its storage, then run again")
    where = str(getattr(error, "filename", None) or "") or None
    return StorageError(f"{os.strerror(number)}; nothing was published", where=where, hint=hint)


def footer(path: str) -> pq.FileMetaData:
    """Read the metadata of a file; raise DamagedError if it is inconsistent."""
    with open(path, "rb") as file:
        metadata = pq.read_metadata(file)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if metadata.num_rows < 0 or sum(group.num_rows for group in groups) != metadata.num_rows:
        raise DamagedError("the row counts in the footer do not add up")
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    for i, group in enumerate(groups):
        if [group.column(j).path_in_schema for j in range(group.num_columns)] != names:
            raise DamagedError(f"the footer has other column names for row group {i} than in its schema")
    return metadata


def renamed(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a file under the names of the lake: `names` maps these to the names in the file."""
    if not names or set(names) == set(names.values()) == set(schema.names):
        return schema
    return pa.schema([schema.field(stored).with_name(name) for name, stored in names.items()])


def spans(metadata: pq.FileMetaData, columns: Container[str]) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of top-level columns."""
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            if chunk.path_in_schema.split(".")[0] in columns:
                start = min((at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at), default=0)
                yield start, start + chunk.total_compressed_size


def units(metadata: pq.FileMetaData, max_rows: int = BATCH_ROWS) -> list[tuple[int, ...]]:
    """Combine neighbouring row groups up to a number of rows; larger ones stay single, empty ones are left out."""
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return batch_by_size([i for i, count in enumerate(rows) if count], lambda i: rows[i], max_rows)


def batches(
    path: str,
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    columns: Sequence[str],
    names: Mapping[str, str] = MappingProxyType({}),
    max_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Read row groups with verified page checksums; texts are dictionaries where that is how they are stored.

    `names` maps columns to their names in the file, where these differ.
    """
    stored_names = [names.get(name, name) for name in columns]
    is_renamed = stored_names != list(columns)
    chunks: dict[str, list[Any]] = {name: [] for name in stored_names}
    for i in groups:
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            chunks.get(chunk.path_in_schema, []).append(chunk)
    largest = max((chunk.total_compressed_size for each in chunks.values() for chunk in each), default=0)
    with open(path, "rb") as file:
        source = pq.ParquetFile(
            file,
            metadata=metadata,
            read_dictionary=[name for name, each in chunks.items() if _is_dictionary(each)],
            buffer_size=1 << 22 if largest > STREAM_BYTES else 0,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        for batch in source.iter_batches(
            batch_size=max_rows, row_groups=list(groups), columns=stored_names, use_threads=False
        ):
            yield stored(batch.select(stored_names).rename_columns(list(columns)) if is_renamed else batch)


def _is_dictionary(chunks: Sequence[Any]) -> bool:
    """Return whether to read a column as dictionaries: if values take few bytes, as indices do, or are long texts."""
    if not chunks or any(c.physical_type != "BYTE_ARRAY" for c in chunks):
        return False
    if any(encoding.startswith("DELTA") for c in chunks for encoding in c.encodings):
        return False
    values = sum(chunk.num_values for chunk in chunks)
    average = sum(chunk.total_uncompressed_size for chunk in chunks) / max(1, values)
    return values <= 1 << 16 or not 12 < average <= 100


def stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace Arrow extension types: a UUID by its text, others by their storage type."""
    if not any(isinstance(kind, pa.BaseExtensionType) for kind in batch.schema.types):
        return batch
    columns: list[Any] = [getattr(column, "storage", column) for column in batch.columns]
    for i, kind in enumerate(batch.schema.types):
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid":
            uuids = [None if value is None else str(UUID(bytes=value)) for value in columns[i].to_pylist()]
            columns[i] = pl.Series(uuids, dtype=pl.String).to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def arrow(values: NDArray[Any]) -> Any:
    """Return numbers as an Arrow array, without a copy if they are contiguous."""
    assert values.dtype != bool, "Arrow packs eight booleans into a byte"
    data = pa.py_buffer(np.ascontiguousarray(values))  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, data])


def numbers(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[Any]:
    """Return Arrow numbers or booleans without nulls as a numpy array, without a copy where possible."""
    return pl.Series(values=column).to_numpy()
