"""The leaderboard in a terminal: one axis, reasons below a rule, marks where coverage is not 1."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from counted import Row, rows, scored
from scorelake.cli import app
from scorelake.read.show import Line, _axis, _bar


def _model(name: str, c: list[int], n: int = 2) -> list[Row]:
    return [{"model": name, "subject": "xy"[i % 2], "problem_id": i, "n": n, "c": x} for i, x in enumerate(c)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    counts = [
        *_model("a", [2, 0] * 20),
        *_model("b", [2, 0] * 20),
        *_model("c", [0, 0] * 20),
        *_model("few", [2] * 9),
    ]
    counts[-10]["n"] = 1  # the last problem of c: pass@2 is not of all
    return scored(tmp_path, counts)


def _shown(out: Path, *more: str) -> list[str]:
    return CliRunner().invoke(app, ["show", str(out), *more]).stdout.splitlines()


def _cells(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if " to " in line and "%" in line and "Rank" not in line]


def test_ranked_models_then_a_rule_then_the_others(out: Path) -> None:
    lines = _shown(out)
    assert [cells[:3] for cells in _cells(lines)[:3]] == [["1-2", "50%", "a"], ["1-2", "50%", "b"], ["3", "0%", "c"]]
    rules = [i for i, line in enumerate(lines) if line.strip() and set(line.strip()) == {"─"}]
    below = "\n".join(lines[rules[1] :])
    assert len(rules) == 2
    assert "few" in below
    assert "few is not ranked: attempted 9 of 40 problems, 36 needed to be ranked\n" in below
    assert "few" not in "\n".join(lines[: rules[1]])


def test_values_of_some_problems_are_marked(out: Path) -> None:
    told = "\n".join(_shown(out, "--metric", "pass@2"))
    assert "0.0000*" in told
    assert "0.5000*" not in told
    assert "* of some of the model's problems only" in " ".join(told.split())
    assert "[compare] metrics" in told
    assert "*" not in "\n".join(_shown(out))


def test_by_subject(out: Path) -> None:
    told = "\n".join(_shown(out, "--by-subject"))
    after = told.split("default / y / pass@1")[1]
    assert [cells[0] for cells in _cells(after.splitlines())[:3]] == ["1-3"] * 3, "nobody solves anything in y"


def test_intervals_contain_values(out: Path) -> None:
    for row in rows(out, "FROM leaderboard WHERE value IS NOT NULL"):
        assert row["lo"] <= row["value"] <= row["hi"]


def _line(value: float | None, lo: float | None, hi: float | None) -> Line:
    return Line("m", value, lo, hi, 1, 1, 1, 1, None, None, None, None)


def test_bars_share_an_axis() -> None:
    lines = [_line(-1.0, -2.0, 0.0), _line(5.0, 4.0, 6.0), _line(None, None, None)]
    axis = _axis(lines)
    assert axis == (-2, 6)
    assert [_bar(line, axis) for line in lines] == ["───●───", " " * 18 + "───●───", ""]
    assert _axis([_line(0.5, 0.4, 0.6)]) == (0, 1)
    assert _bar(_line(0.5, 0.5, 0.5), (0, 1)) == " " * 12 + "●"
