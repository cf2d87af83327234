"""Series over training steps: points are models of their own, boards show the last one, tables show the curve."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from conftest import put, run
from counted import rows
from scorelake.errors import UsageError
from scorelake.settings import load

STEPS, PROBLEMS, ATTEMPTS = (0, 10, 30, 40), 30, 8
CONFIG = '[columns]\nstep = "global_step"\n'


def checkpoints(seed: int = 0) -> pl.DataFrame:
    """A run that learns half of its problems and forgets one of them at the end, and a plain model."""
    rng = np.random.default_rng(seed)
    out = []
    for i, step in enumerate(STEPS):
        for problem in range(PROBLEMS):
            rate = 0.3 + 0.2 * i * (problem < PROBLEMS // 2)
            rate = 1.0 if problem == 0 and step < 40 else 0.0 if problem == 0 else rate
            out += [("run", step, f"p{problem}", k, bool(rng.random() < rate)) for k in range(ATTEMPTS)]
    out += [("base", 0, f"p{problem}", k, k < 2) for problem in range(PROBLEMS) for k in range(ATTEMPTS)]
    return pl.DataFrame(out, schema=["model", "global_step", "problem_id", "attempt", "passed"], orient="row")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("series")
    put(home / "lake", checkpoints())
    run(home / "lake", home / "out", CONFIG)
    return home / "out"


def scores() -> np.ndarray:
    """Problem scores of the run, steps x problems."""
    frame = checkpoints().filter(pl.col("model") == "run")
    means = frame.group_by("global_step", "problem_id", maintain_order=True).agg(pl.col("passed").mean())
    return means["passed"].to_numpy().reshape(len(STEPS), PROBLEMS)


def test_the_leaderboard_has_the_last_point_of_a_run_and_no_table_has_pairs_of_points(out: Path) -> None:
    shown = rows(out, "SELECT DISTINCT model FROM leaderboard ORDER BY ALL")
    assert [row["model"] for row in shown] == ["base@0", "run@40"]
    pairs = rows(out, "SELECT DISTINCT model_a, model_b FROM comparison")
    assert pairs == [{"model_a": "base@0", "model_b": "run@40"}]
    summary = rows(out, "SELECT DISTINCT model FROM model_summary ORDER BY ALL")
    assert len(summary) == 5, "every point can be queried and compared on demand"


def test_values_bands_and_ranks_of_a_series(out: Path) -> None:
    series = rows(out, "FROM series WHERE metric = 'pass@1' ORDER BY step")
    assert [(row["model"], row["step"]) for row in series] == [("run", step) for step in STEPS]
    means = scores().mean(axis=1)
    assert [row["value"] for row in series] == pytest.approx(means, abs=1e-12)
    assert [row["rank_in_series"] for row in series] == stats.rankdata(-means).astype(int).tolist()
    assert all(row["band_lo"] <= row["lo"] <= row["value"] <= row["hi"] <= row["band_hi"] for row in series)
    assert all(row["smoothed"] is not None for row in series)


def test_changes_are_paired_by_problem(out: Path) -> None:
    changes = rows(out, "FROM series_change WHERE metric = 'pass@1' ORDER BY kind DESC, step_from")
    assert [(c["step_from"], c["step_to"]) for c in changes] == [(0, 10), (10, 30), (30, 40), (0, 40)]
    by_step = dict(zip(STEPS, scores(), strict=True))
    for change in changes:
        test = stats.ttest_rel(by_step[change["step_to"]], by_step[change["step_from"]])
        interval = test.confidence_interval()
        assert (change["p"], change["lo"], change["hi"]) == pytest.approx((test.pvalue, *interval), rel=1e-9)


def test_learned_and_forgotten_problems_are_those_of_fishers_test(out: Path) -> None:
    listed = rows(out, "FROM learned WHERE step_from = 0 AND step_to = 40 ORDER BY problem_id")
    counts = (scores() * ATTEMPTS).round().astype(int)
    tables = [[[a, ATTEMPTS - a], [b, ATTEMPTS - b]] for a, b in zip(counts[0], counts[-1], strict=True)]
    p = np.array([stats.fisher_exact(table).pvalue for table in tables])
    q = stats.false_discovery_control(p)
    assert [row["problem_id"] for row in listed] == sorted(f"p{i}" for i in np.flatnonzero(q <= 0.05))
    assert [row["p"] for row in listed] == pytest.approx([p[int(row["problem_id"][1:])] for row in listed])
    directions = {row["problem_id"]: row["direction"] for row in listed}
    assert directions.pop("p0") == "forgotten"
    assert set(directions.values()) <= {"learned"}


def test_the_best_step_is_corrected_for_having_been_picked(out: Path) -> None:
    (best,) = rows(out, "FROM best_step WHERE metric = 'pass@1'")
    assert best["step"] == STEPS[int(scores().mean(axis=1).argmax())]
    assert best["value_corrected"] < best["value"] == pytest.approx(scores().mean(axis=1).max())
    assert best["first_contender"] <= best["step"] <= best["last_contender"] <= best["last_step"] == 40


@pytest.mark.parametrize("kind", ["pattern", "date"])
def test_steps_in_names_and_dates(tmp_path: Path, kind: str) -> None:
    frame, config = checkpoints(), CONFIG
    if kind == "pattern":
        config = '[series]\npattern = "(?P<model>.+)-step(?P<step>[0-9]+)"\n'
        frame = frame.with_columns(pl.format("{}-step{}", "model", "global_step").alias("model")).drop("global_step")
    else:
        days = {step: date(2026, 1, 31).replace(month=1 + 2 * i) for i, step in enumerate(STEPS)}
        frame = frame.with_columns(global_step=pl.col("global_step").replace_strict(days))
    run(frame, tmp_path / "out", config)
    found = rows(tmp_path / "out", "SELECT step, model FROM series WHERE metric = 'pass@1' ORDER BY step")
    steps = STEPS if kind == "pattern" else (20260131, 20260331, 20260531, 20260731)
    assert found == [{"step": step, "model": "run"} for step in steps]


def test_patterns_without_the_groups_are_refused() -> None:
    with pytest.raises(UsageError, match=r"series.pattern: must have the groups"):
        load(**{"series.pattern": "(.+)-([0-9]+)"})


def test_an_incomplete_step_does_not_take_the_problems_from_all_others(tmp_path: Path) -> None:
    """It has a value, but no band, and is neither the best step nor compared with its neighbours."""
    is_left_out = (pl.col("global_step") == 30) & (pl.col("problem_id") > "p20")
    for name, lake in (
        ("some", checkpoints().filter(~is_left_out)),
        ("without", checkpoints().filter(pl.col("global_step") != 30)),
    ):
        put(tmp_path / name, lake)
        run(tmp_path / name, tmp_path / f"{name}-out", CONFIG)
    some, without = tmp_path / "some-out", tmp_path / "without-out"
    for table in ("best_step", "series_change", "crossover"):
        assert rows(some, f"FROM {table}") == rows(without, f"FROM {table}")
    points = rows(some, "FROM series WHERE metric = 'pass@1' ORDER BY step")
    assert [point["step"] for point in points if point["band_lo"] is None] == [30]
    assert [each for each in points if each["step"] != 30] == rows(
        without, "FROM series WHERE metric = 'pass@1' ORDER BY step"
    )
