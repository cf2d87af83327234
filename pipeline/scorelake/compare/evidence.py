"""All that the problems show of how models differ: the tables of pairs and ranks.

Only problems that both models attempted under one protocol are compared. Where two models have too little in
common the row says what differs, and gives no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.compare.boards import Place, boards
from scorelake.compare.examined import Found, Valued, examined
from scorelake.compare.graders import answer_noise
from scorelake.compare.pairs import pairs
from scorelake.compare.ranks import ranks
from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.problems import Cells, Problems
from scorelake.settings import Settings
from scorelake.tables import (
    ANSWER_NOISE,
    MODEL_PAIR,
    MODEL_RANK,
    MODEL_SUMMARY,
    SUBJECT_PAIR,
    SUBJECT_RANK,
    SUBJECT_SUMMARY,
)


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
    problems: Problems,
    chosen: Sequence[Metric],
    cells: Cells,
    settings: Settings,
    scores: dict[str, pl.DataFrame],
) -> dict[str, pl.DataFrame]:
    """The tables of pairs and ranks, for benchmarks and their subjects, from the summaries' own values; and noise."""
    wholes: list[Found] = []
    parts: list[Found] = []
    summary, by_subject = scores[MODEL_SUMMARY.name], scores[SUBJECT_SUMMARY.name]
    valued = _valued(summary, by_subject, chosen)
    for board in boards(problems, cells, settings):
        subjects = list(board.split())
        alone = len(subjects) == 1  # a benchmark of one subject: the same evidence
        whole, *found = examined(board, [] if alone else subjects, chosen, valued, settings)
        wholes.append(whole)
        parts += [whole.of(subjects[0].place)] if alone else found
    return {
        MODEL_PAIR.name: pairs(MODEL_PAIR, wholes, chosen, ("benchmark",), settings),
        SUBJECT_PAIR.name: pairs(SUBJECT_PAIR, parts, chosen, ("benchmark", "subject"), settings),
        MODEL_RANK.name: ranks(MODEL_RANK, summary, wholes, settings),
        SUBJECT_RANK.name: ranks(SUBJECT_RANK, by_subject, parts, settings),
        ANSWER_NOISE.name: answer_noise(problems),
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
