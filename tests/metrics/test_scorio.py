"""Every function of scorio.eval 0.2.3 has an equivalent in scorelake.metrics: the same numbers, to 1e-12."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from scorelake import metrics
from scorelake.metrics.estimate import evaluate
from scorelake.metrics.families import Metric

peer = pytest.importorskip("scorio.eval", reason="scorio 0.2.3 is not installed")

RNG = np.random.default_rng(15)
BANKS = [
    RNG.integers(0, 2, (7, 6)),
    (RNG.random((40, 9)) < RNG.beta(0.4, 0.8, (40, 1))).astype(int),
    np.ones((3, 4), dtype=int),
    np.zeros((3, 4), dtype=int),
]
RUBRIC, EARLIER = RNG.integers(0, 3, (11, 5)), RNG.integers(0, 3, (11, 2))
REWARDS = (0.0, 0.5, 1.0)
STEEP = {1: (0.5,), 2: (0.25, 0.5), 3: (0.0, 0.125, 0.875), 4: (0.1, 0.2, 0.3, 0.4)}
BLEND = {"pass_power": 0.3, "unanimous_power": 0.7}
CASES: list[tuple[str, str, str, dict[str, float]]] = [
    ("pass_at_k", "pass_at_k", "pass@{k}", {}),
    ("pass_hat_k", "pass_hat_k", "pass^{k}", {}),
    ("unanimous_at_k", "pass_hat_k", "unanimous@{k}", {}),
    ("g_pass_at_k", "pass_hat_k", "g-pass@{k}", {}),
    ("g_pass_at_k_tau", "g_pass_at_k_tau", "g-pass@{k}_0.4", {"tau": 0.4}),
    ("g_pass_at_k_tau", "g_pass_at_k_tau", "g-pass@{k}_0.5", {"tau": 0.5}),
    ("mg_pass_at_k", "mg_pass_at_k", "mg-pass@{k}", {}),
    ("maj_at_k", "maj_at_k", "maj@{k}", {}),
    ("auc_at_k", "auc_at_k", "auc@{k}", {}),
    ("threshold_spectrum_at_k", "threshold_spectrum_at_k", "spectrum-steep@{k}", {}),
    ("geom_at_k", "geom_at_k", "geom@{k}_0.3_0.7", BLEND),
    ("geom_ds_at_k", "geom_ds_at_k", "geom-ds@{k}_0.3_0.7", BLEND),
    ("geo_spectrum_at_k", "geo_spectrum_at_k", "geo-spectrum@{k}_0.3", {"lam": 0.3}),
    ("geo_spectrum_at_k", "geo_spectrum_at_k", "geo-spectrum-steep@{k}_0.25", {"lam": 0.25}),
    ("geo_spectrum_star_at_k", "geo_spectrum_at_k", "geo-spectrum-star@{k}", {}),
]
"""Function of scorio, function of scorelake, name of the metric, arguments of both functions."""
OTHERS = {"bayes", "bayes_ci", "avg", "avg_ci", "max_at_k", "max_at_k_ci", "tailpass", "tailpass_empirical"}


def same(ours: object, theirs: object) -> None:
    assert np.asarray(ours) == pytest.approx(np.asarray(theirs), rel=1e-12, abs=1e-12, nan_ok=True)


def posterior(name: str | Metric, **given: Any) -> tuple[float, ...]:
    summary = metrics.summarize(name, **given)
    return summary.mu, summary.sigma, summary.mu_lo, summary.mu_hi


def test_every_function_is_covered() -> None:
    assert {each for name, *_ in CASES for each in (name, f"{name}_ci")} | OTHERS == set(peer.__all__)


@pytest.mark.parametrize(("name", "function", "metric", "arguments"), CASES, ids=[case[2] for case in CASES])
def test_values_and_posteriors(name: str, function: str, metric: str, arguments: dict[str, Any]) -> None:
    options = {"confidence": 0.8, "bounds": (0.1, 0.9)}
    for bank, k in product(BANKS, (1, 2, 3, 4)):
        parsed = metrics.parse(metric.format(k=k), {"steep": STEEP[k]})
        given = arguments | ({"weights": STEEP[k]} if "steep" in metric else {})
        value = getattr(peer, name)(bank, k, **given)
        same(getattr(metrics, function)(R=bank, k=k, **given), value)
        same(metrics.summarize(parsed, R=bank).value, value)
        theirs = getattr(peer, f"{name}_ci")
        same(posterior(parsed, R=bank), theirs(bank, k, **given))
        mine = posterior(parsed, R=bank, prior=(0.5, 2.5), **options)
        same(mine, theirs(bank, k, **given, alpha0=0.5, beta0=2.5, **options))


POWERS = [(0.3, 0.7), (1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (-0.5, 1.5), (-1.0, 0.5), (0.5, -0.25), (-1.0, -1.0)]


@pytest.mark.parametrize("powers", POWERS)
@pytest.mark.parametrize("family", ["geom", "geom-ds"])
def test_powers_of_blends(family: str, powers: tuple[float, float]) -> None:
    name = family.replace("-", "_") + "_at_k"
    for bank, k in product(BANKS, (1, 2, 4)):
        metric = f"{family}@{k}_{powers[0]}_{powers[1]}"
        value = metrics.summarize(metric, R=bank).value
        try:
            same(value, getattr(peer, name)(bank, k, *powers))
        except ValueError:  # 0 to a negative power is undefined: there is no value
            assert np.isnan(value)
        same(posterior(metric, R=bank), getattr(peer, f"{name}_ci")(bank, k, *powers))


@pytest.mark.parametrize("weights", [(-0.25, 1.0), (0.0, 1.0), (2.0, -1.0), (0.5, 0.5)])
def test_rewards_of_pass_and_fail(weights: tuple[float, float]) -> None:
    ends = (-10.0, 10.0)
    for bank in BANKS:
        given: dict[str, Any] = {"R": bank, "w": weights, "bounds": ends}
        prior = np.array([[0, 0, 1]] * len(bank))  # two failed, one passed: Beta(2, 3)
        bayes = peer.bayes_ci(bank, weights, prior, bounds=ends)
        same(posterior("avg@N", **given), peer.avg_ci(bank, weights, bounds=ends))
        same(posterior("bayes@N", **given, R0=prior), bayes)
        same(posterior("max@3", **given), peer.max_at_k_ci(bank, 3, weights, bounds=ends))
        for k in (1, 2, 3):
            same(metrics.max_at_k(R=bank, k=k, w=weights), peer.max_at_k(bank, k, weights))
        n, c = np.full(len(bank), bank.shape[1]), bank.sum(axis=1)
        (estimate,) = evaluate([metrics.parse("bayes@N")], n, c, (2.0, 3.0), weights)
        same((estimate.mean.mean(), np.sqrt(estimate.covariance.sum()) / len(bank)), bayes[:2])


@pytest.mark.parametrize("w", [REWARDS, (-1.0, 3.0, 3.0), (2.0, 0.0, -1.0)])
def test_rubric_with_prior_outcomes(w: tuple[float, ...]) -> None:
    given: dict[str, Any] = {"R": RUBRIC, "w": w}
    same(metrics.avg(**given), peer.avg(RUBRIC, w)[0])
    same(metrics.bayes(**given, R0=EARLIER), peer.bayes(RUBRIC, w, EARLIER)[0])
    same(metrics.max_at_k(**given, k=2), peer.max_at_k(RUBRIC, 2, w))
    same(posterior("avg@N", **given), peer.avg_ci(RUBRIC, w))
    same(posterior("bayes@N", **given, R0=EARLIER), peer.bayes_ci(RUBRIC, w, EARLIER))
    same(posterior("max@2", **given, R0=EARLIER), peer.max_at_k_ci(RUBRIC, 2, w, EARLIER))


@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize(
    "case",
    [
        {"R": BANKS[0]},
        {"R": BANKS[1], "prior": (0.5, 2.0)},
        {"R": BANKS[1], "thresholds": (0.0, 0.3, 0.31, 1.0)},
        {"R": RUBRIC, "w": REWARDS, "R0": EARLIER, "eta": 0.25},
        {"R": RUBRIC, "w": (0.0, 1.0, 1.0)},
        {"R": RUBRIC, "w": (1.0, 0.25, 0.625), "prior": (0.1, 1.0, 3.0)},
    ],
)
def test_tailpass(case: dict[str, Any], k: int) -> None:
    mine = metrics.tailpass(k=k, **case)
    theirs = peer.tailpass(k=k, **{name: np.array(x) if name != "eta" else x for name, x in case.items()})
    same(mine.mean, theirs.mean)
    same(mine.problem_mean, theirs.question_mean)
    same(mine.covariance, theirs.covariance)
    same(mine.std, theirs.std)
    same(mine.interval(0.9), theirs.ci(0.9, method="normal")[2:])
    for lam in (0.5, 1.0, 2.0, 4.0):
        same(mine.moment(lam), theirs.moment(lam))


def test_tailpass_empirical() -> None:
    for bank, k in product(BANKS, (1, 3, 4)):
        same(metrics.tailpass_empirical(R=bank, k=k), peer.tailpass_empirical(bank, k))
    for k in (1, 3, 5):
        mine = metrics.tailpass_empirical(R=RUBRIC, k=k, w=REWARDS, thresholds=[0.1, 0.5, 0.9])
        same(mine, peer.tailpass_empirical(RUBRIC, k, REWARDS, thresholds=[0.1, 0.5, 0.9]))
