"""What is summarized together: models, their subjects, and the slices asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from scorelake.metrics.distributions import Ints
from scorelake.schemas import GROUP
from scorelake.settings import Settings
from scorelake.survey import ALL, CLUSTER, SLICE_VALUE, Survey

MODEL = ("benchmark", "model", "protocol")
SLICE = ("benchmark", "slice", SLICE_VALUE, "model", "protocol")
OF_BENCHMARK = "problems_of_benchmark"


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, and the histogram and totals by them.

    The totals say how many attempts a group has, and how many problems any model has of its benchmark.
    With clusters, the histogram is by the keys and the cluster column.
    """

    keys: Sequence[str]
    column: str
    """What is sliced by; ALL where nothing is."""
    histogram: pl.DataFrame
    totals: pl.DataFrame
    cluster: str | None = None

    def starts(self, rows: pl.DataFrame) -> Ints:
        """Where each group of the sorted rows begins."""
        return starts(rows, self.keys)

    def clusters(self, rows: pl.DataFrame) -> Ints | None:
        """Where each cluster begins, if there are any."""
        return None if self.cluster is None else starts(rows, (*self.keys, self.cluster))


def tables(settings: Settings) -> list[tuple[Sequence[str], str]]:
    """The keys of each summary table, and what it is sliced by: models, their subjects, and then each slice."""
    return [(MODEL, ALL), (GROUP, ALL), *((SLICE, column) for column in settings.by)]


def grouped(told: Survey, settings: Settings) -> list[Grouping]:
    """The summary tables to make."""
    cluster = None if settings.columns.cluster is None else CLUSTER
    return [_grouping(told, keys, column, cluster) for keys, column in tables(settings)]


def _grouping(told: Survey, keys: Sequence[str], column: str, cluster: str | None) -> Grouping:
    fine, asked = told.histograms[column], told.asked[column]
    if column != ALL:
        fine, asked = fine.sliced(column), asked.with_columns(slice=pl.lit(column))
    counts = fine.coarser([*keys, *([cluster] if cluster else [])])
    whole = fine.coarser(keys)
    attempts = whole.cells.group_by("group").agg(attempts=(pl.col("n") * pl.col("problems")).sum()).sort("group")
    shared = [key for key in keys if key != "model"]
    any_model = asked.group_by(shared).agg(pl.col("problems").sum().alias(OF_BENCHMARK))
    totals = whole.groups.select(*keys, "ungraded").with_columns(attempts["attempts"])
    totals = totals.join(any_model, on=shared, how="left", nulls_equal=True, maintain_order="left")
    return Grouping(keys, column, counts.named(told.binary), totals, cluster)


def starts(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Where each group of the sorted rows begins."""
    group = rows.select(pl.struct(keys).rle_id()).to_series().to_numpy()
    return np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
