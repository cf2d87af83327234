"""A Markdown report for a pull request or a chat: verdict, top ten, movers, warnings, and a link to the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scorelake.read.board import BoardRows, Facts, Reader, facts, opened
from scorelake.read.movers import changed_settings, movers, run_before
from scorelake.read.verdict import title, verdict, warnings

TOP = 10
_SAFE = "/:?#@!$&'*+,;=%~"
"""Characters with a meaning in an address; all others are quoted, so that none ends the link."""


def report(folder: Path, metric: str | None = None, page: str | None = None) -> str:
    """Return the report of an output as Markdown; `page` is the address of its page."""
    with opened(folder) as read:
        published = facts(read)
        name = published.metric(metric)
        run = published.run
        parts = [
            _summary(run),
            *(_board(published, read, board, name) for board in published.boards if name in board.lines),
        ]
        notes = warnings(published, name, changed_settings(read, run_before(read, run), run))
    if notes:
        parts.append("**Warnings**\n\n" + "\n".join(f"- {plain(note.text)}" for note in notes))
    if page is not None:
        parts.append(f"[Full leaderboard](<{quote(page, safe=_SAFE)}>)")
    return "\n\n".join(parts) + "\n"


def is_of(page: Path, folder: Path) -> bool:
    """Return whether a file is the page of the current run of an output."""
    with opened(folder) as read:
        return page.is_file() and read.run_id in page.read_text(encoding="utf-8", errors="replace")


def plain(text: str) -> str:
    """Escape everything that Markdown would interpret."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~&]|(?<!\w)@)", r"\\\1", text)
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1\\\2", escaped)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a Markdown table with escaped cells; the columns `right` are aligned to the right."""
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *(map(plain, row) for row in rows)))


def _summary(run: dict[str, Any]) -> str:
    sums = f"{run['rows_read']:,} attempts = {run['graded']:,} graded + {run['ungraded']:,} ungraded"
    sums += "".join(f" + {run[name]:,} {name}" for name in ("duplicates", "rejected") if run[name])
    return f"Run {plain(run['run_id'])} of {run['started']:%Y-%m-%d %H:%M} UTC: {sums}."


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
    moved = [
        (label[m.model], scale.text(m.before), scale.text(m.now), scale.signed(m.change), m.note)
        for m in movers(read, board, metric, 5)
    ]
    if moved:
        parts.append("Largest changes since the previous run:")
        parts.append(markdown_table(("Model", "Before", "Now", "Change", "Note"), moved, (1, 2, 3)))
    return "\n\n".join(parts)
