"""Who is ranked, between which ranks, and why not: in the leaderboard views."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import ask, attempts, expand, put, run
from counted import Row, rows, scored
from scorelake.read.board import facts, opened
from scorelake.read.sentences import verdict

_PLACE = "SELECT model, rank, rank_lo, rank_hi, could_be_best, p_best, reason FROM leaderboard"


def _model(name: str, c: list[int], n: int = 1, first: int = 0, **also: object) -> list[Row]:
    return [{"model": name, "problem_id": first + i, "n": n, "c": x, **also} for i, x in enumerate(c)]


def _boards() -> dict[str, list[Row]]:
    rng = np.random.default_rng(1)
    easy = [1] * 30 + rng.binomial(1, 0.3, 70).tolist()
    hard = [1] * 25 + rng.binomial(1, 0.3, 75).tolist()
    ties = [row for name, c in (("a", [2, 0]), ("b", [2, 0]), ("c", [0, 0])) for row in _model(name, c * 20, n=2)]
    short = [*_model("a", [4] * 30, n=4), *_model("b", [2] * 20, n=2), *_model("b", [2] * 10, n=4, first=20)]
    night = (("large", [6, 7], 8), ("small", [4, 6], 16), ("middle", [3, 2], 12))
    return {
        "ties": [{**row, "subject": "xy"[row["problem_id"] % 2]} for row in ties],
        "easiest": [*_model("whole", easy), *_model("other", hard), *_model("picker", [1] * 30)],
        "night": [row for name, c, n in night for row in _model(name, c * 20, n=n)],
        "far": [*_model("one", [1] * 40), *_model("four", [0, 1] * 20, n=4), *_model("five", [0] * 40, n=5)],
        "few": [*_model("a", [1] * 19), *_model("b", [0] * 19)],
        "alone": _model("a", [1]),
        # b wins every problem that the two share and differ on, but a left out those that nobody solves
        "widened": [*_model("a", [0] * 8 + [1] * 172), *_model("b", [1] * 180 + [0] * 20)],
        "short": short,
    }


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every board is a benchmark."""
    counts = [{"subject": "x", **row, "benchmark": name} for name, board in _boards().items() for row in board]
    named = {"names": ["pass@1", "pass@2", "pass@4"]}
    return scored(tmp_path_factory.mktemp("boards"), counts, metrics=named, compare={"metrics": ["pass@1", "pass@4"]})


def _places(out: Path, benchmark: str = "default") -> dict[str, tuple[object, ...]]:
    where = f"WHERE metric = 'pass@1' AND benchmark = '{benchmark}'"
    return {row.pop("model"): tuple(row.values()) for row in rows(out, f"{_PLACE} {where}")}


def test_ties_are_shown_as_ties(out: Path) -> None:
    assert _places(out, "ties") == {
        "a": (1, 1, 2, True, 0.5, None),
        "b": (1, 1, 2, True, 0.5, None),
        "c": (3, 3, 3, False, 0.0, None),
    }


def test_sums_that_differ_in_their_last_digits_are_ties(tmp_path: Path) -> None:
    """The mean of 0.1, 0.1 and 0.1 is 0.10000000000000002, that of 0.3, 0 and 0 is 0.09999999999999999."""
    problem = [f"p{i // 3}" for i in range(60)]
    frames = [
        attempts(model=model, problem_id=problem, score=scores * 20)
        for model, scores in (("a", [0.1, 0.1, 0.1]), ("b", [0.3, 0.0, 0.0]))
    ]
    put(tmp_path / "lake", pl.concat(frames))
    run(tmp_path / "lake", tmp_path / "out", metrics=("avg@N",))
    assert len(ask(tmp_path / "out", "SELECT DISTINCT value FROM leaderboard")) == 2
    for table in ("leaderboard", "subject_leaderboard", "overall"):
        assert ask(tmp_path / "out", f"SELECT rank FROM {table}") == [(1,), (1,)]


