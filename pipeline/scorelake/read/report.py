"""A board in sentences (leader, warnings, largest changes), and a Markdown report for a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median_low
from typing import Any
from urllib.parse import quote

from scorelake.read.board import (
    BoardRows,
    Facts,
    Line,
    OverallRows,
    Reader,
    current_run_id,
    facts,
    opened,
    overall_rows,
)
from scorelake.read.format import amount
from scorelake.read.measures import ON_FRONT, read_costs
from scorelake.read.sentences import FORECAST, remarks, title, verdict
from scorelake.read.series import read_series
from scorelake.text import plural

TOP = 10
SATURATED = 0.95
_SAFE = "/:?#@!$&'*+,;=%~"
"""Characters with a meaning in an address; all others are quoted, so that none ends the link."""
_CHANGES = """
SELECT model, value_before, value, change, outside, problems_before, problems FROM change
WHERE benchmark = ? AND protocol = ? AND metric = ? AND change IS NOT NULL AND change <> 0
ORDER BY abs(change) DESC, model LIMIT ?
"""
_GATES = """
SELECT rule, concat_ws(', ', benchmark, nullif(label, '')), model, base, metric,
    concat_ws(': ', verdict, gate.reason), lift, lo, -margin
FROM gate LEFT JOIN protocol USING (protocol) ORDER BY verdict = 'pass', rule, benchmark, gate.protocol, model
"""
_SETTINGS = """
SELECT coalesce(one.key, two.key) AS key
FROM (FROM setting WHERE settings = ?) AS one
FULL JOIN (FROM setting WHERE settings = ?) AS two ON one.key = two.key
WHERE one.value IS DISTINCT FROM two.value
    AND split_part(coalesce(one.key, two.key), '.', 1) NOT IN ('run', 'storage', 'gates')
ORDER BY key
"""


def report(folder: Path, metric: str | None = None, page: str | None = None) -> str:
    """Return the report of an output as Markdown; `page` is the address of its page."""
    with opened(folder) as read:
        published = facts(read)
        chosen, run = published.metric(metric), published.run
        sums = f"{run['rows_read']:,} attempts = {run['graded']:,} graded + {run['ungraded']:,} ungraded"
        sums += "".join(f" + {run[kind]:,} {kind}" for kind in ("duplicates", "rejected") if run[kind])
        parts = [f"Run {plain(run['run_id'])} of {run['started']:%Y-%m-%d %H:%M} UTC: {sums}."]
        parts += [overall_markdown(each, chosen, TOP) for each in overall_rows(read, published.boards, chosen)]
        for board in published.boards:
            name = chosen if metric else board.headline(chosen)
            if name in board.lines:
                parts.append(board_markdown(published, board, name, TOP))
                if moved := movers(read, board, name, published.label, 5):
                    parts.append("Largest changes since the previous run:")
                    parts.append(markdown_table(("Model", "Before", "Now", "Change", "Note"), moved, (1, 2, 3)))
        parts += _gates(read) + _frontier(read)
        names = set[tuple[str, str, str]]()
        for series in read_series(read):  # the first metric of each run
            if (key := (series.benchmark, series.protocol, series.model)) not in names:
                parts.append(plain(f"{series.title}: {series.text()}"))
                names.add(key)
        grave, notes = warnings(read, published, chosen)
    if grave or notes:
        parts.append("**Warnings**\n\n" + "\n".join(f"- {plain(text)}" for text in grave + notes))
    if page is not None:
        parts.append(f"[Full leaderboard](<{quote(page, safe=_SAFE)}>)")
    return "\n\n".join(parts) + "\n"


def _gates(read: Reader) -> list[str]:
    """Return the verdicts of the configured gates, those that passed last; nothing without gates."""
    rows = read.rows(_GATES) if "gate" in read.names("table_name", "information_schema.tables") else []
    cells = [[*row[:6], *("" if x is None else f"{x:+.4f}" for x in row[6:])] for row in rows]
    head = ("Gate", "Benchmark", "Model", "Base", "Metric", "Verdict", "Lift", "Lower bound", "Must be above")
    return ["## Gates", markdown_table(head, cells, (6, 7, 8))] if cells else []


def _frontier(read: Reader) -> list[str]:
    """Return the models that no other model beats in score and in cost; nothing without measures."""
    rows = []
    for (benchmark, label, measure), group in groupby(read_costs(read), itemgetter("benchmark", "label", "measure")):
        models = [f"{row['model']} ({amount(row['cost'])})" for row in group if row["on_front"]]
        rows.append([", ".join(filter(None, (benchmark, label))), measure, ", ".join(models[:TOP])])
    head = ("Benchmark", "Measure", f"First {TOP} models on the frontier, with the measure per attempt")
    return ["## Frontier of score and cost", f"{ON_FRONT}.", markdown_table(head, rows)] if rows else []


def overall_markdown(overall: OverallRows, metric: str, top: int | None = None) -> str:
    """Return models by benchmarks as a Markdown table, with the models that lack a benchmark below."""
    head, rows = overall.cells(top)
    parts = [f"## {plain(' · '.join(filter(None, ('All benchmarks', overall.label, metric))))}"]
    parts.append(markdown_table([plain(name) for name in head], rows, [0, 2, *range(4, len(head))]))
    return "\n\n".join(parts + [plain(note) for note in overall.notes])


def board_markdown(published: Facts, board: BoardRows, metric: str, top: int | None = None) -> str:
    """Return a board as Markdown: the verdict, the first models, and why others are not ranked."""
    scale, lines = board.scale(metric), board.lines[metric]
    rows = [
        (
            *(line.rank_range, published.label[line.model], f"{line.score(scale)}{scale.unit}"),
            *(scale.between(line.lo, line.hi), f"{line.problems:,}", f"{line.attempts:,}"),
        )
        for line in lines[:top]
    ]
    head = ("Rank", "Model", plain(metric), f"{published.confidence:.0%} interval", "Problems", "Attempts")
    parts = [f"## {plain(title(board))}"]
    if board.is_forecast:
        parts.append(plain(FORECAST))
    elif any(line.rank or line.reason for line in lines):  # slices have no ranks
        parts.append(plain(verdict(published, board, metric)))
    parts += [markdown_table(head, rows, (0, 2, 4, 5))] if rows else []
    parts += [plain(text) for line in lines[:top] for text in remarks(published.label[line.model], line)]
    return "\n\n".join(parts + [f"{more}." for more in [omitted_models(lines[len(rows) :])] if more])


def omitted_models(lines: Sequence[Line]) -> str:
    """Count the models that a table leaves out; empty if there are none."""
    unranked = sum(line.reason is not None for line in lines)
    parts = [plural(len(lines) - unranked, "more model")] if len(lines) > unranked else []
    parts += [f"{unranked:,} that {'is' if unranked == 1 else 'are'} not ranked"] if unranked else []
    return " and ".join(parts)


def is_of(page: Path, folder: Path) -> bool:
    """Return whether a file is the page of the current run of an output."""
    return page.is_file() and current_run_id(folder) in page.read_text(encoding="utf-8", errors="replace")


def plain(text: str) -> str:
    """Escape everything that Markdown would interpret."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~&]|(?<!\w)@)", r"\\\1", text)
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1\\\2", escaped)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a Markdown table with escaped cells; the columns `right` are aligned to the right."""
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *(map(plain, row) for row in rows)))


