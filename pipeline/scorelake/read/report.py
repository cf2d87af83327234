"""A board in sentences (leader, warnings, largest changes), and a Markdown report for a pull request or a chat."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any
from urllib.parse import quote

from scorelake.metrics.counts import needs_equal_n
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
from scorelake.read.numbers import Scale
from scorelake.read.numbers import scale as find_scale
from scorelake.text import escape_controls, plural

TOP = 10
SATURATED = 0.95
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
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


def title(board: BoardRows) -> str:
    """Return the benchmark with its protocol and subject, if there are any."""
    return " \u00b7 ".join(escape_controls(part) for part in (board.benchmark, board.label, board.subject) if part)


def verdict(facts: Facts, board: BoardRows, metric: str) -> str:
    """Return sentences on the leader and the models behind it; an unranked model with a higher score comes first."""
    lines, scale = board.lines[metric], board.scale(metric)
    where = f"{title(board)} at {metric}"
    ranked = [line for line in lines if line.rank is not None and line.value is not None]
    if not ranked:
        reason = next((line.reason for line in lines if line.reason), "no model has a value")
        return f"No model is ranked on {where}: {reason}."
    leader = _leader(facts, ranked, where, scale, metric)
    unranked = [line for line in lines if line.rank is None]
    highest = max([ranked[0], *unranked], key=lambda line: -math.inf if line.value is None else line.value)
    if highest is ranked[0]:
        return leader
    score = f"{facts.label[highest.model]} has the highest score on {where}, {scale.both(highest.value, None, None)}"
    return f"{score}, but is not ranked: {highest.reason}. Of the ranked models, {leader}"


def _leader(facts: Facts, ranked: list[Line], where: str, scale: Scale, metric: str) -> str:
    """Return sentences on the first ranked model and those behind it. No rank range has a "best" model."""
    first = ranked[0]
    tied = [line for line in ranked if line.rank == first.rank]
    others = ranked[len(tied) :]
    name = _list_models([facts.label[line.model] for line in tied])
    same_interval = len({(line.lo, line.hi) for line in tied}) == 1
    score = scale.both(first.value, *((first.lo, first.hi) if same_interval else (None, None)))
    if first.of_benchmark == 1:
        has = "has" if len(tied) == 1 else "share"
        return f"One problem says nothing about others. On it, {name} {has} the highest score at {metric}: {score}."
    if len(ranked) == 1:
        return f"{name} scores {score} on {where}. There is no other ranked model to compare it with."
    leads = "leads" if len(tied) == 1 else "share the first place on"
    head = f"{name} {leads} {where}: {score}."
    if not others:
        return f"{head} There is no clear winner."
    if first.rank_lo is None:
        return f"{head} Rank ranges were not computed: the metric is not compared, or too few problems are shared."
    apart = [line for line in others if needs_equal_n(metric, _n_ratio(first, line))]
    compared = [line for line in others if line not in apart]
    level = [facts.label[line.model] for line in compared if line.rank_lo == 1]
    it, the_other = "it" if len(tied) == 1 else "them", "" if apart else "the other "
    sentences = [head, _followers(level, len(compared) - len(level), it, the_other)] if compared else [head]
    if apart:
        are = "is" if len(apart) == 1 else "are"
        names = _list_models([facts.label[line.model] for line in apart], "other ")
        sentences.append(f"{names} {are} not compared with {it}: n differs, and {metric} is biased by n.")
    return " ".join(sentences)


def _n_ratio(a: Line, b: Line) -> float:
    """Return how many times as many attempts per problem one of two models has."""
    ratio = (a.attempts / a.problems) / (b.attempts / b.problems)
    return max(ratio, 1 / ratio)


def _list_models(models: list[str], other: str = "") -> str:
    """Return up to three models by name, more by their number."""
    if len(models) > 3:
        return f"{_in_words(len(models)).capitalize()} {other}models"
    return ", ".join(models[:-1]) + (" and " if len(models) > 1 else "") + models[-1]


def _followers(level: list[str], behind: int, leader: str, the_other: str) -> str:
    if not level:
        number = "" if the_other and behind == 1 else f"{_in_words(behind)} "
        text = f"{the_other}{number}model{' is' if behind == 1 else 's are'} behind."
        return text[0].upper() + text[1:]
    are = "is" if len(level) == 1 else "are"
    text = f"{_list_models(level, 'other ')} {are} statistically indistinguishable from {leader}"
    if behind == 0:
        return f"{text}, so there is no clear winner."
    return f"{text}; {_in_words(behind)} model{'s are' if behind > 1 else ' is'} behind."


def _in_words(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


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
