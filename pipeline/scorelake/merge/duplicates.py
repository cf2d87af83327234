"""One verdict per attempt, for the problems of which an attempt was seen twice.

What partials tell of such a problem is spelled out: one row per attempt and whatever differs. Rows of one attempt are
then one verdict by the rule; two verdicts, rewards or answers for one attempt are a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.counts import INTEGER, KINDS, OUTCOMES, PROBLEM, WORD, Counts, Words, repeated

ATTEMPT = ("attempt_high", "attempt_low")
ANSWER = ("answer_high", "answer_low")
_TOLD = {**dict.fromkeys((*ATTEMPT, *ANSWER, "at"), pl.UInt64), "score": pl.Float64}


@dataclass(frozen=True)
class Resolved:
    """What the problems in doubt came to."""

    counts: pl.DataFrame
    """PROBLEM, n, c, ungraded, duplicates."""
    rewards: pl.DataFrame
    """PROBLEM, score, n: one row per attempt that counts."""
    answers: pl.DataFrame
    """PROBLEM, answer, n, c: likewise."""
    conflicts: pl.DataFrame
    """PROBLEM and attempt."""


def spelled_out(whole: Counts, owner: NDArray[np.uint32], which: NDArray[np.bool_]) -> pl.DataFrame:
    """Every attempt of some problems: PROBLEM, attempt, score, answer, at and OUTCOMES, as far as partials tell."""
    wanted = which[owner]
    covered = np.zeros(owner.size, bool)
    frames = list[pl.DataFrame]()
    if whole.details is not None:
        rows = whole.details[PROBLEM].to_numpy()
        covered[rows] = True
        mine = whole.details.filter(pl.Series(wanted[rows]))
        frames += _rows(mine.with_columns(pl.Series(PROBLEM, owner[mine[PROBLEM].to_numpy()])))
    plain = whole.problems.with_columns(pl.Series(PROBLEM, owner)).filter(pl.Series(wanted & ~covered))
    told = [PROBLEM, *OUTCOMES, *(name for name in plain.columns if name.startswith(KINDS))]
    frames += _rows(plain.select(told))
    every: pl.DataFrame = pl.concat(frames, how="diagonal_relaxed")
    missing = [pl.lit(None, kind).alias(name) for name, kind in _TOLD.items() if name not in every.columns]
    zero = [pl.col(name).fill_null(0) for name in (*ATTEMPT, *ANSWER, "at")]
    return every.with_columns(missing).with_columns(zero)


def _rows(told: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Rows with attempts as they are, and attempts that are bits one by one."""
    names = [name for name in told.columns if name.startswith(KINDS)]
    words = len(names) // len(KINDS)
    others = told.drop(names)
    held = np.zeros(told.height, np.uint64)
    for word in range(words):
        seen, graded, right = (told[f"{kind}{word}"].fill_null(0).to_numpy() for kind in KINDS)
        held |= seen
        for number in range(WORD):
            bit = np.uint64(1) << np.uint64(number)
            at = np.flatnonzero(seen & bit)
            if at.size:
                yield _numbered(others[pl.Series(at)], word * WORD + number, graded[at] & bit, right[at] & bit)
    yield others.filter(pl.Series(held == 0))


def _numbered(rows: pl.DataFrame, number: int, graded: Words, right: Words) -> pl.DataFrame:
    outcome = {"passed": right > 0, "failed": (graded > 0) & (right == 0), "ungraded": graded == 0}
    return rows.with_columns(
        *(pl.Series(name, flag.astype(np.int64)) for name, flag in outcome.items()),
        pl.lit(INTEGER, pl.UInt64).alias(ATTEMPT[0]),
        pl.lit(number, pl.UInt64).alias(ATTEMPT[1]),
    )


def in_doubt(every: pl.DataFrame, problems: int) -> NDArray[np.bool_]:
    """The problems of which an attempt really occurs twice."""
    out = np.zeros(problems, bool)
    owner, high, low = (every[name].to_numpy() for name in (PROBLEM, *ATTEMPT))
    rows = sum(every[name].to_numpy() for name in OUTCOMES)
    out[owner[(high > 0) & (rows > 1)]] = True
    out[owner[repeated(owner, high, low)]] = True
    return out


