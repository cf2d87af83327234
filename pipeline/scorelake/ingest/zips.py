"""Zip archives whose members may be packed with zstd, as Inspect packs them: Python itself learns it in 3.14."""

from __future__ import annotations

import lzma
import sys
import zlib

if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile

    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError
    from backports.zstd.zipfile import BadZipFile, ZipFile

BROKEN = (BadZipFile, ZstdError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What reading an archive raises when it is cut, damaged, encrypted, or packed in a way that nobody here knows."""

__all__ = ["BROKEN", "ZipFile"]
