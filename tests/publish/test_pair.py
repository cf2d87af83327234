"""comparison, pair, head_to_head: the same evidence from either side, and problem by problem."""

from pathlib import Path

import numpy as np
import pytest

from counted import rows, scored


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(6)
    counts = [
        {"model": f"m{m}", "subject": "xy"[p % 2], "problem_id": p, "n": 4, "c": int(rng.binomial(4, 0.3 + m / 10))}
        for m in range(4)
        for p in range(50)
        if rng.random() < 0.95
    ]
    return scored(tmp_path_factory.mktemp("pair"), counts)


def test_pair_has_both_orders(out: Path) -> None:
    one = {(r["metric"], r["model_a"], r["model_b"]): r for r in rows(out, "FROM comparison")}
    both = {(r["metric"], r["model_a"], r["model_b"]): r for r in rows(out, "FROM pair")}
    assert len(both) == 2 * len(one) == 12
    words = {"improvement": "regression", "regression": "improvement"}
    for (metric, a, b), row in one.items():
        assert both[metric, a, b] == row
        turned = both[metric, b, a]
        assert (turned["lift"], turned["lo"], turned["hi"]) == (-row["lift"], -row["hi"], -row["lo"])
        assert (turned["wins_a"], turned["wins_b"], turned["ties"]) == (row["wins_b"], row["wins_a"], row["ties"])
        assert turned["claim"] == words.get(row["claim"], row["claim"])
        assert turned["p_one_sided"] + row["p_one_sided"] >= 1
        assert {turned[name] == row[name] for name in ("p_two_sided", "p_holm", "q", "problems")} == {True}


def test_head_to_head_adds_up_to_the_pair(out: Path) -> None:
    (row,) = rows(out, "FROM pair WHERE model_a = 'm2' AND model_b = 'm1' AND metric = 'pass@1'")
    got = rows(out, "FROM head_to_head('m2', 'm1')")
    assert list(got[0]) == [
        "benchmark",
        "subject",
        "protocol",
        "problem_id",
        "n_a",
        "c_a",
        "n_b",
        "c_b",
        "gap",
        "winner",
    ]
    assert len(got) == row["problems"]
    assert np.mean([r["gap"] for r in got]) == pytest.approx(row["lift"], abs=1e-12)
    wins = [sum(r["winner"] == model for r in got) for model in ("m2", "m1")]
    assert wins == [row["wins_a"], row["wins_b"]]


def test_every_column_of_a_view_is_commented(out: Path) -> None:
    views = ("leaderboard", "subject_leaderboard", "comparison", "subject_comparison", "pair")
    silent = rows(
        out, f"SELECT table_name, column_name FROM duckdb_columns() WHERE comment IS NULL AND table_name IN {views}"
    )
    assert silent == []
