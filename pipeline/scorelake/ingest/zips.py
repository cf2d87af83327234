"""Zip archives whose members may be packed with zstd, as Inspect packs them: Python itself learns it in 3.14."""

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

__all__ = ["ZipFile", "unpacking"]

_BROKEN = (
    BadZipFile,
    ZstdError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    RuntimeError,
    UnicodeDecodeError,
)
"""What unpacking raises on what is cut, damaged, encrypted, or packed in a way that nobody here knows."""


@contextmanager
def unpacking(path: object) -> Iterator[None]:
    """Around code that unpacks: what is wrong with the file is refused, what is wrong with the machine is not."""
    try:
        yield
    except (OSError, *_BROKEN) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise
        said = str(error) or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            said = f"not UTF-8: {error.reason} {error.object[error.start : error.start + 4]!r}"
        what = f"cannot be read to its end ({said})"
        raise DataError(what, where=str(path), hint="copy it again, whole") from None
