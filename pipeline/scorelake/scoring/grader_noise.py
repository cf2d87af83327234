"""Grader noise: the same answer to the same problem, with two verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from scorelake.schemas import ANSWER_NOISE

_EXAMPLES = 3
_KEYS = ["benchmark", "model", "protocol"]


@dataclass(frozen=True)
class Noise:
    """Grader noise of some problems."""

    sums: pl.DataFrame  # one row per benchmark, model and protocol: integers that add up
    worst: pl.DataFrame
    """The few problems of each with the most pairs of attempts that got different verdicts (`split`)."""


def bucket_noise(rows: pl.DataFrame) -> Noise:
    """Compare the verdicts of equal answers in rows of problem_counts.

    If p of m attempts with the same answer passed, p (m - p) of their m (m - 1) / 2 pairs got different verdicts.
    """
    m, p = pl.col("answer_counts").cast(pl.Int64), pl.col("answer_passes").cast(pl.Int64)
    answers = (
        rows.lazy()
        .select(*_KEYS, "subject", "problem_id", "answer_counts", "answer_passes")
        .filter(pl.col("answer_counts").list.len() > 0)
        .with_row_index("problem")
        .explode("answer_counts", "answer_passes")
        .with_columns(mixed=(p > 0) & (p < m), split=p * (m - p), pairs=m * (m - 1) // 2)
    )
    sums = answers.group_by(_KEYS).agg(
        problems=pl.col("problem").n_unique().cast(pl.Int64),
        answers=pl.len().cast(pl.Int64),
        answers_repeated=(m > 1).sum().cast(pl.Int64),
        answers_mixed=pl.col("mixed").sum().cast(pl.Int64),
        attempts_repeated=m.filter(m > 1).sum(),
        attempts_odd=pl.min_horizontal(p, m - p).sum(),
        split=pl.col("split").sum(),
        pairs=pl.col("pairs").sum(),
    )
    by_problem = answers.filter("mixed").group_by(*_KEYS, "subject", "problem_id").agg(pl.col("split").sum())
    return Noise(sums.collect(), _worst(by_problem.collect()))


def noise_table(parts: Sequence[Noise]) -> pl.DataFrame:
    """Return one row per benchmark, model and protocol that has answers."""
    if not parts:
        return pl.DataFrame(schema=ANSWER_NOISE.schema)
    sums = pl.concat([part.sums for part in parts]).group_by(_KEYS).agg(pl.exclude(_KEYS).sum())
    share = pl.when(pl.col("pairs") > 0).then(pl.col("split") / pl.col("pairs"))
    worst = _worst(pl.concat([part.worst for part in parts]))
    examples = worst.group_by(_KEYS, maintain_order=True).agg(examples=pl.col("problem_id"))
    rows = sums.with_columns(disagreement=share).join(examples, on=_KEYS, how="left", nulls_equal=True).sort(_KEYS)
    return ANSWER_NOISE.check(rows.select(*ANSWER_NOISE.columns))


def _worst(problems: pl.DataFrame) -> pl.DataFrame:
    order = problems.sort("split", "subject", "problem_id", descending=[True, False, False])
    return order.group_by(_KEYS, maintain_order=True).head(_EXAMPLES)
