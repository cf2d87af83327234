"""The bootstrap against a plain loop in exact fractions on the same weights, and its bits against themselves."""

import hashlib
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from scorelake.metrics import draws, resample
from scorelake.metrics.draws import Floats, Ints
from scorelake.metrics.resample import Lifts, Plan, Ranks, _Table, _times, bootstrap


def _scores(models: int, problems: int, missing: float = 0.0, seed: int = 5) -> Floats:
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.6, 0.8, problems) + rng.normal(0, 0.1, (models, 1)), 0, 1)
    scores = rng.binomial(7, p) / 7
    scores[rng.random(scores.shape) < missing] = np.nan
    return scores


def _all(scores: Floats, plan: Plan, cluster: Ints | None = None) -> tuple[Lifts, Ranks]:
    a, b = np.triu_indices(scores.shape[0], 1)
    return bootstrap(scores, a, b, [np.arange(scores.shape[0])], cluster, plan)


def _exactly(scores: Floats, plan: Plan, cluster: Ints | None = None) -> dict[tuple[int, int], list[Fraction]]:
    """Every resampled lift, from fractions with denominator 7 and Python's own sums."""
    sevenths = [[None if np.isnan(x) else Fraction(round(x * 7), 7) for x in row] for row in scores]
    units = scores.shape[1] if cluster is None else int(cluster.max()) + 1
    drawn = _times(units, plan.resamples, plan.seed).astype(np.float64)
    per_problem = (drawn if cluster is None else drawn[:, cluster]).astype(int).tolist()
    out: dict[tuple[int, int], list[Fraction]] = {}
    for a in range(len(sevenths)):
        for b in range(a + 1, len(sevenths)):
            gaps = [
                (p, y - x)
                for p, (x, y) in enumerate(zip(sevenths[a], sevenths[b], strict=True))
                if x is not None and y is not None
            ]
            lifts = []
            for row in per_problem:
                count = sum(row[p] for p, _ in gaps)
                if count:
                    lifts.append(sum((row[p] * gap for p, gap in gaps), Fraction(0)) / count)
            out[a, b] = lifts
    return out


@pytest.mark.parametrize(("missing", "clustered"), [(0.0, False), (0.3, False), (0.0, True), (0.3, True)])
def test_against_a_loop_in_fractions(missing: float, clustered: bool) -> None:
    scores, plan = _scores(4, 30, missing), Plan(300, 3, 0.9)
    cluster = np.random.default_rng(0).permutation(np.arange(30) % 12) if clustered else None
    lifts, _ = _all(scores, plan, cluster)
    for i, drawn in enumerate(_exactly(scores, plan, cluster).values()):
        lo, hi = np.quantile(np.array([float(x) for x in drawn]), [0.05, 0.95])
        assert lifts.lo[i] == pytest.approx(lo, abs=1e-12)
        assert lifts.hi[i] == pytest.approx(hi, abs=1e-12)


def test_wins_and_lift_against_a_loop() -> None:
    scores = _scores(5, 60, 0.2)
    lifts, _ = _all(scores, Plan(100))
    for i, (a, b) in enumerate(zip(*np.triu_indices(5, 1), strict=True)):
        both = ~np.isnan(scores[a] + scores[b])
        gap = np.rint(7 * (scores[b] - scores[a])[both]).astype(int)
        assert (lifts.problems[i], lifts.wins_a[i], lifts.wins_b[i]) == (both.sum(), (gap < 0).sum(), (gap > 0).sum())
        assert lifts.lift[i] == pytest.approx(gap.mean() / 7, abs=1e-15)


def test_reference_interval() -> None:
    """27 ties, 8 wins of B, 5 of A: lift +0.075, interval about (-0.10, +0.25)."""
    scores = np.zeros((2, 40))
    scores[1, :8] = scores[0, 8:13] = 1
    lifts, _ = _all(scores, Plan())
    assert (lifts.wins_a[0], lifts.wins_b[0], lifts.problems[0]) == (5, 8, 40)
    assert lifts.lift[0] == pytest.approx(0.075, abs=1e-15)
    assert lifts.lo[0] == pytest.approx(-0.10, abs=0.026)
    assert lifts.hi[0] == pytest.approx(0.25, abs=0.026)


def test_an_interval_that_touches_zero_is_zero() -> None:
    """Thirds do not fit the grid: what cancels must still be zero, not a tiny winner."""
    scores = np.array([[1 / 3, 2 / 3, 1.0], [2 / 3, 1 / 3, 1.0]] * 1).repeat(20, axis=1)
    lifts, ranks = bootstrap(
        np.concatenate([scores, scores[:1]]), np.array([0]), np.array([2]), [np.arange(3)], None, Plan(500)
    )
    assert (lifts.lift[0], lifts.lo[0], lifts.hi[0]) == (0, 0, 0)
    assert ranks.lo[0] == ranks.lo[2]
    assert ranks.hi[0] == ranks.hi[2]


