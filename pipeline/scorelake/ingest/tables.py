"""Read the rows of Parquet and CSV files one at a time."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.archives import Reading, archive_errors, open_unpacked, too_long
from scorelake.ingest.values import quote


def read_parquet(path: Path, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file with these columns, where it has them."""
    with archive_errors(path), pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
        names = [name for name in file.schema_arrow.names if name in columns]
        for batch in file.iter_batches(64, columns=names, use_threads=False):  # texts of 1 MB may compress to nothing
            yield from batch.to_pylist()


def read_text(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV, or the number or verdict that is all of the file as `value`."""
    with open_unpacked(path, Reading()) as file:
        text = file.read(40)
    try:
        value = json.loads(text.decode("utf-8-sig").strip().lower()) if len(text) < 40 else None
    except ValueError:
        value = None
    yield from [{"value": value}] if isinstance(value, bool | int | float) else _read_csv(path, reading)


def _read_csv(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV. The last line must end with a newline, since a truncated number is a number."""
    csv.field_size_limit(sys.maxsize)  # a row is limited below: one with line breaks in quotes is read line by line
    last, length = "\n", 0

    def read_lines() -> Iterator[str]:
        nonlocal last, length
        with open_unpacked(path, reading) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            while last_read := text.readline(reading.max_record - length):
                last, length = last_read, length + len(last_read)
                if length >= reading.max_record:
                    raise too_long("one row", reading.max_record, path)
                yield last

    rows = read_lines()
    head = next(rows, "")
    try:
        reader = csv.reader(chain([head], rows), delimiter=max(",\t;", key=head.count), strict=True)
        header = next(reader, [])
        if len(set(header)) != len(header) or not all(header):
            raise DataError(f"the first line has empty or repeated column names: {quote(header)}", where=str(path))
        for i, cells in enumerate(filter(None, reader), 2):
            length = 0
            if len(cells) != len(header):
                raise DataError(f"row {i:,} has {len(cells)} cells, the first line {len(header)}", where=str(path))
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"broken CSV: {error}", where=str(path)) from None
    if not last.endswith("\n"):
        hint = "append a newline if the file is complete"
        raise DataError("the last line has no end, so the file may be truncated", where=str(path), hint=hint)