def resolve(every: pl.DataFrame, rule: str, answered: bool) -> Resolved:
    """One verdict per attempt. Rows whose attempt has no name are never the same attempt.

    `first` and `last` follow the order of files, then of rows. A row without a verdict never overrules one with a
    verdict. The answer that counts is of a row whose verdict counts: the first, the last, or (for any-pass and
    all-pass) the one whose 128 bits are smallest, which no order of files or rows can change.
    """
    nameless = every.filter(pl.col(ATTEMPT[0]) == 0)
    attempts = _attempts(every.filter(pl.col(ATTEMPT[0]) > 0), rule)
    graded = pl.col("graded")
    once = attempts.group_by(PROBLEM).agg(
        graded.sum().cast(pl.Int64).alias("n"),
        (graded & pl.col("right")).sum().cast(pl.Int64).alias("c"),
        (~graded).sum().cast(pl.Int64).alias("ungraded"),
        (pl.col("rows").sum() - pl.len()).cast(pl.Int64).alias("duplicates"),
    )
    alone = nameless.group_by(PROBLEM).agg(
        (pl.col("passed") + pl.col("failed")).sum().alias("n"),
        pl.col("passed").sum().alias("c"),
        pl.col("ungraded").sum(),
        pl.lit(0, pl.Int64).alias("duplicates"),
    )
    counts = pl.concat([once, alone]).group_by(PROBLEM).agg(pl.col("n", "c", "ungraded", "duplicates").sum())
    kept = attempts.filter(graded).select(
        PROBLEM, "score", *ANSWER, n=pl.lit(1, pl.Int64), c=pl.col("right").cast(pl.Int64)
    )
    kept = pl.concat([kept, graded_rows(nameless)])
    differ = (pl.col("passed") > 0) & (pl.col("failed") > 0) | (pl.col("scores") > 1)
    if answered:
        differ = differ | (pl.col("answers") > 1)
    return Resolved(counts, kept, kept, attempts.filter(differ).select(PROBLEM, *ATTEMPT))


def graded_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a verdict as PROBLEM, score, answer, n and c, whatever of these they tell."""
    n = pl.col("passed") + pl.col("failed")
    score = pl.col("score") if "score" in rows.columns else pl.lit(None, pl.Float64).alias("score")
    answer = [
        pl.col(name).fill_null(0) if name in rows.columns else pl.lit(0, pl.UInt64).alias(name) for name in ANSWER
    ]
    told = rows.lazy().filter(n > 0).select(PROBLEM, score, *answer, n.alias("n"), pl.col("passed").alias("c"))
    return told.collect()


def _attempts(named: pl.DataFrame, rule: str) -> pl.DataFrame:
    """One row per attempt: how often it passed and failed, and what counts by the rule."""
    verdict = pl.col("passed") + pl.col("failed") > 0
    right, answer = pl.col("passed") > 0, pl.struct(ANSWER)
    given = verdict & (pl.col(ANSWER[0]) > 0)
    picked = {name: expression.filter(verdict) for name, expression in (("right", right), ("score", pl.col("score")))}
    merged = (
        named.sort("at", maintain_order=True)
        .group_by(PROBLEM, *ATTEMPT, maintain_order=True)
        .agg(
            pl.sum_horizontal(OUTCOMES).sum().alias("rows"),
            pl.col(OUTCOMES).sum(),
            verdict.any().alias("graded"),
            pl.col("score").filter(verdict).n_unique().alias("scores"),
            answer.filter(given).n_unique().alias("answers"),
            picked["right"].first().alias("first_right"),
            picked["right"].last().alias("last_right"),
            picked["score"].first().alias("first_score"),
            picked["score"].last().alias("last_score"),
            picked["score"].min().alias("low_score"),
            picked["score"].max().alias("high_score"),
            answer.filter(verdict).first().alias("first_answer"),
            answer.filter(verdict).last().alias("last_answer"),
            answer.filter(given & (pl.col("passed") > 0)).sort().first().alias("pass_answer"),
            answer.filter(given & (pl.col("failed") > 0)).sort().first().alias("fail_answer"),
        )
    )
    ends = {"first": "first", "last": "last"}.get(rule)
    if ends:
        chosen = {name: pl.col(f"{ends}_{name}") for name in ("right", "score", "answer")}
    else:
        all_pass = rule == "all-pass"
        passes = pl.col("failed") == 0 if all_pass else pl.col("passed") > 0
        chosen = {
            "right": passes,
            "score": pl.col("low_score" if all_pass else "high_score"),
            "answer": pl.when(passes).then("pass_answer").otherwise("fail_answer"),
        }
    answers = [chosen["answer"].struct.field(name).fill_null(0) for name in ANSWER]
    kept = (PROBLEM, *ATTEMPT, "rows", *OUTCOMES, "graded", "scores", "answers")
    return merged.select(
        *kept, chosen["right"].fill_null(value=False).alias("right"), chosen["score"].alias("score"), *answers
    )
