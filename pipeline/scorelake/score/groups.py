"""What is summarized together: models, their subjects, and the slices asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from scorelake.metrics.draws import Ints
from scorelake.problems import Problems
from scorelake.score import histogram
from scorelake.settings import Settings
from scorelake.tables import GROUP

MODEL = ("benchmark", "model", "protocol")
SLICE = ("benchmark", "slice", "slice_value", "model", "protocol")
OF_BENCHMARK = "problems_of_benchmark"
ROW = "_row"
"""Numbers the problems where there are rewards or answers: each is scored once and gathered into every table."""


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, the histogram and totals by them, and the problems.

    The totals say how many attempts a group has, and how many problems any model has of its benchmark.
    With clusters, the histogram is by the keys and the cluster column.
    """

    keys: Sequence[str]
    histogram: pl.DataFrame
    totals: pl.DataFrame
    problems: pl.LazyFrame
    cluster: str | None = None

    def starts(self, rows: pl.DataFrame) -> Ints:
        """Where each group of the sorted rows begins."""
        return _starts(rows, self.keys)

    def clusters(self, rows: pl.DataFrame) -> Ints | None:
        """Where each cluster begins, if there are any."""
        return None if self.cluster is None else _starts(rows, (*self.keys, self.cluster))


def grouped(counted: Problems, fine: pl.DataFrame, settings: Settings, numbered: bool) -> list[Grouping]:
    """Models, their subjects, and each slice, in this order; the problems numbered if they are scored one by one."""
    files = counted.files.with_row_index(ROW) if numbered else counted.files
    whole = _attempted(counted)
    out = [_grouping(files, keys, whole, settings, fine, counted.sums) for keys in (MODEL, GROUP)]
    for column in settings.by:
        value = pl.col(column).cast(pl.String)
        sliced = files.with_columns(slice=pl.lit(column), slice_value=value)
        part = _attempted(counted, counted.others([column]).select(value).to_series())
        out.append(_grouping(sliced, SLICE, part.with_columns(slice=pl.lit(column)), settings))
    return out


def _attempted(counted: Problems, sliced: pl.Series | None = None) -> pl.DataFrame:
    """How many problems any model attempted, per benchmark, subject and protocol, and per slice if there is one."""
    place = counted.groups.select(pl.struct("benchmark", "subject", "protocol").rank("dense") - 1).to_series()
    label = place.cast(pl.Int64).to_numpy()[counted.group]
    values = pl.DataFrame({"slice_value": pl.Series([None], dtype=pl.String)})
    if sliced is not None:
        values = pl.DataFrame({"slice_value": sliced.unique(maintain_order=True)})
        code = sliced.to_frame("slice_value").join(
            values.with_row_index("code"), on="slice_value", how="left", nulls_equal=True, maintain_order="left"
        )["code"]
        label = label * values.height + code.cast(pl.Int64).to_numpy()
    found = counted.distinct_problems(label)
    there = np.flatnonzero(found)
    first = counted.groups.with_columns(place.alias("place")).unique("place", keep="first").sort("place")
    return pl.concat(
        [
            first[there // values.height].select("benchmark", "subject", "protocol"),
            values[there % values.height],
            pl.DataFrame({OF_BENCHMARK: found[there].astype(np.int64)}),
        ],
        how="horizontal",
    )


def _grouping(
    problems: pl.LazyFrame,
    keys: Sequence[str],
    attempted: pl.DataFrame,
    settings: Settings,
    fine: pl.DataFrame | None = None,
    sums: pl.DataFrame | None = None,
) -> Grouping:
    """Problems by some keys, from a finer histogram and sums where there are; with clusters, by cluster too."""
    shared = [key for key in keys if key != "model"]
    whole = attempted.group_by(shared).agg(pl.col(OF_BENCHMARK).sum())
    totals = histogram.totals(problems if sums is None else sums.lazy(), keys).join(
        whole, on=shared, how="left", nulls_equal=True, maintain_order="left"
    )
    cluster = settings.columns.cluster
    if cluster is not None:
        problems = problems.with_columns(histogram.clustered(cluster))
        counts = histogram.histogram(problems, (*keys, histogram.CLUSTER))
        return Grouping(keys, counts, totals, problems, histogram.CLUSTER)
    counts = histogram.histogram(problems, keys) if fine is None else histogram.coarser(fine, keys)
    return Grouping(keys, counts, totals, problems)


def _starts(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Where each group of the sorted rows begins."""
    group = rows.select(pl.struct(keys).rle_id()).to_series().to_numpy()
    return np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
