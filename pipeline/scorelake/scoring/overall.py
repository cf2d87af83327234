"""Macro averages over benchmarks: one number per model, protocol and metric."""

from __future__ import annotations

import difflib

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics import interval
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.schemas import OVERALL, place_of_value
from scorelake.settings import Settings


def overall(models: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Every model over every benchmark that any model tried under its protocol; null where one is missing.

    Comes from the rows of model_summary, with the units of each and the bounds of its metric (low, high).
    """
    weight = _weights(models, settings)
    who = models.select("model", "protocol").unique().join(weight, on="protocol").filter(pl.col("weight") > 0)
    facts = models.select("metric", "family", "k", "param", "low", "high").unique(maintain_order=True)
    names = facts.select("metric").with_row_index("place")
    parts = who.join(names, how="cross").join(
        models.select("benchmark", "model", "protocol", "metric", "value", "se", "units"),
        on=("benchmark", "model", "protocol", "metric"),
        how="left",
    )
    keys = ("place", "metric", "protocol", "model")
    parts = parts.sort(*keys, "benchmark")
    rows = parts.group_by(keys, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("benchmarks"),
        pl.when(pl.col("value").is_null().any())
        .then(pl.col("benchmark").filter(pl.col("value").is_null()).str.join(", "))
        .alias("missing"),
    )
    starts = np.concatenate([[0], np.cumsum(rows["benchmarks"].to_numpy())])[:-1]
    value, se, units = _average(starts, *(parts[name].to_numpy() for name in ("weight", "value", "se", "units")))
    lo, hi = np.full((2, value.size), np.nan)
    for name, low, high in facts.select("metric", "low", "high").iter_rows():
        at = np.flatnonzero((rows["metric"] == name).to_numpy())
        value[at] = np.clip(value[at], low, high)  # a sum of shares may round beyond an end
        lo[at], hi[at] = interval(value[at], se[at], units[at], (low, high), settings.uncertainty.confidence)
    numbers = pl.DataFrame({"value": value, "lo": lo, "hi": hi, "se": se}).fill_nan(None)
    told = pl.concat([rows, numbers], how="horizontal")
    rank = place_of_value().over("metric", "protocol").cast(pl.Int64).alias("rank")
    return told.join(facts, on="metric", maintain_order="left").with_columns(rank).select(*OVERALL.columns)


def _weights(models: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Each benchmark of a protocol with its share of the average."""
    known, given = models["benchmark"].unique().sort().to_list(), settings.overall.weights
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or known[:3]
            raise UsageError(f"[overall] weights: no benchmark {name!r}", hint=f"the closest are {', '.join(near)}")
    share = pl.DataFrame({"benchmark": known, "weight": [float(given.get(name, 1.0)) for name in known]})
    parts = models.select("protocol", "benchmark").unique().join(share, on="benchmark")
    return parts.with_columns(pl.col("weight") / pl.col("weight").sum().over("protocol")).fill_nan(0.0)


def _average(starts: Ints, weight: Floats, value: Floats, se: Floats, units: Floats) -> tuple[Floats, Floats, Floats]:
    """Weighted means of the parts from each start on, their standard errors, and the units these are worth
    (Welch, Satterthwaite).

    Parts without any spread are given what problems of equal spread would have. A part of one unit tells nothing of
    its spread: the whole is then no better known than one unit.
    """

    def total(numbers: Floats) -> Floats:
        out: Floats = np.add.reduceat(numbers, starts) if starts.size else np.empty(0)
        return out

    variance, alike = (weight * se) ** 2, ratio(weight**2, units)
    spread = np.repeat(total(variance) > 0, np.diff(starts, append=weight.size))
    known = np.where(spread, variance, alike)
    worth = 1 + ratio(total(known) ** 2, total(ratio(known**2, units - 1)))
    return total(weight * value), np.sqrt(total(variance)), np.where(np.isnan(worth), 1.0, worth)
