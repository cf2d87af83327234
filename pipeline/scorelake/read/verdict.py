"""A board in sentences: the leader, models that are indistinguishable from it, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from scorelake.read.board import BoardRows, Facts, Line
from scorelake.text import escape_controls, plural

SATURATED = 0.95
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True)
class Warned:
    """A warning; a grave one concerns the data themselves."""

    grave: bool
    text: str


def title(board: BoardRows) -> str:
    """Return the benchmark with its protocol and subject, if there are any."""
    return " \u00b7 ".join(escape_controls(part) for part in (board.benchmark, board.label, board.subject) if part)


def verdict(facts: Facts, board: BoardRows, metric: str) -> str:
    """Return two or three sentences on the leader and the models behind it. No rank range has a "best" model."""
    lines, scale = board.lines[metric], board.scale(metric)
    where = f"{title(board)} at {metric}"
    ranked = [line for line in lines if line.rank is not None and line.value is not None]
    if not ranked:
        reason = next((line.reason for line in lines if line.reason), "no model has a value")
        return f"No model is ranked on {where}: {reason}."
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
    level = [facts.label[line.model] for line in others if line.rank_lo == 1]
    return f"{head} {_followers(level, len(others) - len(level), 'it' if len(tied) == 1 else 'them')}"


def _list_models(models: list[str], other: str = "") -> str:
    """Return up to three models by name, more by their number."""
    if len(models) > 3:
        return f"{_in_words(len(models)).capitalize()} {other}models"
    return ", ".join(models[:-1]) + (" and " if len(models) > 1 else "") + models[-1]


def _followers(level: list[str], behind: int, leader: str) -> str:
    if not level:
        return "The other model is behind." if behind == 1 else f"The other {_in_words(behind)} models are behind."
    are = "is" if len(level) == 1 else "are"
    text = f"{_list_models(level, 'other ')} {are} statistically indistinguishable from {leader}"
    if behind == 0:
        return f"{text}, so there is no clear winner."
    return f"{text}; {_in_words(behind)} model{'s are' if behind > 1 else ' is'} behind."


def _in_words(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def tiers(lines: Sequence[Line]) -> list[int]:
    """Return the tier of every ranked line: models that are indistinguishable from the first of their tier."""
    numbers: list[int] = []
    first_rank: int | None = None
    for line in lines:
        if first_rank is None or line.rank_lo is None or line.rank_lo > first_rank:
            first_rank = line.rank
            numbers.append(numbers[-1] + 1 if numbers else 0)
        else:
            numbers.append(numbers[-1])
    return numbers


def warnings(facts: Facts, metric: str, changed: Sequence[str] = ()) -> list[Warned]:
    """Return warnings about a run, the gravest first; `changed` are settings that differ from the previous run."""
    run, texts = facts.run, []
    if run["quarantined"]:
        files = "file was" if run["quarantined"] == 1 else "files were"
        texts.append(Warned(True, f"{run['quarantined']:,} {files} left out as unreadable."))
    if run["rejected"]:
        texts.append(Warned(True, f"{run['rejected']:,} rows were rejected as not valid."))
    for board in facts.boards:
        texts += [Warned(False, text) for text in _board_warnings(board, board.lines.get(metric, []))]
    if changed:
        texts.append(Warned(False, f"Settings changed since the last run: {', '.join(changed)}."))
    return texts


def _board_warnings(board: BoardRows, lines: Sequence[Line]) -> list[str]:
    texts, where = [], title(board)
    if unranked := sum(line.rank is None for line in lines):
        are = "is" if unranked == 1 else "are"
        texts.append(f"{where}: {plural(unranked, 'model')} {are} not ranked; the reasons are below the table.")
    if partial := sum(line.is_partial for line in lines):
        have = "has" if partial == 1 else "have"
        texts.append(f"{where}: {plural(partial, 'model')} {have} fewer than k attempts on some problems (*).")
    means = [line.attempts / line.problems for line in lines if line.problems]
    if means and min(means) < 0.9 * max(means):
        texts.append(f"{where}: attempts per problem differ, from {min(means):.1f} to {max(means):.1f} on average.")
    values = [line.value for line in lines if line.rank is not None and line.value is not None]
    if values and board.scale(next(iter(board.lines))).percent and median_low(values) >= SATURATED:
        texts.append(f"{where} is saturated: half of the models score {SATURATED:.0%} or more.")
    return texts
