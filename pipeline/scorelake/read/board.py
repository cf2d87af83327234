"""The published tables as plain data: boards with their models, for show, the page, the report and the exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorelake.errors import UsageError
from scorelake.read.format import DASH, SHORT_LABEL, Scale, canonical, check_names, labels
from scorelake.read.session import Rows, session
from scorelake.text import escape_controls, protocol_label

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_LINES = """
SELECT benchmark, {part} AS part, protocol, metric, model, value, if(problems_of_benchmark > 1, lo, NULL) AS lo,
    if(problems_of_benchmark > 1, hi, NULL) AS hi, {ranks}, problems, problems_scored,
    problems_of_benchmark, attempts, {reason}
FROM {view}
WHERE ($metric IS NULL OR metric = $metric) AND ($benchmark IS NULL OR benchmark = $benchmark)
    AND ($protocol IS NULL OR protocol = $protocol) AND ($slice IS NULL OR {condition})
ORDER BY benchmark, part NULLS FIRST, protocol, metric, rank NULLS LAST, value DESC NULLS LAST, model
"""
_BOARD = {"ranks": "rank, rank_lo, rank_hi, p_best", "reason": "reason", "condition": "true"}
_MORE = """leaderboard
LEFT JOIN (SELECT DISTINCT benchmark, protocol, model, sampling FROM model_summary) USING (benchmark, protocol, model)
LEFT JOIN (SELECT benchmark, protocol, model, 'pass@1' AS metric, value_adjusted, lo_adjusted, hi_adjusted, misfit
    FROM adjusted WHERE share_tried < 1) USING (benchmark, protocol, model, metric)"""
_NO_RANKS = "NULL::BIGINT AS rank, NULL::BIGINT AS rank_lo, NULL::BIGINT AS rank_hi, NULL::DOUBLE AS p_best"
_ESTIMATES = "reason, sampling, value_adjusted, lo_adjusted, hi_adjusted, misfit"
_BY_RUN = _LINES.format(part="NULL", view=_MORE, **_BOARD | {"reason": _ESTIMATES})
_BY_SUBJECT = _LINES.format(part="subject", view="subject_leaderboard", **_BOARD)
_BY_SLICE = _LINES.format(
    part="coalesce(slice_value, 'none')",
    view="slice_summary",
    ranks=_NO_RANKS,
    reason="NULL::VARCHAR AS reason",
    condition="slice = $slice",
)
_OVERALL = """
SELECT protocol, label, model, value, lo, hi, rank, rank_lo, rank_hi, benchmarks, missing
FROM overall LEFT JOIN protocol USING (protocol) WHERE metric = ?
ORDER BY protocol, rank NULLS LAST, value DESC NULLS LAST, model
"""
_FAMILIES = "SELECT DISTINCT metric, family, k FROM model_summary ORDER BY family, k NULLS FIRST, metric"
DEFAULTS = ("pass@1", "avg@N", "bayes@N")  # the headline metric of a board is the first of these with a value there


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
    problems_scored: int  # problems with enough attempts to have a value
    problems_of_benchmark: int
    attempts: int
    reason: str | None  # why the model is not ranked
    sampling: str | None = None  # fixed, adaptive or unknown: see model_summary
    adjusted: float | None = None
    """pass@1 over all problems under a Rasch model, of a model that tried some of them, with its interval."""
    adjusted_lo: float | None = None
    adjusted_hi: float | None = None
    misfit: float | None = None

    @property
    def explanation(self) -> str | None:
        """Why the model is not ranked, with the score that is expected over all problems."""
        if self.reason is None or self.adjusted is None:
            return self.reason
        expected = Scale().both(self.adjusted, self.adjusted_lo, self.adjusted_hi)
        return f"{self.reason}; {expected} expected over all problems under a Rasch model (misfit {self.misfit:.2g})"

    @property
    def rank_range(self) -> str:
        """The ranks compatible with the data, or the rank by value if they were not computed."""
        if self.rank is None:
            return DASH
        if self.rank_lo is None or self.rank_lo == self.rank_hi:
            return str(self.rank)
        return f"{self.rank_lo}{DASH}{self.rank_hi}"

    @property
    def is_partial(self) -> bool:
        """Whether the value leaves out problems with fewer than k attempts."""
        return self.value is not None and self.problems_scored < self.problems

    def score(self, scale: Scale) -> str:
        """Format the value; a star marks that it leaves out problems."""
        return scale.text(self.value) + "*" * self.is_partial


@dataclass(frozen=True)
class BoardRows:
    """A benchmark under one protocol, or a part of it: models by metric, best first, unranked last."""

    benchmark: str
    protocol: str
    label: str  # what tells the protocol from the others of the benchmark; empty if there is no other
    lines: dict[str, list[Line]]
    part: str | None = None  # the subject or value of a slice, if the board is of one
    is_forecast: bool = False

    def scale(self, metric: str) -> Scale:
        return Scale.of((line.value, line.lo, line.hi) for line in self.lines[metric])

    def headline(self, metric: str) -> str:
        """Return the metric if the board has values of it, else the first default metric that it has."""
        valued = [name for name, lines in self.lines.items() if any(line.value is not None for line in lines)]
        first = [name for name in (metric, *DEFAULTS) if name in valued] + valued
        return first[0] if first else metric if metric in self.lines else next(iter(self.lines))


@dataclass(frozen=True)
class Facts:
    """One output: the current run, its settings, and its boards."""

    run: dict[str, Any]
    settings: dict[str, Any]
    boards: list[BoardRows]
    families: dict[str, tuple[str, int | None]]  # family and k of every metric
    label: dict[str, str] = field(repr=False)  # printable label of every model
    short: dict[str, str] = field(repr=False)  # the same where there is little room

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
        check_names("metric", self.families, [metric])
        return metric


class Reader:
    """Query the tables of one output, in one session: all results are of one run."""

    def __init__(self, db: DuckDBPyConnection) -> None:
        self._db = db

    def table(self, sql: str, parameters: Any = ()) -> tuple[list[str], Rows]:
        """Return columns and rows; parameters may be named."""
        result = self._db.execute(sql, parameters)
        return [column[0] for column in result.description or ()], result.fetchall()

    def arrow(self, sql: str, parameters: dict[str, Any]) -> pa.Table:
        table: pa.Table = self._db.sql(sql, params=parameters).to_arrow_table()
        return table

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

    def metric(self, name: str | None) -> str:
        """Return the canonical name of a metric, which need not be published, or the default for None."""
        if name is not None:
            return canonical(name, self.settings())
        published = self.names("metric")
        return next((default for default in DEFAULTS if default in published), DEFAULTS[0])

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
    boards = board_rows(read)
    if not boards:
        raise UsageError("this leaderboard has no scores", hint="see its run: `scorelake sql OUT 'FROM run'`")
    families = {name: (family, k) for name, family, k in read.rows(_FAMILIES)}
    models = read.names("model")
    return Facts(run, read.settings(), boards, families, labels(models), labels(models, SHORT_LABEL))


def board_rows(
    read: Reader,
    by_subject: bool = False,
    by_slice: str | None = None,
    metric: str | None = None,
    of: BoardRows | None = None,
) -> list[BoardRows]:
    """Return the boards of the run, of every subject, or of every value of a slice, at every metric or at one.

    `of` restricts them to one benchmark and protocol. A single problem has no interval: it does not represent others.
    """
    sql = _BY_SUBJECT if by_subject else _BY_RUN if by_slice is None else _BY_SLICE
    parameters = {"metric": metric, "benchmark": of and of.benchmark, "protocol": of and of.protocol}
    parameters["slice"] = by_slice
    protocols: dict[str, list[dict[str, Any]]] = {}
    for benchmark, text in read.rows("SELECT DISTINCT benchmark, protocol FROM model_summary"):
        protocols.setdefault(benchmark, []).append(json.loads(text or "{}"))
    boards = []
    for (benchmark, part, protocol), group in groupby(read.table(sql, parameters)[1], key=lambda row: row[:3]):
        lines = {name: [Line(*row[4:]) for row in rows] for name, rows in groupby(group, lambda row: row[3])}
        label = _short_label(protocol, protocols[benchmark])
        boards.append(BoardRows(benchmark, protocol, label, lines, part))
    return boards


def _short_label(protocol: str, protocols: list[dict[str, Any]]) -> str:
    """Return what tells a protocol from the others of its benchmark: grader=b. Empty if there is no other."""
    values = json.loads(protocol or "{}")
    differing = [key for key in values if len({json.dumps(other.get(key)) for other in protocols}) > 1]
    return protocol_label(json.dumps({key: values[key] for key in differing}))


@dataclass(frozen=True)
class OverallRows:
    """Models by benchmarks under one protocol: the average of each model, and its value on every benchmark."""

    label: str  # readable form of the protocol; empty if there is none, or if each benchmark has its own
    columns: list[tuple[str, Scale | None]]
    """Head of every benchmark, and its scale if that is not the scale of the average: it has a metric of its own."""
    lines: list[tuple[Line, list[float | None]]]

    @property
    def notes(self) -> list[str]:
        """Why models are not ranked: once if all lack the same."""
        reasons = {line.model: line.reason for line, _ in self.lines}
        if None not in reasons.values() and len(set(reasons.values())) == 1:
            return [f"No model is ranked: {escape_controls(self.lines[0][0].reason or '')}"]
        return [escape_controls(f"{model} is not ranked: {reason}") for model, reason in reasons.items() if reason]

    def cells(self, top: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Return head and rows as text."""
        shared = [i for i, (_, own) in enumerate(self.columns) if own is None]
        averages = [(line.value, line.lo, line.hi) for line, _ in self.lines]
        scale = Scale.of(averages + [(values[i], None, None) for _, values in self.lines for i in shared])
        head = ["rank", "model", scale.heading("average"), "interval", *(name for name, _ in self.columns)]
        scales = [own or scale for _, own in self.columns]
        rows = [
            [line.rank_range, escape_controls(line.model), scale.text(line.value), scale.between(line.lo, line.hi)]
            + [own.text(value) for own, value in zip(scales, values, strict=True)]
            for line, values in self.lines[:top]
        ]
        return head, rows


