"""Drawings have the charts of the page, are complete images, and change nothing around them."""

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


def test_drawings_are_complete_images(board: sl.Board, tmp_path: Path) -> None:
    styled = set(re.findall(r"\.([a-z0-9-]+)", chart_style()))
    for drawing in (board.plot.leaderboard("pass@4"), board.plot.curve("model-02"), board.plot.matrix()):
        root = ElementTree.fromstring(drawing.svg)
        assert (root.tag, root.findtext(f"{SVG}title")) == (f"{SVG}svg", drawing.title)
        assert drawing._repr_html_() == drawing.svg
        drawing.save(tmp_path / "drawn.svg")
        assert (tmp_path / "drawn.svg").read_text() == drawing.svg
        used = {name for element in root.iter() for name in element.get("class", "").split()}
        assert used - styled <= {"wide", "pins", "name"}


def test_charts_are_those_of_the_page(board: sl.Board) -> None:
    """Every whisker and the heat map have the same elements, to the character."""
    page = build_page(board.folder, "pass@1")
    for kind, count, drawing in (("whisker", 4, board.plot.leaderboard("pass@1")), ("heat", 1, board.plot.matrix())):
        charts = re.findall(rf'<svg[^>]*class="{kind}".*?</svg>', page)
        assert len(charts) == count
        assert all(chart in drawing.svg for chart in charts)


def test_the_leaderboard_drawn(board: sl.Board) -> None:
    seen = texts(board.plot.leaderboard("pass@1"))
    assert [name for name in seen if name.startswith("model-")] == ["model-00", "model-01", "model-02", "model-03"]
    assert {"57.4%", "49.0 to 65.5", "3\u20134"} <= set(seen)
    first = texts(board.plot.leaderboard("pass@1", top=1))
    assert "model-01" not in first
    assert "3 more models" in first


def test_curves_of_several_models_have_bands(board: sl.Board) -> None:
    """A line per model, and a band through lo and hi at every k of the line."""
    drawing = board.plot.curve(["model-02", "model-00"])
    assert drawing.title == "synth: pass@k of model-02, model-00"
    assert [name for name in texts(drawing) if name.startswith("model-")] == ["model-00", "model-02"]
    bands = re.findall(r'd="M([^"]*)Z" class="band"', drawing.svg)
    assert [len(band.split("L")) for band in bands] == [12, 12]  # k = 1, 2, 3, 4, 6, 8, up and back
    frame = board.curve("model-00").filter(family="pass@k", k=1)
    axis = [12 + (1 - end) * (320 - 12 - 30) for end in (frame["hi"].item(), frame["lo"].item())]
    ends = [float(point.split(" ")[1]) for point in (bands[1].split("L")[0], bands[1].split("L")[-1])]
    assert ends == pytest.approx(axis, abs=0.06)
    assert len(re.findall('class="band"', board.plot.curve().svg)) == 4
    assert board.plot.curve(family="pass^k").title == "synth: pass^k of 4 models"
    assert {"pass@k", "pass^k"} <= set(texts(board.plot.curve("model-00")))


def test_the_style_is_restricted_to_our_drawings() -> None:
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", chart_style())
    assert len(rules) > 20
    assert all(part.strip().startswith(".scorelake") for rule in rules for part in rule.split(","))
    assert {"--paper", "--accent", "--c1", "--s0"} <= set(re.findall(r"--[a-z0-9]+(?=:)", chart_style()))
    assert "@media" not in chart_style()


@pytest.mark.slow
def test_several_benchmarks_are_stacked() -> None:
    frames = [expand([(f"p{i}", 2, 1) for i in range(4)], model="m", benchmark=name) for name in ("one", "two")]
    rewards = pl.DataFrame({"model": "m", "benchmark": "two", "problem_id": ["p"], "passed": [True]})
    with sl.score(pl.concat([*frames, rewards], how="diagonal"), metrics=["pass@1", "pass@2"]) as board:
        assert board.plot.leaderboard().title == "one: pass@1; two: pass@1"
        assert board.plot.matrix("two").title == "two: models by problems"
        assert repr(board).count("\n") == 3
        both, one = (ElementTree.fromstring(board.plot.curve("m", name).svg) for name in (None, "one"))
        assert int(both.get("height", 0)) > int(one.get("height", 0))


def test_a_notebook_displays_verdict_and_chart(board: sl.Board) -> None:
    shown = board._repr_html_()
    assert "2,858 attempts = 2,804 graded" in shown
    assert "model-00 leads synth" in shown
    assert board.plot.leaderboard(top=20).svg in shown


def test_a_board_without_curves_is_refused() -> None:
    frame = pl.DataFrame({"model": "m", "problem_id": ["a", "b"], "score": [0.5, 3.0]})
    with sl.score(frame, metrics=["avg@N"]) as board:
        assert "3" in repr(board)
        with pytest.raises(sl.errors.UsageError, match="nothing to draw"):
            board.plot.curve("m")


def test_save_creates_no_folders(tmp_path: Path) -> None:
    drawing = Drawing("title", "<svg/>")
    with pytest.raises(UsageError, match="typo: no such folder"):
        drawing.save(tmp_path / "typo" / "x.svg")
    with pytest.raises(UsageError, match="is a folder"):
        drawing.save(tmp_path)
    assert not list(tmp_path.iterdir())
    drawing.save(str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == "<svg/>"


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["snapshots", "snapshots/*/problem_counts"])
def test_missing_files_of_problems_are_named(out: Path, gone: str) -> None:
    config = {"publish": {"max_problems": 1}}
    with sl.score([[1, 0], [0, 1]], metrics="pass@1", config=config, out=out) as board:
        assert board.plot.matrix().title
        for path in out.glob(gone):
            shutil.rmtree(path)
        for read in (board.plot.matrix, board._repr_html_, lambda: repr(board)):
            with pytest.raises(DataError, match="files that are missing"):
                read()
        assert board.plot.leaderboard().title
