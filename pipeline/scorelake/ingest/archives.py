"""Open files that may be packed, and Parquet files, within the memory that there is for one record."""

from __future__ import annotations

import gzip
import lzma
import struct
import sys
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.storage.parquet import MACHINE

# Inspect compresses the members of its archives with zstd, which Python's own zipfile reads from 3.14 on.
if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile

    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile
    from backports.zstd.zipfile import BadZipFile, ZipFile

__all__ = ["ZipFile"]

CHUNK = 1 << 20
MAX_RECORD = 1 << 27
"""Maximum length of one record, in characters: a packed file of 1 MB may have records of 1 GB."""
BYTES_PER_CHARACTER = 16
"""Memory of a record: up to 4 in the buffer, in the one that replaces it, and in the decoded value; and slack."""
SMALL_RECORD = 1 << 25
"""The maximum for headers and first looks, which know of no --memory."""
GZIP, ZIP, ZSTD = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_DAMAGED = (BadZipFile, ZstdError, zlib.error, lzma.LZMAError, EOFError, struct.error, RuntimeError, ValueError)
"""Errors of unpacking what is truncated, damaged (a negative offset is a ValueError), encrypted, or not UTF-8."""


@contextmanager
def archive_errors(path: object) -> Iterator[None]:
    """Turn errors caused by the content of a file into refusals; errors of the machine pass."""
    try:
        yield
    except (OSError, *_DAMAGED) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise
        reason = str(error) or "it is damaged"
        if isinstance(error, UnicodeDecodeError):
            reason = f"not UTF-8: {error.reason} {error.object[error.start : error.start + 4]!r}"
        what = f"cannot be read to its end ({reason})"
        raise DataError(what, where=str(path), hint="copy the complete file again") from None


@dataclass
class Reading:
    """The file that is being read, for progress, and the longest record that fits into memory."""

    max_record: int = SMALL_RECORD
    file: IO[bytes] | None = None

    @property
    def position(self) -> int:
        return 0 if self.file is None or self.file.closed else self.file.tell()


@contextmanager
def open_unpacked(path: Path, reading: Reading | None = None) -> Iterator[IO[bytes]]:
    """Open a file; gzip, zstd, and a zip of one file, are unpacked. Damaged archives are refused.

    `archive.zip/folder/a.json` is a file in a zip of several.
    """
    archive = next((parent for parent in path.parents if parent.is_file()), path)
    with archive_errors(path), archive.open("rb") as plain:
        if reading is not None:
            reading.file = plain
        magic = plain.read(4)
        plain.seek(0)
        if magic == ZIP:
            file = ZipFile(plain)
            names = file_names(file) if archive == path else [path.relative_to(archive).as_posix()]
            if len(names) != 1:
                raise DataError(f"a zip of {len(names)} files", where=str(path), hint="unpack it first")
            yield file.open(names[0])
        elif magic[:2] == GZIP:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=plain))
        else:
            yield cast(IO[bytes], ZstdFile(plain)) if magic == ZSTD else plain


def file_names(archive: ZipFile) -> list[str]:
    """List the files in a zip."""
    return [name for name in archive.namelist() if not name.endswith("/")]


def read_parquet(path: Path, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file with these columns, where it has them."""
    with archive_errors(path), pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
        names = [name for name in file.schema_arrow.names if name in columns]
        for batch in file.iter_batches(64, columns=names, use_threads=False):  # texts of 1 MB may compress to nothing
            yield from batch.to_pylist()


def too_long(what: str, limit: int, where: object) -> DataError:
    """Build the error for a record that does not fit into memory."""
    hint = "a larger --memory allows longer ones" if limit < MAX_RECORD else None
    return DataError(f"{what} is longer than {limit:,} characters", where=str(where), hint=hint)
