"""Curves: pass@k and pass^k of every model as k grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics.counts import distinct
from scorelake.metrics.summary import problem_histogram
from scorelake.schemas import CURVE
from scorelake.settings import Settings

if TYPE_CHECKING:
    from scorelake.scoring.summaries import Grouping

EVERY_K = 64
"""Every k up to here; then four in each doubling."""
_STEPS = (1.25, 1.5, 1.75, 2.0)


def curve_ks(top_n: int) -> list[int]:
    """Return 1, 2, 3, ... 64, 80, 96, 112, 128, 160, ... up to the largest number of attempts."""
    out, base = list(range(1, min(top_n, EVERY_K) + 1)), EVERY_K
    while base < top_n:
        out += [int(base * step) for step in _STEPS if base * step <= top_n]
        base *= 2
    return out


def curve_table(models: Grouping, settings: Settings) -> pl.DataFrame:
    """Return a row per model, k and family (one of k right, or all), where a problem has k attempts."""
    rows, how = models.histogram, settings.uncertainty
    n, c, column = distinct(rows["n"].to_numpy(), rows["c"].to_numpy())
    chosen = [metrics.parse(f"pass{sign}{k}") for k in curve_ks(int(n.max(initial=0))) for sign in "@^"]
    if not chosen:
        return pl.DataFrame(schema=CURVE.schema)
    problems, groups = rows["problems"].to_numpy(), models.groups.select(models.keys)
    matrix = problem_histogram(models.codes(), column, problems, (groups.height, n.size))
    clusters = models.clusters()
    by_cluster = None
    if clusters is not None:
        shape = int(clusters[0].max(initial=-1)) + 1, n.size
        by_cluster = problem_histogram(clusters[0], column, problems, shape), clusters[1]
    estimates = metrics.of_ends(chosen, n, c)
    made = metrics.aggregate(estimates, matrix, how.confidence, how.min_coverage, clusters=by_cluster)
    named = pl.DataFrame(
        [(metric.name, metric.family.name, metric.draws) for metric in chosen],
        {name: CURVE.schema[name] for name in ("metric", "family", "k")},
        orient="row",
    )
    numbers = {
        name: np.stack([getattr(each, name) for each in made], axis=1).ravel()
        for name in ("value", "lo", "hi", "problems", "problems_scored")
    }
    parts = [
        groups[np.repeat(np.arange(groups.height), len(chosen))],
        named[np.tile(np.arange(len(chosen)), groups.height)],
        pl.DataFrame(numbers).fill_nan(None),
    ]
    share = (pl.col("problems_scored") / pl.col("problems")).alias("coverage")
    table = pl.concat(parts, how="horizontal").filter(pl.col("problems_scored") > 0).with_columns(share)
    return table.select(*CURVE.columns).sort("benchmark", "model", "protocol", "family", "k")
