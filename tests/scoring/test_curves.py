"""The curve of every model: the same numbers as the summaries, at more k."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import FIXTURES, ask, attempts, expand, run
from scorelake import metrics
from scorelake.scoring.summaries import curve_ks


def test_every_k_then_four_in_each_doubling() -> None:
    assert curve_ks(0) == []
    assert curve_ks(5) == [1, 2, 3, 4, 5]
    assert curve_ks(64) == list(range(1, 65))
    assert curve_ks(200)[63:] == [64, 80, 96, 112, 128, 160, 192]
    assert len(curve_ks(10**6)) < 130
    assert curve_ks(10**6)[-1] <= 10**6


def test_the_curve_is_the_summary_at_every_k(out: Path) -> None:
    run(FIXTURES / "lake", out, metrics=("all",))
    sql = """
        SELECT c.value, s.value, c.lo, s.lo, c.hi, s.hi, c.problems_scored, s.problems_scored
        FROM curve AS c JOIN model_summary AS s USING (benchmark, model, protocol, metric)
    """
    both = ask(out, sql)
    assert len(both) == 4 * 2 * 5
    for row in both:
        assert row[::2] == row[1::2]
    ((found,),) = ask(out, "SELECT count(*) FROM curve")
    ((ends,),) = ask(out, "SELECT sum(2 * top) FROM (SELECT max(n) AS top FROM problem_counts GROUP BY model)")
    assert found == ends, "every k for which any problem has attempts"


def test_coverage_is_told(lake: Path, out: Path) -> None:
    run(expand([("a", 3, 1), ("b", 1, 1)], model="m"), out, "[uncertainty]\nmin_coverage = 0.6")
    got = ask(out, "SELECT metric, value, problems_scored, scored FROM curve")
    assert got == [
        ("pass@1", pytest.approx(2 / 3), 2, 1.0),
        ("pass@2", None, 1, 0.5),
        ("pass@3", None, 1, 0.5),
        ("pass^1", pytest.approx(2 / 3), 2, 1.0),
        ("pass^2", None, 1, 0.5),
        ("pass^3", None, 1, 0.5),
    ]


@pytest.mark.slow
def test_clusters_are_the_units(lake: Path, out: Path) -> None:
    counts = pl.concat([expand([(f"p{i}", 4, 4 * (i // 6))], model="m", passage=i // 3) for i in range(12)])
    run(counts, out, '[columns]\ncluster = "passage"', metrics=["pass@2"])
    ((value, se),) = ask(out, "SELECT value, se FROM model_summary")
    want = metrics.interval(np.array([value]), np.array([se]), np.array([4]))
    got = ask(out, "SELECT lo, hi FROM curve WHERE metric = 'pass@2'")
    assert got == [(want[0][0], want[1][0])]


def test_scores_without_verdicts_have_no_curve(lake: Path, out: Path) -> None:
    run(attempts(model="m", problem_id=["a", "b"], score=[0.5, 1.0]), out)
    assert ask(out, "SELECT count(*) FROM curve") == [(0,)]
