"""Changes between two runs: paired tests against scipy and simulation, reasons, files and settings."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from conftest import ask, expand, put, run, snapshot
from scorelake import metrics
from scorelake.errors import DataError
from scorelake.publish.change import change_table, changed_settings
from scorelake.publish.paired_problems import PAIRED, RunCounts, pair_problems, paired_test
from scorelake.schemas import HISTORY
from scorelake.scoring.choose import Outcomes
from scorelake.settings import load

NAMES = ("pass@1", "pass@2", "pass^2", "bayes@N", "avg@N")


def counts(folder: Path, n: np.ndarray, c: np.ndarray, buckets: int = 1) -> RunCounts:
    """The counts of a run, models x problems, in bucket files; n = 0 where a run lacks the problem."""
    folder.mkdir()
    model, problem = (index.ravel() for index in np.indices(n.shape))
    frame = pl.DataFrame({"model": model, "problem_id": problem, "n": n.ravel(), "c": c.ravel()}).with_columns(
        pl.col("model", "problem_id").cast(pl.String),
        benchmark=pl.lit("b"),
        subject=pl.lit("all"),
        protocol=pl.lit(""),
    )
    bucket = problem * buckets // n.shape[1]
    for i in range(buckets):
        frame.filter(bucket == i).write_parquet(folder / f"part-{i:05d}.parquet")
    paths = sorted(folder.iterdir())
    return RunCounts(paths, buckets, load(**{"metrics.names": NAMES}), Outcomes(True, False, int(n.max())))


@pytest.mark.parametrize(("buckets", "is_other"), [((1, 1), False), ((2, 8), False), ((8, 1), False), ((3, 4), True)])
def test_changes_are_paired_by_problem(tmp_path: Path, buckets: tuple[int, int], is_other: bool) -> None:
    """`is_other`: the earlier run was cut into buckets by another rule."""
    rng = np.random.default_rng(3)
    n = rng.integers(0, 5, (2, 2, 48))
    c = rng.binomial(n, 0.6)
    sides = [counts(tmp_path / str(i), n[i], c[i], buckets[i]) for i in range(2)]
    if is_other:
        sides[0] = replace(sides[0], buckets=1)
    rows = pair_problems(*sides, 0.95).rows(named=True)
    assert len(rows) == 2 * len(NAMES)
    for row in rows:
        model, name = int(row["model"]), row["metric"]
        cells = zip(n[:, model].ravel(), c[:, model].ravel(), strict=True)
        values = [metrics.summarize(name, [of], [passed]).value if of else None for of, passed in cells]
        then, now = np.array(values, dtype=float).reshape(2, -1)
        has, had = ~np.isnan(now), ~np.isnan(then)
        paired = has & had & ((n[0, model] == n[1, model]) | (name != "bayes@N"))
        test = stats.ttest_rel(now[paired], then[paired])
        want = [np.mean((now - then)[paired]), *test.confidence_interval(0.95), test.pvalue]
        assert [row[key] for key in ("change", "lo", "hi", "p")] == pytest.approx(want, rel=1e-9, abs=1e-12)
        numbers = [row[f"problems_{key}"] for key in ("both", "added", "dropped")]
        assert numbers == [paired.sum(), (has & ~had).sum(), (had & ~has).sum()]


def test_equal_differences_have_an_interval() -> None:
    """Without spread Student's t would be certain after two problems."""
    _, lo, hi, p = paired_test(*np.array([[20.0, 2, 1], [-20.0, -2, -1], [20.0, 2, 1]]), (0, 1), 0.95)
    assert p[:2].tolist() == [2.0**-19, 0.5]
    assert -1 == lo[0] < hi[0] < -0.7
    assert -1 == lo[1] < 0 < hi[1]
    assert np.isnan([lo[2], hi[2], p[2]]).all(), "one problem shows nothing"
    _, lo, hi, p = paired_test(*np.array([[9.0], [0.0], [0.0]]), (0, 1), 0.95)
    assert (lo[0], hi[0], p[0]) == (0, 0, 1)


