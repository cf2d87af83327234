"""Laws that hold for every registered metric, on random counts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from scorelake import metrics
from scorelake.metrics.families import Metric

EXAMPLES = {"g-pass@k_tau": (0.0, 0.3, 0.5, 1.0), "geo-spectrum@k": (0.0, 0.5, 0.8), "cover@tau": (0.2, 0.5, 1.0)}


def registry(k: int) -> list[Metric]:
    """Every family of n and c at k, with a few parameters where there are any."""
    out = []
    for family in metrics.families():
        if family.parameter == "weights":
            out.append(metrics.spectrum([1 / (2 * k)] * k))
        elif family.vote is None:
            out += map(metrics.parse, replace(family, examples=EXAMPLES.get(family.name, ())).names([k]))
    return out


counts = st.lists(
    st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=12
)
draws = st.integers(1, 40)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    n, c = np.array(pairs).T
    return n, c


@pytest.mark.slow
@given(counts, draws)
def test_bounds(pairs: list[tuple[int, int]], k: int) -> None:
    n, c = columns(pairs)
    for metric in registry(k):
        value = metrics.finite(metric, n, c)
        mean, variance = metrics.posterior(metric, n, c)
        assert_array_equal(np.isnan(value), n < metric.draws)
        scored = value[~np.isnan(value)]
        assert ((scored >= 0) & (scored <= 1)).all()
        defined = ~np.isnan(mean)
        assert ((mean[defined] >= 0) & (mean[defined] <= 1) & (variance[defined] >= 0)).all()
        if metric.family.credit:  # a variable in [0, 1]
            assert (variance <= mean * (1 - mean) + 1e-15).all()


@pytest.mark.slow
@given(st.integers(1, 60), draws)
def test_monotone_in_c(n: int, k: int) -> None:
    c = np.arange(n + 1)
    for metric in registry(k):
        if metric.name == "agree@2":  # of nothing and of everything alike
            continue
        value, (mean, _) = metrics.finite(metric, n, c), metrics.posterior(metric, n, c)
        assert n < metric.draws or (np.diff(value) >= -1e-14).all()
        assert (np.diff(mean) >= -1e-14).all()


@pytest.mark.slow
@given(counts, draws)
def test_equal_by_definition(pairs: list[tuple[int, int]], k: int) -> None:
    n, c = columns(pairs)
    twins = [
        (f"max@{k}", f"pass@{k}"),
        (f"g-pass@{k}_0", f"pass@{k}"),
        (f"g-pass@{k}_1", f"pass^{k}"),
        (f"g-pass@{k}", f"pass^{k}"),
        (f"geo-spectrum@{k}_0", f"mg-pass@{k}"),
        (f"geo-spectrum@{k}_1", f"pass@{k}"),
    ]
    for a, b in twins:
        assert_allclose(metrics.finite(a, n, c), metrics.finite(b, n, c), rtol=1e-12, atol=1e-15)
        for x, y in zip(metrics.posterior(a, n, c), metrics.posterior(b, n, c), strict=True):
            assert_allclose(x, y, rtol=1e-9, atol=1e-15)
    for x, y in zip(metrics.posterior("bayes@N", n, c), metrics.posterior("pass@1", n, c), strict=True):
        assert_allclose(x, y, rtol=1e-12)


@pytest.mark.slow
@given(counts, draws, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_order_and_multiplicity_do_not_matter(pairs: list[tuple[int, int]], k: int, rng) -> None:  # type: ignore[no-untyped-def]
    times = [rng.randint(0, 4) for _ in pairs]
    repeated = [pair for pair, t in zip(pairs, times, strict=True) for _ in range(t)]
    rng.shuffle(repeated)
    n, c = columns(pairs)
    for metric in registry(k):
        want = metrics.summarize(metric, n, c, times, min_coverage=0.3)
        if not repeated:
            assert want.problems == 0
            continue
        assert_array_equal(
            np.array(list(vars(metrics.summarize(metric, *columns(repeated), min_coverage=0.3)).values())),
            np.array(list(vars(want).values())),
        )


@pytest.mark.slow
@given(counts, draws)
@settings(max_examples=15)
def test_all_at_once_equals_one_by_one(pairs: list[tuple[int, int]], k: int) -> None:
    n, c = columns(pairs)
    names = [*registry(k), *registry(1)]
    together = metrics.summarize_all(names, n, c)
    for metric, got in zip(names, together, strict=True):
        one = metrics.summarize(metric, n, c)
        assert_array_equal(list(vars(got).values()), list(vars(one).values()))
