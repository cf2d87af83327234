"""The page as one file: the same bytes every time, nothing loaded, names that do nothing, and a limit on its size."""

import re
from decimal import ROUND_HALF_UP, Decimal
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counted import scored
from looked_at import HOSTILE, Tables, hostile, model, plain, script_data
from scorelake.cli import app
from scorelake.page.build import build_page
from scorelake.page.svg import axis_ticks, linear_ticks, log_ticks, value_ticks
from scorelake.read.format import Scale, millionths, ticks


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return build_page(out)


def test_the_command_writes_the_same_bytes_every_time(out: Path, page: str, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "p.html"
    done = CliRunner().invoke(app, ["page", str(out), "--html", str(file), "--title", "T & <T>"])
    assert done.exit_code == 0, done.output
    text = file.read_text(encoding="utf-8")
    assert "<h1>T &amp; &lt;T&gt;</h1>" in text
    assert build_page(out) == page
    assert build_page(out, title="T & <T>") == text


def test_an_unknown_metric_is_refused_with_the_closest(out: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["page", str(out), "--html", str(tmp_path / "p"), "--metric", "pass@3"])
    assert done.exit_code == 2
    assert "did you mean: pass@" in done.output
    assert not (tmp_path / "p").exists()


def test_data_that_does_not_fit_is_omitted_and_named(out: Path, page: str) -> None:
    small = build_page(out, max_bytes=0)
    data = script_data(small)
    assert len(small) < len(page) - 10_000
    assert data["omitted"] == [
        "scores by subject",
        "other metrics",
        "pairs of all models",
        "curves and histories of all models",
        "the problems of all models",
        "other metrics by subject",
    ]
    assert list(data["boards"][0]["overall"]["metrics"]) == ["pass@1"]
    assert Tables(small).of("scores") == Tables(page).of("scores")


def test_nothing_is_loaded_and_no_script_writes_html(page: str) -> None:
    writers = ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "document.write", "Function(", "src=", "@import")
    assert [word for word in writers if word in page] == []
    assert page.replace("http-equiv", "").count("http") == 0
    assert "default-src 'none'; script-src 'sha256-" in unescape(page)
    assert re.search(r'\s(on[a-z]+|style)="', page) is None
    assert len(page.encode()) <= 300_000


def test_hostile_names_are_only_names(tmp_path: Path) -> None:
    page = build_page(hostile(tmp_path))
    assert page.count("<script") == page.count("</script") == 2
    assert "<img" not in page
    assert "<b>bold" not in page
    assert "&lt;/script&gt;" in page
    assert "{{ 7*7 }} &amp; &lt;b" in page
    assert [char for char in "\u202e\x00\x1b\x07" if char in page] == []
    assert "evil\\u202egnp.exe" in page
    assert "x" * 300 not in page
    assert len(set(map(str, script_data(page)["boards"][0]["models"]))) == len(HOSTILE)


def test_missing_cells_of_the_overall_table_have_a_reason(tmp_path: Path) -> None:
    """And the head of a column links to the board of the same protocol."""
    rows = [row for name in "ab" for row in model(name, [2, 3] * 15, benchmark="one")]
    out = scored(tmp_path, [*rows, *model("a", [1, 4] * 15, benchmark="two")])
    overall = build_page(out).split('class="overall"')[1].split("</section>")[0]
    assert overall.count('<td class="missing">not attempted</td>') == 1
    assert re.findall('<a href="#t(.)"><bdi>(.*?)</bdi>', overall) == [("0", "one"), ("1", "two")]


def test_problem_names_can_be_withheld(out: Path, page: str) -> None:
    numbers, none = (build_page(out, problem_names=names) for names in ("numbers", "none"))
    assert "p17" in page
    assert "p17" not in numbers + none
    assert "#17" in numbers
    assert "<h3>Problems</h3>" not in none


@pytest.mark.slow
def test_one_model_and_one_problem(tmp_path: Path) -> None:
    single = build_page(scored(tmp_path / "a", model("m", [4, 2, 1] * 10)))
    assert "There is no other ranked model" in single
    assert single.index("<h3>pass@k and pass^k") < single.index("<h3>Leaderboard")
    one = build_page(scored(tmp_path / "b", [*model("m", [4]), *model("o", [1])]))
    assert "One problem says nothing about others" in one
    assert "<h3>Pairwise comparisons" not in one
    assert [row[3] for row in Tables(one).of("scores")] == ["\u2013"] * 2


def test_rounding_is_half_up_from_the_exact_value() -> None:
    expected = {0.6125: "61.3", 0.9995: "100.0", 0.99949: "99.9", 0.0: "0.0", 1.0: "100.0", None: "\u2013"}
    assert {value: Scale().text(value) for value in expected} == expected
    for i in range(20_000):
        x = (i * 7919 % 20_000 + 0.4999) / 20_000 + i * 1e-9
        rounded, packed = (Decimal(x) * 100).quantize(Decimal("0.1"), ROUND_HALF_UP), millionths(x)
        assert packed is not None
        assert Decimal(packed).scaleb(-4).quantize(Decimal("0.1"), ROUND_HALF_UP) == rounded
    assert (millionths(0.5), millionths(0.25000000001)) == (500_000, 250_001)


def test_digits_follow_the_interval() -> None:
    assert Scale.of([(0.5, 0.4, 0.6)]) == Scale(True, 1)
    assert Scale.of([(0.5, 0.498, 0.502)]) == Scale(True, 2)
    assert Scale.of([(0.5, 0.4999, 0.5001)]) == Scale(True, 3)
    assert Scale.of([(37.0, 30.0, 44.0)]) == Scale(False, 1)


def test_ticks_are_round_within_the_axis_and_enclose_a_single_value() -> None:
    assert ticks(0.45, 0.65) == [0.45, 0.5, 0.55, 0.6, 0.65]
    assert ticks(-2, 6) == [-2, 0, 2, 4, 6]
    assert axis_ticks((0.1, 0.7)) == [0.2, 0.4, 0.6]
    assert (value_ticks([0.5])[0], value_ticks([0.5])[-1], value_ticks([])) == (0.0, 1.0, [0.0, 1.0])
    assert [label for _, label in linear_ticks((20260901, 20261101))] == ["20260901", "20261101"]
    assert [label for _, label in log_ticks(0.003, 0.004)] == [
        "0.003",
        "0.0032",
        "0.0034",
        "0.0036",
        "0.0038",
        "0.004",
    ]
