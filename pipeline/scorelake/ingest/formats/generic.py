"""Any table of attempts, with --map to name its columns: passed=correct, problem_id=task.id, passed=pred==answer.

A key may be dotted or have an index (tries[-1]). `score[]` is a list with an entry per attempt, `path[-2]` a name in
the path, `parent.task` a key of the document around the records, and `value` a record that is no object.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.archives import Reading, open_unpacked, read_parquet, too_long
from scorelake.ingest.contract import MEASURES, AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, probe
from scorelake.ingest.json_stream import members as json_members
from scorelake.ingest.values import quote, to_answer, to_number, to_verdict
from scorelake.settings import RESERVED

FIELDS = ("problem_id", "attempt", "answer", "subject", "benchmark", "model")
OUTCOMES = ("passed", "score")
PROTOCOL = ("temperature", "grader", "setup")
COUNTS = ("n", "c", "rate")
RECORDS = "records"
"""Maps the key of a document at which the records are."""
TAKEN = {"value", "error", "protocol", "source", "run", "format", "tool", "provenance", *RESERVED}
TAKEN -= {*FIELDS, *OUTCOMES, *COUNTS}
"""Names that a carried column cannot have."""
MAX_COUNT = 1_000_000
"""Maximum number of attempts in a row of counts."""
CELLS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
"""Verdicts in a CSV, where everything is text."""
Record: TypeAlias = tuple[int, Any, dict[str, Any]]
"""Number of the line or row, key of the record where it has one, and the record."""
_MISSING = object()


def read(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id = run.tag
    members = probe(run.file).members
    for path in [run.file / name for name in sorted(members)] or run.files:
        relative = "" if path == run.path else f"{os.path.relpath(path, run.path)}:"
        try:
            yield from _read_file(run, path, f"{run.tag}:{relative}", dict(run.options.map))
        except DataError as error:
            raise refusal(error.what, error.where or path, error.hint) if relative else error from None


def _read_file(run: LogRun, path: Path, prefix: str, given: dict[str, str]) -> Iterator[AttemptRow]:
    """Yield the attempts of one file; those without an id are called `prefix` and the number of the record."""
    below = given.pop(RECORDS, None)
    mapping = {name: name for name in (*FIELDS, *OUTCOMES)} | given
    keys = [key for theirs in mapping.values() for key in theirs.split("==")]
    lists = {key for key in keys if key.endswith("[]")}
    seen = probe(path)
    names = _names_in_path(path, keys) | ({"parent": seen.first} if below else {})
    is_flat = not any(isinstance(value, dict | list) for value in seen.first.values())
    has_problem = get_path(seen.first | names, mapping["problem_id"]) is not _MISSING
    records = _read_records(run, seen, keys, below, is_single=below is None and (is_flat or has_problem))
    is_text = seen.shape == "text"
    others = (*FIELDS, *OUTCOMES, *COUNTS, *PROTOCOL, *MEASURES)
    carried = [name for name in mapping if name not in others]

    for n_read, (i, key, whole, j, record) in enumerate(_expand_lists(records, names, lists)):
        where = f"record {i:,}"
        if not n_read:
            _check_mapping(record, list(whole), key, given, run, path)
            has_verdicts = bool(given.keys() & {"passed", "n"}) or get_path(record, "passed") is not _MISSING
            run.outcome = "passed" if has_verdicts else "score"
        cells = {name: get_path(record, theirs) for name, theirs in mapping.items()}
        cells = {name: None if cell is _MISSING or (cell == "" and is_text) else cell for name, cell in cells.items()}
        problem = key if cells["problem_id"] is None else cells["problem_id"]
        if problem is None:
            raise DataError(f"{where} has no {mapping['problem_id']}", hint="name it with --map problem_id=...")
        attempt = f"{prefix}{i}" if cells["attempt"] is None else cells["attempt"]
        row = AttemptRow(
            problem,
            attempt if j is None or mapping["attempt"] in lists else f"{attempt}.{j}",
            None if "n" in cells else _to_value(record, mapping[run.outcome], where, run, is_text),
            **{name: cells[name] for name in ("answer", "subject", "benchmark", "model")},
            protocol={name: cells[name] for name in PROTOCOL if name in cells},
            measures={
                name: _to_float(cells[name], f"{where}: {name}", is_text) for name in MEASURES if name in cells
            },
            carried={name: cells[name] for name in carried},
        )
        yield from _expand_counts(row, cells) if "n" in cells else (row,)


def _names_in_path(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Return the names for path[-1], which is the name of the file without its suffixes, path[-2] and so on."""
    parts = [*path.absolute().parts[1:-1], path.name.split(".")[0] or path.name]
    out = {}
    for key in keys:
        if key.startswith("path["):
            position = re.fullmatch(r"path\[-([1-9]\d*)\]", key)
            if position is None or int(position[1]) > len(parts):
                raise DataError(f"{key} is no name of the path", hint="path[-1] is the file, path[-2] its folder")
            out[key] = parts[-int(position[1])]
    return out


