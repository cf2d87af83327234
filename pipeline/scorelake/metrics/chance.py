"""What chance does to a problem: how often each resample draws it, and which way each flip turns it.

Both follow from the seed and from a number of the problem's own (of its cluster's, where problems belong together),
and from nothing else: neither from the other problems nor from their order. So sums over some of the problems add up
to the sums over all of them, however the problems are parted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.distributions import Ints, blocks
from scorelake.threads import parallel_map

Words = NDArray[np.uint64]

MOST_UNITS = 1 << 11
"""Above this many problems they are dealt into so many hands by their numbers, and whole hands are drawn and flipped:
the same spread to within two percent, and a cost that no longer grows with the benchmark."""
TIMES = np.repeat(np.arange(6, dtype=np.uint8), (94, 95, 46, 16, 4, 1))
"""How often a unit is drawn, for each value of a random byte: nearly Poisson, with mean and variance exactly 1."""
MOST_TIMES = 5


@dataclass(frozen=True)
class Units:
    """What is drawn and flipped as a whole: a problem, a cluster, or a hand of either."""

    of_problem: Ints
    """The unit of each problem."""
    key: Words
    """The number of each unit, from which its chances come."""
    clustered: bool
    """Some problems belong together."""

    @classmethod
    def of(cls, key: Words) -> Units:
        """In: the number of each problem; problems with the same number belong together."""
        known = np.unique(key)
        return cls.among(key, known, known.size < key.size)

    @classmethod
    def among(cls, key: Words, known: Words | None, clustered: bool) -> Units:
        """In: numbers of some problems, and the different numbers that there are in all; None if too many."""
        if known is not None and known.size <= MOST_UNITS:
            return cls(np.searchsorted(known, key), known, clustered)
        return cls((key % np.uint64(MOST_UNITS)).astype(np.int64), np.arange(MOST_UNITS, dtype=np.uint64), clustered)


@dataclass(frozen=True)
class Chance:
    """resamples x units: how often each unit is drawn, and its sign as 0 or 1."""

    times: NDArray[np.uint8]
    heads: NDArray[np.uint8]

    @property
    def resamples(self) -> int:
        return len(self.times)

    @property
    def units(self) -> int:
        return int(self.times.shape[1])

    def of(self, units: Ints) -> Chance:
        """The chances of some units, in rising order."""
        if units.size == self.units:
            return self
        return Chance(*(np.take(each, units, axis=1) for each in (self.times, self.heads)))

    def numbers(self, rows: slice, kind: type[np.floating[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Some resamples as numbers to multiply by, units x resamples: how often drawn, and -1 or 1."""
        signs = self.heads[rows].astype(kind)
        signs *= 2
        signs -= 1
        return self.times[rows].astype(kind).T, signs.T


def chance(key: Words, resamples: int, seed: int) -> Chance:
    """The chances of units with these numbers; those asked for last are kept, since metrics share them."""
    return _chance(key.tobytes(), resamples, seed)


@lru_cache(maxsize=1)
def _chance(keys: bytes, resamples: int, seed: int) -> Chance:
    """Eight draws or 64 signs from every random word; the words of a unit are those of a Philox keyed by it."""
    draws, flips = -(-resamples // 8), -(-resamples // 64)
    key = np.full((len(keys) // 8, 2), seed % 2**64, dtype=np.uint64)
    key[:, 0] = np.frombuffer(keys, dtype=np.uint64)
    drawn = Chance(
        *(np.empty((resamples, len(key)), dtype=np.uint8) for _ in range(2))
    )  # used some resamples at a time

    def some(units: slice) -> None:
        words = np.empty((units.stop - units.start, draws + flips), dtype="<u8")
        for unit, own in enumerate(key[units]):
            words[unit] = np.random.Philox(key=own).random_raw(draws + flips)
        drawn.times[:, units] = TIMES[words[:, :draws].copy().view(np.uint8)[:, :resamples]].T
        drawn.heads[:, units] = np.unpackbits(words[:, draws:].copy().view(np.uint8), axis=1)[:, :resamples].T

    parallel_map(some, blocks(len(key), resamples))
    return drawn
