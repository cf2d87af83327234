"""Estimates of problems in, one summary per group out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, blend
from scorelake.metrics.finish import Groups, Kind, Summaries, check_shares, different
from scorelake.threads import parallel_map

ROWS = 1 << 15
"""Rows looked at together: some columns of so many numbers stay in the processor's cache."""


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

    def same(self, other: Shape) -> bool:
        """Whether the groups are made of the same rows: where each benchmark has one subject, they are."""
        if not (self.mixture is None and other.mixture is None):
            return False
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))  # None is equal to itself
            for name in ("starts", "clusters", "problems", "place")
        )

    def batches(self) -> Iterator[_Batch]:
        """Some groups at a time."""
        weight = self.problems.astype(np.float64)
        ends = np.append(self.starts[1:], self.place.size)
        first, groups = 0, self.starts.size
        while first < groups:
            low = int(self.starts[first])
            last = max(first + 1, int(np.searchsorted(ends, low + ROWS, "right")))
            rows, clusters = slice(low, int(ends[last - 1])), None
            if self.clusters is not None:
                clusters = self.clusters[slice(*np.searchsorted(self.clusters, (low, rows.stop)))] - low
            priors = self.place[None, rows] if self.mixture is None else self.mixture.place[:, rows]
            yield _Batch(self.place[rows], weight[rows], self.starts[first:last] - low, priors, clusters)
            first = last


@dataclass(frozen=True)
class _Batch:
    """Rows of some groups, one group after the other."""

    place: Ints
    weight: Floats
    starts: Ints
    priors: Ints
    """Of each prior its columns of the estimate."""
    clusters: Ints | None

    def total(self, numbers: Floats) -> Floats:
        """Sums over the rows of each group, which come last; each adds its own rows in their order."""
        return np.add.reduceat(numbers, self.starts, axis=-1)

    def totals(self, rows: Floats, place: Ints) -> Floats:
        """Weighted sums of each row of an estimate, of which the groups have these columns."""
        return np.stack([self.total(row.take(place) * self.weight) for row in rows])

    def spread(self, numbers: Floats) -> Floats:
        """What is told of groups, for each of their rows."""
        return np.repeat(numbers, self.sizes)

    def products(self, one: Floats, other: Floats, weight: Floats) -> Floats:
        """Sums of the products of two deviations: of problems, or of whole clusters."""
        if self.clusters is None:
            return self.total(one * other * weight)
        mine, yours = (np.add.reduceat(off * weight, self.clusters) for off in (one, other))
        return np.add.reduceat(mine * yours, self._first_clusters)

    def units(self, weight: Floats) -> Floats:
        """How many problems are scored, or clusters with one."""
        if self.clusters is None:
            return self.total(weight)
        there = np.add.reduceat(weight, self.clusters, axis=-1) > 0
        return np.add.reduceat(there.astype(np.float64), self._first_clusters, axis=-1)

    @cached_property
    def sizes(self) -> Ints:
        """How many rows each group has."""
        return np.diff(self.starts, append=self.place.size)

    @cached_property
    def _first_clusters(self) -> Ints:
        """The first cluster of each group."""
        return np.searchsorted(self.clusters, self.starts)  # type: ignore[arg-type]


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
    if not estimates:
        return []
    panel = _Panel(estimates)
    sums = _Sums.joined(parallel_map(panel.sums, shape.batches()))
    samples = [panel.sample(i, sums) for i in range(len(estimates))]
    posteriors = [panel.posterior(i, sums, shape.mixture) for i in range(len(estimates))]
    undefined = np.zeros((len(estimates), shape.starts.size), dtype=bool)
    for mine, estimate in zip(undefined, estimates, strict=True):
        if estimate.undefined is not None:
            mine[:] = np.logical_or.reduceat(estimate.undefined[shape.place], shape.starts)
    average, error, count, units = (np.stack(each) for each in zip(*samples, strict=True))
    mu, variance = (np.stack(each) for each in zip(*posteriors, strict=True))
    problems, repeated = np.add.reduceat(shape.problems, shape.starts), _repeated(estimates, shape)
    groups = Groups(average, error, count, units, mu, variance, problems, undefined, repeated)
    return groups.summaries([Kind.of(estimate) for estimate in estimates], confidence, min_coverage, clip)


def _repeated(estimates: Sequence[Estimate], shape: Shape) -> Floats:
    """Noise, attempts and problems of what was tried again, metrics x 3 x groups; 0 where that means nothing."""
    out = np.zeros((len(estimates), 3, shape.starts.size))
    noises = {id(estimate.repeated): estimate.repeated for estimate in estimates if estimate.repeated is not None}
    for which, repeated in noises.items():
        noise, n = repeated[:, shape.place]
        times = shape.problems * (n > 0)
        sums = [np.add.reduceat(x, shape.starts) for x in (times * noise, times * n, times)]
        out[[id(estimate.repeated) == which for estimate in estimates]] = sums
    return out


