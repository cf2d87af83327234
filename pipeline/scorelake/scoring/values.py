"""Estimates of metrics for single problems: from counts, rewards, answers, and the prior lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from scorelake.errors import DataError
from scorelake.metrics.beta_powers import any_above
from scorelake.metrics.counts import distinct, totals
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, Prior, evaluate, of_levels, without_posterior
from scorelake.metrics.families import Metric
from scorelake.metrics.vote import Ballots
from scorelake.schemas import EARLIER
from scorelake.scoring.choose import Outcomes, beta_prior, outcome_weights, problem_priors
from scorelake.scoring.survey import distinct_rows
from scorelake.settings import UNIFORM, Settings
from scorelake.threads import parallel_map

REWARDS, ANSWERS = ("rewards", "reward_counts"), ("answer_counts", "answer_passes")
EARLIER_REWARDS = tuple(EARLIER[name] for name in REWARDS)
_BLOCK = 1 << 20  # rewards per block of problems


def metrics_by_input(chosen: Sequence[Metric], outcomes: Outcomes) -> dict[str, list[Metric]]:
    """Group metrics by what they are computed from: rewards, answers, counts with the prior lake, or counts."""
    out: dict[str, list[Metric]] = {"rewards": [], "answers": [], "earlier": [], "counts": []}
    for metric in chosen:
        if outcomes.rewards and metric.family.rewards is not None:
            kind = "rewards"
        elif metric.family.vote is not None:
            kind = "answers"
        else:
            kind = "earlier" if metric.family.name == "bayes@N" and outcomes.earlier else "counts"
        out[kind].append(metric)
    return out


def follow_from_counts(chosen: Sequence[Metric], outcomes: Outcomes) -> bool:
    """Return whether all metrics are the same for problems with the same (n, c)."""
    return metrics_by_input(chosen, outcomes)["counts"] == list(chosen)


def needed_columns(chosen: Sequence[Metric], outcomes: Outcomes) -> list[str]:
    """Return the columns of problem_counts, besides n and c, that the metrics are computed from."""
    of = metrics_by_input(chosen, outcomes)
    rewards = (*REWARDS, *(EARLIER_REWARDS if outcomes.earlier else ())) if of["rewards"] else ()
    counts = (EARLIER["n"], EARLIER["c"]) if outcomes.earlier and (of["earlier"] or of["counts"]) else ()
    return [*rewards, *(ANSWERS if of["answers"] else ()), *counts]


@dataclass(frozen=True)
class ProblemEstimates:
    """Estimates of metrics that share their columns, and the column of each row."""

    metrics: Sequence[Metric]
    estimates: list[Estimate]
    index: Ints

    @property
    def size(self) -> int:
        """Number of columns."""
        return len(self.estimates[0].value[0])


def estimate_problems(
    rows: pl.DataFrame, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes, posterior: bool = True
) -> list[ProblemEstimates]:
    """Estimate metrics for rows of problem_counts."""
    of, out, every = metrics_by_input(chosen, outcomes), [], np.arange(rows.height)
    if of["rewards"]:
        out.append(ProblemEstimates(of["rewards"], reward_estimates(rows, of["rewards"], settings), every))
    if of["answers"]:
        owner, count, passes = _flatten(rows, ANSWERS)
        ballots = Ballots(rows["n"].to_numpy(), rows["c"].to_numpy(), owner, count, passes)
        made = parallel_map(lambda metric: without_posterior(ballots.vote(metric.draws)), of["answers"])
        out.append(ProblemEstimates(of["answers"], made, every))
    if counted := [*of["counts"], *of["earlier"]]:
        prior: Prior = beta_prior(settings, outcomes) or UNIFORM  # a fitted one changes no value
        if EARLIER["n"] in rows.columns:  # every problem has a prior of its own: each distinct combination once
            once, index = distinct_rows(rows.select("n", "c", EARLIER["n"], EARLIER["c"]))
            n, c, prior = once["n"].to_numpy(), once["c"].to_numpy(), problem_priors(settings, outcomes, once)
        else:
            n, c, index = distinct(rows["n"].to_numpy(), rows["c"].to_numpy())
        made = evaluate(counted, n, c, prior, outcome_weights(settings, outcomes), posterior)
        out.append(ProblemEstimates(counted, made, index))
    return out


def metric_bounds(metric: Metric, settings: Settings, outcomes: Outcomes) -> tuple[float, float]:
    """Return the smallest and the largest value that a metric can have."""
    worth = settings.rubric.worth.values()
    if metric.family.rewards is not None and worth:
        return min(worth), max(worth)
    if metric.family.rewards is not None and outcomes.rewards:
        return settings.rubric.bounds or (-np.inf, np.inf)
    if metric.family.vote is not None:
        return 0.0, 1.0
    return evaluate([metric], np.array([metric.draws]), np.array([0]), UNIFORM)[0].kind.bounds


def problem_values(
    rows: pl.DataFrame, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes
) -> list[Floats]:
    """Return for each metric the finite value of every row of problem_counts, NaN where undefined."""
    made = {
        metric: estimate.value[0][each.index]
        for each in estimate_problems(rows, chosen, settings, outcomes, posterior=False)
        for metric, estimate in zip(each.metrics, each.estimates, strict=True)
    }
    return [made[metric] for metric in chosen]


def count_values(
    histogram: pl.DataFrame, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes
) -> pl.DataFrame:
    """Return the values of the metrics that follow from counts, for every (n, c) of a histogram: a column each."""
    counted = metrics_by_input(chosen, outcomes)["counts"] if not outcomes.earlier else []
    once = histogram.select("n", "c").filter(pl.col("n") > 0).unique(maintain_order=True)
    values = zip(counted, problem_values(once, counted, settings, outcomes), strict=True)
    return once.with_columns(pl.Series(metric.name, value) for metric, value in values)


def reward_estimates(rows: pl.DataFrame, chosen: Sequence[Metric], settings: Settings) -> list[Estimate]:
    """Estimate metrics of rewards: of the levels of a rubric if there is one, else of the numbers as they are."""
    if settings.rubric.levels:
        return _rubric_estimates(rows, chosen, settings)
    per_problem = max(1, int(rows[REWARDS[0]].list.len().sum()) // max(1, rows.height))
    step = max(1, _BLOCK // per_problem)
    starts = range(0, max(1, rows.height), step)
    parts = parallel_map(lambda at: _reward_values(rows[at : at + step], chosen), starts)
    bounds, seen = settings.rubric.bounds, None  # no posterior, which needs a finite set of levels
    if bounds is None:
        ends = rows.select(-pl.col(REWARDS[0]).list.min(), pl.col(REWARDS[0]).list.max().alias("high"))
        seen = ends.fill_null(-np.inf).to_numpy().T
    values = map(np.concatenate, zip(*parts, strict=True))
    return [without_posterior(value, bounds or (-np.inf, np.inf), seen) for value in values]


def check_rewards(ends: tuple[float, float] | None, settings: Settings) -> None:
    """Raise if the smallest or the largest score lies outside [rubric] bounds."""
    low, high = settings.rubric.bounds or (-np.inf, np.inf)
    outside = [end for end in ends or () if not low <= end <= high]
    if outside and not settings.rubric.levels:
        raise DataError(
            f"a score of {outside[0]:g} lies outside [rubric] bounds = [{low:g}, {high:g}]",
            hint="fix the lake, or give bounds that hold for every score",
        )


def _flatten(rows: pl.DataFrame, names: Sequence[str]) -> tuple[Ints, Any, Any]:
    """Return the problem and the numbers of every entry of two lists (rewards, ascending, or answers)."""
    lengths = rows[names[1]].list.len().fill_null(0).to_numpy().astype(np.int64)
    full = rows.filter(pl.col(names[1]).list.len() > 0)
    first, second = (full[name].explode().to_numpy() for name in names)
    return np.repeat(np.arange(rows.height), lengths), first, second


def _rubric_estimates(rows: pl.DataFrame, chosen: Sequence[Metric], settings: Settings) -> list[Estimate]:
    """Estimate metrics of a finite set of levels, with posteriors."""
    weights = sorted(settings.rubric.worth.items(), key=lambda item: (item[1], item[0]))
    levels, worth = np.array([level for level, _ in weights]), np.array([weight for _, weight in weights])
    mass = np.array([[1 + settings.rubric.outcomes.get(level, 0.0) for level, _ in weights]])
    counts = _level_counts(rows, REWARDS, levels)
    if EARLIER_REWARDS[0] in rows.columns:
        mass = mass + _level_counts(rows, EARLIER_REWARDS, levels)
    return parallel_map(lambda metric: of_levels(metric, worth, counts, mass), chosen)


def _level_counts(rows: pl.DataFrame, names: Sequence[str], levels: Floats) -> Ints:
    """Return counts, problems x levels."""
    problem, reward, count = _flatten(rows, names)
    order = np.argsort(levels)
    out = np.zeros((rows.height, levels.size), dtype=np.int64)
    out[problem, order[np.searchsorted(levels[order], reward)]] = count
    return out


def _reward_values(rows: pl.DataFrame, chosen: Sequence[Metric]) -> list[Floats]:
    """Return the finite values of metrics of any real rewards, NaN where a problem has too few attempts."""
    problem, reward, count = _flatten(rows, REWARDS)
    n = totals(problem, count, rows.height)
    first = np.searchsorted(problem, np.arange(rows.height))
    running = np.concatenate([[0], np.cumsum(count)])
    below = running[:-1] - running[first][problem]  # attempts of the problem with a lower reward
    gap = np.diff(reward, prepend=0.0)
    gap[first[n > 0]] = reward[first[n > 0]]  # the lowest reward, which every draw reaches
    pair_n, pair_below, index = distinct(n[problem], below)

    def per_problem(entries: Floats) -> Floats:
        return np.bincount(problem, entries, rows.height).astype(np.float64)

    out = []
    for metric in chosen:
        if metric.k is None:
            out.append(ratio(per_problem(reward * count), n))
        else:
            reached = any_above(pair_below, pair_n, metric.draws)[index]
            out.append(np.where(n >= metric.draws, per_problem(gap * reached), np.nan))
    return out
