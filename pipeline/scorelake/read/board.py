"""The published tables as plain data: boards with their models, for the page, the report and the exports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorelake.errors import UsageError
from scorelake.read.names import canonical, check_names, labels
from scorelake.read.numbers import Scale, scale
from scorelake.read.session import Rows, session

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LINE = """
metric, model, value, lo, hi, rank, rank_lo, rank_hi, p_best, problems, problems_scored, problems_of_benchmark,
attempts, reason
"""
_ORDER = "metric, rank NULLS LAST, value DESC NULLS LAST, model"
_LINES = f"SELECT benchmark, protocol, {_LINE} FROM leaderboard ORDER BY benchmark, protocol, {_ORDER}"
_SUBJECT_LINES = f"""
SELECT subject, {_LINE} FROM subject_leaderboard
WHERE benchmark = ? AND protocol = ? AND (? IS NULL OR metric = ?) ORDER BY subject, {_ORDER}
"""
_OVERALL = """
SELECT protocol, label, model, value, lo, hi, rank, rank_lo, rank_hi, benchmarks, missing
FROM overall LEFT JOIN protocol USING (protocol) WHERE metric = ?
ORDER BY protocol, rank NULLS LAST, value DESC NULLS LAST, model
"""
_VALUES = "SELECT model, protocol, benchmark, value FROM model_summary WHERE metric = ? ORDER BY benchmark"
_FAMILIES = "SELECT DISTINCT metric, family, k FROM model_summary ORDER BY family, k NULLS FIRST, metric"
SHORT = 60
"""Characters of a name where there is little room."""
DEFAULTS = ("pass@1", "avg@N", "bayes@N")
"""The default metric is the first of these that the run has."""


@dataclass(frozen=True)
class Line:
    """One model on a board, at one metric."""

    model: str
    value: float | None
    lo: float | None
    hi: float | None
    rank: int | None
    rank_lo: int | None
    rank_hi: int | None
    p_best: float | None
    problems: int
    scored: int
    of_benchmark: int
    attempts: int
    reason: str | None

    @property
    def rank_range(self) -> str:
        """The ranks compatible with the data, or the rank by value if they were not computed."""
        if self.rank is None:
            return "\u2013"
        if self.rank_lo is None or self.rank_lo == self.rank_hi:
            return str(self.rank)
        return f"{self.rank_lo}\u2013{self.rank_hi}"

    @property
    def is_partial(self) -> bool:
        """Whether the value leaves out problems with fewer than k attempts."""
        return self.value is not None and self.scored < self.problems


@dataclass(frozen=True)
class BoardRows:
    """A benchmark under one protocol: its models at every metric, best first, unranked models last."""

    benchmark: str
    protocol: str
    label: str
    """What tells the protocol from the others of the benchmark; empty if there is no other."""
    lines: dict[str, list[Line]]
    subject: str | None = None
    """The subject, if the board is that of one subject."""

    def scale(self, metric: str) -> Scale:
        return scale((line.value, line.lo, line.hi) for line in self.lines[metric])


@dataclass(frozen=True)
class Facts:
    """One output: the current run, its settings, and its boards."""

    run: dict[str, Any]
    settings: dict[str, Any]
    boards: list[BoardRows]
    families: dict[str, tuple[str, int | None]]
    """Family and k of every metric."""
    label: dict[str, str] = field(repr=False)
    """Printable label of every model."""
    short: dict[str, str] = field(repr=False)
    """The same where there is little room."""

    @property
    def confidence(self) -> float:
        return float(self.settings["uncertainty"]["confidence"])

    @property
    def rollback_note(self) -> str:
        """One line if a newer run exists; empty if this is the newest."""
        number, newest, started = (self.run[name] for name in ("number", "newest", "started"))
        if number == newest:
            return ""
        return (
            f"This is run {number} of {newest}, from {started:%Y-%m-%d %H:%M} UTC; a newer run exists: "
            f"scorelake rollback OUT {newest}"
        )

    def metric(self, name: str | None) -> str:
        """Return the canonical name of a metric, or the default for None; raise if the run does not have it."""
        if name is None:
            return next((default for default in DEFAULTS if default in self.families), next(iter(self.families)))
        if name in self.families:
            return name
        metric = canonical(name, self.settings)
        check_names("metric", list(self.families), [metric])
        return metric


class Reader:
    """Query the tables of one output, in one session: all results are of one run."""

    def __init__(self, db: DuckDBPyConnection) -> None:
        self._db = db

    def table(self, sql: str, parameters: Any = ()) -> tuple[list[str], Rows]:
        """Return columns and rows; parameters may be named."""
        result = self._db.execute(sql, parameters)
        return [column[0] for column in result.description or ()], result.fetchall()

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.table(sql, parameters)[1]

    def dicts(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        columns, rows = self.table(sql, parameters)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def names(self, column: str, table: str = "model_summary") -> list[str]:
        """Return the distinct values of a column."""
        return [name for (name,) in self.rows(f"SELECT DISTINCT {column} FROM {table} ORDER BY ALL")]

    @property
    def run_id(self) -> str:
        """The current run."""
        return str(self.rows("SELECT run_id FROM run WHERE shown")[0][0])

    def settings(self) -> dict[str, Any]:
        """Return the settings of the current run, nested as in the config file."""
        tree: dict[str, Any] = {}
        for key, value in self.rows("SELECT key, value FROM setting JOIN run USING (settings) WHERE shown"):
            *sections, name = key.split(".")
            section = tree
            for part in sections:
                section = section.setdefault(part, {})
            section[name] = json.loads(value)
        return tree


@contextmanager
def opened(folder: Path) -> Iterator[Reader]:
    """Open a session for our own queries."""
    with session(folder, problems=True) as db:
        yield Reader(db)


def current_run_id(folder: Path) -> str:
    """Return the id of the run in a leaderboard."""
    with opened(folder) as read:
        return read.run_id


def facts(read: Reader) -> Facts:
    """Read the current run with its boards."""
    (run,) = read.dicts("SELECT *, (SELECT max(number) FROM run) AS newest FROM run WHERE shown")
    lines = {
        key: _by_metric(row[2:] for row in group) for key, group in groupby(read.rows(_LINES), lambda row: row[:2])
    }
    protocols: dict[str, list[dict[str, Any]]] = {}
    for benchmark, protocol in lines:
        protocols.setdefault(benchmark, []).append(json.loads(protocol or "{}"))
    boards = [
        BoardRows(benchmark, protocol, short_label(protocol, protocols[benchmark]), by_metric)
        for (benchmark, protocol), by_metric in lines.items()
    ]
    if not boards:
        raise UsageError("this leaderboard has no scores", hint="see its run: `scorelake sql OUT 'FROM run'`")
    families = {name: (family, k) for name, family, k in read.rows(_FAMILIES)}
    models = read.names("model")
    return Facts(run, read.settings(), boards, families, labels(models), labels(models, SHORT))


@dataclass(frozen=True)
class OverallRows:
    """Models by benchmarks under one protocol: the average of each model, and its value on every benchmark."""

    label: str
    """Readable form of the protocol; empty if there is none, or if each benchmark has its own."""
    benchmarks: list[str]
    lines: list[tuple[Line, list[float | None]]]


def overall_rows(read: Reader, metric: str) -> list[OverallRows]:
    """Return a table for every protocol with several benchmarks: ranked models first, then those that lack some."""
    values: dict[tuple[str, str], dict[str, float | None]] = {}
    for model, protocol, benchmark, value in read.rows(_VALUES, metric):
        values.setdefault((model, protocol), {})[benchmark] = value
        values.setdefault((model, ""), {})[benchmark] = value
    out = []
    for (protocol, label), group in groupby(read.rows(_OVERALL, metric), key=lambda row: row[:2]):
        rows = [row[2:] for row in group]
        names = sorted({name for model, *_ in rows for name in values.get((model, protocol), {})})
        lines = []
        for model, value, lo, hi, rank, rank_lo, rank_hi, benchmarks, missing in rows:
            reason = missing and f"no value on {missing}"
            line = Line(
                model, value, lo, hi, rank, rank_lo, rank_hi, None, benchmarks, benchmarks, benchmarks, 0, reason
            )
            lines.append((line, [values[model, protocol].get(name) for name in names]))
        out += [OverallRows(label or "", names, lines)] if len(names) > 1 else []
    return out


def short_label(protocol: str, protocols: Sequence[dict[str, Any]]) -> str:
    """Return what tells a protocol from the others of its benchmark: grader=b. Empty if there is no other."""
    values = json.loads(protocol or "{}")
    differing = [key for key in values if len({json.dumps(other.get(key)) for other in protocols}) > 1]
    return ", ".join(
        f"{key}={values[key] if isinstance(values[key], str) else json.dumps(values[key])}" for key in differing
    )


def by_subject(read: Reader, board: BoardRows, metric: str | None = None) -> list[BoardRows]:
    """Return the boards of the subjects of a board, at every metric or at one; none if there is one subject."""
    rows = read.rows(_SUBJECT_LINES, board.benchmark, board.protocol, metric, metric)
    boards = [
        replace(board, subject=subject, lines=_by_metric(row[1:] for row in group))
        for subject, group in groupby(rows, key=lambda row: row[0])
    ]
    return boards if len(boards) > 1 else []


def _by_metric(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Line]]:
    """Group the lines of a board by metric. A single problem has no interval: it does not represent others."""
    lines: dict[str, list[Line]] = {}
    for metric, *values in rows:
        line = Line(*values)
        lines.setdefault(metric, []).append(replace(line, lo=None, hi=None) if line.of_benchmark == 1 else line)
    return lines
