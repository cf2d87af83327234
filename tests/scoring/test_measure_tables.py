"""Tables of what attempts cost, recomputed from the attempts one by one."""

from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import ask, attempts, run, snapshot

CONFIG = '[measures]\nusd = {kind = "cost"}\n'


def frame(seed: int, price: float, rate: float, model: str) -> pl.DataFrame:
    """Thirty problems with four attempts each; passed attempts are cheaper."""
    rng = np.random.default_rng(seed)
    passed = rng.random(120) < np.repeat(np.clip(rng.normal(rate, 0.2, 30), 0, 1), 4)
    usd = np.where(passed, 0.5, 1) * rng.exponential(price, 120).round(6)
    return attempts(
        model=model, problem_id=np.repeat(np.arange(30), 4).tolist(), attempt=[*range(4)] * 30,
        passed=passed.tolist(), usd=usd.tolist(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake() -> pl.DataFrame:
    return pl.concat([frame(1, 0.1, 0.8, "good"), frame(2, 1.0, 0.2, "poor"), frame(3, 0.01, 0.3, "cheap")])


@pytest.fixture(scope="module")
def out(lake: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measures") / "out"
    run(lake, folder, CONFIG)
    return folder


def test_totals_and_costs_of_a_pass(out: Path, lake: pl.DataFrame) -> None:
    rows = ask(out, "SELECT model, value, lo, hi, per_pass, per_pass_lo, per_pass_hi, total FROM measure_summary")
    assert len(rows) == 3
    for model, value, lo, hi, per_pass, per_lo, per_hi, total in rows:
        mine = lake.filter(pl.col("model") == model)
        assert total == pytest.approx(mine["usd"].sum(), rel=1e-12)
        assert per_pass == pytest.approx(mine["usd"].sum() / mine["passed"].sum(), rel=1e-12)
        assert value == pytest.approx(mine["usd"].mean(), rel=1e-12)  # four attempts each
        assert lo < value < hi
        assert per_lo < per_pass < per_hi


def test_the_cost_curve_is_the_mean_over_all_orders(out: Path, lake: pl.DataFrame) -> None:
    curve = {
        k: (value, cost) for k, value, cost in ask(out, "SELECT k, value, cost FROM cost_curve WHERE model = 'poor'")
    }
    assert sorted(curve) == [1, 2, 4]
    problems = lake.filter(pl.col("model") == "poor").partition_by("problem_id")
    for k, (value, cost) in curve.items():
        spent, solved = [], []
        for problem in problems:
            passed, usd = problem["passed"].to_list(), problem["usd"].to_list()
            for order in permutations(range(4)):
                stop = next((i + 1 for i in range(k) if passed[order[i]]), k)
                spent.append(sum(usd[i] for i in order[:stop]))
                solved.append(any(passed[i] for i in order[:k]))
        assert (value, cost) == (pytest.approx(np.mean(solved), rel=1e-12), pytest.approx(np.mean(spent), rel=1e-12))


def test_the_budget_curve_counts_what_passed_within_the_budget(out: Path, lake: pl.DataFrame) -> None:
    good = lake.filter(pl.col("model") == "good")
    for budget, value in ask(out, "SELECT budget, value FROM budget_curve WHERE model = 'good'"):
        assert value == pytest.approx((good["passed"] & (good["usd"] <= budget)).mean(), rel=1e-12)


def test_the_frontier(out: Path) -> None:
    rows = ask(out, "SELECT model, on_front, front_by_value, p_front FROM frontier ORDER BY model")
    assert [row[:3] for row in rows] == [("cheap", True, True), ("good", True, True), ("poor", False, False)]
    assert rows[1][3] > 0.95
    assert rows[2][3] < 0.05


def test_without_measures_there_are_no_such_tables(lake: pl.DataFrame, tmp_path: Path) -> None:
    run(lake, tmp_path / "out")
    names = {path.name for path in snapshot(tmp_path / "out").iterdir()}
    assert not {"measure_summary.parquet", "frontier.parquet"} & names
    assert ask(tmp_path / "out", "SELECT 1 FROM duckdb_tables() WHERE table_name IN ('frontier', 'cost_curve')") == []
