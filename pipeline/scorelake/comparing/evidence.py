"""All that the problems show of how models differ: the tables of pairs and ranks.

Only problems that both models attempted under one protocol are compared. Where two models have too little in
common the row says what differs, and gives no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from scorelake.comparing.boards import Benchmark, Place
from scorelake.comparing.examined import Found, Parts, Valued, examined
from scorelake.comparing.pairs import pairs
from scorelake.comparing.ranks import ranks
from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.schemas import (
    MODEL_PAIR,
    MODEL_RANK,
    MODEL_SUMMARY,
    SUBJECT_PAIR,
    SUBJECT_RANK,
    SUBJECT_SUMMARY,
)
from scorelake.settings import Settings


def comparable(chosen: Sequence[Metric]) -> list[Metric]:
    """The metrics, each once; a blend of two group means has no score per problem and is an error."""
    pooled = [metric.name for metric in chosen if metric.family.pooled]
    if pooled:
        raise UsageError(
            f"{', '.join(pooled)}: a blend of group means has no score per problem to pair",
            hint="leave it out of [compare] metrics",
        )
    return list(dict.fromkeys(chosen))


def evidence(
    asked: Sequence[Benchmark],
    chosen: Sequence[Metric],
    settings: Settings,
    scores: dict[str, pl.DataFrame],
    parts: Parts,
) -> dict[str, pl.DataFrame]:
    """The tables of pairs and ranks, for benchmarks and their subjects, from the summaries' own values."""
    wholes: list[Found] = []
    subjects: list[Found] = []
    summary, by_subject = scores[MODEL_SUMMARY.name], scores[SUBJECT_SUMMARY.name]
    found = examined(asked, chosen, _valued(summary, by_subject, chosen), settings, parts)
    for benchmark, (whole, *mine) in zip(asked, found, strict=True):
        wholes.append(whole)
        subjects += mine or [whole.of(replace(whole.place, subject=benchmark.only))]
    return {
        MODEL_PAIR.name: pairs(MODEL_PAIR, wholes, chosen, ("benchmark",), settings),
        SUBJECT_PAIR.name: pairs(SUBJECT_PAIR, subjects, chosen, ("benchmark", "subject"), settings),
        MODEL_RANK.name: ranks(MODEL_RANK, summary, wholes, settings),
        SUBJECT_RANK.name: ranks(SUBJECT_RANK, by_subject, subjects, settings),
    }


def _valued(summary: pl.DataFrame, by_subject: pl.DataFrame, chosen: Sequence[Metric]) -> Valued:
    """Who has a value: by benchmark, subject (None for all), protocol and metric."""
    keys = ("benchmark", "subject", "protocol", "metric")
    whole = summary.with_columns(subject=pl.lit(None, pl.String))
    both = pl.concat([some.select(*keys, "model", "value") for some in (whole, by_subject)]).drop_nulls("value")
    mine = both.filter(pl.col("metric").is_in([metric.name for metric in chosen]))
    known = {tuple(key): set(models) for *key, models in mine.group_by(keys).agg("model").iter_rows()}

    def valued(place: Place, metric: Metric) -> set[str]:
        return known.get((place.benchmark, place.subject, place.protocol, metric.name), set())

    return valued
