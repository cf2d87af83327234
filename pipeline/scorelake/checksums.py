"""Damage in Parquet files: a flipped bit must not become a different count.

Pages may carry checksums, which readers ignore by default. They are verified here on the compressed bytes, without
decoding anything, for the columns that are read and for files that have them.
"""

from __future__ import annotations

import zlib
from collections.abc import Container
from typing import BinaryIO

import pyarrow.parquet as pq

_HEADER = 1 << 16
"""Bytes looked at for one page header; statistics inside can make it long."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12


class DamagedError(Exception):
    """A page whose bytes are not those that were written."""


def verify(path: str, footer: pq.FileMetaData, columns: Container[str]) -> None:
    """Raise if a page of one of the top-level columns does not match its checksum, or the footer contradicts itself.

    A footer has no checksum, but it tells every column's name and type twice: in the schema and with each chunk. A
    damaged name must not pass for a column that is not there, and a wrong type can bring the whole process down.
    """
    summed = set()
    with open(path, "rb") as file:
        for i in range(footer.num_row_groups):
            group = footer.row_group(i)
            for j in range(group.num_columns):
                chunk = group.column(j)
                said = footer.schema.column(j)
                if (chunk.path_in_schema, chunk.physical_type) != (said.path, said.physical_type):
                    raise DamagedError(f"the footer describes column {j} twice, and differently")
                name = chunk.path_in_schema.split(".", 1)[0]
                if name in columns:
                    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
                    where = f"column {name}, row group {i}"
                    summed.add(_verify_chunk(file, start, chunk.total_compressed_size, where))
                    if len(summed) > 1:
                        raise DamagedError(f"{where}: pages with and without checksums")


def _verify_chunk(file: BinaryIO, start: int, size: int, where: str) -> bool:
    """Walk the pages of a column chunk; False if its first page has no checksum, as then none has one."""
    at = start
    while at < start + size:
        file.seek(at)
        head = file.read(_HEADER)
        try:
            length, fields = _page_header(head)
        except (IndexError, ValueError):
            raise DamagedError(f"{where}: a page header cannot be read") from None
        if 4 not in fields and at == start:
            return False
        if 4 not in fields:
            raise DamagedError(f"{where}: pages with and without checksums")
        if fields.get(3, -1) < 0:
            raise DamagedError(f"{where}: a page of negative size")
        file.seek(at + length)
        data = file.read(fields[3])
        if len(data) != fields[3] or zlib.crc32(data) != fields[4] & 0xFFFFFFFF:
            raise DamagedError(f"{where}: a page does not match its checksum")
        at += length + fields[3]
    return True


def _page_header(data: bytes) -> tuple[int, dict[int, int]]:
    """Length of a page header and its integer fields (3 is the compressed size, 4 the checksum)."""
    fields: dict[int, int] = {}
    at, field = 0, 0
    while data[at] != _STOP:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            field += step
        else:
            number, at = _varint(data, at)
            field = number >> 1 ^ -(number & 1)
        if kind in (4, 5, 6):
            number, at = _varint(data, at)
            fields[field] = number >> 1 ^ -(number & 1)
        else:
            at = _skip(data, at, kind)
    return at + 1, fields


def _skip(data: bytes, at: int, kind: int) -> int:
    """Past one value of Thrift's compact protocol."""
    fixed = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
    if kind in fixed:
        return at + fixed[kind]
    if kind in (4, 5, 6):
        return _varint(data, at)[1]
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in (_LIST, _SET):
        many, inner = data[at] >> 4, data[at] & 15
        at += 1
        if many == 15:
            many, at = _varint(data, at)
        if many > len(data):
            raise ValueError("a list longer than the header")
        for _ in range(many):
            at = at + 1 if inner in (_TRUE, _FALSE) else _skip(data, at, inner)
        return at
    if kind == _STRUCT:
        while data[at] != _STOP:
            inner, step = data[at] & 15, data[at] >> 4
            at += 1
            if not step:
                _, at = _varint(data, at)
            at = _skip(data, at, inner)
        return at + 1
    raise ValueError(f"unknown kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")
