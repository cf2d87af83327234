"""What the numbers are made of: the value of every metric that was asked for, problem by problem.

Metrics of counts are told once per (n, c), those of scores and answers per problem. pass@k and pass^k need no table:
the view that shows all of them works them out.
"""

from __future__ import annotations

import polars as pl

from scorelake.metrics import Metric
from scorelake.metrics.counts import Distinct
from scorelake.schemas import COUNT_SCORE, KEYS
from scorelake.scoring.choose import Outcomes, choose
from scorelake.scoring.values import Scored, kinds, per_problem
from scorelake.settings import Settings

_IN_SQL = ("pass@k", "pass^k")


def by_counts(pairs: Distinct, settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    """Values of the metrics named in the settings, for every (n, c); none where none are named."""
    chosen, told_of = told(settings, outcomes)[0], pl.DataFrame({"n": pairs.n, "c": pairs.c})
    values = per_problem(chosen, told_of, settings, outcomes) if chosen else []
    frames = [
        told_of.with_columns(*_named(metric), pl.Series("value", value).fill_nan(None))
        for metric, value in zip(chosen, values, strict=True)
    ]
    return COUNT_SCORE.check(_all(frames, COUNT_SCORE.schema))


def by_problem(scored: Scored) -> pl.DataFrame | None:
    """Values of the other metrics that were named, for the problems of a part; None where there are none."""
    chosen = told(scored.settings, scored.outcomes)[1]
    if not chosen:
        return None
    keys = scored.part.others(KEYS)
    frames = [
        keys.with_columns(*_named(metric), pl.Series("value", value).fill_nan(None))
        for metric, value in zip(chosen, scored.values(chosen), strict=True)
    ]
    return pl.concat(frames)


def told(settings: Settings, outcomes: Outcomes) -> tuple[list[Metric], list[Metric]]:
    """The metrics that are told per (n, c), and those that depend on more than a problem's n and c."""
    of = kinds([metric for metric in choose(settings, outcomes) if _told(metric, settings)], outcomes)
    return of["counts"], [*of["rewards"], *of["answers"], *of["earlier"]]


def _told(metric: Metric, settings: Settings) -> bool:
    """A blend of group means has no value of a problem, and bayes@N under a learnt prior none that models share."""
    learnt = settings.uncertainty.pseudo_counts is None and metric.family.name == "bayes@N"
    known = metric.family.pooled or metric.family.name in _IN_SQL
    return bool(settings.metrics.names) and not known and not learnt


def _named(metric: Metric) -> list[pl.Expr]:
    return [pl.lit(metric.name).alias("metric"), pl.lit(metric.k, pl.Int64).alias("k")]


def _all(frames: list[pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.select(*schema) for frame in frames)])
