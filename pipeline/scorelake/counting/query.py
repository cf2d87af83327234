"""The count query: one lazy Polars query per chunk of a shard, from rows of the lake to counts per problem.

This is the specification of counting. What a row means is in canonical.py; here rows are grouped by problem:

    concat(scan_verified(row groups)).select(canonical columns)
      .group_by(benchmark, subject, model, protocol, problem_id)
      .agg(counts by outcome | attempts as bits | attempts as lists)
      .sort(hash).sink_parquet(partial)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.counting.canonical import CARRY_PREFIX, PROTOCOL_PREFIX, attempt_columns, protocol_label
from scorelake.counting.outcomes import OUTCOMES, REJECTED
from scorelake.counting.scan import ROW, LakeFile, RowGroups, scan_verified
from scorelake.hashing import hash_text, problem_hashes, subject_hashes
from scorelake.schemas import KEYS, NAMED

HASH = "hash"
BITS_PER_WORD, MAX_WORDS = 64, 4
LISTED = ("attempt", "outcome", "score", "answer", ROW)
"""Columns that are kept as lists, one element per attempt, where counts alone do not say everything."""


@dataclass(frozen=True)
class PartialLayout:
    """What a partial keeps of the attempts of a problem, besides their number by outcome."""

    words: int = 0
    """64-bit words per outcome in which numbered attempts are bits; 0 if attempts are not kept as bits."""
    lists: tuple[str, ...] = ()
    """Columns of LISTED that are kept."""

    @property
    def bits(self) -> list[str]:
        return [f"{name}_bits_{word}" for name in OUTCOMES for word in range(self.words)]


def layout_of(files: Sequence[LakeFile], ordered: bool) -> PartialLayout:
    """Choose the layout by the columns of all files.

    Attempts are kept as a list only where something depends on them: rewards, answers, the order of rows, attempt
    ids that are not small numbers. Small numbers are bits. Without attempt ids only counts are kept.
    """
    canonicals = [file.canonical for file in files]
    columns = {
        "attempt": any(c.attempt is not None for c in canonicals),
        "score": any(c.score is not None for c in canonicals),
        "answer": any(c.answer is not None for c in canonicals),
    }
    if not any(columns.values()):
        return PartialLayout()
    if not ordered and not columns["score"] and not columns["answer"]:
        words = _words(files)
        if words:
            return PartialLayout(words)
    kept = columns | {"outcome": True, ROW: ordered and columns["attempt"]}
    return PartialLayout(lists=tuple(name for name in LISTED if kept[name]))


def _words(files: Sequence[LakeFile]) -> int:
    """Words that hold all attempt numbers by the footers' statistics; 0 if some are missing, null or too large."""
    highest = 0
    for file in files:
        for low, high, nulls in _attempt_statistics(file):
            if nulls or low is None or high is None or low < 0 or high >= BITS_PER_WORD * MAX_WORDS:
                return 0
            highest = max(highest, high)
    return highest // BITS_PER_WORD + 1


def _attempt_statistics(file: LakeFile) -> Iterator[tuple[int | None, int | None, int]]:
    """(min, max, nulls) of the attempt column for each row group."""
    metadata, name = file.metadata, file.canonical.attempt
    if name is None:
        yield None, None, 1
        return
    integer = file.schema[name].is_integer()
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            chunk = group.column(j)
            if chunk.path_in_schema == name and group.num_rows:
                statistics: Any = chunk.statistics
                if not integer or statistics is None or not statistics.has_min_max:
                    yield None, None, 1
                else:
                    nulls = statistics.null_count if statistics.has_null_count else 1
                    yield int(statistics.min), int(statistics.max), nulls


@dataclass
class RowTotals:
    """Rows of a partial by what became of them, filled while it is written."""

    counted: int = 0
    rejected: int = 0
    problems: int = 0


