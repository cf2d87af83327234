"""Parquet files as Arrow reads them: footers, row groups, checksums of pages, and whose fault a failure is.

Arrow, not Polars: it verifies the checksums that writers put beside their pages, hands over dictionaries as they are
stored, and answers a damaged file with an error where Polars may end the process.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Container, Iterator, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.errors import ScorelakeError, StorageError
from scorelake.storage.arrays import texts

MACHINE = (
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC, errno.EDQUOT),
    *(errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.ENETDOWN, errno.ENODEV, errno.ENXIO),
)
"""Errors of the system that say nothing about what is in a file."""
TOGETHER = 1 << 20
"""Rows read at once: small row groups of a file together, large ones in pieces."""
_MANY = 1 << 16
_CODE = 12
"""Bytes per value from which on a column of texts is not stored as codes of a dictionary."""
_SHORT = 100
_STREAM = 64 << 20
"""Bytes of a column chunk from which on it is read in pieces."""


class DamagedError(Exception):
    """Bytes that are not those that were written, or never were a Parquet file."""


def machine_trouble(error: BaseException) -> ScorelakeError | None:
    """An error of the machine as such, with what to do; None if it may be the file's."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        told = re.search(r"\[errno (\d+)\]", str(error))
        number = int(told[1]) if told else None
    if isinstance(error, MemoryError) and not _absurd(error):
        number = errno.ENOMEM
    if number not in MACHINE:
        return None
    hint = {
        errno.EMFILE: "raise the limit of open files (ulimit -n), then run again",
        errno.ENOMEM: "give the job less to do at once with --memory, then run again",
        errno.EACCES: "let this user read the lake, then run again",
        errno.EPERM: "let this user read the lake, then run again",
    }.get(number, "mend the machine, then run again")
    where = getattr(error, "filename", None)
    return StorageError(
        f"{os.strerror(number)}; nothing was published", where=str(where) if where else None, hint=hint
    )


def _absurd(error: BaseException) -> bool:
    """More was asked for than any machine has: a damaged file's own word for a size."""
    told = re.search(r"size (\d+)", str(error))
    return told is not None and int(told[1]) > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def footer(path: str) -> pq.FileMetaData:
    """What a file says of itself; DamagedError if it contradicts itself."""
    with open(path, "rb") as file:
        told = pq.read_metadata(file)
    rows = sum(told.row_group(i).num_rows for i in range(told.num_row_groups))
    if rows != told.num_rows or told.num_rows < 0:
        raise DamagedError("the footer's numbers of rows do not add up")
    names = [told.schema.column(j).path for j in range(told.num_columns)]
    for i in range(told.num_row_groups):
        group = told.row_group(i)
        if [group.column(j).path_in_schema for j in range(group.num_columns)] != names:
            raise DamagedError(f"the footer names the columns of row group {i} twice, and differently")
    return told


def field_ids(schema: pa.Schema) -> dict[str, int | None]:
    """The columns of a file, and the numbers that table formats give them; None where there is none."""
    return {field.name: _number(field.metadata) for field in schema}


def _number(metadata: Any) -> int | None:
    told = (metadata or {}).get(b"PARQUET:field_id", b"")
    return int(told) if told.isdigit() else None


def spans(told: pq.FileMetaData, columns: Container[str]) -> Iterator[tuple[int, int]]:
    """Where the pages of some top-level columns are."""
    for i in range(told.num_row_groups):
        for j in range(told.num_columns):
            chunk = told.row_group(i).column(j)
            if chunk.path_in_schema.split(".")[0] in columns:
                start = min((at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at), default=0)
                yield start, start + chunk.total_compressed_size


def units(told: pq.FileMetaData, most: int = TOGETHER) -> list[list[int]]:
    """Row groups that are read together: neighbours up to so many rows, larger ones alone, empty ones not at all."""
    out: list[list[int]] = []
    held = 0
    for i in range(told.num_row_groups):
        rows = told.row_group(i).num_rows
        if not rows:
            continue
        if out and held + rows <= most:
            out[-1].append(i)
            held += rows
        else:
            out.append([i])
            held = rows
    return out


def batches(
    path: str, told: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str], most: int = TOGETHER
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, pages checked; texts as dictionaries wherever that is how they are stored."""
    chunks = [told.row_group(i).column(j) for i in groups for j in range(told.num_columns)]
    mine = [chunk for chunk in chunks if chunk.path_in_schema in columns]
    delta = {chunk.path_in_schema for chunk in mine if any(kind.startswith("DELTA") for kind in chunk.encodings)}
    texts = {chunk.path_in_schema for chunk in mine if chunk.physical_type == "BYTE_ARRAY"} - delta
    plain = {name for name in texts if _plainly([c for c in mine if c.path_in_schema == name])}
    if plain:
        plain -= _long(path, told, groups[0], sorted(plain))
    large = max((chunk.total_compressed_size for chunk in mine), default=0) > _STREAM
    with open(path, "rb") as file:
        source = pq.ParquetFile(
            file,
            metadata=told,
            read_dictionary=sorted(texts - plain),
            buffer_size=1 << 22 if large else 0,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        for batch in source.iter_batches(
            batch_size=most, row_groups=list(groups), columns=list(columns), use_threads=False
        ):
            yield stored(batch)


def stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in types that everybody knows: a UUID is its text, other extensions what they are stored as."""
    if not any(isinstance(kind, pa.BaseExtensionType) for kind in batch.schema.types):
        return batch
    columns = [_stored(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _stored(column: pa.Array[Any]) -> pa.Array[Any]:
    if not isinstance(column, pa.ExtensionArray):
        return column
    if column.type.extension_name != "arrow.uuid":
        return column.storage  # type: ignore[no-any-return]
    return texts([None if value is None else str(UUID(bytes=value)) for value in column.storage.to_pylist()])


def _plainly(chunks: Sequence[Any]) -> bool:
    """Most values are stored one by one, as by writers whose dictionary was full."""
    values = sum(chunk.num_values for chunk in chunks)
    return bool(values > _MANY and sum(chunk.total_uncompressed_size for chunk in chunks) > _CODE * values)


def _long(path: str, told: pq.FileMetaData, group: int, columns: Sequence[str]) -> set[str]:
    """Those of the columns whose texts are long: they are never spelled out row by row."""
    with open(path, "rb") as file:
        source = pq.ParquetFile(file, metadata=told, read_dictionary=list(columns), pre_buffer=False)
        first = next(source.iter_batches(batch_size=1 << 10, row_groups=[group], columns=list(columns)))
    columns_of: list[Any] = first.columns
    spelled = {name: column.dictionary_decode() for name, column in zip(columns, columns_of, strict=True)}
    return {name for name, column in spelled.items() if column.nbytes > _SHORT * len(column)}
