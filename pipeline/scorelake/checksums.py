"""Page checksums of Parquet files: a flipped bit in a page must not become a different count.

Readers ignore them by default. They are verified here on the compressed bytes, without decoding anything, for the
columns that are read and for files that have them.
"""

from __future__ import annotations

import zlib
from collections.abc import Container
from typing import BinaryIO

from scorelake import thrift
from scorelake.footer import DamagedError, Footer

_HEADER = 1 << 16
"""Bytes looked at for one page header; statistics inside can make it long."""
_SIZE, _CHECKSUM = 3, 4
"""Fields of a page header."""


def verify(path: str, footer: Footer, columns: Container[str | None]) -> None:
    """Raise if a page of one of the top-level columns does not match its checksum."""
    summed = set()
    with open(path, "rb") as file:
        for chunk in footer.chunks:
            if chunk.name in columns:
                where = f"column {chunk.name}, row group {chunk.group}"
                summed.add(_verify_chunk(file, chunk.start, chunk.size, where))
                if len(summed) > 1:
                    raise DamagedError(f"{where}: pages with and without checksums")


def _verify_chunk(file: BinaryIO, start: int, size: int, where: str) -> bool:
    """Walk the pages of a column chunk; False if its first page has no checksum, as then none has one."""
    at = start
    while at < start + size:
        file.seek(at)
        head = file.read(_HEADER)
        try:
            fields, length = thrift.struct(head, 0)
        except (IndexError, ValueError):
            raise DamagedError(f"{where}: a page header cannot be read") from None
        if _CHECKSUM not in fields and at == start:
            return False
        page, told = fields.get(_SIZE), fields.get(_CHECKSUM)
        if not isinstance(page, int) or not isinstance(told, int) or page < 0:
            raise DamagedError(f"{where}: a page header makes no sense")
        file.seek(at + length)
        data = file.read(page)
        if len(data) != page or zlib.crc32(data) != told & 0xFFFFFFFF:
            raise DamagedError(f"{where}: a page does not match its checksum")
        at += length + page
    return True
