"""Counts per problem with their keys as numbers, part by part.

The problems of a snapshot lie in parts: files of problem_counts, each with all models of its problems, in the order
of their keys. A million problems are a hundred groups times ten thousand names: texts are read once and become
numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics.chance import Words
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.distributions import Ints
from scorelake.schemas import COUNTS, GROUP, KEYS
from scorelake.storage.arrays import numbers

Codes = NDArray[np.uint32]
FOLDER = "problem_counts"
REMEMBERED = 1 << 21
"""Problems of parts that are kept: reading them again takes a fifth of a second for a million."""
Key = TypeVar("Key")
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Part:
    """The problems of one file, each group in one piece."""

    path: Path
    groups: pl.DataFrame
    """The distinct GROUP columns in their order; a row's number is its code."""
    starts: Ints
    """Where each group begins."""
    names: pl.Series
    """The distinct problem ids, in any order."""
    name: Codes
    """The number of each problem's id."""
    counts: pl.DataFrame
    """n, c and ungraded of each problem."""

    @classmethod
    def read(cls, path: Path) -> Part:
        """A part, from the disk unless it was read just now, whatever it is called since."""
        told = path.stat()
        known = _READ.get(file := (told.st_dev, told.st_ino, told.st_mtime_ns))
        if known is None:
            known = cls._read(path)
            _READ.keep(file, known, known.problems)
        return known if known.path == path else replace(known, path=path)

    @staticmethod
    def forget() -> None:
        _READ.clear()

    @classmethod
    def _read(cls, path: Path) -> Part:
        table = pq.ParquetFile(path, read_dictionary=list(KEYS)).read([*KEYS, *COUNTS], use_threads=False)
        keys: dict[str, tuple[pl.Series, NDArray[Any]]] = {}
        for key in KEYS:
            column: Any = table[key].unify_dictionaries().combine_chunks()
            keys[key] = pl.Series(column.dictionary, dtype=pl.String), numbers(column.indices)
        begins = np.zeros(table.num_rows, dtype=bool)
        for key in GROUP:
            begins |= np.diff(keys[key][1], prepend=-1) != 0
        starts = np.flatnonzero(begins)
        groups = pl.DataFrame({key: keys[key][0].gather(keys[key][1][starts]) for key in GROUP})
        names, name = keys[KEYS[-1]]
        counts = pl.DataFrame(table.select(COUNTS), schema=dict.fromkeys(COUNTS, pl.Int64))
        return cls(path, groups, starts, names, name.astype(np.uint32), counts)

    @property
    def problems(self) -> int:
        return self.counts.height

    @property
    def binary(self) -> bool:
        """There is a c; where there is none, it is 0 in the pairs."""
        return not self.counts["c"].null_count()

    @cached_property
    def pairs(self) -> Distinct:
        """The distinct (n, c), and which of them each problem has."""
        return distinct(*(self.counts[name].fill_null(0).to_numpy() for name in ("n", "c")))

    @cached_property
    def group(self) -> Ints:
        """The number of each problem's group."""
        group: Ints = np.repeat(np.arange(self.starts.size), np.diff(self.starts, append=self.problems))
        return group

    def label(self, columns: Sequence[str]) -> Ints:
        """For each group the place of its values in some columns among the different ones, from 0 on."""
        place: Ints = self.groups.select(pl.struct(columns).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
        return place

    def rows(self, groups: Ints) -> Ints:
        """The problems of some groups that were attempted."""
        ends = np.append(self.starts[1:], self.problems)
        every = np.concatenate([np.arange(self.starts[i], ends[i]) for i in groups])
        tried: Ints = every[self.counts["n"].to_numpy()[every] > 0]
        return tried

    def others(self, columns: Sequence[str]) -> pl.DataFrame:
        """More columns of the same problems, read now."""
        return pl.read_parquet(self.path, columns=list(columns), glob=False) if columns else pl.DataFrame()

    @cached_property
    def columns(self) -> list[str]:
        """All columns of the file."""
        return pq.read_schema(self.path).names

    @cached_property
    def places(self) -> Words:
        """A number for every problem id."""
        return hash_text(self.names)

    def different(self, label: Ints, rows: Ints | slice = slice(None)) -> Ints:
        """How many different problem ids the rows of each label have; there is a label for each row."""
        names, labels = max(1, self.names.len()), int(label.max(initial=-1)) + 1
        code = label * names + self.name[rows]
        if labels * names <= max(1 << 20, 4 * label.size):  # a table of flags is faster than a sort
            seen = np.zeros(labels * names, dtype=bool)
            seen[code] = True
            found: Ints = seen.reshape(labels, names).sum(axis=1)
            return found
        return np.bincount(np.unique(code) // names, minlength=labels)


class Recent(Generic[Key, Thing]):
    """Things of parts that a process has made last, since it may need them again: of so many problems at most."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, tuple[Thing, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Thing | None:
        with self._lock:
            return self._known[key][0] if key in self._known else None

    def keep(self, key: Key, thing: Thing, problems: int) -> None:
        with self._lock:
            self._known[key] = thing, problems
            while sum(many for _, many in self._known.values()) > REMEMBERED:
                self._known.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()


_READ: Recent[tuple[int, int, int], Part] = Recent()


@dataclass(frozen=True)
class Lines:
    """What the models of a board did on the problems of a part: each row is of one model and one problem."""

    rows: Ints
    """The rows of the part that are attempts under the protocol of the board."""
    group: Ints
    """Their groups."""
    problem: Ints
    """Their problems, numbered in the order of subjects."""
    spans: dict[str, tuple[int, int]]
    """Where the numbers of each subject begin, and where they end."""
    key: Words
    """A number of each problem's own, or of its cluster's."""


def lines(part: Part, groups: Ints, cluster: str | None) -> Lines | None:
    """The problems of some groups of a part; None where nothing was attempted."""
    rows = part.rows(groups)
    if not rows.size:
        return None
    group = part.group[rows]
    subjects = part.groups["subject"].gather(groups).unique().sort()
    of_group = np.zeros(part.groups.height, dtype=np.int64)
    of_group[groups] = part.groups["subject"].gather(groups).replace_strict(subjects, np.arange(subjects.len()))
    names = part.names.len()
    code = of_group[group] * names + part.name[rows]
    known, problem = numbered(code, subjects.len() * names)
    ends = np.searchsorted(known, names * np.arange(subjects.len() + 1)).tolist()
    spans = {text: (ends[i], ends[i + 1]) for i, text in enumerate(subjects) if ends[i] < ends[i + 1]}
    key = problem_hashes(hash_text(subjects)[known // names], part.places[known % names])
    if cluster is not None:
        model = part.groups["model"].rank("dense").to_numpy()[group]
        order = np.lexsort((model, problem))
        first = order[np.flatnonzero(np.diff(problem[order], prepend=-1))]
        key = cluster_keys(part.others([cluster]).to_series().gather(rows[first]), key)
    return Lines(rows, group, problem, spans, key)


def numbered(code: Ints, room: int) -> tuple[Ints, Ints]:
    """The different codes in their order, and for each code its place among them; all are below `room`."""
    if room > 4 * code.size:
        known, place = np.unique(code, return_inverse=True)
        return known, place
    seen = np.zeros(room, dtype=bool)  # a table of flags is faster than a sort
    seen[code] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[code]


def cluster_keys(values: pl.Series, alone: Words) -> Words:
    """One number for all problems of a cluster; a problem without one keeps its own."""
    names = values.cast(pl.String)
    return np.where(names.is_null().to_numpy(), alone, hash_text(names))


def paths(folder: Path) -> list[Path]:
    """The parts of a folder of problem_counts, in their order."""
    return sorted(folder.glob("*.parquet"))


@dataclass(frozen=True)
class Cells:
    """What metrics say of the problems of a part: once for all that have the same (n, c), or of each by itself."""

    place: Ints | None
    """The cell of each problem, in a list that all parts share; None where each has one of its own."""
    n: Ints
    """Attempts, for each cell."""
    values: Sequence[NDArray[np.float64]]
    """The finite values of each metric, NaN where undefined, for each cell."""

    def cell(self, rows: Ints) -> Ints:
        """The cells of some problems, by their numbers."""
        return rows if self.place is None else self.place[rows]


def name_texts(path: Path) -> pl.Series:
    """The problem ids of a part, in the order of their numbers there, and nothing else of it."""
    column: Any = pq.ParquetFile(path, read_dictionary=[KEYS[-1]]).read([KEYS[-1]], use_threads=False)[0]
    return pl.Series(column.unify_dictionaries().combine_chunks().dictionary, dtype=pl.String)
