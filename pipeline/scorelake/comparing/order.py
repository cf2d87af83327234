"""The order of rows that both tables have."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.metrics import Metric


def ordered(
    rows: pl.DataFrame, chosen: Sequence[Metric], before: Sequence[str], after: Sequence[str]
) -> pl.DataFrame:
    """By the keys, then metrics in the order they were asked for, then models."""
    order = {metric.name: i for i, metric in enumerate(chosen)}
    place = pl.col("metric").replace_strict(order, return_dtype=pl.Int64).alias("_place")
    return rows.with_columns(place).sort(*before, "_place", *after, nulls_last=True).drop("_place")
