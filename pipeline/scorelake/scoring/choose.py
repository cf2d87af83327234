"""Choose metrics and priors: the configured ones, or what the columns of the lake allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics.distributions import Floats
from scorelake.metrics.families import Metric
from scorelake.schemas import EARLIER
from scorelake.settings import UNIFORM, Settings

ALL_METRICS = ("all",)  # [metrics] names for every family at k = 1, 2, 4, ...
_READ = {"pass@k": 1, "pass^k": 2, "maj@k": 4, "avg@N": 1, "bayes@N": 1, "max@k": 1, "vote@k": 1}
"""Families by default, and the smallest k at which they are not another metric: pass^1 is pass@1, maj@2 is pass^2."""

MAX_DEFAULT_K, MAX_DEFAULT_VOTE_K = 1024, 256
"""Largest k by default: the cost of most families grows faster than k, that of votes faster still."""


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of some benchmarks: pass/fail, rewards, the largest number of attempts of a problem, and answers."""

    binary: bool
    rewards: bool
    top_n: int
    answers: bool = False
    earlier: bool = False  # problems have counts of the prior lake
    others: tuple[Outcomes, ...] = ()  # those of the lake's other benchmarks, if it mixes kinds

    def settings(self, settings: Settings) -> Settings:
        """Return the settings that concern these benchmarks."""
        # In a mixed lake a rubric concerns scores and a prior verdicts; otherwise one without effect is an error.
        default = Settings()
        if self.others and not self.rewards:
            return settings.model_copy(update={"rubric": default.rubric})
        if self.others and not self.binary:
            prior = {"prior": default.uncertainty.prior}
            return settings.model_copy(update={"uncertainty": settings.uncertainty.model_copy(update=prior)})
        return settings


def split_outcomes(
    kinds: Mapping[str, Sequence[bool]], histogram: pl.DataFrame, settings: Settings
) -> dict[tuple[bool, ...], tuple[Outcomes, list[str]]]:
    """Return the outcomes of the benchmarks of each kind (verdicts, scores, answers), and their names."""
    by_kind: dict[tuple[bool, ...], list[str]] = {}
    for benchmark, kind in kinds.items():
        by_kind.setdefault(tuple(kind), []).append(benchmark)
    out, earlier = {}, settings.uncertainty.prior_lake is not None
    for (verdicts, scores, answers), names in by_kind.items():
        top_n = histogram.filter(pl.col("benchmark").is_in(names))["n"].max() or 0
        out[verdicts, scores, answers] = Outcomes(verdicts, scores, int(top_n), answers, earlier)  # type: ignore[arg-type]
    others = {kind: tuple(each for each in out.values() if each is not mine) for kind, mine in out.items()}
    return {kind: (replace(mine, others=others[kind]), by_kind[kind]) for kind, mine in out.items()}


