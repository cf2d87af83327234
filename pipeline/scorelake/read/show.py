"""Leaderboards in a terminal. Ranks that the problems do not settle are printed as ranges, not as winners.

A terminal may be of any width: columns that matter least go first, then names are cut in the middle; score, interval
and rank are always whole. Into a pipe nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scorelake.errors import UsageError
from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.labels import shortened
from scorelake.read.names import there
from scorelake.read.session import to_csv, to_json
from scorelake.text import escape_controls, plural

_BAR = 24
_RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""As box.SIMPLE_HEAD, and a rule between sections."""
_DROPPED = ("attempts", "problems", "coverage", "best", "")
"""Columns that go where a terminal is narrow, in this order; the last is the bar."""

_SHORTEST = 12
"""Names are cut to this length before columns move together."""

_COLUMNS = "value, lo, hi, problems_scored, problems, attempts"
_ROWS = """
SELECT benchmark, {part} AS part, label AS protocol, model, {columns}, {ranks}
FROM {view} JOIN protocol USING (protocol)
WHERE metric = $metric AND ($benchmark IS NULL OR benchmark = $benchmark) {more}
ORDER BY benchmark, part NULLS FIRST, protocol, rank NULLS LAST, value DESC NULLS LAST, model
"""
_RANKS = "rank, rank_lo, rank_hi, p_best, reason"
_NO_RANKS = "NULL::BIGINT AS rank, NULL::BIGINT, NULL::BIGINT, NULL::DOUBLE, NULL::VARCHAR"

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
class Asked:
    """What to print: which metric and benchmark, cut by what, how many models, and in which form."""

    metric: str | None = None
    benchmark: str | None = None
    by_subject: bool = False
    by: str | None = None
    top: int | None = None
    form: str = "table"


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

    def cells(self, axis: tuple[float, float]) -> dict[str, str]:
        """What stands in each column."""
        return {
            "rank": self.place,
            "best": "" if self.best is None else f"{self.best:.0%}",
            "model": escape_controls(self.model),
            "score": self.shown,
            "interval": "-" if self.lo is None else f"{self.lo:.3f} to {self.hi:.3f}",
            "": _bar(self, axis),
            "problems": f"{self.problems:,}",
            "coverage": f"{self.scored / self.problems:.0%}",
            "attempts": f"{self.attempts:,}",
        }


def leaderboard(out: Path, asked: Asked) -> str | None:
    """Print one table per benchmark (and subject or slice, and protocol); other forms are returned as text."""
    with opened(out) as read:
        known = facts(read)
        name = known.metric(asked.metric)
        columns, rows = read.table(*_query(read, known, name, asked))
    if not rows:
        raise UsageError(
            f"no rows for {name}", hint="another benchmark or slice has it: leave --benchmark or --by out"
        )
    boards = [(head, list(group)) for head, group in groupby(rows, key=lambda row: row[:3])]
    if asked.form in ("csv", "json"):
        some = [row for _, board in boards for row in board[: asked.top]]
        return to_csv(columns, some, spreadsheet=True) if asked.form == "csv" else to_json(columns, some)
    lines = {head: [Line(*row[3:]) for row in board] for head, board in boards}
    if asked.form == "markdown":
        return "\n\n".join(_markdown(head, name, board, asked.top) for head, board in lines.items())
    console = _console()
    for head, board in lines.items():
        kept = board[: asked.top]
        table = _fitted(console, head, name, kept)
        _print(table, max(120, _width(console, table)))
        for line in kept:
            if line.reason:
                console.print(
                    Text(f"{escape_controls(line.model)} is not ranked: {escape_controls(line.reason)}"),
                    soft_wrap=True,
                )
        if left := _left(board[len(kept) :]):
            console.print(Text(left, style="dim"))
        if len(lines) > 1 and _by_value(board):
            console.print(Text(_RANGES[False], style="dim"))
    for text in _footer(known, [line for board in lines.values() for line in board]):
        console.print(Text(text, style="dim"), soft_wrap=not console.is_terminal and text.startswith("Run "))
    return None


