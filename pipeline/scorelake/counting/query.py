"""The count query: one lazy Polars query per chunk of a shard, from rows of the lake to counts per problem.

This is the specification of counting. What a row means is in canonical.py; here rows are grouped by problem:

    concat(scan_verified(row groups)).select(canonical columns)
      .group_by(benchmark, subject, model, protocol, problem_id)
      .agg(counts by outcome | attempts as bits | attempts as lists)
      .sort(hash).sink_parquet(partial)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from scorelake.counting import kernel
from scorelake.counting.canonical import (
    CARRY_PREFIX,
    CATEGORIES,
    FAILED,
    MEASURE_PREFIX,
    OUTCOMES,
    PASSED,
    PROTOCOL_PREFIX,
    REJECTED,
    SCORED,
    UNGRADED,
    attempt_columns,
)
from scorelake.counting.protocols import in_microseconds, protocol_label
from scorelake.counting.scan import BITS_PER_WORD, LISTED, ROW, LakeFile, PartialLayout, RowGroups, scan_verified
from scorelake.hashing import hash_text, problem_hashes, subject_hashes
from scorelake.schemas import KEYS, NAMED
from scorelake.storage.disk import storage_errors

HASH, ORDER = "hash", "order"
"""The hash of the problem, and a number that rises in the order of all keys."""
MAX_WORDS = 4
_SMALL_NUMBERS = {str(number): number for number in range(BITS_PER_WORD * MAX_WORDS)}
SUPERTYPES: dict[Any, Any] = {pl.Int128: pl.Decimal(38, 0)}
"""What a carried integer becomes that is signed in one file and unsigned in another: Arrow has no Int128."""
NUMBERS, FLOATS = "Number", "Float32"
"""Sorts of carried values that are not types of Polars."""
_HAS = dict.fromkeys((FAILED, PASSED), "passed+score") | dict.fromkeys((UNGRADED, REJECTED), "") | {SCORED: "score"}
"""Which of verdict and score a row has, in files with both columns; otherwise passed."""


def layout_of(files: Sequence[LakeFile], ordered: bool) -> PartialLayout:
    """Choose the layout by the columns of all files.

    Attempts are kept as a list only where something depends on them: rewards, answers, gold, measures, the order of
    rows, attempt ids that are not small numbers. Small numbers are bits. Without attempt ids only counts are kept.
    """
    canonicals = [file.canonical for file in files]
    columns = {
        "attempt": any(c.attempt is not None for c in canonicals),
        "score": any(c.score is not None for c in canonicals),
        "answer": any(c.answer is not None for c in canonicals),
        "gold": any(c.gold is not None for c in canonicals),
    }
    measures = tuple(MEASURE_PREFIX + name for name in (canonicals[0].measures if canonicals else ()))
    if not any(columns.values()) and not measures:
        return PartialLayout()
    if not measures and not ordered and not any(columns[name] for name in ("score", "answer", "gold")):
        words = _words(files)
        if words:
            return PartialLayout(words)
    kept = columns | {"outcome": True, ROW: ordered and columns["attempt"]}
    return PartialLayout(lists=(*(name for name in LISTED if kept[name]), *measures))


def _words(files: Sequence[LakeFile]) -> int:
    """Words that hold all attempt numbers by the footers' statistics; 0 if some are missing, null or too large."""
    highest = 0
    for file in files:
        metadata, attempt = file.metadata, file.canonical.attempt
        name, value = (None, None) if attempt is None else (attempt.column, attempt.value)
        if name is None and value in _SMALL_NUMBERS:
            highest = max(highest, _SMALL_NUMBERS[value])
            continue
        if name is None or not file.schema[name].is_integer():
            return 0
        paths = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            if not group.num_rows:
                continue
            stats: Any = group.column(paths.index(name)).statistics
            if stats is None or not stats.has_min_max or not stats.has_null_count or stats.null_count:
                return 0
            if stats.min < 0 or stats.max >= BITS_PER_WORD * MAX_WORDS:
                return 0
            highest = max(highest, stats.max)
    return highest // BITS_PER_WORD + 1


