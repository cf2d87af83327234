"""All pairs of 50 models on 20,000 problems, 10,000 resamples, against a straightforward numpy loop.

The loop is timed on a few pairs (one resample of one pair at a time, as it is usually written) and scaled up;
its intervals must agree with ours.
"""

from __future__ import annotations

import os
import resource
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np

from scorelake.metrics.chance import Units
from scorelake.metrics.distributions import Floats
from scorelake.metrics.matrix import Matrix
from scorelake.metrics.resample import Plan, Sample, resampled

MODELS, PROBLEMS, ATTEMPTS = 50, 20_000, 16
LOOPED = 3


def scores(missing: float) -> Floats:
    rng = np.random.default_rng(1)
    rate = np.clip(rng.beta(0.6, 0.8, PROBLEMS) + rng.normal(0, 0.05, (MODELS, 1)), 0, 1)
    out: Floats = rng.binomial(ATTEMPTS, rate) / ATTEMPTS
    out[rng.random(out.shape) < missing] = np.nan
    return out


def loop(a: Floats, b: Floats, plan: Plan) -> tuple[float, float]:
    """One pair, one resample after the other."""
    d = (b - a)[~np.isnan(b - a)]
    rng = np.random.default_rng(plan.seed)
    means = [d[rng.integers(0, d.size, d.size)].mean() for _ in range(plan.resamples)]
    lo, hi = np.quantile(means, [(1 - plan.confidence) / 2, (1 + plan.confidence) / 2])
    return float(lo), float(hi)


def race(title: str, missing: float) -> None:
    plan, matrix = Plan(), scores(missing)
    a, b = np.triu_indices(MODELS, 1)
    start = time.perf_counter()
    units = Units.of(np.random.default_rng(3).integers(0, 2**64, PROBLEMS, dtype=np.uint64))
    sample = Sample(Matrix.of(matrix), units.of_problem, units.key, a, b, np.arange(MODELS))
    lifts, _ = resampled(sample, plan, plan.enough(a.size))
    ours = time.perf_counter() - start
    start = time.perf_counter()
    ends = np.array([loop(matrix[a[i]], matrix[b[i]], plan) for i in range(LOOPED)])
    theirs = (time.perf_counter() - start) / LOOPED * a.size
    gap = np.abs(ends - np.stack([lifts.lo, lifts.hi], axis=1)[:LOOPED]).max() / (lifts.hi - lifts.lo)[:LOOPED].min()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{title}: {a.size:,} pairs of {MODELS} models x {PROBLEMS:,} problems, {plan.resamples:,} resamples\n"
        f"  scorelake {ours:.1f} s (intervals, tests and ranks), peak {memory:.2f} GB; "
        f"numpy loop {theirs:,.0f} s ({LOOPED} pairs, scaled); ratio {theirs / ours:,.0f}x; "
        f"intervals agree to {gap:.1%} of their width"
    )


if __name__ == "__main__":
    race("every model on every problem", 0.0)
    if "--ragged" in sys.argv:
        race("2% missing at random, so that every pair has its own problems", 0.02)
