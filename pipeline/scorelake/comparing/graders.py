"""How sure the graders are: the same answer to the same problem, with two verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from scorelake.problems import Part
from scorelake.schemas import ANSWER_NOISE

_EXAMPLES = 3
_KEYS = ["benchmark", "model", "protocol"]


@dataclass(frozen=True)
class Noise:
    """What the answers of some problems come to."""

    sums: pl.DataFrame
    """One row per benchmark, model and protocol: whole numbers that add up."""
    worst: pl.DataFrame
    """The few problems of each with the most pairs of attempts that got different verdicts, `torn`."""


def noise(part: Part) -> Noise | None:
    """The answers of a part; None where the lake has none.

    Of m attempts with the same answer p passed: p (m - p) of the m (m - 1) / 2 pairs of them got different verdicts.
    """
    if "answer_counts" not in part.columns:
        return None
    m, p = pl.col("answer_counts").cast(pl.Int64), pl.col("answer_passes").cast(pl.Int64)
    problems = part.others([*_KEYS, "subject", "problem_id", "answer_counts", "answer_passes"]).lazy()
    answers = (
        problems.filter(pl.col("answer_counts").list.len() > 0)
        .with_row_index("problem")
        .explode("answer_counts", "answer_passes")
        .with_columns(mixed=(p > 0) & (p < m), torn=p * (m - p), pairs=m * (m - 1) // 2)
    )
    sums = answers.group_by(_KEYS).agg(
        problems=pl.col("problem").n_unique().cast(pl.Int64),
        answers=pl.len().cast(pl.Int64),
        answers_repeated=(m > 1).sum().cast(pl.Int64),
        answers_mixed=pl.col("mixed").sum().cast(pl.Int64),
        attempts_repeated=m.filter(m > 1).sum(),
        attempts_odd=pl.min_horizontal(p, m - p).sum(),
        torn=pl.col("torn").sum(),
        pairs=pl.col("pairs").sum(),
    )
    torn = answers.filter("mixed").group_by(*_KEYS, "subject", "problem_id").agg(pl.col("torn").sum())
    return Noise(sums.collect(), _worst(torn.collect()))


def answer_noise(parts: Sequence[Noise | None]) -> pl.DataFrame:
    """One row per benchmark, model and protocol that has answers; none where the lake has none."""
    told = [part for part in parts if part is not None]
    if not told:
        return pl.DataFrame(schema=ANSWER_NOISE.schema)
    sums = pl.concat([part.sums for part in told]).group_by(_KEYS).agg(pl.exclude(_KEYS).sum())
    share = pl.when(pl.col("pairs") > 0).then(pl.col("torn") / pl.col("pairs"))
    worst = _worst(pl.concat([part.worst for part in told]))
    named = worst.group_by(_KEYS, maintain_order=True).agg(examples=pl.col("problem_id"))
    both = sums.with_columns(disagreement=share).join(named, on=_KEYS, how="left", nulls_equal=True).sort(_KEYS)
    return ANSWER_NOISE.check(both.select(*ANSWER_NOISE.columns))


def _worst(problems: pl.DataFrame) -> pl.DataFrame:
    """The first few of each model."""
    order = problems.sort("torn", "subject", "problem_id", descending=[True, False, False])
    return order.group_by(_KEYS, maintain_order=True).head(_EXAMPLES)
