"""Any table of attempts, with --map saying what is what: passed=correct, problem_id=task.id, passed=pred==answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scorelake.errors import DataError
from scorelake.ingest.contract import Attempt, Format, Log, Options, Source, refuse
from scorelake.ingest.records import records
from scorelake.ingest.sight import Sight, look
from scorelake.ingest.values import number, shown, verdict
from scorelake.settings import RESERVED

OURS = ("problem_id", "attempt", "answer", "subject", "benchmark", "model", "passed", "score")
PROTOCOL = ("temperature", "grader", "setup")
COUNTS = ("n", "c")
RECORDS = "records"
"""The key of a document below which the records are."""
TAKEN = {"value", "error", "protocol", "source", "run", "format", "tool", *RESERVED} - {*OURS, *COUNTS}
"""Names that a carried column cannot have."""
MOST = 1_000_000
"""Attempts of one problem told as counts."""
CELLS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
"""What a cell of a CSV, where everything is a text, takes for a verdict."""
_NOTHING = object()


def detect(sight: Sight) -> bool:
    return False


def read(source: Source, options: Options) -> Log:
    mapped = options.mapped
    if len({*COUNTS} & mapped.keys()) == 1:
        raise refuse("n and c go together", source.path, "--map n=... --map c=...")
    taken = sorted(set(mapped) & TAKEN)
    if taken:
        raise refuse(f"{taken[0]} is a column of our own", source.path, "carry theirs under another name")
    log = Log([], "passed", "ungraded", run=source.tag)
    log.rows = _attempts(source, options, log)
    return log


def _attempts(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    sight = look(source.file)
    told = {key: theirs for key, theirs in options.mapped.items() if key != RECORDS}
    mapped = {key: key for key in OURS} | told
    parts = [part for theirs in mapped.values() for part in theirs.split("==")]
    wanted = {*parts, *(part.partition(".")[0] for part in parts)}
    flat = not any(isinstance(value, dict | list) for value in sight.first.values())
    single = flat or at(sight.first, mapped["problem_id"]) is not _NOTHING
    row: Row | None = None
    for i, key, record in records(sight, wanted, options.mapped.get(RECORDS), single):
        if row is None:
            _refuse_missing(record, told, source)
            passed = any(key in told for key in ("passed", "n")) or at(record, "passed") is not _NOTHING
            log.kind = "passed" if passed else "score"
            row = Row(options, mapped, passed, sight.shape != "text", source.tag)
        yield from row.attempts(i, key, record)


def _refuse_missing(record: dict[str, Any], told: dict[str, str], source: Source) -> None:
    """A mapping that leads nowhere in the first record is a mistake, not a column of nulls."""
    for key, theirs in told.items():
        for one in theirs.split("=="):
            if at(record, one) is _NOTHING:
                there = ", ".join(list(record)[:20])
                raise refuse(f"no key {one} for {key}", source.path, f"the first record has: {there}")


def at(record: Any, path: str) -> Any:
    """The value at a dotted path; a key that has dots itself comes first."""
    if isinstance(record, dict):
        found = record.get(path, _NOTHING)
        if found is not _NOTHING or "." not in path:
            return found
        head, _, rest = path.partition(".")
        return at(record.get(head), rest)
    return _NOTHING


class Row:
    """How a record becomes attempts."""

    def __init__(self, options: Options, mapped: dict[str, str], passed: bool, typed: bool, tag: str) -> None:
        self.true, self.typed, self.tag = options.true, typed, tag
        self.keys = [mapped[key] for key in OURS[:6]]
        self.counts = [mapped[key] for key in COUNTS if key in mapped]
        self.outcome = mapped["passed" if passed else "score"]
        self.worth: Callable[[dict[str, Any], int], float | None] = self._verdict if passed else self._reward
        self.protocol = {key: theirs for key, theirs in mapped.items() if key in PROTOCOL}
        self.extra = {key: theirs for key, theirs in mapped.items() if key not in (*OURS, *COUNTS, *PROTOCOL)}

    def attempts(self, i: int, key: Any, record: dict[str, Any]) -> Iterator[Attempt]:
        problem, attempt, answer, subject, benchmark, model = (self._get(record, path) for path in self.keys)
        problem = key if problem is None else problem
        if problem is None:
            raise DataError(f"record {i:,} has no {self.keys[0]}", hint="name it with --map problem_id=...")
        value = None if self.counts else self.worth(record, i)
        base = Attempt(
            problem,
            f"{self.tag}:{i}" if attempt is None else attempt,
            value,
            value is None and not self.counts,
            answer,
            subject,
            benchmark,
            model,
            {what: self._get(record, path) for what, path in self.protocol.items()} if self.protocol else None,
            {what: self._get(record, path) for what, path in self.extra.items()} if self.extra else None,
        )
        yield from _expanded(base, *(self._get(record, path) for path in self.counts)) if self.counts else (base,)

    def _get(self, record: dict[str, Any], path: str) -> Any:
        value = at(record, path)
        return None if value is _NOTHING or (value == "" and not self.typed) else value

    def _verdict(self, record: dict[str, Any], i: int) -> float | None:
        left, equal, right = self.outcome.partition("==")
        value = at(record, left)
        if value is _NOTHING:
            raise DataError(f"record {i:,} has no {left}")
        if equal:
            other = self._get(record, right)
            return None if value in (None, "") or other is None else float(value == other)
        if value is True or value is False:
            return float(value)
        if not self.typed and not self.true:
            value = None if value == "" else CELLS.get(value.lower(), value)
        return verdict(value, f"record {i:,}: {left}", self.true)

    def _reward(self, record: dict[str, Any], i: int) -> float | None:
        value = at(record, self.outcome)
        if value is _NOTHING:
            hint = "name one with --map passed=... or --map score=..."
            raise DataError(f"record {i:,} has neither passed nor {self.outcome}", hint=hint)
        if not self.typed and isinstance(value, str):
            try:
                value = float(value) if value else None
            except ValueError:
                raise DataError(f"record {i:,}: {self.outcome} is {shown(value)}, which is no number") from None
        return number(value, f"record {i:,}: {self.outcome}")


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


FORMAT = Format("generic", "JSON Lines, JSON, CSV or Parquet with --map", detect, read)