def test_a_metric_that_is_not_compared_has_a_rank_but_no_range(out: Path) -> None:
    where = "benchmark = 'ties' AND metric = 'pass@2' AND subject = 'x' ORDER BY model"
    got = rows(out, f"SELECT model, rank, rank_lo, could_be_best FROM subject_leaderboard WHERE {where}")
    assert [tuple(row.values()) for row in got] == [("a", 1, None, None), ("b", 1, None, None), ("c", 3, None, None)]


def test_subjects_have_ranks_of_their_own(out: Path) -> None:
    sql = "SELECT subject, model, rank, rank_lo, rank_hi, p_best FROM subject_leaderboard WHERE metric = 'pass@1'"
    sql += " AND benchmark = 'ties'"
    found = {(row["subject"], row["model"]): tuple(row.values())[2:] for row in rows(out, sql)}
    assert found["x", "a"] == (1, 1, 2, 0.5)
    assert found["x", "c"] == (3, 3, 3, 0)
    for model in "abc":  # nobody solves any of y
        assert found["y", model] == (1, 1, 3, pytest.approx(1 / 3))


def test_a_model_that_tried_the_easiest_problems_does_not_lead(out: Path) -> None:
    """Thirty of a hundred, or only what it solved: it stands below, with the reason."""
    found = _places(out, "easiest")
    assert found["picker"] == (None, None, None, None, None, "attempted 30 of 100 problems, 90 needed to be ranked")
    assert {found["whole"][0], found["other"][0]} == {1, 2}
    assert found["whole"][4] + found["other"][4] == pytest.approx(1)  # type: ignore[operator]


@pytest.mark.slow
def test_a_smaller_share_can_be_asked_for(tmp_path: Path) -> None:
    counts = [
        {**row, "benchmark": f"{many}"}
        for many in (100, 101)
        for row in (*_model("whole", ([1, 0] * 51)[:many]), *_model("most", [1, 0] * 30))
    ]
    out = scored(tmp_path, counts, compare={"min_share": 0.6})
    assert [_places(out, "100")[name][0] for name in ("whole", "most")] == [1, 1]
    assert _places(out, "101")["most"][-1] == "attempted 60 of 101 problems, 61 needed to be ranked"


