"""A Parquet footer, read by ourselves: a damaged one must be an error, and libraries may abort the process on it.

Only what the job needs: rows, column chunks, and the statistics of whole chunks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from scorelake import thrift

BOOLEAN, INT32, INT64, DOUBLE, BYTE_ARRAY = 0, 1, 2, 5, 6
"""Physical types that are told apart here."""
_REQUIRED, _OPTIONAL = 0, 1
_MAGIC = b"PAR1"
Leaf: TypeAlias = tuple[tuple[bytes, ...], int, bool | None]


class FooterError(Exception):
    """Not a Parquet footer."""


class DamagedError(Exception):
    """Bytes that are not those that were written."""


@dataclass(frozen=True)
class Chunk:
    """One column of one row group: where its pages are, and what is known of its values."""

    group: int
    rows: int
    name: str
    """The top-level column."""
    kind: int
    codec: int
    optional: bool | None
    """Whether values may be missing; None for a nested column."""
    start: int
    size: int
    low: bytes | None
    high: bytes | None
    nulls: int | None


@dataclass(frozen=True)
class Footer:
    rows: int
    groups: int
    chunks: tuple[Chunk, ...]
    schema: bytes
    """The same for files whose columns have the same names and types, whoever is asked for them."""

    def of(self, name: str) -> list[Chunk]:
        """The chunks of one column, a nested one's leaves included."""
        return [chunk for chunk in self.chunks if chunk.name == name]


def read(path: str) -> Footer:
    """The footer of a file; FooterError for anything else, DamagedError for one that contradicts itself."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if size < 12 or tail[4:] != _MAGIC or length > size - 12:
            raise FooterError("no Parquet footer at its end")
        file.seek(size - 8 - length)
        data = file.read(length)
    try:
        told, _ = thrift.struct(data, 0)
        return _footer(told)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise FooterError(f"its footer cannot be read ({type(error).__name__})") from None


def _footer(told: dict[int, Any]) -> Footer:
    """Names and types are told twice, in the schema and with each chunk; where they differ, the footer is damaged."""
    leaves = list(_leaves(iter(told[2])))
    chunks = []
    for i, group in enumerate(told.get(4, [])):
        if len(group[1]) != len(leaves):
            raise DamagedError(f"row group {i} has {len(group[1])} columns, the schema {len(leaves)}")
        for j, (column, (path, kind, optional)) in enumerate(zip(group[1], leaves, strict=True)):
            meta = column[3]
            if (tuple(meta[3]), meta[1]) != (path, kind):
                raise DamagedError(f"the footer describes column {j} twice, and differently")
            known = meta.get(12, {})
            start = min(at for at in (meta.get(11), meta[9]) if at)
            ends = known.get(6), known.get(5), known.get(3)
            chunks.append(Chunk(i, group[3], path[0].decode(), kind, meta[4], optional, start, meta[7], *ends))
    if sum(group[3] for group in told.get(4, [])) != told[3]:
        raise DamagedError("the footer's numbers of rows do not add up")
    # with what Arrow's writers say of their own types; what others say may be of this file alone
    typed = [pair.get(2) for pair in told.get(5, []) if pair.get(1) == b"ARROW:schema"]
    columns = hashlib.sha256(repr((told[2], typed)).encode()).digest()
    return Footer(told[3], len(told.get(4, [])), tuple(chunks), columns)


def _leaves(elements: Iterator[dict[int, Any]]) -> Iterator[Leaf]:
    """Path, physical type and optionality of every leaf of the schema, which is a list in depth-first order."""

    def below(path: tuple[bytes, ...], children: int) -> Iterator[Leaf]:
        for _ in range(children):
            element = next(elements, None)
            if element is None:
                raise DamagedError("the schema breaks off")
            here = (*path, element[4])
            if 5 in element:
                yield from below(here, element[5])
            else:
                flat = len(here) == 1 and element[3] in (_REQUIRED, _OPTIONAL)
                yield here, element[1], element[3] == _OPTIONAL if flat else None

    return below((), next(elements)[5])
