"""Tables of what attempts cost, recomputed from the attempts one by one."""

from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from conftest import ask, attempts, run, snapshot
from scorelake.errors import DataError, UsageError
from scorelake.metrics.costs import mean_cost
from scorelake.read.export import write
from scorelake.read.session import reading
from scorelake.settings import load

CONFIG = '[measures]\nusd = {kind = "cost"}\n'


def frame(seed: int, price: float, rate: float, model: str) -> pl.DataFrame:
    """Thirty problems with four attempts each; passed attempts are cheaper."""
    rng = np.random.default_rng(seed)
    passed = rng.random(120) < np.repeat(np.clip(rng.normal(rate, 0.2, 30), 0, 1), 4)
    usd = np.where(passed, 0.5, 1) * rng.exponential(price, 120).round(6)
    return attempts(
        model=model, problem_id=np.repeat(np.arange(30), 4).tolist(), attempt=[*range(4)] * 30,
        passed=passed.tolist(), usd=usd.tolist(), subject=np.repeat(["x", "y", "y"], 40).tolist(),
        half=np.repeat(["a", "b", None] * 10, 4).tolist(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake() -> pl.DataFrame:
    return pl.concat([frame(1, 0.1, 0.8, "good"), frame(2, 1.0, 0.2, "poor"), frame(3, 0.01, 0.3, "cheap")])


@pytest.fixture(scope="module")
def out(lake: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measures") / "out"
    run(lake, folder, CONFIG, by=("half",))
    return folder


def test_totals_and_costs_of_a_pass(out: Path, lake: pl.DataFrame) -> None:
    """Of each model, and of its subjects and slices."""
    columns = "subject, slice, slice_value, value, lo, hi, per_pass, per_pass_lo, per_pass_hi, total"
    rows = ask(out, f"SELECT model, {columns} FROM measure_summary")
    assert len(rows) == 3 * (1 + 2 + 3)
    for model, subject, by, half, value, lo, hi, per_pass, per_lo, per_hi, total in rows:
        mine = lake.filter(model=model) if subject is None else lake.filter(model=model, subject=subject)
        mine = mine.filter(pl.col("half").eq_missing(pl.lit(half))) if by else mine
        assert total == pytest.approx(mine["usd"].sum(), rel=1e-12)
        assert per_pass == pytest.approx(mine["usd"].sum() / mine["passed"].sum(), rel=1e-12)
        assert value == pytest.approx(mine["usd"].mean(), rel=1e-12)  # four attempts each
        assert lo < value < hi
        assert per_lo < per_pass < (per_hi or np.inf)  # few problems: no upper end


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


def test_pairs_are_compared_by_what_they_cost(out: Path, lake: pl.DataFrame) -> None:
    """Paired by problem; what B gains per dollar is null where the interval of the cost contains 0."""
    costs = "lift_usd, lift_lo_usd, lift_hi_usd, lift_per_usd, lift_per_lo_usd, lift_per_hi_usd"
    found = {
        (a, b): rest
        for a, b, *rest in ask(out, f"SELECT model_a, model_b, lift, {costs} FROM pair WHERE metric = 'pass@1'")
    }
    assert len(found) == 6
    means = lake.group_by("model", "problem_id").agg(pl.col("passed", "usd").mean()).sort("problem_id")
    for (a, b), (gain, lift, lo, hi, per_usd, per_lo, per_hi) in found.items():
        d = means.filter(model=b)["usd"] - means.filter(model=a)["usd"]
        assert lift == pytest.approx(d.mean(), rel=1e-12)
        test = stats.ttest_1samp(d.to_numpy(), 0).confidence_interval()
        assert (lo, hi) == pytest.approx(tuple(test), abs=0.15 * (hi - lo)), "close to the interval of t"
        assert (per_usd is None) == (lo <= 0 <= hi)
        if per_usd is not None:
            assert per_usd == pytest.approx(gain / lift, rel=1e-12)
            assert per_lo < per_usd < per_hi
        mirrored = [-lift, -hi, -lo, per_usd, per_lo, per_hi]
        assert found[b, a][1:] == [each and pytest.approx(each, rel=1e-12) for each in mirrored]
    assert ask(out, f"SELECT {costs} FROM comparison WHERE metric = 'pass@1' AND model_b = 'poor'") == (
        [tuple(found[a, "poor"][1:]) for a in ("cheap", "good")]
    )
    others = ask(out, "SELECT count(lift_usd), count(*) > 0 FROM pair WHERE metric <> 'pass@1'")
    assert others == [(0, True)], "of pass@1 alone"
    ((total,),) = ask(out, "SELECT sum(usd_sum) FROM problem_counts")
    assert total == pytest.approx(lake["usd"].sum(), rel=1e-12)


def test_a_run_that_costs_too_much_is_not_published(lake: pl.DataFrame, tmp_path: Path) -> None:
    config = CONFIG + "[gates]\nmax_cost_rise = 0.1\n"
    run(lake, tmp_path / "out", config)
    dearer = pl.when(pl.col("model") == "good").then(pl.col("usd") * 1.5).otherwise("usd").round(9)
    with pytest.raises(
        DataError, match=r"default / good: usd per attempt rose from 0.0\d+ to 0.\d+, by 4\d\.\d% or more"
    ):
        run(lake.with_columns(usd=dearer), tmp_path / "out", config)
    assert run(lake.with_columns(usd=pl.col("usd") * 1.05), tmp_path / "out", config).status == "published"
    with pytest.raises(UsageError, match="max_cost_rise needs"):
        load(**{"gates.max_cost_rise": 0.1})


def test_attempts_without_a_measure_are_named(lake: pl.DataFrame, tmp_path: Path) -> None:
    unpaid = pl.when((pl.col("model") == "poor") | (pl.int_range(pl.len()) == 5)).then(None).otherwise("usd")
    done = run(lake.with_columns(usd=unpaid), tmp_path / "out", CONFIG)
    assert "usd: 121 of 360 graded attempts without a value" in done.warnings


def test_the_tables_are_exported(out: Path, tmp_path: Path) -> None:
    with reading(str(out)) as folder:
        paths = [path for kind in ("csv", "parquet", "xlsx") for path in write(folder, tmp_path / kind, kind)]
    assert {"measure_pair.csv", "cost_curve.parquet", "leaderboard.xlsx"} <= {path.name for path in paths}
    exported = pl.read_parquet(tmp_path / "parquet" / "measure_summary.parquet")
    assert exported.height == 18


def test_without_measures_there_are_no_such_tables(lake: pl.DataFrame, tmp_path: Path) -> None:
    run(lake, tmp_path / "out")
    names = {path.name for path in snapshot(tmp_path / "out").iterdir()}
    assert not {"measure_summary.parquet", "frontier.parquet"} & names
    assert ask(tmp_path / "out", "SELECT 1 FROM duckdb_tables() WHERE table_name IN ('frontier', 'cost_curve')") == []


def test_attempts_with_scores_only_cost_too(lake: pl.DataFrame, tmp_path: Path) -> None:
    """Without verdicts nothing passes: totals, pairs and the frontier remain, by the mean score."""
    points = pl.when("passed").then(1.5).otherwise(-0.5)
    run(lake.with_columns(score=points).drop("passed"), tmp_path / "out", CONFIG)
    sums = "SELECT model, total, per_pass, never_solved FROM measure_summary WHERE subject IS NULL AND slice IS NULL"
    by_model = {
        key: rows for (key,), rows in lake.with_columns(score=points).partition_by("model", as_dict=True).items()
    }
    found = {model: rest for model, *rest in ask(tmp_path / "out", sums)}
    assert found == {key: [pytest.approx(rows["usd"].sum(), rel=1e-12), None, None] for key, rows in by_model.items()}
    front = ask(tmp_path / "out", "SELECT model, on_front, score, cost FROM frontier ORDER BY model")
    assert [row[:2] for row in front] == [("cheap", True), ("good", True), ("poor", False)]
    for model, _, *means in front:
        assert means == pytest.approx([by_model[model][name].mean() for name in ("score", "usd")], rel=1e-12)
    assert ask(tmp_path / "out", "SELECT count(*) FROM measure_pair") == [(3,)]
    assert ask(tmp_path / "out", "SELECT count(*) FROM cost_curve") == [(0,)]


@pytest.mark.parametrize("units", [2, 3, 10, 30])
def test_one_dear_problem_gives_a_finite_interval(units: int) -> None:
    """A resample without the dear problem has nearly no variance."""
    cost = np.append(np.linspace(0.0099, 0.0101, units - 1), 10.0)
    value, lo, hi = mean_cost(cost, np.ones(units), np.random.default_rng(0).poisson(size=(500, units)))
    assert 0 < lo <= value <= hi < np.inf


def test_few_skewed_costs_are_covered() -> None:
    """In 400 lakes of 30 problems with lognormal costs, as often as the level says."""
    rng = np.random.default_rng(0)
    weights, truth = rng.poisson(size=(1000, 30)), np.exp(0.5)
    ends = [mean_cost(rng.lognormal(size=30), np.ones(30), weights) for _ in range(400)]
    assert 0.935 <= np.mean([lo <= truth <= hi for _, lo, hi in ends]) <= 0.965
