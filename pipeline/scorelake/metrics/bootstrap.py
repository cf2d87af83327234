"""Bootstrap weights and random signs of problems.

Both follow from the seed and from a hash of the problem (or of its cluster), and from nothing else: neither from the
other problems nor from their order. So every model, metric and subject of a benchmark shares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from scorelake.metrics.distributions import Floats, Ints, blocks
from scorelake.threads import parallel_map

Hashes = NDArray[np.uint64]

MAX_UNITS = 1 << 11
"""More problems than this are put into as many blocks by their hashes, and blocks are drawn and flipped as a whole:
the same spread to within two percent, at a cost that does not grow with the benchmark."""
WEIGHTS = np.repeat(np.arange(6, dtype=np.uint8), (94, 95, 46, 16, 4, 1))
"""Weight for each value of a random byte: nearly Poisson, with mean and variance exactly 1."""
MAX_WEIGHT = 5


@dataclass(frozen=True)
class Units:
    """What is drawn and flipped as a whole: a problem, a cluster, or a block of either."""

    index: Ints  # the unit of each problem
    key: Hashes  # the hash of each unit, which seeds its weights and signs
    clustered: bool  # some units are clusters of several problems

    @classmethod
    def of(cls, key: Hashes, max_units: int = MAX_UNITS) -> Units:
        """Make units from the hash of each problem; problems with the same hash are a cluster."""
        distinct = np.unique(key)
        return cls.within(key, distinct, distinct.size < key.size, max_units)

    @classmethod
    def within(cls, key: Hashes, distinct: Hashes | None, clustered: bool, max_units: int = MAX_UNITS) -> Units:
        """Make units of problems that are part of a larger set with these distinct hashes, None if too many."""
        if distinct is not None and distinct.size <= max_units:
            return cls(np.searchsorted(distinct, key), distinct, clustered)
        return cls((key % np.uint64(max_units)).astype(np.int64), np.arange(max_units, dtype=np.uint64), clustered)


@dataclass(frozen=True)
class Resamples:
    """Weights (0 to 5) and signs (0 or 1) of units, resamples x units."""

    weights: NDArray[np.uint8]
    signs: NDArray[np.uint8]

    @property
    def size(self) -> int:
        return len(self.weights)

    def of(self, units: Ints) -> Resamples:
        """Select units."""
        return Resamples(np.take(self.weights, units, axis=1), np.take(self.signs, units, axis=1))

    def factors(self, rows: slice, dtype: type[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the weights and the signs (-1 or 1) of some resamples as matrices units x resamples."""
        signs = self.signs[rows].astype(dtype)
        signs *= 2
        signs -= 1
        return self.weights[rows].astype(dtype).T, signs.T


def resample(key: Hashes, resamples: int, seed: int) -> Resamples:
    """Draw weights and signs of units: eight weights or 64 signs per word of a Philox generator keyed by the unit."""
    draws, flips = -(-resamples // 8), -(-resamples // 64)
    keys = np.full((key.size, 2), seed % 2**64, dtype=np.uint64)
    keys[:, 0] = key
    out = Resamples(*(np.empty((resamples, key.size), dtype=np.uint8) for _ in range(2)))

    def fill(units: slice) -> None:
        words = np.empty((units.stop - units.start, draws + flips), dtype="<u8")
        for i, own in enumerate(keys[units]):
            words[i] = np.random.Philox(key=own).random_raw(draws + flips)
        out.weights[:, units] = WEIGHTS[words[:, :draws].copy().view(np.uint8)[:, :resamples]].T
        out.signs[:, units] = np.unpackbits(words[:, draws:].copy().view(np.uint8), axis=1)[:, :resamples].T

    parallel_map(fill, blocks(key.size, resamples))
    return out


def percentile_ends(
    resampled: Floats, value: Floats, units: Floats | Ints, confidence: float
) -> tuple[Floats, Floats]:
    """Return percentiles of resampled values (values x resamples, reordered), stretched about the value.

    Percentiles of few units are too narrow; NaN for a single unit. Resamples without any of the units are NaN.
    """
    tail, last = (1 - confidence) / 2, resampled.shape[1] - 1
    low, high = int(tail * last), last - int(tail * last)
    resampled.partition(sorted({last, low, high}), axis=1)  # a quarter of the time of sorting
    empty = np.isnan(resampled[:, -1])
    if empty.any():
        resampled[empty] = np.sort(np.where(np.isnan(resampled[empty]), value[empty, None], resampled[empty]), axis=1)
    more = np.where(units > 1, units - 1, np.nan)
    stretch = np.sqrt(units / more) * stdtrit(more, tail) / ndtri(tail)
    lo, hi = (value + stretch * (resampled[:, index] - value) for index in (low, high))
    return lo, hi
