"""Macro averages over benchmarks: one number per model, protocol and metric."""

from __future__ import annotations

import difflib

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics import interval
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.schemas import OVERALL, rank_of_value
from scorelake.settings import Settings


def pool_protocols(rows: pl.DataFrame, models: pl.DataFrame) -> pl.DataFrame:
    """Give all rows the same protocol, "", if no benchmark of the summaries has more than one."""
    # Each benchmark is then averaged as it was run; otherwise protocols are averaged one by one.
    protocols = models.select("benchmark", "protocol").unique()
    return rows.with_columns(protocol=pl.lit("")) if protocols["benchmark"].is_unique().all() else rows


def overall_table(models: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Average every model over the benchmarks that any model attempted under its protocol; null if one is missing."""
    # Takes the rows of model_summary with their units and the bounds of the metric (low, high). Ranges of ranks are
    # added by `overall_ranges`, after the comparisons.
    width = pl.col("high") - pl.col("low")  # rewards on a scale of their own are not averaged with verdicts
    is_same_scale = width == width.min().over("metric")
    models = pool_protocols(models, models).with_columns(value=pl.when(is_same_scale).then("value"))
    weight = benchmark_weights(models, settings).filter(pl.col("weight") > 0)
    # a benchmark of another kind or scale has no rows of the family, and is no part of its averages
    has_family = models.filter(is_same_scale).select("protocol", "benchmark", "family").unique()
    members = models.select("model", "protocol").unique().join(weight, on="protocol")
    by_metric = models.filter(is_same_scale).group_by("metric", "family", "k", "param", maintain_order=True)
    facts = by_metric.agg(pl.col("low", "high").first())
    names = facts.select("metric", "family").with_row_index("order")
    on, keys = ("benchmark", "model", "protocol", "metric"), ("order", "metric", "protocol", "model")
    own = models.select(*on, "value", "se", "units")
    wanted = members.join(names, how="cross").join(has_family, on=["protocol", "benchmark", "family"], how="semi")
    parts = wanted.join(own, on=on, how="left").sort(*keys, "benchmark")
    parts = parts.with_columns(weight=pl.col("weight") / pl.col("weight").sum().over(keys))
    is_missing = pl.col("value").is_null()
    missing = pl.when(is_missing.any()).then(pl.col("benchmark").filter(is_missing).str.join(", "))
    rows = parts.group_by(keys, maintain_order=True).agg(benchmarks=pl.len().cast(pl.Int64), missing=missing)
    starts = np.concatenate([[0], np.cumsum(rows["benchmarks"].to_numpy())])[:-1]
    value, se, units = _average(starts, *(parts[name].to_numpy() for name in ("weight", "value", "se", "units")))
    lo, hi = np.full((2, value.size), np.nan)
    for name, low, high in facts.select("metric", "low", "high").iter_rows():
        at = np.flatnonzero((rows["metric"] == name).to_numpy())
        value[at] = np.clip(value[at], low, high)  # a sum of shares may round beyond an end
        lo[at], hi[at] = interval(value[at], se[at], units[at], (low, high), settings.uncertainty.confidence)
    numbers = pl.DataFrame({"value": value, "lo": lo, "hi": hi, "se": se}).fill_nan(None)
    table = pl.concat([rows, numbers], how="horizontal")
    rank = rank_of_value().over("metric", "protocol").cast(pl.Int64).alias("rank")
    ranges = [pl.lit(None, pl.Int64).alias(name) for name in ("rank_lo", "rank_hi")]
    return table.join(facts, on="metric", maintain_order="left").with_columns(rank, *ranges).select(*OVERALL.columns)


def benchmark_weights(models: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the weight of each benchmark of a protocol."""
    benchmarks, given = models["benchmark"].unique().sort().to_list(), settings.overall.weights
    for name in given:
        if name not in benchmarks:
            near = difflib.get_close_matches(name, benchmarks, n=3) or benchmarks[:3]
            raise UsageError(f"[overall] weights: no benchmark {name!r}", hint=f"the closest are {', '.join(near)}")
    share = pl.DataFrame({"benchmark": benchmarks, "weight": [float(given.get(name, 1.0)) for name in benchmarks]})
    parts = models.select("protocol", "benchmark").unique().join(share, on="benchmark")
    return parts.with_columns(pl.col("weight") / pl.col("weight").sum().over("protocol")).fill_nan(0.0)


def _average(starts: Ints, weight: Floats, value: Floats, se: Floats, units: Floats) -> tuple[Floats, Floats, Floats]:
    """Return weighted means of the parts from each start on, their standard errors, and their effective units
    (Welch-Satterthwaite).

    Where no part has any spread, all units count as equally spread. A part with one unit has no known spread: the
    average then has one effective unit.
    """

    def total(numbers: Floats) -> Floats:
        out: Floats = np.add.reduceat(numbers, starts) if starts.size else np.empty(0)
        return out

    variance = (weight * se) ** 2
    has_spread = np.repeat(total(variance) > 0, np.diff(starts, append=weight.size))
    parts = np.where(has_spread, variance, ratio(weight**2, units))
    effective = 1 + ratio(total(parts) ** 2, total(ratio(parts**2, units - 1)))
    return total(weight * value), np.sqrt(total(variance)), np.where(np.isnan(effective), 1.0, effective)
