"""Which metrics: those asked for, or every one that the lake's columns allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.settings import Settings

TAUS = (0.25, 0.5, 0.75)
"""Thresholds of g-pass by default; 0 is pass@k and 1 is pass^k, which are there already."""

MOST_DRAWS, MOST_VOTES = 1024, 256
"""The largest k that nobody asked for: the cost of most families grows faster than k, that of votes faster still."""


@dataclass(frozen=True)
class Outcomes:
    """What the lake's columns allow: pass/fail, rewards, the largest number of attempts of a problem, and votes."""

    binary: bool
    rewards: bool
    top_n: int
    answers: bool = False
    earlier: bool = False
    """Every problem has counts of earlier attempts beside its own."""


def choose(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The metrics asked for, or every family the lake allows at k = 1, 2, 4, ... up to its largest n."""
    names = settings.metrics.names
    own = _own(settings)
    return _pick(names, [] if names else [*_defaults(outcomes.top_n), *own], settings, outcomes)


def choose_compared(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The metrics to compare models by: as asked, or pass@1 (avg@N of rewards) and the scored ones asked for."""
    if settings.compare.metrics:
        return _pick(settings.compare.metrics, [], settings, outcomes)
    first = metrics.parse("pass@1" if outcomes.binary else "avg@N")
    also = choose(settings, outcomes) if settings.metrics.names else []
    return list(dict.fromkeys([first, *(metric for metric in also if not metric.family.pooled)]))


def _own(settings: Settings) -> list[Metric]:
    weights = settings.metrics.spectrum
    named = [metrics.spectrum(each, label) for label, each in settings.spectra.items()]
    return [*([metrics.spectrum(weights)] if weights else []), *named]


def _pick(names: Sequence[str], others: list[Metric], settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The named metrics, all of which the lake must allow, or those of the others that it does."""
    chosen = [_named(name, settings) for name in names] or others
    allowed = [metric for metric in dict.fromkeys(chosen) if _allowed(metric, settings, outcomes)]
    refused = [metric.name for metric in chosen if metric not in allowed]
    votes = [metric.name for metric in chosen if metric.family.vote and metric not in allowed]
    if names and votes and outcomes.binary:
        raise UsageError(
            f"{', '.join(votes)}: this lake has no column {settings.columns.answer} to vote with",
            hint='[columns] answer = "..." names the column that holds the answers',
        )
    if names and refused:
        raise UsageError(
            f"{', '.join(refused)}: this lake has no {'pass/fail' if not outcomes.binary else 'rubric'} outcome",
            hint="[policy] pass_threshold makes score pass/fail; [rubric] levels makes it a rubric",
        )
    return allowed


def _named(name: str, settings: Settings) -> Metric:
    """The metric of a name, those of the user's own spectra included."""
    if settings.metrics.spectrum:
        own = metrics.spectrum(settings.metrics.spectrum)
        if name.strip().lower().removeprefix("threshold-") in (own.name, "spectrum@k"):
            return own
    return metrics.parse(name, settings.spectra)


def stopped(settings: Settings, outcomes: Outcomes) -> list[str]:
    """Says at which k the metrics that nobody named end, where problems have attempts for more; and which of those
    that were named no problem has attempts for."""
    if settings.metrics.names:
        far = [metric.name for metric in choose(settings, outcomes) if metric.draws > outcomes.top_n]
        short = f"no problem has more than {outcomes.top_n:,} graded attempts"
        return [f"{', '.join(far)}: no value, since {short}"] if far else []
    voted = outcomes.binary and outcomes.answers
    ends = [("metrics", MOST_DRAWS)] + ([("votes", MOST_VOTES)] if voted else [])
    return [
        f"{what} stop at k = {most:,}, though a problem has {outcomes.top_n:,} attempts; --metrics names a larger k"
        for what, most in ends
        if outcomes.top_n >= 2 * most
    ]


def _defaults(top_n: int) -> list[Metric]:
    out: list[Metric] = []
    for family in metrics.families():
        most = min(top_n, MOST_VOTES if family.vote is not None else MOST_DRAWS)
        ks = [2**i for i in range(max(1, most).bit_length())]
        if family.parameter == "weights":
            continue
        if not family.takes_k:
            out.append(metrics.parse(family.name))
        elif family.parameter == "tau":
            out += [metrics.parse(family.name.replace("k_tau", f"{k}_{tau}")) for tau in TAUS for k in ks]
        else:
            out += [metrics.parse(family.name.removesuffix("k") + str(k)) for k in ks]
    return out


def _allowed(metric: Metric, settings: Settings, outcomes: Outcomes) -> bool:
    """Credit metrics need pass/fail, votes also answers; metrics of rewards take the score, bayes@N of a rubric."""
    if metric.family.vote is not None:
        return outcomes.binary and outcomes.answers
    if metric.family.rewards is None or not outcomes.rewards:
        return outcomes.binary
    return metric.family.name != "bayes@N" or bool(settings.rubric.levels)
