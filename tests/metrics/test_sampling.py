"""n that depends on outcomes: detected in simulated lakes of 30 problems, estimated without bias by enumeration."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from scorelake import metrics
from scorelake.metrics.distributions import Ints

SHAPES = {"Beta(.3, .7)": (0.3, 0.7), "Beta(2, 2)": (2, 2), "Beta(.5, 3)": (0.5, 3)}


def _verdicts(shape: str, lakes: int, seed: int) -> Ints:
    rng = np.random.default_rng(seed)
    p = rng.beta(*SHAPES[shape], (lakes, 30, 1))
    return (rng.random((lakes, 30, 16)) < p).astype(np.int64)


def _stopped(verdicts: Ints, r: int) -> Ints:
    """Attempts until r passes, at most all."""
    reached = verdicts.cumsum(axis=-1) >= r
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1, verdicts.shape[-1])


def _is_adaptive(verdicts: Ints, n: Ints) -> list[tuple[bool, bool]]:
    """By counts, and by order."""
    out = []
    for each, attempts in zip(verdicts, n, strict=True):
        made = np.arange(each.shape[1]) < attempts[:, None]
        c, m = (each * made).sum(axis=1), int(attempts.min())
        z = metrics.order_statistics(attempts, c, m, each[:, :m].sum(axis=1), each[np.arange(30), attempts - 1])
        out.append((metrics.stops_after(attempts, c) > 0, metrics.depends_on_outcomes(*z)))
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_stopping_at_a_pass_is_detected(shape: str) -> None:
    verdicts = _verdicts(shape, 400, 1)
    found = np.array(_is_adaptive(verdicts, _stopped(verdicts, 1)))
    assert found[:, 1].mean() >= 0.9
    assert found.any(axis=1).mean() >= 0.9
    if shape != "Beta(2, 2)":  # where every problem is solved early, counts alone show no rule
        assert found[:, 0].mean() >= 0.9


@pytest.mark.parametrize("shape", SHAPES)
def test_retries_where_the_first_attempts_failed_are_detected(shape: str) -> None:
    """By the order within problems alone, 33 to 60% were found."""
    verdicts = _verdicts(shape, 400, 4)
    first = verdicts[:, :, :4].sum(axis=-1)
    n = np.where(first == 0, 16, 4)
    found = [metrics.stops_after(np.minimum(attempts, 5), passes) for attempts, passes in zip(n, first, strict=True)]
    assert np.mean(np.array(found) > 0) >= 0.95
    unrelated = np.random.default_rng(5).permuted(n, axis=1)
    false = [metrics.stops_after(np.minimum(attempts, 5), c) for attempts, c in zip(unrelated, first, strict=True)]
    assert np.mean(np.array(false) > 0) <= 0.05


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", ["4 to 16", "some ungraded"])
def test_attempts_fixed_in_advance_are_not(shape: str, rule: str) -> None:
    verdicts, rng = _verdicts(shape, 1000, 2), np.random.default_rng(3)
    n = rng.integers(4, 17, (1000, 30)) if rule == "4 to 16" else 16 - (rng.random((1000, 30)) < 0.1)
    by_counts, by_order = np.mean(_is_adaptive(verdicts, n), axis=0)
    assert by_counts <= 0.06
    assert by_order <= 0.06


def test_counts_show_a_rule_only_where_it_is_no_accident() -> None:
    assert metrics.stops_after([8] * 20, [0] * 20) == 0, "one n"
    assert metrics.stops_after([2, *[8] * 20], [2, *[1] * 20]) == 2
    assert metrics.stops_after([2, *[8] * 5], [2, *[1] * 5]) == 0, "one of six is no evidence"
    assert metrics.stops_after([2, *[8] * 20], [0, *[0] * 20]) == 0, "below the largest n without a pass"
    assert metrics.stops_after([], []) == 0


@pytest.mark.parametrize(("r", "cap"), [(1, 1), (1, 4), (2, 5), (3, 6)])
@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(9, 10)])
def test_stopped_values_are_unbiased(r: int, cap: int, p: Fraction) -> None:
    """The expectation over all sequences of verdicts, in exact fractions."""
    total = Fraction(0)
    for verdicts in product((0, 1), repeat=cap):
        n = int(_stopped(np.array([verdicts]), r)[0])
        value = metrics.finite(f"stopped@{r}", n, sum(verdicts[:n]))
        chance = p ** sum(verdicts) * (1 - p) ** (cap - sum(verdicts))
        total += chance * Fraction(float(value)).limit_denominator(100)
    assert total == p


def test_a_group_that_breaks_the_rule_has_no_value() -> None:
    follows = metrics.summarize("stopped@1", [3, 1, 8], [1, 1, 0])
    assert (follows.value, follows.problems_scored) == (pytest.approx(1 / 3), 3)
    assert follows.mu == pytest.approx(np.mean([2 / 5, 2 / 3, 1 / 10]), rel=1e-12), "the rule is not part of c and n"
    assert np.isnan(metrics.summarize("stopped@1", [3, 1, 8] * 20 + [4], [1, 1, 0] * 20 + [2]).value)
    assert np.isnan(metrics.finite("stopped@2", [1, 0], [1, 0])).all(), "two passes take two attempts"
