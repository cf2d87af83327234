"""Tables of pairs and ranks, of benchmarks and their subjects.

Only problems that both models attempted under one protocol are compared. Where two models have too little in common,
the row has the reason instead of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from scorelake.comparing.boards import Benchmark, ModelBoard
from scorelake.comparing.compare import BoardResult, HasValue, compare_boards
from scorelake.comparing.pairs import pair_table
from scorelake.comparing.ranks import rank_table
from scorelake.comparing.sums import LakeSums
from scorelake.metrics.families import Metric
from scorelake.schemas import MODEL_PAIR, MODEL_RANK, MODEL_SUMMARY, SUBJECT_PAIR, SUBJECT_RANK, SUBJECT_SUMMARY
from scorelake.scoring.series import without_earlier_points
from scorelake.settings import Settings


def comparison_tables(
    benchmarks: Sequence[Benchmark],
    chosen: Sequence[Metric],
    settings: Settings,
    summaries: dict[str, pl.DataFrame],
    lake: LakeSums,
) -> dict[str, pl.DataFrame]:
    """Return the tables of pairs and ranks."""
    models, by_subject = (
        without_earlier_points(summaries[table.name], settings) for table in (MODEL_SUMMARY, SUBJECT_SUMMARY)
    )
    overall: list[BoardResult] = []
    subjects: list[BoardResult] = []
    results = compare_boards(benchmarks, chosen, _has_value(models, by_subject, chosen), settings, lake)
    for benchmark, (first, *others) in zip(benchmarks, results, strict=True):
        overall.append(first)
        only = replace(first, board=replace(first.board, subject=benchmark.subjects[0].subject))
        subjects += others or [only]
    pairs = pair_table(MODEL_PAIR, overall, chosen, ("benchmark",), settings)
    subject_pairs = pair_table(SUBJECT_PAIR, subjects, chosen, ("benchmark", "subject"), settings)
    return {
        MODEL_PAIR.name: pairs,
        SUBJECT_PAIR.name: subject_pairs,
        MODEL_RANK.name: rank_table(MODEL_RANK, models, overall, pairs, settings),
        SUBJECT_RANK.name: rank_table(SUBJECT_RANK, by_subject, subjects, subject_pairs, settings),
    }


def _has_value(models: pl.DataFrame, by_subject: pl.DataFrame, chosen: Sequence[Metric]) -> HasValue:
    keys = ("benchmark", "subject", "protocol", "metric")
    overall = models.with_columns(subject=pl.lit(None, pl.String))
    rows = pl.concat([each.select(*keys, "model", "value") for each in (overall, by_subject)]).drop_nulls("value")
    rows = rows.filter(pl.col("metric").is_in([metric.name for metric in chosen]))
    valued = {tuple(key): set(names) for *key, names in rows.group_by(keys).agg("model").iter_rows()}

    def has_value(board: ModelBoard, metric: Metric) -> set[str]:
        return valued.get((board.benchmark, board.subject, board.protocol, metric.name), set())

    return has_value
