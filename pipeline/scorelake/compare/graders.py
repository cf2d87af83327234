"""How sure the graders are: the same answer to the same problem, with two verdicts."""

from __future__ import annotations

import polars as pl

from scorelake.problems import Problems
from scorelake.tables import ANSWER_NOISE

_EXAMPLES = 3


def answer_noise(problems: Problems) -> pl.DataFrame:
    """One row per benchmark, model and protocol that has answers; none where the lake has none.

    Of m attempts with the same answer p passed: p (m - p) of the m (m - 1) / 2 pairs of them got different verdicts.
    """
    if "answer_counts" not in problems.more:
        return pl.DataFrame(schema=ANSWER_NOISE.schema)
    keys = ["benchmark", "model", "protocol"]
    m, p = pl.col("answer_counts").cast(pl.Int64), pl.col("answer_passes").cast(pl.Int64)
    answers = (
        problems.files.filter(pl.col("answer_counts").list.len() > 0)
        .select(*keys, "subject", "problem_id", "answer_counts", "answer_passes")
        .explode("answer_counts", "answer_passes")
        .with_columns(mixed=(p > 0) & (p < m), torn=p * (m - p), pairs=m * (m - 1) // 2)
    )
    sums = answers.group_by(keys).agg(
        problems=pl.struct("subject", "problem_id").n_unique().cast(pl.Int64),
        answers=pl.len().cast(pl.Int64),
        answers_repeated=(m > 1).sum().cast(pl.Int64),
        answers_mixed=pl.col("mixed").sum().cast(pl.Int64),
        attempts_repeated=m.filter(m > 1).sum(),
        attempts_odd=pl.min_horizontal(p, m - p).sum(),
        disagreement=pl.when(pl.col("pairs").sum() > 0).then(pl.col("torn").sum() / pl.col("pairs").sum()),
    )
    worst = (
        answers.filter("mixed")
        .group_by(*keys, "subject", "problem_id")
        .agg(pl.col("torn").sum())
        .sort("torn", "subject", "problem_id", descending=[True, False, False])
        .group_by(keys, maintain_order=True)
        .agg(examples=pl.col("problem_id").head(_EXAMPLES))
    )
    told = sums.join(worst, on=keys, how="left", nulls_equal=True).sort(keys).collect()
    return ANSWER_NOISE.check(told.select(*ANSWER_NOISE.columns))
