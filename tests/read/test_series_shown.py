"""Series and costs in show, report, compare and gate: the numbers of their tables, and nothing without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import scorelake as sl
from counted import rows, scored
from looked_at import plain
from scorelake.cli import app
from scorelake.reporting import CommandOutput

STEPS = (0, 10, 20, 40)


def called(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code in (0, 3, 7), done.output
    return done.stdout


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns half of its problems until step 20, and at the end forgets one that it could solve."""
    counts = [
        {"model": "run", "step": step, "problem_id": i, "n": 8, "c": min(i % 3 + 4 * min(at, 2) * (i % 2), 8)}
        for at, step in enumerate(STEPS)
        for i in range(30)
    ]
    counts += [{"model": "run", "step": step, "problem_id": 30, "n": 8, "c": 8 * (step < 40)} for step in STEPS]
    return scored(tmp_path_factory.mktemp("series"), counts, columns={"step": "step"})


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    attempts = [
        {
            "model": name,
            "problem_id": i,
            "attempt": j,
            "passed": bool(rng.random() < rate),
            "cost_usd": price * rng.random(),
        }
        for name, rate, price in (("cheap", 0.3, 0.001), ("dear", 0.7, 0.01), ("wasteful", 0.2, 0.1))
        for i in range(40)
        for j in range(4)
    ]
    home = tmp_path_factory.mktemp("costs")
    return scored(home, pl.DataFrame(attempts), measures={"cost_usd": {"kind": "cost"}})


def test_a_series_is_shown_with_its_best_step(series: Path) -> None:
    told = called("show", series, "--series", "run")
    for row in rows(series, "FROM series ORDER BY metric, step"):
        ends = f"{100 * row['lo']:.1f} to {100 * row['hi']:.1f}"
        assert f"{row['step']} " in told
        assert ends in told
    (best,) = rows(series, "FROM best_step WHERE metric = 'pass@1'")
    sentence = f"Best at step {best['step']}: {best['value_corrected']:.1%}, corrected for having been picked"
    assert sentence in told
    assert sentence in called("report", series).replace("\\", "")
    (counts,) = rows(
        series,
        "SELECT count(*) FILTER (direction = 'learned') AS up, count(*) FILTER (direction = 'forgotten') AS down "
        "FROM learned WHERE step_from = 0 AND step_to = 40",
    )
    assert counts["up"] > 1
    assert counts["down"] == 1
    assert f"{counts['up']} problems learned and 1 forgotten" in told
    points = json.loads(called("show", series, "--series", "run", "--format", "json"))
    assert sorted({row["step"] for row in points}) == [*STEPS]
    assert "| 40 |" in called("show", series, "--series", "run", "--format", "markdown")


def test_a_point_is_gated_against_the_best_step_of_its_run(series: Path) -> None:
    (best,) = rows(series, "FROM best_step WHERE metric = 'pass@1'")
    assert f"is run@0 at most 0.02 worse than run@{best['step']} in pass@1?" in called(
        "gate", series, "best", "run@0"
    )
    done = CliRunner().invoke(app, ["gate", str(series), "best", "run@0", "--metric", "pass@2"])
    assert (done.exit_code, "the best step of the run of run@0 by pass@2 is not known" in done.output) == (2, True)


def test_costs_are_shown_and_compared(costs: Path) -> None:
    told = called("show", costs, "--measure", "cost_usd")
    for row in rows(costs, "FROM measure_summary"):
        assert f"{row['value']:.4g}   {row['lo']:.4g} to {row['hi']:.4g}" in told
        assert f"{row['per_pass']:.4g}   {row['per_pass_lo']:.4g} to {row['per_pass_hi']:.4g}" in told
    assert [line.split()[-2] for line in told.splitlines() if "%" in line] == ["yes", "yes", "no"]
    values = {row["model"]: row["value"] for row in rows(costs, "FROM measure_summary")}
    report = called("report", costs)
    assert "## Frontier of score and cost" in report
    assert f"cheap ({values['cheap']:.4g})" in report
    told = called("compare", costs, "cheap", "dear")
    assert f"cost_usd: {values['dear']:.4g} per attempt" in told
    assert f"against {values['cheap']:.4g} per attempt" in told


def test_nothing_of_it_appears_without_series_and_measures(tmp_path: Path) -> None:
    out = plain(tmp_path)
    told = called("report", out) + called("compare", out, "weak", "twin_2") + called("show", out)
    assert not [word for word in ("step", "cost", "learned", "series") if word in told]
    for option in ("--series", "--measure"):
        assert CliRunner().invoke(app, ["show", str(out), option, "x"]).exit_code == 2


def test_boards_have_series_and_costs(series: Path, costs: Path, tmp_path: Path) -> None:
    with sl.open(series) as board:
        assert board.series("run")["step"].unique().sort().to_list() == [*STEPS]
        assert board.plot.series("run").svg.count('class="band"') == 1
        with pytest.raises(sl.errors.UsageError, match="no series other"):
            board.plot.series("other")
        with pytest.raises(sl.errors.UsageError, match="no table measure_summary"):
            board.costs()
    with sl.open(costs) as board:
        assert board.costs("cost_usd").equals(board.table("measure_summary"))
        assert board.frontier()["model"].sort().to_list() == ["cheap", "dear", "wasteful"]
        assert "line frontier" in board.plot.frontier().svg
    output = CommandOutput(out=str(costs), textfile=tmp_path / "x.prom", scores=True)
    output.end({"status": "published", "exit_code": 0, "run": {}})
    (total,) = rows(costs, "SELECT total FROM measure_summary WHERE model = 'dear'")
    gauge = 'scorelake_measure_total{benchmark="default",model="dear",protocol="",measure="cost_usd"}'
    assert f"{gauge} {total['total']}\n" in (tmp_path / "x.prom").read_text()