def count_chunk(
    chunk: Sequence[RowGroups], layout: PartialLayout, path: Path, totals: RowTotals, errors: list[BaseException]
) -> None:
    """Count the rows of a chunk into a Parquet file."""
    with_row = ROW in layout.lists
    frames = []
    for part in chunk:
        columns = attempt_columns(part.file.canonical, part.file.schema)
        if with_row:
            columns[ROW] = pl.col(ROW)
        frames.append(scan_verified(part, with_row, errors).select(**columns))
    rows = pl.concat(frames, how="diagonal_relaxed")
    names = rows.collect_schema().names()
    keys = [*NAMED, *(name for name in names if name.startswith(PROTOCOL_PREFIX))]
    counts = rows.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("rows"),
        (pl.col("outcome") == REJECTED).sum().cast(pl.Int64).alias("rejected"),
        *_aggregates(layout),
        *(pl.col(name).min().alias(name.replace(CARRY_PREFIX, "min:")) for name in _carried(names)),
        *(pl.col(name).max().alias(name.replace(CARRY_PREFIX, "max:")) for name in _carried(names)),
    )
    schema = _schema(counts.collect_schema())
    finished = counts.map_batches(lambda frame: finish(frame, totals), schema=schema)
    finished.sink_parquet(path, compression="lz4", row_group_size=1 << 16, engine="streaming")


def _carried(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(CARRY_PREFIX)]


def _aggregates(layout: PartialLayout) -> Iterator[pl.Expr]:
    outcome, attempt = pl.col("outcome"), pl.col("attempt")
    if layout.lists:
        yield from (pl.col(name) for name in layout.lists)
        return
    for name, number in OUTCOMES.items():
        if not layout.words:
            yield (outcome == number).sum().cast(pl.Int64).alias(name)
        for word in range(layout.words):
            mine = (outcome == number) & (attempt // BITS_PER_WORD == word)
            bit = pl.lit(2, pl.UInt64).pow((attempt % BITS_PER_WORD).cast(pl.UInt32))
            yield pl.when(mine).then(bit).otherwise(pl.lit(0, pl.UInt64)).bitwise_or().alias(f"{name}_bits_{word}")


def _schema(schema: pl.Schema) -> pl.Schema:
    """The schema that `finish` returns."""
    keys = {HASH: pl.UInt64(), **dict.fromkeys(KEYS, pl.String())}
    others = {n: t for n, t in schema.items() if n not in NAMED and not n.startswith(PROTOCOL_PREFIX)}
    others.pop("rejected")
    return pl.Schema(keys | others)


def finish(counts: pl.DataFrame, totals: RowTotals) -> pl.DataFrame:
    """Drop rejected rows, label protocols, add the hash of the problem and sort by it."""
    counts = counts.with_columns(pl.col("rows") - pl.col("rejected"))
    totals.counted += int(counts["rows"].sum())
    totals.rejected += int(counts["rejected"].sum())
    counts = counts.filter(pl.col("rows") > 0).drop("rejected").with_columns(pl.col(NAMED).cast(pl.String))
    totals.problems += counts.height
    protocol = [name for name in counts.columns if name.startswith(PROTOCOL_PREFIX)]
    counts = _label_protocols(counts, protocol)
    counts = counts.with_columns(pl.Series(HASH, bucket_hashes(counts)))
    others = [n for n in counts.columns if n not in (HASH, *KEYS, *protocol)]
    return counts.select(HASH, *KEYS, *others).sort(HASH, *KEYS)


def _label_protocols(counts: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    if not columns:
        return counts.with_columns(protocol=pl.lit(""))
    distinct = counts.select(columns).unique()
    labels = [
        protocol_label({name.removeprefix(PROTOCOL_PREFIX): text for name, text in row.items()})
        for row in distinct.iter_rows(named=True)
    ]
    named = distinct.with_columns(pl.Series("protocol", labels, dtype=pl.String))
    return counts.join(named, on=columns, how="left", nulls_equal=True)


def bucket_hashes(problems: pl.DataFrame) -> Any:
    """A stable hash of benchmark, subject and problem_id: all models of a problem share it."""
    return problem_hashes(subject_hashes(problems["benchmark"], problems["subject"]), hash_text(problems["problem_id"]))
