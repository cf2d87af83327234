"""The leaderboard in a terminal: one axis, reasons below a rule, marks where coverage is not 1."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from counted import Row, rows, scored
from scorelake.cli import app
from scorelake.metrics import forecast
from scorelake.page.build import build_page
from scorelake.read.board import Line
from scorelake.read.show import _axis, _bar, show_leaderboard


def _model(name: str, c: list[int], n: int = 2) -> list[Row]:
    return [{"model": name, "subject": "xy"[i % 2], "problem_id": i, "n": n, "c": x} for i, x in enumerate(c)]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rates = {"a": [2, 0] * 20, "b": [2, 0] * 20, "c": [0, 0] * 20, "few": [2] * 9}
    counts = [row for name, c in rates.items() for row in _model(name, c)]
    counts[-10]["n"] = 1  # the last problem of c: pass@2 leaves it out
    return scored(tmp_path_factory.mktemp("show"), counts)


def _shown(out: Path, *more: str) -> list[str]:
    return CliRunner().invoke(app, ["show", str(out), *more]).stdout.splitlines()


def _cells(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if " to " in line and "%" in line and "Rank" not in line]


def test_ranked_models_then_a_rule_then_the_others(out: Path) -> None:
    lines = _shown(out)
    assert [cells[:3] for cells in _cells(lines)[:3]] == [
        ["1\u20132", "50%", "a"],
        ["1\u20132", "50%", "b"],
        ["3", "0%", "c"],
    ]
    rules = [i for i, line in enumerate(lines) if line.strip() and set(line.strip()) == {"─"}]
    below = "\n".join(lines[rules[1] :])
    assert len(rules) == 2
    assert "few" in below
    assert "few is not ranked: attempted 9 of 40 problems, 36 needed to be ranked\n" in below
    assert "few" not in "\n".join(lines[: rules[1]])


def test_values_of_some_problems_are_marked(out: Path) -> None:
    told = "\n".join(_shown(out, "--metric", "pass@2", "--by-subject"))
    assert " 0.0*" in told
    assert "50.0*" not in told
    assert "* without the model's problems that have fewer than k attempts" in " ".join(told.split())
    assert "[compare] metrics" in told
    assert "*" not in "\n".join(_shown(out))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models on 40 problems, one on the easier half, and one whose attempts stop after a pass."""
    counts = [row for i in range(3) for row in _model(f"m{i}", [(i + j) % 5 for j in range(40)], 4)]
    counts += _model("half", [3, 4, 2, 4] * 5, 4)
    counts += [row | {"n": 4 - row["c"]} for row in _model("stops", [0, 1] * 20)]
    return scored(tmp_path_factory.mktemp("uneven"), counts)


def test_partial_models_have_an_expected_score_and_adaptive_ones_a_remark(uneven: Path) -> None:
    (row,) = rows(uneven, "FROM adjusted WHERE model = 'half'")
    expected = f"{row['value_adjusted']:.1%} ({100 * row['lo_adjusted']:.1f} to {100 * row['hi_adjusted']:.1f})"
    expected += " expected over all problems under a Rasch model"
    assert row["share_tried"] == 0.5
    report = " ".join(CliRunner().invoke(app, ["report", str(uneven)]).stdout.split())
    for text in ("\n".join(_shown(uneven)), report):
        assert text.count(expected) == text.count("expected over all") == 1
    for text in ("\n".join(_shown(uneven)), report, build_page(uneven)):
        assert "attempts seem to stop after a pass, which biases the scores upwards" in text
    flaky = rows(uneven, "SELECT count(*) AS n FROM flaky WHERE model = 'half' AND 0 < c AND c < n AND rate = c / n")
    assert flaky == [{"n": 10}]


def test_k_beyond_the_attempts_is_forecast(uneven: Path) -> None:
    """The numbers of metrics.forecast, with reasons; none beyond four times n."""
    told = _shown(uneven, "--metric", "pass@16", "--format", "json")
    lines = {row["model"]: row for row in json.loads("\n".join(told))}
    counts = np.array(
        [row["c"] for row in rows(uneven, "FROM problem_counts WHERE model = 'm1' ORDER BY problem_id")]
    )
    value, lo, hi = forecast(np.full(40, 4), counts, 16)
    assert [lines["m1"][name] for name in ("value", "lo", "hi")] == pytest.approx([value, lo, hi], abs=1e-9)
    assert {row["part"] for row in lines.values()} == {"forecast"}
    assert list(lines)[-1] == "half", "unranked models are last"
    for form in ("table", "markdown"):
        text = "\n".join(_shown(uneven, "--metric", "pass@16", "--format", form))
        assert ("Forecast: no problem has that many attempts" in text, "highest score" in text) == (True, False)
    assert _shown(uneven, "--metric", "pass@17") == []
    assert "forecast" not in "\n".join(_shown(uneven, "--metric", "pass@2"))


