"""Series: the scores of one run over its training steps (or dates), from names such as `run@100`.

A point of a series is a model of its own everywhere else: it is counted, scored and compared on demand like any
model. Boards show the last point of each run only, so that no table holds all pairs of points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from scorelake.metrics.bootstrap import resample
from scorelake.metrics.distributions import Floats
from scorelake.metrics.families import Metric
from scorelake.metrics.series import best_step, change_point, crossovers, learned, simultaneous_band, smooth
from scorelake.metrics.significance import benjamini_hochberg
from scorelake.schemas import BEST_STEP, CROSSOVER, KEYS, LEARNED, SERIES, SERIES_CHANGE, Table
from scorelake.scoring.choose import Outcomes, choose_compared
from scorelake.scoring.survey import BucketTask, attempted_problems
from scorelake.scoring.values import metric_bounds, needed_columns, problem_values
from scorelake.settings import Settings

RESAMPLES = 2_000  # enough for the 95% quantile of the largest of 1,000 deviations: it moves by 1% between seeds
_SERIES = ("benchmark", "protocol", "run")
_PROBLEM = ("subject", "problem_id")


def points(models: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the rows whose model is a point of a series, with `run` and `step`; a date is its digits, 20260131."""
    pattern = settings.series_pattern
    if pattern is None:
        return models.clear().with_columns(run=pl.lit("", pl.String), step=pl.lit(0, pl.Int64))
    parts = pl.col("model").str.extract_groups(f"^(?:{pattern})$")
    is_date = pl.col("_step").str.contains(r"^\d{4}-\d\d-\d\d$")
    number = pl.when(is_date).then(pl.col("_step").str.replace_all("-", "", literal=True)).otherwise(pl.col("_step"))
    named = models.with_columns(run=parts.struct.field("model"), _step=parts.struct.field("step"))
    return named.with_columns(step=number.cast(pl.Int64, strict=False)).drop("_step").drop_nulls(["run", "step"])