def choose(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """Return the configured metrics, or those that people read at k = 1, 2, 4, ... up to the lake's largest n."""
    names = settings.metrics.names
    if names and names != ALL_METRICS:
        return _pick(names, [], settings, outcomes)
    weights = settings.metrics.spectrum
    every = [*_defaults(outcomes.top_n), *([metrics.spectrum(weights)] if weights else [])]
    every += [metrics.spectrum(each, label) for label, each in settings.spectra.items()]
    wanted = every if names else [metric for metric in every if is_default(metric, outcomes.rewards)]
    return _pick((), wanted, settings, outcomes)


def is_default(metric: Metric, rewards: bool) -> bool:
    """Return whether a metric is computed by default: max@k of pass/fail is pass@k; own spectra are wanted."""
    family = metric.family.name
    if metric.family.parameter == "weights":
        return True
    return family in _READ and (metric.k or 1) >= _READ[family] and (family != "max@k" or rewards)


def choose_compared(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """Return the metrics to compare models by: as configured, or all that have a value per problem."""
    # The first is pass@1 (avg@N of rewards). By default that is the only one that subjects are compared by.
    if settings.compare.metrics:
        named = _pick(settings.compare.metrics, [], settings, outcomes)
        if pooled := [metric.name for metric in named if metric.family.pooled]:
            raise UsageError(
                f"{', '.join(pooled)}: a blend of group means has no score per problem to pair",
                hint="leave it out of [compare] metrics",
            )
        return named
    first = metrics.parse("pass@1" if outcomes.binary else "avg@N")
    return list(dict.fromkeys([first, *(each for each in choose(settings, outcomes) if not each.family.pooled)]))


def _pick(names: Sequence[str], others: list[Metric], settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """Return the named metrics, or the others that the lake allows; raise if it does not allow a named one."""
    chosen = [_named(name, settings) for name in names] or others
    allowed = [metric for metric in dict.fromkeys(chosen) if _allowed(metric, settings, outcomes)]
    other = [metric for metric in chosen if any(_allowed(metric, settings, kind) for kind in outcomes.others)]
    refused = [metric.name for metric in chosen if metric not in allowed and metric not in other]
    votes = [metric.name for metric in chosen if metric.family.vote and metric.name in refused]
    if names and votes and any(kind.binary for kind in (outcomes, *outcomes.others)):
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
    """Return the metric of a name, which may be a configured spectrum."""
    if settings.metrics.spectrum:
        own = metrics.spectrum(settings.metrics.spectrum)
        if name.strip().lower().removeprefix("threshold-") in (own.name, "spectrum@k"):
            return own
    return metrics.parse(name, settings.spectra)


def k_warnings(settings: Settings, outcomes: Outcomes) -> list[str]:
    """Warn where default metrics stop at a smaller k than problems have attempts, or where named ones need more."""
    if settings.metrics.names and settings.metrics.names != ALL_METRICS:
        too_large = [metric.name for metric in choose(settings, outcomes) if metric.draws > outcomes.top_n]
        reason = f"no problem has more than {outcomes.top_n:,} graded attempts"
        return [f"{', '.join(too_large)}: no value, since {reason}"] if too_large else []
    voted = outcomes.binary and outcomes.answers
    ends = [("metrics", MAX_DEFAULT_K)] + ([("votes", MAX_DEFAULT_VOTE_K)] if voted else [])
    return [
        f"{what} stop at k = {most:,}, though a problem has {outcomes.top_n:,} attempts; --metrics names a larger k"
        for what, most in ends
        if outcomes.top_n >= 2 * most
    ]


def _defaults(top_n: int) -> list[Metric]:
    out: list[Metric] = []
    for family in metrics.families():
        most = min(top_n, MAX_DEFAULT_VOTE_K if family.vote is not None else MAX_DEFAULT_K)
        ks = [2**i for i in range(max(1, most).bit_length())]
        if family.parameter != "weights":
            out += map(metrics.parse, family.names(ks))
    return out


def _allowed(metric: Metric, settings: Settings, outcomes: Outcomes) -> bool:
    """Return whether the lake has what a metric needs: pass/fail, answers, or a rubric for bayes@N of scores."""
    if metric.family.vote is not None:
        return outcomes.binary and outcomes.answers
    if metric.family.rewards is None or not outcomes.rewards:
        return outcomes.binary
    return metric.family.name != "bayes@N" or bool(settings.rubric.levels)


PASS_FAIL = (0.0, 1.0)  # rubric levels that weigh failed and passed attempts, where there is no score


def check_priors(settings: Settings, outcomes: Outcomes) -> None:
    """Raise if a prior or weight would have no effect on this lake."""
    rubric, is_uniform = settings.rubric, settings.uncertainty.pseudo_counts == UNIFORM
    if outcomes.rewards and not is_uniform and not (outcomes.binary and (rubric.prior or not rubric.levels)):
        raise UsageError(
            "[uncertainty] prior is of pass/fail, and this lake has scores",
            hint="[rubric] prior = [...] gives prior outcomes per level; leave out [uncertainty] prior",
        )
    if not outcomes.rewards and rubric.levels and tuple(sorted(rubric.levels)) != PASS_FAIL:
        raise UsageError(
            f"[rubric] levels are of a column {settings.columns.score}, and this lake has none",
            hint="levels = [0, 1] with weights say what failed and passed attempts are worth",
        )
    if outcomes.earlier and settings.uncertainty.pseudo_counts is None:
        raise UsageError('[uncertainty] prior_lake and prior = "empirical" exclude each other')
    if outcomes.earlier and not outcomes.binary and not rubric.levels:
        raise UsageError(
            "[uncertainty] prior_lake: scores have a posterior only where a rubric says which there are",
            hint="[rubric] levels = [...], or leave out prior_lake",
        )
    if not outcomes.rewards and rubric.prior and settings.uncertainty.pseudo_counts is None:
        raise UsageError('[rubric] prior and [uncertainty] prior = "empirical" exclude each other')


def outcome_weights(settings: Settings, outcomes: Outcomes) -> tuple[float, float]:
    """Return the weights of a failed and a passed attempt: a rubric of 0 and 1 sets them in a lake without scores."""
    weights = {} if outcomes.rewards else settings.rubric.worth
    return (weights[0.0], weights[1.0]) if weights else PASS_FAIL


def beta_prior(settings: Settings, outcomes: Outcomes) -> tuple[float, float] | None:
    """Return alpha and beta of the prior of a success rate; None if it is fitted to the lake."""
    prior = settings.uncertainty.pseudo_counts
    extra = {} if outcomes.rewards else settings.rubric.outcomes
    return prior if prior is None or not extra else (prior[0] + extra[1.0], prior[1] + extra[0.0])


def problem_priors(settings: Settings, outcomes: Outcomes, rows: pl.DataFrame) -> tuple[Floats, Floats]:
    """Return alpha and beta of each row, with the counts of the prior lake as prior outcomes."""
    alpha, beta = beta_prior(settings, outcomes) or UNIFORM
    n, c = (rows[EARLIER[name]].to_numpy() for name in ("n", "c"))
    return alpha + c.astype(np.float64), beta + (n - c).astype(np.float64)
