"""Leaderboards in a terminal. Ranks that the problems do not settle are printed as ranges, not as winners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.read.session import query

_BAR = 24

_ROWS = """
SELECT s.benchmark, {subject} AS subject, s.protocol, s.model, s.value, s.mu, s.lo, s.hi, s.problems,
    s.problems_scored, s.attempts,
    CASE WHEN s.value IS NOT NULL THEN
        rank() OVER (PARTITION BY s.benchmark, {subject}, s.protocol ORDER BY s.value DESC NULLS LAST)
    END AS rank,
    r.rank_lo, r.rank_hi, r.p_best
FROM {kind}_summary AS s
LEFT JOIN {kind}_rank AS r
    ON r.benchmark = s.benchmark AND r.protocol = s.protocol AND r.metric = s.metric AND r.model = s.model {same}
WHERE s.metric = ? AND (? IS NULL OR s.benchmark = ?)
ORDER BY s.benchmark, subject, s.protocol, s.value DESC NULLS LAST, s.mu DESC NULLS LAST, s.model
"""


_RANGES = {
    True: "A rank such as 1-3 means that resampling the problems does not settle the order; best is the share of "
    "resamples in which the model leads.",
    False: "How far the ranks are settled is not known: name the metric in [compare] metrics.",
}
_UNSCORED = (
    "No value: too few problems have k graded attempts (see coverage). Ask for a smaller k, or accept fewer problems "
    "with [uncertainty] min_coverage."
)


def leaderboard(out: Path, metric: str, benchmark: str | None, by_subject: bool) -> None:
    """Print one table per benchmark (and subject, and protocol)."""
    name = metric if metric.startswith("spectrum") else metrics.parse(metric).name
    sql = _ROWS.format(
        subject="s.subject" if by_subject else "NULL",
        kind="subject" if by_subject else "model",
        same="AND r.subject = s.subject" if by_subject else "",
    )
    _, rows = query(out, sql, (name, benchmark, benchmark))
    if not rows:
        raise _nothing(out, name, benchmark)
    _, confidence = query(out, "SELECT settings FROM run ORDER BY started DESC LIMIT 1")
    console = _console()
    heads = list(dict.fromkeys(row[:3] for row in rows))
    for head in heads:
        console.print(_table(head, name, [row[3:] for row in rows if row[:3] == head]))
    share = _confidence(confidence[0][0])
    settled = any(row[-1] is not None for row in rows)
    valued = any(row[4] is not None for row in rows)
    told = _RANGES[settled] if valued else _UNSCORED
    console.print(Text(f"Intervals: {share:.0%} posterior, problems fixed. {told}", style="dim"))


def rows(columns: list[str], values: list[tuple[Any, ...]]) -> None:
    """Print any query's rows."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in values)
        table.add_column(Text(column), justify="right" if numeric else "left", no_wrap=True)
    for row in values:
        table.add_row(*(Text("" if cell is None else _cell(cell)) for cell in row))
    _console(wide=True).print(table)


def _console(wide: bool = False) -> Console:
    """As wide as the terminal; into a pipe or a file, wide enough that nothing is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=10_000 if wide else 120)


def _cell(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _table(head: tuple[Any, ...], metric: str, entries: list[tuple[Any, ...]]) -> Table:
    benchmark, subject, protocol = head
    title = " / ".join(part for part in (benchmark, subject, protocol, metric) if part)
    table = Table(box=box.SIMPLE_HEAD, title=Text(title, style="bold"), title_justify="left")
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
    for model, value, mu, lo, hi, problems, scored, attempts, rank, first, last, best in entries:
        table.add_row(
            Text(_rank(rank, first, last)),
            Text("" if best is None or rank is None else f"{best:.0%}"),
            Text(model),
            Text("-" if value is None else f"{value:.4f}", style="bold"),
            Text("-" if lo is None else f"{lo:.3f} to {hi:.3f}"),
            Text(_bar(mu, lo, hi), style="cyan"),
            Text(f"{problems:,}"),
            Text(f"{scored / problems:.0%}"),
            Text(f"{attempts:,}"),
        )
    return table


def _rank(rank: int | None, first: int | None, last: int | None) -> str:
    """The range that is left open, or the plain rank where it is not known."""
    if rank is None or first is None:
        return "-" if rank is None else str(rank)
    return str(first) if first == last else f"{first}-{last}"


def _bar(mu: float | None, lo: float | None, hi: float | None) -> str:
    """The interval on a line from 0 to 1, its middle marked."""
    if mu is None or lo is None or hi is None or not 0 <= lo <= hi <= 1:
        return ""
    cells = [" "] * (_BAR + 1)
    for i in range(round(lo * _BAR), round(hi * _BAR) + 1):
        cells[i] = "─"
    cells[round(mu * _BAR)] = "●"
    return "".join(cells)


def _nothing(out: Path, metric: str, benchmark: str | None) -> UsageError:
    _, known = query(out, "SELECT DISTINCT metric FROM model_summary ORDER BY ALL")
    _, benchmarks = query(out, "SELECT DISTINCT benchmark FROM model_summary ORDER BY ALL")
    return UsageError(
        f"no rows for {metric}" + (f" in benchmark {benchmark!r}" if benchmark else ""),
        hint=f"metrics: {', '.join(row[0] for row in known)}; benchmarks: {', '.join(row[0] for row in benchmarks)}",
    )


def _confidence(settings: str) -> float:
    return float(json.loads(settings)["uncertainty"]["confidence"])
