"""Counts per problem with their keys as numbers.

A million problems are a hundred groups times ten thousand names. Texts are read once, become numbers in the order
of their texts, and every later stage adds up and lines up numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.draws import blocks
from scorelake.tables import COUNTS, GROUP, KEYS
from scorelake.threads import side_by_side

Codes = NDArray[np.uint32]
_REWARDS = {"reward_mean": pl.Float64(), "reward_max": pl.Float64()}
_FEW = 1 << 18
"""Cells of a histogram of which every block of rows may have a table of its own."""


@dataclass(frozen=True)
class Problems:
    """All problems of a snapshot, file by file, each in the order of its keys."""

    groups: pl.DataFrame
    """The distinct GROUP columns in their order; a row's number is its code."""
    names: pl.Series
    """The distinct problem ids in their order, likewise."""
    group: Codes
    name: Codes
    counts: pl.DataFrame
    """n, c and ungraded of every problem."""
    files: pl.LazyFrame
    """The same rows with every column, as they are on the disk."""

    @cached_property
    def pairs(self) -> Distinct:
        """The distinct (n, c), and which of them each problem has."""
        return distinct(*(self.counts[name].fill_null(0).to_numpy() for name in ("n", "c")))

    def histogram(self) -> pl.DataFrame:
        """How many problems of a group share (n, c), in the order of all three."""
        pairs = self.pairs
        cells = self.groups.height * pairs.n.size

        def cell(rows: slice) -> NDArray[np.int64]:
            return self.group[rows].astype(np.int64) * pairs.n.size + pairs.place[rows]

        if cells <= max(1 << 20, 4 * self.group.size):  # a table of counts is faster than a sort
            parts = blocks(self.group.size, 1) if cells <= _FEW else [slice(None)]
            many = np.sum(side_by_side(lambda rows: np.bincount(cell(rows), minlength=cells), parts), axis=0)
            found = np.flatnonzero(many)
            many = many[found]
        else:
            found, many = np.unique(cell(slice(None)), return_counts=True)
        group, pair = np.divmod(found, max(1, pairs.n.size))
        c = pl.Series(pairs.c[pair])
        if self.counts["c"].null_count():  # a lake of rewards has no c at all
            c = pl.Series([None], dtype=pl.Int64).new_from_index(0, c.len())
        told = {"n": pairs.n[pair], "c": c, "problems": many.astype(np.int64)}
        return self.named(pl.DataFrame({"group": group, **told}))

    @cached_property
    def sums(self) -> pl.DataFrame:
        """n and ungraded added up, one row per group, in their order."""
        added = {name: np.zeros(self.groups.height, dtype=np.int64) for name in ("n", "ungraded")}

        def add(name: str) -> None:
            np.add.at(added[name], self.group, self.counts[name].to_numpy())

        side_by_side(add, added)
        return pl.concat([self.groups, pl.DataFrame(added)], how="horizontal")

    def distinct_problems(self, label: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many different problem ids the rows of each label have; labels are numbers from 0 on."""
        names, labels = max(1, self.names.len()), int(label.max(initial=-1)) + 1
        if labels * names <= max(1 << 20, 4 * label.size):  # a table of flags is faster than a sort
            seen = np.zeros(labels * names, dtype=bool)
            seen[label * names + self.name] = True
            found: NDArray[np.int64] = seen.reshape(labels, names).sum(axis=1)
            return found
        return np.bincount(np.unique(label * names + self.name) // names, minlength=labels)

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The same rows with the columns of their group instead of its number."""
        return pl.concat([self.groups[frame["group"]], frame.drop("group")], how="horizontal")

    @property
    def more(self) -> list[str]:
        """The columns that are on the disk only: carried ones, and lists of outcomes."""
        return [name for name in self.files.collect_schema().names() if name not in (*KEYS, *COUNTS)]

    def reward_ends(self) -> pl.DataFrame:
        """reward_mean and reward_max of every problem, null where there are none."""
        if "rewards" not in self.more:
            return pl.DataFrame(schema=_REWARDS).clear(self.counts.height)
        total = (pl.col("rewards") * pl.col("reward_counts").cast(pl.List(pl.Float64))).list.sum()
        mean = pl.when(pl.col("reward_counts").list.len() > 0).then(total / pl.col("reward_counts").list.sum())
        return self.files.select(reward_mean=mean, reward_max=pl.col("rewards").list.max()).collect()

    def moved(self, folder: Path) -> Problems:
        """The same problems after their folder got another name."""
        return replace(self, files=_files(folder))

    def others(self, columns: Sequence[str]) -> pl.DataFrame:
        """More columns of the same rows, read now."""
        return self.files.select(columns).collect() if columns else pl.DataFrame()


def read(folder: Path) -> Problems:
    """The problems of a folder of problem_counts."""
    files = side_by_side(_File, _paths(folder))
    run = pl.concat([file.runs for file in files])
    groups = run.select(GROUP).unique().sort(GROUP)
    numbered = groups.with_row_index("place")
    places = run.join(numbered, on=GROUP, how="left", nulls_equal=True, maintain_order="left")["place"].to_numpy()
    texts = pl.concat([file.texts for file in files])
    order = texts.arg_sort()
    names = texts.gather(order)
    fresh = (names != names.shift()).fill_null(value=True)
    rank = np.empty(texts.len(), dtype=np.uint32)
    rank[order.to_numpy()] = fresh.cast(pl.UInt32).cum_sum().to_numpy() - np.uint32(1)
    group, name = (np.empty(sum(file.name.size for file in files), dtype=np.uint32) for _ in range(2))
    ends = [
        np.cumsum(sizes)
        for sizes in ([f.name.size for f in files], [f.texts.len() for f in files], [f.runs.height for f in files])
    ]

    def fill(i: int) -> None:
        file, (row, text, runs) = files[i], (int(end[i]) for end in ends)
        here = slice(row - file.name.size, row)
        name[here] = rank[text - file.texts.len() : text][file.name]
        group[here] = np.repeat(places[runs - file.runs.height : runs], file.runs["len"].to_numpy())

    side_by_side(fill, range(len(files)))
    counts = pl.concat([file.counts for file in files], rechunk=True)
    return Problems(groups, names.filter(fresh), group, name, counts, _files(folder))


class _File:
    """One file, its texts as places in a dictionary."""

    def __init__(self, path: Path) -> None:
        table = pq.ParquetFile(path, read_dictionary=list(KEYS)).read([*KEYS, *COUNTS], use_threads=False)
        keys: dict[str, tuple[pl.Series, NDArray[np.int32]]] = {}
        for key in KEYS:
            column: Any = table[key].unify_dictionaries().combine_chunks()
            keys[key] = pl.Series(column.dictionary, dtype=pl.String), column.indices.to_numpy()
        self.texts, self.name = keys["problem_id"]
        self.counts: pl.DataFrame = pl.DataFrame(table.select(COUNTS), schema=dict.fromkeys(COUNTS, pl.Int64))
        begins = np.zeros(table.num_rows, dtype=bool)
        for key in GROUP:
            begins |= np.diff(keys[key][1], prepend=-1) != 0
        first = np.flatnonzero(begins)
        named = {key: keys[key][0].gather(keys[key][1][first]) for key in GROUP}
        self.runs = pl.DataFrame({**named, "len": np.diff(first, append=table.num_rows)})
        """Equal groups in sequence: which, and how many rows."""


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _files(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(_paths(folder), glob=False)