def _expand_lists(
    records: Iterator[Record], names: dict[str, Any], lists: Collection[str]
) -> Iterator[tuple[int, Any, dict[str, Any], int | None, dict[str, Any]]]:
    """Yield every record with the names added, once for each entry of its lists; the index is None without lists."""
    for i, key, whole in records:
        record = whole | names
        entries = {name: get_path(record, name.removesuffix("[]")) for name in lists}
        for name, values in entries.items():
            if not isinstance(values, list):
                what = "no list" if values is _MISSING else f"{quote(values)}, not a list,"
                raise DataError(f"record {i:,} has {what} at {name}")
        if len({len(values) for values in entries.values()}) > 1:
            lengths = ", ".join(f"{len(values)} at {name}" for name, values in sorted(entries.items()))
            raise DataError(f"record {i:,} has lists of different lengths: {lengths}")
        if not entries:
            yield i, key, whole, None, record
        for j in range(len(next(iter(entries.values()), []))):
            yield i, key, whole, j, record | {name: values[j] for name, values in entries.items()}


def _to_value(record: dict[str, Any], path: str, where: str, run: LogRun, is_text: bool) -> float | None:
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
    is_cell = is_text and isinstance(value, str) and not true
    return to_verdict(CELLS.get(value.lower(), value) if is_cell else value, where, true)


def _to_float(value: Any, where: str, is_text: bool) -> Any:
    try:
        return float(value) if is_text and value is not None else value
    except ValueError:
        raise DataError(f"{where} is {quote(value)}, which is not a number") from None


def _check_mapping(
    record: dict[str, Any], keys: list[str], key: Any, given: dict[str, str], run: LogRun, path: Path
) -> None:
    """Refuse everything that is wrong with the mapping at once.

    A mapping to a key that the first record does not have is a mistake, not a column of nulls.
    """
    parts = [(name, part) for name, theirs in given.items() for part in theirs.split("==")]
    wrong = [f"no key {part} for {name}" for name, part in parts if get_path(record, part) is _MISSING]
    if given.keys() & {*COUNTS} and ("n" not in given or ("c" in given) == ("rate" in given)):
        wrong.append("n must be mapped together with c or rate")
    taken = sorted(given.keys() & TAKEN)
    wrong += [f"{name} is a column of scorelake: carry yours under another name" for name in taken]
    missing = {name for name in (*FIELDS, *OUTCOMES) if name not in given and get_path(record, name) is _MISSING}
    needed = {} if key is not None else {"problem_id": "--map problem_id=..."}
    needed |= {name: f"--{name}" for name in ("benchmark", "model") if run.options.fixed_name(name) is None}
    wrong += [f"no {name}" for name in needed if name in missing]
    hints = [hint for name, hint in needed.items() if name in missing]
    if "n" not in given and missing >= {*OUTCOMES}:
        wrong.append("neither passed nor score")
        hints.insert(0, "--map passed=... or --map score=...")
    if wrong:
        keys = pq.read_schema(path).names if probe(path).shape == "parquet" else keys
        give = f"give {', '.join(hints)}; " if hints else ""
        raise refusal("; ".join(wrong), path, f"{give}the first record has: {', '.join(keys[:20])}")


