"""What changed: variances by hand, intervals against simulation, and what is told of files and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import ask, expand, put, run
from scorelake.publish.change import RunScores, changed_settings, compare_files, compare_scores
from scorelake.storage.files import File

Pairs = Sequence[tuple[int, int]]
Z = 1.959963984540054


def made(models: dict[str, Pairs], metric: str = "pass@1") -> RunScores:
    """What a run says of models given as (n, c) per problem."""
    summary, cells = [], []
    for model, pairs in models.items():
        rates = [c / n for n, c in pairs]
        summary.append(
            {
                "benchmark": "b",
                "model": model,
                "protocol": "",
                "metric": metric,
                "value": float(np.mean(rates)),
                "se": float(np.std(rates, ddof=1) / sqrt(len(rates))),
                "problems": len(pairs),
                "attempts": sum(n for n, _ in pairs),
            }
        )
        cells += [{"benchmark": "b", "model": model, "protocol": "", "n": n, "c": c, "problems": 1} for n, c in pairs]
    return RunScores(pl.DataFrame(summary), pl.DataFrame(cells))


def compared(
    before: RunScores, now: RunScores, *, grown: bool = False, binary: bool = True
) -> list[dict[str, object]]:
    found = compare_scores(before, now, grown=grown, binary=binary, confidence=0.95, settings_changed=False)
    return found.rows(named=True)


def rerun(pairs: Pairs) -> Fraction:
    """V by its definition: unbiased per problem, and for single attempts at most v (1 - v)."""
    many = [Fraction(c * (n - c), n * n * (n - 1)) for n, c in pairs if n > 1]
    once = [c for n, c in pairs if n == 1]
    v = Fraction(sum(once), len(once)) if once else Fraction(0)
    return (sum(many, Fraction(0)) + len(once) * v * (1 - v)) / len(pairs) ** 2


BEFORE: Pairs = [(4, 1), (4, 3), (5, 5), (1, 1), (1, 0), (1, 1), (8, 2)]
NOW: Pairs = [(8, 3), (4, 1), (5, 4), (1, 1), (2, 0), (1, 0), (8, 2)]


@pytest.mark.parametrize("grown", [False, True])
def test_the_interval_by_hand(grown: bool) -> None:
    (row,) = compared(made({"m": BEFORE}), made({"m": NOW}), grown=grown)
    v0, v1 = rerun(BEFORE), rerun(NOW)
    least = sum(Fraction(2, (sum(n for n, _ in pairs) + 1) ** 2) for pairs in (BEFORE, NOW))
    spread = sqrt((max(v0 - v1, 0) if grown else v0 + v1) + least)
    difference = float(np.mean([c / n for n, c in NOW]) - np.mean([c / n for n, c in BEFORE]))
    assert row["change"] == pytest.approx(difference, abs=1e-15)
    assert row["lo"] == pytest.approx(difference - Z * spread, abs=1e-12)
    assert row["hi"] == pytest.approx(difference + Z * spread, abs=1e-12)
    assert (row["what"], row["attempts_before"], row["attempts"]) == ("moved", 24, 29)


def test_other_problems_are_no_part_of_it() -> None:
    """Where problems were added, the run before is not part of this one in the sense of V0 - V1."""
    (row,) = compared(made({"m": BEFORE}), made({"m": [*NOW, (4, 2)]}), grown=True)
    (plain,) = compared(made({"m": BEFORE}), made({"m": [*NOW, (4, 2)]}))
    assert (row["lo"], row["hi"]) == (plain["lo"], plain["hi"])


def test_other_metrics_have_the_wider_interval_of_their_se() -> None:
    before, now = made({"m": BEFORE}, "pass@4"), made({"m": NOW}, "pass@4")
    (row,) = compared(before, now, grown=True)
    least = sum(2 / (sum(n for n, _ in pairs) + 1) ** 2 for pairs in (BEFORE, NOW))
    spread = sqrt(before.summary["se"][0] ** 2 + now.summary["se"][0] ** 2 + least)
    assert row["hi"] - row["lo"] == pytest.approx(2 * Z * spread, rel=1e-12)  # type: ignore[operator]


def test_q_over_models() -> None:
    """Benjamini-Hochberg by its definition."""
    rng = np.random.default_rng(3)
    models = {f"m{i}": [(4, int(c)) for c in rng.integers(0, 5, 30)] for i in range(12)}
    later = {name: [(4, int(c)) for c in rng.integers(0, 5, 30)] for name in models}
    rows = compared(made(models), made(later))
    p = sorted(row["p"] for row in rows)  # type: ignore[type-var]
    want = [min(min(1.0, p[j] * len(p) / (j + 1)) for j in range(i, len(p))) for i in range(len(p))]  # type: ignore[operator]
    assert sorted(row["q"] for row in rows) == pytest.approx(want, rel=1e-12)  # type: ignore[type-var]


def test_new_gone_same_and_unknown() -> None:
    before, now = made({"a": BEFORE, "b": BEFORE, "c": BEFORE}), made({"b": BEFORE, "c": NOW, "d": NOW})
    now = RunScores(
        now.summary.with_columns(value=pl.when(pl.col("model") == "c").then(None).otherwise("value")), now.histogram
    )
    rows = {row["model"]: row for row in compared(before, now)}
    assert {name: row["what"] for name, row in rows.items()} == {"a": "gone", "b": "same", "c": "unknown", "d": "new"}
    assert (rows["b"]["p"], rows["b"]["outside"], rows["a"]["q"], rows["a"]["outside"]) == (1.0, False, None, False)


def test_unchanged_models_do_not_ring_the_alarm() -> None:
    """60 problems, one attempt: a plain comparison with max_fall = 0.05 fires on a sixth of unchanged models."""
    rng = np.random.default_rng(5)
    p = rng.beta(2, 2, 60)
    many = 2000
    nights = [{f"m{i:04d}": [(1, int(c)) for c in rng.binomial(1, p)] for i in range(many)} for _ in range(2)]
    rows = compared(made(nights[0]), made(nights[1]))
    falls = np.array([row["change"] for row in rows]) < -0.05
    fired = np.array([row["hi"] for row in rows]) < -0.05
    assert falls.mean() > 0.15
    assert fired.mean() < 0.005
    inside = [row["lo"] <= 0 <= row["hi"] for row in rows]  # type: ignore[operator]
    assert np.mean(inside) > 0.95
    assert sum(bool(row["outside"]) for row in rows) <= 1


@pytest.mark.parametrize(("first", "second", "grown"), [(4, 4, False), (4, 8, True), (8, 16, True)])
def test_coverage(first: int, second: int, grown: bool) -> None:
    """The interval of an unchanged model's change contains 0 as often as it says; nested attempts included."""
    rng = np.random.default_rng(7)
    p = rng.beta(0.5, 0.7, 50)
    many = 1500
    before = rng.binomial(first, p, (many, 50))
    now = before + rng.binomial(second - first, p, (many, 50)) if grown else rng.binomial(second, p, (many, 50))
    sides = [
        made({f"m{i:04d}": [(n, int(c)) for c in row] for i, row in enumerate(counts)})
        for n, counts in ((first, before), (second, now))
    ]
    rows = compared(*sides, grown=grown)
    inside = np.mean([row["lo"] <= 0 <= row["hi"] for row in rows])  # type: ignore[operator]
    assert 0.93 <= inside <= 0.98, inside


