"""Public functions of metrics: matrices of attempts, TailPass without a peer, names, and invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from numpy.testing import assert_allclose

from scorelake import metrics
from scorelake.errors import MetricError, ScorelakeError
from scorelake.metrics.families import needs_equal_n


def same(ours: object, theirs: object) -> None:
    assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, atol=1e-12)


def test_tailpass_by_enumeration() -> None:
    """Draw every 3 of the attempts: the share of draws that reach each threshold."""
    bank = [[0, 2, 1, 1], [2, 2, 0, 1], [0, 0, 0, 1]]
    rewards = np.array([0.0, 0.25, 1.0])
    chosen = [[i for i in range(4) if i != gone] for gone in range(4)]
    shares = [[np.mean(rewards[np.array(row)[drawn]]) for drawn in chosen] for row in bank]
    want = [np.mean([[share >= t - 1e-12 for share in row] for row in shares]) for t in (1 / 3, 2 / 3, 1)]
    same(metrics.tailpass_empirical(R=bank, k=3, w=rewards), want)


def test_thresholds_tolerate_float_rounding() -> None:
    """3 times 0.2 and twice 0.7 are a score of 0.4 for 5 attempts, whatever floats make of it."""
    rewards, bank = [0.0, 0.2, 0.7], [[1, 1, 1, 2, 2]]
    same(metrics.tailpass_empirical(R=bank, k=5, w=rewards), [1, 1, 0, 0, 0])
    mine = metrics.tailpass(R=bank, k=5, w=rewards)
    below = metrics.tailpass(R=bank, k=5, w=rewards, thresholds=[0.4 - 1e-9])
    same(mine.mean[1], below.mean[0])


def test_ends_of_a_profile_are_pass_at_k_and_pass_hat_k() -> None:
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
    """None is a missing attempt in lists, object arrays and masked arrays, NaN in any; rows differ in length."""
    rows = [[1, None, 0], [1, 1], [0, 1, 0, None, 1]]
    want = np.mean([1, 1, 1 - 1 / comb(4, 2)])
    same(metrics.pass_at_k(R=rows, k=2), want)
    same(metrics.pass_at_k(R=[np.array(row, dtype=object) for row in rows], k=2), want)
    masked = np.ma.masked_invalid([[1, np.nan, 0, np.nan, np.nan], [1, 1] + [np.nan] * 3, [0, 1, 0, np.nan, 1]])
    same(metrics.pass_at_k(R=masked, k=2), want)
    same(metrics.pass_at_k(R=masked.filled(np.nan), k=2), want)
    same(metrics.pass_at_k(R=masked.filled(np.nan).tolist(), k=2), want)
    same(metrics.pass_at_k(R=[True, False, True], k=1), 2 / 3)
    summary = metrics.summarize("pass@4", R=rows, min_coverage=0.3)
    assert (summary.value, summary.problems, summary.problems_scored) == (1.0, 3, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.pass_at_k(R=[[0, 1], [1, 2]], k=1), "an entry must be 0 or 1, got 2"),
        (lambda: metrics.pass_at_k(R=np.array([[0.5, 1.0]]), k=1), "got 0.5"),
        (lambda: metrics.pass_at_k(R=np.array([[np.inf, 1.0]]), k=1), "got inf"),
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
        (lambda: metrics.posterior("pass@1", 5, 3, (0, 1)), "two positive numbers"),
        (lambda: metrics.posterior("pass@1", 5, 3, (float("nan"), 1)), "two positive numbers"),
        (lambda: metrics.posterior("pass@1", 5, 3, (1.0,)), "two positive numbers"),  # type: ignore[arg-type]
        (lambda: metrics.summarize("pass@1", 5, 3, confidence=1.0), "confidence must be"),
        (lambda: metrics.summarize("pass@1", 5, 3, min_coverage=2), "min_coverage must be"),
        (lambda: metrics.summarize("pass@1", [5, 5], [3, 3], problems=[1, -1]), "problems must be whole numbers"),
        (lambda: metrics.summarize("pass@1", [5, 5], [3, 3], problems=[1, 1, 1]), "problems has shape"),
        (lambda: metrics.finite_levels("pass@1", [0, 1], [[1, 2]]), "only avg@N"),
        (lambda: metrics.finite_levels("vote@3", [0, 1], [[1, 2]]), "only avg@N"),
        (lambda: metrics.finite_levels("max@1", [0, float("nan")], [[1, 2]]), "list of finite numbers"),
        (lambda: metrics.finite_levels("max@1", [0, 1], [[1, 2, 3]]), "counts must have shape"),
        (lambda: metrics.posterior_levels("bayes@N", [0, 1], [[1, 2]], [1, 2, 3]), "prior_counts must be"),
        (lambda: metrics.posterior_levels("bayes@N", [0, 1], [[1, 2]], [[1, 2], [1, 2]]), "2 rows for 1 problems"),
        (lambda: metrics.spectrum([0.5, 0.6]), "sum <= 1"),
        (lambda: metrics.spectrum([-0.5, 0.6]), "numbers >= 0"),
        (lambda: metrics.spectrum([]), "weights must be"),
        (lambda: metrics.vote([1], [True], 0), "k must be >= 1"),
        (lambda: metrics.vote([1, 2], [True], 1), "every answer right or not"),
        (lambda: metrics.vote([-1], [True], 1), "counts must be whole numbers"),
        (lambda: metrics.finite("vote@3", 5, 3), "n and c do not determine the answers"),
        (lambda: metrics.posterior("vote@3", 5, 3), "n and c do not determine the answers"),
        (lambda: metrics.summarize("vote@3", 5, 3), "n and c do not determine the answers"),
        (lambda: metrics.tailpass(3, 1, 2, prior=0), "prior"),
        (lambda: metrics.tailpass(3, 1, 2, prior=[1, 1, 1]), "prior has shape"),
        (lambda: metrics.tailpass(3, 1, 2, eta=2), "eta"),
        (lambda: metrics.tailpass(3, 1, 2, w=[0, 2]), "rewards w must be in"),
        (lambda: metrics.tailpass(3, 1, 2, thresholds=[0.5, 0.5]), "rising"),
        (lambda: metrics.tailpass(3, 1, 2).moment(0), "lam"),
        (lambda: metrics.tailpass(3, 1, 3000).std, "too many"),
        (lambda: metrics.tailpass(R=[[0, 1, 2, 3]], w=[0, 0.1, 0.2, 1], k=100).mean, "at most 20,000"),
        (lambda: metrics.tailpass_empirical([3, 4], [1, 1], 4), "1 of 2 problems"),
    ],
)
def test_invalid_arguments_raise(call: Callable[[], object], message: str) -> None:
    with pytest.raises(MetricError, match=message):
        call()


@pytest.mark.parametrize(
    ("canonical", "aliases"),
    [
        ("pass@8", [" PASS@8 "]),
        ("pass^8", ["Pass^8", "pass-hat@8", "pass_hat@8", "unanimous@8", "G-Pass@8"]),
        ("g-pass@8_0.5", ["G-Pass@8_0.50"]),
        ("g-pass@8_1.0", ["g_pass@8_{1}"]),
        ("g-pass@10_0.3", ["g-pass@10_0.30000000000000004"]),
        ("mg-pass@16", ["mG-Pass@16"]),
        ("maj@5", ["Maj@5"]),
        ("auc@4", ["AUC@4"]),
        ("geom@4", ["Geom@4"]),
        ("geom-ds@4", ["geom-DS@4"]),
        ("geo-spectrum@4", ["GeoSpectrum@4", "geo-spectrum@4_0.5", "geo-spectrum-star@4"]),
        ("geo-spectrum@4_1.0", []),
        ("avg@N", ["Avg"]),
        ("bayes@N", ["Bayes@n"]),
        ("max@3", ["best@3"]),
        ("agree@2", ["Agree"]),
        ("cover@0.3", ["cover@0.30000000000000004", "Cover@.3"]),
        ("cover@1.0", ["cover@1"]),
        ("spectrum-steep@4", ["Spectrum-Steep@4"]),
        ("geo-spectrum-steep@4", ["geo-spectrum-steep@4_0.50"]),
        ("geo-spectrum-steep@4_0.3", []),
    ],
)
def test_names(canonical: str, aliases: list[str]) -> None:
    spectra = {"steep": [0.1, 0.2, 0.3, 0.4]}
    assert {metrics.parse(name, spectra).name for name in (canonical, *aliases)} == {canonical}


def test_metrics_that_are_biased_by_n_say_what_to_use_instead() -> None:
    """Every other one is unbiased at any n; n that differs by a twentieth is no reason to refuse."""
    biased = {family.name: family.instead for family in metrics.families() if family.instead}
    assert biased.keys() == {"geom@k", "bayes@N", "cover@tau"}
    for name, differs in (("bayes@N", True), ("geom@8_0.3_0.7", True), ("cover@0.5", True), ("geom-ds@8", False)):
        assert (bool(needs_equal_n(name, 1.04)), bool(needs_equal_n(name, 2))) == (False, differs)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pas@8", "did you mean pass@8"),
        ("geospectrm@8", "geo-spectrum@8"),
        ("zzzz@8", "known: pass@k"),
        ("", "unknown metric ''"),
        ("pass@0", "pass@0: k must be a whole number >= 1, got '0'"),
        ("pass@-1", "got '-1'"),
        ("pass@2.5", "got '2.5'"),
        ("pass@", "got ''"),
        ("pass", "k must be"),
        ("pass@N", "got 'n'"),
        ("pass@8_0.5", "takes no parameter"),
        ("g-pass@8_1.5", "g-pass@8_1.5: tau must be a number in [0, 1], got '1.5'"),
        ("g-pass@8_nan", "tau must be a number"),
        ("g-pass@8_x", "tau must be a number"),
        ("geo-spectrum@8_-0.1", "lambda must be a number in [0, 1]"),
        ("avg@64", "always uses all attempts"),
        ("spectrum@4", "weights come from the config file"),
        ("agree@4", "agree@4: it always draws 2 attempts"),
        ("cover@8", "cover@8: tau must be a number in (0, 1], got '8'"),
        ("cover@0", "tau must be a number in (0, 1], got '0'"),
        ("cover@8_0.5", "tau must be a number in (0, 1], got '8_0.5'"),
        ("cover", "tau must be a number in (0, 1], got ''"),
    ],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(MetricError) as error:
        metrics.parse(name)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("n", "c", "says"),
    [
        (5, 6, "c must not exceed n, got n=5, c=6"),
        ([5, 7], [5, 9], "got n=7, c=9"),
        (-1, 0, "n must be whole numbers >= 0, got -1"),
        (5, -2, "c must be whole numbers >= 0, got -2"),
        (5.5, 2, "got 5.5"),
        (5, float("nan"), "got nan"),
        (float("inf"), 1, "got inf"),
        ("five", 1, "got"),
        ([5, 5, 5], [1, 2], "differ in shape"),
        (None, 1, "n must be whole numbers"),
    ],
)
def test_bad_counts(n: object, c: object, says: str) -> None:
    for call in (metrics.finite, metrics.posterior, metrics.summarize):
        with pytest.raises(MetricError) as error:
            call("pass@1", n, c)  # type: ignore[operator]
        assert says in str(error.value)


def test_errors_are_ours_and_value_errors() -> None:
    assert issubclass(MetricError, ScorelakeError)
    assert issubclass(MetricError, ValueError)
    assert MetricError.exit_code == 2


def test_scalars_and_shapes() -> None:
    assert float(metrics.finite("pass@2", 5, 3)) == pytest.approx(0.9)
    assert metrics.finite("pass@2", [[5, 5]], [[3, 4]]).shape == (1, 2)
    assert metrics.finite("pass@2", [], []).shape == (0,)
    assert metrics.finite("pass@2", True, 1.0).shape == ()
