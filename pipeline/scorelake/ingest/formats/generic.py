"""Any table of attempts, with --map to name its columns: passed=correct, problem_id=task.id, passed=pred==answer."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.contract import MEASURES, AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.json_stream import FileProbe, probe, text_lines
from scorelake.ingest.values import quote, to_answer, to_number, to_verdict
from scorelake.settings import RESERVED

FIELDS = ("problem_id", "attempt", "answer", "subject", "benchmark", "model")
OUTCOMES = ("passed", "score")
PROTOCOL = ("temperature", "grader", "setup")
COUNTS = ("n", "c")
RECORDS = "records"
"""Maps the key of a document at which the records are."""
TAKEN = {"value", "error", "protocol", "source", "run", "format", "tool", "provenance", *RESERVED} - {
    *(*FIELDS, *OUTCOMES, *COUNTS)
}
"""Names that a carried column cannot have."""
MAX_COUNT = 1_000_000
"""Maximum number of attempts in a row of counts."""
CELLS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
"""Verdicts in a CSV, where everything is text."""
Record: TypeAlias = tuple[int, Any, dict[str, Any]]
"""Number of the line or row, key of the record where it has one, and the record."""
_MISSING = object()


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    given = dict(options.map)
    run.run_id = source.tag
    below = given.pop(RECORDS, None)
    mapping = {name: name for name in (*FIELDS, *OUTCOMES)} | given
    parts = [part for theirs in mapping.values() for part in theirs.split("==")]
    columns = {*parts, *(part.partition(".")[0] for part in parts)}
    seen = probe(source.file)
    is_flat = not any(isinstance(value, dict | list) for value in seen.first.values())
    is_single = is_flat or get_path(seen.first, mapping["problem_id"]) is not _MISSING
    is_text = seen.shape == "text"
    others = (*FIELDS, *OUTCOMES, *COUNTS, *PROTOCOL, *MEASURES)
    carried = [name for name in mapping if name not in others]

    for n_read, (i, key, record) in enumerate(_read_records(source, seen, columns, below, is_single)):
        if not n_read:
            _check_mapping(record, key, given, options, source.file)
            has_verdicts = bool(given.keys() & {"passed", "n"}) or get_path(record, "passed") is not _MISSING
            run.outcome = "passed" if has_verdicts else "score"
        cells = {name: get_path(record, path) for name, path in mapping.items()}
        cells = {name: None if cell is _MISSING or (cell == "" and is_text) else cell for name, cell in cells.items()}
        fields = {name: cells[name] for name in FIELDS}
        fields["problem_id"] = key if fields["problem_id"] is None else fields["problem_id"]
        fields["attempt"] = f"{source.tag}:{i}" if fields["attempt"] is None else fields["attempt"]
        if fields["problem_id"] is None:
            hint = "name it with --map problem_id=..."
            raise DataError(f"record {i:,} has no {mapping['problem_id']}", hint=hint)
        where = f"record {i:,}"
        row = AttemptRow(
            **fields,
            value=None if "n" in cells else _to_value(record, mapping[run.outcome], where, run, is_text),
            protocol={name: cells[name] for name in PROTOCOL if name in cells} or None,
            measures={name: _to_float(cells[name], f"{where}: {name}", is_text) for name in MEASURES if name in cells}
            or None,
            carried={name: cells[name] for name in carried} or None,
        )
        yield from _expand(row, cells["n"], cells["c"]) if "n" in cells else (row,)


def _to_value(record: dict[str, Any], path: str, where: str, run: RunInfo, is_text: bool) -> float | None:
    """Convert the verdict or reward at a path, or compare the values of LEFT==RIGHT."""
    left, is_comparison, right = path.partition("==")
    value, true = get_path(record, left), run.options.true
    if value is _MISSING:
        raise DataError(f"{where} has no {left}")
    where = f"{where}: {left}"
    if is_comparison:
        other = get_path(record, right)
        is_ungraded = value in (None, "") or other in (None, _MISSING) or (other == "" and is_text)
        return None if is_ungraded else _compare(value, other, where)
    if is_text and value == "":
        return None
    if run.outcome == "score":
        return to_number(_to_float(value, where, is_text), where)
    return to_verdict(CELLS.get(value.lower(), value) if is_text and not true else value, where, true)


def _to_float(value: Any, where: str, is_text: bool) -> Any:
    try:
        return float(value) if is_text and value is not None else value
    except ValueError:
        raise DataError(f"{where} is {quote(value)}, which is not a number") from None


def _check_mapping(
    record: dict[str, Any], key: Any, given: dict[str, str], options: IngestOptions, path: Path
) -> None:
    """Refuse everything that is wrong with the mapping at once.

    A mapping to a key that the first record does not have is a mistake, not a column of nulls.
    """
    parts = [(name, part) for name, theirs in given.items() for part in theirs.split("==")]
    wrong = [f"no key {part} for {name}" for name, part in parts if get_path(record, part) is _MISSING]
    wrong += ["n and c must be mapped together"] if len({*COUNTS} & given.keys()) == 1 else []
    wrong += [
        f"{name} is a column of scorelake: carry yours under another name" for name in sorted(given.keys() & TAKEN)
    ]
    missing = {name for name in (*FIELDS, *OUTCOMES) if name not in given and get_path(record, name) is _MISSING}
    needed = {} if key is not None else {"problem_id": "--map problem_id=..."}
    needed |= {name: f"--{name}" for name in ("benchmark", "model") if options.fixed_name(name) is None}
    wrong += [f"no {name}" for name in needed if name in missing]
    hints = [hint for name, hint in needed.items() if name in missing]
    if "n" not in given and missing >= {*OUTCOMES}:
        wrong.append("neither passed nor score")
        hints.insert(0, "--map passed=... or --map score=...")
    if wrong:
        keys = pq.read_schema(path).names if probe(path).shape == "parquet" else list(record)
        give = f"give {', '.join(hints)}; " if hints else ""
        raise refusal("; ".join(wrong), path, f"{give}the first record has: {', '.join(keys[:20])}")


def get_path(record: Any, path: str) -> Any:
    """Return the value at a dotted path; a key that contains the dots itself has precedence."""
    if not isinstance(record, dict):
        return _MISSING
    if path in record or "." not in path:
        return record.get(path, _MISSING)
    head, _, rest = path.partition(".")
    return get_path(record.get(head), rest)


def _compare(value: Any, other: Any, where: str) -> float:
    """Compare by value: 18, 18.0 and "18" are equal. A list is never equal to a text, so it is refused."""
    if isinstance(value, list | dict) != isinstance(other, list | dict):
        raise DataError(f"{where} compares {quote(value)} with {quote(other)}", hint="map keys of the same type")
    if isinstance(value, str) != isinstance(other, str):
        value, other = (
            str(int(x)) if isinstance(x, float) and x.is_integer() else to_answer(x) for x in (value, other)
        )
    return float(value == other)


def _expand(row: AttemptRow, *counts: Any) -> Iterator[AttemptRow]:
    """Expand a row of counts to n attempts of which c passed."""
    try:
        n, c = (-1.0 if isinstance(count, bool) else float(str(count)) for count in counts)
    except ValueError:
        n = c = -1.0
    if not (0 <= c <= n <= MAX_COUNT and n.is_integer() and c.is_integer()):
        hint = f"whole numbers with 0 <= c <= n <= {MAX_COUNT:,}"
        raise DataError(f"n is {quote(counts[0])} and c is {quote(counts[1])}", hint=hint)
    for j in range(int(n)):
        yield row._replace(attempt=f"{row.attempt}.{j}", value=float(j < c))


def _read_records(
    source: LogSource, probe: FileProbe, columns: Collection[str], below: str | None, is_single: bool
) -> Iterator[Record]:
    """Yield the records of a table: of Parquet, only `columns`; of a document, those at the key `below`, if given.

    A document that is one object may be one record (`is_single`), like JSON Lines of one line.
    """
    if probe.shape in ("parquet", "text"):
        rows = _read_parquet(probe.path, columns) if probe.shape == "parquet" else _read_csv(probe.path)
        yield from ((i, None, record) for i, record in enumerate(rows, 1))
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


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV. The last line must end with a newline, since a truncated number is a number."""
    csv.field_size_limit(sys.maxsize)
    last = "\n"

    def read_lines() -> Iterator[str]:
        nonlocal last
        for _, last in text_lines(path):
            yield last

    rows = read_lines()
    head = next(rows, "")
    try:
        reader = csv.reader(chain([head], rows), delimiter=max(",\t;", key=head.count), strict=True)
        header = next(reader, [])
        if len(set(header)) != len(header) or not all(header):
            raise refusal(f"the first line has empty or repeated column names: {quote(header)}", path)
        for i, cells in enumerate(filter(None, reader), 2):
            if len(cells) != len(header):
                raise refusal(f"row {i:,} has {len(cells)} cells, the first line {len(header)}", path)
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise refusal(f"broken CSV: {error}", path) from None
    if not last.endswith("\n"):
        hint = "append a newline if the file is complete"
        raise refusal("the last line has no end, so the file may be truncated", path, hint)


FORMAT = LogFormat("generic", "passed", "ungraded", lambda probe: False, read)
