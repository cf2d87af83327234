"""Leaderboards in a terminal.

A terminal may have any width: the least important columns are dropped first, then names are cut in the middle; score,
interval and rank are always complete. Into a pipe nothing is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scorelake.errors import UsageError
from scorelake.read.board import Facts, Line, OverallRows, Reader, facts, opened, overall_rows
from scorelake.read.names import check_names, shorten
from scorelake.read.report import overall_cells, overall_markdown
from scorelake.read.session import Rows, to_csv, to_json
from scorelake.text import escape_controls, plural

_BAR = 24
_RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""As box.SIMPLE_HEAD, with a rule between sections."""
_DROPPED = ("attempts", "problems", "coverage", "best", "")
"""Columns that a narrow terminal drops, in this order; the last is the bar."""
_MIN_NAME = 12
"""Names are cut to this length before the padding of columns is dropped."""
_ROWS = """
SELECT
    benchmark, {part} AS part, label AS protocol, model, value, lo, hi, problems_scored, problems, attempts, {ranks}
FROM {view} JOIN protocol USING (protocol)
WHERE metric = $metric AND ($benchmark IS NULL OR benchmark = $benchmark) {condition}
ORDER BY benchmark, part NULLS FIRST, protocol, rank NULLS LAST, value DESC NULLS LAST, model
"""
_RANKS = "rank, rank_lo, rank_hi, p_best, reason"
_NO_RANKS = (
    "NULL::BIGINT AS rank, NULL::BIGINT AS rank_lo, NULL::BIGINT AS rank_hi, NULL::DOUBLE AS p_best, "
    "NULL::VARCHAR AS reason"
)
_RANK_RANGES = (
    "Rank 1-3: no other model is significantly better, and all but two are significantly worse; best: share of "
    "bootstrap resamples in which the model ranks first."
)
_NO_RANK_RANGES = (
    "Rank ranges were not computed for {metric}: it is not in [compare] metrics, or the models share fewer problems "
    "than [compare] min_problems."
)
_PARTIAL = "* without the model's problems that have fewer than k attempts: see coverage."
_NO_VALUES = (
    "No value: too few problems have k graded attempts (see coverage). Choose a smaller k, or accept fewer problems "
    "with [uncertainty] min_coverage."
)
Head = tuple[Any, ...]
"""Benchmark, subject or slice, and protocol of a table."""


def show_leaderboard(
    out: Path,
    metric: str | None = None,
    benchmark: str | None = None,
    by: str | None = None,
    top: int | None = None,
    form: str = "table",
) -> str | None:
    """Print one table per benchmark, protocol and value of the column `by`; other forms are returned as text."""
    with opened(out) as read:
        published = facts(read)
        metric = published.metric(metric)
        check_names("benchmark", list({board.benchmark: 0 for board in published.boards}), [benchmark])
        sql, parameters = _query(read, by), {"metric": metric, "benchmark": benchmark}
        columns, rows = read.table(sql, parameters | ({"slice": by} if "$slice" in sql else {}))
        full = dict(read.rows("SELECT protocol, label FROM protocol"))
        overall = overall_rows(read, metric) if benchmark is None and by is None else []
    if not rows:
        hint = "another benchmark or slice has it: leave --benchmark or --by out"
        raise UsageError(f"no rows for {metric}", hint=hint)
    tables = {head: list(group) for head, group in groupby(rows, key=lambda row: row[:3])}
    if form in ("csv", "json"):
        rows = [row for table in tables.values() for row in table[:top]]
        return to_csv(columns, rows, spreadsheet=True) if form == "csv" else to_json(columns, rows)
    short = {(board.benchmark, full[board.protocol]): board.label for board in published.boards}
    boards = {
        (benchmark, part, short[benchmark, label]): [_line(row) for row in table]
        for (benchmark, part, label), table in tables.items()
    }
    if form == "markdown":
        tables_of_all = [overall_markdown(each, metric, top) for each in overall]
        return "\n\n".join(tables_of_all + [_markdown(head, metric, lines, top) for head, lines in boards.items()])
    console = Console() if Console().is_terminal else Console(width=120)
    for each in overall:
        _print_overall(console, each, metric, top)
    for head, lines in boards.items():
        kept = lines[:top]
        table = _fitted_table(console, head, metric, kept)
        _print(table, max(120, _width(console, table)))
        for note in _reasons(kept):
            console.print(Text(note), soft_wrap=True)
        if omitted := _omitted(lines[len(kept) :]):
            console.print(Text(omitted, style="dim"))
        if len(boards) > 1 and _lacks_ranges(lines):
            console.print(Text(_NO_RANK_RANGES.format(metric=metric), style="dim"))
    for text in _footer(published, metric, [line for lines in boards.values() for line in lines]):
        console.print(Text(text, style="dim"), soft_wrap=not console.is_terminal and text.startswith("Run "))
    return None