def without_earlier_points(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Leave out points that are not the last of their run on their board."""
    models = points(rows.select("benchmark", "protocol", "model").unique(), settings)
    earlier = models.filter(pl.col("step") < pl.col("step").max().over(_SERIES))
    return rows.join(earlier, on=["benchmark", "protocol", "model"], how="anti", maintain_order="left")


def series_tables(
    buckets: Sequence[BucketTask], summary: pl.DataFrame, settings: Settings, outcomes: Outcomes
) -> dict[str, pl.DataFrame]:
    """Return the tables of all series with two steps or more; none where no model is a point."""
    steps = points(summary.select("benchmark", "protocol", "model").unique(), settings)
    steps = steps.filter(pl.len().over(_SERIES) > 1)
    if steps.is_empty():
        return {}
    chosen = _shown_metrics(choose_compared(settings, outcomes), steps, summary)
    columns = [*KEYS, "n", "c", *needed_columns(chosen, outcomes)]
    rows = pl.concat(
        bucket.read(dict.fromkeys(columns)).join(steps, on=["benchmark", "protocol", "model"]).filter(pl.col("n") > 0)
        for bucket in buckets
    ).with_columns(pl.col("c").fill_null(0))
    values = problem_values(rows, chosen, settings, outcomes)
    rows = rows.with_columns(pl.Series(metric.name, each) for metric, each in zip(chosen, values, strict=True))
    tables: dict[Table, list[pl.DataFrame]] = {
        table: [] for table in (SERIES, SERIES_CHANGE, BEST_STEP, CROSSOVER, LEARNED)
    }
    for mine in rows.sort(*_SERIES, "step", *_PROBLEM).partition_by(_SERIES, maintain_order=True):
        where = mine.select("benchmark", "protocol", model="run").row(0, named=True)
        for table, frame in _series(mine, chosen, settings, outcomes):
            tables[table].append(frame.with_columns(pl.lit(x, pl.String).alias(name) for name, x in where.items()))
    points_of = summary.join(steps, on=["benchmark", "protocol", "model"]).drop("model").rename({"run": "model"})
    keys = ["benchmark", "model", "protocol", "step", "metric"]
    own = points_of.select(*keys, "value", "lo", "hi", "problems", "attempts")
    out = {}
    for table, frames in tables.items():
        frame = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame(schema=table.schema)
        frame = frame.join(own, on=keys, how="left", maintain_order="left") if table is SERIES else frame
        out[table.name] = table.check(table.conform(frame))
    return out


def _own_columns(table: Table) -> dict[str, pl.DataType]:
    return {name: kind for name, kind in table.schema.items() if name not in ("benchmark", "model", "protocol")}


def _shown_metrics(compared: Sequence[Metric], steps: pl.DataFrame, summary: pl.DataFrame) -> list[Metric]:
    """Return the first metric, and the same with the largest k for which every point has a value (pass@k, max@k)."""
    valued = summary.join(steps, on=["benchmark", "protocol", "model"], how="semi").drop_nulls("value")
    points_with = dict(valued.group_by("metric").len().rows())
    most = max(points_with.values(), default=0)
    further = [m for m in compared if m.family.name in ("pass@k", "max@k") and points_with.get(m.name) == most]
    return list(dict.fromkeys([compared[0], *further[-1:]]))


def _series(
    rows: pl.DataFrame, chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes
) -> Iterator[tuple[Table, pl.DataFrame]]:
    """Yield the tables of one series from its rows of problem_counts, sorted by step."""
    every_step = rows["step"].unique(maintain_order=True)
    # a checkpoint whose evaluation is incomplete has its value, and does not take the problems from all others
    sizes = rows.group_by("step", maintain_order=True).len()
    needed = settings.compare.min_share * rows.select(_PROBLEM).n_unique()
    steps = sizes.filter(pl.col("len") >= needed)["step"]
    everywhere = rows.filter(pl.col("step").is_in(steps.implode())).filter(pl.len().over(_PROBLEM) == steps.len())
    shape = (steps.len(), everywhere.height // max(1, steps.len()))
    smoothed: dict[Metric, Floats] = {}
    enough = shape[0] > 1 and shape[1] >= settings.compare.min_problems
    weights = resample(_keys(everywhere), RESAMPLES, settings.compare.seed).weights if enough else None
    for number, metric in enumerate(chosen):
        scores = everywhere[metric.name].to_numpy().reshape(shape)
        table = pl.DataFrame({"step": every_step, "metric": [metric.name] * every_step.len()})
        if weights is not None and not np.isnan(scores).any():
            bounds, confidence = metric_bounds(metric, settings, outcomes), settings.uncertainty.confidence
            lo, hi = simultaneous_band(scores, weights, bounds, confidence)
            smoothed[metric] = _smoothed(rows, scores, steps, is_rate=number == 0 and outcomes.binary)
            rank = pl.Series(scores.mean(axis=1)).round_sig_figs(12).rank("min", descending=True)
            columns = {"step": steps, "band_lo": lo, "band_hi": hi, "smoothed": smoothed[metric]}
            band = pl.DataFrame(columns | {"rank_in_series": rank}, nan_to_null=True)
            table = table.join(band, on="step", how="left", maintain_order="left")
            yield BEST_STEP, _best(scores, weights, steps, metric, confidence)
            yield SERIES_CHANGE, _changes(scores, steps, metric, confidence)
        yield SERIES, table
    if len(smoothed) == 2:
        yield CROSSOVER, _crossovers(everywhere, shape, steps, chosen, smoothed, settings)
    if outcomes.binary:
        yield LEARNED, _learned(rows, every_step, settings)


def _keys(rows: pl.DataFrame) -> NDArray[np.uint64]:
    """Return the hash of each problem, in the order of rows of one step."""
    problems = rows.filter(pl.col("step") == rows["step"][0])
    keys = attempted_problems(problems, None)
    return problems.join(keys, on=[*_PROBLEM], how="left", maintain_order="left")["key"].to_numpy()


def _smoothed(rows: pl.DataFrame, scores: Floats, steps: pl.Series, is_rate: bool) -> Floats:
    """Return the trend of a rate of passed attempts; NaN for other metrics, whose noise is not known."""
    n, c = pl.col("n").cast(pl.Float64), pl.col("c")
    noise = rows.filter(pl.col("n") > 1).group_by("step").agg(v=(c * (n - c) / (n * n * (n - 1))).mean() / pl.len())
    variances = steps.to_frame().join(noise, on="step", how="left", maintain_order="left")["v"]
    if not is_rate or variances.null_count():
        return np.full(steps.len(), np.nan)
    days = steps.cast(pl.String).str.to_date("%Y%m%d", strict=False).dt.epoch("d")
    is_dates = rows["model"][0].endswith(f"-{steps[0] % 100:02d}") and not days.null_count()
    return smooth(scores.mean(axis=1), variances.to_numpy(), (days if is_dates else steps).to_numpy())


def _best(
    scores: Floats, weights: NDArray[np.uint8], steps: pl.Series, metric: Metric, confidence: float
) -> pl.DataFrame:
    best, corrected, contenders = best_step(scores, weights, confidence)
    value, reach = scores.mean(axis=1), steps.filter(pl.Series(contenders))
    change, p = change_point(value) if steps.len() > 3 else (0, None)
    row = [metric.name, steps[best], value[best], corrected, reach.len(), reach.min(), reach.max()]
    row += [steps[-1], value[-1], None if p is None else steps[change], p]
    return pl.DataFrame([row], _own_columns(BEST_STEP), orient="row")


def _changes(scores: Floats, steps: pl.Series, metric: Metric, confidence: float) -> pl.DataFrame:
    """Compare neighbouring steps, and the first with the last, paired by problem."""
    one, two = np.arange(steps.len() - 1), np.arange(1, steps.len())
    if steps.len() > 2:
        one, two = np.append(one, 0), np.append(two, steps.len() - 1)
    lift, lo, hi, p = paired_t(scores[two] - scores[one], confidence)
    tested = ~np.isnan(p)
    q = np.full(p.size, np.nan)
    q[tested] = benjamini_hochberg(p[tested])
    kinds = ["neighbours"] * (steps.len() - 1) + ["first to last"] * (steps.len() > 2)
    columns = {"kind": kinds, "step_from": steps.gather(one), "step_to": steps.gather(two), "lift": lift, "lo": lo}
    frame = pl.DataFrame(columns | {"hi": hi, "p": p, "q": q}, nan_to_null=True)
    return frame.with_columns(metric=pl.lit(metric.name), problems=pl.lit(scores.shape[1], pl.Int64))


def paired_t(differences: Floats, confidence: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the mean of each row of differences, its t interval and its two-sided p-value; NaN without variance."""
    units = differences.shape[1]
    lift, se = differences.mean(axis=1), differences.std(axis=1, ddof=1) / np.sqrt(units)
    se[se == 0] = np.nan
    reach = stdtrit(units - 1, (1 + confidence) / 2) * se
    return lift, lift - reach, lift + reach, 2 * stdtr(units - 1, -np.abs(lift) / se)


def _crossovers(
    rows: pl.DataFrame,
    shape: tuple[int, int],
    steps: pl.Series,
    chosen: Sequence[Metric],
    smoothed: dict[Metric, Floats],
    settings: Settings,
) -> pl.DataFrame:
    """List stretches in which pass@1 and pass@k move in opposite directions, each beyond chance."""
    low, high = (rows[metric.name].to_numpy().reshape(shape) for metric in chosen)
    curves = [
        np.where(np.isnan(smoothed[m]), each.mean(axis=1), smoothed[m])
        for m, each in zip(chosen, (low, high), strict=True)
    ]
    out = []
    for first, last, direction in crossovers(*curves):
        ends = [paired_t((each[last] - each[first])[None], settings.uncertainty.confidence) for each in (low, high)]
        (a, a_lo, a_hi, _), (b, b_lo, b_hi, _) = ([each.item() for each in end] for end in ends)
        if a_lo * a_hi > 0 and b_lo * b_hi > 0 and a * b < 0:
            where = (chosen[0].name, chosen[1].name, steps[first], steps[last], direction)
            out.append((*where, a, a_lo, a_hi, b, b_lo, b_hi))
    return pl.DataFrame(out, _own_columns(CROSSOVER), orient="row")


def _learned(rows: pl.DataFrame, steps: pl.Series, settings: Settings) -> pl.DataFrame:
    """List problems whose success rate changed beyond chance between neighbouring steps, and from first to last."""
    ends = [*pairwise(steps), *([(steps[0], steps[-1])] if steps.len() > 2 else [])]
    counts, out = rows.select(*_PROBLEM, "n", "c", "step").partition_by("step", as_dict=True, include_key=False), []
    for one, two in ends:
        both = counts[one,].join(counts[two,], on=_PROBLEM, suffix="_to", maintain_order="left")
        p, q = learned(*(both[name].to_numpy() for name in ("n", "c", "n_to", "c_to")))
        found = both.rename({"n": "n_from", "c": "c_from"}).with_columns(p=p, q=q, step_from=one, step_to=two)
        out.append(found.filter(pl.col("q") <= 1 - settings.uncertainty.confidence))
    rate = pl.col("c_to") / pl.col("n_to") > pl.col("c_from") / pl.col("n_from")
    direction = pl.when(rate).then(pl.lit("learned")).otherwise(pl.lit("forgotten"))
    return pl.concat(out).with_columns(direction=direction)
