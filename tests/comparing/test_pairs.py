"""The comparison and rank tables, from lake to database."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

from conftest import run
from counted import Row, rows, scored
from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.paired import ResamplePlan, compare_scores
from scorelake.metrics.significance import benjamini_hochberg, holm

COLUMNS = (
    *("benchmark", "metric", "model_a", "model_b", "protocol", "problems", "lift", "lo", "hi", "wins_a", "wins_b"),
    *("ties", "p_one_sided", "p_two_sided", "p_holm", "q", "claim", "resamples"),
)


def _model(name: str, c: list[int], n: int = 1, **also: object) -> list[Row]:
    return [{"model": name, "problem_id": f"p{i:03d}", "n": n, "c": x, **also} for i, x in enumerate(c)]


def _example() -> list[Row]:
    """27 ties, 8 wins of b, 5 of a."""
    return [*_model("a", [0] * 8 + [1] * 5 + [0] * 27), *_model("b", [1] * 8 + [0] * 5 + [0] * 27)]


def test_the_reference_example(tmp_path: Path) -> None:
    (row,) = rows(scored(tmp_path, _example()), "FROM comparison WHERE metric = 'pass@1'")
    assert tuple(row) == COLUMNS
    assert (row["model_a"], row["model_b"], row["problems"]) == ("a", "b", 40)
    assert (row["wins_a"], row["wins_b"], row["ties"]) == (5, 8, 27)
    assert row["lift"] == pytest.approx(0.075, abs=1e-15)
    assert (row["lo"], row["hi"]) == (pytest.approx(-0.10, abs=0.026), pytest.approx(0.25, abs=0.026))
    assert row["claim"] == "inconclusive"
    assert row["p_one_sided"] == pytest.approx(0.29052734375, rel=1e-14)
    assert row["p_two_sided"] == row["p_holm"] == row["q"] == pytest.approx(0.5810546875, rel=1e-14)


def test_claims_follow_the_interval(tmp_path: Path) -> None:
    counts = [*_model("a", [0] * 30 + [1] * 10), *_model("b", [1] * 30 + [1] * 10), *_model("c", [0] * 40)]
    found = {(r["model_a"], r["model_b"]): r for r in rows(scored(tmp_path, counts), "FROM comparison")}
    assert {pair: row["claim"] for pair, row in found.items()} == {
        ("a", "b"): "improvement",
        ("a", "c"): "regression",
        ("b", "c"): "regression",
    }
    adjusted = holm([row["p_two_sided"] for row in found.values()])
    assert [row["p_holm"] for row in found.values()] == pytest.approx(adjusted.tolist(), rel=1e-14)


@pytest.mark.slow
def test_requested_metrics_subjects_and_an_independent_recomputation(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    n, c = 8, rng.integers(0, 9, (3, 60))
    counts = [
        {"model": f"m{m}", "subject": f"s{p % 2}", "problem_id": p, "n": n, "c": int(c[m, p])}
        for m in range(3)
        for p in range(60)
    ]
    out = scored(tmp_path, counts, compare={"metrics": ["pass@4", "Pass@1"], "resamples": 500, "seed": 9})
    assert [r["metric"] for r in rows(out, "SELECT DISTINCT metric FROM comparison ORDER BY 1")] == [
        "pass@1",
        "pass@4",
    ]
    for name in ("pass@1", "pass@4"):
        values = metrics.finite(name, n, c)
        for subject, table in ((None, "comparison"), ("s1", "subject_comparison")):
            ids = [str(p) for p in range(60) if subject is None or p % 2 == 1]
            order = sorted(ids, key=lambda p: (int(p) % 2, p))  # by subject, then by name
            columns = values[:, [int(p) for p in order]]
            subjects = pl.Series([f"s{int(p) % 2}" for p in order])
            units = Units.of(problem_hashes(hash_text(subjects), hash_text(pl.Series(order))))
            lifts, _ = compare_scores(columns, units, ResamplePlan(500, 9))
            where = f"metric = '{name}'" + (f" AND subject = '{subject}'" if subject else "")
            got = rows(out, f"FROM {table} WHERE {where} ORDER BY model_a, model_b")
            assert [r["problems"] for r in got] == [columns.shape[1]] * 3
            for key in ("lift", "lo", "hi"):
                assert [r[key] for r in got] == pytest.approx(getattr(lifts, key).tolist(), abs=1e-12)


def test_pass_at_1_and_the_metrics_asked_for_by_default(tmp_path: Path) -> None:
    counts = [*_model("a", [1, 2] * 15, n=4), *_model("b", [3, 2] * 15, n=4)]
    out = scored(tmp_path, counts, metrics={"names": ["pass@2", "geom-ds@2"]})
    assert [r["metric"] for r in rows(out, "SELECT metric FROM comparison")] == ["pass@1", "pass@2"]


def test_a_blend_of_group_means_cannot_be_paired(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no score per problem"):
        scored(tmp_path, _example(), compare={"metrics": ["geom-ds@2"]})


@pytest.mark.slow
def test_too_few_problems_and_too_few_attempts(tmp_path: Path) -> None:
    few = [*_model("a", [0] * 5, benchmark="few"), *_model("b", [1] * 5, benchmark="few")]
    few += [*_model("a", [0, 1] * 20, benchmark="differ"), *_model("b", [1] * 10, benchmark="differ")]
    differ, row = rows(scored(tmp_path / "few", few), "FROM comparison WHERE metric = 'pass@1' ORDER BY benchmark")
    assert row["claim"] == "not comparable: too few problems (5 in common, 20 needed)"
    assert differ["claim"] == "not comparable: problem sets differ (10 of 40 and 10 problems in common, 20 needed)"
    numbers = ("lift", "lo", "hi", "wins_a", "wins_b", "ties", "p_one_sided", "p_two_sided", "p_holm", "q")
    assert {row[name] for name in numbers} == {differ[name] for name in numbers} == {None}
    ragged = [*_model("a", [2] * 30, n=4), *_model("b", [2] * 25, n=2), *_model("b", [2] * 30, n=4)[25:]]
    out = scored(tmp_path / "ragged", ragged, compare={"metrics": ["pass@1", "pass@4"]})
    one, four = rows(out, "FROM comparison ORDER BY metric")
    assert (one["claim"], one["problems"]) == ("improvement", 30)
    assert four["claim"].startswith("not comparable: n is below k = 4 (both models have enough attempts on 5 ")


@pytest.mark.parametrize(("n", "resamples"), [(4, 10_000), (8, None)])
def test_models_of_unequal_n_are_compared_but_not_where_the_metric_is_biased_by_n(
    tmp_path: Path, n: int, resamples: int | None
) -> None:
    """Beyond twice as many attempts by the intervals of both models, without resamples."""
    counts = [*_model("a", [0, 1] * 20, n=2), *_model("b", [n, n - n // 4] * 20, n=n)]
    out = scored(tmp_path, counts, compare={"metrics": ["pass@1", "bayes@N"]})
    bayes, first = rows(out, "FROM comparison ORDER BY metric")
    assert (first["claim"], first["lift"]) == ("improvement", pytest.approx(0.625))
    assert first["lo"] < first["lift"] < first["hi"]
    assert first["resamples"] == resamples
    assert bayes["claim"].endswith(f"(2 and {n} attempts per problem; bayes@N is biased by n: use avg@N instead)")


def test_unequal_n_is_noticed_problem_by_problem(tmp_path: Path) -> None:
    """Both models have 16 attempts per problem on average: one has nearly all of them on one problem."""
    ragged = [*_model("a", [0, 1] * 20, n=1)[:39], *_model("a", [300] * 40, n=601)[39:]]
    out = scored(tmp_path, [*ragged, *_model("b", [4] * 40, n=16)], compare={"metrics": ["pass@1", "bayes@N"]})
    bayes, first = rows(out, "FROM comparison ORDER BY metric")
    assert first["resamples"] is None
    assert bayes["claim"].startswith("not comparable: n differs")


def test_n_that_varies_by_chance_does_not_bias_bayes(tmp_path: Path) -> None:
    """Models with 4 to 8 attempts at random per problem; one of them had two more, which is no chance."""
    rng = np.random.default_rng(0)
    counts = [
        {"model": model, "problem_id": p, "n": (n := int(rng.integers(4, 9)) + more), "c": int(rng.binomial(n, 0.5))}
        for model, more in (("a", 0), ("b", 0), ("c", 2))
        for p in range(60)
    ]
    found = rows(scored(tmp_path, counts), "FROM comparison WHERE metric = 'bayes@N' ORDER BY model_a, model_b")
    assert [row["lift"] is None for row in found] == [False, True, True]


def test_protocols_are_never_pooled_and_the_gap_is_named(tmp_path: Path) -> None:
    cold, hot = {"temperature": 0.0, "grader": "x"}, {"temperature": 0.8, "grader": "x"}
    counts = [
        *_model("a", [0, 1] * 20, **cold),
        *_model("b", [1, 1] * 20, **cold),
        *_model("b", [0, 0] * 20, **hot),
        *_model("c", [1, 1] * 20, **hot),
    ]
    out = scored(tmp_path, counts, protocol={"columns": ["temperature", "grader"]})
    found = {(r["model_a"], r["model_b"]): r for r in rows(out, "FROM comparison")}
    assert {pair: row["claim"] for pair, row in found.items()} == {
        ("a", "b"): "improvement",
        ("b", "c"): "improvement",
        ("a", "c"): "not comparable: protocol differs (temperature 0 and 0.8)",
    }
    assert json.loads(found["a", "b"]["protocol"]) == cold
    assert found["a", "c"]["protocol"] is None


@pytest.mark.slow
def test_a_family_is_a_benchmark_a_protocol_and_a_metric(tmp_path: Path) -> None:
    """q and Holm count the pairs of one protocol, of all its subjects, and of no other."""
    rng = np.random.default_rng(12)
    counts = [
        {
            "model": f"m{m}",
            "subject": "xy"[p % 2],
            "problem_id": p,
            "temperature": t,
            "n": 2,
            "c": int(rng.integers(0, 3)),
        }
        for t, models in ((0.0, 3), (1.0, 4))
        for m in range(models)
        for p in range(50)
    ]
    out = scored(tmp_path, counts, protocol={"columns": ["temperature"]}, compare={"metrics": ["pass@1", "pass^2"]})
    for view, pairs in (("comparison", (3, 6)), ("subject_comparison", (6, 12))):
        families: dict[tuple[str, str], list[Row]] = {}
        for row in rows(out, f"FROM {view} WHERE lift IS NOT NULL"):
            families.setdefault((row["protocol"], row["metric"]), []).append(row)
        assert sorted(map(len, families.values())) == sorted([*pairs, *pairs])
        for family in families.values():
            raw = [row["p_two_sided"] for row in family]
            assert [row["q"] for row in family] == pytest.approx(benjamini_hochberg(raw).tolist(), rel=1e-14)
            assert [row["p_holm"] for row in family] == pytest.approx(holm(raw).tolist(), rel=1e-14)


def test_only_common_problems_count(tmp_path: Path) -> None:
    counts = [*_model("a", [1] * 30), *_model("b", [1] * 60)]
    (row,) = rows(scored(tmp_path, counts), "FROM comparison WHERE metric = 'pass@1'")
    assert (row["problems"], row["ties"], row["lift"]) == (30, 30, 0)
    assert -row["lo"] == row["hi"] == pytest.approx(0.0836, abs=1e-4)
    assert (row["p_one_sided"], row["p_two_sided"], row["claim"]) == (1, 1, "inconclusive")


def test_one_model_alone(tmp_path: Path) -> None:
    out = scored(tmp_path, _model("a", [0, 1] * 20))
    assert rows(out, "FROM comparison") == []
    (row,) = rows(out, "SELECT rank, rank_lo, rank_hi, p_best, reason FROM leaderboard WHERE metric = 'pass@1'")
    assert row == {"rank": 1, "rank_lo": 1, "rank_hi": 1, "p_best": 1, "reason": None}


def test_rewards_are_compared_by_their_mean(tmp_path: Path) -> None:
    problems, scores = [i // 4 for i in range(120)], [0.5, 2.5, 1.5, 3.5] * 30
    frame = pl.DataFrame({"model": ["a", "b"] * 60, "problem_id": problems, "score": scores})
    (row,) = rows(scored(tmp_path, frame), "FROM comparison WHERE metric = 'avg@N'")
    assert (row["metric"], row["lift"], row["wins_b"], row["claim"]) == ("avg@N", 2, 30, "improvement")


@pytest.mark.slow
def test_clusters_are_drawn_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    c = rng.integers(0, 2, (2, 24)).repeat(10, axis=1)
    counts = [
        {"model": "ab"[m], "problem_id": f"{p:03d}", "passage": p // 10, "n": 1, "c": int(c[m, p])}
        for m in range(2)
        for p in range(240)
    ]
    sql = "FROM comparison WHERE metric = 'pass@1'"
    (alone,) = rows(scored(tmp_path / "alone", counts), sql)
    (together,) = rows(scored(tmp_path / "together", counts, columns={"cluster": "passage"}), sql)
    assert alone["lift"] == together["lift"]
    widths = [row["hi"] - row["lo"] for row in (together, alone)]
    few, many = (t.ppf(0.975, m - 1) * (m / (m - 1)) ** 0.5 for m in (24, 240))
    assert widths[0] / widths[1] == pytest.approx(10**0.5 * few / many, rel=0.1)


@pytest.mark.slow
def test_large_scores_of_one_benchmark_do_not_blur_another(tmp_path: Path) -> None:
    """Differences count as ties relative to the largest score of their own board."""
    small = [
        {"model": name, "benchmark": "s", "problem_id": f"p{p}", "attempt": 0, "score": score}
        for name, score in (("a", 0.3), ("b", 0.3001))
        for p in range(40)
    ]
    large = [{**row, "benchmark": "t", "score": 1e15 * (i + 1)} for i, row in enumerate(small)]
    for name, lake in (
        ("alone", small),
        ("both", [*small, *large]),
        ("tiny", [{**r, "score": r["score"] * 1e-14} for r in small]),
    ):
        (tmp_path / name).mkdir()
        pl.DataFrame(lake).write_parquet(tmp_path / name / "x.parquet")
        run(tmp_path / name, tmp_path / f"out-{name}")
        (row,) = rows(tmp_path / f"out-{name}", "FROM comparison WHERE benchmark = 's' AND metric = 'avg@N'")
        assert (row["wins_b"], row["ties"], row["claim"]) == (40, 0, "improvement"), name
        assert row["lift"] == pytest.approx(0.0001 * (1e-14 if name == "tiny" else 1), rel=1e-9)
