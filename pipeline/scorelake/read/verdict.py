"""What a board says, in sentences that the data writes: who leads, who cannot be told apart, what to be wary of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from scorelake.read.board import Board, Facts, Line
from scorelake.text import escape_controls

_UNSETTLED = "the metric is not compared, or the models share too few problems"
SATURATED = 0.95
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True)
class Warned:
    """Something a reader must know before the numbers."""

    grave: bool
    text: str


def spelled(many: int) -> str:
    """Small numbers in words."""
    return _NUMBERS[many] if many < len(_NUMBERS) else f"{many:,}"


def title(board: Board) -> str:
    """A board as people call it: the benchmark, the protocol where there is one, the subject where it is of one."""
    return " \u00b7 ".join(escape_controls(part) for part in (board.benchmark, board.label, board.subject) if part)


def verdict(facts: Facts, board: Board, metric: str) -> str:
    """Two or three sentences: the leader, who cannot be told from it, who is behind. Never "best" of a range."""
    lines = board.lines[metric]
    scale = board.scale(metric)
    ranked = [line for line in lines if line.rank is not None and line.value is not None]
    where = f"{title(board)} at {metric}"
    if not ranked:
        return f"No model is ranked on {where}: {_why(lines)}."
    first = ranked[0]
    tied = [line for line in ranked if line.rank == first.rank]
    others = ranked[len(tied) :]
    name = _named([facts.label[line.model] for line in tied])
    alike = len({(line.lo, line.hi) for line in tied}) == 1
    score = scale.both(first.value, *((first.lo, first.hi) if alike else (None, None)))
    if first.of_benchmark == 1:
        has = "has" if len(tied) == 1 else "share"
        return f"One problem says nothing about others. On it, {name} {has} the highest score at {metric}: {score}."
    if len(ranked) == 1:
        return f"{name} scores {score} on {where}. There is no other ranked model to compare it with."
    head = (
        f"{name} leads {where}: {score}." if len(tied) == 1 else f"{name} share the first place on {where}: {score}."
    )
    if not others:
        return f"{head} The problems name no winner."
    if first.rank_lo is None:
        return f"{head} How far the order is settled is not known: {_UNSETTLED}."
    level = [facts.label[line.model] for line in others if line.rank_lo == 1]
    behind = len(others) - len(level)
    return f"{head} {_told_apart(level, behind, 'it' if len(tied) == 1 else 'them')}"


def _named(models: list[str], other: str = "") -> str:
    """A few models by their names, more by their number."""
    if len(models) > 3:
        return f"{spelled(len(models)).capitalize()} {other}models"
    return ", ".join(models[:-1]) + (" and " if len(models) > 1 else "") + models[-1]


def _told_apart(level: list[str], behind: int, leader: str) -> str:
    if not level:
        return "The other model is behind." if behind == 1 else f"The other {spelled(behind)} models are behind."
    who = _named(level, "other ")
    if behind == 0:
        return f"{who} cannot be told from {leader}, so the problems name no winner."
    return f"{who} cannot be told from {leader}; {spelled(behind)} model{'s are' if behind > 1 else ' is'} behind."


def _why(lines: Sequence[Line]) -> str:
    return next((line.reason for line in lines if line.reason), "no model has a value")


def tiers(lines: Sequence[Line]) -> list[int]:
    """The tier of every ranked line: models that the problems do not separate from the first of their tier."""
    out: list[int] = []
    first: Line | None = None
    for line in lines:
        known = first is not None and line.rank_lo is not None and first.rank is not None
        if not known or first is None or (line.rank_lo or 0) > (first.rank or 0):
            first = line
            out.append(out[-1] + 1 if out else 0)
        else:
            out.append(out[-1])
    return out


def warnings(facts: Facts, metric: str, changed: Sequence[str] = ()) -> list[Warned]:
    """What is not as it should be, the gravest first."""
    run = facts.run
    out = []
    if run["quarantined"]:
        files = "file was" if run["quarantined"] == 1 else "files were"
        out.append(Warned(True, f"{run['quarantined']:,} {files} left out as unreadable."))
    if run["rejected"]:
        out.append(Warned(True, f"{run['rejected']:,} rows were rejected as not valid."))
    for board in facts.boards:
        out += _of_board(board, board.lines.get(metric, []), title(board))
    if changed:
        out.append(Warned(False, f"Settings changed since the last run: {', '.join(changed)}."))
    return out


def _of_board(board: Board, lines: Sequence[Line], where: str) -> list[Warned]:
    out = []
    left = [line for line in lines if line.rank is None]
    if left:
        who = "model is" if len(left) == 1 else "models are"
        out.append(Warned(False, f"{where}: {len(left):,} {who} not ranked; the reasons stand below the table."))
    partly = [line for line in lines if line.value is not None and line.scored < line.problems]
    if partly:
        has = "model has" if len(partly) == 1 else "models have"
        out.append(Warned(False, f"{where}: {len(partly):,} {has} fewer than k attempts on some problems (*)."))
    most = [line.attempts / line.problems for line in lines if line.problems]
    if most and min(most) < 0.9 * max(most):
        low, high = min(most), max(most)
        out.append(Warned(False, f"{where}: attempts per problem differ, from {low:.1f} to {high:.1f} on average."))
    values = [line.value for line in lines if line.rank is not None and line.value is not None]
    if values and board.scale(next(iter(board.lines))).percent and median_low(values) >= SATURATED:
        out.append(Warned(False, f"{where} is saturated: half of the models score {SATURATED:.0%} or more."))
    return out
