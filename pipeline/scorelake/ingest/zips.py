"""Zip archives whose members may be packed with zstd, as Inspect packs them: Python itself learns it in 3.14."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile, ZipInfo
else:
    from backports.zstd.zipfile import BadZipFile, ZipFile, ZipInfo

__all__ = ["BadZipFile", "ZipFile", "ZipInfo"]