def _print_overall(console: Console, overall: OverallRows, metric: str, top: int | None) -> None:
    """Print models by benchmarks; a narrow terminal drops benchmarks from the last on."""
    head, rows = overall_cells(overall, top)
    for dropped in range(len(overall.benchmarks) + 1):
        table = Table(box=_RULED, title=Text(_title(("All benchmarks", overall.label), metric), style="bold"))
        table.title_justify = "left"
        kept = len(head) - dropped
        for i, name in enumerate(head[:kept]):
            table.add_column(Text(shorten(name, 18)), justify="left" if i in (1, 3) else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row[:kept]))
        if not console.is_terminal or _width(console, table) <= console.width:
            break
    _print(table, max(120, _width(console, table)))
    lines = [line for line, _ in overall.lines[:top]]
    for note in _reasons(lines):
        console.print(Text(note), soft_wrap=True)
    if dropped:
        console.print(Text(f"{plural(dropped, 'benchmark')} not shown: the terminal is too narrow", style="dim"))


def print_rows(columns: list[str], rows: Rows) -> None:
    """Print the rows of any query."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        table.add_column(Text(escape_controls(column)), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        cells = ("" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)
        table.add_row(*(Text(escape_controls(cell)) for cell in cells))
    _print(table, 10_000)


def _print(table: Table, width: int) -> None:
    """Print a table; into a pipe or a file with the given width, and without trailing spaces."""
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _query(read: Reader, by: str | None) -> str:
    """Return the query for the rows; raise if there are no slices by that column."""
    if by is None:
        return _ROWS.format(ranks=_RANKS, view="leaderboard", part="NULL", condition="")
    if by == "subject":
        return _ROWS.format(ranks=_RANKS, view="subject_leaderboard", part="subject", condition="")
    slices = read.names("slice", "slice_summary")
    if by not in slices:
        available = ", ".join(map(escape_controls, ["subject", *slices]))
        raise UsageError(f"no slices by {by!r} here", hint=f"score with --by {by} first; there are: {available}")
    part, condition = "coalesce(slice_value, 'none')", "AND slice = $slice"
    return _ROWS.format(ranks=_NO_RANKS, view="slice_summary", part=part, condition=condition)


def _line(row: tuple[Any, ...]) -> Line:
    model, value, lo, hi, scored, problems, attempts, rank, rank_lo, rank_hi, p_best, reason = row[3:]
    return Line(model, value, lo, hi, rank, rank_lo, rank_hi, p_best, problems, scored, problems, attempts, reason)


def _cells(line: Line, axis: tuple[float, float]) -> dict[str, str]:
    """Return the text of every column."""
    return {
        "rank": line.rank_range.replace("\u2013", "-"),
        "best": "" if line.p_best is None else f"{line.p_best:.0%}",
        "model": escape_controls(line.model),
        "score": "-" if line.value is None else f"{line.value:.4f}{'*' if line.is_partial else ' '}",
        "interval": "-" if line.lo is None else f"{line.lo:.3f} to {line.hi:.3f}",
        "": _bar(line, axis),
        "problems": f"{line.problems:,}",
        "coverage": f"{line.scored / line.problems:.0%}",
        "attempts": f"{line.attempts:,}",
    }


def _reasons(lines: list[Line]) -> list[str]:
    names = ((escape_controls(line.model), escape_controls(line.reason)) for line in lines if line.reason)
    return [f"{model} is not ranked: {reason}" for model, reason in names]


def _omitted(lines: list[Line]) -> str:
    """Describe the models that --top leaves out; empty if there are none."""
    unranked = sum(line.reason is not None for line in lines)
    parts = [plural(len(lines) - unranked, "more model")] if len(lines) > unranked else []
    parts += [f"{unranked:,} that {'is' if unranked == 1 else 'are'} not ranked"] if unranked else []
    return f"{' and '.join(parts)}; --top shows more" if parts else ""


def _markdown(head: Head, metric: str, lines: list[Line], top: int | None) -> str:
    from scorelake.read.report import markdown_table, plain  # noqa: PLC0415  (only for this form)

    kept = lines[:top]
    columns = ("rank", "model", "score", "interval", "problems", "attempts")
    rows = [[cells[column].strip() for column in columns] for cells in (_cells(line, (0, 1)) for line in kept)]
    table = markdown_table([plain(metric) if column == "score" else column for column in columns], rows)
    notes = [*_reasons(kept), _omitted(lines[len(kept) :])]
    return "\n\n".join([f"**{plain(_title(head, metric))}**", table, *(plain(note) for note in notes if note)])


def _title(head: Head, metric: str) -> str:
    return " / ".join(escape_controls(part) for part in (*head, metric) if part)


def _fitted_table(console: Console, head: Head, metric: str, lines: list[Line]) -> Table:
    """Return the table without the columns that do not fit, then with shorter names."""
    for count in range(len(_DROPPED) + 1):
        table = _table(head, metric, lines, _DROPPED[:count])
        if not console.is_terminal or _width(console, table) <= console.width:
            return table
    longest = max(len(escape_controls(line.model)) for line in lines)
    for pad in (1, 0):
        excess = _width(console, _table(head, metric, lines, pad=pad)) - console.width
        if excess <= 0 or longest - excess >= _MIN_NAME * pad:
            break
    return _table(head, metric, lines, max_name=max(longest - excess, 5) if excess > 0 else 0, pad=pad)


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=100_000)).maximum


def _table(
    head: Head, metric: str, lines: list[Line], dropped: Sequence[str] = _DROPPED, max_name: int = 0, pad: int = 1
) -> Table:
    """Return ranked models, then below a rule the unranked ones; names are cut to max_name unless it is 0."""
    title = Text(_title(head, metric), style="bold")
    table = Table(box=_RULED, title=title, title_justify="left", padding=(0, pad))
    axis = _axis(lines)
    rows = [_cells(line, axis) for line in lines]
    left, styles = ("model", "interval", ""), {"score": "bold", "": "cyan"}
    names = [name for name in rows[0] if name not in dropped]
    for name in names:
        label = Text(metric if name == "score" else name)
        table.add_column(label, justify="left" if name in left else "right", no_wrap=True)
    for line, cells, following in zip(lines, rows, [*lines[1:], None], strict=True):
        cells["model"] = shorten(cells["model"], max_name) if max_name else cells["model"]
        row = [Text(cells[name], style=styles.get(name, "")) for name in names]
        table.add_row(*row, end_section=not line.reason and following is not None and bool(following.reason))
    return table


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


def _lacks_ranges(lines: list[Line]) -> bool:
    return any(line.rank for line in lines) and all(line.rank_lo is None for line in lines)


def _footer(published: Facts, metric: str, lines: list[Line]) -> list[str]:
    """Explain the numbers, and name the run."""
    notes = [f"{published.confidence:.0%} confidence intervals (problems treated as a random sample)."]
    if any(line.rank for line in lines):
        notes.append(_NO_RANK_RANGES.format(metric=metric) if _lacks_ranges(lines) else _RANK_RANGES)
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
