"""Lifts, flips and ranks against plain loops in exact fractions and enumeration; their bits against themselves."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm, t

from scorelake.metrics.board import sum_n_ratios
from scorelake.metrics.bootstrap import MAX_UNITS, MAX_WEIGHT, WEIGHTS, Units, resample
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.interval import cluster_spread, interval
from scorelake.metrics.paired import (
    Lifts,
    Ranks,
    ResamplePlan,
    compare_scores,
)
from scorelake.metrics.significance import sign_test


def _scores(models: int, problems: int, missing: float = 0.0, seed: int = 5) -> Floats:
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.6, 0.8, problems) + rng.normal(0, 0.1, (models, 1)), 0, 1)
    scores = rng.binomial(7, p) / 7
    scores[rng.random(scores.shape) < missing] = np.nan
    return scores


def _units(problems: int, cluster: Ints | None = None) -> Units:
    key = np.random.default_rng(9).integers(0, 2**64, problems, dtype=np.uint64)
    return Units.of(key if cluster is None else key[cluster])


def _all(
    scores: Floats, plan: ResamplePlan, cluster: Ints | None = None, ranked: Ints | None = None
) -> tuple[Lifts, Ranks]:
    return compare_scores(scores, _units(scores.shape[1], cluster), plan, None, ranked)


def _gaps(scores: Floats) -> dict[tuple[int, int], list[tuple[int, Fraction]]]:
    """For each pair the problems in common and their differences, in exact sevenths."""
    sevenths = [[None if np.isnan(x) else Fraction(round(x * 7), 7) for x in row] for row in scores]
    return {
        (a, b): [
            (p, y - x)
            for p, (x, y) in enumerate(zip(sevenths[a], sevenths[b], strict=True))
            if x is not None and y is not None
        ]
        for a in range(len(scores))
        for b in range(a + 1, len(scores))
    }


CASES = pytest.mark.parametrize(("missing", "clustered"), [(0.0, False), (0.3, False), (0.0, True), (0.3, True)])


@CASES
def test_intervals_against_a_loop_in_fractions(missing: float, clustered: bool) -> None:
    scores, plan = _scores(4, 30, missing), ResamplePlan(300, 3, 0.9)
    cluster = np.random.default_rng(0).permutation(np.arange(30) % 12) if clustered else None
    lifts, _ = _all(scores, plan, cluster)
    units = _units(30, cluster)
    times = resample(units.key, 300, 3).weights.T[units.index].astype(int).tolist()
    for i, gaps in enumerate(_gaps(scores).values()):
        lift = sum(gap for _, gap in gaps) / Fraction(len(gaps))
        drawn = []
        for r in range(300):
            count = sum(times[p][r] for p, _ in gaps)
            drawn.append(sum((times[p][r] * gap for p, gap in gaps), Fraction(0)) / count if count else lift)
        many = len({units.index[p] for p, _ in gaps})
        assert lifts.lift[i] == pytest.approx(float(lift), abs=1e-12)
        wins = [sum(sign * gap > 0 for _, gap in gaps) for sign in (-1, 1)]
        assert (lifts.problems[i], lifts.wins_a[i], lifts.wins_b[i]) == (len(gaps), *wins)
        drawn.sort()
        for got, tail in ((lifts.lo, 0.05), (lifts.hi, 0.95)):
            at = int(tail * 299) if tail < 0.5 else 299 - int((1 - tail) * 299)
            stretch = t.ppf(tail, many - 1) / norm.ppf(tail) * (many / (many - 1)) ** 0.5
            assert got[i] == pytest.approx(float(lift) + stretch * float(drawn[at] - lift), abs=5e-7)


@CASES
def test_flips_against_a_loop_in_fractions(missing: float, clustered: bool) -> None:
    """A permutation test by hand: every flip of every pair, p-values, and the farthest flips that ranks come from."""
    scores, plan = _scores(5, 30, missing), ResamplePlan(300, 3, 0.9)
    cluster = np.random.default_rng(0).permutation(np.arange(30) % 12) if clustered else None
    lifts, ranks = _all(scores, plan, cluster)
    units = _units(30, cluster)
    signs = (resample(units.key, 300, 3).signs.T[units.index].astype(int) * 2 - 1).tolist()
    farthest, far = np.zeros((5, 300)), {}
    for i, ((a, b), gaps) in enumerate(_gaps(scores).items()):
        flips = [sum((signs[p][r] * gap for p, gap in gaps), Fraction(0)) for r in range(300)]
        total = sum(gap for _, gap in gaps)
        as_far, farther = sum(abs(x) >= abs(total) for x in flips), sum(abs(x) > abs(total) for x in flips)
        by_unit: dict[int, Fraction] = {}
        for p, gap in gaps:
            by_unit[int(units.index[p])] = by_unit.get(int(units.index[p]), Fraction(0)) + gap
        size = float(sum(x * x for x in by_unit.values())) ** 0.5
        far[a, b] = float(total) / size
        assert lifts.t[i] == pytest.approx(far[a, b], abs=1e-12)
        bound = 2 / (4 * norm.cdf(-(2**0.5))) * norm.cdf(-abs(far[a, b]))
        two_sided = bound if bound < 1 / 301 else (1 + as_far) / 301
        assert lifts.p_two_sided[i] == pytest.approx(two_sided, rel=1e-12)
        ahead, behind = two_sided / 2, 1 - farther / 602
        assert lifts.p_b[i] == pytest.approx(ahead if total > 0 else behind, rel=1e-12)
        assert lifts.p_a[i] == pytest.approx(ahead if total < 0 else behind, rel=1e-12)
        for row in (a, b):
            farthest[row] = np.maximum(farthest[row], np.abs([float(x) for x in flips]) / size)
    limit = np.sort(farthest, axis=1)[:, int(np.ceil(0.9 * 301)) - 1]
    for row in range(5):
        rivals = {b if a == row else a: x if a == row else -x for (a, b), x in far.items() if row in (a, b)}
        assert ranks.lo[row] == 1 + sum(x > max(limit[row], limit[other]) for other, x in rivals.items())
        assert ranks.hi[row] == 5 - sum(-x > max(limit[row], limit[other]) for other, x in rivals.items())


@pytest.mark.parametrize(("wins_a", "wins_b"), [(0, 1), (3, 13), (2, 10), (0, 0)])
@pytest.mark.parametrize("size", [1.0, 1 / 3])
def test_equally_large_gaps_are_the_exact_sign_test(wins_a: int, wins_b: int, size: float) -> None:
    scores = np.zeros((2, 40))
    scores[1, :wins_b] = scores[0, wins_b : wins_a + wins_b] = size
    lifts, _ = _all(scores, ResamplePlan(100))
    assert (lifts.wins_a[0], lifts.wins_b[0]) == (wins_a, wins_b)
    assert (lifts.p_b[0], lifts.p_two_sided[0]) == pytest.approx(sign_test(wins_a, wins_b), rel=1e-14)


def test_wins_of_clusters_are_tossed_where_clusters_are_flipped() -> None:
    """Ten problems of a passage that all say the same are one toss."""
    scores = np.zeros((2, 120))
    scores[1, :90] = scores[0, 90:] = 1
    lifts, _ = _all(scores, ResamplePlan(100), np.arange(120) // 10)
    assert (lifts.wins_a[0], lifts.wins_b[0]) == (30, 90)
    assert lifts.p_b[0] == pytest.approx(sum(comb(12, x) for x in range(9, 13)) / 2**12, rel=1e-12)


def test_what_flips_cannot_tell_is_bounded() -> None:
    """The bound holds for the largest chance there is: of the exact test, for one size of gap."""
    scores = np.zeros((2, 100))
    scores[1, :60] = 0.5
    scores[1, 60] = 0.51  # not all equal: no sign test
    lifts, _ = _all(scores, ResamplePlan(1000))
    assert 2 / 2**61 < lifts.p_two_sided[0] < 1e-10
    assert lifts.p_a[0] == 1


@pytest.mark.parametrize(
    ("ties", "wins", "losses", "lo", "hi"),
    [
        (20, 0, 0, -0.122199, 0.122199),
        (100, 0, 0, -0.026025, 0.026025),
        (27, 8, 5, -0.099550, 0.242971),
        (300, 0, 3, -0.023890, 0.004207),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_equivalence_interval(ties: int, wins: int, losses: int, lo: float, hi: float, scale: float) -> None:
    """Ties prove no margin: one whole problem at the far end. Where all tie it is the published interval, too."""
    scores = np.zeros((2, ties + wins + losses))
    scores[1, :wins] = scores[0, wins : wins + losses] = scale
    lifts, _ = compare_scores(scores, _units(scores.shape[1]), ResamplePlan(200), bounds=(0.0, scale))
    assert (lifts.inner_lo[0] / scale, lifts.inner_hi[0] / scale) == pytest.approx((lo, hi), abs=1e-6)
    if not wins + losses:
        assert (lifts.lo[0], lifts.hi[0]) == (lifts.inner_lo[0], lifts.inner_hi[0])


def test_rewards_without_bounds_that_tie_are_not_certainty() -> None:
    scores, unbounded = np.tile(np.arange(20.0), (2, 1)), (-np.inf, np.inf)
    lifts, _ = compare_scores(scores, _units(20), ResamplePlan(200), bounds=unbounded)
    assert lifts.hi[0] == -lifts.lo[0] == pytest.approx(19 * 0.122199, abs=1e-5)
    zeros, _ = compare_scores(scores * 0, _units(20), ResamplePlan(200), bounds=unbounded)
    assert zeros.lo[0] < 0 < zeros.hi[0]


def test_sizes_of_clusters_count() -> None:
    """Against a loop: leave one cluster out at a time. Clusters of one size are as many as they are."""
    sums, counts = np.array([3.0, 1.0, 0.0, 9.0]), np.array([4.0, 2.0, 0.0, 10.0])
    kept = [at for at in range(4) if counts[at]]
    means = [(sums.sum() - sums[at]) / (counts.sum() - counts[at]) for at in kept]
    error, effective = cluster_spread(sums, counts)
    assert error == pytest.approx((2 / 3 * sum((mean - sum(means) / 3) ** 2 for mean in means)) ** 0.5, rel=1e-12)
    assert effective == pytest.approx((3 * 16**2 / (16 + 4 + 100)) ** 0.5, rel=1e-12)
    assert cluster_spread(sums[:3], counts[:3] * 0 + 5)[1] == pytest.approx(3)


def test_ratios_of_n_are_of_shared_problems_one_by_one() -> None:
    """One problem with 16 attempts does not make a model with one attempt like a model with 16."""
    n = np.array([[1.0] * 9 + [136], [16] * 10, [1] * 9 + [np.nan], [2] * 10])
    got = sum_n_ratios(n) / np.maximum(1, (~np.isnan(n)).astype(float) @ (~np.isnan(n)).T)
    assert got[1] == pytest.approx([(9 * 16 + 16 / 136) / 10, 1, 16, 8])
    assert (got[2, 0], got[2, 3], got[3, 2]) == (1, 0.5, 2)
    assert sum_n_ratios(n[1:2]).tolist() == [[10]]
    assert np.array_equal(sum_n_ratios(n[:, :4]) + sum_n_ratios(n[:, 4:]), sum_n_ratios(n))


def test_an_interval_that_touches_zero_is_zero() -> None:
    """Thirds do not fit the grid: what cancels must still be zero, not a tiny winner."""
    scores = np.array([[1 / 3, 2 / 3, 1.0], [2 / 3, 1 / 3, 1.0]] * 1).repeat(20, axis=1)
    lifts, ranks = _all(np.concatenate([scores, scores[:1]]), ResamplePlan(500))
    assert (lifts.lift[1], lifts.p_two_sided[1]) == (0, 1)
    assert lifts.lo[1] == pytest.approx(-lifts.hi[1], abs=1e-12)
    assert (ranks.lo[0], ranks.hi[0], ranks.best[0]) == (ranks.lo[2], ranks.hi[2], ranks.best[2])


def test_leading_against_counting() -> None:
    scores, plan = _scores(6, 40), ResamplePlan(400, 1, 0.8)
    scores[4] = scores[2]  # a tie
    _, ranks = _all(scores, plan)
    units = _units(40)
    drawn = resample(units.key, 400, 1).weights.T[units.index]
    totals = np.rint(7 * scores).astype(int) @ drawn.astype(int)
    lead = totals == totals.max(axis=0)
    assert ranks.best == pytest.approx((lead / lead.sum(axis=0)).mean(axis=1), abs=1e-15)
    assert ranks.best.sum() == pytest.approx(1, abs=1e-12)
    assert (ranks.lo[4], ranks.hi[4], ranks.best[4]) == (ranks.lo[2], ranks.hi[2], ranks.best[2])


def test_only_the_rows_asked_for_are_ranked() -> None:
    scores = _scores(6, 200)
    _, subset = _all(scores, ResamplePlan(500), ranked=np.array([1, 4]))
    _, separate = _all(scores[[1, 4]], ResamplePlan(500))
    for name in ("lo", "hi", "best"):
        assert getattr(subset, name).tolist() == getattr(separate, name).tolist()


def test_a_resample_without_common_problems_says_nothing() -> None:
    scores = np.full((2, 200), np.nan)
    scores[0, :102], scores[1, 100:] = 0.25, 0.75  # two problems in common: some resamples miss both
    lifts, _ = _all(scores, ResamplePlan(200))
    assert (lifts.problems[0], lifts.lift[0], lifts.lo[0], lifts.hi[0]) == (2, 0.5, 0.5, 0.5)


def test_one_cluster_has_no_interval() -> None:
    lifts, _ = _all(_scores(2, 30), ResamplePlan(100), np.zeros(30, dtype=np.int64))
    assert np.isnan(lifts.lo[0])
    assert np.isnan(lifts.hi[0])


def test_blocks_of_problems_leave_the_spread_as_it_is() -> None:
    """Resampling 2,048 blocks of problems instead of problems keeps the width of the interval and the size of t."""
    scores, plan = _scores(2, 6000), ResamplePlan(2000)
    key = np.random.default_rng(9).integers(0, 2**64, 6000, dtype=np.uint64)
    (blocks, _), (single, _) = (compare_scores(scores, Units.of(key, most), plan) for most in (2048, 6000))
    assert blocks.lift[0] == pytest.approx(single.lift[0], rel=1e-13)
    assert blocks.hi[0] - blocks.lo[0] == pytest.approx(single.hi[0] - single.lo[0], rel=0.08)
    assert blocks.t[0] == pytest.approx(single.t[0], rel=0.1)


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(2, 5), st.integers(2, 30)), elements=st.integers(-1, 4)),
    st.sampled_from([0.5, 0.8, 0.95]),
)
def test_laws(c: Ints, confidence: float) -> None:
    """Whatever the scores: ends contain the lift and each other, p-values are chances, a rank is within the board."""
    scores = np.where(c < 0, np.nan, c / 4.0)
    both = ~np.isnan(scores)[:, None] & ~np.isnan(scores)[None]
    a, b = (x[(both.sum(axis=2) >= 2)[np.triu_indices(len(c), 1)]] for x in np.triu_indices(len(c), 1))
    ranked = np.arange(len(c)) if a.size == len(c) * (len(c) - 1) // 2 else np.arange(0)
    units = _units(c.shape[1])
    lifts, ranks = compare_scores(scores, units, ResamplePlan(100, 0, confidence), (a, b), ranked)
    for lo, hi in ((lifts.lo, lifts.hi), (lifts.inner_lo, lifts.inner_hi)):
        assert ((lo <= lifts.lift) & (lifts.lift <= hi)).all()
    assert (lifts.inner_lo < lifts.inner_hi).all()
    for p in (lifts.p_a, lifts.p_b, lifts.p_two_sided):
        assert ((p > 0) & (p <= 1)).all()
    assert (np.minimum(lifts.p_a, lifts.p_b) <= lifts.p_two_sided + 1e-12).all()
    assert ((ranks.lo >= 1) & (ranks.lo <= ranks.hi) & (ranks.hi <= len(c))).all()
    if ranked.size:
        assert ranks.best.sum() == pytest.approx(1)
        means = np.nanmean(scores, axis=1)
        if not np.isnan(scores).any():
            assert (ranks.lo <= 1 + (means[None] > means[:, None] + 1e-9).sum(axis=1)).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_pairs_of_unequal_n_combine_the_intervals_of_both_models(missing: float) -> None:
    """By the formula, from scores one by one: on the same problems, and where each model lacks some."""
    scores, level = _scores(2, 60, missing), 0.95
    lifts, _ = compare_scores(scores, _units(60), ResamplePlan(200), n_differs=np.ones((2, 2), dtype=bool))
    a, b = scores[:, ~np.isnan(scores).any(axis=0)]
    r, units = np.corrcoef(a, b)[0, 1], np.array([a.size])

    def ends(confidence: float) -> tuple[float, float]:
        sides = []
        for side in (a, b):
            error = np.array([side.std(ddof=1) / side.size**0.5])
            sides.append(interval(side[:1] * 0 + side.mean(), error, units, (0, 1), confidence, far_problems=0.75))
        (lo_a, hi_a), (lo_b, hi_b) = ((lo.item(), hi.item()) for lo, hi in sides)
        x, y, u, v = b.mean() - lo_b, hi_a - a.mean(), hi_b - b.mean(), a.mean() - lo_a
        lift = b.mean() - a.mean()
        return lift - (x * x + y * y - 2 * r * x * y) ** 0.5, lift + (u * u + v * v - 2 * r * u * v) ** 0.5

    assert (lifts.lo[0], lifts.hi[0]) == pytest.approx(ends(level), abs=1e-12)
    paired, _ = compare_scores(scores, _units(60), ResamplePlan(200))
    lo, hi = ends(0.9)  # margins are tested with the wider of the two intervals
    assert lifts.inner_lo[0] == pytest.approx(min(lo, paired.inner_lo[0]), abs=1e-12)
    assert lifts.inner_hi[0] == pytest.approx(max(hi, paired.inner_hi[0]), abs=1e-12)
    at_p = ends(1 - lifts.p_two_sided[0])
    assert min(map(abs, at_p)) == pytest.approx(0, abs=1e-9)
    assert min(lifts.p_a[0], lifts.p_b[0]) == pytest.approx(lifts.p_two_sided[0] / 2)
    assert lifts.p_a[0] + lifts.p_b[0] == pytest.approx(1)


def test_fewer_resamples_for_very_many_pairs() -> None:
    resamples = [ResamplePlan().resamples_for(pairs) for pairs in (0, 1225, 499_500, 10**9)]
    assert resamples == [10_000, 10_000, 2000, 2000]
    assert ResamplePlan(500).resamples_for(10**9) == 500


@pytest.mark.parametrize("far", [0.0, 1.0, 1e6])
def test_a_model_far_away_does_not_widen_the_ranges_of_others(far: float) -> None:
    """Two models that differ a little everywhere are told apart, whoever else is there."""
    rng = np.random.default_rng(4)
    a = rng.random(100)
    rows = [a, a + 0.01, *([a * 0 + far, a * 0 + far + 0.01 * rng.random(100)] if far else [])]
    _, ranks = _all(np.array(rows), ResamplePlan(2000, 1))
    assert ranks.lo[1] == ranks.hi[1] == (1 if far < 1 else ranks.lo[1])
    assert ranks.hi[1] < ranks.lo[0]


def test_scores_that_are_nearly_nothing_are_equal() -> None:
    """A step that vanished would divide by zero; warnings are errors here."""
    scores = np.random.default_rng(1).integers(0, 5, (3, 40)) * 5e-324
    lifts, ranks = _all(scores, ResamplePlan(200))
    assert (lifts.wins_a + lifts.wins_b == 0).all()
    assert (lifts.p_two_sided == 1).all()
    assert ranks.hi.tolist() == [3, 3, 3]


def test_weights_have_the_moments_of_a_poisson() -> None:
    x = WEIGHTS.astype(int)
    assert (x.size, x.sum(), (x * (x - 1)).sum(), x.max()) == (256, 256, 256, MAX_WEIGHT)


def test_draws_of_a_unit_follow_from_the_seed_and_the_unit() -> None:
    """Neither from other units, nor from the number of resamples."""
    key = np.random.default_rng(1).integers(0, 2**64, 50, dtype=np.uint64)
    every, two = resample(key, 1000, 7), resample(key[[31, 4]], 1000, 7)
    fewer, other, same = (resample(key[[31]], 99, seed) for seed in (7, 8, 2**64 + 7))
    for name in ("weights", "signs"):
        drawn = getattr(every, name)
        assert np.array_equal(getattr(two, name), drawn[:, [31, 4]])
        assert not np.array_equal(getattr(other, name), getattr(fewer, name))
        assert np.array_equal(getattr(same, name), getattr(fewer, name))
    assert np.array_equal(fewer.weights, every.weights[:99, [31]])


def test_weights_and_signs_are_fair_and_independent() -> None:
    drawn = resample(np.arange(200, dtype=np.uint64), 5000, 3)
    signs = drawn.signs * 2.0 - 1
    assert abs(signs.mean()) < 4 / 1000
    assert abs(drawn.weights.mean() - 1) < 4 / 1000
    between = np.corrcoef(np.concatenate([drawn.weights.T - 1.0, signs.T]))
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 6 / 5000**0.5  # 80,000 correlations of standard deviation 1 / sqrt(5000)


def test_the_block_of_a_problem_depends_on_its_hash_only() -> None:
    assert MAX_UNITS == 2048
    key = np.random.default_rng(2).integers(0, 2**64, 40, dtype=np.uint64)
    units = Units.of(key, max_units=8)
    assert units.key.tolist() == list(range(8))
    assert np.array_equal(units.index, (key % np.uint64(8)).astype(int))
    assert np.array_equal(Units.of(key[10:], max_units=8).index, units.index[10:])
