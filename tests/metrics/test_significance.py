"""Tests, their adjustment and sample sizes against exact fractions and published values."""

import math
from fractions import Fraction
from itertools import accumulate
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, norm

from scorelake.metrics.significance import RADEMACHER, benjamini_hochberg, detectable_lift, holm, sign_test


@pytest.mark.parametrize("tosses", [*range(49), 200, 1001])
def test_every_tail_is_the_exact_fraction(tosses: int) -> None:
    """Both halves, the middle and chances far below what a sum from 1 downwards could resolve."""
    heads = np.arange(tosses + 1)
    one_sided, two_sided = sign_test(tosses - heads, heads)
    sums = accumulate(comb(tosses, x) for x in range(tosses, -1, -1))
    tail = [float(Fraction(x, 2**tosses)) for x in sums][::-1]
    digits = 1e-13 if tosses < 49 else 3e-12
    assert one_sided == pytest.approx(tail, rel=digits, abs=1e-300)
    assert two_sided == pytest.approx([min(1, 2 * tail[max(x, tosses - x)]) for x in heads], rel=digits, abs=1e-300)


@pytest.mark.parametrize("half", [10**6, 10**8, 2**31])
def test_the_sign_test_of_many_problems(half: int) -> None:
    """An even split: half of the outcomes, and half of the middle one, 1 / sqrt(pi half)."""
    one_sided, two_sided = sign_test(half, half)
    assert one_sided == pytest.approx(0.5 + 0.5 / math.sqrt(math.pi * half), rel=1e-7)
    assert (sign_test(half, 0)[0], two_sided) == (1, 1)


def test_holm() -> None:
    assert holm([0.005, 0.01, 0.03, 0.04]) == pytest.approx([0.02, 0.03, 0.06, 0.06], rel=1e-14)
    assert holm([0.04, 0.005, 0.03, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03], rel=1e-14)
    assert holm([0.9, 0.8]).tolist() == [1, 1]
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), max_size=30))
def test_q_is_what_scipy_controls(p: list[float]) -> None:
    want = false_discovery_control(p) if p else []
    assert benjamini_hochberg(p) == pytest.approx(want, rel=1e-12)
    assert (benjamini_hochberg(p) <= holm(p) + 1e-12).all()


def test_the_bound_of_flipped_sums() -> None:
    """It holds for sums of equal numbers at every place, and is as tight as can be at two of them."""
    assert pytest.approx(3.178, abs=1e-3) == RADEMACHER
    for many in range(1, 40):
        for heads in range(many // 2 + 1, many + 1):
            exact = float(sign_test(many - heads, heads)[0])
            assert exact <= RADEMACHER * norm.sf((2 * heads - many) / many**0.5) * (1 + 1e-12)
    assert RADEMACHER * norm.sf(2**0.5) == pytest.approx(float(sign_test(0, 2)[0]))


def test_detectable_lift() -> None:
    """969 problems with differences of variance 1/9 reveal a lift of 0.03, 968 do not."""
    enough, too_few = (detectable_lift((1 / 9 / problems) ** 0.5) for problems in (969, 968))
    assert enough == pytest.approx(0.03, rel=1e-4)
    assert enough < 0.03 < too_few
    adjusted = (norm.ppf(1 - 0.025 / 45) + norm.ppf(0.8)) * 0.01
    assert detectable_lift(0.01, pairs=45) == pytest.approx(adjusted, rel=1e-12)
