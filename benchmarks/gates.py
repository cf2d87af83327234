"""Error rates and power of gates, and false alarms in a year of nights: gates.py [LAKES]. Prints five tables.

Problems have success rates from Beta(0.5, 0.7); the candidate's are lower by the same share of the way to 0.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import ndtri, stdtr

from scorelake.metrics.interval import interval
from scorelake.metrics.significance import look_multiplier, verdicts

MARGIN, NIGHTS = 0.02, 365
LAKES = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
SHAPES = {
    "all .03": lambda size: np.full(size, 0.03),
    "95% .97, 5% .02": lambda size: np.where(RNG.random(size) < 0.95, 0.97, 0.02),
    "Beta(.3, .7)": lambda size: RNG.beta(0.3, 0.7, size),
    "Beta(8, 1.2)": lambda size: RNG.beta(8, 1.2, size),
    "60% .05, 40% .9": lambda size: np.where(RNG.random(size) < 0.6, 0.05, 0.9),
    "97% 0, 3% .3": lambda size: np.where(RNG.random(size) < 0.97, 0, 0.3),
}
RNG = np.random.default_rng(1)


def attempts(problems: int, n: int, fall: float, lakes: int = LAKES) -> tuple[np.ndarray, np.ndarray]:
    """Return success shares of the base and of the candidate, lakes x problems."""
    rates = RNG.beta(0.5, 0.7, (lakes, problems))
    lower = rates * (1 - fall / (0.5 / 1.2))
    return RNG.binomial(n, rates) / n, RNG.binomial(n, lower) / n


def gate(base: np.ndarray, candidate: np.ndarray, confidence: float = 0.95, margin: float = MARGIN) -> np.ndarray:
    """Return the verdicts of the gate."""
    d = candidate - base
    se, size = d.std(axis=1, ddof=1) / np.sqrt(d.shape[1]), np.full(len(d), d.shape[1])
    return verdicts(*interval(d.mean(axis=1), se, size, (-1, 1), 2 * confidence - 1, far_problems=1.0), margin)


def unequal() -> None:
    """Print how often equal models fail at margin 0 if one of them has 16 attempts per problem, whichever it is."""
    print("\n| rates | n against 16 | 20 problems | 100 | 300 | 1,000 |\n|---|" + "--:|" * 5)
    for name, draw in SHAPES.items():
        for n in (1, 4):
            shares = []
            for problems in (20, 100, 300, 1000):
                rates = draw((LAKES, problems))
                few, many = RNG.binomial(n, rates) / n, RNG.binomial(16, rates) / 16
                fails = [(gate(*sides, margin=0) == "fail").mean() for sides in ((few, many), (many, few))]
                shares.append(f"{max(fails):.1%}")
            print(f"| {name} | {n} | {' | '.join(shares)} |")


def unpaired(base: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return whether a z-test of two independent means finds a fall beyond the margin."""
    se = np.sqrt((base.var(axis=1, ddof=1) + candidate.var(axis=1, ddof=1)) / base.shape[1])
    return (candidate - base).mean(axis=1) + 1.645 * se < -MARGIN


def power() -> None:
    """Print verdicts by true fall. A fall of 0 must not fail, and one of the margin must not pass, in 5%."""
    print("| problems | n | true fall | fail | pass | unpaired z | threshold |\n" + "|--:" * 7 + "|")
    for problems in (100, 1000):
        for n in (1, 4, 16):
            for fall in (0, 0.01, 0.02, 0.05, 0.1):
                sides = attempts(problems, n, fall)
                verdict, below = gate(*sides), (sides[1] - sides[0]).mean(axis=1) < -MARGIN
                shares = (
                    (verdict == "fail").mean(),
                    (verdict == "pass").mean(),
                    unpaired(*sides).mean(),
                    below.mean(),
                )
                print(f"| {problems:,} | {n} | {fall} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")


