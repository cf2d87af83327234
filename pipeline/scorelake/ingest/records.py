"""Records of any table: JSON Lines, a JSON list or object, CSV, Parquet; packed or not, one at a time."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.ingest.contract import refuse
from scorelake.ingest.documents import lines, members, texts
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import shown

Record = tuple[int, Any, dict[str, Any]]
"""Number of the line or row, key of the record where it has one, and the record."""


def records(sight: Sight, wanted: Collection[str], below: str | None, single: bool) -> Iterator[Record]:
    """Of Parquet only the wanted columns; of a document what is below a key, where one is named.

    A document that is one object may be one record (`single`), as JSON Lines of one line are.
    """
    path = sight.path
    if sight.shape == "parquet":
        yield from ((i, None, record) for i, record in enumerate(_parquet(path, wanted), 1))
    elif sight.shape == "text":
        yield from ((i, None, record) for i, record in enumerate(_csv(path), 1))
    elif sight.shape == "lines" or (sight.shape == "object" and single):
        yield from ((i, None, record) for i, record in lines(path))
    elif sight.shape in ("list", "object"):
        yield from _document(path, below)
    else:
        raise refuse(f"a {sight.shape} file", path, "JSON Lines, JSON, CSV or Parquet can be mapped")


def _document(path: Path, below: str | None) -> Iterator[Record]:
    seen = below is None
    for i, (key, inside, value) in enumerate(members(path, (below,) if below else ()), 1):
        if below and key != below:
            continue
        seen = True
        if not isinstance(value, dict):
            what = f"{shown(key or inside)} holds {shown(value)}, not a record"
            raise refuse(what, path, "say where the records are with --map records=KEY")
        yield i, inside if isinstance(inside, str) else None if below else key or None, value
    if not seen:
        raise refuse(f"no key {below}", path)


def _parquet(path: Path, wanted: Collection[str]) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
        columns = [column for column in file.schema_arrow.names if column in wanted]
        for batch in file.iter_batches(4096, columns=columns, use_threads=False):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise refuse(f"a damaged Parquet file ({str(error).splitlines()[0]:.100})", path) from None


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a CSV. Its last line must be ended: of one that is cut, nobody can tell that something is missing."""
    csv.field_size_limit(sys.maxsize)
    ended = [True]

    def whole() -> Iterator[str]:
        for _, text in texts(path):
            ended[0] = text.endswith("\n")
            yield text

    rows = whole()
    head = next(rows, "")
    try:
        sign = max(",\t;", key=head.count)
        header = next(csv.reader([head], delimiter=sign, strict=True), [])
        if len(set(header)) != len(header) or not all(header):
            raise refuse(f"the first line names no columns, or one twice: {shown(header)}", path)
        for i, cells in enumerate(csv.reader(rows, delimiter=sign, strict=True), 2):
            if cells and len(cells) != len(header):
                raise refuse(f"row {i:,} has {len(cells)} cells, the first line {len(header)}", path)
            if cells:
                yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise refuse(f"broken CSV: {error}", path) from None
    if not ended[0]:
        raise refuse("the last line has no end, so the file may be cut", path, "end it with a newline if it is whole")
