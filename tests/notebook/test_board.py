"""A board returns what the tables and the command line have, from a folder, a file or object storage."""

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
from conftest import FIXTURES, Cli, ask, expand, run
from scorelake.errors import LakeError, UsageError
from scorelake.publish.publication import collect_garbage
from scorelake.publish.snapshot import Output


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("board") / "out"
    run(FIXTURES / "lake", home, metrics=["pass@1", "pass@4", "pass^4"], by=("difficulty",))
    return home


@pytest.fixture
def board(out: Path) -> sl.Board:
    return sl.open(out)


def test_leaderboard(board: sl.Board, out: Path) -> None:
    frame = board.leaderboard("PASS@4")
    assert frame["model"].to_list() == ["model-00", "model-01", "model-02", "model-03"]
    rows = ask(out, "SELECT value, lo, hi FROM leaderboard WHERE metric = 'pass@4' ORDER BY rank")
    assert frame.select("value", "lo", "hi").rows() == rows
    assert frame.columns[:5] == ["model", "value", "lo", "hi", "rank"]
    assert set(frame.columns) == set(board.table("leaderboard").columns)
    assert board.leaderboard()["metric"].unique().to_list() == ["pass@1"]
    subjects = board.leaderboard("pass@1", by="subject")
    assert subjects.columns[:6] == ["subject", "model", "value", "lo", "hi", "rank"]
    assert subjects.height == 4 * subjects["subject"].n_unique() > 4
    assert set(board.leaderboard("pass@1", "synth", by="difficulty")["slice_value"]) == {"easy", "medium", "hard"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (lambda board: board.leaderboard("pass@3"), "no metric pass@3"),
        (lambda board: board.leaderboard("pas@1"), "unknown metric 'pas@1'"),
        (lambda board: board.leaderboard(benchmark="sinth"), "no benchmark sinth here\n.*synth"),
        (lambda board: board.leaderboard(by="colour"), "no slice colour here\n.*difficulty"),
        (lambda board: board.curve("model-0"), "no model model-0 here\n.*model-00"),
        (lambda board: board.curve("model-00", "x"), "no benchmark x"),
        (lambda board: board.table("sumary"), "no table sumary here\n.*_summary"),
        (lambda board: board.sql("SELECT 1; SELECT 2"), "2 statements"),
        (lambda board: board.sql("SELECT 1 AS a, 2 AS a"), "two columns are called a"),
        (lambda board: board.sql("SELECT * FROM read_csv('/etc/passwd')"), "the query failed"),
        (lambda board: board.compare("model-00", "nobody"), "no model nobody"),
        (lambda board: board.compare("model-00", "model-01", protocol=("a", "b", "c")), "two sides"),
        (lambda board: board.plot.curve("nobody"), "no model nobody"),
        (lambda board: board.plot.curve(["model-00"] * 8), "8 curves in one chart\n.*up to 7"),
        (lambda board: board.plot.curve(family="maj@k"), "no family maj@k here\n.*pass@k"),
        (lambda board: board.plot.matrix("x"), "no benchmark x"),
    ],
)
def test_unknown_names_and_failed_queries_are_refused(
    board: sl.Board, query: Callable[[sl.Board], object], message: str
) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        query(board)


def test_curve_and_sql(board: sl.Board, out: Path) -> None:
    ks = board.curve("model-00").filter(family="pass@k")["k"].to_list()
    assert ks == list(range(1, len(ks) + 1))
    several = board.curve(["model-02", "model-00"])
    assert several["model"].unique(maintain_order=True).to_list() == ["model-02", "model-00"]
    assert several.filter(model="model-00").equals(board.curve("model-00"))
    query = "SELECT model, sum(n) AS n, count(*) AS rows FROM problem_counts WHERE c > ? GROUP BY ALL ORDER BY ALL"
    frame = board.sql(query, 2)
    assert frame.rows() == ask(out, query, 2)
    assert frame.schema == {"model": pl.String, "n": pl.Int64, "rows": pl.Int64}
    huge = board.sql("SELECT 9223372036854775807::HUGEINT + 1 AS n, NULL::HUGEINT AS none")
    assert [str(value) for value in huge.row(0)] == ["9223372036854775808", "None"]


@pytest.mark.parametrize("metric", ["pass@4", "maj@3"], ids=["published", "computed now"])
def test_a_comparison_is_what_the_command_prints(board: sl.Board, out: Path, cli: Cli, metric: str) -> None:
    comparison = board.compare("model-02", "model-01", metric)
    printed = cli("compare", out, "model-02", "model-01", "--metric", metric).stdout.strip()
    assert str(comparison) == repr(comparison) == printed
    row = comparison.frame.row(0, named=True)
    assert (row["model_a"], row["model_b"], row["claim"]) == ("model-02", "model-01", "improvement")
    assert f"{row['lift']:+.4f}" in printed
    assert "improvement</strong><table><tr><th" in comparison._repr_html_()


