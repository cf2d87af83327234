"""vote@k against the published values and against every possible draw."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb, isnan

import numpy as np
import pytest

from scorelake.errors import MetricError
from scorelake.metrics import finite
from scorelake.metrics.vote import vote


def _count(answers: str, right: str, k: int) -> float:
    counts = Counter(answers)
    return vote(list(counts.values()), [answer in right for answer in counts], k)


def _every_draw(answers: str, right: str, k: int) -> Fraction:
    draws = list(combinations(range(len(answers)), k))
    total = Fraction(0)
    for draw in draws:
        votes = Counter(answers[i] for i in draw)
        leaders = [answer for answer, number in votes.items() if number == max(votes.values())]
        total += Fraction(sum(answer in right for answer in leaders), len(leaders))
    return total / len(draws)


def test_known_values() -> None:
    assert _count("AABBC", "A", 3) == pytest.approx(13 / 30, rel=1e-14)
    assert _count("AAABBCD", "A", 4) == pytest.approx(22 / 35, rel=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_every_draw_of_small_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = "".join(rng.choice(list("ABCDE"), rng.integers(2, 10)))
    right = "A" if seed % 2 else "AC"
    for k in range(1, len(answers) + 1):
        assert _count(answers, right, k) == pytest.approx(float(_every_draw(answers, right, k)), rel=1e-12, abs=1e-15)


def test_a_million_attempts_against_whole_numbers() -> None:
    """Three answers: every split of k votes, counted with binomial coefficients."""
    m, k = (500_000, 300_000, 200_000), 40
    total = Fraction(0)
    for i in range(k + 1):
        for j in range(k + 1 - i):
            split = (i, j, k - i - j)
            if i == max(split):
                total += Fraction(comb(m[0], i) * comb(m[1], j) * comb(m[2], split[2]), split.count(i))
    assert vote(m, (True, False, False), k) == pytest.approx(float(total / comb(sum(m), k)), rel=1e-9)


def test_laws() -> None:
    assert vote([3, 5], [True, False], 1) == pytest.approx(3 / 8, rel=1e-14)
    assert vote([7], [True], 4) == 1
    assert vote([7, 2], [False, False], 4) == 0
    assert isnan(vote([2], [True], 3))
    for k in (3, 9, 31):  # two answers and an odd k: the strict majority
        assert vote([40, 24], [True, False], k) == pytest.approx(float(finite(f"maj@{k}", 64, 40)), rel=1e-12)
    with pytest.raises(MetricError):
        vote([1], [True], 0)
