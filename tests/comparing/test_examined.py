"""Boards with more models than a table has room for pairs."""

from pathlib import Path

import numpy as np
import pytest

from counted import Row, rows, scored
from scorelake.comparing import examined
from scorelake.read.claim import PairRequest, compare_models
from scorelake.read.session import reading

MODELS = 30
ASKED = ("problems", "lift", "lo", "hi", "wins_a", "wins_b", "ties", "p_one_sided", "p_two_sided")


def _models(missing: float = 0.0) -> list[Row]:
    rng = np.random.default_rng(5)
    rates = np.linspace(0.2, 0.8, MODELS)
    return [
        {"model": f"m{i:02d}", "subject": f"s{p % 2}", "problem_id": f"p{p}", "n": 4, "c": int(rng.binomial(4, rate))}
        for i, rate in enumerate(rates)
        for p in range(80)
        if rng.random() >= missing
    ]


@pytest.mark.parametrize("missing", [0.0, 0.02])
def test_every_model_is_compared_with_the_leaders_and_its_neighbours(tmp_path: Path, missing: float) -> None:
    counts = _models(missing)
    whole = scored(tmp_path / "all", counts)
    some = scored(tmp_path / "some", counts, compare={"max_pairs": 6 * MODELS})
    sql = "FROM comparison ORDER BY model_a, model_b"
    every = {(row["model_a"], row["model_b"]): row for row in rows(whole, sql)}
    told = {(row["model_a"], row["model_b"]): row for row in rows(some, sql)}
    assert len(every) == MODELS * (MODELS - 1) // 2
    assert 0 < len(told) <= 6 * MODELS
    for pair, row in told.items():
        assert {name: row[name] for name in ASKED} == {name: every[pair][name] for name in ASKED}
    place = {
        row["model"]: i
        for i, row in enumerate(rows(some, "FROM leaderboard WHERE metric = 'pass@1' ORDER BY value DESC, model"))
    }
    best = sorted(place, key=lambda model: place[model])
    for model in best[3:]:  # the three leaders, and the next three
        others = {a if b == model else b for a, b in told if model in (a, b)}
        assert others.issuperset({*best[:3], *best[place[model] + 1 : place[model] + 4]} - {model})
    ranks = "SELECT model, rank, rank_lo, rank_hi, p_best FROM leaderboard WHERE metric = 'pass@1' ORDER BY model"
    if not missing:  # all are scored on the same problems: ranges hold every two against each other all the same
        assert rows(some, ranks) == rows(whole, ranks)
    else:
        assert all(row["rank_lo"] is None for row in rows(some, ranks))


def test_subjects_share_the_room_of_their_table(tmp_path: Path) -> None:
    out = scored(tmp_path, _models(), compare={"max_pairs": 6 * MODELS})
    told = rows(out, "SELECT subject, count(*) AS pairs FROM subject_comparison GROUP BY ALL ORDER BY ALL")
    assert [row["subject"] for row in told] == ["s0", "s1"]
    assert sum(row["pairs"] for row in told) <= 6 * MODELS


def test_any_other_pair_is_compared_when_asked_for(tmp_path: Path) -> None:
    out = scored(tmp_path, _models(), compare={"max_pairs": 6 * MODELS})
    pair = "model_a = 'm05' AND model_b = 'm20'"
    assert rows(out, f"FROM comparison WHERE {pair}") == []
    with reading(str(out)) as folder:
        (told,) = compare_models(folder, str(out), PairRequest("m05", "m20", "pass@1"))
    (row,) = rows(scored(tmp_path / "all", _models()), f"FROM comparison WHERE {pair}")
    assert {name: told.row[name] for name in ASKED} == {name: row[name] for name in ASKED}


def test_far_too_many_models_are_ranked_and_compared_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examined, "MOST_MODELS", MODELS - 1)
    out = scored(tmp_path, _models())
    assert rows(out, "FROM comparison") == rows(out, "FROM subject_comparison") == []
    ranks = rows(out, "SELECT rank, rank_lo, reason FROM leaderboard WHERE metric = 'pass@1'")
    assert sorted(row["rank"] for row in ranks)[0] == 1
    assert {(row["rank_lo"], row["reason"]) for row in ranks} == {(None, None)}
    with reading(str(out)) as folder:
        (told,) = compare_models(folder, str(out), PairRequest("m05", "m20", "pass@1"))
    assert told.row["lift"] > 0


def test_strangers_are_told_unless_there_are_too_many(tmp_path: Path) -> None:
    counts = [
        {"model": f"{kind}{i}", "problem_id": f"p{p}", "n": 1, "c": 1, "temperature": kind}
        for kind in ("hot", "cold")
        for i in range(3)
        for p in range(30)
    ]
    protocol = {"columns": ["temperature"]}
    told = rows(scored(tmp_path / "few", counts, protocol=protocol), "FROM comparison WHERE lift IS NULL")
    assert len(told) == 9
    assert all("protocol differs" in row["claim"] and row["model_a"] < row["model_b"] for row in told)
    out = scored(tmp_path / "many", counts, protocol=protocol, compare={"max_pairs": 8})
    assert rows(out, "FROM comparison WHERE lift IS NULL") == []
