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
from scorelake.score.values import per_problem
from scorelake.settings import Settings
from scorelake.tables import COUNT_SCORE, PROBLEM_SCORE

_IN_SQL = ("pass@k", "pass^k")


def tables(counted: Problems, settings: Settings, outcomes: Outcomes) -> dict[str, pl.DataFrame]:
    """Values of the metrics named in the settings; none where none are named."""
    chosen = [metric for metric in choose(settings, outcomes) if _told(metric, settings)]
    each = [
        m for m in chosen if m.family.vote is not None or (m.family.finite is not None and _of_problem(m, outcomes))
    ]
    shared = [metric for metric in chosen if metric not in each]
    return {
        COUNT_SCORE.name: COUNT_SCORE.check(_by_counts(counted, shared, settings, outcomes)),
        PROBLEM_SCORE.name: PROBLEM_SCORE.check(_by_problem(counted, each, settings, outcomes)),
    }


def _of_problem(metric: Metric, outcomes: Outcomes) -> bool:
    """It depends on more than the problem's n and c."""
    return outcomes.rewards or (outcomes.earlier and metric.family.name == "bayes@N")


def _told(metric: Metric, settings: Settings) -> bool:
    """A blend of group means has no value of a problem, and bayes@N under a learnt prior none that models share."""
    learnt = settings.uncertainty.pseudo_counts is None and metric.family.name == "bayes@N"
    known = metric.family.pooled or metric.family.name in _IN_SQL
    return bool(settings.metrics.names) and not known and not learnt


def _by_counts(counted: Problems, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    pairs = pl.DataFrame({"n": counted.pairs.n, "c": counted.pairs.c})
    values = per_problem(chosen, pairs, settings, outcomes) if chosen else []
    frames = [
        pairs.with_columns(*_named(metric), pl.Series("value", value(slice(None))).fill_nan(None))
        for metric, value in zip(chosen, values, strict=True)
    ]
    return _all(frames, COUNT_SCORE.schema)


def _by_problem(counted: Problems, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    if not chosen:
        return pl.DataFrame(schema=PROBLEM_SCORE.schema)
    lists = [name for name in counted.more if name not in settings.carried]
    rows = pl.concat([counted.counts, counted.others(lists)], how="horizontal")
    numbers = pl.DataFrame({"_group": counted.group, "_name": counted.name})
    frames = [
        numbers.with_columns(*_named(metric), pl.Series("value", np.asarray(value(slice(None)))).fill_nan(None))
        for metric, value in zip(chosen, per_problem(chosen, rows, settings, outcomes), strict=True)
    ]
    return _all(frames, PROBLEM_SCORE.schema)


def _named(metric: Metric) -> list[pl.Expr]:
    return [pl.lit(metric.name).alias("metric"), pl.lit(metric.k, pl.Int64).alias("k")]


def _all(frames: list[pl.DataFrame], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *(frame.select(*schema) for frame in frames)])
