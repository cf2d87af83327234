"""Counts per problem with their keys as numbers.

A million problems are a hundred groups times ten thousand names. Texts are read once, become numbers in the order
of their texts, and every later stage adds up and lines up numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.draws import blocks
from scorelake.tables import COUNTS, GROUP, KEYS, LISTS
from scorelake.threads import side_by_side

Codes = NDArray[np.uint32]
_FEW = 1 << 18
"""Cells of a histogram of which every block of rows may have a table of its own."""


@dataclass(frozen=True)
class Problems:
    """All problems of a snapshot, file by file, each in the order of its keys; twelve bytes for each."""

    groups: pl.DataFrame
    """The distinct GROUP columns in their order; a row's number is its code."""
    names: pl.Series
    """The distinct problem ids in their order, likewise."""
    group: Codes
    name: Codes
    pairs: Distinct
    """The distinct (n, c), and which of them each problem has."""
    binary: bool
    """There is a c; where there is none, it is 0 in the pairs."""
    sums: pl.DataFrame
    """n and ungraded added up, one row per group, in their order."""
    rows: tuple[int, ...]
    """Problems of each file."""
    folder: Path
    """Where the same rows are, with every column."""

    @property
    def files(self) -> pl.LazyFrame:
        """The rows as they are on the disk."""
        return pl.scan_parquet(_paths(self.folder), glob=False)

    def histogram(self) -> pl.DataFrame:
        """How many problems of a group share (n, c), in the order of all three."""
        pairs = self.pairs
        cells = self.groups.height * pairs.n.size

        def cell(rows: slice) -> NDArray[np.int64]:
            return self.group[rows].astype(np.int64) * pairs.n.size + pairs.place[rows].astype(np.int64)

        if cells <= max(1 << 20, 4 * self.group.size):  # a table of counts is faster than a sort
            parts = blocks(self.group.size, 1) if cells <= _FEW else [slice(None)]
            many = np.sum(side_by_side(lambda rows: np.bincount(cell(rows), minlength=cells), parts), axis=0)
            found = np.flatnonzero(many)
            many = many[found]
        else:
            found, many = np.unique(cell(slice(None)), return_counts=True)
        group, pair = np.divmod(found, max(1, pairs.n.size))
        c = pl.Series(pairs.c[pair])
        if not self.binary:
            c = pl.Series([None], dtype=pl.Int64).new_from_index(0, c.len())
        told = {"n": pairs.n[pair], "c": c, "problems": many.astype(np.int64)}
        return self.named(pl.DataFrame({"group": group, **told}))

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

    @property
    def kept(self) -> list[str]:
        """Those of them that are one value each."""
        return [name for name in self.more if name not in LISTS]

    def moved(self, folder: Path) -> Problems:
        """The same problems after their folder got another name."""
        return replace(self, folder=folder)

    def others(self, columns: Sequence[str]) -> pl.DataFrame:
        """More columns of the same rows, read now."""
        return self.files.select(columns).collect() if columns else pl.DataFrame()

    def ranks(self, key: str) -> Codes:
        """For each problem the place of its key among all values of that; none at all comes first."""
        return self.name if key == KEYS[-1] else dense(self.groups[key])[self.group]

    def parts(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Numbers of the keys, COUNTS and more columns, file by file."""
        end = 0
        for path, many in zip(_paths(self.folder), self.rows, strict=True):
            here = slice(end, end := end + many)
            numbers = pl.DataFrame({"_group": self.group[here], "_name": self.name[here]})
            told = pl.read_parquet(path, columns=[*COUNTS, *columns], glob=False)
            yield pl.concat([numbers, told], how="horizontal")


def dense(values: pl.Series) -> Codes:
    """Places of values among the different ones, from 1 on; 0 for none at all."""
    return values.rank("dense").fill_null(0).cast(pl.UInt32).to_numpy()


@dataclass(frozen=True)
class Cells:
    """What metrics say of problems: once for all that have the same (n, c), or of each problem by itself."""

    place: NDArray[np.integer[Any]] | None
    """The cell of each problem; None where each has one of its own."""
    n: NDArray[np.int64]
    """Attempts, for each cell."""
    values: Sequence[NDArray[np.float64]]
    """The finite values of each metric, NaN where undefined, for each cell."""

    def cell(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """The cells of some problems, by their numbers."""
        if self.place is not None:
            return self.place[rows]
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows

    def of_problems(self, cells: NDArray[Any]) -> NDArray[Any]:
        """What is told of cells, for each problem."""
        return cells if self.place is None else cells[self.place]


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
    rows = [file.name.size for file in files]
    group, name, place = (np.empty(sum(rows), dtype=np.uint32) for _ in range(3))
    pairs = distinct(*(np.concatenate([getattr(file.pairs, name) for file in files]) for name in ("n", "c")))
    ends = [
        np.cumsum(sizes)
        for sizes in (
            rows,
            [f.texts.len() for f in files],
            [f.runs.height for f in files],
            [f.pairs.n.size for f in files],
        )
    ]

    def fill(i: int) -> None:
        file, (row, text, runs, pair) = files[i], (int(end[i]) for end in ends)
        here = slice(row - file.name.size, row)
        name[here] = rank[text - file.texts.len() : text][file.name]
        group[here] = np.repeat(places[runs - file.runs.height : runs], file.runs["len"].to_numpy())
        place[here] = pairs.place[pair - file.pairs.n.size : pair][file.pairs.place]

    side_by_side(fill, range(len(files)))
    sums = run.group_by(GROUP).agg(pl.col("n", "ungraded").sum()).sort(GROUP)
    return Problems(
        groups,
        names.filter(fresh),
        group,
        name,
        Distinct(pairs.n, pairs.c, place),
        all(file.binary for file in files),
        sums,
        tuple(rows),
        folder,
    )


class _File:
    """One file, its texts as places in a dictionary."""

    def __init__(self, path: Path) -> None:
        table = pq.ParquetFile(path, read_dictionary=list(KEYS)).read([*KEYS, *COUNTS], use_threads=False)
        keys: dict[str, tuple[pl.Series, NDArray[np.int32]]] = {}
        for key in KEYS:
            column: Any = table[key].unify_dictionaries().combine_chunks()
            keys[key] = pl.Series(column.dictionary, dtype=pl.String), column.indices.to_numpy()
        self.texts, self.name = keys["problem_id"]
        counts = pl.DataFrame(table.select(COUNTS), schema=dict.fromkeys(COUNTS, pl.Int64))
        self.binary = not counts["c"].null_count()
        pairs = distinct(*(counts[name].fill_null(0).to_numpy() for name in ("n", "c")))
        self.pairs = Distinct(pairs.n, pairs.c, pairs.place.astype(np.uint32))
        begins = np.zeros(table.num_rows, dtype=bool)
        for key in GROUP:
            begins |= np.diff(keys[key][1], prepend=-1) != 0
        first = np.flatnonzero(begins)
        named = {key: keys[key][0].gather(keys[key][1][first]) for key in GROUP}
        added = {name: np.add.reduceat(counts[name].to_numpy(), first) for name in ("n", "ungraded")}
        self.runs = pl.DataFrame({**named, **added, "len": np.diff(first, append=table.num_rows)})
        """Equal groups in sequence: which, what they add up to, and how many rows."""


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))
