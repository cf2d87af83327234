"""One Markdown page for a pull request or a chat: verdict, top ten, movers, warnings, and a link to the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from scorelake.read.board import Board, Facts, Reader, facts, opened
from scorelake.read.movers import changed_settings, movers, run_before
from scorelake.read.verdict import title, verdict, warnings

TOP = 10
_ADDRESS = "/:?#@!$&'*+,;=%~"
"""Signs that mean something in an address; the others are spelled out, so that none ends the link."""


def report(folder: Path, metric: str | None = None, page: str | None = None) -> str:
    """The report of an output as Markdown; `page` is the address of its page, to link to."""
    with opened(folder) as read:
        known = facts(read)
        name = known.metric(metric)
        boards = [_board(known, read, board, name) for board in known.boards if name in board.lines]
        warned = warnings(known, name, changed_settings(read, run_before(read, known.run), known.run))
    parts = [_head(known), *boards]
    if warned:
        parts.append("**Warnings**\n\n" + "\n".join(f"- {plain(each.text)}" for each in warned))
    if page is not None:
        parts.append(f"[The whole leaderboard](<{quote(page, safe=_ADDRESS)}>)")
    return "\n\n".join(parts) + "\n"


def is_of(page: Path, folder: Path) -> bool:
    """Whether a file is the page of the run that an output shows."""
    with opened(folder) as read:
        run = str(read.rows("SELECT run_id FROM run WHERE shown")[0][0])
    return page.is_file() and run in page.read_text(encoding="utf-8", errors="replace")


def plain(text: str) -> str:
    """Text that Markdown takes for nothing but text."""
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~&]|(?<!\w)@)", r"\\\1", text)
    return re.sub(r"(?i)\b(https?|ftp|www)([:.])", r"\1\\\2", escaped)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns at `right` are set to the right."""
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *(map(plain, row) for row in rows)))


def _head(known: Facts) -> str:
    run = known.run
    sums = f"{run['rows_read']:,} attempts = {run['graded']:,} graded + {run['ungraded']:,} ungraded"
    sums += "".join(f" + {run[what]:,} {what}" for what in ("duplicates", "rejected") if run[what])
    return f"Run {plain(run['run_id'])} of {run['started']:%Y-%m-%d %H:%M} UTC: {sums}."


def _board(known: Facts, read: Reader, board: Board, metric: str) -> str:
    scale = board.scale(metric)
    lines = [line for line in board.lines[metric] if line.rank is not None]
    rows = [
        (
            line.place,
            known.label[line.model],
            f"{scale.text(line.value)}{scale.unit}",
            scale.between(line.lo, line.hi),
        )
        for line in lines[:TOP]
    ]
    parts = [f"## {plain(title(board))}", plain(verdict(known, board, metric))]
    if rows:
        parts.append(table(("Rank", "Model", plain(metric), f"{known.confidence:.0%} interval"), rows, (0, 2)))
    if len(lines) > TOP:
        parts.append(f"{len(lines) - TOP:,} more models are ranked.")
    below = [line for line in board.lines[metric] if line.rank is None]
    parts += [f"{plain(known.label[line.model])} is not ranked: {plain(line.reason or '')}" for line in below[:TOP]]
    if len(below) > TOP:
        parts.append(f"{len(below) - TOP:,} more models are not ranked.")
    moved = [
        (known.label[m.model], scale.text(m.before), scale.text(m.now), scale.signed(m.change), m.told)
        for m in movers(read, board, metric, 5)
    ]
    if moved:
        parts.append("Moved most since the run before:")
        parts.append(table(("Model", "Before", "Now", "Change", "Note"), moved, (1, 2, 3)))
    return "\n\n".join(parts)
