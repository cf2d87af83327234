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
ROW = "_row"
"""Numbers the problems where there are rewards or answers: each is scored once and gathered into every table."""


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, the histogram and totals by them, and the problems.

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
    out = [_grouping(files, keys, settings, fine, counted.sums) for keys in (MODEL, GROUP)]
    for column in settings.by:
        sliced = files.with_columns(slice=pl.lit(column), slice_value=pl.col(column).cast(pl.String))
        out.append(_grouping(sliced, (*MODEL, "slice", "slice_value"), settings))
    return out


def _grouping(
    problems: pl.LazyFrame,
    keys: Sequence[str],
    settings: Settings,
    fine: pl.DataFrame | None = None,
    sums: pl.DataFrame | None = None,
) -> Grouping:
    """Problems by some keys, from a finer histogram and sums where there are; with clusters, by cluster too."""
    totals = histogram.totals(problems if sums is None else sums.lazy(), keys)
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