def test_names_with_markup_and_escapes_are_text() -> None:
    names = ["<script>alert(1)</script><b>", "a\x1b[31m&\"'"]
    frame = pl.concat([expand([(f"p{i}", 2, 1) for i in range(25)], model=name) for name in names])
    with sl.score(frame, metrics="pass@1") as board:
        comparison = board.compare(*names)
        drawings = [board.plot.leaderboard(), board.plot.curve(names[0]), board.plot.matrix()]
        html = [board._repr_html_(), comparison._repr_html_(), *(drawing.svg for drawing in drawings)]
        assert sorted(board.leaderboard()["model"]) == sorted(names)
        plain = [str(comparison), repr(board)]
    assert not any("<script" in text or "<b>" in text for text in html)
    assert not any("\x1b" in text for text in [*html, *plain])


def _two_models(best: str) -> pl.DataFrame:
    """Two models at 30 problems; one passes 4 of 5 attempts, the other 2."""
    return pl.concat([expand([(f"p{i}", 5, 4 if m == best else 2) for i in range(30)], model=m) for m in "ab"])


def _lift(board: sl.Board, **options: str) -> float:
    return float(board.compare("a", "b", **options).frame["lift"].item())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_board_is_a_snapshot_of_one_run(tmp_path: Path) -> None:
    """Metrics that no table has come from the counts of the same run, until these are removed."""
    out = tmp_path / "out"
    board = sl.score(_two_models("b"), metrics="pass@1", out=out)
    assert board.report
    first = board.report.run["run_id"]
    assert _lift(board, metric="avg@N") == pytest.approx(0.4)
    sl.score(_two_models("a"), metrics="pass@1", out=out).close()
    assert board.table("run").height == 1
    assert _lift(board, metric="avg@N") == _lift(board, run=first) == pytest.approx(0.4)
    with sl.open(out / "leaderboard.duckdb") as current:
        assert current.table("run").height == 2
        assert _lift(current, metric="pass@1") == pytest.approx(-0.4)
    with sl.open(out) as current:
        assert _lift(current, metric="avg@N") == pytest.approx(-0.4)
        assert _lift(current, run=first) == pytest.approx(0.0)  # a in the first run and b in the second: 2 of 5
        assert current.compare("a", "a", run=first).frame["lift"].to_list() == [pytest.approx(0.4)]
        second = current.sql("SELECT run_id FROM run WHERE shown").item()
    assert _lift(board, run=second) == pytest.approx(0.0)  # 4 of 5 both
    collect_garbage(Output.at(out), 1)
    with pytest.raises(UsageError, match=f"counts of run {first}.* not kept any more"):
        board.compare("a", "b", metric="avg@N")
    assert _lift(board, metric="pass@1") == pytest.approx(0.4)
    board.close()


@pytest.mark.slow
def test_a_board_opened_after_the_next_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    late = sl.score(_two_models("b"), metrics="pass@1", out=out)
    opened = sl.score(_two_models("b"), metrics="pass@1", out=out)
    assert opened.leaderboard()["model"][0] == "b"
    sl.score(_two_models("a"), metrics="pass@1", out=out).close()
    for _ in range(2):
        with pytest.raises(UsageError, match=r"(?s)run \S+ has been published here since run \S+, .*scorelake\.open"):
            late.leaderboard()
    assert opened.leaderboard()["model"][0] == "b"
    opened.close()
    late.close()


@pytest.mark.slow
def test_no_temporary_file_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """After close, after with, and when the board is garbage collected."""
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


@pytest.mark.slow
def test_no_temporary_file_remains_after_the_process(tmp_path: Path) -> None:
    code = (
        "import scorelake as sl; board = sl.score([[0, 1], [1, 1]], metrics='pass@1'); other = sl.score([[1]]); "
        "print(board.leaderboard().height); import sys; sys.exit(3)"
    )
    command, env = [sys.executable, "-W", "error", "-c", code], os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "")
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_leaderboard_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "a" / "b"):
        with pytest.raises(LakeError, match="no leaderboard here"):
            sl.open(folder)
    (tmp_path / "leaderboard.duckdb").write_text("something else")
    with pytest.raises(UsageError, match="cannot be opened"):
        sl.open(tmp_path).leaderboard()


def test_object_storage(bucket: str) -> None:
    """The lake, the output, and the counts for a metric that no table has."""
    upload(FIXTURES / "lake", f"{bucket}/lake")
    sl.score(f"{bucket}/lake", out=f"{bucket}/out", metrics=["pass@1"]).close()
    pair = ("model-02", "model-01", "maj@3")
    with sl.open(f"{bucket}/out") as board, sl.score(FIXTURES / "lake", metrics=["pass@1"]) as local:
        assert board.leaderboard().equals(local.leaderboard())
        assert str(board.compare(*pair)) == str(local.compare(*pair))
        assert board.plot.matrix().svg == local.plot.matrix().svg
    with pytest.raises(LakeError, match="no leaderboard here"):
        sl.open(f"{bucket}/nowhere")