def test_ranks_against_counting() -> None:
    scores, plan = _scores(6, 40), Plan(400, 1, 0.8)
    scores[4] = scores[2]  # a tie
    _, ranks = _all(scores, plan)
    drawn = _times(40, plan.resamples, plan.seed).astype(np.float64)
    totals = np.rint(7 * scores).astype(int) @ drawn.T.astype(int)
    above = (totals[None] > totals[:, None]).sum(axis=1)
    not_below = (totals[None] >= totals[:, None]).sum(axis=1)
    assert ranks.lo.tolist() == np.quantile(above + 1, 0.1, axis=1, method="inverted_cdf").astype(int).tolist()
    assert ranks.hi.tolist() == np.quantile(not_below, 0.9, axis=1, method="inverted_cdf").astype(int).tolist()
    lead = above == 0
    assert ranks.best == pytest.approx((lead / lead.sum(axis=0)).mean(axis=1), abs=1e-15)
    assert ranks.best.sum() == pytest.approx(1, abs=1e-12)
    assert (ranks.lo[4], ranks.hi[4], ranks.best[4]) == (ranks.lo[2], ranks.hi[2], ranks.best[2])


def test_rows_without_any_score() -> None:
    scores = _scores(3, 30)
    scores[1] = np.nan
    lifts, ranks = _all(scores, Plan(100))
    assert lifts.problems.tolist() == [0, 30, 0]
    assert np.isnan(lifts.lo).tolist() == [True, False, True]
    assert np.isnan(ranks.best).tolist() == [False, True, False]
    assert ranks.best[[0, 2]].sum() == pytest.approx(1)


def test_a_resample_without_common_problems_is_left_out() -> None:
    scores = np.full((2, 200), np.nan)
    scores[0, :101], scores[1, 100:] = 0.25, 0.75  # one problem in common: most resamples miss it now and then
    lifts, _ = _all(scores, Plan(200))
    assert (lifts.problems[0], lifts.lift[0], lifts.lo[0], lifts.hi[0]) == (1, 0.5, 0.5, 0.5)


def test_many_problems_are_dealt_into_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing hands of problems instead of problems leaves the interval as wide as it was."""
    scores, plan = _scores(2, 6000), Plan(2000)
    single, _ = _all(scores, plan)
    monkeypatch.setattr(resample, "MOST_UNITS", 1500)
    hands, _ = _all(scores, plan)
    assert hands.lift[0] == single.lift[0]
    assert hands.hi[0] - hands.lo[0] == pytest.approx(single.hi[0] - single.lo[0], rel=0.08)


def test_clusters_widen_the_interval() -> None:
    """Fifty copies of each problem say no more than the problem itself."""
    few = _scores(2, 40)
    many, cluster = np.repeat(few, 50, axis=1), np.repeat(np.arange(40), 50)
    plan = Plan(2000)
    assert _all(many, plan, cluster)[0].lo[0] == pytest.approx(_all(few, plan)[0].lo[0], abs=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_blocks_do_not_change_a_bit(missing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, plan = _scores(6, 500, missing), Plan(400)
    want = _digest(*_all(scores, plan))
    for block, pairs in ((1 << 9, 4), (1 << 14, 7)):
        monkeypatch.setattr(draws, "BLOCK", block)
        monkeypatch.setattr(resample, "_PAIRS", pairs)
        assert _digest(*_all(scores, plan)) == want


_PRINT = """
import numpy as np
from test_resample import _all, _digest, _scores
from scorelake.metrics.resample import Plan
print(_digest(*_all(_scores(9, 3000, 0.05), Plan(300))), _digest(*_all(_scores(30, 3000), Plan(300))))
"""


def test_threads_do_not_change_a_bit() -> None:
    seen = set()
    for threads in ("1", "2", "3"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads), "PYTHONPATH": os.path.dirname(__file__)}
        got = subprocess.run(
            [sys.executable, "-c", _PRINT], env=environment, capture_output=True, text=True, check=True
        )
        seen.add(got.stdout)
    assert len(seen) == 1, seen


def _digest(*findings: Lifts | Ranks) -> str:
    columns = [column for found in findings for column in vars(found).values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in columns)).hexdigest()


def test_what_a_kind_lacks_is_added_up_by_problem_or_by_unit() -> None:
    """By whichever is less; every sum is exact, so both are the same."""
    rng = np.random.default_rng(5)
    scores = rng.random((3, 40))
    scores[0, :3] = scores[1, 5:30] = np.nan
    unit = rng.integers(0, 7, 40)
    table, times = _Table(scores, unit), rng.integers(0, 4, (7, 11)).astype(np.float64)
    assert [len(problems) > table.units for problems in table.lacking] == [False, True, False]
    for problems, sums in zip(table.lacking, table.lost(times), strict=True):
        rows = [table._column(i, problems) for i in range(len(table.by_unit))]
        assert (sums == np.stack(rows) @ times[unit[problems]]).all()
