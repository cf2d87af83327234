"""What the published tables say, as plain data for people's eyes: the page, the report and the exports read this."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorelake.errors import UsageError
from scorelake.read.labels import labels
from scorelake.read.names import canonical, there
from scorelake.read.numbers import Scale, scale
from scorelake.read.session import session

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LINE = """
metric, model, value, lo, hi, rank, rank_lo, rank_hi, p_best, problems, problems_scored, problems_of_benchmark,
attempts, reason
"""
_LINES = f"""
SELECT benchmark, protocol, {_LINE} FROM leaderboard
ORDER BY benchmark, protocol, metric, rank NULLS LAST, value DESC NULLS LAST, model
"""
_SUBJECT_LINES = f"""
SELECT subject, {_LINE} FROM subject_leaderboard
WHERE benchmark = ? AND protocol = ? AND (? IS NULL OR metric = ?)
ORDER BY subject, metric, rank NULLS LAST, value DESC NULLS LAST, model
"""
SHORT = 60
"""Characters of a name where there is little room."""
DEFAULTS = ("pass@1", "avg@N", "bayes@N")
"""What a board shows unless it is told otherwise: the first of these that the lake allows."""


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
    def place(self) -> str:
        """The range that is left open, or the plain rank where it is not known."""
        if self.rank is None:
            return "\u2013"
        if self.rank_lo is None or self.rank_lo == self.rank_hi:
            return str(self.rank)
        return f"{self.rank_lo}\u2013{self.rank_hi}"


@dataclass(frozen=True)
class Board:
    """A benchmark under one protocol: its models at every metric, best first, the unranked last."""

    benchmark: str
    protocol: str
    label: str
    """The protocol as people read it; empty where there is none."""
    lines: dict[str, list[Line]]
    subject: str | None = None
    """The subject, where it is the board of one subject only."""

    def scale(self, metric: str) -> Scale:
        return scale((line.value, line.lo, line.hi) for line in self.lines[metric])


@dataclass(frozen=True)
class Facts:
    """One output: the run that is shown, its settings, and its boards."""

    run: dict[str, Any]
    settings: dict[str, Any]
    quarantine: list[tuple[str, str]]
    boards: list[Board]
    families: dict[str, tuple[str, int | None]]
    """Family and k of every metric."""
    label: dict[str, str] = field(repr=False)
    """What to show for every model."""
    short: dict[str, str] = field(repr=False)
    """The same where there is little room, such as beside a wide table."""

    @property
    def confidence(self) -> float:
        return float(self.settings["uncertainty"]["confidence"])

    def metric(self, asked: str | None) -> str:
        """The metric asked for, or the default; an unknown one is an error that names the closest."""
        if asked is None:
            return next((name for name in DEFAULTS if name in self.families), next(iter(self.families)))
        if asked in self.families:
            return asked
        named = canonical(asked, self.settings)
        there("metric", list(self.families), [named])
        return named


class Reader:
    """A session with the tables of one output, as rows or as dictionaries."""

    def __init__(self, db: DuckDBPyConnection) -> None:
        self._db = db

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, parameters).fetchall()

    def dicts(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        result = self._db.execute(sql, parameters)
        columns = [column[0] for column in result.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]

    def table(self, sql: str, given: dict[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows of a query with named parameters."""
        result = self._db.execute(sql, given)
        return [column[0] for column in result.description or ()], result.fetchall()


@contextmanager
def opened(folder: Path) -> Iterator[Reader]:
    """One session for all questions of ours, so that all answers are of one run."""
    with session(folder, problems=True) as db:
        yield Reader(db)


def facts(read: Reader) -> Facts:
    """Everything that more than one section needs."""
    run = read.dicts("FROM run WHERE shown")[0]
    rows = read.rows(_LINES)
    called = dict(read.rows("SELECT protocol, label FROM protocol"))
    families = {name: (family, k) for name, family, k in read.rows(_FAMILIES)}
    boards = []
    for (benchmark, protocol), group in groupby(rows, key=lambda row: (row[0], row[1])):
        boards.append(Board(benchmark, protocol, called[protocol], _lines(row[2:] for row in group)))
    if not boards:
        raise UsageError("this leaderboard has no scores", hint="look at its run with `scorelake sql OUT 'FROM run'`")
    quarantine = read.rows("SELECT file, reason FROM quarantine WHERE run_id = ? ORDER BY ALL", run["run_id"])
    models = [name for (name,) in read.rows("SELECT DISTINCT model FROM model_summary ORDER BY ALL")]
    files = [(str(a), str(b)) for a, b in quarantine]
    return Facts(run, _settings(read, run), files, boards, families, labels(models), labels(models, SHORT))


def by_subject(read: Reader, board: Board, metric: str | None = None) -> list[Board]:
    """The boards of the subjects of a board, at every metric or at one; none where there is one subject."""
    rows = read.rows(_SUBJECT_LINES, board.benchmark, board.protocol, metric, metric)
    boards = [
        replace(board, subject=subject, lines=_lines(row[1:] for row in group))
        for subject, group in groupby(rows, key=lambda row: row[0])
    ]
    return boards if len(boards) > 1 else []


def _lines(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[Line]]:
    """The lines of a board by metric."""
    out: dict[str, list[Line]] = {}
    for metric, *told in rows:
        line = Line(*told)
        alone = line.of_benchmark == 1  # one problem says nothing about others
        out.setdefault(metric, []).append(replace(line, lo=None, hi=None) if alone else line)
    return out


_FAMILIES = "SELECT DISTINCT metric, family, k FROM model_summary ORDER BY family, k NULLS FIRST, metric"


def _settings(read: Reader, run: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, as nested as in the config file."""
    tree: dict[str, Any] = {}
    for key, value in read.rows("SELECT key, value FROM setting WHERE settings = ?", run["settings"]):
        *path, last = key.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = json.loads(value)
    return tree
