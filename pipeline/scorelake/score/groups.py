"""What is summarized together: models, their subjects, and the slices asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from scorelake.metrics.draws import Ints
from scorelake.problems import Codes, Problems, dense
from scorelake.score import histogram
from scorelake.settings import Settings
from scorelake.tables import GROUP, KEYS

MODEL = ("benchmark", "model", "protocol")
SLICE = ("benchmark", "slice", "slice_value", "model", "protocol")
OF_BENCHMARK = "problems_of_benchmark"


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, the histogram and totals by them, and the problems.

    The totals say how many attempts a group has, and how many problems any model has of its benchmark.
    With clusters, the histogram is by the keys and the cluster column.
    """

    keys: Sequence[str]
    histogram: pl.DataFrame
    totals: pl.DataFrame
    counted: Problems
    problems: pl.LazyFrame
    """The rows as they are on the disk, with the columns of this grouping."""
    cluster: str | None = None

    def starts(self, rows: pl.DataFrame) -> Ints:
        """Where each group of the sorted rows begins."""
        return _starts(rows, self.keys)

    def clusters(self, rows: pl.DataFrame) -> Ints | None:
        """Where each cluster begins, if there are any."""
        return None if self.cluster is None else _starts(rows, (*self.keys, self.cluster))

    def lined_up(self) -> tuple[Ints, Ints, Ints | None]:
        """All problems, group by group in the order of their keys; and where groups and clusters begin."""
        together = [self.cluster] if self.cluster else []
        group, clusters = self._places(self.keys), self._places((*self.keys, *together))
        order = np.argsort(
            self._places(dict.fromkeys((*self.keys, *together, "subject", "problem_id"))), kind="stable"
        )
        begins = [np.flatnonzero(np.diff(each[order], prepend=-1)) for each in (group, clusters)]
        return order, begins[0], begins[1] if together else None

    def _places(self, columns: Iterable[str]) -> Ints:
        """For each problem a number that rises with its values in some columns."""
        place = np.zeros(self.counted.group.size, dtype=np.int64)
        for column in columns:
            rank = self._ranks(column)
            many = int(rank.max(initial=0)) + 1
            if int(place.max(initial=0)) >= (1 << 62) // many:  # ranks of what there is need less room
                place = np.unique(place, return_inverse=True)[1]
            place = place * many + rank
        return place

    def _ranks(self, column: str) -> Codes:
        if column in KEYS:
            return self.counted.ranks(column)
        return dense(self.problems.select(column).collect().to_series())


def grouped(counted: Problems, fine: pl.DataFrame, settings: Settings) -> list[Grouping]:
    """Models, their subjects, and each slice, in this order."""
    whole = _attempted(counted)
    out = [_grouping(counted, counted.files, keys, whole, settings, fine) for keys in (MODEL, GROUP)]
    for column in settings.by:
        value = pl.col(column).cast(pl.String)
        sliced = counted.files.with_columns(slice=pl.lit(column), slice_value=value)
        part = _attempted(counted, counted.others([column]).select(value).to_series())
        out.append(_grouping(counted, sliced, SLICE, part.with_columns(slice=pl.lit(column)), settings))
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
    counted: Problems,
    problems: pl.LazyFrame,
    keys: Sequence[str],
    attempted: pl.DataFrame,
    settings: Settings,
    fine: pl.DataFrame | None = None,
) -> Grouping:
    """Problems by some keys, from a finer histogram where there is one; with clusters, by cluster too."""
    shared = [key for key in keys if key != "model"]
    whole = attempted.group_by(shared).agg(pl.col(OF_BENCHMARK).sum())
    totals = histogram.totals(problems if fine is None else counted.sums.lazy(), keys).join(
        whole, on=shared, how="left", nulls_equal=True, maintain_order="left"
    )
    cluster = settings.columns.cluster
    if cluster is not None:
        problems = problems.with_columns(histogram.clustered(cluster))
        counts = histogram.histogram(problems, (*keys, histogram.CLUSTER))
        return Grouping(keys, counts, totals, counted, problems, histogram.CLUSTER)
    counts = histogram.histogram(problems, keys) if fine is None else histogram.coarser(fine, keys)
    return Grouping(keys, counts, totals, counted, problems)


def _starts(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Where each group of the sorted rows begins."""
    group = rows.select(pl.struct(keys).rle_id()).to_series().to_numpy()
    return np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