def overall_rows(read: Reader, boards: list[BoardRows], metric: str) -> list[OverallRows]:
    """Return a table for every protocol with several benchmarks: ranked models first, then those that lack some.

    A benchmark without values of the metric has a column by its own headline metric.
    """
    values: dict[tuple[str, str], dict[str, float | None]] = {}
    unranked: dict[tuple[str, str], set[str]] = {}
    heads: dict[str, tuple[str, Scale | None]] = {}
    for board in boards:
        own, name = board.headline(metric), escape_controls(board.benchmark)
        if own != metric or board.benchmark not in heads:
            heads[board.benchmark] = (name, None) if own == metric else (f"{name} ({own})", board.scale(own))
        for line in board.lines[own]:
            for protocol in (board.protocol, ""):
                values.setdefault((line.model, protocol), {})[board.benchmark] = line.value
                if line.reason:
                    unranked.setdefault((line.model, protocol), set()).add(board.benchmark)
    out = []
    for (protocol, label), group in groupby(read.rows(_OVERALL, metric), key=lambda row: row[:2]):
        rows = [row[2:] for row in group]
        names = sorted({name for model, *_ in rows for name in values.get((model, protocol), {})})
        lines = []
        for model, value, lo, hi, rank, rank_lo, rank_hi, count, missing in rows:
            reason = f"no value on {missing}" if missing and rank is None else None
            if rank is None and not reason and (partial := unranked.get((model, protocol))):
                reason = f"no rank on {', '.join(sorted(partial))}"
            line = Line(model, value, lo, hi, rank, rank_lo, rank_hi, None, count, count, count, 0, reason)
            lines.append((line, [values[model, protocol].get(name) for name in names]))
        out += [OverallRows(label or "", [heads[name] for name in names], lines)] if len(names) > 1 else []
    return out
