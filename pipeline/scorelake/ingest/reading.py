"""One source -> attempts aside on the disk, and a ledger of them. Runs anywhere; memory does not follow the file.

Attempts are kept as an Arrow stream, since some facts (which columns, which verdicts) are known only when every file
of the run has been read. The ledger has a few bytes per attempt, and says what will be counted.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from scorelake.errors import DataError
from scorelake.ingest import values
from scorelake.ingest.contract import Attempt, Claim, Format, Kind, Log, Options, Rule, Source
from scorelake.ingest.ledger import ENTRY, Tally, example, tally

BATCH = 1 << 14
"""Attempts that are held at once."""
NAMES = ("subject", "benchmark", "model")
SPLIT = (*NAMES, "protocol", "problem_id")
TEXT = pa.string()
Tick: TypeAlias = Callable[[], None]
"""Called now and then, for progress."""
WRONG = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""What reading raises on a record that is not made as it should be."""


@dataclass
class Reading:
    """What was read of one source: its facts, and where its attempts lie."""

    source: Source
    format: str
    rows: Path
    ledger: Path
    kind: Kind
    rule: Rule
    """How attempts without a verdict were counted."""
    run: str
    model: str | None
    benchmark: str | None
    subject: str | None
    tool: str | None
    protocol: dict[str, Any]
    claims: list[Claim]
    notes: list[str]
    left_out: int
    supersedes: tuple[str, str, bool] | None
    benchmarks: list[str]
    """Of the rows, in the order of their codes in the ledger."""
    carried: tuple[str, ...]
    answers: bool
    subjects: bool
    tally: Tally = field(default_factory=Tally)

    @property
    def salt(self) -> tuple[Any, ...]:
        """Tells problems of this source from those of another that are called the same."""
        told = json.dumps(self.protocol, sort_keys=True, default=str)
        return self.benchmark, self.subject, self.model, told


def read(format: Format, source: Source, options: Options, home: Path, tick: Tick = lambda: None) -> Reading:  # noqa: A002
    """Every attempt of a source, checked; DataError names the source and the record that is wrong."""
    at = 0
    try:
        log = format.read(source, options)
        with closing(_Stage(home, log, options)) as staged:
            for at, row in enumerate(log.rows, 1):
                staged.add(row)
                if at % BATCH == 0:
                    tick()
            staged.end()
        return _finished(format, source, options, log, staged)
    except DataError as error:
        if error.where is not None:
            raise
        raise DataError(f"{error.what}{_record(at)}", where=str(source.path), hint=error.hint) from None
    except WRONG as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        what = f"not made as {format.name} writes it ({told:.120}){_record(at)}"
        raise DataError(what, where=str(source.path)) from None


def _record(at: int) -> str:
    return f", after {at:,} attempts" if at else ""


def _finished(format: Format, source: Source, options: Options, log: Log, staged: _Stage) -> Reading:  # noqa: A002
    facts = {name: options.said(name) or getattr(log, name) or None for name in NAMES}
    if log.names_benchmarks:
        facts["benchmark"] = None
    for key in ("benchmark", "model"):
        facts[key] = None if facts[key] is None else values.name(facts[key], key)
        if facts[key] is None and staged.lacking[key]:
            raise DataError(f"no {key} in the file", where=str(source.path), hint=f"give --{key}")
    protocol = {key: values.brief(value) for key, value in log.protocol.items() if key not in options.ignore}
    reading = Reading(
        source=source,
        format=format.name,
        rows=staged.rows,
        ledger=staged.ledger,
        kind="passed" if log.kind == "score" and options.threshold is not None else log.kind,
        rule=staged.rule,
        run=log.run,
        model=facts["model"],
        benchmark=facts["benchmark"],
        subject=None if facts["subject"] is None else values.name(facts["subject"], "subject"),
        tool=log.tool,
        protocol={key: value for key, value in protocol.items() if value is not None},
        claims=[] if log.kind == "score" and options.threshold is not None else log.claims,
        notes=log.notes,
        left_out=log.left_out,
        supersedes=log.supersedes,
        benchmarks=list(staged.codes),
        carried=tuple(staged.carried),
        answers=staged.answers,
        subjects=staged.subjects,
    )
    reading.tally = tally([(staged.ledger, 0)])
    _sound(reading, log)
    return reading


def _sound(reading: Reading, log: Log) -> None:
    """Refuse one id for two problems, and repeats where there can be none."""
    told, where = reading.tally, str(reading.source.path)
    if told.mixed is not None:
        first, last = sorted(example([(reading.ledger, 0)], told.mixed))
        raise DataError(two_problems(reading, first[1], last[1], None), where=where)
    if log.once and told.repeated is not None:
        name = row_of(reading, told.repeated[1])["problem_id"]
        hint = "rows of several filters or graders cannot be told apart"
        raise DataError(
            f"{name} is there twice in one run, in attempt {told.repeated[1] + 1:,}", where=where, hint=hint
        )


def two_problems(reading: Reading, row: int, other: int, elsewhere: Reading | None) -> str:
    """What is said of one id for two problems: where they are."""
    there = f" of {elsewhere.source.path}" if elsewhere else ""
    name = row_of(reading, row)["problem_id"]
    return f"{name} is two problems: attempt {row + 1:,} and attempt {other + 1:,}{there} tell different things of it"


