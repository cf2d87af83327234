"""Estimates of problems in, their sums over groups out: sums of parts of the problems that add up to those of all.

Numbers like 0.1 add up to other last digits in another order. So every problem has a number, a leaf: problems of one
leaf are added one after the other, and leaves two by two along the bits of their numbers, as the branches of a tree.
A part that holds the problems of whole branches comes to the same bits, wherever and in whatever company it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.estimate import Estimate, blend
from scorelake.metrics.finish import Groups

LEAF_BITS = 14
"""Problems are dealt into 16,384 leaves: so many parts there may be."""


class Tree:
    """Rows, each of a group and a leaf, and how they are added up: one number per group comes out."""

    def __init__(self, group: Ints, leaf: Ints, bits: int = LEAF_BITS) -> None:
        self.order = np.lexsort((leaf, group))
        """Rows of one leaf stay in the order they are given in."""
        code = (group << bits | leaf)[self.order]
        self.begins = np.flatnonzero(np.diff(code, prepend=-1))
        """Where each leaf begins."""
        self.levels: list[tuple[Ints, NDArray[np.bool_]]] = []
        code = code[self.begins]
        for level in range(1, bits + 1):
            same = np.diff(code >> level, prepend=-1) == 0
            if same.any():
                first = np.flatnonzero(~same)
                self.levels.append((first, np.diff(first, append=code.size) == 2))
                code = code[first]
        self.group = code >> bits
        """The groups, in rising order."""

    def added(self, rows: Floats) -> Floats:
        """Sums over the rows of each group, which come last."""
        nodes = np.add.reduceat(rows[..., self.order], self.begins, axis=-1)
        for first, two in self.levels:
            below, nodes = nodes, nodes[..., first]
            nodes[..., two] += below[..., first[two] + 1]
        return nodes

    def spread(self, scored: Floats, value: Floats) -> tuple[Floats, Floats, Floats]:
        """How many rows of each group are scored, their average, and their squared deviations from it.

        In: 1 or 0 for each row, and its values (parts x rows), 0 where it is not scored.
        """
        scored, value = scored[self.order], value[:, self.order]
        count = np.add.reduceat(scored, self.begins)
        average = np.nan_to_num(ratio(np.add.reduceat(value, self.begins, axis=-1), count), nan=0.0)
        off = value - np.repeat(average, np.diff(self.begins, append=scored.size), axis=-1)
        off *= scored
        square = np.add.reduceat(off[:, None] * off[None], self.begins, axis=-1)
        return self.merged(count, average, square)

    def merged(self, count: Floats, average: Floats, square: Floats) -> tuple[Floats, Floats, Floats]:
        """The same of all leaves of each group."""
        for first, two in self.levels:
            left, right = first[two], first[two] + 1
            many, share = count[left] + count[right], np.zeros(left.size)
            np.divide(count[right], many, out=share, where=many > 0)
            gap = average[:, right] - average[:, left]
            total = square[..., left] + square[..., right] + gap[:, None] * gap[None] * (count[left] * share)
            middle = average[:, left] + gap * share
            count, average, square = count[first], average[:, first], square[..., first]
            count[two], average[:, two], square[..., two] = many, middle, total
        return count, average, square


@dataclass(frozen=True)
class Moments:
    """What one metric comes to over groups of problems; groups come last."""

    problems: Floats
    count: Floats
    """Problems scored."""
    average: Floats
    """Of their values, parts x groups; and squared deviations, parts x parts x groups."""
    square: Floats
    known: Floats
    """Problems with a posterior; its means and covariances added up."""
    mean: Floats
    within: Floats
    undefined: Floats
    """Problems that have attempts enough and still no value."""
    repeated: Floats
    """Noise, attempts and problems of what was tried again, 3 x groups; 0 where that means nothing."""

    @classmethod
    def of(cls, estimate: Estimate, tree: Tree, place: Ints | None = None) -> Moments:
        """In: the estimates of rows, or of what `place` says of each row."""
        at = slice(None) if place is None else place
        value, mean = estimate.value[:, at], estimate.mean[:, at]
        scored, known = ~np.isnan(value[0]), ~np.isnan(mean[0])
        rows = scored.size
        count, average, square = tree.spread(scored.astype(np.float64), np.where(scored, value, 0.0))
        undefined = np.zeros(rows) if estimate.undefined is None else estimate.undefined[at].astype(np.float64)
        noise = np.zeros((3, rows))
        if estimate.repeated is not None:
            noise[:2] = estimate.repeated[:, at]
            noise[2] = noise[1] > 0
            noise[0] *= noise[2]
        return cls(
            tree.added(np.ones(rows)),
            count,
            average,
            square,
            tree.added(known.astype(np.float64)),
            tree.added(np.where(known, mean, 0.0)),
            tree.added(np.where(known, np.nan_to_num(estimate.covariance[..., at], nan=0.0), 0.0)),
            tree.added(undefined),
            tree.added(noise),
        )

    @classmethod
    def joined(cls, parts: Sequence[Moments], tree: Tree) -> Moments:
        """In: moments of the rows of a tree, one part after the other."""
        fields = {name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in vars(parts[0])}
        rows = {name: column[..., tree.order] for name, column in fields.items()}
        count, average, square = tree.merged(rows["count"], rows["average"], rows["square"])
        sums = {name: tree.added(fields[name]) for name in ("problems", "known", "mean", "within", "undefined")}
        return cls(count=count, average=average, square=square, repeated=tree.added(fields["repeated"]), **sums)

    def told(self, powers: tuple[float, float] | None, clusters: tuple[Moments, Ints] | None = None) -> list[Floats]:
        """Average and its variance, problems scored, units; mean of the posterior and its variance.

        In: how the parts are blended, and the same moments by cluster with where the clusters of each group begin.
        """
        count, many = self.count, self.count[None, None]
        if clusters is None:
            units, sample = count, ratio(ratio(self.square, many - 1), many)
        else:
            units, sample = self._between(*clusters)
        average = ratio(self.average * count, count[None])
        mean, within = ratio(self.mean, self.known[None]), ratio(self.within, self.known[None, None] ** 2)
        return [*blend(average, sample, powers), count, units, *blend(mean, within, powers)]

    def _between(self, each: Moments, begins: Ints) -> tuple[Floats, Floats]:
        """How many clusters have a problem scored, and the covariance of averages when clusters are the sample."""
        sizes = np.diff(begins, append=each.count.size)
        off = (each.average - np.repeat(self.average, sizes, axis=-1)) * each.count
        square = np.add.reduceat(off[:, None] * off[None], begins, axis=-1)
        units = np.add.reduceat((each.count > 0).astype(np.float64), begins)
        return units, ratio(square, self.count[None, None] ** 2) * ratio(units, units - 1)


def groups(
    moments: Sequence[Moments],
    powers: Sequence[tuple[float, float] | None],
    clusters: tuple[Sequence[Moments], Ints] | None = None,
) -> Groups:
    """What summaries are made of: several metrics of the same problems."""
    each = [None] * len(moments) if clusters is None else [(mine, clusters[1]) for mine in clusters[0]]
    told = [one.told(how, its) for one, how, its in zip(moments, powers, each, strict=True)]
    undefined = np.stack([one.undefined > 0 for one in moments])
    repeated = np.stack([one.repeated for one in moments])
    average, error, count, units, mu, variance = (np.stack(column) for column in zip(*told, strict=True))
    problems = moments[0].problems.astype(np.int64)
    return Groups(average, error, count, units, mu, variance, problems, undefined, repeated)
