"""Counts per problem -> how many problems of a group share the same (n, c)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.problems import Problems
from scorelake.sorting import by_ranks
from scorelake.tables import GROUP, PROBLEM_HISTOGRAM

CLUSTER = "_cluster"


def histogram(problems: pl.LazyFrame, keys: Sequence[str] = GROUP) -> pl.DataFrame:
    """(keys, n, c, problems), sorted; a lake's histogram is far smaller than its problems unless n is ragged."""
    return (
        problems.group_by(*keys, "n", "c")
        .agg(pl.len().cast(pl.Int64).alias("problems"))
        .collect(engine="streaming")
        .pipe(by_ranks, (*keys, "n", "c"))
    )


def clustered(column: str) -> pl.Expr:
    """The cluster of each problem; one without any is a cluster of its own."""
    size = pl.col("subject").str.len_bytes().cast(pl.String)  # so that ("A", "1 p") is not ("A 1", "p")
    own = pl.concat_str(pl.lit("problem "), size, pl.lit(" "), "subject", "problem_id")
    named = pl.concat_str(pl.lit("cluster "), pl.col(column).cast(pl.String))
    return pl.coalesce(named, own).alias(CLUSTER)


def coarser(fine: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The same problems by fewer group columns."""
    if tuple(keys) == GROUP:
        return fine
    return fine.group_by(*keys, "n", "c").agg(pl.col("problems").sum()).pipe(by_ranks, (*keys, "n", "c"))


def by_subject(problems: Problems) -> pl.DataFrame:
    """The published histogram."""
    return PROBLEM_HISTOGRAM.check(problems.histogram())


def totals(problems: pl.LazyFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Attempts and ungraded attempts per group, sorted by the keys."""
    return (
        problems.group_by(*keys)
        .agg(pl.col("n").sum().alias("attempts"), pl.col("ungraded").sum())
        .sort(*keys)
        .collect(engine="streaming")
    )