@pytest.mark.parametrize("shape", [(2, 2), (0.5, 0.7), (8, 1.2)])
@pytest.mark.parametrize("case", ["added", "replaced", "removed", "problems"])
def test_unchanged_models_rarely_change(tmp_path: Path, case: str, shape: tuple[float, float]) -> None:
    """At 95% between 2% and 8% of unchanged models change, whatever happened to their attempts."""
    rng = np.random.default_rng(7)
    rates = rng.beta(*shape, (1500, 60))
    n = np.full(rates.shape, 4)
    c, again = rng.binomial(n, rates), rng.binomial(n, rates)
    number = np.arange(60)
    runs = {
        "added": (n, c, 2 * n, c + again),
        "replaced": (n, c, n, again),
        "removed": (2 * n, c + again, n, c),
        "problems": (n * (number < 45), c * (number < 45), n * (number >= 15), again * (number >= 15)),
    }[case]
    sides = [counts(tmp_path / str(i), *runs[2 * i : 2 * i + 2]) for i in range(2)]
    rows = pair_problems(*sides, 0.95).filter(pl.col("metric") != "bayes@N")
    false = rows.group_by("metric").agg((pl.col("p") <= 0.05).mean())
    assert false["p"].is_between(0.02, 0.08).all(), false


def score(model: str, value: float | None = 0.5, protocol: str = "", **more: object) -> dict[str, object]:
    row = {"benchmark": "b", "model": model, "protocol": protocol, "metric": "pass@1", "value": value}
    return row | {"problems": 30, "attempts": 120} | more


def paired(model: str, **more: object) -> dict[str, object]:
    names = {"benchmark": "b", "model": model, "protocol": "", "metric": "pass@1"}
    sums = {"problems_both": 30, "unequal": 0, "mean_now": 0.5, "mean_before": 0.5}
    return dict.fromkeys(PAIRED) | names | sums | more


Rows = list[dict[str, object]]


def changes(before: Rows, now: Rows, *pairs: dict[str, object], looks: int = 1, **options: str) -> dict[str, dict]:  # type: ignore[type-arg]
    history = HISTORY.conform(pl.DataFrame([score("m")] * looks))
    tests = pl.DataFrame(pairs, schema=PAIRED)
    table = change_table(pl.DataFrame(before), pl.DataFrame(now), tests, history, 0.95, **options)  # type: ignore[arg-type]
    return {row["model"]: row for row in table.rows(named=True)}


def test_every_unknown_change_has_a_reason() -> None:
    before = [score(model) for model in "abcdef"]
    now = [score(model, None if model == "a" else 0.5) for model in "abcdeg"]
    pairs = [paired("b", problems_both=0), paired("c", problems_both=1), paired("d", problems_both=0, unequal=9)]
    rows = changes(before, now, *pairs)
    assert {model: (row["what"], row["reason"]) for model, row in rows.items()} == {
        "a": ("unknown", "no value in this run"),
        "b": ("unknown", "no problem in common"),
        "c": ("unknown", "only one problem in common"),
        "d": ("unknown", "n differs on every problem in common, and the metric depends on n"),
        "e": ("unknown", "a blend of group means has no value per problem to pair"),
        "f": ("gone", None),
        "g": ("new", None),
    }
    rows = changes([score("a")], [score("a")], unknown="the snapshot of run 1 is gone")
    assert (rows["a"]["what"], rows["a"]["reason"]) == ("unknown", "the snapshot of run 1 is gone")


def test_problems_of_one_run_are_reported_apart() -> None:
    test = paired("m", change=-0.1, lo=-0.15, hi=-0.05, p=0.001, mean_now=0.5, mean_before=0.6)
    row = changes([score("m", 0.55)], [score("m", 0.7)], test)["m"]
    parts = [row[name] for name in ("change", "from_added", "from_dropped")]
    assert parts == pytest.approx([-0.1, 0.2, 0.05])
    assert sum(parts) == pytest.approx(0.7 - 0.55)  # type: ignore[arg-type]


