"""`scorelake plan`: problems and attempts needed, held against the formulas, and the work list."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

import scorelake as sl
from conftest import Cli
from counted import Row, scored
from scorelake.errors import DataError, UsageError

RATES = {"a": 0.5, "b": 0.55, "c": 0.05}


def lake() -> list[Row]:
    rng = np.random.default_rng(3)
    tried = {"a": 40, "b": 40, "c": 30}
    return [
        {"model": m, "problem_id": f"p{i}", "n": 4, "c": int(rng.binomial(4, rng.beta(4 * r, 4 * (1 - r))))}
        for m, r in RATES.items()
        for i in range(tried[m])
    ]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scored(tmp_path_factory.mktemp("plan"), lake(), compare={"min_share": 0.5})


def test_a_comparison_needs_what_the_formula_says(out: Path) -> None:
    (need,) = sl.plan(out, "b vs a", lift=0.05, cost_per_problem=5)
    a, b = (np.array([row["c"] for row in lake() if row["model"] == m]) for m in "ab")
    w = (a * (4 - a) / 12 + b * (4 - b) / 12).mean()
    s2 = max(((b - a) / 4).var(ddof=1) - w / 4, 0)
    z2 = (norm.ppf(0.975) + norm.ppf(0.8)) ** 2
    assert need.problems_needed == math.ceil(1.1 * z2 * (s2 + w / 4) / 0.05**2)
    assert need.best_attempts == pytest.approx(math.sqrt(5 * w / s2))
    assert need.problems_range is not None
    assert need.problems_range[0] < need.problems_needed < need.problems_range[1]
    assert need.text().startswith("default: b vs a, a lift of 0.0500: ")


def test_the_width_of_an_interval_is_reached_by_the_planned_problems(out: Path) -> None:
    need = next(each for each in sl.plan(out, "half-width 0.05") if each.about.startswith("a,"))
    rates = np.array([row["c"] / 4 for row in lake() if row["model"] == "a"])
    se = math.sqrt(rates.var(ddof=1) / need.problems_needed)
    assert norm.ppf(0.975) * se == pytest.approx(0.05, rel=0.02)


def test_open_ranks_are_planned_and_clear_ones_are_not(out: Path, tmp_path: Path, cli: Cli) -> None:
    (need,) = sl.plan(out)
    assert {"a", "b"} == set(need.about.split(",")[0].split(" vs "))
    clear = scored(tmp_path, [row for row in lake() if row["model"] in "ac"], compare={"min_share": 0.5})
    done = cli("plan", clear)
    assert (done.returncode, "no rank is open" in done.stdout) == (0, True)


def test_leaders_with_the_same_score_are_planned_once(tmp_path: Path) -> None:
    twin = [row | {"model": "twin"} for row in lake() if row["model"] == "b"]
    needs = sl.plan(scored(tmp_path, lake() + twin, compare={"min_share": 0.5}), lift=0.05)
    assert sorted(need.about for need in needs) == ["b vs a, a lift of 0.0500", "b vs twin, a lift of 0.0500"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_work_list_has_the_attempts_that_are_missing(out: Path, tmp_path: Path, cli: Cli, suffix: str) -> None:
    path = tmp_path / f"work.{suffix}"
    done = cli("plan", out, "--work-list", path, "--attempts", 6, "--json")
    assert json.loads(done.stdout)["status"] == "planned"
    read = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[suffix]
    work = read(path)
    assert work["attempts_missing"].sum() == 3 * 40 * 6 - len(lake()) * 4
    never = work.filter(pl.col("attempts_made") == 0)
    assert set(never["problem_id"]) == {f"p{i}" for i in range(30, 40)}
    assert set(never["model"]) == {"c"}


@pytest.mark.parametrize("question", ["what?", "a vs nobody", "a vs b vs c", "half-width 0", "half-width ..."])
def test_questions_that_cannot_be_answered(out: Path, question: str) -> None:
    with pytest.raises(UsageError):
        sl.plan(out, question)


def test_no_answer_is_an_error_with_its_reason(out: Path, tmp_path: Path, cli: Cli) -> None:
    once = scored(tmp_path, [row | {"n": 1, "c": row["c"] // 4} for row in lake()], compare={"min_share": 0.5})
    for question in ("a vs b", "half-width 0.02"):
        with pytest.raises(DataError, match="no two problems have two attempts of each model"):
            sl.plan(once, question)
    for options in (("--lift", "0"), ("--cost-per-problem", "-1")):
        assert cli("plan", out, "--question", "a vs b", *options).returncode == 2
    done = cli("plan", out, "--work-list", tmp_path / "none" / "work.csv")
    assert (done.returncode, "No such file or directory" in done.stderr) == (4, True)
