"""All that the problems show of how models differ: the comparison and rank tables.

Only problems that both models attempted under one protocol are compared. Where two models have too little in
common the row says what differs, and gives no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scorelake.compare.boards import Scorer, boards
from scorelake.compare.pairs import comparison
from scorelake.compare.ranks import rank
from scorelake.compare.resampled import Found, resampled
from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.problems import Problems
from scorelake.settings import Settings
from scorelake.tables import COMPARISON, MODEL_RANK, SUBJECT_COMPARISON, SUBJECT_RANK


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
    problems: Problems, chosen: Sequence[Metric], scorer: Scorer, settings: Settings
) -> dict[str, pl.DataFrame]:
    """The comparison and rank tables, for whole benchmarks and for each subject."""
    wholes: list[Found] = []
    parts: list[Found] = []
    for board in boards(problems, scorer, settings):
        subjects = list(board.split())
        alone = len(subjects) == 1  # a benchmark of one subject: the same evidence
        whole, *found = resampled([board, *([] if alone else subjects)], chosen, settings)
        wholes.append(whole)
        parts += [whole.of(subjects[0].place)] if alone else found
    return {
        COMPARISON.name: comparison(COMPARISON, wholes, chosen, ("benchmark",)),
        SUBJECT_COMPARISON.name: comparison(SUBJECT_COMPARISON, parts, chosen, ("benchmark", "subject")),
        MODEL_RANK.name: rank(MODEL_RANK, wholes, chosen),
        SUBJECT_RANK.name: rank(SUBJECT_RANK, parts, chosen),
    }
