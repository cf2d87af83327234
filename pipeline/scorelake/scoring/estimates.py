"""Estimates under a stated model, in tables of their own: scores on uneven boards, and pass@k beyond the attempts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.metrics import interval
from scorelake.metrics.forecast import forecast
from scorelake.metrics.ragged import rasch, ungraded_bounds
from scorelake.schemas import ADJUSTED, FORECAST
from scorelake.scoring.survey import BucketTask
from scorelake.settings import Settings
from scorelake.threads import parallel_map

MAX_RATIO = 4
"""Forecasts reach up to this many times as many attempts as were made: beyond, their intervals say little."""
MAX_CELLS = 50_000_000  # models x problems of a board for which a Rasch model is fitted
MIN_COMMON = 20
_BOARD, _MODEL = ["benchmark", "protocol"], ["benchmark", "model", "protocol"]


def forecast_table(histogram: pl.DataFrame, ks: Sequence[int], confidence: float) -> pl.DataFrame:
    """Forecast pass@k for every k, where no problem of the model has k attempts."""
    graded = histogram.filter(pl.col("n") > 0)
    work = [
        (key, counts, k)
        for key, counts in graded.partition_by(_MODEL, as_dict=True, maintain_order=True).items()
        for k in sorted(set(ks))
        if counts["n"].max() < k <= MAX_RATIO * counts["n"].max()  # type: ignore[operator]
    ]

    def estimate(item: tuple[tuple[str, ...], pl.DataFrame, int]) -> tuple[object, ...]:
        key, counts, k = item
        n, c = (np.repeat(counts[name].to_numpy(), counts["problems"].to_numpy()) for name in ("n", "c"))
        value, lo, hi = forecast(n, c, k, confidence)
        return (*key, f"pass@{k}", k, value, lo, hi, n.size, float(n.mean()))

    rows = parallel_map(estimate, work)
    return FORECAST.check(pl.DataFrame(rows, schema=FORECAST.schema, orient="row").sort(*_MODEL, "k"))


def adjusted_table(
    buckets: Sequence[BucketTask], summary: pl.DataFrame, ranks: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Estimate pass@1 over all problems of a board for all its models, where some tried too few to be ranked."""
    is_pass_1 = pl.col("metric") == "pass@1"
    uneven = ranks.filter(is_pass_1 & pl.col("reason").is_not_null()).select(_BOARD).unique()
    models = ranks.filter(is_pass_1).join(uneven, on=_BOARD, how="semi").select(_MODEL)
    rows = summary.filter(is_pass_1).join(models, on=_MODEL, how="semi", maintain_order="left")
    keys = [*_MODEL, "subject", "problem_id", "n", "c"]
    tried = [bucket.read(keys).filter(pl.col("n") > 0).join(models, on=_MODEL, how="semi") for bucket in buckets]
    cells = pl.concat(tried) if rows.height else pl.DataFrame()
    if cells.is_empty():  # or no model has a graded attempt
        return pl.DataFrame(schema=ADJUSTED.schema)
    out = [_adjust(mine, rows, settings) for mine in cells.partition_by(_BOARD)]
    order = ("benchmark", "protocol", "adjusted_rank", "model")
    return ADJUSTED.check(pl.concat(out).select(*ADJUSTED.columns).sort(order, nulls_last=True))


def _adjust(cells: pl.DataFrame, rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Fit a Rasch model to one board."""
    problem = ["subject", "problem_id"]
    shared = cells.group_by(problem).agg(others=pl.len()).sort(problem).with_row_index("i")
    cells = cells.join(shared, on=problem, maintain_order="left").sort(
        "model", "i"
    )  # sums in one order: the same bits
    models = cells.group_by("model").agg(
        share_tried=pl.len() / shared.height,
        common=(pl.col("others") > 1).sum(),
        correct=pl.col("c").sum(),
    ).sort("model")  # fmt: skip
    fitted = dict.fromkeys(("value_adjusted", "lo_adjusted", "hi_adjusted", "misfit"), np.full(models.height, np.nan))
    if models.height * shared.height <= MAX_CELLS:
        numbers = np.arange(models.height)
        number = cells["model"].replace_strict(models["model"], numbers, return_dtype=pl.Int64)
        fit = rasch(number.to_numpy(), cells["i"].to_numpy(), cells["n"].to_numpy(), cells["c"].to_numpy())
        lo, hi = interval(fit.value_all, fit.se, fit.tried, (0.0, 1.0), settings.uncertainty.confidence)
        fitted = dict(zip(fitted, (fit.value_all, lo, hi, fit.misfit), strict=True))
    enough = pl.col("common") >= MIN_COMMON
    few = pl.format("{} problems in common with other models, {} needed", "common", MIN_COMMON)
    is_fitted = pl.col("value_adjusted").is_not_null()
    frame = models.with_columns(pl.Series(name, values, nan_to_null=True) for name, values in fitted.items())
    frame = frame.with_columns(
        *(pl.when(enough).then(name).alias(name) for name in fitted),
        reason=pl.when(~enough).then(few).when(~is_fitted).then(pl.lit("the board is too large to fit")),
    )
    rank = pl.col("value_adjusted").round_sig_figs(12).rank("min", descending=True).cast(pl.Int64)
    where = cells.select(_MODEL).unique()
    frame = rows.join(where, on=_MODEL, how="semi").join(frame.with_columns(adjusted_rank=rank), on="model")
    graded, ungraded, correct = (frame[name].to_numpy() for name in ("attempts", "ungraded", "correct"))
    bounds = ungraded_bounds(correct, graded, graded + ungraded, settings.uncertainty.confidence)
    return frame.with_columns(bound_lo=bounds[0], bound_hi=bounds[1])
