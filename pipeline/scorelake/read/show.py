"""Leaderboards in a terminal. Ranks that the problems do not settle are printed as ranges, not as winners."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scorelake.errors import UsageError
from scorelake.read.names import canonical
from scorelake.read.session import query, settings_shown
from scorelake.words import visible

_BAR = 24
_RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""As box.SIMPLE_HEAD, and a rule between sections."""

_ROWS = """
SELECT benchmark, {subject} AS subject, label, model, value, lo, hi, problems_scored, problems, attempts, rank,
    rank_lo, rank_hi, p_best, reason
FROM {view} JOIN protocol USING (protocol)
WHERE metric = ? AND (? IS NULL OR benchmark = ?)
ORDER BY benchmark, subject, protocol, rank NULLS LAST, value DESC NULLS LAST, model
"""

_RANGES = {
    True: "A rank such as 1-3 means that the problems do not settle the order; best is the share of resamples in "
    "which the model leads.",
    False: "How far the ranks are settled is not known: the metric is not in [compare] metrics, or the models have "
    "fewer problems in common than [compare] min_problems.",
}
_PARTLY = "* of some of the model's problems only: see coverage."
_UNSCORED = (
    "No value: too few problems have k graded attempts (see coverage). Ask for a smaller k, or accept fewer problems "
    "with [uncertainty] min_coverage."
)


@dataclass(frozen=True)
class Line:
    """One model on a board."""

    model: str
    value: float | None
    lo: float | None
    hi: float | None
    scored: int
    problems: int
    attempts: int
    rank: int | None
    rank_lo: int | None
    rank_hi: int | None
    best: float | None
    reason: str | None

    @property
    def place(self) -> str:
        """The range that is left open, or the plain rank where it is not known."""
        if self.rank is None or self.rank_lo is None or self.rank_lo == self.rank_hi:
            return "-" if self.rank is None else str(self.rank)
        return f"{self.rank_lo}-{self.rank_hi}"

    @property
    def shown(self) -> str:
        """The value, marked if it is not of all problems."""
        return "-" if self.value is None else f"{self.value:.4f}{'*' if self.scored < self.problems else ' '}"


def leaderboard(out: Path, metric: str, benchmark: str | None, by_subject: bool) -> None:
    """Print one table per benchmark (and subject, and protocol)."""
    settings = settings_shown(out)
    name = canonical(metric, settings)
    view, subject = ("subject_leaderboard", "subject") if by_subject else ("leaderboard", "NULL")
    _, rows = query(out, _ROWS.format(view=view, subject=subject), (name, benchmark, benchmark))
    if not rows:
        raise _nothing(out, name, benchmark)
    console = _console()
    lines = [Line(*row[3:]) for row in rows]
    for head in dict.fromkeys(row[:3] for row in rows):
        board = [line for line, row in zip(lines, rows, strict=True) if row[:3] == head]
        console.print(_table(head, name, board))
        for line in board:
            if line.reason:
                console.print(Text(visible(f"{line.model} is not ranked: {line.reason}")), soft_wrap=True)
    told = [f"Intervals: {settings['uncertainty']['confidence']:.0%}, of the value on other problems like these."]
    told += [_RANGES[any(line.rank_lo is not None for line in lines)]] if any(line.rank for line in lines) else []
    told += [_UNSCORED] if all(line.value is None for line in lines) else []
    told += [_PARTLY] if any("*" in line.shown for line in lines) else []
    console.print(Text(" ".join(told), style="dim"))


def rows(columns: list[str], values: list[tuple[Any, ...]]) -> None:
    """Print any query's rows."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in values)
        table.add_column(Text(visible(column)), justify="right" if numeric else "left", no_wrap=True)
    for row in values:
        table.add_row(*(Text("" if cell is None else visible(_cell(cell))) for cell in row))
    _console(wide=True).print(table)


def _console(wide: bool = False) -> Console:
    """As wide as the terminal; into a pipe or a file, wide enough that nothing is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=10_000 if wide else 120)


def _cell(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _table(head: tuple[Any, ...], metric: str, lines: list[Line]) -> Table:
    """A board: ranked models, then below a rule those that are not ranked."""
    title = " / ".join(part for part in (*head, metric) if part)
    table = Table(box=_RULED, title=Text(visible(title), style="bold"), title_justify="left")
    for column, justify in (
        ("rank", "right"),
        ("best", "right"),
        ("model", "left"),
        (metric, "right"),
        ("interval", "left"),
        ("", "left"),
        ("problems", "right"),
        ("coverage", "right"),
        ("attempts", "right"),
    ):
        table.add_column(Text(column), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    axis = _axis(lines)
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        cells = [
            Text(line.place),
            Text("" if line.best is None else f"{line.best:.0%}"),
            Text(visible(line.model)),
            Text(line.shown, style="bold"),
            Text("-" if line.lo is None else f"{line.lo:.3f} to {line.hi:.3f}"),
            Text(_bar(line, axis), style="cyan"),
            Text(f"{line.problems:,}"),
            Text(f"{line.scored / line.problems:.0%}"),
            Text(f"{line.attempts:,}"),
        ]
        table.add_row(*cells, end_section=not line.reason and after is not None and bool(after.reason))
    return table


def _axis(lines: list[Line]) -> tuple[float, float]:
    """From 0 to 1, or as far as the intervals of a board reach."""
    ends = [end for line in lines for end in (line.lo, line.value, line.hi) if end is not None]
    return min([0.0, *ends]), max([1.0, *ends])


def _bar(line: Line, axis: tuple[float, float]) -> str:
    """The interval on the axis of the board, the value marked."""
    if line.value is None or line.lo is None or line.hi is None:
        return ""
    low, value, high = (round((x - axis[0]) / (axis[1] - axis[0]) * _BAR) for x in (line.lo, line.value, line.hi))
    return " " * low + "─" * (value - low) + "●" + "─" * (high - value)


def _nothing(out: Path, metric: str, benchmark: str | None) -> UsageError:
    _, known = query(out, "SELECT DISTINCT metric FROM model_summary ORDER BY ALL")
    _, benchmarks = query(out, "SELECT DISTINCT benchmark FROM model_summary ORDER BY ALL")
    return UsageError(
        f"no rows for {metric}" + (f" in benchmark {benchmark!r}" if benchmark else ""),
        hint=f"metrics: {', '.join(row[0] for row in known)}; benchmarks: {', '.join(row[0] for row in benchmarks)}",
    )
