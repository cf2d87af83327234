"""Part of stage 2: one verdict per attempt, exactly, and nearly for free when there are no duplicates.

An attempt numbered a is the power of two 2^a. The sum of a problem's powers has as many one-bits as the problem
has rows if and only if no number occurs twice; so sums, which add up over shards like n and c do, prove that a lake
is free of duplicates, and the same sums over graded and passed attempts hold every verdict. Only where the proof
fails, or where attempts are not small numbers, is anything spelled out attempt by attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.tables import KEYS

WORD = 64
MAX_WORDS = 4
"""Attempts numbered from 0 to 255 are held as sums of powers; others are spelled out."""
KINDS = ("seen", "graded", "passed")
ANSWERS = ("pass_low", "pass_high", "fail_low", "fail_high", "chosen_answer")
"""What is told of an attempt's answers: the ends of those that passed and failed, and the first or last."""


def sums(words: int) -> list[str]:
    """Names of the columns that hold the sums."""
    return [f"{kind}{word}" for kind in KINDS for word in range(words)]


def powers(words: int) -> list[pl.Expr]:
    """The sums of a group of rows with the canonical columns `_number`, `_bad`, `_graded` and `_passed`."""
    out = []
    flags = (~pl.col("_bad"), pl.col("_graded"), pl.col("_passed"))
    number = pl.col("_number").cast(pl.Int64)
    for kind, flag in zip(KINDS, flags, strict=True):
        for word in range(words):
            here = flag & number.is_between(word * WORD, (word + 1) * WORD - 1)
            power = pl.lit(2.0).pow((number - word * WORD).cast(pl.Float64))
            out.append(pl.when(here).then(power).otherwise(0.0).cast(pl.UInt64).sum().alias(f"{kind}{word}"))
    return out


def proven(words: int) -> pl.Expr:
    """True for a problem whose every attempt is known to occur once."""
    ones = pl.sum_horizontal(pl.col(f"seen{word}").bitwise_count_ones().cast(pl.Int64) for word in range(words))
    return ones == pl.col("n") + pl.col("ungraded")


