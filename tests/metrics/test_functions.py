"""Every function of scorio.eval 0.2.3 has its equal in scorelake.metrics: the same numbers, to 1e-12."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest

from scorelake import metrics
from scorelake.errors import MetricError

RNG = np.random.default_rng(19)
BANKS = [
    RNG.integers(0, 2, (7, 6)),
    (RNG.random((40, 9)) < RNG.beta(0.4, 0.8, (40, 1))).astype(int),
    np.ones((3, 4), dtype=int),
    np.zeros((3, 4), dtype=int),
]
RUBRIC = RNG.integers(0, 3, (11, 5))
EARLIER = RNG.integers(0, 3, (11, 2))
WORTH = (0.0, 0.5, 1.0)
WEIGHTS = {1: (0.5,), 2: (0.25, 0.5), 3: (0.0, 0.125, 0.875)}
PRIOR = (0.5, 2.5)

# ruff: noqa: N803
VALUES: dict[str, Callable[[Any, int], float]] = {
    "pass_at_k": lambda R, k: metrics.pass_at_k(R=R, k=k),
    "pass_hat_k": lambda R, k: metrics.pass_hat_k(R=R, k=k),
    "unanimous_at_k": lambda R, k: metrics.pass_hat_k(R=R, k=k),
    "g_pass_at_k": lambda R, k: metrics.pass_hat_k(R=R, k=k),
    "g_pass_at_k_tau": lambda R, k: metrics.g_pass_at_k_tau(R=R, k=k, tau=0.4),
    "mg_pass_at_k": lambda R, k: metrics.mg_pass_at_k(R=R, k=k),
    "maj_at_k": lambda R, k: metrics.maj_at_k(R=R, k=k),
    "auc_at_k": lambda R, k: metrics.auc_at_k(R=R, k=k),
    "max_at_k": lambda R, k: metrics.max_at_k(R=R, k=k, w=(-0.25, 1)),
    "threshold_spectrum_at_k": lambda R, k: metrics.threshold_spectrum_at_k(R=R, k=k, weights=WEIGHTS[k]),
    "geom_at_k": lambda R, k: metrics.geom_at_k(R=R, k=k, pass_power=0.3, unanimous_power=0.7),
    "geom_ds_at_k": lambda R, k: metrics.geom_ds_at_k(R=R, k=k, pass_power=0.3, unanimous_power=0.7),
    "geo_spectrum_at_k": lambda R, k: metrics.geo_spectrum_at_k(R=R, k=k, lam=0.3, weights=WEIGHTS[k]),
    "geo_spectrum_star_at_k": lambda R, k: metrics.geo_spectrum_at_k(R=R, k=k),
}
"""What is called in place of each function that gives a value."""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "g_pass_at_k_tau": {"tau": 0.4},
    "max_at_k": {"w": np.array([-0.25, 1])},
    "geom_at_k": {"pass_power": 0.3, "unanimous_power": 0.7},
    "geom_ds_at_k": {"pass_power": 0.3, "unanimous_power": 0.7},
    "geo_spectrum_at_k": {"lam": 0.3},
}
POSTERIORS = {
    "pass_at_k_ci": "pass@{k}",
    "pass_hat_k_ci": "pass^{k}",
    "unanimous_at_k_ci": "unanimous@{k}",
    "g_pass_at_k_ci": "g-pass@{k}",
    "g_pass_at_k_tau_ci": "g-pass@{k}_0.4",
    "mg_pass_at_k_ci": "mg-pass@{k}",
    "maj_at_k_ci": "maj@{k}",
    "auc_at_k_ci": "auc@{k}",
    "geom_at_k_ci": "geom@{k}_0.3_0.7",
    "geom_ds_at_k_ci": "geom-ds@{k}_0.3_0.7",
    "geo_spectrum_at_k_ci": "geo-spectrum@{k}_0.3",
    "geo_spectrum_star_at_k_ci": "geo-spectrum-star@{k}",
}
"""Whose mu, sigma, mu_lo and mu_hi stand for each function that gives an interval."""
OTHERS = {
    *("bayes", "bayes_ci", "avg", "avg_ci", "max_at_k_ci", "threshold_spectrum_at_k_ci"),
    *("tailpass", "tailpass_empirical"),
}
"""Held against each other in tests of their own below."""


@pytest.fixture(scope="module")
def peer() -> Any:
    return pytest.importorskip("scorio.eval", reason="scorio 0.2.3 is not installed: nothing is held against it")


def same(ours: object, theirs: object) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, atol=1e-12)


def told(name: str | metrics.Metric, **given: Any) -> tuple[float, ...]:
    found = metrics.summarize(name, **given)
    return found.mu, found.sigma, found.mu_lo, found.mu_hi


def test_none_is_left_out(peer: Any) -> None:
    assert {*VALUES, *POSTERIORS, *OTHERS} == set(peer.__all__)


@pytest.mark.parametrize("name", VALUES)
def test_values(peer: Any, name: str) -> None:
    theirs = getattr(peer, name)
    for bank, k in product(BANKS, (1, 2, 3)):
        more = ARGUMENTS.get(name, {})
        if "spectrum" in name and "star" not in name:
            more = more | {"weights": WEIGHTS[k]}
        same(VALUES[name](bank, k), theirs(bank, k, **more))


@pytest.mark.parametrize("name", POSTERIORS)
def test_posteriors(peer: Any, name: str) -> None:
    theirs, more = getattr(peer, name), ARGUMENTS.get(name.removesuffix("_ci"), {})
    for bank, k in product(BANKS, (1, 3)):
        given = {"confidence": 0.8, "bounds": (0.1, 0.9)}
        mine = told(POSTERIORS[name].format(k=k), R=bank, prior=PRIOR, **given)
        same(mine, theirs(bank, k, **more, **given, alpha0=PRIOR[0], beta0=PRIOR[1]))


def test_outcomes_that_are_worth_something(peer: Any) -> None:
    given: dict[str, Any] = {"R": RUBRIC, "w": WORTH}
    same(metrics.avg(**given), peer.avg(RUBRIC, WORTH)[0])
    same(metrics.bayes(**given, R0=EARLIER), peer.bayes(RUBRIC, WORTH, EARLIER)[0])
    same(metrics.max_at_k(**given, k=2), peer.max_at_k(RUBRIC, 2, WORTH))
    same(told("avg@N", **given), peer.avg_ci(RUBRIC, WORTH))
    same(told("bayes@N", **given, R0=EARLIER), peer.bayes_ci(RUBRIC, WORTH, EARLIER))
    same(told("max@2", **given, R0=EARLIER), peer.max_at_k_ci(RUBRIC, 2, WORTH, EARLIER))
    same(told("bayes@N", R=BANKS[0]), peer.bayes_ci(BANKS[0]))
    same(told("avg@N", R=BANKS[1], bounds=(0.2, 0.3)), peer.avg_ci(BANKS[1], bounds=(0.2, 0.3)))
    same(told(metrics.spectrum(WEIGHTS[3]), R=BANKS[0]), peer.threshold_spectrum_at_k_ci(BANKS[0], 3, WEIGHTS[3]))


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_tailpass(peer: Any, k: int) -> None:
    """The profile at any k, of verdicts and of a rubric, with a prior and earlier outcomes."""
    cases: list[dict[str, Any]] = [
        {"R": BANKS[0]},
        {"R": BANKS[1], "prior": (0.5, 2.0)},
        {"R": BANKS[1], "thresholds": (0.0, 0.3, 0.31, 1.0)},
        {"R": RUBRIC, "w": WORTH, "R0": EARLIER, "eta": 0.25},
        {"R": RUBRIC, "w": (0.0, 1.0, 1.0)},
        {"R": RUBRIC, "w": (1.0, 0.25, 0.625), "prior": (0.1, 1.0, 3.0)},
    ]
    for case in cases:
        mine = metrics.tailpass(k=k, **case)
        theirs = peer.tailpass(k=k, **{name: np.array(x) if name != "eta" else x for name, x in case.items()})
        same(mine.mean, theirs.mean)
        same(mine.problem_mean, theirs.question_mean)
        same(mine.covariance, theirs.covariance)
        same(mine.std, theirs.std)
        same(mine.interval(0.9), theirs.ci(0.9, method="normal")[2:])
        even = np.full(mine.thresholds.size, 1 / mine.thresholds.size)
        same(mine.linear(even), theirs.linear(even))
        for lam in (0.5, 1.0, 2.0, 4.0):
            same(mine.moment(lam), theirs.moment(lam))
        same(mine.discovery(), theirs.discovery())
        same(mine.stability(), theirs.stability())
        same(mine.at_k(3).mean, theirs.at_k(3).mean)


def test_tailpass_empirical(peer: Any) -> None:
    for bank, k in product(BANKS, (1, 3, 4)):
        same(metrics.tailpass_empirical(R=bank, k=k), peer.tailpass_empirical(bank, k))
    for k in (1, 3, 5):
        mine = metrics.tailpass_empirical(R=RUBRIC, k=k, w=WORTH, thresholds=[0.1, 0.5, 0.9])
        same(mine, peer.tailpass_empirical(RUBRIC, k, WORTH, thresholds=[0.1, 0.5, 0.9]))


# --- without a peer -------------------------------------------------------------------------------------------


def test_tailpass_by_enumeration() -> None:
    """Draw every 3 of the attempts: the share of draws that reach each threshold."""
    bank = [[0, 2, 1, 1], [2, 2, 0, 1], [0, 0, 0, 1]]
    worth = np.array([0.0, 0.25, 1.0])
    chosen = [[i for i in range(4) if i != gone] for gone in range(4)]
    shares = [[np.mean(worth[np.array(row)[some]]) for some in chosen] for row in bank]
    want = [np.mean([[share >= t - 1e-12 for share in row] for row in shares]) for t in (1 / 3, 2 / 3, 1)]
    same(metrics.tailpass_empirical(R=bank, k=3, w=worth), want)


def test_a_threshold_is_a_decimal() -> None:
    """3 times 0.2 and twice 0.7 are a score of 0.4 for 5 attempts, whatever floats make of it."""
    worth, bank = [0.0, 0.2, 0.7], [[1, 1, 1, 2, 2]]
    same(metrics.tailpass_empirical(R=bank, k=5, w=worth), [1, 1, 0, 0, 0])
    mine = metrics.tailpass(R=bank, k=5, w=worth)
    below = metrics.tailpass(R=bank, k=5, w=worth, thresholds=[0.4 - 1e-9])
    same(mine.mean[1], below.mean[0])


def test_the_ends_of_a_profile() -> None:
    """Its first threshold is pass@k and its last pass^k, of counts and of a matrix alike."""
    n, c = [6, 6, 6], [1, 4, 6]
    rows = [[i < right for i in range(6)] for right in c]
    for k in (1, 2, 4):
        mine = metrics.tailpass_empirical(n, c, k)
        same(mine, metrics.tailpass_empirical(R=rows, k=k))
        same(mine[[0, -1]], [metrics.pass_at_k(n, c, k), metrics.pass_hat_k(n, c, k)])
        profile = metrics.tailpass(n, c, k)
        ends = [metrics.summarize(name.format(k), n, c) for name in ("pass@{}", "pass^{}")]
        same(profile.mean[[0, -1]], [end.mu for end in ends])
        same(profile.std[[0, -1]], [end.sigma for end in ends])


def test_ragged_rows_and_missing_attempts() -> None:
    """None is no attempt, in lists, object arrays and masked arrays alike; a row may be as long as it likes."""
    rows = [[1, None, 0], [1, 1], [0, 1, 0, None, 1]]
    want = np.mean([1, 1, 1 - 1 / comb(4, 2)])
    same(metrics.pass_at_k(R=rows, k=2), want)
    same(metrics.pass_at_k(R=[np.array(row, dtype=object) for row in rows], k=2), want)
    masked = np.ma.masked_invalid([[1, np.nan, 0, np.nan, np.nan], [1, 1] + [np.nan] * 3, [0, 1, 0, np.nan, 1]])
    same(metrics.pass_at_k(R=masked, k=2), want)
    same(metrics.pass_at_k(R=[True, False, True], k=1), 2 / 3)
    found = metrics.summarize("pass@4", R=rows, min_coverage=0.3)
    assert (found.value, found.problems, found.problems_scored) == (1.0, 3, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.pass_at_k(R=[[0, 1], [1, 2]], k=1), "an entry must be 0 or 1, got 2"),
        (lambda: metrics.pass_at_k(R=np.array([[0.5, 1.0]]), k=1), "got 0.5"),
        (lambda: metrics.pass_at_k(R=np.array([[np.nan, 1.0]]), k=1), "got nan"),
        (lambda: metrics.pass_at_k(R=[["1", "0"]], k=1), "a number, a boolean or None, got '1'"),
        (lambda: metrics.pass_at_k(R=[[0, 1], 1], k=1), "no matrix of attempts"),
        (lambda: metrics.pass_at_k(R=[], k=1), "no matrix of attempts"),
        (lambda: metrics.pass_at_k(R=np.zeros((2, 2, 2)), k=1), "3 dimensions"),
        (lambda: metrics.pass_at_k(R="0101", k=1), "a str, no matrix"),
        (lambda: metrics.pass_at_k([[0, 1]], 1), "k is missing"),
        (lambda: metrics.pass_at_k(k=3), "no attempts"),
        (lambda: metrics.pass_at_k(3, 1, 1, R=[[1]]), "and R as well"),
        (lambda: metrics.pass_at_k(3, 1, 0), "k must be a whole number >= 1, got 0"),
        (lambda: metrics.pass_at_k(3, 1, 1.5), "k must be a whole number >= 1, got 1.5"),
        (lambda: metrics.pass_at_k([5, 3], [1, 1], 4), "1 of 2 problems have fewer than 4 attempts"),
        (lambda: metrics.pass_at_k([], [], 1), "there are no problems"),
        (lambda: metrics.avg([0, 2], [0, 1]), "1 of 2 problems"),
        (lambda: metrics.avg(R=[[0, 2]], w=[0, 1]), "got 2"),
        (lambda: metrics.avg(3, 1, w=[0, 0.5, 1]), "n and c have two outcomes"),
        (lambda: metrics.avg(R=[[0]], w=[1.0]), "two or more"),
        (lambda: metrics.bayes(R=[[0], [1]], R0=[[1]]), "R0 has 1 problems, R has 2"),
        (lambda: metrics.threshold_spectrum_at_k(3, 1, 2, [0.5]), "1 weights for k = 2"),
        (lambda: metrics.g_pass_at_k_tau(3, 1, 2, tau=1.5), "tau must be a number in"),
        (lambda: metrics.summarize("pass@1", R=[[0, 2]], w=[0, 1, 2]), "only avg@N"),
        (lambda: metrics.tailpass(3, 1, 2, prior=0), "prior"),
        (lambda: metrics.tailpass(3, 1, 2, prior=[1, 1, 1]), "prior has shape"),
        (lambda: metrics.tailpass(3, 1, 2, eta=2), "eta"),
        (lambda: metrics.tailpass(3, 1, 2, w=[0, 2]), "rewards w must be in"),
        (lambda: metrics.tailpass(3, 1, 2, thresholds=[0.5, 0.5]), "rising"),
        (lambda: metrics.tailpass(3, 1, 2).linear([1.0]), "weights must be 2"),
        (lambda: metrics.tailpass(3, 1, 2).moment(0), "lam"),
        (lambda: metrics.tailpass(3, 1, 3000).std, "too many"),
        (lambda: metrics.tailpass(R=[[0, 1, 2, 3]], w=[0, 0.1, 0.2, 1], k=100).mean, "at most 20,000"),
        (lambda: metrics.tailpass_empirical([3, 4], [1, 1], 4), "1 of 2 problems"),
    ],
)
def test_what_makes_no_sense_is_told(call: Callable[[], object], words: str) -> None:
    with pytest.raises(MetricError, match=words):
        call()