def checksum(told: Any) -> int:
    """Of what was asked; never 0."""
    return zlib.crc32(str(told).encode("utf-8", "backslashreplace")) or 1


class _Stage:
    """Attempts on their way to the disk."""

    def __init__(self, home: Path, log: Log, options: Options) -> None:
        self.rule: Rule = options.errors or log.errors
        self.log, self.options = log, options
        self.rows, self.ledger = home / "rows.arrow", home / "ledger"
        home.mkdir(parents=True, exist_ok=True)
        self.waiting: list[Attempt] = []
        self.carried: dict[str, None] = {}
        self.codes: dict[str, int] = {}
        self.lacking = dict.fromkeys(("benchmark", "model"), False)
        self.answers = self.subjects = False
        self.stream: Any = None
        self.book = self.ledger.open("wb")

    def add(self, row: Attempt) -> None:
        self.waiting.append(row)
        if len(self.waiting) == BATCH:
            self._flush()

    def end(self) -> None:
        if self.waiting or self.stream is None:
            self._flush()

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.book.close()

    def _flush(self) -> None:
        if self.stream is None:
            self.carried = dict.fromkeys(name for row in self.waiting for name in row.carried or ())
        batch = self._batch(self.waiting)
        if self.stream is None:
            self.stream = pa.ipc.new_stream(str(self.rows), batch.schema)
        self.stream.write_batch(batch)
        self._book(batch, [0 if row.asked is None else checksum(row.asked) for row in self.waiting])
        self.waiting = []

    def _batch(self, rows: list[Attempt]) -> pa.RecordBatch:
        columns = dict(zip(Attempt.fields(), zip(*rows, strict=True) if rows else repeat(()), strict=bool(rows)))
        out: dict[str, Any] = {
            "problem_id": _names(columns["problem_id"], "problem id"),
            "attempt": _names(columns["attempt"], "attempt"),
            "value": [
                self._value(value, error) for value, error in zip(columns["value"], columns["error"], strict=True)
            ],
            "error": columns["error"],
            "answer": _each(columns["answer"], values.answer),
            "protocol": _each(columns["protocol"], self._protocol),
        }
        for key in NAMES:
            said = self.options.said(key) is not None and not (key == "benchmark" and self.log.names_benchmarks)
            out[key] = [None] * len(rows) if said else _names(columns[key], key, optional=True)
            if key in self.lacking:
                self.lacking[key] |= not said and None in columns[key]
        for key in self.carried:
            out[key] = [values.answer((told or {}).get(key)) for told in columns["carried"]]
        self.answers |= any(value is not None for value in out["answer"])
        self.subjects |= any(value is not None for value in out["subject"])
        kinds = {"value": pa.float64(), "error": pa.bool_()}
        return pa.RecordBatch.from_arrays(
            [pa.array(column, kinds.get(key, TEXT)) for key, column in out.items()], list(out)
        )

    def _value(self, value: float | None, error: bool) -> float | None:
        """What an attempt is worth, after the rule for attempts without a verdict."""
        if error:
            return 0.0 if self.rule == "fail" else None
        threshold = self.options.threshold
        if value is not None and threshold is not None and self.log.kind == "score":
            return float(value >= threshold)
        return value

    def _protocol(self, told: Mapping[str, Any]) -> str:
        kept = {key: values.brief(value) for key, value in told.items() if key not in self.options.ignore}
        return json.dumps(kept, sort_keys=True)

    def _book(self, batch: pa.RecordBatch, asked: list[int]) -> None:
        frame = pl.DataFrame(pl.from_arrow(batch))
        entries = np.empty(len(frame), ENTRY)
        entries["asked"] = asked
        entries["problem"] = frame.select(SPLIT).hash_rows(seed=1).to_numpy()
        entries["attempt"] = frame.select(*SPLIT, "attempt").hash_rows(seed=2).to_numpy()
        entries["value"] = frame["value"].fill_null(float("nan")).to_numpy()
        entries["error"] = frame["error"].to_numpy()
        names = frame["benchmark"].fill_null("").unique().to_list()
        for name in sorted(names):
            self.codes.setdefault(name, len(self.codes))
        codes = frame["benchmark"].fill_null("").replace_strict(self.codes, return_dtype=pl.UInt16)
        entries["benchmark"] = codes.to_numpy()
        self.book.write(entries.tobytes())


def _names(column: Sequence[Any], what: str, optional: bool = False) -> list[str | None]:
    """Names, checked; most are short texts that need no more than a look."""
    if optional and not any(column):
        return [None if told is None else values.name(told, what) for told in column]
    return [
        told
        if type(told) is str and told.isascii() and 0 < len(told) <= values.LONGEST
        else None
        if optional and told is None
        else values.name(told, what)
        for told in column
    ]


def _each(column: Sequence[Any], made: Callable[[Any], str | None]) -> list[str | None]:
    return [None if told is None else made(told) for told in column]


def staged_rows(reading: Reading) -> Iterator[pa.RecordBatch]:
    """The attempts of a source, batch by batch."""
    with pa.OSFile(str(reading.rows), "rb") as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def row_of(reading: Reading, index: int) -> dict[str, Any]:
    """One attempt, to quote it in a message."""
    for batch in staged_rows(reading):
        if index < len(batch):
            return next(islice(batch.slice(index, 1).to_pylist(), 1))
        index -= len(batch)
    raise AssertionError("no such attempt")