def spell_out(counts: pl.DataFrame, words: int, carried: Sequence[str]) -> pl.DataFrame:
    """Sums of a proven partial -> one row per problem and attempt, as `tell_apart` makes them."""
    numbers = pl.DataFrame({"number": range(words * WORD)})
    bits = [
        pl.coalesce(
            pl.when(pl.col("number") // WORD == word).then(
                (pl.col(f"{kind}{word}") // pl.lit(2, pl.UInt64).pow(pl.col("number") % WORD)) % 2 == 1
            )
            for word in range(words)
        ).alias(kind)
        for kind in KINDS
    ]
    return (
        counts.join(numbers, how="cross")
        .with_columns(bits)
        .filter("seen")
        .select(
            *KEYS,
            pl.col("number").cast(pl.String).alias("attempt"),
            pl.lit(1, pl.Int64).alias("rows"),
            (pl.col("graded") & pl.col("passed")).cast(pl.Int64).alias("passes"),
            (pl.col("graded") & ~pl.col("passed")).cast(pl.Int64).alias("fails"),
            *carried,
        )
    )


def tell_apart(attempts: pl.LazyFrame, rule: str, carried: Sequence[str]) -> pl.LazyFrame:
    """Valid attempts of one file -> one row per problem and attempt, with how often it passed and failed.

    Attempts without a number (null) are never duplicates of each other.
    """
    names = attempts.collect_schema().names()
    scored, graded = "_score" in names, pl.col("_graded")
    passed = pl.col("_passed") if "_passed" in names else pl.lit(value=False)
    chosen = [pl.col("_score").filter(graded)] if scored else []
    answers = [pl.col("answer").filter(graded & each) for each in (passed, ~passed)] if "answer" in names else []
    pick = {"first": lambda e: e.first(), "last": lambda e: e.last()}.get(rule)
    return (
        attempts.with_row_index("_row")
        .with_columns(_alone=pl.when(pl.col("_attempt").is_null()).then("_row"))
        .group_by(*KEYS, "_attempt", "_alone", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            (graded & passed).sum().cast(pl.Int64).alias("passes"),
            (graded & ~passed).sum().cast(pl.Int64).alias("fails"),
            *(e.min().alias("score_low") for e in chosen),
            *(e.max().alias("score_high") for e in chosen),
            *([pick(passed.filter(graded)).alias("chosen_passed")] if pick else []),
            *([pick(e).alias("chosen_score") for e in chosen] if pick else []),
            *(e.min().alias(f"{kind}_low") for kind, e in zip(("pass", "fail"), answers, strict=False)),
            *(e.max().alias(f"{kind}_high") for kind, e in zip(("pass", "fail"), answers, strict=False)),
            *([pick(pl.col("answer").filter(graded)).alias("chosen_answer")] if pick and answers else []),
            *(
                pl.col(f"carry:{name.removeprefix('min:')}").min().alias(name)
                for name in carried
                if name[:4] == "min:"
            ),
            *(
                pl.col(f"carry:{name.removeprefix('max:')}").max().alias(name)
                for name in carried
                if name[:4] == "max:"
            ),
        )
        .rename({"_attempt": "attempt"})
        .drop("_alone")
    )


def resolve(
    attempts: pl.DataFrame, rule: str, binary: bool, carried: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
    """Attempts of all files -> counts per problem, the attempts with conflicting verdicts, and counts per answer.

    `at` names the file a row comes from; `first` and `last` follow the order of files, then of rows. A row without
    a verdict never overrules one with a verdict. Where answers are told, two different ones are a conflict too; the
    one that counts is of a row whose verdict counts: the first, the last, or the smallest.
    """
    names = attempts.columns
    scored, answered = "score_low" in names, "pass_low" in names
    alone = pl.when(pl.col("attempt").is_null()).then(pl.int_range(pl.len()))
    picked = [name for name in ("chosen_passed", "chosen_score") if name in names]
    pick = pl.Expr.first if rule == "first" else pl.Expr.last
    told = pl.col("chosen_passed").is_not_null()
    merged = (
        attempts.sort("at", maintain_order=True)
        .with_columns(_alone=alone)
        .group_by(*KEYS, "attempt", "_alone", maintain_order=True)
        .agg(
            pl.col("rows", "passes", "fails").sum(),
            *([pl.col("score_low").min(), pl.col("score_high").max()] if scored else []),
            *(pick(pl.col(name).drop_nulls()) for name in picked),
            *([pl.col("pass_low", "fail_low").min(), pl.col("pass_high", "fail_high").max()] if answered else []),
            *([pick(pl.col("chosen_answer").filter(told))] if "chosen_answer" in names else []),
            *(pl.col(name).min() if name.startswith("min:") else pl.col(name).max() for name in carried),
        )
    )
    differ = (pl.col("passes") > 0) & (pl.col("fails") > 0)
    if scored:
        differ = differ | (pl.col("score_low") != pl.col("score_high")).fill_null(value=False)
    if answered:
        low, high = pl.min_horizontal("pass_low", "fail_low"), pl.max_horizontal("pass_high", "fail_high")
        differ = differ | (low != high).fill_null(value=False)
    passed = {
        "all-pass": pl.col("fails") == 0,
        "first": pl.col("chosen_passed"),
        "last": pl.col("chosen_passed"),
    }.get(rule, pl.col("passes") > 0)
    score = {"all-pass": "score_low", "first": "chosen_score", "last": "chosen_score"}.get(rule, "score_high")
    graded = (pl.col("passes") + pl.col("fails")) > 0
    verdicts = merged.with_columns(
        graded=graded, passed=graded & passed, differ=differ, **({"score": pl.col(score)} if scored else {})
    )
    counts = verdicts.group_by(KEYS).agg(
        pl.col("graded").sum().cast(pl.Int64).alias("n"),
        *([pl.col("passed").sum().cast(pl.Int64).alias("c")] if binary else []),
        (~pl.col("graded")).sum().cast(pl.Int64).alias("ungraded"),
        (pl.col("rows").sum() - pl.len()).cast(pl.Int64).alias("duplicates"),
        *(pl.col(name).min() if name.startswith("min:") else pl.col(name).max() for name in carried),
    )
    if scored:
        counts = counts.join(_rewards(verdicts), on=KEYS, how="left", nulls_equal=True)
    conflicts = verdicts.filter("differ").select(*KEYS, "attempt").sort(*KEYS, "attempt")
    return counts, conflicts, _answers(verdicts, rule) if answered else None


def _answers(verdicts: pl.DataFrame, rule: str) -> pl.DataFrame:
    """One row per problem and answer: how many attempts count with it, and how many of them passed."""
    answer = pl.when("passed").then("pass_low").otherwise("fail_low")
    return (
        verdicts.filter("graded")
        .with_columns(answer=pl.col("chosen_answer") if rule in ("first", "last") else answer)
        .drop_nulls("answer")
        .group_by(*KEYS, "answer")
        .agg(pl.len().cast(pl.Int64).alias("n"), pl.col("passed").sum().cast(pl.Int64).alias("c"))
    )


def _rewards(verdicts: pl.DataFrame) -> pl.DataFrame:
    return (
        verdicts.filter("graded")
        .group_by(*KEYS, "score")
        .agg(pl.len().cast(pl.Int64).alias("reward_counts"))
        .group_by(KEYS)
        .agg(pl.col("score").sort().alias("rewards"), pl.col("reward_counts").sort_by("score"))
    )
