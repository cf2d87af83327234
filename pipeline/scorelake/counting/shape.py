"""What a shard's files are like: which columns they have, and so what a row must be told apart by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.counting.columns import Canonical
from scorelake.counts import MOST_WORDS, WORD
from scorelake.storage import parquet
from scorelake.storage.files import File


@dataclass(frozen=True)
class Shape:
    """What a row has besides its problem and its outcome."""

    carried: bool
    scored: bool
    answered: bool
    told: bool
    """Attempts are told apart."""
    ordered: bool
    """Rows keep their place in the lake."""
    words: int
    """Words of 64 attempts that are held as bits."""

    @property
    def width(self) -> int:
        """Words that tell problems apart: the problem, and its carried values."""
        return 1 + self.carried

    @property
    def extra(self) -> int:
        """Words that a row has besides: reward and answer."""
        return self.scored + 2 * self.answered

    @property
    def spelled(self) -> int:
        """The same with the attempt, and its place, spelled out."""
        return 2 + self.extra + self.ordered


@dataclass(frozen=True)
class Opened:
    """A file whose footer could be read and whose columns are understood."""

    file: File
    number: int
    """Its place in the shard."""
    path: str
    told: pq.FileMetaData
    canonical: Canonical

    @property
    def rows(self) -> int:
        return int(self.told.num_rows)


def shape_of(files: Sequence[Opened], ordered: bool) -> Shape:
    """What has to be told apart, by the columns of all files."""
    some = [opened.canonical for opened in files]
    told = any(each.attempt for each in some)
    return Shape(
        carried=any(each.carried for each in some),
        scored=any(each.score is not None for each in some),
        answered=any(each.answer for each in some),
        told=told,
        ordered=told and ordered,
        words=0 if ordered or not told else _words(files),
    )


def _words(files: Sequence[Opened]) -> int:
    """How many words hold the attempt numbers as bits. A guess: numbers that do not fit are spelled out."""
    ends = [end for opened in files for end in _ends(opened)]
    if any(end is None for end in ends):
        return MOST_WORDS
    numbers = [end for end in ends if isinstance(end, int)]
    if not numbers:
        return 1
    low, high = min(numbers), max(numbers)
    return 0 if low >= WORD * MOST_WORDS else min(MOST_WORDS, max(0, high) // WORD + 1)


def _ends(opened: Opened) -> Iterator[int | str | None]:
    """The ends of a file's attempt numbers by its own statistics; None where they are not told, "" for texts."""
    told, name = opened.told, opened.canonical.attempt
    for i in range(told.num_row_groups):
        for j in range(told.num_columns):
            chunk = told.row_group(i).column(j)
            if chunk.path_in_schema == name and told.row_group(i).num_rows:
                known: Any = chunk.statistics
                if chunk.physical_type not in ("INT32", "INT64"):
                    yield ""
                elif known is None or not known.has_min_max:
                    yield None
                else:
                    yield from (int(known.min), int(known.max))


@dataclass
class Tallied:
    """How many rows were read, and how many of them were bad."""

    read: int = 0
    bad: int = 0


def batches(opened: Opened, groups: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of some row groups, each with the number of its first row in the file."""
    at = sum(opened.told.row_group(i).num_rows for i in range(groups[0]))
    for batch in parquet.batches(opened.path, opened.told, groups, opened.canonical.columns):
        yield at, batch
        at += batch.num_rows
