"""Values of two runs paired by problem: the statistics of the table `change`.

d is the value of a problem now minus its value before, on the problems that have a value in both runs. For an
unchanged model d has mean 0 problem by problem, whatever the metric and n are, and whether attempts were added,
replaced or removed. Metrics that are biased by n are paired only where n is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from scorelake.counting.merge import bucket_count
from scorelake.errors import DataError
from scorelake.metrics.distributions import Floats, ratio
from scorelake.metrics.families import Metric, needs_equal_n
from scorelake.metrics.interval import interval
from scorelake.schemas import KEYS, MODEL
from scorelake.scoring.choose import Outcomes, choose, split_outcomes
from scorelake.scoring.survey import FOLDER, bucket_paths
from scorelake.scoring.values import metric_bounds, needed_columns, problem_values
from scorelake.settings import Settings
from scorelake.version import __version__

_SCORE = (*MODEL, "metric")
_BEFORE = "_before"
_NUMBERS = ("problems_both", "problems_added", "problems_dropped", "unequal")
_SUMS = (_NUMBERS[0], "d", "dd", "now", "then", *_NUMBERS[1:])
_TESTED = ("change", "lo", "hi", "p", "mean_now", "mean_before")
PAIRED = (
    dict.fromkeys(_SCORE, pl.String()) | dict.fromkeys(_NUMBERS, pl.Int64()) | dict.fromkeys(_TESTED, pl.Float64())
)


@dataclass(frozen=True)
class RunCounts:
    """The problem counts of a run, and what their values are computed with."""

    paths: Sequence[Path]
    buckets: int  # number of equal ranges of problem hashes that the files were cut into, empty ones included
    settings: Settings
    outcomes: Outcomes
    benchmarks: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        snapshot: Path,
        run: Mapping[str, Any],
        settings: Settings,
        histogram: pl.DataFrame,
        kinds: Mapping[str, Sequence[bool]],
    ) -> dict[tuple[bool, ...], RunCounts]:
        """Return the counts of the benchmarks of each kind of outcome."""
        paths = bucket_paths(snapshot / FOLDER)
        if not paths:
            raise DataError("has no problem counts", where=str(snapshot))
        buckets = bucket_count(run["rows_read"] - run["rejected"], settings.run.bucket_rows)
        if run["version"] != __version__:  # which may have cut problems into other buckets: all are paired at once
            buckets = 1
        parts = split_outcomes(kinds, histogram, settings)
        return {
            kind: cls(paths, buckets, outcomes.settings(settings), outcomes, names)
            for kind, (outcomes, names) in parts.items()
        }

    def read(self, part: int, parts: int, chosen: Sequence[Metric]) -> pl.DataFrame:
        """Read what the metrics need for one of so many equal ranges of problem hashes."""
        columns = ["n", "c", *needed_columns(chosen, self.outcomes)]
        paths = [p for p in self.paths if parts == 1 or int(p.stem[-5:]) * parts // self.buckets == part]
        rows = pl.read_parquet(paths or self.paths[0], columns=[*KEYS, *columns], glob=False)
        rows = rows.filter(pl.col("n") > 0) if paths else rows.clear()
        return rows.filter(pl.col("benchmark").is_in(self.benchmarks)) if self.outcomes.others else rows

    def values(self, rows: pl.DataFrame, chosen: Sequence[Metric]) -> list[Floats]:
        """Return the value of every row by metric; rows of problems that the run does not have are null."""
        filled = rows.with_columns(
            pl.col(name).fill_null([] if isinstance(kind, pl.List) else 0) for name, kind in rows.schema.items()
        )
        return problem_values(filled, chosen, self.settings, self.outcomes)


def pair_kinds(
    before: Mapping[tuple[bool, ...], RunCounts], now: Mapping[tuple[bool, ...], RunCounts], confidence: float
) -> pl.DataFrame:
    """Compare two runs by benchmarks of the same kind of outcome; a benchmark whose kind changed is not paired."""
    if len(before) == len(now) == 1:
        return pair_problems(next(iter(before.values())), next(iter(now.values())), confidence)
    paired = [pair_problems(before[kind], now[kind], confidence) for kind in now if kind in before]
    return pl.concat([pl.DataFrame(schema=PAIRED), *paired])


def pair_problems(before: RunCounts, now: RunCounts, confidence: float) -> pl.DataFrame:
    """Compare two runs problem by problem, for every model and every metric that has a value per problem."""
    own = [{metric.name: metric for metric in choose(run.settings, run.outcomes)} for run in (before, now)]
    names = [name for name, metric in own[1].items() if name in own[0] and not metric.family.pooled]
    metrics = [[each[name] for name in names] for each in own]
    # both are powers of two: the ranges of one are within those of the other
    parts = min(before.buckets, now.buckets)
    sums = [_sums(before, now, metrics, _join(before, now, metrics, part, parts)) for part in range(parts)]
    by_metric = pl.concat(sums).group_by(_SCORE, maintain_order=True).sum().partition_by("metric", as_dict=True)
    out = [pl.DataFrame(schema=PAIRED)]
    for (name,), rows in by_metric.items():
        bounds = metric_bounds(own[1][str(name)], now.settings, now.outcomes)
        both, d, dd, value, value_before, *_ = (rows[column].to_numpy() for column in _SUMS)
        columns = *paired_test(both, d, dd, bounds, confidence), ratio(value, both), ratio(value_before, both)
        tested = {column: pl.Series(each).fill_nan(None) for column, each in zip(_TESTED, columns, strict=True)}
        out.append(rows.select(*_SCORE, *_NUMBERS).with_columns(**tested).cast(PAIRED).select(*PAIRED))  # type: ignore[arg-type]
    return pl.concat(out)


def _join(
    before: RunCounts, now: RunCounts, metrics: Sequence[Sequence[Metric]], part: int, parts: int
) -> pl.DataFrame:
    """Join the problems of both runs; those with equal counts become one row where no metric needs more."""
    then, here = (run.read(part, parts, own) for run, own in zip((before, now), metrics, strict=True))
    then = then.rename({name: name + _BEFORE for name in then.columns if name not in KEYS})
    joined = here.join(then, on=KEYS, how="full", coalesce=True, nulls_equal=True).drop("subject", "problem_id")
    if joined.width > len(MODEL) + 4:
        return joined.with_columns(problems=1)
    return joined.group_by(joined.columns).len("problems").sort(joined.columns)


def _sums(before: RunCounts, now: RunCounts, metrics: Sequence[Sequence[Metric]], rows: pl.DataFrame) -> pl.DataFrame:
    """Add up d, its squares and the values of problems of both runs, and count problems, by model and metric."""
    models = rows.select(MODEL).unique(maintain_order=True)
    code = rows.join(models.with_row_index(), on=MODEL, how="left", nulls_equal=True, maintain_order="left")["index"]
    weight = rows["problems"].to_numpy()

    def total(numbers: Floats | NDArray[np.bool_]) -> Floats:
        return np.bincount(code.to_numpy(), numbers * weight, models.height).astype(np.float64)

    earlier = [name for name in rows.columns if name.endswith(_BEFORE)]
    values_then = before.values(rows.select(pl.col(earlier).name.replace(f"{_BEFORE}$", "")), metrics[0])
    values_now = now.values(rows.drop(*MODEL, "problems", *earlier), metrics[1])
    same_n = (rows["n"] == rows[f"n{_BEFORE}"]).fill_null(value=False).to_numpy()
    empty = dict.fromkeys(_SCORE, pl.String()) | dict.fromkeys(_SUMS, pl.Float64())
    out = [pl.DataFrame(schema=empty)]
    for metric, value, value_before in zip(metrics[1], values_now, values_then, strict=True):
        d, has, had = value - value_before, ~np.isnan(value), ~np.isnan(value_before)
        unequal = has & had & ~same_n & needs_equal_n(metric.name, np.inf)
        pairs = has & had & ~unequal
        paired = (np.where(pairs, each, 0.0) for each in (d, d**2, value, value_before))
        sums = pairs, *paired, has & ~had, had & ~has, unequal
        columns = {name: total(numbers) for name, numbers in zip(_SUMS, sums, strict=True)}
        out.append(models.with_columns(metric=pl.lit(metric.name), **{k: pl.Series(v) for k, v in columns.items()}))
    return pl.concat(out)


def paired_test(
    problems: Floats, d: Floats, dd: Floats, bounds: tuple[float, float], confidence: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the mean of paired differences, its interval and two-sided p-value, from their number and sums.

    Student's t; below two problems NaN. Equal differences have no spread to judge by: then the ends are those of a
    proportion, and p is that of all signs being equal.
    """
    mean = ratio(d, problems)
    variance = np.maximum(ratio(dd - problems * mean**2, np.maximum(problems - 1, 0)), 0)
    se = np.sqrt(variance / np.maximum(problems, 1))
    freedom = np.where(problems > 1, problems - 1, np.nan)
    half_width = stdtrit(freedom, (1 + confidence) / 2) * se
    lo, hi, p = mean - half_width, mean + half_width, 2 * stdtr(freedom, -np.abs(ratio(mean, se)))
    is_equal = variance <= 1e-12 * mean**2  # what rounding leaves of a variance
    reach = bounds[1] - bounds[0]
    ends = np.full((2, *mean.shape), np.nan)
    if np.isfinite(reach):
        ends = np.stack(interval(mean, np.zeros_like(mean), problems, (-reach, reach), confidence))
    is_zero = mean == 0
    lo, hi = (np.where(is_equal & ~is_zero, *pair) for pair in zip(ends, (lo, hi), strict=True))
    p = np.where(is_equal, np.where(is_zero, 1.0, 2.0 ** (1 - problems)), p)
    lo, hi, p = (np.where(problems > 1, each, np.nan) for each in (lo, hi, p))
    return mean, lo, hi, p
