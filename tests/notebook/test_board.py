"""A board answers as the tables and the command line do, from a folder, a file or object storage."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import scorelake as sl
from cloud import upload
from conftest import FIXTURES, ask, expand, put, run
from scorelake.errors import LakeError, UsageError
from scorelake.publish.garbage import collect_garbage
from scorelake.publish.snapshot import Output

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("board") / "out"
    run(FIXTURES / "lake", home, metrics=["pass@1", "pass@4", "pass^4"], by=("difficulty",))
    return home


@pytest.fixture
def board(out: Path) -> sl.Board:
    return sl.open(out)


def test_the_leaderboard(board: sl.Board, out: Path) -> None:
    found = board.leaderboard("PASS@4")
    assert found["model"].to_list() == ["model-00", "model-01", "model-02", "model-03"]
    rows = ask(out, "SELECT value, lo, hi FROM leaderboard WHERE metric = 'pass@4' ORDER BY rank")
    assert found.select("value", "lo", "hi").rows() == rows
    assert board.leaderboard()["metric"].unique().to_list() == ["pass@1"]
    subjects = board.leaderboard("pass@1", by="subject")
    assert subjects.height == 4 * subjects["subject"].n_unique() > 4
    slices = board.leaderboard("pass@1", "synth", by="difficulty")
    assert set(slices["slice_value"]) == {"easy", "medium", "hard"}


@pytest.mark.parametrize(
    ("ask_it", "words"),
    [
        (lambda board: board.leaderboard("pass@3"), "no metric pass@3"),
        (lambda board: board.leaderboard("pas@1"), "unknown metric 'pas@1'"),
        (lambda board: board.leaderboard(benchmark="sinth"), "no benchmark sinth here\n.*synth"),
        (lambda board: board.leaderboard(by="colour"), "no slice colour here\n.*difficulty"),
        (lambda board: board.curve("model-0"), "no model model-0 here\n.*model-00"),
        (lambda board: board.curve("model-00", "x"), "no benchmark x"),
        (lambda board: board.table("sumary"), "no table sumary here\n.*_summary"),
        (lambda board: board.table('x" WHERE 1 = 0; --'), "no table x"),
        (lambda board: board.sql("SELECT 1; SELECT 2"), "2 statements"),
        (lambda board: board.sql("SELECT * FROM nothing"), "the query failed"),
        (lambda board: board.sql("SELECT 1 AS a, 2 AS a"), "two columns are called a"),
        (lambda board: board.sql("SELECT * FROM read_csv('/etc/passwd')"), "the query failed"),
        (lambda board: board.sql("CREATE TABLE t AS SELECT 1"), "the query failed"),
        (lambda board: board.compare("model-00", "nobody"), "no model nobody"),
        (lambda board: board.compare("model-00", "model-01", protocol=("a", "b", "c")), "two sides"),
        (lambda board: board.plot.curve("nobody"), "no model nobody"),
        (lambda board: board.plot.leaderboard("pass@3"), "no metric pass@3"),
        (lambda board: board.plot.matrix("x"), "no benchmark x"),
    ],
)
def test_what_is_not_there_says_what_is(board: sl.Board, ask_it: Callable[[sl.Board], object], words: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){words}"):
        ask_it(board)


def test_every_table_is_a_frame(board: sl.Board) -> None:
    known = board.tables
    assert {"model_summary", "leaderboard", "run", "problem_counts"} <= set(known["name"])
    assert known["about"].null_count() == 0
    for name in known["name"]:
        assert board.table(name).width > 1


def test_curve_and_sql(board: sl.Board, out: Path) -> None:
    found = board.curve("model-00")
    assert found.filter(family="pass@k")["k"].to_list() == list(range(1, found["k"].max() + 1))  # type: ignore[operator]
    query = (
        "SELECT model, sum(n) AS n, count(*) AS problems FROM problem_counts WHERE c > ? GROUP BY ALL ORDER BY ALL"
    )
    mine = board.sql(query, 2)
    assert mine.rows() == ask(out, query, 2)
    assert mine.schema == {"model": pl.String, "n": pl.Int64, "problems": pl.Int64}
    huge = board.sql("SELECT 9223372036854775807::HUGEINT + 1 AS n, NULL::HUGEINT AS none")
    assert [str(value) for value in huge.row(0)] == ["9223372036854775808", "None"]
    columns, rows = board.rows(query.replace("?", "2"), limit=1)
    assert (columns, rows) == (mine.columns, mine.rows()[:1])


def test_a_comparison_is_what_the_command_prints(board: sl.Board, out: Path, cli: Cli) -> None:
    for metric in ("pass@4", "maj@3"):  # of a table, and made now
        told = board.compare("model-02", "model-01", metric)
        assert (
            str(told) == repr(told) == cli("compare", out, "model-02", "model-01", "--metric", metric).stdout.strip()
        )
        row = told.frame.row(0, named=True)
        assert (row["model_a"], row["model_b"], row["claim"]) == ("model-02", "model-01", "improvement")
        assert f"{row['lift']:+.4f}" in str(told)
    html = told._repr_html_()
    assert "improvement</strong>" in html
    assert "<th" in html


def test_without_a_number(tmp_path: Path) -> None:
    """Two models that may not be compared have a claim that says why, and no numbers."""
    frame = pl.concat([expand([("p", 1, 1)], model="a"), expand([(f"q{i}", 1, 1) for i in range(30)], model="b")])
    with sl.score(frame, metrics="pass@1") as board:
        told = board.compare("a", "b")
    assert "not comparable" in str(told)
    assert told.frame.select("lift", "q").row(0) == (None, None)


def test_names_do_nothing(tmp_path: Path) -> None:
    """A name with markup and escapes is text, in words, tables and drawings."""
    names = ["<script>alert(1)</script><b>", "a\x1b[31m&\"'"]
    frame = pl.concat([expand([(f"p{i}", 2, 1) for i in range(25)], model=name) for name in names])
    with sl.score(frame, metrics="pass@1") as board:
        told = board.compare(*names)
        drawn = [board.plot.leaderboard(), board.plot.curve(names[0]), board.plot.matrix()]
        texts = [board._repr_html_(), told._repr_html_(), *(each.svg for each in drawn)]
        assert board.leaderboard()["model"].to_list() in (names, names[::-1])
        plain = [str(told), repr(board)]
    assert not any("<script" in text or "<b>" in text for text in texts)
    assert not any("\x1b" in text for text in [*texts, *plain])


def test_a_board_stays_with_its_run(tmp_path: Path) -> None:
    put(tmp_path / "lake", expand([("p", 4, 1)], model="m"))
    run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"])
    board = sl.open(tmp_path / "out")
    put(tmp_path / "lake", expand([("q", 4, 4)], model="m"), "more.parquet")
    run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"])
    assert board.table("run").height == 1
    assert sl.open(tmp_path / "out" / "leaderboard.duckdb").table("run").height == 2


def _either(best: str) -> pl.DataFrame:
    """Two models at 30 problems; one passes 4 of 5 attempts, the other 2."""
    return pl.concat([expand([(f"p{i}", 5, 4 if m == best else 2) for i in range(30)], model=m) for m in "ab"])


def _lift(board: sl.Board, **asked: str) -> float:
    return float(board.compare("a", "b", **asked).frame["lift"][0])  # type: ignore[arg-type]


def test_a_board_makes_comparisons_of_its_run(tmp_path: Path) -> None:
    """What no table has comes from the counts of the run that this board shows, until those are removed."""
    out = tmp_path / "out"
    board = sl.score(_either("b"), metrics="pass@1", out=out)
    assert board.report
    first = board.report.run["run_id"]
    assert _lift(board, metric="avg@N") == pytest.approx(0.4)
    sl.score(_either("a"), metrics="pass@1", out=out).close()
    assert _lift(board, metric="avg@N") == _lift(board, run=first) == pytest.approx(0.4)
    with sl.open(out) as now:
        assert _lift(now, metric="avg@N") == pytest.approx(-0.4)
        assert _lift(now, run=first) == pytest.approx(0.0)  # 2 of 5 by a in the first, and by b in the second
        second = now.sql("SELECT run_id FROM run WHERE shown").item()
    assert board.compare("a", "b", run=second).frame["lift"].to_list() == [pytest.approx(0.0)]  # 4 of 5 both
    collect_garbage(Output.at(out), 1)
    with pytest.raises(UsageError, match=f"counts of run {first}.* not kept any more"):
        board.compare("a", "b", metric="avg@N")
    assert _lift(board, metric="pass@1") == pytest.approx(0.4)
    board.close()


def test_a_board_that_opens_too_late_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    late = sl.score(_either("b"), metrics="pass@1", out=out)
    again = sl.score(_either("b"), metrics="pass@1", out=out)
    assert again.leaderboard()["model"][0] == "b"
    sl.score(_either("a"), metrics="pass@1", out=out).close()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"(?s)run \S+ has been published here since run \S+, .*scorelake\.open"):
            late.leaderboard()
    assert again.leaderboard()["model"][0] == "b"
    again.close()
    late.close()


def test_runs_are_compared(tmp_path: Path) -> None:
    put(tmp_path / "lake", expand([(f"p{i}", 2, 1) for i in range(25)], model="m"))
    first = run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"]).run["run_id"]
    put(tmp_path / "lake", expand([(f"p{i}", 2, 2 if i < 5 else 1) for i in range(25)], model="m"))
    run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"])
    told = sl.open(tmp_path / "out").compare("m", "m", run=first)
    assert told.frame["lift"].to_list() == [0.1]


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """Not after close, not after with, not when the last one lets go."""
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    frame = expand([("p", 4, 1)], model="m")
    board = sl.score(frame, metrics="pass@1")
    assert list(home.iterdir())
    board.close()
    board.close()
    assert not list(home.iterdir())
    with pytest.raises(UsageError, match="closed"):
        board.leaderboard()
    assert repr(board) == "Board: closed"
    with sl.open(out) as opened:
        assert opened.leaderboard().height == 4
    board = sl.score(frame, metrics="pass@1")
    plots = board.plot
    del board
    gc.collect()
    assert not list(home.iterdir())
    with pytest.raises(LakeError):
        plots.leaderboard()
    assert out.exists()


def test_nothing_stays_behind_a_process(tmp_path: Path) -> None:
    code = (
        "import scorelake as sl; board = sl.score([[0, 1], [1, 1]], metrics='pass@1'); other = sl.score([[1]]); "
        "print(board.leaderboard().height); import sys; sys.exit(3)"
    )
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "")
    assert not list(tmp_path.iterdir())


def test_no_board(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "a" / "b"):
        with pytest.raises(LakeError, match="no leaderboard here"):
            sl.open(place)
    (tmp_path / "leaderboard.duckdb").write_text("something else")
    with pytest.raises(UsageError, match="cannot be opened"):
        sl.open(tmp_path).leaderboard()


def test_in_object_storage(bucket: str, tmp_path: Path) -> None:
    """A lake and an output there; counts of the snapshot too, for a metric that no table has."""
    upload(FIXTURES / "lake", f"{bucket}/lake")
    sl.score(f"{bucket}/lake", out=f"{bucket}/out", metrics=["pass@1"]).close()
    with sl.open(f"{bucket}/out") as board, sl.score(FIXTURES / "lake", metrics=["pass@1"]) as here:
        assert board.leaderboard().equals(here.leaderboard())
        assert str(board.compare("model-02", "model-01", "maj@3")) == str(
            here.compare("model-02", "model-01", "maj@3")
        )
        assert board.plot.matrix().svg == here.plot.matrix().svg
    with pytest.raises(LakeError, match="no leaderboard here"):
        sl.open(f"{bucket}/nowhere")
