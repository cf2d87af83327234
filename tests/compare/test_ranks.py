"""rank_lo, rank_hi and p_best: in the leaderboard view and in the terminal."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from counted import rows, scored
from scorelake.cli import app


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Two models that tie problem by problem, one clearly behind."""
    scores = {"a": [1, 0] * 20, "b": [1, 0] * 20, "c": [0, 0] * 20}
    counts = [
        {"model": model, "subject": "xy"[i % 2], "problem_id": i, "n": 2, "c": 2 * x}
        for model, c in scores.items()
        for i, x in enumerate(c)
    ]
    return scored(tmp_path, counts)


def test_ties_are_shown_as_ties(out: Path) -> None:
    got = rows(
        out, "SELECT model, rank, rank_lo, rank_hi, p_best FROM leaderboard WHERE metric = 'pass@1' ORDER BY 1"
    )
    assert [tuple(row.values()) for row in got] == [("a", 1, 1, 2, 0.5), ("b", 1, 1, 2, 0.5), ("c", 3, 3, 3, 0.0)]


def test_a_metric_that_is_not_compared_has_a_rank_but_no_range(out: Path) -> None:
    got = rows(out, "SELECT model, rank, rank_lo, p_best FROM leaderboard WHERE metric = 'pass@2' ORDER BY 1")
    assert [tuple(row.values()) for row in got] == [("a", 1, None, None), ("b", 1, None, None), ("c", 3, None, None)]


def test_show_agrees_with_the_view(out: Path) -> None:
    told = CliRunner().invoke(app, ["show", str(out)]).stdout
    cells = [line.split()[:3] for line in told.splitlines() if " to " in line and "%" in line and "Rank" not in line]
    assert cells[:3] == [["1-2", "50%", "a"], ["1-2", "50%", "b"], ["3", "0%", "c"]]
    plain = CliRunner().invoke(app, ["show", str(out), "--metric", "pass@2"]).stdout
    assert "name the metric in [compare] metrics" in " ".join(plain.split())


def test_show_by_subject_uses_the_subjects_own_ranks(out: Path) -> None:
    told = CliRunner().invoke(app, ["show", str(out), "--by-subject"]).stdout
    assert "default / y / pass@1" in told
    ranks = [line.split()[0] for line in told.split("default / y / pass@1")[1].splitlines() if " to " in line]
    assert ranks[:3] == ["1-3"] * 3, "nobody solves anything in y: all three tie"
