"""What attempts cost: means and totals, the cost of k attempts, scores within a budget, and the frontier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import polars as pl

from scorelake.metrics import cost_at_k, cost_of_pass, dominated, finite, front_by_value, interval, solved_per_cost
from scorelake.metrics.bootstrap import Resamples, Units, resample
from scorelake.metrics.costs import BINS, FIRST_EDGE, budget_curve, budget_edges
from scorelake.metrics.distributions import Floats, ratio
from scorelake.metrics.paired import ResamplePlan, compare_scores
from scorelake.schemas import BUDGET_CURVE, COST_CURVE, FRONTIER, KEYS, MEASURE_SUMMARY
from scorelake.scoring.survey import BOARD, BucketTask, attempted_problems
from scorelake.settings import MEASURE_COLUMNS, Settings

_RESAMPLES = 2000


def measure_tables(buckets: Sequence[BucketTask], settings: Settings) -> dict[str, pl.DataFrame]:
    """Return the tables of all measures; none without measures."""
    if not settings.measures:
        return {}
    columns = [f"{name}_{end}" for name in settings.measures for end in MEASURE_COLUMNS]
    rows = pl.concat(bucket.read([*KEYS, "n", "c", *columns]) for bucket in buckets).filter(pl.col("n") > 0)
    keys = attempted_problems(rows, None)
    rows = rows.join(keys, on=[*BOARD, "subject", "problem_id"], how="left").sort(KEYS)
    summaries, costs, budgets, frontiers = tables = [list[tuple[Any, ...]]() for _ in range(4)]
    for (benchmark, protocol), board in rows.partition_by(BOARD, as_dict=True, maintain_order=True).items():
        units = Units.of(board["key"].unique().sort().to_numpy())
        drawn = resample(units.key, min(_RESAMPLES, settings.compare.resamples), settings.compare.seed)
        for name, measure in settings.measures.items():
            paid = board.filter(pl.col(f"{name}_count") > 0)
            models = paid["model"].unique(maintain_order=True).to_list()
            for model in models:
                mine, key = paid.filter(pl.col("model") == model), (benchmark, model, protocol, name)
                summaries.append((*key, *_summary(mine, name, units, drawn, settings)))
                costs += [(*key, *row) for row in _cost_curve(mine, name, settings)]
                first = FIRST_EDGE[measure.kind]
                budgets += [(*key, *row) for row in _budget_curve(mine, name, first, settings)]
            frontier = _frontier(paid, name, models, drawn, settings)
            frontiers += [(benchmark, row[0], protocol, name, *row[1:]) for row in frontier]
    return {
        table.name: table.check(pl.DataFrame(mine, schema=table.schema, orient="row"))
        for table, mine in zip((MEASURE_SUMMARY, COST_CURVE, BUDGET_CURVE, FRONTIER), tables, strict=True)
    }


def _column(rows: pl.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy().astype(np.float64)


def _mean(values: Floats, largest: float, settings: Settings) -> tuple[float, float, float]:
    """Return the mean over problems with its ends, where values lie between 0 and the largest."""
    units = np.array([values.size])
    if not values.size:
        return np.nan, np.nan, np.nan
    se = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    ends = interval(values.mean(keepdims=True), np.array([se]), units, (0, largest), settings.uncertainty.confidence)
    return float(values.mean()), float(ends[0][0]), float(ends[1][0])


def _summary(
    rows: pl.DataFrame, name: str, units: Units, drawn: Resamples, settings: Settings
) -> tuple[float | int | None, ...]:
    total, count, passes = (_column(rows, column) for column in (f"{name}_sum", f"{name}_count", "c"))
    mean, lo, hi = _mean(total / count, np.inf, settings)
    owner = np.searchsorted(units.key, rows["key"].to_numpy()) if units.key.size else units.index
    spent, passed = (np.bincount(owner, x, units.key.size) for x in (total, passes))
    per_pass = cost_of_pass(spent, passed, drawn.weights, settings.uncertainty.confidence)
    ends = (None if np.isnan(each) or np.isinf(each) else each for each in per_pass)
    lo, hi = (max(lo, 0.0), hi) if rows.height > 1 else (np.nan, np.nan)
    numbers = (None if np.isnan(each) else each for each in (mean, lo, hi))
    sums = (float(total.sum()), float(rows[f"{name}_ungraded_sum"].sum()))
    missing = int(rows["n"].sum() - count.sum())
    return (*numbers, *ends, *sums, rows.height, int((passes == 0).sum()), int(count.sum()), missing)


def _cost_curve(rows: pl.DataFrame, name: str, settings: Settings) -> Iterator[tuple[float | int | None, ...]]:
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
        points = _mean(solved[usable], 1.0, settings), _mean(cost[usable], k * dearest, settings)
        per_cost = solved_per_cost(solved[usable], cost[usable], k * dearest, settings.uncertainty.confidence)
        numbers = (*points[0], *points[1], *per_cost)
        yield (k, *(each if np.isfinite(each) else None for each in numbers), int(usable.sum()))


def _budget_curve(rows: pl.DataFrame, name: str, first: int, settings: Settings) -> Iterator[tuple[float, ...]]:
    lists = rows.select(i=pl.int_range(pl.len()), bin=f"{name}_passed_bins").explode("bin").drop_nulls()
    bins = np.zeros((rows.height, BINS))
    np.add.at(bins, (lists["i"].to_numpy(), lists["bin"].to_numpy()), 1)
    # shares of the attempts that have the measure
    value, se = budget_curve(bins, rows[f"{name}_count"].to_numpy())
    units = np.full(value.size, rows.height)
    lo, hi = interval(value, se, units, (0.0, 1.0), settings.uncertainty.confidence)
    yield from zip(*(each[:-1].tolist() for each in (np.append(budget_edges(first), 0), value, lo, hi)), strict=True)


def _frontier(
    rows: pl.DataFrame, name: str, models: Sequence[str], drawn: Resamples, settings: Settings
) -> list[tuple[Any, ...]]:
    """Return score, cost and place on the frontier of each model."""
    keys, problem = np.unique(rows["key"].to_numpy(), return_inverse=True)
    model = rows["model"].replace_strict(pl.Series(models), np.arange(len(models)), return_dtype=pl.Int64).to_numpy()
    score, cost = np.full((2, len(models), keys.size), np.nan)
    score[model, problem] = rows["c"].to_numpy() / rows["n"].to_numpy()
    cost[model, problem] = _column(rows, f"{name}_sum") / _column(rows, f"{name}_count")
    tried = ~np.isnan(score)
    shared = tried.astype(np.float64) @ tried.T
    a, b = np.triu_indices(len(models), 1)
    compared = shared[a, b] >= settings.compare.min_problems
    pairs = a[compared], b[compared]
    plan = ResamplePlan(drawn.size, settings.compare.seed, settings.uncertainty.confidence)
    better, cheaper = np.full((2, len(models), len(models)), np.nan)
    if compared.any():
        for values, table, (first, second) in ((score, better, "ab"), (cost, cheaper, "ba")):
            bounds = (0.0, float(np.nanmax(values)) or 1.0)
            lifts, _ = compare_scores(values, Units.of(keys), plan, pairs, np.arange(0), bounds=bounds)
            ahead = {"a": lifts.p_a, "b": lifts.p_b}
            table[pairs], table[pairs[::-1]] = ahead[first], ahead[second]
    means = [np.nanmean(values, axis=1) for values in (score, cost)]
    weights = resample(keys, drawn.size, settings.compare.seed).weights.astype(np.float64)
    drawn_problems = tried.astype(np.float64) @ weights.T
    spread = [ratio(np.nan_to_num(values) @ weights.T, drawn_problems) for values in (score, cost)]
    on_front = ~dominated(better, cheaper, settings.uncertainty.confidence)
    share = front_by_value(*spread).mean(axis=1)
    columns = (means[0], means[1], on_front, front_by_value(*means), share)
    return list(zip(models, *(column.tolist() for column in columns), strict=True))
