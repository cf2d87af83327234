"""Rewards and answers as lists, against a dictionary."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from scorelake.counts import OUTCOMES, PROBLEM
from scorelake.merge.duplicates import ANSWER, graded_rows
from scorelake.merge.lists import answers, rewards


def details(seed: int, many: int, scores: list[float], problems: int = 6) -> pl.DataFrame:
    """Random rows as details have them: in the order of problems, those without a verdict without a reward."""
    rng = np.random.default_rng(seed)
    rows = pl.DataFrame(
        {
            PROBLEM: np.sort(rng.integers(0, problems, many)).astype(np.uint32),
            "score": rng.choice(scores, many),
            ANSWER[0]: rng.integers(0, 3, many).astype(np.uint64),
            ANSWER[1]: rng.integers(0, 3, many).astype(np.uint64),
            **{name: rng.integers(0, 3, many) for name in OUTCOMES},
        }
    )
    graded = pl.col("passed") + pl.col("failed") > 0
    return rows.with_columns(pl.when(graded).then("score"), *(pl.when(graded).then(n).otherwise(0) for n in ANSWER))


def listed(series: list[pl.Series]) -> list[tuple[list[Any], list[Any]]]:
    return list(zip(*(column.to_list() for column in series), strict=True))


def rewards_by_hand(rows: list[pl.DataFrame], problems: int) -> list[tuple[list[float], list[int]]]:
    seen: dict[int, Counter[float]] = defaultdict(Counter)
    for part in rows:
        for row in part.rows(named=True):
            seen[row[PROBLEM]][row["score"]] += row["n"]
    return [(sorted(seen[i]), [seen[i][score] for score in sorted(seen[i])]) for i in range(problems)]


def answers_by_hand(rows: list[pl.DataFrame], problems: int) -> list[tuple[list[int], list[int]]]:
    seen: dict[int, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for part in rows:
        for row in part.filter(pl.col(ANSWER[0]) > 0).rows(named=True):
            mine = seen[row[PROBLEM]][row[ANSWER[0]], row[ANSWER[1]]]
            mine[0] += row["n"]
            mine[1] += row["c"]
    pairs = [sorted(map(tuple, seen[i].values()), reverse=True) for i in range(problems)]
    return [([n for n, _ in mine], [c for _, c in mine]) for mine in pairs]


def check_ends(ends: list[tuple[Any, Any]], lists: list[tuple[list[float], list[int]]]) -> None:
    """Mean and best of every problem, against exact fractions."""
    for (mean, best), (scores, n) in zip(ends, lists, strict=True):
        if not scores:
            assert (mean, best) == (None, None)
            continue
        assert best == max(scores)
        exact = sum(Fraction(score) * many for score, many in zip(scores, n, strict=True)) / sum(n)
        assert abs(Fraction(mean) - exact) <= Fraction(max(map(abs, scores))) * Fraction(1, 10**14)


SCORES = {
    "few": [0.0, 0.5, 1.0],
    "signs": [-1e300, -2.5, -1.0, 0.0, 1e-300, 1.0, 1e300],
    "close": [float(np.nextafter(1.0, 2)), 1.0, float(np.nextafter(1.0, 0)), -1.0, float(np.nextafter(-1.0, 0))],
}
"""The last ones differ in their last bit only, which is not among those that are sorted by at first."""


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("problems", [1, 6, 1000])
def test_lists(scores: list[float], problems: int) -> None:
    for seed in range(5):
        certain = details(seed, 400, scores, problems)
        resolved = graded_rows(details(100 + seed, 50, scores, problems))
        for some, more in ((certain, None), (certain, resolved), (None, resolved), (certain.head(0), None)):
            parts = [graded_rows(some)] if some is not None else []
            parts += [more] if more is not None else []
            made = rewards(some, more, problems)
            assert listed(made[:2]) == rewards_by_hand(parts, problems)
            check_ends(listed(made[2:]), rewards_by_hand(parts, problems))
            assert listed(answers(some, more, problems)) == answers_by_hand(parts, problems)


def test_names_and_types() -> None:
    """The same columns, whatever is in them: files of one table must fit together."""
    for many in (0, 10):
        rows = details(1, many, [0.5])
        made = [*rewards(rows, None, 6), *answers(rows, None, 6)]
        assert [(column.name, column.dtype) for column in made] == [
            ("rewards", pl.List(pl.Float64)),
            ("reward_counts", pl.List(pl.Int64)),
            ("reward_mean", pl.Float64),
            ("reward_max", pl.Float64),
            ("answer_counts", pl.List(pl.Int64)),
            ("answer_passes", pl.List(pl.Int64)),
        ]
        assert all(column.len() == 6 for column in made)


def test_attempts_without_a_verdict_are_not_listed() -> None:
    rows = details(1, 300, [0.5, 1.0])
    none = rows.with_columns(passed=pl.lit(0, pl.Int64), failed=pl.lit(0, pl.Int64))
    assert listed(rewards(none, None, 2)) == [([], [], None, None)] * 2
    assert listed(answers(none, None, 2)) == [([], []), ([], [])]
    assert graded_rows(rows)["n"].sum() == rows.select(pl.sum_horizontal("passed", "failed")).to_series().sum()
    assert graded_rows(rows)["c"].sum() == rows["passed"].sum()


def test_rows_that_tell_less() -> None:
    """Details of a lake without answers, or without rewards, are rows all the same."""
    rows = details(1, 50, [0.5])
    assert graded_rows(rows.drop(ANSWER))[ANSWER[0]].to_list() == [0] * graded_rows(rows).height
    assert graded_rows(rows.drop("score"))["score"].null_count() == graded_rows(rows).height
