"""Leaderboards in a terminal.

A terminal may have any width: the least important columns are dropped first, then names are cut in the middle; score,
interval and rank are always complete. Into a pipe nothing is cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import groupby
from pathlib import Path, PurePosixPath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scorelake.errors import UsageError
from scorelake.read.board import BoardRows, Facts, Line, OverallRows, Reader, board_rows, facts, opened, overall_rows
from scorelake.read.format import DASH, canonical, check_names, shorten
from scorelake.read.measures import FRONTIER, HEADS, cells, read_costs
from scorelake.read.report import board_markdown, markdown_table, omitted_models, overall_markdown, plain
from scorelake.read.sentences import FORECAST, RANK_RANGE, remarks, title
from scorelake.read.series import read_series
from scorelake.read.session import Rows, to_csv, to_json
from scorelake.text import escape_controls, plural, protocol_label

_BAR, _PIPE, _MIN_NAME = 24, 120, 12
"""Characters of a bar, of a line in a pipe, and of a name before the padding of columns is dropped."""
_RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""As box.SIMPLE_HEAD, with a rule between sections."""
_COLUMNS = ["benchmark", "part", "protocol", "metric", *(each.name for each in fields(Line))]
"""Columns of CSV and JSON: those of a board, then those of a line."""
_LEADS = "leads: share of bootstrap resamples in which the model ranks first."
_NO_RANK_RANGES = (
    "Rank ranges were not computed for {metric}: it is not in [compare] metrics, or the models share fewer problems "
    "than [compare] min_problems."
)
_FORECAST_LINE = ("model", "value", "lo", "hi", "problems", "attempts_per_problem")
_HISTOGRAM = """
SELECT benchmark, model, protocol, n, c, sum(problems)::BIGINT AS problems FROM problem_histogram
WHERE c IS NOT NULL AND model IN (SELECT model FROM leaderboard) GROUP BY ALL ORDER BY ALL
"""
_PARTIAL = "* without the model's problems that have fewer than k attempts: see scored."
_NO_VALUES = (
    "No value: too few problems have k graded attempts (see scored). Choose a smaller k, or accept fewer problems "
    "with [uncertainty] min_coverage."
)


@dataclass(frozen=True)
class TextTable:
    """A table for the terminal."""

    title: str
    heads: Sequence[str]
    rows: list[list[str]]
    model: int  # position of the models; the score is next
    left: Collection[int]
    dropped: Sequence[int]  # columns that may be left out, the first first
    ranked: int = 0  # rows above the rule

    def print(self, console: Console) -> int:
        """Print it without the columns that do not fit, then with shorter names. Return how many are left out."""
        if not console.is_terminal:
            _print_plain(self._table(), max(_PIPE, _width(self._table())))
            return 0
        for count in range(len(self.dropped) + 1):
            for short in (False, True):
                table = self._table(count, short)
                if _width(table) <= console.width:
                    console.print(table)
                    return count
        longest = max(len(row[self.model]) for row in self.rows)
        for pad in (1, 0):
            room = longest - _width(self._table(count, short, pad)) + console.width
            if room >= _MIN_NAME * pad:
                break
        console.print(self._table(count, short, pad, min(max(room, 5), longest)))
        return count

    def _table(self, dropped: int = 0, short: bool = False, pad: int = 1, max_name: int | None = None) -> Table:
        table = Table(box=_RULED, title=Text(self.title, style="bold"), title_justify="left", padding=(0, pad))
        kept = [i for i in range(len(self.heads)) if i not in self.dropped[:dropped]]
        for i in kept:
            head = self.heads[i].split()[0] if short and i < self.model else shorten(self.heads[i], 18)
            style = "bold" if i == self.model + 1 else "cyan" if head == "" else ""
            table.add_column(Text(head), justify="left" if i in self.left else "right", style=style, no_wrap=True)
        for number, row in enumerate(self.rows, start=1):
            cells = [Text(shorten(row[i], max_name) if max_name and i == self.model else row[i]) for i in kept]
            table.add_row(*cells, end_section=number == self.ranked)
        return table


def _width(table: Table) -> int:
    console = Console(width=100_000)
    return console.measure(table).maximum


