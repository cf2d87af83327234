"""What may be compared and ranked: the same task set and about the same n, and what differs where it is not so."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.comparing.boards import Tried, span
from scorelake.metrics import Metric
from scorelake.metrics.distributions import Ints
from scorelake.settings import Compare

Codes = NDArray[np.int8]
REFUSED = "not comparable: "
"""How a claim begins that gives a reason instead of a number."""


def obstacles(tried: Tried, shared: Ints, usable: Ints, asked: Compare) -> Codes:
    """What makes two models incomparable, models x models: the number of a reason, or 0.

    In: on how many problems both have an attempt, and the metric.
    """
    few = shared < asked.min_problems
    whole = few & (shared == tried.many[:, None]) & (shared == tried.many)
    apart = tried.apart() if not asked.allow_different_n else np.zeros(few.shape, dtype=bool)
    found = np.select([whole, few, apart, usable < asked.min_problems], np.arange(1, 5, dtype=np.int8), np.int8(0))
    return np.asarray(found, dtype=np.int8)


def refusals(
    tried: Tried, code: Codes, shared: Ints, usable: Ints, a: Ints, b: Ints, metric: Metric, asked: Compare
) -> tuple[pl.Series, pl.Series]:
    """The reasons of some pairs in words, null where there is none; once as B against A, once as A against B.

    What makes the two incomparable, and the problems that they share, are of these pairs.
    """
    if not code.any():
        none = pl.Series([None], dtype=pl.String).new_from_index(0, code.size)
        return none, none
    spans = pl.Series(tried.spans(), dtype=pl.String)
    out = []
    for one, two in ((a, b), (b, a)):
        told = pl.DataFrame({"code": code, "shared": shared, "usable": usable})
        told = told.with_columns(
            pl.Series("many", tried.many[one]),
            pl.Series("others", tried.many[two]),
            spans.gather(one).alias("span"),
            spans.gather(two).alias("other"),
        )
        out.append(told.select(_reason(metric, asked.min_problems)).to_series())
    return out[0], out[1]


def _reason(metric: Metric, needed: int) -> pl.Expr:
    texts = (
        pl.format("too few problems ({} in common, {} needed)", "shared", pl.lit(needed)),
        pl.format(
            "problem sets differ ({} of {} and {} problems in common, {} needed)",
            *("shared", "many", "others", pl.lit(needed)),
        ),
        pl.format("n differs ({} and {} attempts per problem)", "span", "other"),
        pl.format(
            f"n is below k = {metric.draws} (both models have enough attempts on {{}} problems, {{}} needed)",
            *("usable", pl.lit(needed)),
        ),
    )
    reason = pl.lit(None, pl.String)
    for code, text in enumerate(texts, start=1):
        reason = pl.when(pl.col("code") == code).then(text).otherwise(reason)
    return (pl.lit(REFUSED) + reason).alias("refused")


def standing(tried: Tried, asked: Compare) -> list[str | None]:
    """For every model why it is not ranked, or nothing.

    Ranked are models that attempted enough of the problems, and of those the most that may all be compared with each
    other by their n: ranges that meet two by two all meet in one n.
    """
    needed = max(1, int(np.ceil(asked.min_share * tried.problems - 1e-9)))
    enough = tried.many >= needed
    out: list[str | None] = [
        None if fine else f"attempted {many:,} of {tried.problems:,} problems, {needed:,} needed to be ranked"
        for many, fine in zip(tried.many.tolist(), enough, strict=True)
    ]
    if asked.allow_different_n or not enough.any():
        return out
    meeting = np.unique(tried.least[enough])
    inside = (tried.least <= meeting[:, None]) & (tried.most >= meeting[:, None]) & enough
    ranked = inside[np.flatnonzero(inside.sum(axis=1) == inside.sum(axis=1).max())[-1]]  # of several, the largest n
    shared = span(tried.least[ranked].max(), tried.most[ranked].min())
    for i in np.flatnonzero(enough & ~ranked):
        mine = f"{span(tried.least[i], tried.most[i])} attempt{'' if tried.most[i] == 1 else 's'} per problem"
        out[i] = f"n differs ({mine}, the ranked models share n = {shared})"
    return out