def sort_of(kind: pl.DataType) -> str:
    """Return the sort of the values of a carried column; those of one sort are compared in their type."""
    if kind in (pl.Float16, pl.Float32):
        return FLOATS
    if kind in (pl.Categorical, pl.Enum, pl.Binary):
        return str(pl.String())
    return NUMBERS if kind.is_numeric() else str(in_microseconds(kind))


@dataclass
class RowTotals:
    """Rows of a partial by what became of them, filled while it is written."""

    counted: int = 0
    rejected: int = 0
    problems: int = 0
    benchmarks: set[tuple[str, str]] = field(default_factory=set)
    """Benchmarks of a chunk with what its rows have: passed, score, both or nothing."""

    def add(self, counts: pl.DataFrame, columns: str) -> None:
        """Add the counts of a chunk whose files have these columns."""
        self.problems += counts.height
        if columns == "passed+score":
            rows = counts.select("benchmark", "outcome").explode("outcome").unique()
            self.benchmarks |= {(name, _HAS.get(outcome, "passed")) for name, outcome in rows.iter_rows()}
        else:
            self.benchmarks |= {(name, columns) for name in counts["benchmark"].unique()}


def count_chunk(
    chunk: Sequence[RowGroups], layout: PartialLayout, path: Path, totals: RowTotals, use_kernel: bool
) -> None:
    """Count the rows of a chunk into a Parquet file."""
    graded = chunk[0].file.canonical.outcomes.removesuffix("+answer")
    options: dict[str, Any] = {"compression": "lz4", "row_group_size": 1 << 16}
    if use_kernel:
        with suppress(kernel.TooManyGroupsError):
            counts, attempts = kernel.count_rows(chunk, layout)
            rejected = sum(part.kept for part in chunk) - int(counts["rows"].sum())
            finished = finish(counts.with_columns(rejected=0), totals, graded, attempts)
            totals.rejected += rejected
            with storage_errors(path):
                finished.write_parquet(path, **options)
            return
    errors: list[BaseException] = []
    query = count_query(attempt_rows(chunk, layout, errors), layout)
    lazy = query.map_batches(lambda counts: finish(counts, totals, graded), schema=_schema(query.collect_schema()))
    try:
        lazy.sink_parquet(path, **options, engine="streaming")
    except Exception as error:
        raise errors[0] if errors else error from None  # what a reader raised, before Polars rewrote it


def attempt_rows(chunk: Sequence[RowGroups], layout: PartialLayout, errors: list[BaseException]) -> pl.LazyFrame:
    """One row per row of the lake, under canonical names."""
    frames = []
    for part in chunk:
        columns = attempt_columns(part.file.canonical, part.file.schema)
        if ROW in layout.lists:
            columns[ROW] = pl.col(ROW)
        frames.append(scan_verified(part, errors, layout).select(**columns))
    rows = pl.concat(frames, how="diagonal_relaxed").cast(SUPERTYPES)
    absent = set(layout.lists).difference(rows.collect_schema().names())  # these files have no such column
    return rows.with_columns(pl.lit(None, LISTED.get(name, pl.Float64())).alias(name) for name in absent)


def count_query(rows: pl.LazyFrame, layout: PartialLayout) -> pl.LazyFrame:
    """One row per problem, model and protocol: counts by outcome, and attempts as bits or lists."""
    names = rows.collect_schema().names()
    protocol = [name for name in names if name.startswith(PROTOCOL_PREFIX)]
    carried = [name.removeprefix(CARRY_PREFIX) for name in names if name.startswith(CARRY_PREFIX)]
    is_valid = pl.col("outcome") != REJECTED
    ends = {name: pl.col(CARRY_PREFIX + name).filter(is_valid) for name in carried}
    counts = rows.group_by(*NAMED, *protocol).agg(
        pl.len().cast(pl.Int64).alias("rows"),
        (~is_valid).sum().cast(pl.Int64).alias("rejected"),
        *_aggregates(layout, is_valid),
        *(values.min().alias(f"min:{name}") for name, values in ends.items()),
        *(values.max().alias(f"max:{name}") for name, values in ends.items()),
    )
    return counts.cast({cs.categorical() & cs.matches("^(min|max):"): pl.String})


