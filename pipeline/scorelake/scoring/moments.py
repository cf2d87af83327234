"""Moments of metrics that do not follow from (n, c): evaluated per problem, bucket by bucket, then merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from scorelake.metrics.summary import Moments, problem_histogram
from scorelake.scoring.survey import ALL, CLUSTER, SLICE_VALUE, cluster_name, distinct_rows
from scorelake.scoring.values import ProblemEstimates
from scorelake.settings import Settings
from scorelake.threads import parallel_map


@dataclass(frozen=True)
class GroupMoments:
    """The groups of one summary table, sorted by their keys, and the moments of each metric by its name."""

    groups: pl.DataFrame
    moments: dict[str, Moments]

    def __add__(self, other: GroupMoments) -> GroupMoments:
        """Merge the moments of other problems."""
        groups, index = distinct_rows(pl.concat([self.groups, other.groups]))
        mine, theirs = np.split(index, [self.groups.height])
        moments = {
            name: each.expand(mine, groups.height) + other.moments[name].expand(theirs, groups.height)
            for name, each in self.moments.items()
        }
        return GroupMoments(groups, moments)


def bucket_moments(
    rows: pl.DataFrame,
    estimates: Sequence[ProblemEstimates],
    tables: Sequence[tuple[Sequence[str], str]],
    settings: Settings,
) -> list[GroupMoments]:
    """Return the moments of each summary table (see summaries.table_keys); each followed by those of its clusters."""
    out = []
    for keys in _table_rows(rows, tables, settings):
        groups, code = distinct_rows(keys)
        moments: dict[str, Moments] = {}
        for each in estimates:
            size = each.estimates[0].value.shape[1]
            column = np.arange(size) if each.column is None else each.column
            matrix = problem_histogram(code, column, 1, (groups.height, size))
            made = parallel_map(partial(Moments.of, histogram=matrix), each.estimates)
            moments.update(zip((metric.name for metric in each.metrics), made, strict=True))
        out.append(GroupMoments(groups, moments))
    return out


def _table_rows(
    rows: pl.DataFrame, tables: Sequence[tuple[Sequence[str], str]], settings: Settings
) -> Iterator[pl.DataFrame]:
    """Yield the keys of every problem for each table, and by cluster if configured."""
    cluster = settings.columns.cluster
    more = [] if cluster is None else [cluster_name(cluster)]
    for keys, column in tables:
        value = [] if column == ALL else [pl.col(column).cast(pl.String).alias(SLICE_VALUE)]
        named = rows.with_columns(*value, *more, slice=pl.lit(column))
        yield named.select(keys)
        if cluster is not None:
            yield named.select(*keys, CLUSTER)


def add_moments(buckets: Iterable[list[GroupMoments]]) -> list[GroupMoments]:
    """Merge the moments of buckets in their order."""
    out: list[GroupMoments] = []
    for tables in buckets:
        out = [one + other for one, other in zip(out, tables, strict=True)] if out else tables
    return out
