"""What attempts cost: means and totals, the cost of k attempts, scores within a budget, the frontier, and pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.metrics import (
    cost_at_k,
    cost_of_pass,
    dominated,
    finite,
    front_by_value,
    interval,
    parse,
    solved_per_cost,
)
from scorelake.metrics.bootstrap import Units, resample
from scorelake.metrics.costs import BINS, FIRST_EDGE, budget_curve, budget_edges, mean_cost
from scorelake.metrics.distributions import Floats, Ints, blocks, ratio
from scorelake.metrics.paired import ResamplePlan, compare_scores
from scorelake.schemas import (
    BUDGET_CURVE,
    COST_CURVE,
    FRONTIER,
    GROUP,
    KEYS,
    MEASURE_PAIR,
    MEASURE_SUMMARY,
    MEASURE_TABLES,
    MODEL,
    MODEL_SUMMARY,
    Table,
)
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.series import without_earlier_points
from scorelake.scoring.summaries import table_keys
from scorelake.scoring.survey import BOARD, BucketTask, attempted_problems, slice_value, stack
from scorelake.scoring.values import needed_columns, problem_values
from scorelake.settings import MEASURE_COLUMNS, Settings
from scorelake.text import plural

_RESAMPLES = 2000
_MAX_ALL_PAIRS = 300  # boards with more models compare each with those on the frontier only
_KEY, _UNIT, _SCORE = "_key", "_unit", "_score"  # the hash of a problem, the unit that is drawn with it, its score
Row = dict[str, Any]


def measure_tables(buckets: Sequence[BucketTask], settings: Settings, outcomes: Outcomes) -> dict[str, pl.DataFrame]:
    """Return the tables of all measures; none without measures."""
    if not settings.measures:
        return {}
    metric = parse("pass@1" if outcomes.binary else "avg@N")
    columns = [f"{name}_{end}" for name in settings.measures for end in MEASURE_COLUMNS]
    wanted = dict.fromkeys([*KEYS, "n", "c", *needed_columns([metric], outcomes), *settings.by, *columns])
    rows = pl.concat(bucket.read(wanted) for bucket in buckets).filter(pl.col("n") > 0)
    rows = rows.with_columns(pl.Series(_SCORE, problem_values(rows, [metric], settings, outcomes)[0]))
    keys = attempted_problems(rows, None).drop("own").rename({"key": _KEY})
    rows = rows.join(keys, on=[*BOARD, "subject", "problem_id"], how="left").sort(KEYS)
    found: dict[Table, list[Row]] = {table: [] for table in MEASURE_TABLES}
    for board in rows.partition_by(BOARD, maintain_order=True):
        units = Units.of(board[_KEY].to_numpy())
        weights = resample(units.key, min(_RESAMPLES, settings.compare.resamples), settings.compare.seed).weights
        for name in settings.measures:
            paid = board.with_columns(pl.Series(_UNIT, units.index)).filter(pl.col(f"{name}_count") > 0)
            for table, row in _tables(paid, name, weights, settings, outcomes.binary) if paid.height else ():
                found[table].append(row | {"measure": name})
    return {table.name: stack(table, mine) for table, mine in found.items()}


def _tables(
    paid: pl.DataFrame, name: str, weights: NDArray[np.uint8], settings: Settings, is_binary: bool
) -> Iterator[tuple[Table, Row]]:
    """Yield the rows of all tables for one board, from its problems with attempts that have the measure."""
    first = FIRST_EDGE[settings.measures[name].kind]
    for keys, column in table_keys(settings):
        if keys == GROUP and paid["subject"].n_unique() == 1:  # the subject is the benchmark
            continue
        named = paid.with_columns(*slice_value(column), slice=pl.lit(column))
        for key, mine in named.partition_by(keys, as_dict=True, maintain_order=True).items():
            group = dict(zip(keys, key, strict=True))
            yield MEASURE_SUMMARY, group | _summary(mine, name, weights, settings)
            if keys == MODEL and is_binary:
                yield from ((COST_CURVE, group | row) for row in _cost_curve(mine, name, weights, settings))
                yield from ((BUDGET_CURVE, group | row) for row in _budget_curve(mine, name, first, settings))
    yield from _compare(without_earlier_points(paid, settings), name, weights, settings)


def missing_measures(tables: dict[str, pl.DataFrame]) -> list[str]:
    """Say how many graded attempts have no value of a measure, from the tables of a run."""
    if MEASURE_SUMMARY.name not in tables:
        return []
    models = pl.col("subject").is_null() & pl.col("slice").is_null()
    paid = tables[MEASURE_SUMMARY.name].filter(models).select(*MODEL, "measure", "attempts")
    graded = tables[MODEL_SUMMARY.name].select(*MODEL, graded="attempts").unique()
    graded = graded.join(paid.select("benchmark", "measure").unique(), on="benchmark")
    both = graded.join(paid, on=[*MODEL, "measure"], how="left").with_columns(pl.col("attempts").fill_null(0))
    sums = both.group_by("measure").agg(pl.col("attempts", "graded").sum()).sort("measure")
    return [
        f"{name}: {many - paid:,} of {plural(many, 'graded attempt')} without a value"
        for name, paid, many in sums.iter_rows()
        if paid < many
    ]


def _column(rows: pl.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy().astype(np.float64)


def _mean(
    costs: Floats, rows: pl.DataFrame, weights: NDArray[np.uint8], settings: Settings
) -> tuple[float, float, float]:
    """Return the mean over problems of what they cost, with its ends."""
    units, owner = np.unique(rows[_UNIT].to_numpy(), return_inverse=True)
    by_unit = np.bincount(owner, costs), np.bincount(owner)
    return mean_cost(*by_unit, weights[:, units], settings.uncertainty.confidence)


def _named(column: str, numbers: tuple[float, float, float]) -> Row:
    """Name a number and its ends as columns."""
    prefix = "" if column == "value" else f"{column}_"
    return dict(zip((column, f"{prefix}lo", f"{prefix}hi"), numbers, strict=True))


def _summary(rows: pl.DataFrame, name: str, weights: NDArray[np.uint8], settings: Settings) -> Row:
    total, count, passes = (_column(rows, column) for column in (f"{name}_sum", f"{name}_count", "c"))
    confidence, has_verdicts = settings.uncertainty.confidence, not rows["c"].null_count()
    units, owner = np.unique(rows[_UNIT].to_numpy(), return_inverse=True)
    passed = np.bincount(owner, passes if has_verdicts else np.zeros(rows.height))
    per_pass = cost_of_pass(np.bincount(owner, total), passed, weights[:, units], confidence)
    return {
        **_named("value", _mean(total / count, rows, weights, settings)),
        **_named("per_pass", per_pass),
        "total": math.fsum(total),
        "ungraded_total": math.fsum(rows[f"{name}_ungraded_sum"]),
        "problems": rows.height,
        "never_solved": int((passes == 0).sum()) if has_verdicts else None,
        "attempts": int(count.sum()),
        "missing": int(rows["n"].sum() - count.sum()),
    }


def _cost_curve(rows: pl.DataFrame, name: str, weights: NDArray[np.uint8], settings: Settings) -> Iterator[Row]:
    """Yield pass@k and cost@k with their ends for k = 1, 2, 4, ..., as long as enough problems have k attempts."""
    n, c = rows["n"].to_numpy(), rows["c"].to_numpy()
    # attempts without the measure cost what the others of their verdict cost
    passed_count, count = _column(rows, f"{name}_passed_count"), _column(rows, f"{name}_count")
    sums = _column(rows, f"{name}_passed_sum"), _column(rows, f"{name}_sum") - _column(rows, f"{name}_passed_sum")
    passed = np.where(c > 0, ratio(sums[0] * c, passed_count), 0.0)
    failed = np.where(n > c, ratio(sums[1] * (n - c), count - passed_count), 0.0)
    dearest = float(_column(rows, f"{name}_max").max())
    needed = settings.uncertainty.min_coverage * n.size
    for k in takewhile(lambda k: (n >= k).sum() >= needed, (1 << i for i in range(63))):
        solved, cost = finite(f"pass@{k}", n, c), cost_at_k(passed, failed, n, c, k)
        usable = ~np.isnan(solved + cost)
        if not usable.any():
            return
        solved, cost, confidence = solved[usable], cost[usable], settings.uncertainty.confidence
        value, size = solved.mean(keepdims=True), np.array([solved.size])
        se = solved.std(ddof=1, keepdims=True) if solved.size > 1 else np.array([np.nan])
        lo, hi = interval(value, se / np.sqrt(size), size, (0.0, 1.0), confidence)
        numbers = _named("value", (value[0], lo[0], hi[0]))
        numbers |= _named("cost", _mean(cost, rows.filter(usable), weights, settings))
        per_cost = solved_per_cost(solved, cost, k * dearest, confidence)
        yield {"k": k, **numbers, **_named("solved_per_cost", per_cost), "problems": solved.size}


def _budget_curve(rows: pl.DataFrame, name: str, first: int, settings: Settings) -> Iterator[Row]:
    lists = rows.select(i=pl.int_range(pl.len()), bin=f"{name}_passed_bins").explode("bin").drop_nulls()
    bins = np.zeros((rows.height, BINS))
    np.add.at(bins, (lists["i"].to_numpy(), lists["bin"].to_numpy()), 1)
    # shares of the attempts that have the measure
    value, se = budget_curve(bins, rows[f"{name}_count"].to_numpy())
    ends = interval(value, se, np.full(value.size, rows.height), (0.0, 1.0), settings.uncertainty.confidence)
    points = zip(budget_edges(first).tolist(), *(each[:-1].tolist() for each in (value, *ends)), strict=True)
    yield from (dict(zip(("budget", "value", "lo", "hi"), point, strict=True)) for point in points)


def _compare(
    rows: pl.DataFrame, name: str, weights: NDArray[np.uint8], settings: Settings
) -> Iterator[tuple[Table, Row]]:
    """Yield score, cost and place on the frontier of each model of a board, and what every two models differ by."""
    board, models = rows.select(BOARD).row(0, named=True), rows["model"].unique(maintain_order=True)
    keys, first, problem = np.unique(rows[_KEY].to_numpy(), return_index=True, return_inverse=True)
    model = rows["model"].replace_strict(models, np.arange(models.len()), return_dtype=pl.Int64).to_numpy()
    score, cost = np.full((2, models.len(), keys.size), np.nan)
    score[model, problem] = rows[_SCORE].to_numpy()
    cost[model, problem] = _column(rows, f"{name}_sum") / _column(rows, f"{name}_count")
    means = [np.nanmean(values, axis=1) for values in (score, cost)]
    is_front = front_by_value(*means)
    tried = (~np.isnan(score)).astype(np.float64)
    a, b = np.triu_indices(models.len(), 1)
    is_wanted = (is_front[a] | is_front[b]) if models.len() > _MAX_ALL_PAIRS else np.ones(a.size, dtype=bool)
    is_wanted &= (tried @ tried.T)[a, b] >= settings.compare.min_problems
    a, b = pairs = a[is_wanted], b[is_wanted]
    drawn = weights[:, rows[_UNIT].to_numpy()[first]].astype(np.float64).T
    plan = ResamplePlan(len(weights), settings.compare.seed, settings.uncertainty.confidence)
    better, cheaper = np.full((2, models.len(), models.len()), np.nan)
    if a.size:
        bounds = [(min(0.0, float(np.nanmin(x))), float(np.nanmax(x)) or 1.0) for x in (score, cost)]
        scores, costs = (
            compare_scores(x, Units.of(keys), plan, pairs, np.arange(0), bounds=ends)[0]
            for x, ends in zip((score, cost), bounds, strict=True)
        )
        better[a, b], better[b, a], cheaper[a, b], cheaper[b, a] = scores.p_a, scores.p_b, costs.p_b, costs.p_a
        differs = np.flatnonzero(costs.lo * costs.hi > 0)
        per_cost = np.full((3, a.size), np.nan)
        per_cost[:, differs] = _lift_per_cost(score, cost, a[differs], b[differs], drawn, plan.confidence)
        names = {"model_a": models.gather(a), "model_b": models.gather(b), "problems": costs.problems}
        lifts = {"lift": costs.lift, "lift_lo": costs.lo, "lift_hi": costs.hi}
        ratios = dict(zip(("lift_per", "lift_per_lo", "lift_per_hi"), per_cost, strict=True))
        yield from ((MEASURE_PAIR, board | row) for row in pl.DataFrame(names | lifts | ratios).iter_rows(named=True))
    spread = [ratio(np.nan_to_num(values) @ drawn, tried @ drawn) for values in (score, cost)]
    on_front = {"on_front": ~dominated(better, cheaper, plan.confidence), "front_by_value": is_front}
    columns = {"model": models, "score": means[0], "cost": means[1], **on_front}
    frame = pl.DataFrame(columns | {"p_front": front_by_value(*spread).mean(axis=1)})
    yield from ((FRONTIER, board | row) for row in frame.iter_rows(named=True))


def _lift_per_cost(score: Floats, cost: Floats, a: Ints, b: Ints, drawn: Floats, confidence: float) -> Floats:
    """Return the lift of B over A in the score per unit that B costs more, and the ends of its bootstrap interval."""
    out, tails = np.empty((3, a.size)), ((1 - confidence) / 2, (1 + confidence) / 2)
    for rows in blocks(a.size, drawn.shape[1]) if a.size else ():
        gain, price = (np.nan_to_num(x[b[rows]] - x[a[rows]]) for x in (score, cost))
        with np.errstate(divide="ignore", invalid="ignore"):
            lo, hi = np.nanquantile((gain @ drawn) / (price @ drawn), tails, axis=1)
        value = gain.sum(axis=1) / price.sum(axis=1)
        out[:, rows] = value, np.minimum(lo, value), np.maximum(hi, value)
    return out
