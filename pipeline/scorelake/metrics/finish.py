"""Sums over groups in, summaries out: values, their intervals, and what is believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate
from scorelake.metrics.interval import interval, rerun


@dataclass(frozen=True)
class Summary:
    """One metric of one group. Undefined numbers are NaN.

    value: finite-bank estimate; lo, hi, se: the problems are a sample; rerun_lo, rerun_hi: the same problems again.
    mu, sigma, mu_lo, mu_hi: posterior, problems fixed.
    """

    value: float
    lo: float
    hi: float
    se: float
    rerun_lo: float
    rerun_hi: float
    mu: float
    sigma: float
    mu_lo: float
    mu_hi: float
    problems: int
    problems_scored: int


@dataclass(frozen=True)
class Summaries:
    """The same, as arrays over many groups."""

    value: Floats
    lo: Floats
    hi: Floats
    se: Floats
    rerun_lo: Floats
    rerun_hi: Floats
    mu: Floats
    sigma: Floats
    mu_lo: Floats
    mu_hi: Floats
    problems: Ints
    problems_scored: Ints
    units: Floats
    """How large the sample is: problems scored, or clusters with one."""
    bounds: tuple[float, float]
    """What values there can be."""

    def first(self) -> Summary:
        return Summary(**{field.name: getattr(self, field.name)[0].item() for field in fields(Summary)})


@dataclass(frozen=True)
class Kind:
    """What is the same of a metric for all problems: see Estimate."""

    bounds: tuple[float, float]
    clip: tuple[float, float] | None
    repeated: bool

    @classmethod
    def of(cls, estimate: Estimate) -> Kind:
        return cls(estimate.bounds, estimate.clip, estimate.repeated is not None)


@dataclass(frozen=True)
class Groups:
    """All that is needed of groups: metrics x groups."""

    average: Floats
    error: Floats
    """Variance of the average when the problems, or their clusters, are a sample."""
    count: Floats
    """Problems scored."""
    units: Floats
    """How large the sample is: problems scored, or clusters with one."""
    mu: Floats
    variance: Floats
    """Of mu, the problems fixed."""
    problems: Ints
    """Of each group."""
    undefined: NDArray[np.bool_]
    """Some problem has attempts enough and still no value."""
    repeated: Floats
    """Noise, attempts and problems of what was tried again, metrics x 3 x groups."""

    def summaries(
        self, kinds: Sequence[Kind], confidence: float, min_coverage: float, clip: tuple[float, float] | None
    ) -> list[Summaries]:
        hidden = (self.count < np.maximum(min_coverage * self.problems * (1 - 1e-12), 1)) | self.undefined
        value, se = np.where(hidden, np.nan, self.average), np.where(hidden, np.nan, np.sqrt(self.error))
        bounds = [kind.bounds for kind in kinds]
        lo, hi = _intervals(value, se, self.units, bounds, confidence)
        again = np.array([kind.repeated for kind in kinds])
        rerun_lo, rerun_hi = np.full((2, *value.shape), np.nan)
        if again.any():
            noise, attempts, problems = self.repeated[again].swapaxes(0, 1)
            rerun_lo[again], rerun_hi[again] = rerun(value[again], ratio(noise, problems**2), attempts, confidence)
        sigma = np.sqrt(self.variance)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
        ends = np.array([clip or kind.clip or kind.bounds for kind in kinds])[:, :, None]
        mu_lo, mu_hi = (np.clip(end, ends[:, 0], ends[:, 1]) for end in (self.mu - reach, self.mu + reach))
        counts = ([self.problems] * len(kinds), self.count.astype(np.int64), self.units)
        told = zip(value, lo, hi, se, rerun_lo, rerun_hi, self.mu, sigma, mu_lo, mu_hi, *counts, bounds, strict=True)
        return [Summaries(*row) for row in told]


def _intervals(
    value: Floats, se: Floats, units: Floats, bounds: Sequence[tuple[float, float]], confidence: float
) -> tuple[Floats, Floats]:
    """lo and hi, metrics x groups: metrics with the same bounds together, and equal ones once."""
    lo, hi = np.empty_like(value), np.empty_like(value)
    for ends in dict.fromkeys(bounds):
        alike = np.flatnonzero([its == ends for its in bounds])
        kept, place = different(np.concatenate([value[alike], se[alike], units[alike]], axis=1).view(np.int64))
        once = alike[kept]
        found = interval(value[once].ravel(), se[once].ravel(), units[once].ravel(), ends, confidence)
        lo[alike], hi[alike] = (each.reshape(once.size, -1)[place] for each in found)
    return lo, hi


def different(rows: Iterable[NDArray[Any]]) -> tuple[Ints, Ints]:
    """Which rows are not equal to an earlier one, and the place of every row among those.

    Rows of numbers come as the integers that their bits are, so that NaN is equal to itself and 0 not to -0.
    """
    kept, place = list[int](), list[int]()
    seen = dict[int, tuple[int, NDArray[Any]]]()
    for i, row in enumerate(rows):
        total = int(row.sum())  # most rows that differ have different sums
        if total not in seen or not np.array_equal(seen[total][1], row):
            seen[total] = (len(kept), row)
            kept.append(i)
        place.append(seen[total][0])
    return np.array(kept), np.array(place)


def check_shares(confidence: float, min_coverage: float) -> None:
    """confidence in (0, 1), min_coverage in [0, 1]."""
    if not 0 < confidence < 1:
        raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= min_coverage <= 1:
        raise MetricError(f"min_coverage must be in [0, 1], got {min_coverage!r}")
