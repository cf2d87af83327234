"""Stage 4. Histogram x metrics -> summary rows.

Every metric is evaluated once per distinct (n, c) of the whole lake and gathered into groups; rewards are
evaluated per problem. Sums run over sorted rows in numpy, so equal counts give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics import Estimate, Metric
from scorelake.metrics.counts import distinct
from scorelake.metrics.draws import Floats, Ints, ratio
from scorelake.metrics.levels import any_above
from scorelake.settings import Settings

TAUS = (0.25, 0.5, 0.75)
"""Thresholds of g-pass by default; 0 is pass@k and 1 is pass^k, which are there already."""


@dataclass(frozen=True)
class Outcomes:
    """What the lake's columns allow: pass/fail, rewards, and the largest number of attempts of a problem."""

    binary: bool
    rewards: bool
    top_n: int


def choose(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The metrics asked for, or every family the lake allows at k = 1, 2, 4, ... up to the largest n."""
    names = settings.metrics.names
    weights = settings.metrics.spectrum
    own = [metrics.spectrum(weights)] if weights else []
    chosen = [_named(name, own) for name in names] if names else [*_defaults(outcomes.top_n), *own]
    allowed = [metric for metric in dict.fromkeys(chosen) if _allowed(metric, settings, outcomes)]
    refused = [metric.name for metric in chosen if metric not in allowed]
    if names and refused:
        raise UsageError(
            f"{', '.join(refused)}: this lake has no {'pass/fail' if not outcomes.binary else 'rubric'} outcome",
            hint="[policy] pass_threshold makes score pass/fail; [rubric] levels makes it a rubric",
        )
    return allowed


def _named(name: str, own: list[Metric]) -> Metric:
    if own and name.lower().replace("spectrum@k", own[0].name) == own[0].name:
        return own[0]
    return metrics.parse(name)


def _defaults(top_n: int) -> list[Metric]:
    ks = [2**i for i in range(max(1, top_n).bit_length())]
    out: list[Metric] = []
    for family in metrics.families():
        if family.parameter == "weights":
            continue
        if not family.takes_k:
            out.append(metrics.parse(family.name))
        elif family.parameter == "tau":
            out += [metrics.parse(family.name.replace("k_tau", f"{k}_{tau}")) for tau in TAUS for k in ks]
        else:
            out += [metrics.parse(family.name.removesuffix("k") + str(k)) for k in ks]
    return out


def _allowed(metric: Metric, settings: Settings, outcomes: Outcomes) -> bool:
    """Credit metrics need pass/fail; metrics of rewards take the score where there is one, bayes@N a rubric."""
    if metric.family.finite is None or not outcomes.rewards:
        return outcomes.binary
    return metric.family.name != "bayes@N" or bool(settings.rubric.levels)


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, the histogram and totals by them, and the problems."""

    keys: Sequence[str]
    histogram: pl.DataFrame
    totals: pl.DataFrame
    problems: pl.LazyFrame


def summarize(
    chosen: Sequence[Metric], groupings: Sequence[Grouping], settings: Settings, outcomes: Outcomes
) -> list[pl.DataFrame]:
    """One summary table per grouping: groups x metrics."""
    from_rewards = [m for m in chosen if outcomes.rewards and m.family.finite is not None]
    from_counts = [m for m in chosen if m not in from_rewards]
    rows: list[dict[Metric, pl.DataFrame]] = [{} for _ in groupings]
    if from_counts:
        _count_rows(from_counts, groupings, settings, rows)
    if from_rewards:
        for grouping, mine in zip(groupings, rows, strict=True):
            mine.update(_reward_rows(from_rewards, grouping, settings))
    return [
        _table(grouping, [mine[metric] for metric in chosen]) for grouping, mine in zip(groupings, rows, strict=True)
    ]


def _count_rows(
    chosen: list[Metric],
    groupings: Sequence[Grouping],
    settings: Settings,
    rows: list[dict[Metric, pl.DataFrame]],
) -> None:
    """Evaluate the distinct (n, c) of all groupings once, and gather them into each."""
    n, c = (np.concatenate([g.histogram[name].to_numpy() for g in groupings]) for name in ("n", "c"))
    pairs = distinct(n, c)
    ends = np.cumsum([g.histogram.height for g in groupings])
    places = np.split(pairs.place, ends[:-1])
    shapes = [(_starts(g.histogram, g.keys), g.histogram["problems"].to_numpy()) for g in groupings]
    estimates = metrics.evaluate(chosen, pairs.n, pairs.c, settings.uncertainty.prior)
    for mine, place, (starts, problems) in zip(rows, places, shapes, strict=True):
        with ThreadPoolExecutor() as threads:  # sums over long arrays, which numpy runs side by side
            tables = threads.map(
                lambda metric, estimate: _rows(metric, estimate, place, problems, starts, settings),  # noqa: B023
                chosen,
                estimates,
            )
            mine.update(zip(chosen, tables, strict=True))


def _starts(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Where each group of the sorted rows begins."""
    group = rows.select(pl.struct(keys).rle_id()).to_series().to_numpy()
    return np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)


def _rows(
    metric: Metric, estimate: Estimate, place: Ints, problems: Ints, starts: Ints, settings: Settings
) -> pl.DataFrame:
    """The metric's columns, one row per group."""
    uncertainty = settings.uncertainty
    summaries = metrics.aggregate(estimate, place, problems, starts, uncertainty.confidence, uncertainty.min_coverage)
    columns = {name: pl.Series(column) for name, column in vars(summaries).items()}
    return pl.DataFrame(columns).select(
        pl.lit(metric.name).alias("metric"),
        pl.lit(metric.family.name).alias("family"),
        pl.lit(metric.k, pl.Int64).alias("k"),
        pl.lit(metric.param, pl.Float64).alias("param"),
        pl.all().fill_nan(None),
    )


def _table(grouping: Grouping, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Groups x metrics: groups in the order of their keys, metrics in the order they were chosen."""
    keys = grouping.keys
    rows = [pl.concat([grouping.totals, part], how="horizontal").with_row_index("group") for part in parts]
    return (
        pl.concat([part.with_columns(order=pl.lit(i)) for i, part in enumerate(rows)])
        .sort("group", "order")
        .select(*keys, pl.exclude(*keys, "group", "order", "attempts", "ungraded"), "attempts", "ungraded")
    )


# --- rewards --------------------------------------------------------------------------------------------------


def _reward_rows(chosen: list[Metric], grouping: Grouping, settings: Settings) -> dict[Metric, pl.DataFrame]:
    order = tuple(dict.fromkeys((*grouping.keys, "subject", "problem_id")))
    table = grouping.problems.select(*order, "rewards", "reward_counts").sort(order).collect()
    starts = _starts(table, grouping.keys)
    place, ones = np.arange(table.height), np.ones(table.height, dtype=np.int64)
    estimate = _Rubric(table, settings) if settings.rubric.levels else _Rewards(table)
    return {metric: _rows(metric, estimate.of(metric), place, ones, starts, settings) for metric in chosen}


class _Flat:
    """The lists of all problems end to end: rewards rising within a problem, and whose they are."""

    def __init__(self, table: pl.DataFrame) -> None:
        lengths = table["reward_counts"].list.len().fill_null(0).to_numpy().astype(np.int64)
        self.owner: Ints = np.repeat(np.arange(table.height), lengths)
        full = table.filter(pl.col("reward_counts").list.len() > 0)
        self.reward: Floats = full["rewards"].explode().to_numpy()
        self.count: Ints = full["reward_counts"].explode().to_numpy()
        self.height = table.height

    def per_problem(self, entries: Floats | Ints) -> Floats:
        return np.bincount(self.owner, entries, self.height).astype(np.float64)


class _Rubric:
    """Rewards from a finite set of levels: finite values and posteriors."""

    def __init__(self, table: pl.DataFrame, settings: Settings) -> None:
        worth = sorted(settings.rubric.worth.items(), key=lambda item: (item[1], item[0]))
        self.worth = np.array([weight for _, weight in worth])
        flat = _Flat(table)
        levels = np.array([level for level, _ in worth])
        order = np.argsort(levels)
        column = order[np.searchsorted(levels[order], flat.reward)]
        self.counts = np.zeros((flat.height, levels.size), dtype=np.int64)
        self.counts[flat.owner, column] = flat.count

    def of(self, metric: Metric) -> Estimate:
        return metrics.of_levels(metric, self.worth, self.counts, np.ones((1, self.worth.size)))


class _Rewards:
    """Any real rewards: finite values only, since a posterior needs a finite set of levels."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.flat = flat = _Flat(table)
        self.n = flat.per_problem(flat.count).astype(np.int64)
        first = np.searchsorted(flat.owner, np.arange(flat.height))
        running = np.concatenate([[0], np.cumsum(flat.count)])
        self.below = running[:-1] - running[first][flat.owner]  # attempts of the problem with a lower reward
        self.gap = np.diff(flat.reward, prepend=0.0)
        begins = np.unique(first[self.n > 0])
        self.gap[begins] = flat.reward[begins]  # the lowest reward itself, which every draw reaches

    def of(self, metric: Metric) -> Estimate:
        flat, k = self.flat, metric.draws
        if metric.k is None:
            value = ratio(flat.per_problem(flat.reward * flat.count), self.n)
        else:
            reached = any_above(self.below, self.n[flat.owner], k)
            value = np.where(self.n >= k, flat.per_problem(self.gap * reached), np.nan)
        unknown = np.full(value.size, np.nan)
        return Estimate(value[None], unknown[None], unknown[None, None], bounds=(-np.inf, np.inf))
