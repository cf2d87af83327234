"""A leaderboard without a row is made once for every shape, beside the scoring, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from time import sleep
from typing import Any

import duckdb
import polars as pl
import pytest

from conftest import FIXTURES, ask, run, snapshot, tables
from scorelake import stages
from scorelake.publish import catalog, leaderboard
from scorelake.publish.catalog import Shape, empty
from scorelake.schemas import PROBLEM_COUNT, PROTOCOL_KEY


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_made", {})


def shape(**more: pl.DataType) -> Shape:
    protocol = tuple(PROTOCOL_KEY.schema.items())
    return Shape(tuple((PROBLEM_COUNT.schema | more).items()), protocol, ())


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    made: list[Shape] = []
    make = catalog._make
    monkeypatch.setattr(catalog, "_make", lambda path, shape: (made.append(shape), make(path, shape)))
    return made


def test_one_for_every_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, aside = counted(monkeypatch), tmp_path / "aside.duckdb"
    first, other = shape(), shape(difficulty=pl.Int64())
    assert empty(first, aside) == empty(first, aside) != empty(other, aside)
    assert made == [first, other]
    assert not aside.exists()
    (tmp_path / "board.duckdb").write_bytes(empty(other, aside))
    with duckdb.connect(str(tmp_path / "board.duckdb"), read_only=True) as db:
        assert db.execute("SELECT count(*), max(difficulty) FROM problem").fetchall() == [(0, None)]


def test_not_all_are_kept(tmp_path: Path) -> None:
    for i in range(catalog._MOST + 2):
        empty(shape(**{f"column {i}": pl.String()}), tmp_path / "aside")
    assert len(catalog._made) == catalog._MOST


def test_a_run_makes_it_beside_the_scoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    before: list[int] = []
    build = leaderboard.build
    monkeypatch.setattr(leaderboard, "build", lambda *given: (before.append(len(made)), build(*given)))
    run(FIXTURES / "lake", tmp_path / "out", by=("difficulty",))
    assert (before, len(made)) == ([1], 1)
    told = json.loads((snapshot(tmp_path / "out") / "manifest.json").read_text())
    assert not [name for name in told["files"] if "duckdb" in name]


def test_a_run_goes_on_where_it_could_not_be_made_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise OSError("no room")

    run(FIXTURES / "lake", tmp_path / "one")
    catalog._made.clear()
    monkeypatch.setattr(leaderboard, "get_ready", broken)
    run(FIXTURES / "lake", tmp_path / "two")
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    digests = "SELECT * FROM internal.digest WHERE what = 'views and macros' OR what LIKE '%problem%' ORDER BY what"
    assert ask(tmp_path / "one", digests) == ask(tmp_path / "two", digests)


def test_a_run_that_fails_meanwhile_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is still being made beside the scoring: it is waited for."""
    make = catalog._make
    monkeypatch.setattr(catalog, "_make", lambda path, shape: (sleep(0.3), make(path, shape)))

    def broken(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "score", broken)
    with pytest.raises(KeyboardInterrupt):
        run(FIXTURES / "lake", tmp_path / "out")
    assert list((tmp_path / "out" / "snapshots").iterdir()) == []
    assert len(catalog._made) == 1
