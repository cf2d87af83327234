"""Any table of attempts: JSON Lines, JSON, CSV, Parquet, or a zip of one of these, with --map saying what is what."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.contract import Attempt, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import lines, members, texts
from scorelake.ingest.sight import Sight, look
from scorelake.ingest.values import name, number, shown, verdict
from scorelake.settings import RESERVED

OURS = ("model", "benchmark", "subject", "problem_id", "attempt", "passed", "score", "answer")
PROTOCOL = ("temperature", "grader", "setup")
COUNTS = ("n", "c")
RECORDS = "records"
"""The key of a document below which the records are."""
TAKEN = {"value", "error", "protocol", "source", "run", "format", "tool", *RESERVED} - {*OURS, *COUNTS}
"""Names that a carried column cannot have."""
MOST = 1_000_000
"""Attempts of one problem told as counts."""
TRUE, FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
"""What a cell of a CSV, where everything is a text, takes for a verdict."""
_NOTHING = object()


def detect(sight: Sight) -> bool:
    return False


def read(source: Source, options: Options) -> Log:
    sight = look(source.file)
    mapped = {key: key for key in OURS} | options.mapped
    if len({*COUNTS} & mapped.keys()) == 1:
        raise refuse("n and c go together", source.path, "--map n=... --map c=...")
    taken = sorted(set(options.mapped) & TAKEN)
    if taken:
        raise refuse(f"{taken[0]} is a column of our own", source.path, "carry theirs under another name")
    log = Log([], "passed", "ungraded", run=source.tag)
    log.rows = _attempts(source, options, log, mapped, _records(source.file, sight, options))
    return log


def _records(path: Path, sight: Sight, options: Options) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """(number, key, record) of whatever it is."""
    below = options.mapped.get(RECORDS)
    if sight.shape == "parquet":
        yield from ((i, None, record) for i, record in enumerate(_parquet(path, options), 1))
    elif sight.shape == "text":
        yield from ((i, None, record) for i, record in enumerate(_csv(path), 1))
    elif sight.shape == "lines" or (sight.shape == "object" and "problem_id" in _found(sight, options)):
        yield from ((i, None, record) for i, record in lines(path))
    elif sight.shape in ("list", "object"):
        for i, (key, inside, value) in enumerate(members(path, (below,) if below else ()), 1):
            if below and key != below:
                continue
            if not isinstance(value, dict):
                raise refuse(
                    f"{shown(key or inside)} holds {shown(value)}, not a record",
                    path,
                    "say where they are: --map records=KEY",
                )
            yield i, (inside if below and isinstance(inside, str) else key or None), value
    else:
        raise refuse(f"a {sight.shape} file", path, "JSON Lines, JSON, CSV or Parquet can be mapped")


def _found(sight: Sight, options: Options) -> set[str]:
    """Which of the mapped things are in the first record."""
    mapped = {"problem_id": "problem_id"} | options.mapped
    return {key for key, path in mapped.items() if _at(sight.first, path) is not _NOTHING}


def _at(record: Any, path: str) -> Any:
    """The value at a dotted path; a key that has dots itself comes first."""
    if isinstance(record, dict) and path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    if dot and isinstance(record, dict) and head in record:
        return _at(record[head], rest)
    return _NOTHING


def _attempts(
    source: Source, options: Options, log: Log, mapped: dict[str, str], records: Iterator[tuple[int, Any, Any]]
) -> Iterator[Attempt]:
    path, told = source.path, options.mapped
    typed = look(source.file).shape != "text"
    missing = {key: where for key, where in told.items() if key != RECORDS}
    for i, key, record in records:
        if i == 1:
            _refuse_missing(record, missing, path)
            log.kind = (
                "passed" if any(each in told or _has(record, mapped, each) for each in ("passed", "n")) else "score"
            )
        yield from _rows(i, key, record, mapped, Cells(options, typed, log.kind, source.tag))


def _refuse_missing(record: dict[str, Any], told: dict[str, str], path: Path) -> None:
    """A mapping that leads nowhere in the first record is a mistake, not a column of nulls."""
    for key, where in told.items():
        for one in where.split("=="):
            if _at(record, one) is _NOTHING:
                raise refuse(f"no key {one} for {key}", path, f"the first record has: {', '.join(list(record)[:20])}")


def _has(record: Any, mapped: dict[str, str], key: str) -> bool:
    return key in mapped and _at(record, mapped[key]) is not _NOTHING


class Cells:
    """How values of a record are taken."""

    def __init__(self, options: Options, typed: bool, kind: str, tag: str) -> None:
        self.true, self.typed, self.kind, self.tag = options.true, typed, kind, tag
        self.extra = [key for key in options.mapped if key not in (*OURS, *COUNTS, RECORDS, *PROTOCOL)]
        self.protocol = [key for key in options.mapped if key in PROTOCOL]

    def verdict(self, value: Any, what: str) -> float | None:
        if not self.typed and not self.true and isinstance(value, str):
            value = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}.get(value.lower(), value)
        return verdict(value, what, self.true)

    def number(self, value: Any, what: str) -> float | None:
        if not self.typed and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise DataError(f"{what} is {shown(value)}, which is no number") from None
        return number(value, what)


def _rows(i: int, key: Any, record: dict[str, Any], mapped: dict[str, str], cells: Cells) -> Iterator[Attempt]:
    def get(what: str) -> Any:
        value = _at(record, mapped[what]) if what in mapped else None
        return None if value is _NOTHING or (value == "" and not cells.typed) else value

    problem = get("problem_id")
    problem = key if problem is None else problem
    if problem is None:
        raise DataError(f"record {i:,} has no {mapped['problem_id']}", hint="name it with --map problem_id=...")
    base = Attempt(
        problem,
        str(i) if get("attempt") is None else name(get("attempt"), "attempt"),
        None,
        answer=get("answer"),
        subject=get("subject"),
        benchmark=get("benchmark"),
        model=get("model"),
        protocol={what: get(what) for what in cells.protocol} or None,
        carried={what: get(what) for what in cells.extra} or None,
    )
    if get("attempt") is None:
        base = base.but(attempt=f"{cells.tag}:{i}")
    if "n" in mapped:
        yield from _expanded(base, get("n"), get("c"))
        return
    value = _outcome(record, get, mapped, cells, i)
    yield base.but(value=value, error=value is None)


def _outcome(record: dict[str, Any], get: Any, mapped: dict[str, str], cells: Cells, i: int) -> float | None:
    if cells.kind == "score":
        if _at(record, mapped["score"]) is _NOTHING:
            raise DataError(
                f"record {i:,} has neither passed nor score", hint="name one with --map passed=... or --map score=..."
            )
        return cells.number(get("score"), f"record {i:,}: {mapped['score']}")
    left, equal, right = mapped["passed"].partition("==")
    if equal:
        one, two = _at(record, left), _at(record, right)
        return None if _nothing(one) or _nothing(two) else float(one == two)
    if _at(record, left) is _NOTHING:
        raise DataError(f"record {i:,} has no {left}")
    return cells.verdict(get("passed"), f"record {i:,}: {left}")


def _nothing(value: Any) -> bool:
    return value is _NOTHING or value is None or value == ""


def _expanded(base: Attempt, n: Any, c: Any) -> Iterator[Attempt]:
    """n attempts of which c passed, from a table of counts."""
    many, right = (int(float(str(value))) if _whole(value) else -1 for value in (n, c))
    if not 0 <= right <= many <= MOST:
        raise DataError(f"n is {shown(n)} and c is {shown(c)}", hint=f"whole numbers with 0 <= c <= n <= {MOST:,}")
    for j in range(many):
        yield base.but(attempt=f"{base.attempt}.{j}", value=float(j < right))


def _whole(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and float(str(value)).is_integer()
    except ValueError:
        return False


def _parquet(path: Path, options: Options) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
        wanted = {
            *OURS,
            *(part.split(".")[0] for told in options.mapped.values() for part in told.split("==")),
            *options.mapped.values(),
        }
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

    try:
        rows = whole()
        head = next(rows, "")
        sign = max(",\t;", key=head.count)
        header = next(csv.reader([head], delimiter=sign, strict=True), [])
        if len(set(header)) != len(header) or not header:
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


FORMAT = Format("generic", "JSON Lines, JSON, CSV or Parquet with --map", detect, read)
