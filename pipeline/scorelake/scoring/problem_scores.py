"""Values of the configured metrics for single problems.

Metrics of counts have one value per (n, c); metrics of scores and answers one per problem. pass@k and pass^k need no
table: the view over both computes them.
"""

from __future__ import annotations

import polars as pl

from scorelake.metrics.families import Metric
from scorelake.schemas import COUNT_SCORE, KEYS
from scorelake.scoring.choose import ALL_METRICS, Outcomes, choose
from scorelake.scoring.values import metrics_by_input, problem_values
from scorelake.settings import Settings

_IN_SQL = ("pass@k", "pass^k")


def count_scores(histogram: pl.DataFrame, settings: Settings, outcomes: Outcomes) -> pl.DataFrame:
    """Return the values of configured metrics of counts for every (n, c); no row if none is configured."""
    pairs = histogram.select("n", "c").unique().sort("n", "c")
    return COUNT_SCORE.check(_values(pairs, listed_metrics(settings, outcomes)[0], settings, outcomes))


def problem_scores(rows: pl.DataFrame, settings: Settings, outcomes: Outcomes) -> pl.DataFrame | None:
    """Return the values of the other configured metrics for rows of problem_counts; None if there are none."""
    chosen = listed_metrics(settings, outcomes)[1]
    return _values(rows, chosen, settings, outcomes, KEYS) if chosen else None


def listed_metrics(settings: Settings, outcomes: Outcomes) -> tuple[list[Metric], list[Metric]]:
    """Return the metrics with a value per (n, c), and those that depend on more than n and c."""
    chosen = [metric for metric in choose(settings, outcomes) if _is_listed(metric, settings)]
    by_input = metrics_by_input(chosen, outcomes)
    return by_input["counts"], [*by_input["rewards"], *by_input["answers"], *by_input["earlier"]]


def _is_listed(metric: Metric, settings: Settings) -> bool:
    """A blend of group means has no value per problem, and bayes@N under a fitted prior none that models share."""
    is_fitted = settings.uncertainty.pseudo_counts is None and metric.family.name == "bayes@N"
    return settings.metrics.names not in ((), ALL_METRICS) and not (
        metric.family.pooled or metric.family.name in _IN_SQL or is_fitted
    )


def _values(
    rows: pl.DataFrame,
    chosen: list[Metric],
    settings: Settings,
    outcomes: Outcomes,
    keys: tuple[str, ...] = ("n", "c"),
) -> pl.DataFrame:
    """Return a row per metric and row, metric by metric."""
    values = problem_values(rows, chosen, settings, outcomes)
    columns = {name: COUNT_SCORE.schema[name] for name in ("metric", "k", "value")}
    frames = [rows.head(0).select(*keys, *(pl.lit(None, kind).alias(name) for name, kind in columns.items()))]
    for metric, value in zip(chosen, values, strict=True):
        named = [pl.lit(metric.name).alias("metric"), pl.lit(metric.k, pl.Int64).alias("k")]
        frames.append(rows.select(*keys, *named, pl.Series("value", value).fill_nan(None)))
    return pl.concat(frames)
