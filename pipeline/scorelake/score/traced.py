"""What the numbers are made of: the value of every metric that was asked for, problem by problem.

Metrics of counts are told once per (n, c), those of scores and answers per problem. pass@k and pass^k need no table:
the view that shows all of them works them out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.metrics import Metric
from scorelake.problems import Problems
from scorelake.score.choose import Outcomes, choose
from scorelake.score.values import Scored, kinds, per_problem
from scorelake.settings import Settings
from scorelake.tables import COUNT_SCORE, PROBLEM_SCORE

_IN_SQL = ("pass@k", "pass^k")


def tables(scored: Scored) -> dict[str, pl.DataFrame]:
    """Values of the metrics named in the settings; none where none are named."""
    shared, each = told(scored.settings, scored.outcomes)
    return {
        COUNT_SCORE.name: COUNT_SCORE.check(_by_counts(scored.counted, shared, scored.settings, scored.outcomes)),
        PROBLEM_SCORE.name: PROBLEM_SCORE.check(_by_problem(scored, each)),
    }


def told(settings: Settings, outcomes: Outcomes) -> tuple[list[Metric], list[Metric]]:
    """The metrics that are told per (n, c), and those that depend on more than a problem's n and c."""
    of = kinds([metric for metric in choose(settings, outcomes) if _told(metric, settings)], outcomes)
    return of["counts"], [*of["rewards"], *of["answers"], *of["earlier"]]


def _told(metric: Metric, settings: Settings) -> bool:
    """A blend of group means has no value of a problem, and bayes@N under a learnt prior none that models share."""
    learnt = settings.uncertainty.pseudo_counts is None and metric.family.name == "bayes@N"
    known = metric.family.pooled or metric.family.name in _IN_SQL
    return bool(settings.metrics.names) and not known and not learnt


def _by_counts(counted: Problems, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    pairs = pl.DataFrame({"n": counted.pairs.n, "c": counted.pairs.c})
    values = per_problem(chosen, pairs, settings, outcomes) if chosen else []
    frames = [
        pairs.with_columns(*_named(metric), pl.Series("value", value).fill_nan(None))
        for metric, value in zip(chosen, values, strict=True)
    ]
    return _all(frames, COUNT_SCORE.schema)


def _by_problem(scored: Scored, chosen: Sequence[Metric]) -> pl.DataFrame:
    if not chosen:
        return pl.DataFrame(schema=PROBLEM_SCORE.schema)
    group, name = scored.counted.group, scored.counted.name
    order = np.lexsort((name, group))  # whatever files the problems are in
    numbers = pl.DataFrame({"_group": group[order], "_name": name[order]})
    frames = [
        numbers.with_columns(*_named(metric), pl.Series("value", value[order]).fill_nan(None))
        for metric, value in zip(chosen, scored.values(chosen), strict=True)
    ]
    return _all(frames, PROBLEM_SCORE.schema)


def _named(metric: Metric) -> list[pl.Expr]:
    return [pl.lit(metric.name).alias("metric"), pl.lit(metric.k, pl.Int64).alias("k")]


def _all(frames: list[pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.select(*schema) for frame in frames)])
