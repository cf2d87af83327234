"""The page: the numbers of the tables, the same bytes every time, and names that do nothing."""

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counted import rows as asked
from counted import scored
from looked_at import HOSTILE, Tables, hostile, model, plain
from scorelake.cli import app
from scorelake.page import build
from scorelake.page.build import html
from scorelake.page.svg import axis_labels, on_axis
from scorelake.read.numbers import Scale, millionths, scale, ticks


def _half_up(x: float, places: int = 1) -> str:
    return str((Decimal(x) * 100).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return html(out)


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> str:
    return html(hostile(tmp_path_factory.mktemp("hostile")))


def test_the_command_writes_the_same_bytes_every_time(out: Path, page: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["page", str(out), "--html", str(tmp_path / "deep" / "p.html"), "--title", "T & <T>"]
    )
    assert done.exit_code == 0, done.output
    told = (tmp_path / "deep" / "p.html").read_text(encoding="utf-8")
    assert "<h1>T &amp; &lt;T&gt;</h1>" in told
    assert html(out) == page
    assert html(out, title="T & <T>") == told


def test_every_score_is_that_of_its_table(out: Path, page: str) -> None:
    board = {row[1]: row for row in Tables(page).of("scores")}
    ranked = asked(out, "FROM leaderboard WHERE metric = 'pass@1'")
    assert len(board) == len(ranked) == 4
    for row in ranked:
        (cells,) = (cells for name, cells in board.items() if name.startswith(row["model"]))
        place = "\u2013" if row["rank"] is None else str(row["rank"])
        if row["rank_lo"] is not None and row["rank_lo"] != row["rank_hi"]:
            place = f"{row['rank_lo']}\u2013{row['rank_hi']}"
        assert cells[0] == place
        assert cells[2] == _half_up(row["value"])
        assert cells[3] == f"{_half_up(row['lo'])} to {_half_up(row['hi'])}"
        assert cells[5:] == [f"{row['problems']:,} of {row['problems_of_benchmark']:,}", f"{row['attempts']:,}"]
    assert "Not ranked: attempted 5 of 36 problems" in next(name for name in board if name.startswith("few"))


def test_every_other_number_too(out: Path, page: str) -> None:
    tables = Tables(page)
    lifts = {(r["model_b"], r["model_a"]): r for r in asked(out, "FROM pair WHERE metric = 'pass@1'")}
    duel = tables.of("duel")
    names = [row[0] for row in duel]
    assert len(names) == 3
    for name, *cells in duel:
        for other, cell in zip(names, cells, strict=True):
            if name != other:
                row = lifts[name, other]
                settled = row["claim"] in ("improvement", "regression")
                said = cell.replace("\u2212", "-").removeprefix("+")
                assert said == (_half_up(row["lift"]) if settled else "=")
    heat = {row[0]: row[1:] for row in tables.of("heat-table")}
    for row in asked(out, "FROM subject_summary WHERE metric = 'pass@1'"):
        assert heat[row["model"]]["xy".index(row["subject"])] == _half_up(row["value"])
    curve = next(rows for kind, rows in tables.tables if kind == "grid" and rows[0][1] == "Curve")
    for row in asked(out, "FROM curve WHERE value IS NOT NULL"):
        (cells,) = (c for c in curve if c[:2] == [row["model"], row["family"]])
        at = curve[0].index(str(row["k"]))
        assert cells[at] == _half_up(row["value"]) + ("" if row["coverage"] == 1 else "*")


def test_the_data_of_the_script_are_those_of_the_tables(out: Path, page: str) -> None:
    data = _data(page)
    (board,) = data["boards"]
    views = {None: board["whole"]} | {view["name"]: view for view in board["subjects"]}
    assert data["left"] == []
    found = 0
    for row in asked(out, "SELECT NULL AS subject, * FROM leaderboard UNION ALL BY NAME FROM subject_leaderboard"):
        view, at = views[row["subject"]], board["models"].index(row["model"])
        mine = view["metrics"][row["metric"]]["rows"][at]
        assert view["counts"][at] == [row["problems"], row["problems_of_benchmark"], row["attempts"]]
        assert mine[3:6] == [row["rank"], row["rank_lo"], row["rank_hi"]]
        for x, told in zip((row["value"], row["lo"], row["hi"]), mine, strict=False):
            assert (told is None) == (x is None)
            assert x is None or abs(told / 1e6 - x) < 2e-6
        found += 1
    assert found == 3 * 4 * len(board["whole"]["metrics"])


def _data(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)  # type: ignore[no-any-return]


def test_what_finds_no_room_is_left_out_and_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEAST", 0), ("PER_MODEL", 0)):
        monkeypatch.setattr(build, name, value)
    small = html(out)
    data = _data(small)
    assert len(small) < len(html(out, metric="pass@2")) + 10_000
    assert data["left"] == [
        "scores by subject",
        "other metrics",
        "pairs of all models",
        "the history of all models",
        "the problems of all models",
        "other metrics by subject",
    ]
    assert list(data["boards"][0]["whole"]["metrics"]) == ["pass@1"]
    assert Tables(small).of("scores") == Tables(html(out)).of("scores")


def test_nothing_is_loaded_and_nothing_writes_html(page: str) -> None:
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "eval(",
        "document.write",
        "Function(",
        "src=",
        "@import",
    ):
        assert word not in page, word
    assert page.replace("http-equiv", "").count("http") == 0
    assert "default-src 'none'; script-src 'sha256-" in unescape(page)
    assert re.search(r'\son[a-z]+="', page) is None
    assert re.search(r'\sstyle="', page) is None
    assert len(page.encode()) <= 300_000