def show_leaderboard(
    out: Path,
    metric: str | None = None,
    benchmark: str | None = None,
    by: str | None = None,
    top: int | None = None,
    form: str = "table",
) -> str | None:
    """Print one table per benchmark, protocol and value of the column `by`; other forms are returned as text.

    Without a metric every benchmark is shown by its headline metric.
    """
    with opened(out) as read:
        published = facts(read)
        forecasts = [] if by or not metric else _forecasts(read, published, canonical(metric, published.settings))
        name = next(iter(forecasts[0].lines)) if forecasts else published.metric(metric)
        check_names("benchmark", {board.benchmark: 0 for board in published.boards}, [benchmark])
        boards = published.boards
        if by == "subject":
            boards = board_rows(read, by_subject=True)
        elif by is not None:
            slices = read.names("slice", "slice_summary")
            if by not in slices:
                available = ", ".join(map(escape_controls, ["subject", *slices]))
                hint = f"score with --by {by} first; there are: {available}"
                raise UsageError(f"no slices by {by!r} here", hint=hint)
            boards = board_rows(read, by_slice=by)
        overall = overall_rows(read, boards, name) if benchmark is None and by is None else []
    boards = [board for board in forecasts + boards if benchmark in (None, board.benchmark)]
    shown = [(board, name if metric else board.headline(name)) for board in boards]
    shown = [(board, name) for board, name in shown if name in board.lines]
    if not shown:
        hint = "another benchmark or slice has it: leave --benchmark or --by out"
        raise UsageError(f"no rows for {name}", hint=hint)
    if form in ("csv", "json"):
        rows = [
            (board.benchmark, board.part, protocol_label(board.protocol), name, *astuple(line))
            for board, name in shown
            for line in board.lines[name][:top]
        ]
        return to_csv(_COLUMNS, rows, spreadsheet=True) if form == "csv" else to_json(_COLUMNS, rows)
    if form == "markdown":
        parts = [overall_markdown(each, name, top) for each in overall]
        return "\n\n".join(parts + [board_markdown(published, board, name, top) for board, name in shown])
    _print_tables(published, overall, shown, name, top)
    return None


def _forecasts(read: Reader, published: Facts, metric: str) -> list[BoardRows]:
    """Forecast pass@k where it has no value, because no problem has k attempts."""
    if not re.fullmatch(r"pass@[1-9]\d*", metric):
        return []
    import polars as pl  # noqa: PLC0415  (loads slowly)

    from scorelake.scoring.estimates import forecast_table  # noqa: PLC0415

    columns, rows = read.table(_HISTOGRAM)
    histogram = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    table = forecast_table(histogram, [int(metric.removeprefix("pass@"))], published.confidence)
    out = []
    for board in published.boards:
        if any(line.value is not None for line in board.lines.get(metric, ())):
            continue
        mine = table.filter(benchmark=board.benchmark, protocol=board.protocol).sort("value", descending=True)
        reasons = {line.model: line.reason for line in board.lines[board.headline("pass@1")]}
        lines = [
            Line(model, value, lo, hi, None, None, None, None, many, many, many, round(many * n), reasons.get(model))
            for model, value, lo, hi, many, n in mine.select(*_FORECAST_LINE).iter_rows()
        ]
        lines.sort(key=lambda line: line.reason is not None)
        out += [replace(board, lines={metric: lines}, part="forecast", is_forecast=True)] if lines else []
    if not out and metric not in published.families:
        raise UsageError(f"no value of {metric} here", hint="forecasts reach 4 times the attempts of a problem")
    return out


def _print_tables(
    published: Facts, overall: list[OverallRows], shown: list[tuple[BoardRows, str]], metric: str, top: int | None
) -> None:
    console = Console() if Console().is_terminal else Console(width=_PIPE)
    for each in overall:
        heads, rows = each.cells(top)
        name = " · ".join(filter(None, ("All benchmarks", escape_controls(each.label), metric)))
        dropped = TextTable(name, heads, rows, 1, {1, 3}, range(len(heads) - 1, 3, -1)).print(console)
        for note in each.notes:
            console.print(Text(note), soft_wrap=True)
        if dropped:
            note = f"{plural(dropped, 'benchmark')} not shown: the terminal is too narrow"
            console.print(Text(note, style="dim"))
    for board, name in shown:
        lines = board.lines[name]
        table = _board_table(board, name, lines[:top])
        table.print(console)
        for text in (text for line in lines[:top] for text in remarks(line.model, line)):
            console.print(Text(text), soft_wrap=True)
        if omitted := omitted_models(lines[len(table.rows) :]):
            console.print(Text(f"{omitted}; --top shows more", style="dim"))
        if len(shown) > 1 and any(line.rank for line in lines) and all(line.rank_lo is None for line in lines):
            console.print(Text(_NO_RANK_RANGES.format(metric=name), style="dim"))
    for text in _footer(published, shown):
        console.print(Text(text, style="dim"), soft_wrap=not console.is_terminal and text.startswith("Run "))


def _board_table(board: BoardRows, metric: str, lines: list[Line]) -> TextTable:
    """Return ranked models, then below a rule the unranked ones."""
    scale, axis = board.scale(metric), _axis(lines)
    rows = [
        [
            line.rank_range,
            "" if line.p_best is None else f"{line.p_best:.0%}",
            escape_controls(line.model),
            line.score(scale) + " " * (not line.is_partial),
            scale.between(line.lo, line.hi),
            _bar(line, axis),
            f"{line.problems:,}",
            f"{line.problems_scored / line.problems:.0%}" if line.problems else DASH,
            f"{line.attempts:,}",
        ]
        for line in lines
    ]
    heads = ["rank", "leads in resamples", "model", scale.heading(metric), "interval", ""]
    heads += ["problems", "scored", "attempts"]
    ranked = sum(not line.reason for line in lines)
    return TextTable(f"{title(board)} · {metric}", heads, rows, 2, {2, 4, 5}, (8, 6, 7, 1, 5), ranked)


