"""The metric kernels against scorio, on the same outcomes in the same process; medians, printed as ratios.

Ours starts from the same matrix of outcomes as scorio's (the counting is inside the time), one call per
metric, and gives the finite value and the posterior summary together; scorio needs a call for each.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import scorio.eval as peer

from scorelake import metrics

Task = tuple[str, Callable[[np.ndarray, int], object], Callable[[np.ndarray, int], object]]
LEVELS = np.array([0.0, 1.0])


def ours(name: str) -> Callable[[np.ndarray, int], object]:
    return lambda r, k: metrics.summarize(name.format(k=k), r.shape[1], r.sum(axis=1))


def ours_spectrum(r: np.ndarray, k: int) -> object:
    return metrics.summarize(metrics.spectrum([1 / k] * k), r.shape[1], r.sum(axis=1))


def theirs(
    value: Callable[..., object] | None, posterior: Callable[..., object], *extra: float
) -> Callable[[np.ndarray, int], object]:
    return lambda r, k: (value and value(r, k, *extra), posterior(r, k, *extra))


def tasks() -> list[Task]:
    spectrum = lambda r, k: (  # noqa: E731
        peer.threshold_spectrum_at_k(r, k, [1 / k] * k),
        peer.threshold_spectrum_at_k_ci(r, k, [1 / k] * k),
    )
    return [
        ("pass@k", ours("pass@{k}"), theirs(peer.pass_at_k, peer.pass_at_k_ci)),
        ("pass^k", ours("pass^{k}"), theirs(peer.pass_hat_k, peer.pass_hat_k_ci)),
        ("g-pass@k_0.5", ours("g-pass@{k}_0.5"), theirs(peer.g_pass_at_k_tau, peer.g_pass_at_k_tau_ci, 0.5)),
        ("mg-pass@k", ours("mg-pass@{k}"), theirs(peer.mg_pass_at_k, peer.mg_pass_at_k_ci)),
        ("maj@k", ours("maj@{k}"), theirs(peer.maj_at_k, peer.maj_at_k_ci)),
        ("auc@k", ours("auc@{k}"), theirs(peer.auc_at_k, peer.auc_at_k_ci)),
        ("spectrum@k", ours_spectrum, spectrum),
        ("geom@k", ours("geom@{k}"), theirs(peer.geom_at_k, peer.geom_at_k_ci)),
        ("geom-ds@k", ours("geom-ds@{k}"), theirs(peer.geom_ds_at_k, peer.geom_ds_at_k_ci)),
        (
            "geo-spectrum@k",
            ours("geo-spectrum@{k}"),
            theirs(peer.geo_spectrum_at_k, peer.geo_spectrum_at_k_ci),
        ),
        ("avg@N", ours("avg@N"), lambda r, k: peer.avg_ci(r)),
        ("bayes@N", ours("bayes@N"), lambda r, k: peer.bayes_ci(r)),
        ("max@k", ours("max@{k}"), theirs(peer.max_at_k, peer.max_at_k_ci)),
    ]


def seconds(call: Callable[[], object], budget: float = 3.0, most: int = 7) -> float:
    """Median time; fewer repeats when one is long."""
    times: list[float] = []
    while len(times) < most and (not times or sum(times) + times[-1] < budget):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def race(title: str, problems: int, n: int, k: int) -> None:
    rng = np.random.default_rng(1)
    outcomes = (rng.random((problems, n)) < rng.beta(0.6, 0.8, (problems, 1))).astype(np.int64)
    print(f"\n{title}: {problems:,} problems x {n} attempts, k = {k}")
    print(f"  {'metric':<16}{'scorelake':>12}{'scorio':>12}{'ratio':>10}   agreement of mu, sigma")
    total = np.zeros(2)
    for name, mine, peers in tasks():
        times = np.array([seconds(lambda f=f: f(outcomes, k)) for f in (mine, peers)])  # type: ignore[misc]
        total += times
        a, b = mine(outcomes, k), peers(outcomes, k)
        posterior = b[1] if isinstance(b[1], tuple) else b  # type: ignore[index]
        gap = max(abs(a.mu - posterior[0]), abs(a.sigma - posterior[1]))  # type: ignore[attr-defined]
        print(f"  {name:<16}{times[0]:>11.4f}s{times[1]:>11.4f}s{times[1] / times[0]:>9.0f}x   {gap:.0e}")
    print(f"  {'total':<16}{total[0]:>11.4f}s{total[1]:>11.4f}s{total[1] / total[0]:>9.0f}x")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def ten_million() -> None:
    """Every binary family at eight k from counts: constant n, then ragged n."""
    rng = np.random.default_rng(2)
    stems = (
        "pass@{}",
        "pass^{}",
        "g-pass@{}_0.5",
        "mg-pass@{}",
        "maj@{}",
        "auc@{}",
        "geom@{}",
        "geom-ds@{}",
        "geo-spectrum@{}",
        "max@{}",
    )
    names = [stem.format(2**i) for i in range(8) for stem in stems] + ["avg@N", "bayes@N"]
    print(f"\n10,000,000 problems as counts, {len(names)} metrics (8 values of k)")
    for title, n in (
        ("n = 128", np.full(10_000_000, 128)),
        ("n = 16..256", rng.integers(16, 257, 10_000_000)),
    ):
        c = rng.binomial(n, rng.beta(0.6, 0.8, n.size))
        before, start = peak(), time.perf_counter()
        metrics.summarize_all(names, n, c)
        took = time.perf_counter() - start
        print(f"  {title:<12}{took:>8.2f} s, peak {peak():.2f} GB, {peak() - before:.2f} GB above the input")


if __name__ == "__main__":
    ten_million()
    race("Many problems", 100_000, 64, 16)
    race("Large k", 20, 2000, 1000)