def joint() -> None:
    """Print how often equal models, and models worse by the margin, fail over several benchmarks."""
    print("\n| benchmarks | fail, equal | fail, worse by the margin | pass, worse by the margin |\n|--:|--:|--:|--:|")
    for benchmarks in (1, 5, 20):
        sides = {fall: [attempts(100, 4, fall) for _ in range(benchmarks)] for fall in (0, MARGIN)}
        level = 1 - 0.05 / benchmarks  # the first step of Holm decides whether any fails
        fail = [np.any([gate(*pair, level) == "fail" for pair in pairs], axis=0).mean() for pairs in sides.values()]
        passed = np.all([gate(*pair) == "pass" for pair in sides[MARGIN]], axis=0).mean()
        print(f"| {benchmarks} | {fail[0]:.1%} | {fail[1]:.1%} | {passed:.1%} |")


def year() -> None:
    """Print the share of unchanged models with any alarm in a year, and of falls of 3 points found at its end."""
    head = "problems | n | p <= .05 | alarm | falls of 3 points found that night | nights until found | found in 30"
    print(f"\n| {head} |\n" + "|--:" * 7 + "|")
    look = np.arange(1, NIGHTS + 1)
    share = 0.05 * 365 / ((364 + look) * (365 + look))
    for problems, n in ((100, 4), (1000, 4), (1000, 16)):
        any_p, any_alarm = np.zeros(200, dtype=bool), np.zeros(200, dtype=bool)
        rates = RNG.beta(0.5, 0.7, (200, problems))
        before = RNG.binomial(n, rates) / n
        for t in range(NIGHTS):  # every night replaces all attempts
            now = RNG.binomial(n, rates) / n
            p = paired_p(now - before)
            any_p |= p <= 0.05
            any_alarm |= p <= share[t]
            before = now
        lower = rates * (1 - 0.03 / (0.5 / 1.2))
        nights = np.full(200, np.inf)  # until the gate against the run before the fall fails, at margin 0
        for t in reversed(range(NIGHTS)):
            fallen = RNG.binomial(n, lower) / n
            nights[gate(before, fallen, 1 - share[t], margin=0) == "fail"] = t + 1
        found = (paired_p(fallen - before) <= share[-1]).mean()
        shares = " | ".join(f"{x:.1%}" for x in (any_p.mean(), any_alarm.mean(), found))
        middle = np.median(nights)
        wait = f"{middle:.0f}" if np.isfinite(middle) else "more than 365"
        print(f"| {problems:,} | {n} | {shares} | {wait} | {(nights <= 30).mean():.1%} |")


def looks(years: int = 20_000) -> None:
    """Print the share of years with any false alarm, by m_t of a confidence sequence and by shares of the level."""
    print("\n| each look compares | confidence sequence | shares of the level |\n|---|--:|--:|")
    t, z = np.arange(1, NIGHTS + 1), RNG.standard_normal((years, NIGHTS + 1))
    share = ndtri(1 - 0.05 * 365 / ((364 + t) * (365 + t)) / 2)
    kinds = {
        "the mean of all nights so far with a constant": np.cumsum(z[:, 1:], axis=1) / np.sqrt(t),
        "a night with one fixed run": (z[:, 1:] - z[:, :1]) / np.sqrt(2),
        "a night with the one before": np.diff(z, axis=1) / np.sqrt(2),
    }
    for name, score in kinds.items():
        rates = [(np.abs(score) > limit).any(axis=1).mean() for limit in (look_multiplier(t), share)]
        print(f"| {name} | " + " | ".join(f"{rate:.1%}" for rate in rates) + " |")


def paired_p(d: np.ndarray) -> np.ndarray:
    """Return two-sided p-values of Student's paired t."""
    t = d.mean(axis=1) / (d.std(axis=1, ddof=1) / np.sqrt(d.shape[1]))
    return 2 * stdtr(d.shape[1] - 1, -np.abs(t))


if __name__ == "__main__":
    power()
    joint()
    unequal()
    year()
    looks()
