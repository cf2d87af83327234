"""pass@k and pass^k of every model as k grows: what sampling can find, and what can be relied on."""

from __future__ import annotations

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics import Shape
from scorelake.metrics.counts import distinct
from scorelake.schemas import CURVE
from scorelake.scoring.groups import Grouping
from scorelake.settings import Settings

EVERY_K = 64
"""Every k up to here; then a few in each doubling."""
_STEPS = (1.25, 1.5, 1.75, 2.0)


def draws(top_n: int) -> list[int]:
    """1, 2, 3, ... 64, 80, 96, 112, 128, 160, ... up to the largest number of attempts."""
    out, base = list(range(1, min(top_n, EVERY_K) + 1)), EVERY_K
    while base < top_n:
        out += [int(base * step) for step in _STEPS if base * step <= top_n]
        base *= 2
    return out


def curve(models: Grouping, settings: Settings) -> pl.DataFrame:
    """One row per model, k and end: at least one of k right, or all. No row where no problem has k attempts."""
    counts, how = models.histogram, settings.uncertainty
    pairs = distinct(counts["n"].to_numpy(), counts["c"].to_numpy())
    shape = Shape(pairs.place, counts["problems"].to_numpy(), models.starts(counts), models.clusters(counts))
    chosen = [metrics.parse(f"pass{sign}{k}") for k in draws(int(pairs.n.max(initial=0))) for sign in "@^"]
    made = metrics.aggregate(metrics.of_ends(chosen, pairs.n, pairs.c), shape, how.confidence, how.min_coverage)
    groups, many = models.totals.select(models.keys), len(chosen)
    if not many:
        return pl.DataFrame(schema=CURVE.schema)
    named = pl.DataFrame({"metric": [m.name for m in chosen], "family": [m.family.name for m in chosen]})
    numbers = {
        name: np.stack([getattr(each, name) for each in made], axis=1).ravel()
        for name in ("value", "lo", "hi", "problems", "problems_scored")
    }
    rows = pl.concat(
        [
            groups[np.repeat(np.arange(groups.height), many)],
            named[np.tile(np.arange(many), groups.height)],
            pl.DataFrame({"k": np.tile([m.draws for m in chosen], groups.height), **numbers}).fill_nan(None),
        ],
        how="horizontal",
    )
    share = (pl.col("problems_scored") / pl.col("problems")).alias("coverage")
    found = rows.filter(pl.col("problems_scored") > 0).with_columns(share)
    return found.select(*CURVE.columns).sort("benchmark", "model", "protocol", "family", "k")
