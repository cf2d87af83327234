"""The rank table: between which places the problems leave each model, and how often it leads."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.compare.order import ordered
from scorelake.compare.resampled import Found
from scorelake.metrics import Metric
from scorelake.tables import Table


def rank(table: Table, found: Sequence[Found], chosen: Sequence[Metric]) -> pl.DataFrame:
    """Every model of every board; a model without any score of a metric has no rank."""
    frames = [pl.DataFrame(schema=table.schema)]
    for each in found:
        place, ranks = each.place, each.ranks
        frame = pl.DataFrame(
            {
                "metric": [metric.name for metric in chosen for _ in place.models],
                "model": place.models * len(chosen),
                "rank_lo": ranks.lo,
                "rank_hi": ranks.hi,
                "p_best": ranks.best,
            },
            schema_overrides={"metric": pl.String},
        ).with_columns(
            benchmark=pl.lit(place.benchmark), subject=pl.lit(place.subject), protocol=pl.lit(place.protocol)
        )
        frames.append(frame.filter(pl.col("p_best").is_not_nan()).select(*table.columns))
    keys = [key for key in ("benchmark", "subject", "protocol") if key in table.columns]
    return table.check(ordered(pl.concat(frames), chosen, keys, ("model",)))