class Counted:
    def __init__(self, name: str, *files: File) -> None:
        self.name, self.files = name, files


def test_files() -> None:
    a, b, c = (File(name, 1, 1) for name in "abc")
    changed = File("b", 2, 2)
    one = compare_files([Counted("x", a), Counted("y", b)], [Counted("x", a), Counted("z", changed), Counted("w", c)])  # type: ignore[list-item]
    assert (one.new, one.changed, one.gone, one.grown) == (1, 1, 0, False)
    two = compare_files([Counted("x", a)], [Counted("xy", a, b)])  # type: ignore[list-item]
    assert (two.new, two.changed, two.gone, two.grown) == (1, 0, 0, True)
    assert compare_files([Counted("x", a)], [Counted("y", b)]).gone == 1  # type: ignore[list-item]
    assert not compare_files([None], [Counted("x", a)]).grown  # type: ignore[list-item]


def test_settings() -> None:
    def run_of(**settings: object) -> dict[str, str]:
        return {"settings": json.dumps(settings), "lake": "here", "version": "1"}

    before = run_of(metrics={"names": []}, run={"threads": 1})
    assert changed_settings({"run": before}, run_of(metrics={"names": []}, run={"threads": 2})) == []
    assert changed_settings({"run": before}, run_of(metrics={"names": ["a"]}) | {"lake": "there"}) == [
        "lake",
        "metrics.names",
    ]


@pytest.mark.slow
def test_the_order_is_told(lake: Path, out: Path) -> None:
    for model, c in (("a", 8), ("b", 5), ("c", 2)):
        put(lake, expand([("p", 10, c)], model=model), f"{model}.parquet")
    run(lake, out)
    put(lake, expand([("p", 10, 9)], model="b"), "b.parquet")
    report = run(lake, out)
    assert report.change is not None
    assert report.change.order == ("default / b from 2 to 1", "default / a from 1 to 2")
    lines = report.change.lines()
    assert lines[0].endswith("0 files new, 1 changed, 0 gone")
    assert "pass@1: 0 of 1 score changed significantly" in lines
    assert ask(out, "SELECT rank_before, rank FROM change WHERE (metric, model) = ('pass@1', 'b')") == [(2, 1)]
