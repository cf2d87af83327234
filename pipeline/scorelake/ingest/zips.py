"""Zip archives whose members may be compressed with zstd, as Inspect writes them. Python has that from 3.14 on."""

from __future__ import annotations

import lzma
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from scorelake.errors import DataError
from scorelake.storage.parquet import MACHINE

if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile

    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError
    from backports.zstd.zipfile import BadZipFile, ZipFile

__all__ = ["ZipFile", "archive_errors"]

_DAMAGED = (BadZipFile, ZstdError, zlib.error, lzma.LZMAError, EOFError, struct.error, RuntimeError)
"""Errors of unpacking what is truncated, damaged, encrypted, or compressed by an unknown method."""


@contextmanager
def archive_errors(path: object) -> Iterator[None]:
    """Turn errors caused by the content of a file into refusals; errors of the machine pass."""
    try:
        yield
    except (OSError, UnicodeDecodeError, *_DAMAGED) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise
        reason = str(error) or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            reason = f"not UTF-8: {error.reason} {error.object[error.start : error.start + 4]!r}"
        what = f"cannot be read to its end ({reason})"
        raise DataError(what, where=str(path), hint="copy the complete file again") from None
