"""Part of stage 2: how many attempts of a problem gave each answer, and how many of those passed; what votes need.

A query of its own beside the counts, only where the lake has answers and a vote is wanted. A partial holds one row
per problem and answer, so partials add up like counts do. Once all are added up nobody asks what an answer said:
two lists per problem remain, attempts and passes of its answers.

An attempt that is not graded has no vote. One without an answer (null, NaN) is in no row here: it is what n has more
than the answers. One text may have passed and failed; both are counted, and metrics.vote says what it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake import duplicates
from scorelake.tables import KEYS
from scorelake.tally import tally

ANSWER = "answer"
LISTS = ("answer_counts", "answer_passes")
LONGEST = 64
"""Bytes of an answer kept as they are; of a longer one its beginning and 128 bits of hash."""
_BEGINNING = 30


def usable(kind: pl.DataType) -> bool:
    """A type whose values are the same answer when they read the same."""
    return kind.is_numeric() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Boolean, pl.Null)


def text(name: str, kind: pl.DataType) -> pl.Expr:
    """What tells an answer from others, null where there is none; never much longer than LONGEST bytes."""
    value = pl.col(name)
    if kind.is_float():
        value = pl.when(value == 0).then(0.0).otherwise(value.fill_nan(None))  # one zero, not two
    whole = value.cast(pl.String)
    long = pl.when(whole.str.len_bytes() > LONGEST).then(whole)
    hashes = [
        pl.when(long.is_not_null()).then(long.hash(seed)).cast(pl.String).str.zfill(20) for seed in (1, 1001)
    ]  # the digest of a long answer is longer than LONGEST, so no short one looks like it
    return pl.coalesce(pl.concat_str(long.str.head(_BEGINNING), *hashes), whole).alias(ANSWER)


def count(frames: Sequence[pl.LazyFrame], heights: Sequence[int], words: int) -> pl.DataFrame:
    """Attempts and passes per key and answer, over canonical attempts with the answer among them.

    With `words`, the sums of duplicates.py too: they say which attempts gave the answer, graded or not.
    """
    outcome = ("_bad", "_graded", "_passed", *(["_number"] if words else []))
    keys = pl.exclude("^_.*$", "^carry:.*$")
    counted = tally([frame.select(keys, *outcome) for frame in frames], heights, words)
    told = pl.col("rows") > pl.col("bad") if words else pl.col("n") > 0
    return counted.filter(pl.col(ANSWER).is_not_null() & told).drop("rows", "bad")


def add_up(parts: Sequence[pl.LazyFrame]) -> pl.DataFrame:
    """Rows of several partials -> one row per problem with its two lists, the most common answer first."""
    none = pl.LazyFrame(schema={**dict.fromkeys((*KEYS, ANSWER), pl.String), "n": pl.Int64, "c": pl.Int64})
    rows = pl.concat([none, *(part.select(*KEYS, ANSWER, "n", "c") for part in parts)])
    return lists(rows.group_by(*KEYS, ANSWER).agg(pl.col("n", "c").sum()).filter(pl.col("n") > 0)).collect()


def lists(rows: pl.LazyFrame) -> pl.LazyFrame:
    """From one row per problem and answer to one row per problem."""
    ordered = [pl.col(name).sort_by("n", "c", descending=True) for name in ("n", "c")]
    return rows.group_by(KEYS).agg(e.alias(name) for e, name in zip(ordered, LISTS, strict=True))


def with_lists(counts: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """The counts with their problems' lists, empty where nobody gave an answer."""
    joined = counts.join(found, on=KEYS, how="left", nulls_equal=True)
    return joined.with_columns(pl.col(name).fill_null(pl.lit([], pl.List(pl.Int64))) for name in LISTS)


def spell_out(attempts: pl.DataFrame, rows: pl.DataFrame, words: int) -> pl.DataFrame:
    """Attempts spelled out from the sums of a partial, each with the answer it gave."""
    said = duplicates.spell_out(rows, words, [ANSWER]).select(*KEYS, "attempt", ANSWER)
    told = attempts.join(said, on=[*KEYS, "attempt"], how="left", nulls_equal=True)
    kinds = (("pass", pl.col("passes") > 0), ("fail", pl.col("fails") > 0))
    ends = [pl.when(ours).then(ANSWER).alias(f"{kind}_{end}") for kind, ours in kinds for end in ("low", "high")]
    return told.with_columns(ends).drop(ANSWER)