@dataclass(frozen=True)
class _Sums:
    """What is needed of groups: rows of a panel x groups, and for each prior apart what is believed."""

    count: Floats
    """Problems scored."""
    units: Floats
    """How large the sample is: problems scored, or clusters with one."""
    average: Floats
    sample: Floats
    """Covariance of the averages when the problems, or their clusters, are a sample."""
    known: Floats
    """Problems that have a posterior."""
    mean: Floats
    covariance: Floats

    @staticmethod
    def joined(batches: Sequence[_Sums]) -> _Sums:
        return _Sums(*(np.concatenate([getattr(some, f.name) for some in batches], axis=-1) for f in fields(_Sums)))


class _Rows:
    """Numbers by column of the estimates, each different row once, and 0 where there is none."""

    def __init__(self, given: Sequence[Floats]) -> None:
        rows = [row for each in given for row in each.reshape(-1, each.shape[-1])]
        kept, place = different([row.view(np.int64) for row in rows])
        ends = np.cumsum([each[..., :1].size for each in given])
        parts = zip(np.split(place, ends[:-1]), given, strict=True)
        self.place = [at.reshape(each.shape[:-1]) for at, each in parts]
        """Which rows those of each estimate are."""
        self.numbers = np.stack([rows[i] for i in kept])
        there = ~np.isnan(self.numbers)
        self.numbers[~there] = 0.0
        kept, self.mask = different(there)
        self.masks = there[kept].astype(np.float64)
        """Where there are numbers: 1 or 0. Those of row i are in masks[mask[i]]."""


class _Panel:
    """What metrics are made of: many have parts in common, and some are the same under two names.

    Sums run along the rows, one by one, so that none depends on what others are asked for.
    """

    def __init__(self, estimates: Sequence[Estimate]) -> None:
        self.powers = [estimate.powers for estimate in estimates]
        self.value = _Rows([estimate.value for estimate in estimates])
        self.mean = _Rows([estimate.mean for estimate in estimates])
        self.covariance = _Rows([np.nan_to_num(estimate.covariance, nan=0.0) for estimate in estimates])
        pairs = [(i, i) for i in range(len(self.value.numbers))]
        pairs += [(i, j) for at in self.value.place for i in at for j in at if i < j]
        self.pairs = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
        """Rows of values that are multiplied with each other; first comes each with itself."""

    def sums(self, batch: _Batch) -> _Sums:
        believed = (self.mean.masks, self.mean.numbers, self.covariance.numbers)
        return _Sums(
            *self._sample(batch),
            *(np.stack([batch.totals(rows, place) for place in batch.priors]) for rows in believed),
        )

    def _sample(self, batch: _Batch) -> tuple[Floats, Floats, Floats, Floats]:
        """Problems scored and units, of each mask; averages, of each row; their covariances, of each pair of rows."""
        value, groups = self.value, batch.starts.size
        weights = value.masks.take(batch.place, axis=-1) * batch.weight
        count, units = batch.total(weights), batch.units(weights)
        some = np.where(count > 0, count, np.nan)
        average, products = np.empty((len(value.numbers), groups)), np.empty((len(self.pairs), groups))
        for i, mask in enumerate(value.mask):
            off = value.numbers[i].take(batch.place)
            average[i] = batch.total(off * weights[mask]) / some[mask]
            off -= batch.spread(average[i])
            products[i] = batch.products(off, off, weights[mask])
        for (i, j), at in self.pairs.items():
            if i != j:
                one, other = (value.numbers[x].take(batch.place) - batch.spread(average[x]) for x in (i, j))
                products[at] = batch.products(one, other, weights[value.mask[i]])
        masks = value.mask[[i for i, _ in self.pairs]]
        n, u = count[masks], units[masks]
        if batch.clusters is None:
            return count, units, average, ratio(ratio(products, n - 1), n)
        return count, units, average, ratio(products, n**2) * ratio(u, u - 1)

    def sample(self, metric: int, sums: _Sums) -> tuple[Floats, Floats, Floats, Floats]:
        """The average of one metric and its variance, problems scored, and units, of each group."""
        place, powers = self.value.place[metric], self.powers[metric]
        mask = self.value.mask[place[0]]
        pairs = [[self.pairs[min(i, j), max(i, j)] for j in place] for i in place]
        average, variance = blend(sums.average[place], sums.sample[pairs], powers)
        return average, variance, sums.count[mask], sums.units[mask]

    def posterior(self, metric: int, sums: _Sums, mixture: Mixture | None) -> tuple[Floats, Floats]:
        """The mean of one metric and its variance, over every problem that has a posterior.

        avg@N has none without attempts. Of a mixture: the average within the priors, and the spread between them.
        """
        place, powers = self.mean.place[metric], self.powers[metric]
        m = sums.known[:, self.mean.mask[place[0]]]
        means = ratio(sums.mean[:, place], m[:, None])
        within = ratio(sums.covariance[:, self.covariance.place[metric]], m[:, None, None] ** 2)
        if mixture is None:
            return blend(means[0], within[0], powers)
        mu, spread = np.zeros_like(means[0]), np.zeros_like(within[0])
        for share, mean in zip(mixture.weight, means, strict=True):
            mu += share * mean
        for share, mean, inner in zip(mixture.weight, means, within, strict=True):
            spread += share * (inner + (mean - mu)[:, None] * (mean - mu))
        return blend(mu, spread, powers)
