"""Judges against trusted grades (columns gold_*): how often they err, and scores and lifts corrected for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import polars as pl
from scipy.special import stdtrit

from scorelake.metrics import judge_corrected, judge_quality
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.significance import holm
from scorelake.schemas import JUDGE_LIFT, JUDGE_QUALITY, KEYS
from scorelake.scoring.series import without_earlier_points
from scorelake.scoring.survey import BOARD, BucketTask, stack
from scorelake.settings import GOLD_COLUMNS, Settings

MIN_LABELLED = 20  # problems with trusted grades that a correction needs
_STATISTICS = ("agreement", "sensitivity", "specificity", "kappa")
_RATES = ("judged", "gold", "judged_labelled")


def judge_tables(buckets: Sequence[BucketTask], settings: Settings) -> dict[str, pl.DataFrame]:
    """Return the quality of judges by model, and the lifts between models corrected for their errors."""
    columns = [*KEYS, "n", "c", *GOLD_COLUMNS]
    rows = pl.concat(bucket.read(columns) for bucket in buckets).filter(pl.col("n") > 0)
    rows = rows.sort(*BOARD, "model", "subject", "problem_id")
    graded = pl.col("gold_n")
    names = zip(
        _RATES, (pl.col("c") / pl.col("n"), pl.col("gold_c") / graded, pl.col("gold_judged") / graded), strict=True
    )
    rows = rows.with_columns(rate.fill_nan(None).alias(name) for name, rate in names)
    rows = rows.filter(pl.col("gold").count().over("benchmark", "protocol", "model") > 0)
    quality, lifts, confidence = [], [], settings.uncertainty.confidence
    for board in rows.partition_by(BOARD, maintain_order=True):
        where, labelled = board.select(BOARD).row(0, named=True), board.drop_nulls("gold")
        error = labelled["judged_labelled"] - labelled["gold"]
        p = _differences(error.to_numpy(), labelled["model"].rle_id().to_numpy())
        for i, mine in enumerate(board.partition_by("model", maintain_order=True)):
            numbers = {"bias": error.filter(labelled["model"] == mine["model"][0]).mean(), "bias_p": p[i]}
            quality.append(where | _quality(mine, confidence) | _corrected("value", mine, confidence) | numbers)
        sides = without_earlier_points(board, settings).partition_by("model", maintain_order=True)
        for a, b in combinations(sides, 2):
            both = b.join(a, on=["subject", "problem_id"], suffix="_a")
            if both.height > 1:
                differences = both.select(pl.col(name) - pl.col(f"{name}_a") for name in _RATES)
                pair = {"model_a": a["model"][0], "model_b": b["model"][0]}
                lifts.append(where | pair | _corrected("lift", differences, confidence))
    return {table.name: stack(table, found) for table, found in ((JUDGE_QUALITY, quality), (JUDGE_LIFT, lifts))}


def judge_warnings(tables: dict[str, pl.DataFrame], settings: Settings) -> list[str]:
    """Warn of models on which a judge errs otherwise than on the others of the board."""
    rows = tables.get(JUDGE_QUALITY.name, pl.DataFrame(schema=JUDGE_QUALITY.schema))
    return [
        f"{row['benchmark']}: the judge errs otherwise on {row['model']} than on other models: its grades are "
        f"{row['bias']:+.3f} off the trusted ones (p = {row['bias_p']:.2g}; table judge_quality)"
        for row in rows.filter(pl.col("bias_p") <= 1 - settings.uncertainty.confidence).rows(named=True)
    ]


def _quality(rows: pl.DataFrame, confidence: float) -> dict[str, object]:
    """Return how often the judge of one model agrees with the trusted grades, from the counts of problems."""
    n, gold, judged, both = (rows[name].to_numpy() for name in GOLD_COLUMNS)
    cells = np.stack([n - gold - judged + both, judged - both, gold - both, both], axis=1)  # as the grades below say
    problem, grades = np.repeat(np.arange(n.size), 4), np.tile([[0, 0], [0, 1], [1, 0], [1, 1]], (n.size, 1))
    each = np.repeat(np.arange(problem.size), cells.ravel())
    found = judge_quality(grades[each, 1], grades[each, 0], problem[each], confidence)
    numbers = {
        f"{name}{end}": x for name in _STATISTICS for end, x in zip(("", "_lo", "_hi"), found[name], strict=True)
    }
    return {"model": rows["model"][0], "attempts": int(n.sum()), **numbers}


def _corrected(name: str, rows: pl.DataFrame, confidence: float) -> dict[str, object]:
    """Return a judged mean, and corrected by the trusted grades of some problems; null with too few of them."""
    judged, gold, judged_labelled = (rows[column].to_numpy() for column in _RATES)
    at = np.flatnonzero(~np.isnan(gold))
    value, se, *_ = judge_corrected(judged, gold[at], judged_labelled[at], at, confidence, MIN_LABELLED)
    reach, low = stdtrit(max(at.size - 1, 1), (1 + confidence) / 2) * se, 0.0 if name == "value" else -1.0
    ends = np.clip([value - reach, value + reach], low, 1.0).tolist()
    sizes = {"problems": rows.height, "labelled": at.size, name: float(judged.mean())}
    return sizes | dict(zip((f"{name}_corrected", "lo", "hi"), (value, *ends), strict=True))


def _differences(error: Floats, model: Ints) -> Floats:
    """Test whether the errors on each model differ from those on all others (Welch's t), adjusted over models."""
    from scipy.stats import ttest_ind  # noqa: PLC0415  (loads slowly)

    sides = [(error[model == each], error[model != each]) for each in np.unique(model)]
    tested = [min(one.size, other.size) >= MIN_LABELLED for one, other in sides]
    p = [
        ttest_ind(*pair, equal_var=False).pvalue if enough else 1.0
        for pair, enough in zip(sides, tested, strict=True)
    ]
    return holm(np.nan_to_num(p, nan=1.0))  # no variance: no error at all
