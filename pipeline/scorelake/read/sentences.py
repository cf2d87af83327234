"""Sentences about boards and pairs. Each follows from rows of the tables by one rule; every output uses these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scorelake.read.board import BoardRows, Facts, Line
from scorelake.read.format import Scale
from scorelake.text import escape_controls

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
RANK_RANGE = "Rank 1\u20133: significant differences place the model between ranks 1 and 3 (each range by itself)."
FORECAST = (
    "Forecast: no problem has that many attempts. The value is that of a beta-binomial model, the interval a profile "
    "likelihood over all distributions of success rates; both assume independent attempts."
)
ADAPTIVE = "attempts seem to stop after a pass, which biases the scores upwards"


def remarks(model: str, line: Line) -> list[str]:
    """Return why a model has no rank, and what biases its scores."""
    parts = [f" is not ranked: {line.explanation}"] if line.reason else []
    parts += [f": {ADAPTIVE}"] if line.sampling == "adaptive" else []
    return [escape_controls(model + part) for part in parts]


def title(board: BoardRows) -> str:
    """Return the benchmark with its protocol and its subject or slice, if there are any."""
    return " \u00b7 ".join(escape_controls(part) for part in (board.benchmark, board.label, board.part) if part)


def verdict(facts: Facts, board: BoardRows, metric: str) -> str:
    """Return sentences on the leader and the models behind it; an unranked model with a higher score comes first."""
    lines, scale = board.lines[metric], board.scale(metric)
    where = f"{title(board)} at {metric}"
    ranked = [line for line in lines if line.rank is not None and line.value is not None]
    if not ranked:
        valued = [line for line in lines if line.value is not None]
        if not valued:
            return f"No model is ranked on {where}: no model has a value."
        first = max(valued, key=lambda line: line.value or 0.0)
        score = f"{facts.label[first.model]} has the highest score, {scale.both(first.value)}"
        return f"No model is ranked on {where}. {score}: {first.reason}."
    leader = _leader(facts, ranked, where, scale, metric)
    unranked = [line for line in lines if line.rank is None]
    highest = max([ranked[0], *unranked], key=lambda line: -math.inf if line.value is None else line.value)
    if highest is ranked[0]:
        return leader
    score = f"{facts.label[highest.model]} has the highest score on {where}, {scale.both(highest.value)}"
    return f"{score}, but is not ranked: {highest.reason}. Of the ranked models, {leader}"


def _leader(facts: Facts, ranked: list[Line], where: str, scale: Scale, metric: str) -> str:
    """Return sentences on the first ranked model and those behind it. No rank range has a "best" model."""
    first = ranked[0]
    tied = [line for line in ranked if line.rank == first.rank]
    others = ranked[len(tied) :]
    name = _list_models([facts.label[line.model] for line in tied])
    same_interval = len({(line.lo, line.hi) for line in tied}) == 1
    score = scale.both(first.value, *((first.lo, first.hi) if same_interval else (None, None)))
    if first.problems_of_benchmark == 1:
        has = "has" if len(tied) == 1 else "share"
        return f"One problem says nothing about others. On it, {name} {has} the highest score at {metric}: {score}."
    if len(ranked) == 1:
        return f"{name} scores {score} on {where}. There is no other ranked model to compare it with."
    if any(line.sampling == "adaptive" for line in tied):
        has = "has" if len(tied) == 1 else "share"
        return f"{name} {has} the highest score on {where}, {score}, but {ADAPTIVE}: no leader is named."
    leads = "leads" if len(tied) == 1 else "share the first place on"
    head = f"{name} {leads} {where}: {score}."
    if not others:
        return f"{head} There is no clear winner."
    if first.rank_lo is None:
        return f"{head} Rank ranges were not computed: the metric is not compared, or too few problems are shared."
    from scorelake.metrics.families import needs_equal_n  # noqa: PLC0415 - loads scipy

    apart = [line for line in others if needs_equal_n(metric, _n_ratio(first, line))]
    compared = [line for line in others if line not in apart]
    level = [facts.label[line.model] for line in compared if line.rank_lo == 1]
    it, the_other = "it" if len(tied) == 1 else "them", "" if apart else "the other "
    sentences = [head]
    if compared:
        behind = len(compared) - len(level)
        below_all_first = len(ranked) - max(line.rank_hi or 1 for line in tied)  # those claimed worse than the leader
        sentences.append(_followers(level, behind, max(0, behind - below_all_first), it, the_other))
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


def _followers(level: list[str], behind: int, behind_others: int, leader: str, the_other: str) -> str:
    """Return a sentence on the models that could have the leader's rank, and on those that could not.

    `behind_others` of those behind are claimed worse than some model, but not than the leader.
    """
    end = "."
    if behind_others:
        number, are = _in_words(behind_others).capitalize(), "is" if behind_others == 1 else "are"
        end = f". {number} of these {are} significantly worse than another model only."
    if not level:
        number = "" if the_other and behind == 1 else f"{_in_words(behind)} "
        text = f"{the_other}{number}model{' is' if behind == 1 else 's are'} behind{end}"
        return text[0].upper() + text[1:]
    are = "is" if len(level) == 1 else "are"
    text = f"{_list_models(level, 'other ')} {are} statistically indistinguishable from {leader}"
    if behind == 0:
        return f"{text}, so there is no clear winner."
    return f"{text}; {_in_words(behind)} model{'s are' if behind > 1 else ' is'} behind{end}"


def _in_words(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def tiers(ranked: Sequence[Line]) -> list[int]:
    """Number the tiers of ranked models from 0 on: a model and those below it that could have its rank."""
    out: list[int] = []
    first_rank: int | None = None
    for line in ranked:
        is_first = first_rank is None or line.rank_lo is None or line.rank_lo > first_rank
        first_rank = line.rank if is_first else first_rank
        out.append((out[-1] if out else -1) + is_first)
    return out


def is_first_for_sure(line: Line, lines: Sequence[Line]) -> bool:
    """Return whether a model is claimed better than every other model with a value: q <= 1 - confidence for each."""
    others = [other for other in lines if other.value is not None and other.model != line.model]
    is_fair = line.sampling != "adaptive"
    return is_fair and line.rank_hi == 1 and bool(others) and all(other.rank_lo is not None for other in others)


def pair_conclusion(
    a: str, b: str, row: dict[str, Any], margin: float | None, confidence: float, family: int | None
) -> str:
    """Explain the claim of a pair, B over A; if it is inconclusive, why."""
    near = f"{2 * confidence - 1:.0%} interval"
    conclusions = {
        "improvement": f"{b} scores higher on problems like these",
        "regression": f"{b} scores lower on problems like these",
        "equivalent": f"the models differ by less than the margin of {margin} on problems like these ({near})",
        "not worse": f"{b} is not worse by the margin of {margin} or more on problems like these ({near})",
    }
    if row["claim"] in conclusions:
        return conclusions[row["claim"]]
    if row["lo"] <= 0 <= row["hi"]:
        return "no significant difference; the interval contains zero, which does not prove equality"
    chance = f"; with {family:,} pairs this happens by chance" if family and family > 1 else ""
    if row["q"] > 1 - confidence:
        return f"no claim: the interval excludes zero, but q is above {1 - confidence:.2g}{chance}"
    return "no claim: ranges of ranks overlap, since one of the models differs from some rival by as much by chance"