def get_path(record: Any, path: str) -> Any:
    """Return the value at a dotted path, in which tries[-1] is the last of a list.

    A key that contains the dots or brackets itself has precedence.
    """
    if isinstance(record, dict) and path in record:
        return record[path]
    if indexed := re.fullmatch(r"(.+)\[(-?\d+)\]", path):
        values, i = get_path(record, indexed[1]), int(indexed[2])
        return values[i] if isinstance(values, list) and -len(values) <= i < len(values) else _MISSING
    head, _, rest = path.partition(".")
    return get_path(get_path(record, head), rest) if rest else _MISSING


def _compare(value: Any, other: Any, where: str) -> float:
    """Compare by value: 18, 18.0 and "18" are equal. A list is never equal to a text, so it is refused."""
    if isinstance(value, list | dict) != isinstance(other, list | dict):
        raise DataError(f"{where} compares {quote(value)} with {quote(other)}", hint="map keys of the same type")
    if isinstance(value, str) == isinstance(other, str):
        return float(value == other)
    texts = (str(int(each)) if isinstance(each, float) and each.is_integer() else each for each in (value, other))
    return float(len({to_answer(text) for text in texts}) == 1)


def _expand_counts(row: AttemptRow, cells: dict[str, Any]) -> Iterator[AttemptRow]:
    """Expand a row of counts to n attempts of which c passed, or the share `rate`."""
    name = "c" if "c" in cells else "rate"
    counts = cells["n"], cells[name]
    try:
        n, c = (-1.0 if isinstance(count, bool) else float(str(count)) for count in counts)
    except ValueError:
        n = c = -1.0
    if name == "rate" and abs(n * c - round(n * c, 0)) < 1e-6 * max(1.0, n):
        c = round(n * c, 0)  # a share that was rounded is refused: the number of passes is not known
    if not (0 <= c <= n <= MAX_COUNT and n.is_integer() and c.is_integer()):
        hint = f"whole numbers with 0 <= c <= n <= {MAX_COUNT:,}"
        raise DataError(f"n is {quote(counts[0])} and {name} is {quote(counts[1])}", hint=hint)
    for j in range(int(n)):
        yield row._replace(attempt=f"{row.attempt}.{j}", value=float(j < c))


def _read_records(
    run: LogRun, probe: FileProbe, keys: Collection[str], below: str | None, is_single: bool
) -> Iterator[Record]:
    """Yield the records of a table: of Parquet, only the keys; of a document, those at the key `below`, if given.

    A document that is one object may be one record (`is_single`), like JSON Lines of one line.
    """
    path, shape = probe.path, probe.shape
    if shape == "parquet":
        columns = {*keys, *(re.split(r"[.\[]", key)[0] for key in keys)}
        yield from ((i, None, record) for i, record in enumerate(read_parquet(path, columns), 1))
    elif shape == "text":
        yield from ((i, None, record) for i, record in enumerate(_read_text(path, run.reading), 1))
    elif shape == "lines" or (shape == "object" and is_single):
        yield from ((i, None, record) for i, record in run.lines(path))
    elif shape in ("list", "object"):
        yield from _read_document(run, path, below, any(key.startswith("value") for key in keys))
    else:
        raise refusal(f"a {shape} file", path, "JSON Lines, JSON, CSV or Parquet can be mapped")


def _read_document(run: LogRun, path: Path, below: str | None, has_values: bool) -> Iterator[Record]:
    has_key = below is None
    members = json_members(path, [below] if below else [], reading=run.reading)
    for i, (key, name, value) in enumerate(members, 1):
        if below and key != below:
            continue
        has_key = True
        if not isinstance(value, dict) and not has_values:
            what = f"{quote(key or name)} holds {quote(value)}, not a record"
            raise refusal(what, path, "name the key of the records with --map records=KEY")
        record = value if isinstance(value, dict) else {"value": value}
        yield i, name if isinstance(name, str) else None if below else key or None, record
    if not has_key:
        raise refusal(f"no key {below}", path)


def _read_text(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV, or the number or verdict that is all of the file as `value`."""
    with open_unpacked(path) as file:
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


FORMAT = LogFormat("generic", "passed", "ungraded", lambda probe: False, read)