def _aggregates(layout: PartialLayout, is_valid: pl.Expr) -> Iterator[pl.Expr]:
    outcome, attempt = pl.col("outcome"), pl.col("attempt")
    if layout.lists:
        yield from (pl.col(name).filter(is_valid) for name in layout.lists)
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
    keys = {HASH: pl.UInt64(), **{key: CATEGORIES[key] for key in KEYS}}
    others = {n: t for n, t in schema.items() if n not in NAMED and not n.startswith(PROTOCOL_PREFIX)}
    others.pop("rejected")
    return pl.Schema(keys | others)


def finish(
    counts: pl.DataFrame, totals: RowTotals, columns: str, attempts: kernel.Attempts | None = None
) -> pl.DataFrame:
    """Drop rejected rows, label protocols, add the hash of the problem and sort by it; then add attempts, if any."""
    counts = counts.with_columns(pl.col("rows") - pl.col("rejected"))
    totals.counted += int(counts["rows"].sum())
    totals.rejected += int(counts["rejected"].sum())
    counts = counts.filter(pl.col("rows") > 0).drop("rejected")
    protocol = [name for name in counts.columns if name.startswith(PROTOCOL_PREFIX)]
    counts = _label_protocols(counts, protocol)
    # a stable hash of benchmark, subject and problem_id: all models of a problem share it
    texts = [counts[key] for key in ("benchmark", "subject", "problem_id")]
    benchmark, subject, name = (per_code(each, hash_text) for each in texts)
    counts = counts.with_columns(pl.Series(HASH, problem_hashes(subject_hashes(benchmark, subject), name)))
    others = [n for n in counts.columns if n not in (HASH, *KEYS, *protocol)]
    counts = counts.select(HASH, *KEYS, *others).with_columns(pl.Series(ORDER, key_order(counts)))
    counts = counts.sort(HASH, ORDER).drop(ORDER)
    counts = counts if attempts is None else attempts.add_to(counts)
    totals.add(counts, columns)
    return counts


def _label_protocols(counts: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    if not columns:
        return counts.with_columns(protocol=pl.lit("").cast(CATEGORIES["protocol"]))
    distinct = counts.select(columns).unique()
    labels = [
        protocol_label({name.removeprefix(PROTOCOL_PREFIX): text for name, text in row.items()})
        for row in distinct.iter_rows(named=True)
    ]
    named = distinct.with_columns(pl.Series("protocol", labels, dtype=pl.String).cast(CATEGORIES["protocol"]))
    return counts.join(named, on=columns, how="left", nulls_equal=True)


def per_code(texts: pl.Series, function: Callable[[pl.Series], NDArray[Any]]) -> NDArray[Any]:
    """Apply a function to a categorical column, computed once per distinct text."""
    distinct = texts.unique()
    codes, values = distinct.to_physical().to_numpy(), function(distinct.cast(pl.String))
    table = np.zeros(int(codes.max(initial=0)) + 1, values.dtype)
    table[codes] = values
    out: NDArray[Any] = table[texts.to_physical().to_numpy()]
    return out


def key_order(rows: pl.DataFrame) -> NDArray[np.int64]:
    """A number per row that is equal for equal keys and rises in their order, since it sorts faster than texts."""
    order, limit = np.zeros(rows.height, np.int64), 1
    for key in KEYS:
        ranks = per_code(rows[key], lambda texts: texts.rank("dense").to_numpy().astype(np.int64))
        count = int(ranks.max(initial=0)) + 1
        if limit * count >= 1 << 62:
            order = np.unique(order, return_inverse=True)[1]
            limit = rows.height
        order, limit = order * count + ranks, limit * count
    return order
