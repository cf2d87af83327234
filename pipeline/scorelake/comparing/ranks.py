"""The rank tables: each model's place by its value, between which places the problems leave it, or why not."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.comparing.examined import Found
from scorelake.schemas import Table, rank_of_value
from scorelake.settings import Settings


def ranks(table: Table, summary: pl.DataFrame, found: Sequence[Found], settings: Settings) -> pl.DataFrame:
    """One row per row of the summary, in its order. Rank, range and value are of the same models."""
    board = tuple(key for key in ("benchmark", "subject", "protocol") if key in table.columns)
    told = summary.select(*board, "metric", "model", "value", "problems", "problems_scored")
    for more in (_standings(found, board), _ranges(found, board)):
        key = [name for name in (*board, "metric", "model") if name in more.columns]
        told = told.join(more, on=key, how="left", validate="m:1", nulls_equal=True, maintain_order="left")
    told = told.with_columns(reason=_reason(settings))
    place = rank_of_value().over(*board, "metric").cast(pl.Int64)
    told = told.with_columns(value=pl.when(pl.col("reason").is_null()).then("value")).with_columns(rank=place)
    known = pl.col("rank_lo").is_not_null()
    return table.check(
        told.with_columns(
            rank_lo=pl.when(known).then(pl.min_horizontal("rank_lo", "rank")),  # ranks are of each one's own problems
            rank_hi=pl.when(known).then(pl.max_horizontal("rank_hi", "rank")),
        ).select(*table.columns)
    )


def _reason(settings: Settings) -> pl.Expr:
    """Why a model is not ranked by a metric: it did too little, or its value is not defined."""
    share = f"{settings.uncertainty.min_coverage:.0%}"
    unscored = pl.format(
        f"no value: {{}} of {{}} problems have enough attempts, {share} needed", "problems_scored", "problems"
    )
    return (
        pl.when(pl.col("unranked").is_null()).then(pl.lit("no graded attempt"))
        .when(pl.col("unranked") != "").then("unranked")
        .when(pl.col("value").is_null()).then(unscored)
    )  # fmt: skip


def _standings(found: Sequence[Found], board: Sequence[str]) -> pl.DataFrame:
    """Every model that is on a board, and why it is not ranked there; "" if it is."""
    schema = dict.fromkeys(("benchmark", "subject", "protocol", "model", "unranked"), pl.String())
    rows = [
        (each.place.benchmark, each.place.subject, each.place.protocol, model, why or "")
        for each in found
        for model, why in zip(each.place.models, each.standing, strict=True)
    ]
    return pl.DataFrame(rows, schema, orient="row").select(*board, "model", "unranked")


def _ranges(found: Sequence[Found], board: Sequence[str]) -> pl.DataFrame:
    keys = dict.fromkeys(("benchmark", "subject", "protocol", "metric", "model"), pl.String())
    schema = keys | {"rank_lo": pl.Int64(), "rank_hi": pl.Int64(), "p_best": pl.Float64()}
    frames = [pl.DataFrame(schema=schema)]
    for each in found:
        place, models = each.place, pl.Series(each.place.models, dtype=pl.String)
        for measured in each.metrics:
            if measured.ranks is not None:
                columns = {"rank_lo": measured.ranks.lo, "rank_hi": measured.ranks.hi, "p_best": measured.ranks.best}
                frame = pl.DataFrame({"model": models.gather(measured.ranked), **columns}).with_columns(
                    benchmark=pl.lit(place.benchmark),
                    subject=pl.lit(place.subject, pl.String),
                    protocol=pl.lit(place.protocol),
                    metric=pl.lit(measured.metric.name),
                )
                frames.append(frame.select(*schema))
    return pl.concat(frames).select(*board, "metric", "model", "rank_lo", "rank_hi", "p_best")
