"""The views against numpy: pairs, problem_stats and budget."""

from pathlib import Path

import numpy as np
import pytest

from counted import rows, scored


def test_problem_stats(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    c = rng.binomial(4, np.clip(np.linspace(0.1, 0.8, 6)[:, None] + rng.normal(0, 0.2, 20), 0, 1))
    c[:, 0], c[:, 1], c[:, 2] = 4, 0, [4, 3, 2, 1, 0, 0]  # saturated, never solved, upside down
    counts = [
        {"model": f"m{m}", "subject": "s", "problem_id": f"{p:02d}", "n": 4, "c": int(c[m, p])}
        for m in range(6)
        for p in range(20)
    ]
    got = rows(scored(tmp_path, counts), "FROM problem_stats ORDER BY problem_id")
    rate = c / 4
    assert [r["difficulty"] for r in got] == pytest.approx((1 - rate.mean(axis=0)).tolist(), abs=1e-12)
    assert [r["solved_by"] for r in got] == (c > 0).sum(axis=0).tolist()
    assert {(r["models"], r["attempts"]) for r in got} == {(6, 24)}
    for p, row in enumerate(got):
        rest = np.delete(rate, p, axis=1).mean(axis=1)
        if p < 2:
            assert row["discrimination"] is None
        else:
            assert row["discrimination"] == pytest.approx(np.corrcoef(rate[:, p], rest)[0, 1], abs=1e-12)
        assert row["suspicious"] is None, "six models tell nothing"
    assert [r["problem_id"] for r in got if r["saturated"]] == ["00"]
    assert [r["problem_id"] for r in got if r["never_solved"]] == ["01"]


def test_suspicious_is_more_than_chance(tmp_path: Path) -> None:
    """Twelve models: one problem upside down, one whose correlation is barely negative."""
    rate = np.arange(12)
    c = np.tile(rate[:, None], (1, 20))
    c[:, 0] = 11 - rate
    c[:, 1] = [6, 6, 7, 5, 6, 6, 5, 7, 6, 5, 6, 6]
    counts = [
        {"model": f"m{m:02d}", "problem_id": f"{p:02d}", "n": 11, "c": int(c[m, p])}
        for m in range(12)
        for p in range(20)
    ]
    got = rows(scored(tmp_path, counts), "FROM problem_stats ORDER BY problem_id")
    assert [r["problem_id"] for r in got if r["suspicious"]] == ["00"]
    assert -1.645 / 3 < got[1]["discrimination"] < 0
    assert {r["suspicious"] for r in got[1:]} == {False}


@pytest.mark.slow
def test_models_that_are_equal_elsewhere_tell_no_discrimination(tmp_path: Path) -> None:
    """0.1 + 0.2 is 0.3 + 0 but for its last digit, which is no difference between models."""
    elsewhere = {"a": (1, 2), "b": (3, 0), "c": (0, 3), "d": (2, 1)}
    counts = [
        {"model": model, "problem_id": f"p{p}", "n": 10, "c": c}
        for i, (model, others) in enumerate(elsewhere.items())
        for p, c in enumerate((5 + i % 3, *others))
    ]
    (row,) = rows(scored(tmp_path, counts), "FROM problem_stats WHERE problem_id = 'p0'")
    assert row["discrimination"] is None


@pytest.mark.slow
def test_budget_splits_the_variance_without_bias(tmp_path: Path) -> None:
    """Averaged over many lakes the parts are what the simulation put in."""
    rng = np.random.default_rng(9)
    lakes, problems, n = 300, 40, 5
    p = rng.beta(2, 2, (lakes, problems))
    c = rng.binomial(n, p)
    counts = [
        {"benchmark": f"b{i:03d}", "model": "a", "problem_id": j, "n": n, "c": int(c[i, j])}
        for i in range(lakes)
        for j in range(problems)
    ]
    settings = {"compare": {"resamples": 100}, "metrics": {"names": ["pass@1"]}}
    got = rows(scored(tmp_path, counts, **settings), "FROM budget ORDER BY benchmark")
    between, within = 1 / 20, 1 / 4 - 1 / 20  # of Beta(2, 2): variance, and E[p (1 - p)]
    assert np.mean([r["var_attempts"] for r in got]) == pytest.approx(within / n / problems, rel=0.03)
    assert np.mean([r["var_problems"] for r in got]) == pytest.approx(between / problems, rel=0.05)
    one = got[7]
    rate = c[7] / n
    noise = (c[7] * (n - c[7]) / (n * (n - 1))).mean()
    variance = rate.var(ddof=1) / problems
    assert one["se"] == pytest.approx(variance**0.5, rel=1e-12)
    assert one["var_attempts"] + one["var_problems"] == pytest.approx(variance, rel=1e-12)
    assert one["share_attempts"] == pytest.approx(noise / n / problems / variance, rel=1e-12)
    after = variance - noise / problems * (1 / n - 1 / (n + 1))
    assert one["se_one_more_attempt"] == pytest.approx(after**0.5, rel=1e-12)
    assert one["se_one_more_problem"] == pytest.approx((variance * problems / (problems + 1)) ** 0.5, rel=1e-12)
    assert one["se_endless_attempts"] == pytest.approx(one["var_problems"] ** 0.5, rel=1e-12)


def test_budget_of_single_attempts_is_unknown(tmp_path: Path) -> None:
    counts = [{"model": "a", "problem_id": p, "n": 1, "c": p % 2} for p in range(20)]
    (row,) = rows(scored(tmp_path, counts), "FROM budget")
    assert row["se"] > 0
    assert {row[name] for name in ("var_attempts", "share_attempts", "se_one_more_attempt", "var_problems")} == {None}


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
    assert len(both) == 2 * len(one) > 12
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
    columns = "benchmark subject protocol problem_id n_a c_a n_b c_b gap winner"
    assert list(got[0]) == columns.split()
    assert len(got) == row["problems"]
    assert np.mean([r["gap"] for r in got]) == pytest.approx(row["lift"], abs=1e-12)
    wins = [sum(r["winner"] == model for r in got) for model in ("m2", "m1")]
    assert wins == [row["wins_a"], row["wins_b"]]
