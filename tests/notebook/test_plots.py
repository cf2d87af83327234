"""Drawings show what the page shows, in its shapes and colours, stand alone, and touch nothing around them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

import scorelake as sl
from conftest import FIXTURES, expand
from scorelake.errors import DataError, UsageError
from scorelake.notebook.plots import Drawing, chart_style
from scorelake.page.build import build_page

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def board() -> sl.Board:
    return sl.score(FIXTURES / "lake", metrics=["pass@1", "pass@4"])


def texts(drawing: sl.Drawing) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawing.svg).iter(f"{SVG}text")]


def test_drawings_are_pictures_by_themselves(board: sl.Board, tmp_path: Path) -> None:
    for drawing in (board.plot.leaderboard("pass@4"), board.plot.curve("model-02"), board.plot.matrix()):
        root = ElementTree.fromstring(drawing.svg)
        assert root.tag == f"{SVG}svg"
        assert root.findtext(f"{SVG}title") == drawing.title
        assert drawing._repr_html_() == drawing.svg
        drawing.save(tmp_path / "drawn.svg")
        assert (tmp_path / "drawn.svg").read_text() == drawing.svg
        used = {name for element in root.iter() for name in element.get("class", "").split()}
        known = set(re.findall(r"\.([a-z0-9-]+)", chart_style()))
        assert used - known <= {"wide", "pins", "name"}, used - known


def test_they_have_the_shapes_of_the_page(board: sl.Board) -> None:
    """Every whisker and the matrix are drawn by the same code: the same elements, to the character."""
    page = build_page(board.folder, "pass@1")
    cases = (("whisker", 4, board.plot.leaderboard("pass@1")), ("heat", 1, board.plot.matrix()))
    for kind, many, mine in cases:
        drawn = re.findall(rf'<svg[^>]*class="{kind}".*?</svg>', page)
        assert len(drawn) == many
        assert all(each in mine.svg for each in drawn)


def test_the_leaderboard_drawn(board: sl.Board) -> None:
    seen = texts(board.plot.leaderboard("pass@1"))
    assert [name for name in seen if name.startswith("model-")] == ["model-00", "model-01", "model-02", "model-03"]
    assert {"57.4%", "49.0 to 65.5", "3\u20134"} <= set(seen)
    few = texts(board.plot.leaderboard("pass@1", top=1))
    assert "model-01" not in few
    assert "3 more models" in few


def test_the_style_is_for_drawings_of_ours_alone() -> None:
    """Every rule begins with our own class, so that nothing else in a notebook changes."""
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", chart_style())
    assert len(rules) > 20
    assert all(part.strip().startswith(".scorelake") for rule in rules for part in rule.split(","))
    assert {"--paper", "--accent", "--c1", "--s0"} <= set(re.findall(r"--[a-z0-9]+(?=:)", chart_style()))
    assert "@media" not in chart_style()


def test_several_benchmarks_stand_below_each_other() -> None:
    frames = [expand([(f"p{i}", 2, 1) for i in range(4)], model="m", benchmark=name) for name in ("one", "two")]
    rewards = pl.DataFrame({"model": "m", "benchmark": "two", "problem_id": ["p"], "passed": [True]})
    with sl.score(pl.concat([*frames, rewards], how="diagonal"), metrics=["pass@1", "pass@2"]) as board:
        assert board.plot.leaderboard().title == "one: pass@1; two: pass@1"
        assert board.plot.matrix("two").title == "two: models by problems"
        assert repr(board).count("\n") == 3
        whole, part = (ElementTree.fromstring(board.plot.curve("m", name).svg) for name in (None, "one"))
        assert int(whole.get("height", 0)) > int(part.get("height", 0))


def test_a_board_shows_itself(board: sl.Board) -> None:
    shown = board._repr_html_()
    assert "2,858 attempts = 2,804 graded" in shown
    assert "model-00 leads synth" in shown
    assert board.plot.leaderboard(top=20).svg in shown


@pytest.mark.parametrize("right", [0, 1, 2])
def test_one_value_has_an_axis_too(right: int) -> None:
    """A single problem has no interval, so all that is drawn is one number."""
    with sl.score(expand([("p", 2, right)], model="m"), metrics=["pass@1"]) as board:
        assert f"{50 * right}.0%" in texts(board.plot.leaderboard())
        assert f"{50 * right}.0" in build_page(board.folder)


def test_nothing_to_draw() -> None:
    frame = pl.DataFrame({"model": "m", "problem_id": ["a", "b"], "score": [0.5, 3.0]})
    with sl.score(frame, metrics=["avg@N"]) as board:
        assert "3" in repr(board)
        with pytest.raises(sl.errors.UsageError, match="nothing to draw"):
            board.plot.curve("m")


def test_a_drawing_makes_no_folders(tmp_path: Path) -> None:
    drawing = Drawing("title", "<svg/>")
    with pytest.raises(UsageError, match="typo: no such folder"):
        drawing.save(tmp_path / "typo" / "x.svg")
    with pytest.raises(UsageError, match="is a folder"):
        drawing.save(tmp_path)
    assert not list(tmp_path.iterdir())
    drawing.save(str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == "<svg/>"


@pytest.mark.parametrize("gone", ["snapshots", "snapshots/*/problem_counts"])
def test_problems_in_files_that_are_gone(tmp_path: Path, gone: str) -> None:
    """Where problems stayed in the snapshot's files, a board that is open says that these are not there."""
    out = tmp_path / "out"
    config = {"publish": {"max_problems": 1}}
    with sl.score([[1, 0], [0, 1]], metrics="pass@1", config=config, out=out) as board:
        assert board.plot.matrix().title
        for path in out.glob(gone):
            shutil.rmtree(path)
        for ask in (board.plot.matrix, board._repr_html_, lambda: repr(board)):
            with pytest.raises(DataError, match="not with it"):
                ask()
        assert board.plot.leaderboard().title
