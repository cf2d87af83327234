"""The count query: one lazy Polars query per chunk of a shard, from rows of the lake to counts per problem.

This is the specification of counting. What a row means is in canonical.py; here rows are grouped by problem:

    concat(scan_verified(row groups)).select(canonical columns)
      .group_by(benchmark, subject, model, protocol, problem_id)
      .agg(counts by outcome | attempts as bits | attempts as lists)
      .sort(hash)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from scorelake.counting import kernel
from scorelake.counting.canonical import (
    CARRY_PREFIX,
    CATEGORIES,
    MEASURE_PREFIX,
    OUTCOMES,
    PROTOCOL_PREFIX,
    REJECTED,
    attempt_columns,
)
from scorelake.counting.protocols import in_microseconds, protocol_label
from scorelake.counting.scan import BITS_PER_WORD, LISTED, ROW, LakeFile, PartialLayout, RowGroups, scan_verified
from scorelake.hashing import hash_text, problem_hashes, subject_hashes
from scorelake.schemas import KEYS, NAMED

HASH, ORDER = "hash", "order"
"""The hash of the problem, and a number that rises in the order of all keys."""
MAX_WORDS = 4
SUPERTYPES: dict[Any, Any] = {pl.Int128: pl.Decimal(38, 0)}
"""What a carried integer becomes that is signed in one file and unsigned in another: Arrow has no Int128."""
_SMALL_NUMBERS = {str(number): number for number in range(BITS_PER_WORD * MAX_WORDS)}
NUMBERS, FLOATS = "Number", "Float32"
"""Sorts of carried values that are not types of Polars."""


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


def count_chunk(chunk: Sequence[RowGroups], layout: PartialLayout, use_kernel: bool) -> pl.DataFrame:
    """Count the rows of a chunk that are not rejected: a row per problem, in the order of the problems' hashes."""
    if use_kernel:
        with suppress(kernel.TooManyGroupsError):
            return _finish(*kernel.count_rows(chunk, layout))
    errors: list[BaseException] = []
    try:
        return _finish(count_query(attempt_rows(chunk, layout, errors), layout).collect(engine="streaming"))
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
        is_valid.sum().cast(pl.Int64).alias("rows"),
        *_aggregates(layout, is_valid),
        *(values.min().alias(f"min:{name}") for name, values in ends.items()),
        *(values.max().alias(f"max:{name}") for name, values in ends.items()),
    )
    return counts.filter(pl.col("rows") > 0).cast({cs.categorical() & cs.matches("^(min|max):"): pl.String})


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


def _finish(counts: pl.DataFrame, attempts: kernel.Attempts | None = None) -> pl.DataFrame:
    """Label protocols, add the hash of the problem and sort by it; then add attempts, if any."""
    protocol = [name for name in counts.columns if name.startswith(PROTOCOL_PREFIX)]
    counts = _label_protocols(counts, protocol)
    # a stable hash of benchmark, subject and problem_id: all models of a problem share it
    texts = [counts[key] for key in ("benchmark", "subject", "problem_id")]
    benchmark, subject, name = (per_code(each, hash_text) for each in texts)
    counts = counts.with_columns(pl.Series(HASH, problem_hashes(subject_hashes(benchmark, subject), name)))
    others = [n for n in counts.columns if n not in (HASH, *KEYS, *protocol)]
    counts = counts.select(HASH, *KEYS, *others)[_by_problem(counts)]
    return counts if attempts is None else attempts.add_to(counts)


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


def _by_problem(counts: pl.DataFrame) -> NDArray[np.intp]:
    """Return the order of hashes, then of models and protocols.

    Two sorts of 64 bits take 50 ns per row of a million, where a sort by two columns takes 170.
    """
    hashes, of_model = counts[HASH].to_numpy(), key_order(counts, ("model", "protocol"))
    order = np.argsort(hashes)
    problem = np.cumsum(kernel.changes(hashes[order]))
    out: NDArray[np.intp] = order[np.argsort(problem * (of_model.max(initial=0) + 1) + of_model[order])]
    return out


def per_code(texts: pl.Series, function: Callable[[pl.Series], NDArray[Any]]) -> NDArray[Any]:
    """Apply a function to a categorical column, computed once per distinct text."""
    codes = texts.to_physical().to_numpy()
    is_used = np.zeros(int(codes.max(initial=0)) + 1, np.bool_)
    is_used[codes] = True
    distinct = np.flatnonzero(is_used)
    values = function(pl.Series(distinct.astype(np.uint32)).cat.to(texts.dtype).cast(pl.String))
    table = np.zeros(is_used.size, values.dtype)
    table[distinct] = values
    out: NDArray[Any] = table[codes]
    return out


def key_order(rows: pl.DataFrame, keys: Sequence[str] = KEYS) -> NDArray[np.int64]:
    """A number per row that is equal for equal keys and rises in their order, since it sorts faster than texts."""
    order, limit = np.zeros(rows.height, np.int64), 1
    for key in keys:
        ranks = per_code(rows[key], lambda texts: texts.rank("dense").to_numpy().astype(np.int64))
        count = int(ranks.max(initial=0)) + 1
        if limit * count >= 1 << 62:
            order = np.unique(order, return_inverse=True)[1]
            limit = rows.height
        order, limit = order * count + ranks, limit * count
    return order