def _line(value: float | None, lo: float | None, hi: float | None) -> Line:
    return Line("m", value, lo, hi, 1, None, None, None, 1, 1, 1, 1, None)


def test_bars_share_an_axis() -> None:
    lines = [_line(-1.0, -2.0, 0.0), _line(5.0, 4.0, 6.0), _line(None, None, None)]
    axis = _axis(lines)
    assert axis == (-2, 6)
    assert [_bar(line, axis) for line in lines] == ["───●───", " " * 18 + "───●───", ""]
    assert _axis([_line(0.5, 0.4, 0.6)]) == (0, 1)
    assert _bar(_line(0.5, 0.5, 0.5), (0, 1)) == " " * 12 + "●"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ("organisation/an-ordinary-model-name-2026-10-01", "organisation/an-ordinary-model-name-2026-10-02", "c")
    return scored(tmp_path_factory.mktemp("named"), [row for name in names for row in _model(name, [2, 0] * 20)])


@pytest.mark.parametrize("width", [36, 60, 90, 160])
def test_it_fits_any_width(
    named: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("COLUMNS", str(width)), ("FORCE_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    show_leaderboard(named)
    told = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]
    table = [line for line in told if " 50.0 " in line]
    (lo, hi), *_ = [(row["lo"], row["hi"]) for row in rows(named, "FROM leaderboard WHERE metric = 'pass@1'")]
    assert len(table) == 3
    for line in told:
        assert len(line) <= width
    for line in table:
        assert "1\u20133" in line
        assert f"{100 * lo:.1f} to {100 * hi:.1f}" in line
    whole = sum("organisation/an-ordinary-model-name-2026-10-0" in line for line in table)
    assert whole == (2 if width >= 90 else 0), "names are cut last"
    assert any("attempts" in line for line in told) == (width >= 160)


def test_a_pipe_cuts_nothing(tmp_path: Path) -> None:
    name = "organisation/" + "long-" * 60
    assert f" {name} " in "\n".join(_shown(scored(tmp_path, [*_model(name, [2, 0] * 9), *_model("b", [1, 0] * 9)])))


@pytest.mark.slow
def test_forms_top_and_footer(out: Path) -> None:
    told = json.loads("\n".join(_shown(out, "--format", "json", "--top", "2")))
    assert [row["model"] for row in told] == ["a", "b"]
    assert _shown(out, "--format", "csv")[0].startswith("benchmark,part,protocol,metric,model,value,lo,hi")
    told = "\n".join(_shown(out, "--format", "markdown", "--top", "2"))
    assert "| 1\u20132 | a | 50.0% |" in told
    assert told.endswith("\n1 more model and 1 that is not ranked.")
    assert "few is not ranked: attempted 9 of 40 problems" in "\n".join(_shown(out, "--format", "markdown"))
    lines = _shown(out, "--top", "1")
    assert "2 more models and 1 that is not ranked; --top shows more" in lines
    assert "1 that is not ranked; --top shows more" in _shown(out, "--top", "3")
    assert not [line for line in _shown(out, "--top", "4") if "shows more" in line]
    assert lines[-1].startswith("Run 2")
    assert lines[-1].endswith("UTC, lake lake.")


def test_by_a_carried_column_and_by_nothing_known(tmp_path: Path) -> None:
    rows = [row | {"level": "hard" if row["problem_id"] % 3 else "easy"} for row in _model("m", [2, 0, 1] * 8)]
    out = scored(tmp_path, rows, by=("level",), columns={"carry": ("level",)})
    told = "\n".join(_shown(out, "--by", "level"))
    assert "default · easy · pass@1" in told
    done = CliRunner().invoke(app, ["show", str(out), "--by", "levl"])
    assert (done.exit_code, "there are: subject, level" in done.output) == (2, True)
    done = CliRunner().invoke(app, ["show", str(out), "--benchmark", "defalt"])
    assert (done.exit_code, "did you mean: default?" in done.output) == (2, True)