def test_q_over_models() -> None:
    p = np.random.default_rng(3).uniform(0, 0.2, 12)
    tests = [paired(f"m{i:02d}", p=value, change=0.1) for i, value in enumerate(p)]
    scores = [score(f"m{i:02d}") for i in range(12)]
    rows = changes(scores, scores, *tests)
    assert [row["q"] for row in rows.values()] == pytest.approx(stats.false_discovery_control(p))


def test_a_year_of_looks_shares_the_level() -> None:
    """The shares of the level sum to 1, so that any number of looks alarms falsely at most 5% of the time."""
    for look in (1, 2, 200, 365):
        share = 0.05 * 365 * (1 / (364 + look) - 1 / (365 + look))
        alarms = [
            changes([score("m")], [score("m")], paired("m", p=p, change=0.1), looks=look)["m"]["alarm"]
            for p in (share * 0.999, share * 1.001)
        ]
        assert alarms == [True, False]


def test_settings() -> None:
    def run_of(**settings: object) -> dict[str, str]:
        return {"settings": json.dumps(settings), "lake": "here", "version": "1"}

    before = run_of(metrics={"names": []}, run={"threads": 1})
    assert changed_settings({"run": before}, run_of(metrics={"names": []}, run={"threads": 2})) == []
    assert changed_settings({"run": before}, run_of(metrics={"names": ["a"]}) | {"lake": "there"}) == [
        "lake",
        "metrics.names",
    ]
    newer = run_of(metrics={"names": []}, policy={"sampling": "all", "ungraded": "fail"})
    assert changed_settings({"run": before}, newer) == ["policy.ungraded"], "a key with its default changes nothing"


@pytest.mark.slow
def test_the_order_is_logged(lake: Path, out: Path) -> None:
    for model, c in (("a", 8), ("b", 5), ("c", 2)):
        put(lake, expand([("p", 10, c), ("q", 10, c)], model=model), f"{model}.parquet")
    run(lake, out)
    put(lake, expand([("p", 10, 9), ("q", 10, 8)], model="b"), "b.parquet")
    report = run(lake, out)
    assert report.change is not None
    assert report.change.order == ("default / b from 2 to 1", "default / a from 1 to 2")
    lines = report.change.lines()
    assert lines[0].endswith("0 files new, 1 changed, 0 gone")
    assert "pass@1: 0 of 1 score changed significantly" in lines
    assert ask(out, "SELECT rank_before, rank FROM change WHERE (metric, model) = ('pass@1', 'b')") == [(2, 1)]


def test_without_the_previous_snapshot_changes_are_unknown(lake: Path, out: Path) -> None:
    put(lake, expand([("p", 4, 2), ("q", 4, 1)], model="m"))
    first = run(lake, out, metrics=["pass@1"]).run["run_id"]
    shutil.rmtree(snapshot(out))
    put(lake, expand([("p", 4, 0), ("q", 4, 1)], model="m"))
    report = run(lake, out, metrics=["pass@1"])
    reason = f"the snapshot of run {first} is gone"
    assert f"changes since {first} are unknown: {reason}" in report.warnings
    assert ask(out, "SELECT what, reason, value_before, value, change FROM change") == [
        ("unknown", reason, 0.375, 0.125, None)
    ]


def test_other_protocol_columns_are_no_fall(lake: Path, out: Path) -> None:
    config = '[gates]\nmax_fall = 0.1\n[metrics]\nnames = ["pass@1"]\n'
    put(lake, expand([("p", 4, 2), ("q", 4, 1)], model="m", grader="a"))
    put(lake, expand([("p", 4, 2), ("q", 4, 1)], model="n", grader="a"), "n.parquet")
    run(lake, out, config)
    config += '[protocol]\ncolumns = ["grader"]\n'
    assert run(lake, out, config).status == "published"
    assert ask(out, "SELECT protocol, what, reason FROM change WHERE model = 'm' ORDER BY 1") == [
        ("", "unknown", "the protocol columns changed"),
        ('{"grader":"a"}', "new", None),
    ]
    (lake / "n.parquet").unlink()
    with pytest.raises(DataError, match=r'n / {"grader":"a"} fell from 0.3750 to nothing'):
        run(lake, out, config)
