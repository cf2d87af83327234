"""A board in sentences (leader, warnings, largest changes), and a Markdown report for a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any
from urllib.parse import quote

from scorelake.read.board import (
    BoardRows,
    Facts,
    OverallRows,
    Reader,
    current_run_id,
    facts,
    opened,
    overall_rows,
)
from scorelake.read.numbers import scale as find_scale
from scorelake.read.sentences import title, verdict
from scorelake.text import escape_controls, plural

TOP = 10
SATURATED = 0.95
_SAFE = "/:?#@!$&'*+,;=%~"
"""Characters with a meaning in an address; all others are quoted, so that none ends the link."""
_CHANGES = """
SELECT model, value_before, value, change, outside, problems_before, problems FROM change
WHERE benchmark = ? AND protocol = ? AND metric = ? AND change IS NOT NULL AND change <> 0
ORDER BY abs(change) DESC, model LIMIT ?
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
        name, run = published.metric(metric), published.run
        sums = f"{run['rows_read']:,} attempts = {run['graded']:,} graded + {run['ungraded']:,} ungraded"
        sums += "".join(f" + {run[kind]:,} {kind}" for kind in ("duplicates", "rejected") if run[kind])
        parts = [f"Run {plain(run['run_id'])} of {run['started']:%Y-%m-%d %H:%M} UTC: {sums}."]
        parts += [overall_markdown(each, name, TOP) for each in overall_rows(read, name)]
        parts += [_board(published, read, board, name) for board in published.boards if name in board.lines]
        grave, notes = warnings(read, published, name)
    if grave or notes:
        parts.append("**Warnings**\n\n" + "\n".join(f"- {plain(text)}" for text in grave + notes))
    if page is not None:
        parts.append(f"[Full leaderboard](<{quote(page, safe=_SAFE)}>)")
    return "\n\n".join(parts) + "\n"


def overall_cells(overall: OverallRows, top: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of models by benchmarks, as text."""
    own = [(line.value, line.lo, line.hi) for line, _ in overall.lines]
    scale = find_scale(own + [(value, None, None) for _, parts in overall.lines for value in parts])
    head = ["rank", "model", "average" + (", %" if scale.percent else ""), "interval"]
    head += [escape_controls(name) for name in overall.benchmarks]
    rows = [
        [line.rank_range, escape_controls(line.model), scale.text(line.value), scale.between(line.lo, line.hi)]
        + [scale.text(value) for value in parts]
        for line, parts in overall.lines[:top]
    ]
    return head, rows


def overall_markdown(overall: OverallRows, metric: str, top: int | None = None) -> str:
    """Return models by benchmarks as a Markdown table, with the models that lack a benchmark below."""
    head, rows = overall_cells(overall, top)
    parts = [f"## {plain(' · '.join(filter(None, ('All benchmarks', overall.label, metric))))}"]
    parts.append(markdown_table([plain(name) for name in head], rows, [0, 2, *range(4, len(head))]))
    parts += [
        f"{plain(line.model)} is not ranked: {plain(line.reason)}." for line, _ in overall.lines[:top] if line.reason
    ]
    return "\n\n".join(parts)


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


def _board(published: Facts, read: Reader, board: BoardRows, metric: str) -> str:
    scale, label = board.scale(metric), published.label
    ranked = [line for line in board.lines[metric] if line.rank is not None]
    unranked = [line for line in board.lines[metric] if line.rank is None]
    parts = [f"## {plain(title(board))}", plain(verdict(published, board, metric))]
    if ranked:
        rows = [
            (x.rank_range, label[x.model], f"{scale.text(x.value)}{scale.unit}", scale.between(x.lo, x.hi))
            for x in ranked[:TOP]
        ]
        head = ("Rank", "Model", plain(metric), f"{published.confidence:.0%} interval")
        parts.append(markdown_table(head, rows, (0, 2)))
    if len(ranked) > TOP:
        parts.append(f"{len(ranked) - TOP:,} more models are ranked.")
    parts += [f"{plain(label[line.model])} is not ranked: {plain(line.reason or '')}" for line in unranked[:TOP]]
    if len(unranked) > TOP:
        parts.append(f"{len(unranked) - TOP:,} more models are not ranked.")
    if moved := movers(read, board, metric, label, 5):
        parts.append("Largest changes since the previous run:")
        parts.append(markdown_table(("Model", "Before", "Now", "Change", "Note"), moved, (1, 2, 3)))
    return "\n\n".join(parts)


def warnings(read: Reader, facts: Facts, metric: str) -> tuple[list[str], list[str]]:
    """Return warnings about the current run: those that concern the data themselves, and notes."""
    run, grave = facts.run, [facts.rollback_note] if facts.rollback_note else []
    if run["quarantined"]:
        files = "file was" if run["quarantined"] == 1 else "files were"
        grave.append(f"{run['quarantined']:,} {files} left out as unreadable.")
    if run["rejected"]:
        grave.append(f"{run['rejected']:,} rows were rejected as not valid.")
    notes = [text for board in facts.boards for text in _board_warnings(board, metric)]
    previous = read.dicts("FROM run WHERE number < ? ORDER BY number DESC LIMIT 1", run["number"])
    if previous and (changed := changed_settings(read, previous[0], run)):
        notes.append(f"Settings changed since the last run: {', '.join(changed)}.")
    return grave, notes


def _board_warnings(board: BoardRows, metric: str) -> Iterator[str]:
    where, lines = title(board), board.lines.get(metric, [])
    if unranked := sum(line.rank is None for line in lines):
        are = "is" if unranked == 1 else "are"
        yield f"{where}: {plural(unranked, 'model')} {are} not ranked; the reasons are below the table."
    if partial := sum(line.is_partial for line in lines):
        have = "has" if partial == 1 else "have"
        yield f"{where}: {plural(partial, 'model')} {have} fewer than k attempts on some problems (*)."
    means = [line.attempts / line.problems for line in lines if line.problems]
    if means and min(means) < 0.9 * max(means):
        yield f"{where}: attempts per problem differ, from {min(means):.1f} to {max(means):.1f} on average."
    values = [line.value for line in lines if line.rank is not None and line.value is not None]
    if values and board.scale(next(iter(board.lines))).percent and median_low(values) >= SATURATED:
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