def show_series(out: Path, run: str, form: str) -> str | None:
    """Print the curve of a run over its steps, with its best step; other forms are returned as text."""
    with opened(out) as read:
        check_names("series", read.names("model", "series"), [run])
        found, raw = read_series(read, run), read.table("FROM series WHERE model = ? ORDER BY ALL", (run,))
    tables = []
    for each in found:
        scale = each.scale
        rows = [
            [f"{step}", scale.text(value), scale.between(*ends[:2]), scale.between(*ends[2:]), f"{many:,}", f"{n:,}"]
            for step, value, *ends, many, n in each.points
        ]
        heads = ["step", scale.heading(each.metric), "interval", "band of all steps", "problems", "attempts"]
        tables.append((TextTable(each.title, heads, rows, 0, {2, 3}, (5, 4, 3)), [each.text()]))
    return _print_or_return(tables, raw, form)


def show_measure(out: Path, measure: str, form: str) -> str | None:
    """Print what the attempts of each model cost, by benchmark and protocol; other forms are returned as text."""
    with opened(out) as read:
        check_names("measure", {row["measure"]: 0 for row in read_costs(read)}, [measure])
        found = read_costs(read, measure)
        raw = read.table("FROM measure_summary WHERE measure = ? ORDER BY ALL", (measure,))
    tables = []
    for (benchmark, label), group in groupby(found, key=lambda row: (row["benchmark"], row["label"])):
        rows = [[escape_controls(row["model"]), *cells(row)] for row in group]
        name = " \u00b7 ".join(escape_controls(part) for part in (benchmark, label, measure) if part)
        tables.append((TextTable(name, ["model", *HEADS], rows, 0, {0, 2, 4}, (6, 4, 7, 5, 3)), [FRONTIER]))
    return _print_or_return(tables, raw, form)


def _print_or_return(tables: list[tuple[TextTable, list[str]]], raw: tuple[list[str], Rows], form: str) -> str | None:
    if form in ("csv", "json"):
        return to_csv(*raw, spreadsheet=True) if form == "csv" else to_json(*raw)
    console, parts = Console() if Console().is_terminal else Console(width=_PIPE), []
    for table, notes in tables:
        right = [i for i in range(len(table.heads)) if i not in table.left]
        parts += [f"## {plain(table.title)}", markdown_table(table.heads, table.rows, right), *map(plain, notes)]
        if form == "table":
            table.print(console)
            for note in notes:
                console.print(Text(note), soft_wrap=True)
    return None if form == "table" else "\n\n".join(parts)


def print_rows(columns: list[str], rows: Rows) -> None:
    """Print the rows of any query."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        table.add_column(Text(escape_controls(column)), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        cells = ("" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)
        table.add_row(*(Text(escape_controls(cell)) for cell in cells))
    if Console().is_terminal:
        Console().print(table)
    else:
        _print_plain(table, 10_000)


def _print_plain(table: Table, width: int) -> None:
    """Print a table into a pipe or a file, without trailing spaces."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _axis(lines: list[Line]) -> tuple[float, float]:
    """Return 0 and 1, or the ends of the intervals of a board beyond them."""
    ends = [end for line in lines for end in (line.lo, line.value, line.hi) if end is not None]
    return min([0.0, *ends]), max([1.0, *ends])


def _bar(line: Line, axis: tuple[float, float]) -> str:
    """Draw the interval with its value on the axis of the board."""
    if line.value is None or line.lo is None or line.hi is None:
        return ""
    low, value, high = (round((x - axis[0]) / (axis[1] - axis[0]) * _BAR) for x in (line.lo, line.value, line.hi))
    return " " * low + "─" * (value - low) + "●" + "─" * (high - value)


def _footer(published: Facts, shown: list[tuple[BoardRows, str]]) -> list[str]:
    """Explain the numbers, and name the run."""
    lines = [line for board, name in shown for line in board.lines[name]]
    notes = [f"{published.confidence:.0%} confidence intervals (problems treated as a random sample)."]
    if any(line.rank_lo for line in lines):
        notes += [RANK_RANGE, _LEADS]
    elif any(line.rank for line in lines):
        notes.append(_NO_RANK_RANGES.format(metric=shown[0][1]))
    notes += [FORECAST] if any(board.is_forecast for board, _ in shown) else []
    notes += [_NO_VALUES] if all(line.value is None for line in lines) else []
    notes += [_PARTIAL] if any(line.is_partial for line in lines) else []
    run = published.run
    lake = escape_controls(PurePosixPath(str(run["lake"]).rstrip("/")).name)
    source = f"Run {run['run_id']} of {run['started']:%Y-%m-%d %H:%M} UTC, lake {lake}."
    if run["quarantined"]:
        source += f" Warning: {run['quarantined']:,} files were left out as unreadable (table quarantine)."
    if run["rejected"]:
        source += f" Warning: {run['rejected']:,} rows were rejected."
    return [" ".join(notes), source, *([published.rollback_note] if published.rollback_note else [])]