def rows(columns: list[str], values: list[tuple[Any, ...]]) -> None:
    """Print any query's rows."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in values)
        table.add_column(Text(escape_controls(column)), justify="right" if numeric else "left", no_wrap=True)
    for row in values:
        table.add_row(*(Text("" if cell is None else escape_controls(_cell(cell))) for cell in row))
    _print(table, 10_000)


def _print(table: Table, wide: int) -> None:
    """To a terminal as wide as that is; into a pipe or a file nothing is cut, and no line ends in spaces."""
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    console = Console(width=wide)
    with console.capture() as told:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in told.get().splitlines()))


def _query(read: Reader, known: Facts, metric: str, asked: Asked) -> tuple[str, dict[str, Any]]:
    """The question for the tables, and what is asked; a name that is not there is answered by the closest."""
    benchmarks = list(dict.fromkeys(board.benchmark for board in known.boards))
    there("benchmark", benchmarks, [asked.benchmark] if asked.benchmark is not None else [])
    given = {"metric": metric, "benchmark": asked.benchmark}
    parts = {"columns": _COLUMNS, "ranks": _RANKS, "view": "leaderboard", "part": "NULL", "more": ""}
    if asked.by is not None:
        slices = [name for (name,) in read.rows("SELECT DISTINCT slice FROM slice_summary ORDER BY ALL")]
        if asked.by == "subject":
            parts |= {"view": "subject_leaderboard", "part": "subject"}
        elif asked.by in slices:
            parts |= {"view": "slice_summary", "part": "coalesce(slice_value, 'none')", "ranks": _NO_RANKS}
            parts["more"] = "AND slice = $slice"
            given["slice"] = asked.by
        else:
            names = ", ".join(map(escape_controls, ["subject", *slices]))
            hint = f"score with --by {asked.by} first; there are: {names}"
            raise UsageError(f"no slices by {asked.by!r} here", hint=hint)
    elif asked.by_subject:
        parts |= {"view": "subject_leaderboard", "part": "subject"}
    return _ROWS.format(**parts), given


def _left(lines: list[Line]) -> str:
    """How many models --top leaves out, those that are not ranked told apart; nothing where there are none."""
    unranked = sum(line.reason is not None for line in lines)
    told = [plural(len(lines) - unranked, "more model")] if len(lines) > unranked else []
    told += [f"{unranked:,} that {'is' if unranked == 1 else 'are'} not ranked"] if unranked else []
    return f"{' and '.join(told)}; --top shows more" if told else ""


def _markdown(head: tuple[Any, ...], metric: str, lines: list[Line], top: int | None) -> str:
    from scorelake.read.report import plain, table  # noqa: PLC0415  (only for this form)

    kept = lines[:top]
    told = [line.cells((0, 1)) for line in kept]
    columns = ("rank", "model", "score", "interval", "problems", "attempts")
    body = table(
        [plain(metric) if c == "score" else c for c in columns], [[t[c].strip() for c in columns] for t in told]
    )
    notes = [
        f"{escape_controls(line.model)} is not ranked: {escape_controls(line.reason)}" for line in kept if line.reason
    ]
    notes += [left] if (left := _left(lines[len(kept) :])) else []
    return "\n\n".join([f"**{plain(_title(head, metric))}**", body, *map(plain, notes)])


def _console() -> Console:
    """As wide as the terminal; into a pipe or a file, wide enough that nothing is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _cell(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _title(head: tuple[Any, ...], metric: str) -> str:
    benchmark, part, protocol = head
    return " / ".join(escape_controls(each) for each in (benchmark, part, protocol, metric) if each)


def _fitted(console: Console, head: tuple[Any, ...], metric: str, lines: list[Line]) -> Table:
    """The table as it fits: without what matters least, then with shorter names."""
    drop: list[str] = []
    table = _table(head, metric, lines, drop)
    for column in _DROPPED:
        if not console.is_terminal or _width(console, table) <= console.width:
            return table
        drop.append(column)
        table = _table(head, metric, lines, drop)
    longest = max(len(escape_controls(line.model)) for line in lines)
    for pad in (1, 0):
        over = _width(console, _table(head, metric, lines, drop, pad=pad)) - console.width
        if over <= 0 or longest - over >= _SHORTEST * pad:
            break
    return _table(head, metric, lines, drop, max(longest - over, 5) if over > 0 else 0, pad)


def _width(console: Console, table: Table) -> int:
    """How wide a table would like to be."""
    return console.measure(table, options=console.options.update(width=100_000)).maximum


def _table(
    head: tuple[Any, ...], metric: str, lines: list[Line], drop: list[str], longest: int = 0, pad: int = 1
) -> Table:
    """A board: ranked models, then below a rule those that are not ranked."""
    title = Text(_title(head, metric), style="bold")
    table = Table(box=_RULED, title=title, title_justify="left", padding=(0, pad))
    axis = _axis(lines)
    told = [line.cells(axis) for line in lines]
    left, styles = ("model", "interval", ""), {"score": "bold", "": "cyan"}
    names = [name for name in (told[0] if told else ()) if name not in drop]
    for name in names:
        label = Text(metric if name == "score" else name)
        table.add_column(label, justify="left" if name in left else "right", no_wrap=True)
    for line, cells, after in zip(lines, told, [*lines[1:], None], strict=True):
        cells["model"] = shortened(cells["model"], longest) if longest else cells["model"]
        row = [Text(cells[name], style=styles.get(name, "")) for name in names]
        table.add_row(*row, end_section=not line.reason and after is not None and bool(after.reason))
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


def _by_value(lines: list[Line]) -> bool:
    """Ranked, but nothing says how far the ranks are settled."""
    return any(line.rank for line in lines) and all(line.rank_lo is None for line in lines)


def _footer(known: Facts, lines: list[Line]) -> list[str]:
    """How to read the numbers, and which run they are of."""
    told = [f"Intervals: {known.confidence:.0%}, of the value on other problems like these."]
    told += [_RANGES[not _by_value(lines)]] if any(line.rank for line in lines) else []
    told += [_UNSCORED] if all(line.value is None for line in lines) else []
    told += [_PARTLY] if any("*" in line.shown for line in lines) else []
    run = known.run
    lake = escape_controls(PurePosixPath(str(run["lake"]).rstrip("/")).name)
    where = f"Run {run['run_id']} of {run['started']:%Y-%m-%d %H:%M} UTC, lake {lake}."
    if run["quarantined"]:
        where += f" Warning: {run['quarantined']:,} files were left out as unreadable (table quarantine)."
    if run["rejected"]:
        where += f" Warning: {run['rejected']:,} rows were rejected."
    return [" ".join(told), where]
