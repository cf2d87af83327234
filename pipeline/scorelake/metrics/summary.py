"""Estimates of problems in, one summary per group out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.draws import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, blend
from scorelake.metrics.interval import interval, rerun
from scorelake.threads import side_by_side

CACHED = 1 << 20
"""Numbers looked at together."""


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
class Mixture:
    """Several priors instead of one: for each its columns of the estimate, and its weight in each group."""

    place: Ints
    """priors x rows"""
    weight: Floats
    """priors x groups, summing to 1 in each group"""


@dataclass(frozen=True)
class Shape:
    """How rows of problems make up groups.

    Row i stands for problems[i] >= 1 equal problems whose estimate is column place[i]; group g owns the rows
    from starts[g] to the next start, at least one. With a mixture of priors the posterior is averaged over them,
    their disagreement included. `clusters` says where each cluster of problems begins, within the groups.
    """

    place: Ints
    problems: Ints
    starts: Ints
    clusters: Ints | None = None
    mixture: Mixture | None = None

    def batches(self, width: int) -> Iterator[_Batch]:
        """Some groups at a time: as many as stay in the processor's cache with so many numbers for each row."""
        weight = self.problems.astype(np.float64)
        ends = np.append(self.starts[1:], self.place.size)
        first, groups = 0, self.starts.size
        while first < groups:
            low = int(self.starts[first])
            last = max(first + 1, int(np.searchsorted(ends, low + CACHED // width, "right")))
            high = int(ends[last - 1])
            rows, clusters, priors = slice(low, high), None, [(np.ones(last - first), self.place[low:high])]
            if self.clusters is not None:
                clusters = self.clusters[slice(*np.searchsorted(self.clusters, (low, high)))] - low
            if self.mixture is not None:
                mixed = zip(self.mixture.weight, self.mixture.place, strict=True)
                priors = [(share[first:last], at[rows]) for share, at in mixed]
            yield _Batch(self.place[rows], weight[rows], self.starts[first:last] - low, priors, clusters)
            first = last


@dataclass(frozen=True)
class _Batch:
    """Rows of some groups, one group after the other."""

    place: Ints
    weight: Floats
    starts: Ints
    priors: list[tuple[Floats, Ints]]
    """Of each prior its weight in every group, and its columns of the estimate."""
    clusters: Ints | None

    def total(self, numbers: Floats) -> Floats:
        """Weighted sums over the rows of each group, which come last; each adds its own rows in their order."""
        return np.add.reduceat(numbers * self.weight, self.starts, axis=-1)

    def spread(self, numbers: Floats) -> Floats:
        """What is told of groups, for each of their rows."""
        return np.repeat(numbers, np.diff(self.starts, append=self.place.size), axis=-1)


def aggregate(
    estimates: Sequence[Estimate],
    shape: Shape,
    confidence: float = 0.95,
    min_coverage: float = 0.9,
    clip: tuple[float, float] | None = None,
) -> list[Summaries]:
    """Unweighted means over the problems of each group, for several metrics of the same problems.

    Sums run over the rows of one group alone and in their order, so equal rows give equal bits. With clusters, se
    counts those instead of problems. The posterior interval ends at `clip`, or where the metric does.
    """
    check_shares(confidence, min_coverage)
    out: dict[int, Summaries] = {}
    kinds = [(len(estimate.mean), bool(np.isnan(estimate.value[0]).any())) for estimate in estimates]
    for kind in dict.fromkeys(kinds):
        alike = [estimate for estimate, its in zip(estimates, kinds, strict=True) if its == kind]
        panel = _Panel(alike)
        sums = Sums.joined(side_by_side(panel.sums, shape.batches(panel.value[:, :, 0].size)))
        for i, estimate in enumerate(alike):
            out[id(estimate)] = _summaries(estimate, shape, sums.of(i), confidence, min_coverage, clip)
    return [out[id(estimate)] for estimate in estimates]


def _summaries(
    estimate: Estimate,
    shape: Shape,
    sums: Sums,
    confidence: float,
    min_coverage: float,
    clip: tuple[float, float] | None,
) -> Summaries:
    """One metric: what its sums over groups come to."""
    count_all = np.add.reduceat(shape.problems, shape.starts)
    undefined = np.zeros(count_all.size, dtype=bool)
    if estimate.undefined is not None:
        undefined = np.logical_or.reduceat(estimate.undefined[shape.place], shape.starts)
    repeated = np.zeros((3, count_all.size))
    if estimate.repeated is not None:
        noise, n = estimate.repeated[:, shape.place]
        times = shape.problems * (n > 0)
        repeated = np.stack([np.add.reduceat(x, shape.starts) for x in (times * noise, times * n, times)])
    told = Groups(sums, count_all, undefined, repeated)
    return told.summaries(Kind.of(estimate), confidence, min_coverage, clip)


@dataclass(frozen=True)
class Kind:
    """What is the same of a metric for all problems: see Estimate."""

    powers: tuple[float, float] | None
    bounds: tuple[float, float]
    clip: tuple[float, float] | None
    repeated: bool

    @classmethod
    def of(cls, estimate: Estimate) -> Kind:
        return cls(estimate.powers, estimate.bounds, estimate.clip, estimate.repeated is not None)


@dataclass(frozen=True)
class Groups:
    """One metric: all that is needed of groups."""

    sums: Sums
    problems: Ints
    undefined: NDArray[np.bool_]
    """Some problem has attempts enough and still no value."""
    repeated: Floats
    """Noise, attempts and problems of what was tried again, 3 x groups."""

    def summaries(
        self, kind: Kind, confidence: float, min_coverage: float, clip: tuple[float, float] | None
    ) -> Summaries:
        sums, count = self.sums, self.sums.count.astype(np.int64)
        if kind.powers is None:
            mu, variance, average, error = sums.mu[0], sums.spread[0, 0], sums.average[0], sums.sample[0, 0]
        else:
            mu, variance = blend(sums.mu, sums.spread, kind.powers)
            average, error = blend(sums.average, sums.sample, kind.powers)
        hidden = (count < np.maximum(min_coverage * self.problems * (1 - 1e-12), 1)) | self.undefined
        value, se = np.where(hidden, np.nan, average), np.where(hidden, np.nan, np.sqrt(error))
        lo, hi = interval(value, se, sums.units, kind.bounds, confidence)
        rerun_lo, rerun_hi = np.full((2, value.size), np.nan)
        if kind.repeated:
            noise, attempts, problems = self.repeated
            rerun_lo, rerun_hi = rerun(value, ratio(noise, problems**2), attempts, confidence)
        sigma = np.sqrt(variance)
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
        ends = clip or kind.clip or kind.bounds
        mu_lo, mu_hi = np.clip(mu - reach, *ends), np.clip(mu + reach, *ends)
        return Summaries(
            value, lo, hi, se, rerun_lo, rerun_hi, mu, sigma, mu_lo, mu_hi, self.problems, count, sums.units,
            kind.bounds,
        )  # fmt: skip


@dataclass(frozen=True)
class Sums:
    """What is needed of groups: metrics x parts (x parts) x groups."""

    mu: Floats
    spread: Floats
    """Covariance of the posterior means."""
    count: Floats
    """Problems scored."""
    average: Floats
    sample: Floats
    """Covariance of the averages when the problems, or their clusters, are a sample."""
    units: Floats
    """How large that sample is: problems scored, or clusters with one."""

    @staticmethod
    def joined(batches: Sequence[Sums]) -> Sums:
        return Sums(*(np.concatenate([getattr(some, f.name) for some in batches], axis=-1) for f in fields(Sums)))

    def of(self, metric: int) -> Sums:
        return Sums(*(getattr(self, f.name)[metric] for f in fields(Sums)))


class _Panel:
    """Metrics with equally many parts, side by side: metrics x parts x columns.

    Sums run along the rows, metric by metric, so that none depends on what others are asked for."""

    def __init__(self, estimates: Sequence[Estimate]) -> None:
        self.value, self.scored = _filled(np.stack([estimate.value for estimate in estimates]))
        self.mean, self.known = _filled(np.stack([estimate.mean for estimate in estimates]))
        self.blind = self.known is not None and not self.known.any()
        """None of them has a posterior."""
        self.covariance = np.nan_to_num(np.stack([estimate.covariance for estimate in estimates]), nan=0.0)

    def sums(self, batch: _Batch) -> Sums:
        """Some metrics at a time, as many as stay in the processor's cache."""
        step = max(1, CACHED // (batch.place.size * self.value.shape[1]))
        parts = [self._sums(batch, slice(i, i + step)) for i in range(0, len(self.value), step)]
        return Sums(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Sums)))

    def _sums(self, batch: _Batch, some: slice) -> Sums:
        mu, spread = self._posterior(batch, some)
        off = self.value[some].take(batch.place, axis=-1)
        scored = None if self.scored is None else self.scored[some].take(batch.place, axis=-1)
        all_of_them = np.add.reduceat(batch.weight, batch.starts)
        count = np.tile(all_of_them, (len(off), 1)) if scored is None else batch.total(scored)
        average = ratio(batch.total(off), count[:, None])
        off -= batch.spread(np.nan_to_num(average, nan=0.0))
        if scored is not None:
            off *= scored[:, None]
        units = count
        if batch.clusters is None:
            squares = batch.total(off[:, :, None] * off[:, None])
            sample = ratio(ratio(squares, (count - 1)[:, None, None]), count[:, None, None])
        else:
            seen = batch.weight[None] if scored is None else batch.weight * scored
            sample, units = _between_clusters(off * batch.weight, seen, count, batch)
        return Sums(mu, spread, count, average, sample, units)

    def _posterior(self, batch: _Batch, some: slice) -> tuple[Floats, Floats]:
        """Means (metrics x parts x groups) and their covariance, over every problem that has a posterior.

        avg@N has none without attempts. Of a mixture: the average within the priors, and the spread between them.
        """
        if self.blind:
            parts = self.mean[some].shape[:2]
            return (
                np.full((*parts, batch.starts.size), np.nan),
                np.full((*parts, parts[1], batch.starts.size), np.nan),
            )
        found = []
        for _, place in batch.priors:
            if self.known is None:
                m = np.add.reduceat(batch.weight, batch.starts)[None]
            else:
                m = batch.total(self.known[some].take(place, axis=-1))
            mean = ratio(batch.total(self.mean[some].take(place, axis=-1)), m[:, None])
            within = batch.total(self.covariance[some].take(place, axis=-1))
            found.append((mean, ratio(within, m[:, None, None] ** 2)))
        if len(found) == 1:
            return found[0]
        mu, spread = np.zeros_like(found[0][0]), np.zeros_like(found[0][1])
        for (share, _), (mean, _) in zip(batch.priors, found, strict=True):
            mu += share * mean
        for (share, _), (mean, within) in zip(batch.priors, found, strict=True):
            spread += share * (within + (mean - mu)[:, :, None] * (mean - mu)[:, None])
        return mu, spread


def _filled(numbers: Floats) -> tuple[Floats, Floats | None]:
    """Zero instead of NaN, and where the numbers were (metrics x columns: 1 or 0), unless everywhere."""
    there = ~np.isnan(numbers[:, 0])
    if there.all():
        return numbers, None
    return np.where(there[:, None], numbers, 0), there.astype(np.float64)


def _between_clusters(off: Floats, scored: Floats, count: Floats, batch: _Batch) -> tuple[Floats, Floats]:
    """Covariance of the means when whole clusters are the sample, and how many have a problem scored.

    Clusters of one problem each give the plain covariance.
    """
    clusters = batch.clusters
    assert clusters is not None
    starts = np.searchsorted(clusters, batch.starts)
    sums = np.add.reduceat(off, clusters, axis=-1)
    there = (np.add.reduceat(scored, clusters, axis=-1) > 0).astype(np.float64)
    units = np.broadcast_to(np.add.reduceat(there, starts, axis=-1), count.shape)
    many = units[:, None, None]
    squares = np.add.reduceat(sums[:, :, None] * sums[:, None], starts, axis=-1)
    return ratio(squares, count[:, None, None] ** 2) * ratio(many, many - 1), units


def check_shares(confidence: float, min_coverage: float) -> None:
    """confidence in (0, 1), min_coverage in [0, 1]."""
    if not 0 < confidence < 1:
        raise MetricError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= min_coverage <= 1:
        raise MetricError(f"min_coverage must be in [0, 1], got {min_coverage!r}")
