"""Judges against trusted grades: quality, corrected scores and lifts, and the order of models under two graders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau

from conftest import ask, attempts, run
from scorelake.metrics import judge_corrected
from scorelake.schemas import JUDGE_LIFT, JUDGE_QUALITY
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.judges import judge_tables, judge_warnings
from scorelake.scoring.survey import BucketTask
from scorelake.settings import Settings

PROBLEMS, ATTEMPTS, LABELLED = 80, 4, 40


def grades(model: str, lenient: float, rng: np.random.Generator) -> pl.DataFrame:
    """Problem counts of a judge that passes a share of the failures; every second problem is labelled."""
    gold = rng.random((PROBLEMS, ATTEMPTS)) < rng.random((PROBLEMS, 1))
    judged = gold | (rng.random(gold.shape) < lenient)
    labels = (np.arange(PROBLEMS) % 2 == 0)[:, None] * np.ones(gold.shape, dtype=int)
    counts = {
        "gold_n": labels,
        "gold_c": labels * gold,
        "gold_judged": labels * judged,
        "gold_both": labels * (gold & judged),
    }
    frame = pl.DataFrame({"c": judged.sum(axis=1)} | {name: cells.sum(axis=1) for name, cells in counts.items()})
    keys = {"benchmark": "b", "model": model, "protocol": ""}
    at = pl.int_range(pl.len())
    subject = pl.when(at < 30).then(pl.lit("x")).otherwise(pl.lit("y"))
    return frame.with_columns(
        n=ATTEMPTS, problem_id=at.cast(pl.String), subject=subject, **{k: pl.lit(v) for k, v in keys.items()}
    )


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.concat([grades("favoured", 0.6, rng), grades("plain", 0.05, rng), grades("same", 0.05, rng)])


@pytest.fixture(scope="module")
def tables(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    path = tmp_path_factory.mktemp("judges") / "part.parquet"
    frame.write_parquet(path)
    task = BucketTask(str(path), frame.height, Settings(), Outcomes(binary=True, rewards=False, top_n=ATTEMPTS))
    return judge_tables([task], Settings())


def test_quality_is_counted_over_labelled_attempts(frame: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> None:
    for row in tables[JUDGE_QUALITY.name].rows(named=True):
        mine = frame.filter(model=row["model"])
        n, gold, judged, both = mine.select(pl.col("gold_n", "gold_c", "gold_judged", "gold_both").sum()).row(0)
        assert (row["problems"], row["labelled"], row["attempts"]) == (PROBLEMS, LABELLED, n)
        assert row["sensitivity"] == pytest.approx(both / gold)
        assert row["specificity"] == pytest.approx((n - gold - judged + both) / (n - gold))
        agreement, chance = (n - gold - judged + 2 * both) / n, (gold * judged + (n - gold) * (n - judged)) / n**2
        assert row["agreement"] == pytest.approx(agreement)
        assert row["kappa"] == pytest.approx((agreement - chance) / (1 - chance))
        assert row["agreement_lo"] < agreement < row["agreement_hi"]
        assert row["value"] == pytest.approx(mine["c"].sum() / PROBLEMS / ATTEMPTS)


def test_scores_and_lifts_are_corrected(frame: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> None:
    """Against the formula, on single models and on paired differences."""
    parts = {}
    for row in tables[JUDGE_QUALITY.name].rows(named=True):
        mine = frame.filter(model=row["model"]).sort("subject", pl.col("problem_id"))
        at = np.flatnonzero(mine["gold_n"].to_numpy())
        judged, y, f = (
            (mine["c"] / 4).to_numpy(),
            *((mine[name] / 4).to_numpy()[at] for name in ("gold_c", "gold_judged")),
        )
        parts[row["model"]] = judged, y, f
        assert (row["value_corrected"], row["lo"], row["hi"]) == pytest.approx(
            tuple(judge_corrected(judged, y, f, at)[i] for i in (0, 2, 3))
        )
        assert row["bias"] == pytest.approx((f - y).mean())
    lifts = tables[JUDGE_LIFT.name].rows(named=True)
    assert [(row["model_a"], row["model_b"]) for row in lifts] == (
        [("favoured", "plain"), ("favoured", "same"), ("plain", "same")]
    )
    for row in lifts:
        d = [b - a for a, b in zip(parts[row["model_a"]], parts[row["model_b"]], strict=True)]
        value, se, *_ = judge_corrected(*d, at)
        assert row["lift_corrected"] == pytest.approx(value)
        assert row["hi"] - row["lo"] == pytest.approx(2 * 2.0227 * se, rel=1e-4), "t of 39 degrees"
    assert lifts[0]["lift"] < lifts[0]["lift_corrected"], "the favoured model leads by less"


def test_a_judge_that_favours_a_model_is_named(tables: dict[str, pl.DataFrame]) -> None:
    p = dict(tables[JUDGE_QUALITY.name].select("model", "bias_p").iter_rows())
    assert p["favoured"] < 0.001
    (first, *_) = judge_warnings(tables, Settings())
    assert first.startswith("b: the judge errs otherwise on favoured than on other models: its grades are +0.")
    assert judge_warnings({}, Settings()) == []


def test_few_labels_correct_nothing(frame: pl.DataFrame, tmp_path: Path) -> None:
    few = frame.with_columns(pl.when(pl.col("problem_id").cast(pl.Int64) < 30).then(pl.col("^gold_.*$")).otherwise(0))
    few.write_parquet(tmp_path / "part.parquet")
    task = BucketTask(str(tmp_path / "part.parquet"), few.height, Settings(), Outcomes(True, False, ATTEMPTS))
    table = judge_tables([task], Settings())[JUDGE_QUALITY.name]
    assert table.select("labelled", "value_corrected", "lo").unique().rows() == [(15, None, None)]


def test_the_order_of_models_under_two_graders(tmp_path: Path) -> None:
    rates = {"g": [0.9, 0.7, 0.5, 0.2], "h": [0.6, 0.8, 0.5, 0.1]}
    frames = [
        attempts(model=f"m{i}", grader=grader, problem_id=list(range(30)), passed=[j < 30 * rate for j in range(30)])
        for grader, each in rates.items()
        for i, rate in enumerate(each)
    ]
    run(pl.concat(frames), tmp_path / "out", '[protocol]\ncolumns = ["grader"]\n')
    rows = ask(tmp_path / "out", "SELECT * FROM rank_stability WHERE metric = 'pass@1'")
    tau = kendalltau(*rates.values()).statistic
    assert rows == [("default", "pass@1", None, "g", "h", 4, 6, 1, pytest.approx(tau), 1)]


def test_a_lake_with_trusted_grades(tmp_path: Path) -> None:
    """From attempts to the tables: the judge passes every failure of one model, and none of the other."""
    rng = np.random.default_rng(1)
    gold = rng.random(200) < 0.4
    labels = [value if i // 2 < 40 else None for i, value in enumerate(gold.tolist())]
    keys = {"problem_id": np.repeat(np.arange(100), 2).tolist(), "attempt": [0, 1] * 100, "human": labels}
    frames = [attempts(model="lax", passed=[True] * 200, **keys), attempts(model="ok", passed=gold.tolist(), **keys)]
    done = run(pl.concat(frames), tmp_path / "out", '[columns]\ngold = "human"\n')
    sql = "SELECT model, labelled, attempts, specificity, value, value_corrected, lo, hi FROM judge_quality"
    (lax, ok) = ask(tmp_path / "out", sql)
    assert lax[:5] == ("lax", 40, 80, 0.0, 1.0)
    assert lax[5] == pytest.approx(gold[:80].mean())
    assert (ok[3], ok[5]) == (1.0, pytest.approx(gold.mean(), abs=0.01))
    ((lift, corrected),) = ask(tmp_path / "out", "SELECT lift, lift_corrected FROM judge_lift")
    assert lift < corrected
    assert any("the judge errs otherwise on lax" in warning for warning in done.warnings)
