"""Tables of ranks: the rank of each model by its value and the range of its rank, or the reason for having none."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import polars as pl
from scipy.special import ndtr

from scorelake.comparing.compare import BoardResult
from scorelake.comparing.pairs import CLAIMED
from scorelake.metrics.significance import benjamini_hochberg
from scorelake.schemas import Table, rank_of_value
from scorelake.scoring.overall import benchmark_weights, pool_protocols
from scorelake.settings import Settings


def rank_table(
    table: Table, summary: pl.DataFrame, results: Sequence[BoardResult], pairs: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Return a row per row of the summary, in its order. Rank, range and value are of the same models.

    A model's range leaves out the ranks of the models that `pairs` claims to be better or worse.
    """
    board = tuple(key for key in ("benchmark", "subject", "protocol") if key in table.columns)
    rows = summary.select(*board, "metric", "model", "value", "problems", "problems_scored")
    ranges = _ranges(results, board)
    for more in (_eligibility(results, board), _apply_claims(ranges, pairs, board)):
        keys = [name for name in (*board, "metric", "model") if name in more.columns]
        rows = rows.join(more, on=keys, how="left", validate="m:1", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(reason=_reason(settings))
    rank = rank_of_value().over(*board, "metric").cast(pl.Int64)
    rows = rows.with_columns(value=pl.when(pl.col("reason").is_null()).then("value")).with_columns(rank=rank)
    has_range = pl.col("rank_lo").is_not_null()
    return table.check(
        rows.with_columns(  # values are over each model's own problems, ranges over common ones: contain the rank
            rank_lo=pl.when(has_range).then(pl.min_horizontal("rank_lo", "rank")),
            rank_hi=pl.when(has_range).then(pl.max_horizontal("rank_hi", "rank")),
        ).select(*table.columns)
    )


def overall_ranges(
    overall: pl.DataFrame, models: pl.DataFrame, pairs: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Add ranges of ranks to the averages over benchmarks, from the lifts of the pairs on each benchmark.

    Lifts on different benchmarks are independent, and their weighted mean is tested as a normal variable. A model is
    above another if q over all pairs, and p times the number of rivals, are at most 1 - confidence.
    """
    keys, level = ["metric", "protocol"], 1 - settings.uncertainty.confidence
    weights = benchmark_weights(pool_protocols(models, models), settings).filter(pl.col("weight") > 0)
    se = (pl.col("hi") - pl.col("lo")) / 2 / NormalDist().inv_cdf(1 - level / 2)
    sums = (
        pool_protocols(pairs.drop_nulls("lift"), models).join(weights, on=["benchmark", "protocol"])
        .group_by(*keys, "model_a", "model_b", maintain_order=True)
        .agg(
            lift=(pl.col("weight") * pl.col("lift")).sum() / pl.col("weight").sum(),
            se=((pl.col("weight") * se) ** 2).sum().sqrt() / pl.col("weight").sum(),
            benchmarks=pl.len().cast(pl.Int64),
        )
    )  # fmt: skip
    valued = overall.drop_nulls("value").with_columns(rivals=pl.len().over(keys) - 1)
    for side in ("model_a", "model_b"):
        sides = valued.select(*keys, "benchmarks", pl.col("model").alias(side), "rivals")
        sums = sums.join(sides, on=[*keys, "benchmarks", side], suffix="_b")
    z = (pl.col("lift").abs() / pl.col("se")).fill_nan(0.0)  # 0 / 0: the two never differ
    sums = sums.with_columns(p=pl.Series(2 * ndtr(-sums.select(z).to_series().to_numpy())))
    q = pl.col("p").map_batches(lambda p: pl.Series(benjamini_hochberg(p)), return_dtype=pl.Float64).over(keys)
    claimed = sums.filter(q.is_between(0, level) & (pl.col("p") * pl.col("rivals") <= level))
    is_complete = pl.len().over(keys) * 2 == pl.col("rivals") * (pl.col("rivals") + 1)
    complete = sums.filter(is_complete).select(keys).unique()
    ranges = valued.join(complete, on=keys, how="semi").select(
        *keys, "model", rank_lo=1, rank_hi=pl.col("rivals") + 1
    )
    ranges = ranges.with_columns(pl.col("rank_lo", "rank_hi").cast(pl.Int64))
    ranges = _count_claims(ranges, claimed, keys)
    out = overall.drop("rank_lo", "rank_hi").join(ranges, on=[*keys, "model"], how="left", maintain_order="left")
    return out.select(*overall.columns)


def _reason(settings: Settings) -> pl.Expr:
    """Return why a model is not ranked by a metric: too few attempts, or no value."""
    share = f"{settings.uncertainty.min_coverage:.0%}"
    unscored = pl.format(
        f"no value: {{}} of {{}} problems have enough attempts, {share} needed", "problems_scored", "problems"
    )
    return (
        pl.when(pl.col("unranked").is_null()).then(pl.lit("no graded attempt"))
        .when(pl.col("unranked") != "").then("unranked")
        .when(pl.col("value").is_null()).then(unscored)
    )  # fmt: skip


def _eligibility(results: Sequence[BoardResult], board: Sequence[str]) -> pl.DataFrame:
    """Return every model of a board and the reason why it is not ranked there; "" if it is."""
    schema = dict.fromkeys(("benchmark", "subject", "protocol", "model", "unranked"), pl.String())
    rows = [
        (each.board.benchmark, each.board.subject, each.board.protocol, model, reason or "")
        for each in results
        for model, reason in zip(each.board.models, each.unranked, strict=True)
    ]
    return pl.DataFrame(rows, schema, orient="row").select(*board, "model", "unranked")


def _apply_claims(ranges: pl.DataFrame, pairs: pl.DataFrame, board: Sequence[str]) -> pl.DataFrame:
    """Count the ranked models that are better and worse than each by the claims of pairs."""
    keys = [*board, "metric"]
    claimed = pairs.filter(pl.col("claim").is_in(CLAIMED))
    for side in ("model_a", "model_b"):  # both have a range
        claimed = claimed.join(ranges, left_on=[*keys, side], right_on=[*keys, "model"], how="semi", nulls_equal=True)
    return _count_claims(ranges, claimed, keys)


def _count_claims(ranges: pl.DataFrame, claimed: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    b_leads = pl.col("lift") > 0
    for end, step, model in (
        ("rank_lo", 1, pl.when(b_leads).then("model_a").otherwise("model_b")),
        ("rank_hi", -1, pl.when(b_leads).then("model_b").otherwise("model_a")),
    ):
        counts = claimed.group_by(*keys, model.alias("model")).agg(_more=pl.len().cast(pl.Int64) * step)
        ranges = ranges.join(counts, on=[*keys, "model"], how="left", nulls_equal=True, maintain_order="left")
        ranges = ranges.with_columns(pl.col(end) + pl.col("_more").fill_null(0)).drop("_more")
    return ranges


def _ranges(results: Sequence[BoardResult], board: Sequence[str]) -> pl.DataFrame:
    keys = dict.fromkeys(("benchmark", "subject", "protocol", "metric", "model"), pl.String())
    schema = keys | {"rank_lo": pl.Int64(), "rank_hi": pl.Int64(), "p_best": pl.Float64()}
    frames = [pl.DataFrame(schema=schema)]
    for each in results:
        models = pl.Series(each.board.models, dtype=pl.String)
        for result in each.metrics:
            if result.ranks is not None:
                columns = {"rank_lo": result.ranks.lo, "rank_hi": result.ranks.hi, "p_best": result.ranks.best}
                frame = pl.DataFrame({"model": models.gather(result.ranked), **columns}).with_columns(
                    benchmark=pl.lit(each.board.benchmark),
                    subject=pl.lit(each.board.subject, pl.String),
                    protocol=pl.lit(each.board.protocol),
                    metric=pl.lit(result.metric.name),
                )
                frames.append(frame.select(*schema))
    return pl.concat(frames).select(*board, "metric", "model", "rank_lo", "rank_hi", "p_best")