def warnings(read: Reader, facts: Facts, metric: str) -> tuple[list[str], list[str]]:
    """Return warnings about the current run: those that concern the data themselves, and notes."""
    run, grave = facts.run, [facts.rollback_note] if facts.rollback_note else []
    if run["quarantined"]:
        files = "file was" if run["quarantined"] == 1 else "files were"
        grave.append(f"{run['quarantined']:,} {files} left out as unreadable.")
    if run["rejected"]:
        grave.append(f"{run['rejected']:,} rows were rejected as not valid.")
    notes = [text for board in facts.boards for text in _board_warnings(board, board.headline(metric))]
    previous = read.dicts("FROM run WHERE number < ? ORDER BY number DESC LIMIT 1", run["number"])
    if previous and (changed := changed_settings(read, previous[0], run)):
        notes.append(f"Settings changed since the last run: {', '.join(changed)}.")
    return grave, notes


def _board_warnings(board: BoardRows, metric: str) -> Iterator[str]:
    where, lines = title(board), board.lines[metric]
    if unranked := sum(line.rank is None for line in lines):
        are = "is" if unranked == 1 else "are"
        yield f"{where}: {plural(unranked, 'model')} {are} not ranked, for the reasons given with the table."
    if partial := sum(line.is_partial for line in lines):
        have = "has" if partial == 1 else "have"
        yield f"{where}: {plural(partial, 'model')} {have} fewer than k attempts on some problems (*)."
    means = [line.attempts / line.problems for line in lines if line.problems]
    if means and min(means) < 0.9 * max(means):
        yield f"{where}: attempts per problem differ, from {min(means):.1f} to {max(means):.1f} on average."
    values = [line.value for line in lines if line.rank is not None and line.value is not None]
    if values and board.scale(metric).percent and median_low(values) >= SATURATED:
        yield f"{where} is saturated: half of the models score {SATURATED:.0%} or more."


def movers(read: Reader, board: BoardRows, metric: str, names: dict[str, str], limit: int) -> list[list[str]]:
    """Return the largest changes since the previous run: model, before, now, change, and a note on significance."""
    scale, out = board.scale(metric), []
    rows = read.rows(_CHANGES, board.benchmark, board.protocol, metric, limit)
    for model, before, now, change, outside, problems_before, problems in rows:
        note = {None: "", True: "significant change", False: "not significant"}[outside]
        if problems_before != problems:
            note = f"other problems: {problems_before or 0:,} before, {problems or 0:,} now"
        out.append([names[model], scale.text(before), scale.text(now), scale.signed(change), note])
    return out


def changed_settings(read: Reader, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the keys of settings that differ between two runs and may affect scores."""
    if before["settings"] == now["settings"]:
        return []
    return [str(key) for (key,) in read.rows(_SETTINGS, before["settings"], now["settings"])]
