"""Read the records of any table one at a time: JSON Lines, a JSON list or object, CSV, Parquet; packed or not."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.ingest.contract import LogSource, refusal
from scorelake.ingest.json_stream import Watch, text_lines
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import quote

Record: TypeAlias = tuple[int, Any, dict[str, Any]]
"""Number of the line or row, key of the record where it has one, and the record."""


def read_records(
    source: LogSource, probe: FileProbe, columns: Collection[str], below: str | None, is_single: bool
) -> Iterator[Record]:
    """Yield the records of a table.

    Of Parquet, only `columns` are read; of a document, the records at the key `below`, if one is given. A document
    that is one object may be one record (`is_single`), like JSON Lines of one line.
    """
    if probe.shape == "parquet":
        yield from ((i, None, record) for i, record in enumerate(_read_parquet(probe.path, columns), 1))
    elif probe.shape == "text":
        yield from ((i, None, record) for i, record in enumerate(_read_csv(probe.path, source.watch), 1))
    elif probe.shape == "lines" or (probe.shape == "object" and is_single):
        yield from ((i, None, record) for i, record in source.lines())
    elif probe.shape in ("list", "object"):
        yield from _read_document(source, below)
    else:
        raise refusal(f"a {probe.shape} file", probe.path, "JSON Lines, JSON, CSV or Parquet can be mapped")


def _read_document(source: LogSource, below: str | None) -> Iterator[Record]:
    has_key = below is None
    for i, (key, name, value) in enumerate(source.members(*([below] if below else [])), 1):
        if below and key != below:
            continue
        has_key = True
        if not isinstance(value, dict):
            what = f"{quote(key or name)} holds {quote(value)}, not a record"
            raise refusal(what, source.file, "name the key of the records with --map records=KEY")
        yield i, name if isinstance(name, str) else None if below else key or None, value
    if not has_key:
        raise refusal(f"no key {below}", source.file)


def _read_parquet(path: Path, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
        names = [name for name in file.schema_arrow.names if name in columns]
        for batch in file.iter_batches(4096, columns=names, use_threads=False):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise refusal(f"a damaged Parquet file ({str(error).splitlines()[0]:.100})", path) from None


def _read_csv(path: Path, watch: Watch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV. The last line must end with a newline, since a truncated number is a number."""
    csv.field_size_limit(sys.maxsize)
    last = "\n"

    def read_lines() -> Iterator[str]:
        nonlocal last
        for _, last in text_lines(path, watch):
            yield last

    rows = read_lines()
    head = next(rows, "")
    try:
        separator = max(",\t;", key=head.count)
        header = next(csv.reader([head], delimiter=separator, strict=True), [])
        if len(set(header)) != len(header) or not all(header):
            raise refusal(f"the first line has empty or repeated column names: {quote(header)}", path)
        for i, cells in enumerate(csv.reader(rows, delimiter=separator, strict=True), 2):
            if cells and len(cells) != len(header):
                raise refusal(f"row {i:,} has {len(cells)} cells, the first line {len(header)}", path)
            if cells:
                yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise refusal(f"broken CSV: {error}", path) from None
    if not last.endswith("\n"):
        hint = "append a newline if the file is complete"
        raise refusal("the last line has no end, so the file may be truncated", path, hint)
