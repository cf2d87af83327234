"""Adjusted scores on uneven boards, bounds of ungraded attempts, and forecasts of pass@k."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import attempts, run
from counted import Row, rows, scored
from scorelake.metrics.forecast import forecast
from scorelake.metrics.ragged import rasch


def uneven(seed: int = 0) -> list[Row]:
    """Five models of rising skill on 60 problems of rising difficulty; `picky` tried the 25 easiest, `rare` three."""
    rng = np.random.default_rng(seed)
    tried = {"a": 60, "picky": 25, "b": 60, "c": 60, "rare": 3}
    return [
        {
            "model": m,
            "problem_id": f"p{i:02d}",
            "n": 4,
            "c": int(rng.binomial(4, 1 / (1 + np.exp((i - 30) / 12 - skill)))),
        }
        for skill, (m, many) in enumerate(tried.items(), start=-1)
        for i in range(many)
    ]


def test_a_model_that_tried_the_easy_problems_gets_an_adjusted_score_of_its_own(tmp_path: Path) -> None:
    table = {row["model"]: row for row in rows(scored(tmp_path, uneven()), "FROM adjusted")}
    cells, models = uneven(), sorted(table)
    number = [models.index(row["model"]) for row in cells]
    problem = [int(row["problem_id"][1:]) for row in cells]
    fit = rasch(number, problem, [row["n"] for row in cells], [row["c"] for row in cells])
    for i, name in enumerate(models):
        if name != "rare":
            assert table[name]["value_adjusted"] == pytest.approx(fit.value_all[i], abs=1e-9)
            assert table[name]["lo_adjusted"] < table[name]["value_adjusted"] < table[name]["hi_adjusted"]
    assert table["picky"]["value"] > table["b"]["value"], "on its own problems it looks better than b"
    assert table["picky"]["value_adjusted"] < table["b"]["value_adjusted"], "on the same problems it is not"
    assert table["picky"]["share_tried"] == pytest.approx(25 / 60)
    assert table["rare"]["reason"] == "3 problems in common with other models, 20 needed"
    assert table["rare"]["value_adjusted"] is None
    assert sorted(row["adjusted_rank"] for row in table.values() if row["adjusted_rank"]) == [1, 2, 3, 4]


def test_even_boards_have_no_adjusted_scores(tmp_path: Path) -> None:
    out = scored(tmp_path, [row for row in uneven() if row["model"] in "abc"])
    assert rows(out, "FROM adjusted") == []


def test_ungraded_attempts_bound_the_rate(tmp_path: Path) -> None:
    """60 of 90 graded attempts of 100 passed: section 14 of the formulas gives .522987 to .768252."""
    passed = [True] * 60 + [False] * 30 + [None] * 10
    full = attempts(model="m", problem_id=[f"p{i}" for i in range(100)], passed=passed)
    part = attempts(model="few", problem_id=["p0", "p1"], passed=[True, False])
    run(full.vstack(part), tmp_path / "out")
    (row,) = rows(tmp_path / "out", "SELECT bound_lo, bound_hi FROM adjusted WHERE model = 'm'")
    assert list(row.values()) == pytest.approx([0.522987, 0.768252], abs=1e-6)


def test_forecasts_of_the_metrics_that_were_named(tmp_path: Path) -> None:
    counts = [
        {"problem_id": f"p{i}", "n": 8, "c": c} for i, c in enumerate([0] * 8 + [1] * 4 + [2] * 3 + [4] * 2 + [8] * 3)
    ]
    out = scored(
        tmp_path, [{"model": "m", **row} for row in counts], metrics={"names": ("pass@1", "pass@16", "pass@64")}
    )
    (row,) = rows(out, "FROM forecast")
    expected = forecast([8] * 20, [row["c"] for row in counts], 16)
    assert (row["metric"], row["problems"], row["attempts_per_problem"]) == ("pass@16", 20, 8)
    assert (row["value"], row["lo"], row["hi"]) == pytest.approx(expected)
    assert row["value"] == pytest.approx(0.631493, abs=1e-4)
    values = rows(out, "SELECT value FROM model_summary WHERE metric = 'pass@16'")
    assert values == [{"value": None}], "a forecast is never part of model_summary"


def test_adjusted_scores_are_the_same_bits_whatever_the_order_of_rows(tmp_path: Path) -> None:
    """The fit adds in one order; the bits differed from run to run while problems came as a hash table had them."""
    tables = [
        rows(scored(tmp_path / str(seed), np.random.default_rng(seed).permuted(uneven()).tolist()), "FROM adjusted")
        for seed in range(3)
    ]
    assert tables[0] == tables[1] == tables[2]
