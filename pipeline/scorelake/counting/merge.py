"""Merge: a lazy query per bucket adds the partial counts of its problems and resolves duplicate attempts.

A bucket is a range of problem hashes, with all models of its problems. The number of buckets is a function of the
lake only, so that sums over buckets come to the same bits for any memory, thread count and engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from scorelake.counting.attempt_order import OrderSums, keep_first, order_sums
from scorelake.counting.attempt_values import OrderedAttempts, with_answers, with_gold, with_measure, with_rewards
from scorelake.counting.canonical import (
    CATEGORIES,
    FAILED,
    MEASURE_PREFIX,
    OUTCOMES,
    PASSED,
    REJECTED,
    SCORED,
    UNGRADED,
    UNSCORED,
)
from scorelake.counting.duplicates import PROBLEM, resolve
from scorelake.counting.partials import Kind, Partial, benchmark_kinds
from scorelake.counting.protocols import protocol_expr
from scorelake.counting.query import FLOATS, HASH, NUMBERS, ORDER, SUPERTYPES, key_order, sort_of
from scorelake.counting.scan import BITS_PER_WORD, FILE_SHIFT, LISTED, ROW
from scorelake.metrics.costs import budget_edges
from scorelake.schemas import COUNTS, EARLIER, KEYS, LISTS
from scorelake.settings import GOLD_COLUMNS, MEASURE_COLUMNS
from scorelake.storage.disk import remove, storage_errors, temp_path

SORT = "\0"
"""Between the name of a carried column and the sort of its values."""
ROWS_PER_BUCKET, MAX_BUCKETS = 1 << 21, 1 << 12
_HASHES, _EXAMPLES = 1 << 64, 5
_FILE: dict[str, Any] = {
    "use_dictionary": list(KEYS),
    "column_encoding": dict.fromkeys(COUNTS, "DELTA_BINARY_PACKED"),
    "write_statistics": False,  # a third of the work, and no query would skip a row group by them
    "dictionary_pagesize_limit": 1 << 28,
    "store_schema": False,  # dictionary codes are texts to every reader
}


@dataclass(frozen=True)
class Bucket:
    """Merge one range of problem hashes of every partial into one file of problem counts."""

    folder: str
    partials: tuple[Partial, ...]
    low: int
    high: int
    path: str
    rule: str
    """Which of several verdicts for one attempt counts."""
    kinds: dict[str, Kind]
    """What the attempts of each benchmark have."""
    ungraded_score: float | None = None
    """The score of an attempt without one, where ungraded attempts are failed ones."""
    measures: tuple[tuple[str, int], ...] = ()
    """Measures, and where the bins of each start."""
    gold: bool = False
    """Some attempts have a trusted grade."""
    smallest_n: tuple[tuple[str, str, str, int], ...] | None = None
    """With sampling = "first": of benchmark, model and protocol, how many attempts of each problem count."""

    @property
    def weight(self) -> int:
        """Rows of the lake in the bucket, approximately."""
        return int(sum(p.counted for p in self.partials) * (self.high - self.low + 1) / _HASHES) + 1

    @property
    def scores(self) -> bool:
        return any(kind.scores for kind in self.kinds.values())

    @property
    def answers(self) -> bool:
        return any(kind.answers for kind in self.kinds.values())

    def of_kind(self, test: Callable[[Kind], bool]) -> pl.Expr:
        """Return whether a problem is of a benchmark whose kind passes a test."""
        names = [name for name, kind in self.kinds.items() if test(kind)]
        return pl.col("benchmark").is_in(pl.Series(names, dtype=CATEGORIES["benchmark"]).implode())


@dataclass(frozen=True)
class Merged:
    """Totals of one bucket."""

    rows: int
    problems: int
    graded: int
    ungraded: int
    duplicates: int
    conflicts: int
    examples: tuple[tuple[str, ...], ...]
    """Keys and attempt of the first few conflicts."""
    differing: dict[str, int]
    """For each carried column, how many problems have more than one value."""
    order: OrderSums = field(default_factory=dict)
    """What the order of attempts says of retries."""


def bucket_count(rows: int, rows_per_bucket: int | None = None) -> int:
    """Return the number of buckets of a lake with so many rows that are not rejected."""
    return min(MAX_BUCKETS, 1 << (max(0, rows - 1) // (rows_per_bucket or ROWS_PER_BUCKET)).bit_length())


def plan_buckets(
    folder: Path,
    partials: Sequence[Partial],
    out: Path,
    rule: str,
    answers: bool = False,
    rows_per_bucket: int = ROWS_PER_BUCKET,
    ungraded_score: float | None = None,
    measures: tuple[tuple[str, int], ...] = (),
    gold: bool = False,
) -> list[Bucket]:
    """Cut the hashes into a power of two of equal ranges, by the number of rows of the lake alone."""
    kinds = benchmark_kinds(partials, answers)
    count = bucket_count(sum(partial.counted for partial in partials), rows_per_bucket)
    edges = [_HASHES * i // count for i in range(count + 1)]
    ordered = rule in ("first", "last")  # only then are the files of a partial needed
    filled = tuple(
        replace(partial, files=partial.files if ordered else (), rejects=(), quarantine=(), outcomes=())
        for partial in partials
        if partial.counted
    )
    return [
        Bucket(
            *(str(folder), filled, low, high - 1, str(out / f"part-{i:05d}.parquet"), rule),
            *(kinds, ungraded_score, measures, gold),
        )
        for i, (low, high) in enumerate(pairwise(edges))
    ]


def merge(bucket: Bucket) -> Merged:
    """Add the counts of one bucket and write its problems in the order of their keys."""
    rows = _read(bucket) if bucket.partials else pl.DataFrame()
    if not rows.height:
        return Merged(0, 0, 0, 0, 0, 0, (), {})
    ends = [name for name in rows.columns if name.startswith(("min:", "max:"))]
    carried = list(dict.fromkeys(name.removeprefix("min:").partition(SORT)[0] for name in ends if name[:4] == "min:"))
    bits = [name for name in rows.columns if "_bits_" in name]
    has_lists = "outcome" in rows.columns
    problems = _join_sorts(_add_partials(rows, bits, ends), carried)
    if bucket.smallest_n is not None:
        problems = keep_first(problems, bits, bucket.smallest_n)
    frame = _from_counts(problems, bits, bucket.rule)
    conflicts = _bit_conflicts(problems, bits)
    if has_lists:
        listed = _with_verdicts(_listed_rows(rows, problems, bits), problems, bucket)
        attempts, repeated = resolve(listed, bucket.rule, bucket.answers)
        conflicts = pl.concat([conflicts.join(problems.filter("listed"), on=PROBLEM, how="anti"), repeated])
        frame = _add_lists(frame, problems, attempts, bucket)
    frame = frame.with_columns(duplicates=pl.col("rows") - pl.col("n") - pl.col("ungraded"))
    frame = frame.with_columns(problems[f"min:{name}"].alias(name) for name in carried)
    if not all(kind.verdicts for kind in bucket.kinds.values()):
        frame = frame.with_columns(pl.when(bucket.of_kind(lambda kind: kind.verdicts)).then("c"))
    measured = [f"{name}_{end}" for name, _ in bucket.measures for end in MEASURE_COLUMNS]
    _write(frame, [*carried, *measured, *(GOLD_COLUMNS if bucket.gold else ())], bucket.path)
    named = conflicts.join(problems.select(PROBLEM, *KEYS), on=PROBLEM).select(*KEYS, "attempt")
    shown = named.sort(pl.all()).head(_EXAMPLES).iter_rows()
    return Merged(
        rows=int(frame["rows"].sum()),
        problems=frame.height,
        graded=int(frame["n"].sum()),
        ungraded=int(frame["ungraded"].sum()),
        duplicates=int(frame["duplicates"].sum()),
        conflicts=conflicts.height,
        examples=tuple((*keys, str(number) if abs(number) < 1 << 48 else "(a text id)") for *keys, number in shown),
        order=order_sums(problems, bits, bucket.rule) if bits else {},
        differing={name: int(problems[f"differs:{name}"].sum()) for name in carried},
    )


def _add_partials(rows: pl.DataFrame, bits: Sequence[str], ends: Sequence[str]) -> pl.DataFrame:
    """One row per problem, in the order of its keys: counts added, bits united, carried values at their ends."""
    counts = [name for name in ("rows", *OUTCOMES) if name in rows.columns]
    is_listed = [pl.col("outcome").is_not_null().alias("listed")] if "outcome" in rows.columns else []
    problems = rows.select(ORDER, *KEYS, pl.col(*counts, *bits).fill_null(0), *ends, *is_listed).sort(ORDER)
    if not (problems[ORDER].diff() > 0).all():  # a problem is in two partials
        problems = problems.group_by(ORDER, maintain_order=True).agg(
            pl.col(KEYS).first(),
            pl.col(counts).sum(),
            pl.col(bits).bitwise_or(),
            *(getattr(pl.col(name), name[:3])() for name in ends),
            *([pl.col("listed").any()] if is_listed else []),
        )
    return problems.with_row_index(PROBLEM)


def _read(bucket: Bucket) -> pl.DataFrame:
    """The bucket's rows of every partial; positions of rows refer to the order of all files of the lake."""
    order = sorted({file.path for partial in bucket.partials for file in partial.files})
    rank = {path: i for i, path in enumerate(order)}
    frames = []
    for partial, chunk in ((each, chunk) for each in bucket.partials for chunk in each.chunks):
        path = Path(bucket.folder) / partial.name / chunk
        part = pl.scan_parquet(path, glob=False).filter(pl.col(HASH).is_between(bucket.low, bucket.high))
        if ROW in part.collect_schema():
            ranks = pl.Series([rank[file.path] for file in partial.files], dtype=pl.UInt64)
            number, row = pl.element() // (1 << FILE_SHIFT), pl.element() % (1 << FILE_SHIFT)
            lake_row = number.replace_strict(pl.int_range(ranks.len(), eager=True), ranks) * (1 << FILE_SHIFT) + row
            part = part.with_columns(pl.col(ROW).list.eval(lake_row.cast(pl.UInt64)))
        frames.append(part)
    rows = pl.concat(_split_sorts(frames), how="diagonal_relaxed").cast(SUPERTYPES).collect(engine="streaming")
    wanted = ["score"] * bucket.scores + ["answer"] * bucket.answers + ["gold"] * bucket.gold
    absent = set(["outcome", *wanted] if wanted else []).difference(rows.columns)  # all buckets have the same columns
    rows = rows.with_columns(pl.lit(None, pl.List(LISTED[name])).alias(name) for name in sorted(absent))
    return rows.with_columns(pl.Series(ORDER, key_order(rows)))


