"""Small exact tests and sample sizes: numbers of wins, p-values and spreads in, p-values and sizes out."""

from __future__ import annotations

from math import ceil, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from scorelake.metrics.coins import at_least
from scorelake.metrics.draws import Floats


def sign_test(wins_a: ArrayLike, wins_b: ArrayLike) -> tuple[Floats, Floats]:
    """Exact one-sided (B ahead) and two-sided p-values of the disagreements; no disagreement gives 1.

    Among equals each disagreement is a fair coin: B's wins are Binomial(wins_a + wins_b, 1/2).
    """
    a, b = np.broadcast_arrays(np.asarray(wins_a, dtype=np.int64), np.asarray(wins_b, dtype=np.int64))
    one_sided = at_least(b, a + b)
    two_sided = np.minimum(1, 2 * at_least(np.maximum(a, b), a + b))
    return one_sided, two_sided


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down adjustment of a family of p-values: valid whatever their dependence."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(raw.size, 0, -1))
    out = np.empty_like(raw)
    out[order] = np.minimum(stepped, 1)
    return out


def detectable_lift(se: float, confidence: float = 0.95, power: float = 0.8) -> float:
    """The true lift that a two-sided interval of this standard error tells from zero with this power."""
    return _reach(confidence, power) * se


def problems_needed(variance: float, lift: float, confidence: float = 0.95, power: float = 0.8) -> int:
    """How many problems tell such a lift from zero, when the problems' differences have this variance."""
    return ceil((_reach(confidence, power) * sqrt(variance) / lift) ** 2)


def _reach(confidence: float, power: float) -> float:
    """Standard errors between zero and a lift that is detected with the given power."""
    normal = NormalDist()
    return normal.inv_cdf((1 + confidence) / 2) + normal.inv_cdf(power)
