"""Sums of parts are the sums of the whole, to the last bit; and they are the right ones."""

import numpy as np
import pytest

from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.estimate import Estimate
from scorelake.metrics.finish import Kind
from scorelake.metrics.moments import LEAF_BITS, Moments, Tree, groups
from scorelake.metrics.summary import Shape, aggregate

ROWS, GROUPS = 900, 5


def _estimate(rng: np.random.Generator, parts: int, rows: int = ROWS, far: float = 0.0) -> Estimate:
    value = rng.random((parts, rows)) * 0.1 + far
    value[:, rng.random(rows) < 0.1] = np.nan
    mean, square = rng.random((parts, rows)), rng.random((parts, rows))
    unknown = rng.random(rows) < 0.05
    mean[:, unknown] = square[:, unknown] = np.nan
    powers = None if parts == 1 else (0.5, 0.5)
    again = np.stack([rng.random(rows), rng.integers(0, 3, rows).astype(float)])
    return Estimate(value, mean, square[:, None] * square[None], powers, repeated=again)


def _cut(estimate: Estimate, rows: Ints) -> Estimate:
    return Estimate(
        estimate.value[:, rows], estimate.mean[:, rows], estimate.covariance[..., rows], estimate.powers,
        repeated=None if estimate.repeated is None else estimate.repeated[:, rows],
    )  # fmt: skip


def _same(one: Moments, other: Moments) -> None:
    for name, column in vars(one).items():
        assert np.array_equal(column, getattr(other, name)), name


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("leaves", [1 << LEAF_BITS, 40])
def test_parts_come_to_the_same_bits(parts: int, leaves: int) -> None:
    """However many branches the tree is cut into: 1, 2, 4, ..., and whatever branches are empty."""
    rng = np.random.default_rng(leaves + parts)
    estimate, group = _estimate(rng, parts), rng.integers(0, GROUPS, ROWS)
    leaf = rng.choice(1 << LEAF_BITS, leaves, replace=False)[rng.integers(0, leaves, ROWS)]
    whole = Moments.of(estimate, Tree(group, leaf))
    for bits in (1, 2, 5, LEAF_BITS):
        branch = leaf >> (LEAF_BITS - bits)
        told, groups, numbers = [], [], []
        for number in np.unique(branch):
            rows = np.flatnonzero(branch == number)
            tree = Tree(group[rows], leaf[rows])
            told.append(Moments.of(_cut(estimate, rows), tree))
            groups.append(tree.group)
            numbers.append(np.full(tree.group.size, number))
        joined = Tree(np.concatenate(groups), np.concatenate(numbers), bits)
        _same(Moments.joined(told, joined), whole)
    shuffled = rng.permutation(ROWS)  # rows of one leaf stay in their order in a part: all else may be anything
    order = shuffled[np.argsort(leaf[shuffled] * GROUPS + group[shuffled], kind="stable")]
    if leaves > ROWS:
        _same(Moments.of(_cut(estimate, order), Tree(group[order], leaf[order])), whole)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_against_sums_over_sorted_rows(parts: int, clustered: bool, far: float) -> None:
    rng = np.random.default_rng(parts)
    estimate, group = _estimate(rng, parts, far=far), rng.integers(0, GROUPS, ROWS)
    if far:
        unbound = (-np.inf, np.inf)
        estimate = Estimate(estimate.value, estimate.mean, estimate.covariance, estimate.powers, unbound)
    cluster = rng.integers(0, 30, ROWS)
    leaf = rng.integers(0, 1 << LEAF_BITS, ROWS)
    order = np.lexsort((cluster, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    clusters = np.flatnonzero(np.diff(group[order] * 100 + cluster[order], prepend=-1)) if clustered else None
    (want,) = aggregate([estimate], Shape(order, np.ones(ROWS, dtype=np.int64), starts, clusters), min_coverage=0.5)
    moments, each = Moments.of(estimate, Tree(group, leaf)), None
    if clusters is not None:
        tree = Tree(group * 100 + cluster, leaf)
        each = [Moments.of(estimate, tree)], np.flatnonzero(np.diff(tree.group // 100, prepend=-1))
    (got,) = groups([moments], [estimate.powers], each).summaries([Kind.of(estimate)], 0.95, 0.5, None)
    for name in vars(want):
        if name == "bounds":
            continue
        mine: Floats = getattr(got, name)
        digits = 1e-8 if far and clustered else 1e-9  # what is left of a million and a bit
        assert mine == pytest.approx(getattr(want, name), rel=digits, nan_ok=True), name


def test_equal_values_have_no_spread() -> None:
    """0.1 added up a thousand times is not 100; its spread is 0 all the same."""
    value = np.full((1, 1000), 0.1)
    leaf = np.random.default_rng(1).integers(0, 1 << LEAF_BITS, 1000)
    tree = Tree(np.zeros(1000, dtype=np.int64), leaf)
    moments = Moments.of(Estimate(value, value, value[None] * 0), tree)
    assert moments.square.max() < 1e-28
    assert moments.average[0, 0] == pytest.approx(0.1, rel=1e-15)
