"""Sums of scores of models on the same problems, from which comparisons are made.

Scores are a matrix models x problems, NaN where a model has no score. Problems may lie in several files: the sums of
each add up to those of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from scorelake.metrics.distributions import Floats, Ints, blocks
from scorelake.threads import parallel_map

_QUANTUM = 2.0**-42
"""Scores that differ by less than this share of the largest are equal: rounding must not decide a win."""
_MIN_DIFFERENCE = 1e-150  # smaller differences are ties: their squares would vanish
_SAME_SIZE = 1e-9  # relative spread below which all differences of a pair count as equally large
_PAIRS = 64  # pairs per block: a few columns show that their differences are not equally large


@dataclass(frozen=True)
class ModelSums:
    """Scores of each model, added up by unit."""

    sums: Floats  # models x units
    counts: Floats  # problems scored, models x units; a single row where all models are scored on all problems
    shared: NDArray[np.int32]
    """Problems scored by two models, models x models; a single number where all are scored on all problems."""
    ends: tuple[float, float]  # smallest and largest score, 0 included

    @classmethod
    def of(cls, scores: Floats, unit: Ints, units: int) -> ModelSums:
        scored, onto = ~np.isnan(scores), unit_matrix(unit, units)
        flags = scored[:1] if scored.all() else scored
        counts = (onto @ flags.T.astype(np.float64)).T
        filled = np.where(scored, scores, 0.0)
        ends = float(filled.min(initial=0.0)), float(filled.max(initial=0.0))
        return cls(np.ascontiguousarray((onto @ filled.T).T), counts, count_shared(scored), ends)

    def __add__(self, other: ModelSums) -> ModelSums:
        ends = min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])
        return ModelSums(self.sums + other.sums, self.counts + other.counts, self.shared + other.shared, ends)

    @property
    def averages(self) -> Floats:
        """Return the mean of each model over its own problems; 0 where it has none."""
        return np.asarray(self.sums.sum(axis=1) / np.maximum(1, self.counts.sum(axis=1)))

    @property
    def tolerance(self) -> float:
        """Largest difference of two scores that counts as a tie."""
        return max(self.ends[1] * _QUANTUM, -self.ends[0] * _QUANTUM, _MIN_DIFFERENCE)

    def differ(self, a: Ints, b: Ints) -> NDArray[np.bool_]:
        """Flag pairs of models that are not scored on the same problems."""
        if self.shared.size == 1:
            return np.zeros(a.size, dtype=bool)
        own = self.shared.diagonal()
        return (self.shared[a, b] < own[a]) | (self.shared[a, b] < own[b])


def unit_matrix(unit: Ints, units: int) -> scipy.sparse.csr_array:
    """Return the sparse matrix units x problems that adds up problems by unit."""
    return scipy.sparse.csr_array((np.ones(unit.size), (unit, np.arange(unit.size))), shape=(units, unit.size))


def count_shared(flags: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Count the columns in which two rows are both true, rows x rows; a single number where all are true."""
    if flags.all():
        return np.full((1, 1), flags.shape[1], dtype=np.int32)
    out = np.zeros((len(flags), len(flags)), dtype=np.int32)
    for columns in blocks(flags.shape[1], max(16, len(flags))):  # exact in 32 bits: fewer columns than 2^24
        part = flags[:, columns].astype(np.float32)
        out += (part @ part.T).astype(np.int32)
    return out


def sum_n_ratios(n: Floats) -> NDArray[np.float32]:
    """Sum n of the row model over n of the column model over the problems that both attempted, models x models."""
    # n is models x problems, NaN where a model made no attempt. A single number where all n are equal. A ratio of
    # sums would call n = 1 (and 136 on one problem of ten) like n = 16.
    if (n == n[:1, :1]).all():
        return np.full((1, 1), n.shape[1], dtype=np.float32)
    made = ~np.isnan(n)
    filled = np.where(made, n, 0.0)
    inverse = np.divide(1, n, out=np.zeros_like(filled), where=made)
    return np.asarray((filled @ inverse.T).astype(np.float32))


def count_wins(scores: Floats, a: Ints, b: Ints, tolerance: float) -> Floats:
    """Count the problems on which one model of a pair (a, b) of rows scores higher; a difference up to the tolerance
    is a tie.

    Returns 4 x pairs: wins of a and of b, the sum of absolute differences and that of their squares. The last two are
    of some problems only, if these differ in size already.
    """
    slices = [slice(i, i + _PAIRS) for i in range(0, max(1, a.size), _PAIRS)]
    parts = parallel_map(lambda at: _count_wins(scores, a[at], b[at], tolerance), slices, _threads(scores))
    return np.concatenate(parts, axis=1)


def _threads(scores: Floats) -> int | None:
    return None if scores.size > 1 << 16 else 1  # small work is done before a thread has started


def _count_wins(scores: Floats, a: Ints, b: Ints, tolerance: float) -> Floats:
    out = np.zeros((4, a.size))
    for columns in blocks(scores.shape[1], 4 * a.size):
        gap = scores[b, columns] - scores[a, columns]  # NaN is neither higher nor lower
        more, less = gap < -tolerance, gap > tolerance
        if not unequal(*out).all():  # once they are unequal, they stay so
            gap[~(more | less)] = 0.0
            out[2:] += np.abs(gap).sum(axis=1), np.einsum("ij,ij->i", gap, gap)
        out[:2] += np.count_nonzero(more, axis=1), np.count_nonzero(less, axis=1)
    return out


def unequal(wins_a: Floats, wins_b: Floats, size: Floats, square: Floats) -> NDArray[np.bool_]:
    """Flag pairs whose nonzero differences are not all equally large, by Cauchy and Schwarz."""
    return (wins_a + wins_b) * square > (1 + _SAME_SIZE) * size**2


def sum_differences(scores: Floats, unit: Ints, units: int, a: Ints, b: Ints) -> Floats:
    """Add up by unit row b minus row a over the problems that both are scored on, row a alone, and their number."""
    out, onto = np.empty((3, a.size, units)), unit_matrix(unit, units)

    def fill(at: slice) -> None:
        base = scores[a[at]]
        gap = (scores[b[at]] - base).T
        both = ~np.isnan(gap)
        for part, each in zip(out, (np.where(both, gap, 0.0), np.where(both, base.T, 0.0), both), strict=True):
            part[at] = (onto @ each.astype(np.float64)).T

    parallel_map(fill, blocks(a.size, 4 * scores.shape[1]), _threads(scores))
    return out


def distances(rows: Floats) -> Floats:
    """Return the distances between all rows: from one product, and row by row where that would cancel."""
    off = rows - np.median(rows, axis=0)
    square = np.einsum("ij,ij->i", off, off)
    square_distance = square[:, None] + square - 2 * (off @ off.T)
    a, b = np.nonzero(np.triu(square_distance <= 1e-6 * (square[:, None] + square), 1))
    for at in blocks(a.size, rows.shape[1]):
        gap = rows[b[at]] - rows[a[at]]
        square_distance[a[at], b[at]] = square_distance[b[at], a[at]] = np.einsum("ij,ij->i", gap, gap)
    np.fill_diagonal(square_distance, 0)
    out: Floats = np.sqrt(np.maximum(square_distance, 0))
    return out


def pair_batches(has_own_sums: NDArray[np.bool_], pairs: int) -> list[Ints]:
    """Return the numbers of pairs without own sums, then those of the others, so many at a time."""
    own = np.flatnonzero(has_own_sums)
    return [np.flatnonzero(~has_own_sums), *(own[first : first + pairs] for first in range(0, own.size, pairs))]