def test_models_are_ranked_whatever_their_n_is(out: Path) -> None:
    """A missed night does not hide the leader."""
    found = _places(out, "night")
    assert [found[name][0] for name in ("large", "small", "middle")] == [1, 2, 3]
    found = _places(out, "far")
    assert [found[name][:3] for name in ("one", "four", "five")] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_ranges_claims_and_the_headline_come_from_one_rule(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Of two ranked models one is claimed better, if and only if their ranges count it; the first line names the
    highest score, or says who is higher and why that model is not ranked."""
    rng = np.random.default_rng(seed)
    counts = []
    for i in range(int(rng.integers(2, 9))):
        n, share = int(rng.choice([1, 2, 4, 16])), rng.choice([1, 1, 1, 0.6])
        p = np.clip(rng.beta(2, 2, 60) + rng.normal(0, 0.15), 0, 1)
        c = rng.binomial(n, p).tolist()[: int(60 * share)]
        counts += _model(f"m{i}", c, n=n)
    out = scored(tmp_path_factory.mktemp("board"), counts)
    board = {row["model"]: row for row in rows(out, "FROM leaderboard WHERE metric = 'pass@1'")}
    ranked = [name for name, row in board.items() if row["rank_lo"] is not None]
    pairs = [
        row
        for row in rows(out, "FROM pair WHERE metric = 'pass@1'")
        if {row["model_a"], row["model_b"]} <= set(ranked)
    ]
    for name in ranked:
        worse = sum(pair["claim"] == "improvement" for pair in pairs if pair["model_a"] == name)
        better = sum(pair["claim"] == "improvement" for pair in pairs if pair["model_b"] == name)
        row = board[name]
        assert row["rank_lo"] == min(1 + worse, row["rank"])
        assert row["rank_hi"] == max(len(ranked) - better, row["rank"])
    with opened(out) as read:
        published = facts(read)
        sentence = verdict(published, published.boards[0], "pass@1")
    highest = max(row["value"] for row in board.values())
    assert sentence.split()[0].rstrip(",") in {name for name, row in board.items() if row["value"] == highest}
    assert ("is not ranked: " in sentence) == all(
        row["rank"] is None for row in board.values() if row["value"] == highest
    )


@pytest.mark.slow
def test_ungraded_problems_are_not_called_unattempted(tmp_path: Path) -> None:
    graded = pl.concat([expand([(f"p{i}", 2, 1) for i in range(41)], model=model) for model in "ab"])
    few = (pl.col("model") == "b") & pl.col("problem_id").is_in([f"p{i}" for i in range(11)])
    few |= pl.col("problem_id") == "p40"  # of no model: it is not among the 40
    put(tmp_path / "lake", graded.with_columns(passed=pl.when(~few).then("passed")))
    run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"])
    ((reason,),) = ask(tmp_path / "out", "SELECT reason FROM leaderboard WHERE model = 'b'")
    assert reason == "has graded attempts on 29 of 40 problems and only ungraded ones on 12, 36 needed to be ranked"


def test_no_value_no_rank(out: Path) -> None:
    """The value, the rank and the range are of the same models."""
    where = "WHERE benchmark = 'short' AND metric = 'pass@4' ORDER BY model"
    got = rows(out, f"SELECT model, rank, rank_lo, rank_hi, value, reason FROM leaderboard {where}")
    assert tuple(got[0].values()) == ("a", 1, 1, 1, 1.0, None)
    reason = "no value: 10 of 30 problems have enough attempts, 90% needed"
    assert tuple(got[1].values()) == ("b", None, None, None, None, reason)


@pytest.mark.slow
def test_a_model_without_any_verdict_is_told(tmp_path: Path) -> None:
    passed = pl.Series([i % 2 == 0 for i in range(40)] + [None] * 40)
    frame = attempts(model=["a"] * 40 + ["u"] * 40, problem_id=[*range(40), *range(40)], passed=passed)
    assert _places(scored(tmp_path, frame))["u"][-1] == "no graded attempt"


def test_too_few_problems_give_no_ranges(out: Path) -> None:
    found = _places(out, "few")
    assert found == {"a": (1, None, None, None, None, None), "b": (2, None, None, None, None, None)}
    assert _places(out, "alone") == {"a": (1, None, None, None, None, None)}


def test_a_range_is_widened_to_the_rank_by_value(out: Path) -> None:
    found = _places(out, "widened")
    assert (found["a"][:3], found["b"][:3]) == ((1, 1, 2), (2, 1, 2))


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.slow
def test_every_table_keeps_its_promises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """lo <= lift <= hi, and ranks within ranges of ranked models only, whatever the lake."""
    models, problems = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 30))
    counts = [
        {"model": f"m{m}", "subject": "xy"[p % 2], "problem_id": p, "n": n, "c": data.draw(st.integers(0, n))}
        for m in range(models)
        for p in range(problems)
        if (n := data.draw(st.sampled_from([0, 1, 1, 4])))
    ]
    if not counts:
        return
    asked = {"min_problems": 2, "resamples": 100, "min_share": data.draw(st.sampled_from([0, 0.5, 0.9]))}
    out = scored(tmp_path_factory.mktemp("any"), counts, compare=asked, metrics={"names": ["pass@1", "pass@4"]})
    for view in ("comparison", "subject_comparison", "pair"):
        bad = rows(out, f"FROM {view} WHERE NOT (lo <= lift AND lift <= hi) OR (lift IS NULL) != (q IS NULL)")
        assert bad == []
        assert rows(out, f"FROM {view} WHERE (claim LIKE 'not comparable%') != (lift IS NULL)") == []
    for view in ("leaderboard", "subject_leaderboard"):
        assert (
            rows(out, f"FROM {view} WHERE NOT (rank_lo <= rank AND rank <= rank_hi AND p_best BETWEEN 0 AND 1)") == []
        )
        assert rows(out, f"FROM {view} WHERE (reason IS NULL) != (rank IS NOT NULL)") == []
        assert rows(out, f"FROM {view} WHERE rank IS NOT NULL AND NOT (lo <= value AND value <= hi)") == []