def _split_sorts(frames: Sequence[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """Give carried values of several sorts a column per sort, whose smallest is the same however the lake is cut."""
    schemas = [frame.collect_schema() for frame in frames]
    ends = {name for schema in schemas for name in schema if name.startswith(("min:", "max:"))}
    sorts = {name: {sort_of(schema[name]) for schema in schemas} - {"Null"} for name in ends}
    mixed = [name for name in sorted(ends) if len(sorts[name]) > 1]
    out = []
    for frame, schema in zip(frames, schemas, strict=True):
        floats = [name for name in mixed if schema[name].is_float()]
        as_written = frame.with_columns(
            pl.col(floats).cast(pl.String).cast(pl.Float64).fill_nan(None)
        )  # 32-bit 0.1: 0.1
        own = {name: NUMBERS if name in floats else sort_of(schema[name]) for name in mixed}
        out.append(as_written.rename({n: f"{n}{SORT}{own[n]}" for n in mixed if sorts[n] != {NUMBERS, FLOATS}}))
    return out


def _join_sorts(problems: pl.DataFrame, carried: Sequence[str]) -> pl.DataFrame:
    """Keep the smallest carried value (a number, if any; a text, if sorts are mixed), and whether others differ."""
    for name in carried:
        least, most = (
            [c for c in problems.columns if c.partition(SORT)[0] == f"{end}:{name}"] for end in ("min", "max")
        )
        least.sort(key=lambda column: (column.partition(SORT)[2] != NUMBERS, column))
        if len(least) > 1:
            problems = problems.with_columns(protocol_expr(pl.col(*least, *most)))
        differs = pl.max_horizontal(least + most) != pl.min_horizontal(least + most)
        value = pl.coalesce(least).alias(f"min:{name}")
        problems = problems.with_columns(differs.alias(f"differs:{name}"), value)
    return problems


def _words(bits: Sequence[str], name: str) -> list[pl.Expr]:
    return [pl.col(column) for column in bits if column.startswith(f"{name}_bits_")]


def _from_counts(problems: pl.DataFrame, bits: Sequence[str], rule: str) -> pl.DataFrame:
    """n, c and ungraded from counts by outcome and from attempts as bits; bits resolve duplicates by themselves."""
    n, c, ungraded = (pl.lit(0, pl.Int64) for _ in range(3))
    if "passed" in problems.columns:
        n, c, ungraded = pl.col("passed") + pl.col("failed"), pl.col("passed"), pl.col("ungraded")
    for passed, failed, blank in zip(*(_words(bits, name) for name in OUTCOMES), strict=True):
        graded, right = passed | failed, passed & ~failed if rule == "all-pass" else passed
        ones = [word.bitwise_count_ones().cast(pl.Int64) for word in (graded, right, blank & ~graded)]
        n, c, ungraded = n + ones[0], c + ones[1], ungraded + ones[2]
    return problems.select(*KEYS, "rows", n=n, c=c, ungraded=ungraded)


def _bit_conflicts(problems: pl.DataFrame, bits: Sequence[str]) -> pl.DataFrame:
    """Attempts with two verdicts."""
    if not bits:
        return pl.DataFrame(schema={PROBLEM: pl.UInt32, "attempt": pl.Int64})
    both = [p & f for p, f in zip(*(_words(bits, name) for name in ("passed", "failed")), strict=True)]
    return _numbers_of(problems.filter(pl.any_horizontal(word != 0 for word in both)), both)


def _numbers_of(problems: pl.DataFrame, words: Sequence[pl.Expr]) -> pl.DataFrame:
    """One row per set bit: the problem and the number of the attempt."""
    numbers = pl.DataFrame({"attempt": np.arange(BITS_PER_WORD * len(words))}, schema={"attempt": pl.Int64})
    bit = pl.lit(2, pl.UInt64).pow((pl.col("attempt") % BITS_PER_WORD).cast(pl.UInt32))
    word = pl.coalesce(pl.when(pl.col("attempt") // BITS_PER_WORD == i).then(f"_{i}") for i in range(len(words)))
    single = problems.select(PROBLEM, *(each.alias(f"_{i}") for i, each in enumerate(words)))
    return single.join(numbers, how="cross").filter(word & bit != 0).select(PROBLEM, "attempt")


def _listed_rows(rows: pl.DataFrame, problems: pl.DataFrame, bits: Sequence[str]) -> pl.DataFrame:
    """One row per row of the lake, of the problems whose attempts are lists in some partial."""
    names = [name for name in rows.columns if name in LISTED or name.startswith(MEASURE_PREFIX)]
    lists = rows.filter(pl.col("outcome").is_not_null()).select(ORDER, *names)
    # a partial whose files lack a column has no lists of it
    null = pl.when(pl.element() > UNSCORED + PASSED).then(pl.element())
    nulls = {name: pl.col("outcome").list.eval(null.cast(LISTED.get(name, pl.Float64()))) for name in names}
    lists = lists.with_columns(pl.coalesce(name, nulls[name]) for name in names if lists[name].null_count())
    index = np.searchsorted(problems[ORDER].to_numpy(), lists[ORDER].to_numpy()).astype(np.uint32)
    owner = pl.Series(PROBLEM, np.repeat(index, lists["outcome"].list.len().to_numpy()))
    frames = [lists.select(names).explode(names).with_columns(owner)]
    for name, number in OUTCOMES.items() if bits else ():
        bits_of = _numbers_of(problems.filter("listed"), _words(bits, name))
        frames.append(bits_of.with_columns(outcome=pl.lit(number, pl.UInt8)))
    return pl.concat(frames, how="diagonal_relaxed")


def _with_verdicts(attempts: pl.DataFrame, problems: pl.DataFrame, bucket: Bucket) -> pl.DataFrame:
    """Decide which attempts are graded where only some of a benchmark's have both verdict and score."""
    fill = bucket.ungraded_score
    if fill is None and (attempts["outcome"].max() or 0) <= UNGRADED:  # type: ignore[operator]
        return attempts
    flags = problems.select(
        both=bucket.of_kind(lambda kind: kind.verdicts and kind.scores),
        scores=bucket.of_kind(lambda kind: kind.scores),
        answers=bucket.of_kind(lambda kind: kind.answers),
    )[attempts[PROBLEM]]
    outcome = pl.col("outcome")
    unscored = pl.when(outcome >= UNSCORED).then(outcome - UNSCORED)
    verdict = unscored.when(outcome == SCORED).then(FAILED).otherwise(outcome)
    if fill is None:
        columns = [pl.when((outcome > REJECTED) & pl.col("both")).then(UNGRADED).otherwise(verdict).alias("outcome")]
    else:
        columns = [pl.when(outcome == UNGRADED).then(FAILED).otherwise(verdict).alias("outcome")]
        if "score" in attempts.columns:
            score = pl.col("score")
            columns.append(pl.when("scores").then(score.fill_null(fill)).otherwise(score))
    if "answer" in attempts.columns:
        columns.append(pl.when("answers").then("answer"))
    frame = pl.concat([attempts, flags], how="horizontal").with_columns(columns).drop(flags.columns)
    return frame.with_columns(outcome.cast(pl.UInt8))


def _add_lists(frame: pl.DataFrame, problems: pl.DataFrame, attempts: pl.DataFrame, bucket: Bucket) -> pl.DataFrame:
    """Counts of the attempts that were lists, and the lists of rewards and answers."""
    ordered = OrderedAttempts.of(attempts, problems.height)
    # bits of problems that are listed elsewhere were resolved with the lists: they must not count twice
    has_counts, listed = "passed" in problems.columns, problems["listed"]
    total = {name: pl.Series(ordered.counts[:, number]) for name, number in OUTCOMES.items()}
    total = {name: total[name] + problems[name].fill_null(0) if has_counts else total[name] for name in OUTCOMES}
    columns = {"n": total["passed"] + total["failed"], "c": total["passed"], "ungraded": total["ungraded"]}
    frame = frame.with_columns(
        pl.when(listed).then(column).otherwise(pl.col(name)).alias(name) for name, column in columns.items()
    )
    if bucket.scores:
        frame = with_rewards(frame, ordered)
    if bucket.answers:
        frame = with_answers(frame, ordered)
    if bucket.gold:
        frame = with_gold(frame, ordered)
    for name, first in bucket.measures:
        frame = with_measure(frame, ordered, name, budget_edges(first))
    return frame


def _write(frame: pl.DataFrame, carried: Sequence[str], path: str) -> None:
    """Write to a temporary file, then rename."""
    rewards = [name for name in ("reward_mean", "reward_max") if name in frame.columns]
    lists = [name for name in LISTS if name in frame.columns]
    home = Path(path).parent.parent  # not in the folder of finished files, which is read as a whole
    temporary = temp_path(home.with_name(home.name.removeprefix(".") + Path(path).name))
    try:
        with storage_errors(path):
            table = frame.select(*KEYS, *COUNTS, *carried, *rewards, *lists).to_arrow()
            compression: dict[str, Any] = {
                f"{name}.list.element" if kind.is_nested() else name: "lz4"
                if kind.is_nested() or kind.is_float()  # these are hardly smaller by zstd
                else "zstd"
                for name, kind in frame.select(table.column_names).schema.items()
            }
            # Arrow writes dictionary codes as they are, in a fifth of the time of Polars; readers see texts
            pq.write_table(table, temporary, compression=compression, **_FILE)
            os.replace(temporary, path)
    finally:
        remove(temporary)


def join_earlier(counts: Path, earlier: Path) -> None:
    """Put the counts of earlier attempts beside those of every problem, file by file.

    A problem that was never tried has 0 of 0; rewards are lists, empty where there are none.
    """
    before = pl.scan_parquet(sorted(earlier.glob("*.parquet")), glob=False)
    present = {name: kept for name, kept in EARLIER.items() if name in before.collect_schema()}
    columns = [*KEYS, *(pl.col(name).alias(kept) for name, kept in present.items())]
    earlier_counts = before.select(columns).collect()
    empty = [pl.col(EARLIER[name]).fill_null(0) for name in ("n", "c")]
    empty += [pl.col(kept).fill_null([]) for name, kept in present.items() if name not in ("n", "c")]
    for path in sorted(counts.glob("*.parquet")):
        frame = pl.read_parquet(path, glob=False)
        both = frame.join(earlier_counts, on=KEYS, how="left", nulls_equal=True, maintain_order="left").with_columns(
            empty
        )
        temporary = path.with_name(f".{path.name}")
        with storage_errors(path):
            both.write_parquet(temporary)
            os.replace(temporary, path)
