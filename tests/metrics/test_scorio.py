"""Every option of the papers against scorio 0.2.3, which has them all: on random outcomes, to 1e-12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from scorelake import metrics

peer = pytest.importorskip("scorio.eval", reason="scorio 0.2.3 is not installed: options are not held against it")

RNG = np.random.default_rng(15)
BANKS = [
    RNG.integers(0, 2, (7, 6)),
    (RNG.random((40, 9)) < RNG.beta(0.4, 0.8, (40, 1))).astype(int),
    np.ones((3, 4), dtype=int),
]
STEEP = {1: (0.5,), 2: (0.25, 0.5), 3: (0.0, 0.125, 0.875), 4: (0.1, 0.2, 0.3, 0.4)}


def got(metric: str | metrics.Metric, bank: Any, **options: Any) -> tuple[float, tuple[float, ...]]:
    """Value, and mu, sigma, mu_lo, mu_hi."""
    clip = options.pop("clip", None)
    chosen = metrics.parse(metric) if isinstance(metric, str) else metric
    n, c = np.full(len(bank), bank.shape[1]), bank.sum(axis=1)
    (estimate,) = metrics.evaluate([chosen], n, c, options.pop("prior", (1.0, 1.0)), **options)
    found = metrics.aggregate([estimate], csr_array(np.ones((1, n.size))), clip=clip)[0].first()
    return found.value, (found.mu, found.sigma, found.mu_lo, found.mu_hi)


def same(ours: object, theirs: object) -> None:
    assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("bank", BANKS, ids=["small", "hard", "all right"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.5, 2.5)])
def test_every_family(bank: Any, k: int, prior: tuple[float, float]) -> None:
    alpha, beta = prior
    pairs: list[tuple[str | metrics.Metric, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
        ("pass@{k}", peer.pass_at_k, peer.pass_at_k_ci, ()),
        ("pass^{k}", peer.pass_hat_k, peer.pass_hat_k_ci, ()),
        ("g-pass@{k}_0.5", peer.g_pass_at_k_tau, peer.g_pass_at_k_tau_ci, (0.5,)),
        ("mg-pass@{k}", peer.mg_pass_at_k, peer.mg_pass_at_k_ci, ()),
        ("maj@{k}", peer.maj_at_k, peer.maj_at_k_ci, ()),
        ("auc@{k}", peer.auc_at_k, peer.auc_at_k_ci, ()),
        ("geo-spectrum@{k}_0.3", peer.geo_spectrum_at_k, peer.geo_spectrum_at_k_ci, (0.3,)),
        ("geo-spectrum-star@{k}", peer.geo_spectrum_star_at_k, peer.geo_spectrum_star_at_k_ci, ()),
    ]
    for name, value, posterior, extra in pairs:
        mine = got(str(name).format(k=k), bank, prior=prior)
        same(mine[0], value(bank, k, *extra))
        same(mine[1], posterior(bank, k, *extra, alpha0=alpha, beta0=beta))
    own = metrics.parse_own(f"spectrum-steep@{k}", {"steep": STEEP[k]})
    assert own.name == f"spectrum-steep@{k}"
    same(got(own, bank, prior=prior)[0], peer.threshold_spectrum_at_k(bank, k, STEEP[k]))
    theirs = peer.threshold_spectrum_at_k_ci(bank, k, STEEP[k], alpha0=alpha, beta0=beta)
    same(got(own, bank, prior=prior)[1], theirs)
    blended = metrics.parse_own(f"geo-spectrum-steep@{k}_0.25", {"steep": STEEP[k]})
    assert blended.name == f"geo-spectrum-steep@{k}_0.25"
    mine = got(blended, bank, prior=prior)
    same(mine[0], peer.geo_spectrum_at_k(bank, k, 0.25, STEEP[k]))
    same(mine[1], peer.geo_spectrum_at_k_ci(bank, k, 0.25, STEEP[k], alpha0=alpha, beta0=beta))


POWERS = [(0.3, 0.7), (1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (-0.5, 1.5), (-1.0, 0.5), (0.5, -0.25), (-1.0, -1.0)]


@pytest.mark.parametrize("powers", POWERS)
@pytest.mark.parametrize("family", ["geom", "geom-ds"])
def test_powers_of_the_blends(family: str, powers: tuple[float, float]) -> None:
    value, posterior = (
        (peer.geom_at_k, peer.geom_at_k_ci) if family == "geom" else (peer.geom_ds_at_k, peer.geom_ds_at_k_ci)
    )
    for bank in (*BANKS, np.zeros((3, 4), dtype=int)):
        for k in (1, 2, 4):
            mine = got(f"{family}@{k}_{powers[0]}_{powers[1]}", bank)
            try:
                same(mine[0], value(bank, k, *powers))
            except ValueError:  # a part of 0 to a negative power: not defined, so there is no value
                assert np.isnan(mine[0])
            same(mine[1], posterior(bank, k, *powers))


def test_bounds_of_the_posterior() -> None:
    bank = BANKS[0]
    for ends in ((0.2, 0.6), (-1.0, 2.0), (0.9, 0.95)):
        same(got("pass@3", bank, clip=ends)[1], peer.pass_at_k_ci(bank, 3, bounds=ends))
        same(got("bayes@N", bank, clip=ends)[1], peer.bayes_ci(bank, bounds=ends))


@pytest.mark.parametrize("weights", [(-0.25, 1.0), (0.0, 1.0), (2.0, -1.0), (0.5, 0.5)])
def test_weights_of_verdicts(weights: tuple[float, float]) -> None:
    ends = (-10.0, 10.0)
    for bank in BANKS:
        same(got("avg@N", bank, worth=weights, clip=ends)[1], peer.avg_ci(bank, weights, bounds=ends))
        prior = np.array([[0, 0, 1]] * len(bank))  # two failed, one passed
        theirs = peer.bayes_ci(bank, weights, prior, bounds=ends)
        same(got("bayes@N", bank, worth=weights, prior=(2.0, 3.0), clip=ends)[1], theirs)
        mine = got("max@3", bank, worth=weights, clip=ends)
        same(mine[0], peer.max_at_k(bank, 3, weights))
        same(mine[1], peer.max_at_k_ci(bank, 3, weights, bounds=ends))


@pytest.mark.parametrize("weights", [(0.0, 0.5, 1.0), (-1.0, 3.0, 3.0), (2.0, 0.0, -1.0)])
def test_prior_outcomes_of_a_rubric(weights: tuple[float, ...]) -> None:
    bank = RNG.integers(0, 3, (11, 5))
    prior = np.array([[0, 2, 2, 1]] * 11)
    counts = np.stack([(bank == level).sum(axis=1) for level in range(3)], axis=1)
    for name, theirs in (
        ("bayes@N", peer.bayes(bank, weights, prior)),
        ("avg@N", peer.avg(bank, weights)),
        ("max@2", peer.max_at_k_ci(bank, 2, weights, prior)[:2]),
    ):
        mine = metrics.summarize_levels(name, weights, counts, prior_counts=[1, 1, 2])
        same((mine.mu, mine.sigma), theirs)
