"""vote@k against the published values and against every possible draw."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import comb, isnan

import numpy as np
import pytest
from exact import every_vote
from hypothesis import given, settings
from hypothesis import strategies as st

from scorelake.metrics import finite
from scorelake.metrics.vote import Ballots, vote

Problem = list[tuple[str | None, bool]]


def _count(answers: str, right: str, k: int) -> float:
    counts = Counter(answers)
    return vote(list(counts.values()), [answer in right for answer in counts], k)


def _ballots(problems: list[Problem]) -> Ballots:
    rows = []
    for owner, problem in enumerate(problems):
        given = Counter(answer for answer, _ in problem if answer is not None)
        right = Counter(answer for answer, passed in problem if passed)
        rows += [(owner, many, right[answer]) for answer, many in given.most_common()]
    n = np.array([len(problem) for problem in problems])
    c = np.array([sum(passed for _, passed in problem) for problem in problems])
    owner, count, passes = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Ballots(n, c, owner, count, passes)


attempts = st.tuples(st.sampled_from(["A", "B", "C", "D", "E", None]), st.booleans())


@pytest.mark.slow
@given(st.lists(st.lists(attempts, max_size=9), min_size=1, max_size=6))
@settings(max_examples=150)
def test_every_draw_of_small_problems(problems: list[Problem]) -> None:
    """Any mixture of answers, verdicts that differ for one answer, and attempts without any."""
    ballots = _ballots(problems)
    for k in range(1, 11):
        for problem, value in zip(problems, ballots.vote(k), strict=True):
            if k > len(problem):
                assert isnan(value)
                continue
            answers, passed = zip(*problem, strict=True)
            assert value == pytest.approx(float(every_vote(answers, passed, k)), abs=2e-14)


@pytest.mark.parametrize("answers", ["A" * 9 + "B" * 6 + "C" * 3, "A" * 5 + "B" * 5 + "C" * 5 + "DEF"])
def test_every_draw_of_larger_ones(answers: str) -> None:
    for k in (4, 13, 17):
        for right in ("A", "BC"):
            exact = every_vote(answers, [answer in right for answer in answers], k)
            assert _count(answers, right, k) == pytest.approx(float(exact), abs=1e-14)


def by_splits(m: tuple[int, int, int], singles: int, own: int, k: int) -> float:
    """vote@k for one of three answers, over every split of k votes; answers given once cannot win."""
    total = Fraction(0)
    for i, j in product(range(k + 1), repeat=2):
        for single in range(max(0, k - i - j - m[2]), min(singles, k - i - j) + 1):
            split = (i, j, k - i - j - single)
            if split[own] == max(split) and (split[own] > 1 or not singles):
                ways = comb(m[0], i) * comb(m[1], j) * comb(m[2], split[2]) * comb(singles, single)
                total += Fraction(ways, split.count(split[own]))
    return float(total / comb(sum(m) + singles, k))


@pytest.mark.parametrize("own", range(3))
def test_a_million_attempts_against_every_split(own: int) -> None:
    m, k = (500_000, 300_000, 200_000), 40
    got = vote(m, [answer == own for answer in range(3)], k)
    assert got == pytest.approx(by_splits(m, 0, own, k), rel=1e-11, abs=1e-13)


@pytest.mark.slow
def test_probabilities_of_all_answers_sum_to_one() -> None:
    rng = np.random.default_rng(1)
    for n in (30, 100, 257):
        counts = np.bincount(rng.zipf(1.6, n) % 40)
        for k in (2, 5, 16, n // 2, n - 1, n):
            chances = [vote(counts.tolist(), [i == j for j in range(counts.size)], k) for i in range(counts.size)]
            assert sum(chances) == pytest.approx(1, abs=1e-12)
            fewer = np.argsort(counts, kind="stable")
            assert (np.diff(np.array(chances)[fewer]) >= -1e-13).all(), "the more attempts, the better the chance"


def test_laws() -> None:
    assert vote([3, 5], [True, False], 1) == pytest.approx(3 / 8, rel=1e-14)
    assert vote([7], [True], 4) == 1
    assert vote([7, 2], [False, False], 4) == 0
    assert vote([3, 1, 1, 1, 1], [True, *[False] * 4], 6) == 1, "two votes at least, and nobody else has two"
    assert vote([1, 9], [True, False], 5) == 0
    assert isnan(vote([2], [True], 3))
    assert isnan(vote([], [], 1))
    for k in (3, 9, 31):  # two answers and an odd k: the strict majority
        assert vote([40, 24], [True, False], k) == pytest.approx(float(finite(f"maj@{k}", 64, 40)), rel=1e-12)