def test_hostile_names_are_only_names(wild: str) -> None:
    assert wild.count("<script") == 2
    assert wild.count("</script") == 2
    assert "<img" not in wild
    assert "<b>bold" not in wild
    assert "&lt;/script&gt;" in wild
    assert "49" not in re.findall(r"\{\{.*?\}\} &amp; &lt;b", wild)
    for char in ("\u202e", "\x00", "\x1b", "\x07"):
        assert char not in wild, f"{ord(char):x}"
    assert "evil\\u202egnp.exe" in wild
    assert "x" * 300 not in wild
    models = _data(wild)["boards"][0]["models"]
    assert len(set(map(str, models))) == len(HOSTILE)


def test_problems_may_stay_private(out: Path, page: str) -> None:
    assert "p17" in page
    assert "p17" not in html(out, names="numbers")
    assert "#17" in html(out, names="numbers")
    none = html(out, names="none")
    assert "p17" not in none
    assert "<h3>Problems</h3>" not in none


def test_one_model_and_one_problem(tmp_path: Path) -> None:
    alone = html(scored(tmp_path / "a", model("m", [4, 2, 1] * 10)))
    assert "There is no other ranked model" in alone
    assert alone.index("More attempts") < alone.index("<h3>Leaderboard")
    one = html(scored(tmp_path / "b", [*model("m", [4]), *model("o", [1])]))
    assert "One problem says nothing about others" in one
    assert "Who beats whom</h3>" not in one
    assert [row[3] for row in Tables(one).of("scores")] == ["\u2013"] * 2


def test_an_unknown_metric_names_the_closest(out: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["page", str(out), "--html", str(tmp_path / "p"), "--metric", "pass@3"])
    assert done.exit_code == 2
    assert "did you mean: pass@" in done.output
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.6125, "61.3"), (0.9995, "100.0"), (0.99949, "99.9"), (0.0, "0.0"), (1.0, "100.0"), (None, "\u2013")],
)
def test_percent_is_rounded_half_up(value: float | None, told: str) -> None:
    assert Scale().text(value) == told


def test_millionths_round_as_the_value_does() -> None:
    for i in range(20_000):
        x = (i * 7919 % 20_000 + 0.4999) / 20_000 + i * 1e-9
        whole = millionths(x)
        assert whole is not None
        assert Decimal(whole).scaleb(-4).quantize(Decimal("0.1"), ROUND_HALF_UP) == Decimal(_half_up(x))
    assert millionths(0.5) == 500_000
    assert millionths(0.25000000001) == 250_001


def test_digits_follow_the_interval() -> None:
    assert scale([(0.5, 0.4, 0.6)]) == Scale(True, 1)
    assert scale([(0.5, 0.498, 0.502)]) == Scale(True, 2)
    assert scale([(0.5, 0.4999, 0.5001)]) == Scale(True, 3)
    assert scale([(37.0, 30.0, 44.0)]) == Scale(False, 1)
    assert ticks(0.45, 0.65) == [0.45, 0.5, 0.55, 0.6, 0.65]
    assert ticks(-2, 6) == [-2, 0, 2, 4, 6]


def test_no_mark_lies_beyond_the_axis() -> None:
    """Or it would stand in the next column."""
    assert on_axis((0.1, 0.7)) == [0.2, 0.4, 0.6]
    assert on_axis((0.0, 1.0))[0] == 0.0
    assert on_axis((0.0, 1.0))[-1] == 1.0
    assert [">20<" in axis_labels((0.1, 0.7), percent=True), ">0<" in axis_labels((0.1, 0.7), percent=True)] == [
        True,
        False,
    ]
