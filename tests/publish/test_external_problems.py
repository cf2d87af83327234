"""A leaderboard whose problems stay in the files of the snapshot."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

import scorelake
from conftest import put, run, snapshot
from counted import lake, rows, scored
from looked_at import model
from scorelake.errors import DataError, UsageError
from scorelake.publish.publication import rollback
from scorelake.publish.snapshot import Output, locked
from scorelake.read.check import check
from scorelake.read.session import query, reading

Cli = Callable[..., subprocess.CompletedProcess[str]]
VIEWS = (
    "problem",
    "problem_counts",
    "problem_scores",
    "head_to_head('a', 'b')",
    "pair",
)
COUNTS = [
    {**row, "difficulty": "hard", "it's": 3}
    for row in (*model("a", [3] * 20 + [1] * 20), *model("b", [2] * 40), *model("c", [1] * 40))
]
HOW = {"columns": {"carry": ["difficulty", "it's"]}, "metrics": {"names": ["pass@1", "pass@2"]}, "by": ["difficulty"]}


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    within = scored(tmp_path / "within's", COUNTS, **HOW)
    return within, scored(tmp_path / "apart's [*]", COUNTS, **HOW, publish={"max_problems": 119})


def test_every_view_answers_the_same(both: tuple[Path, Path]) -> None:
    within, apart = both
    for view in VIEWS:
        assert rows(apart, f"FROM {view} ORDER BY ALL") == rows(within, f"FROM {view} ORDER BY ALL"), view
    stats = "SELECT * REPLACE (round(discrimination, 12) AS discrimination) FROM problem_stats ORDER BY ALL"
    assert rows(apart, stats) == rows(within, stats)  # of floats that are added in another order
    with duckdb.connect(str(apart / "leaderboard.duckdb"), read_only=True) as db:
        native = {name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert {"problem_count", "problem_name"}.isdisjoint(native)
        told = "SELECT count(*) FROM duckdb_views() WHERE view_name = 'problem_count' AND comment IS NOT NULL"
        assert db.execute(told).fetchall() == [(1,)]


def test_values_of_problems_stay_apart_too(tmp_path: Path) -> None:
    """Metrics of scores are told problem by problem; `names` needs them, and pairs of both outputs are the same."""
    frame = pl.DataFrame(
        {
            "model": [f"m{i % 3}" for i in range(360)],
            "subject": [f"s{i % 2}" for i in range(360)],
            "problem_id": [i // 9 for i in range(360)],
            "score": [(i * 7 % 11) / 10 for i in range(360)],
        }
    )
    put(tmp_path / "lake", frame)
    settings = '[metrics]\nnames = ["avg@N", "max@2"]\n[run]\nbucket_rows = 10\n[publish]\nmax_problems = '
    outs = [tmp_path / "within", tmp_path / "apart"]
    for out, most in zip(outs, (10**9, 1), strict=True):
        run(tmp_path / "lake", out, f"{settings}{most}\n")
    assert len(list(snapshot(outs[0]).glob("problem_score/*.parquet"))) > 1
    for view in ("problem_scores", "problem_counts", "pair", "model_summary"):
        within, apart = (rows(out, f"FROM {view} ORDER BY ALL") for out in outs)
        assert within == apart, view
    (value,) = rows(outs[1], "SELECT avg(value) AS mean FROM problem_scores WHERE metric = 'avg@N' AND model = 'm0'")
    (told,) = rows(outs[1], "SELECT value FROM model_summary WHERE metric = 'avg@N' AND model = 'm0'")
    assert value["mean"] == pytest.approx(told["value"], rel=1e-12)
    with duckdb.connect(str(outs[1] / "leaderboard.duckdb"), read_only=True) as db:
        native = {name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert {"problem_count", "problem_name", "problem_score"}.isdisjoint(native)


def test_our_own_queries_reach_these_files_and_no_others(both: tuple[Path, Path], tmp_path: Path) -> None:
    within, apart = both
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with reading(str(apart)) as folder:
        assert query(folder, "SELECT count(*) FROM problem_counts", problems=True)[1] == [(120,)]
        assert query(folder, "SELECT count(*) FROM problem_stats", problems=True)[1] == [(40,)]
        for other in (secret, apart / "snapshots" / ".." / "runs.parquet", within / "snapshots" / "x.csv"):
            with pytest.raises(UsageError, match=r"disabled|Permission"):
                query(folder, f"FROM '{quoted(other)}'", problems=True)
        with pytest.raises(UsageError, match="locked"):
            query(folder, "SET enable_external_access = true", problems=True)
    with reading(str(within)) as folder, pytest.raises(UsageError, match=r"disabled|Permission"):
        query(folder, f"FROM read_parquet('{quoted(within / 'snapshots')}/*/problem_score.parquet')", problems=True)


def quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def files(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "attack",
    [
        "COPY (SELECT 1 AS x) TO '{run}/model_summary.parquet' (FORMAT parquet)",
        "COPY (SELECT 1 AS x) TO '{run}/problem_score.parquet' (FORMAT parquet)",
        "COPY (SELECT 1 AS x) TO '{home}/evil.csv'",
        "COPY (SELECT 1 AS x) TO '{home}/parts' (FORMAT parquet, PARTITION_BY x)",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS x) TO '{home}/evil.csv'",
        "EXPORT DATABASE '{home}/dump'",
        "ATTACH '{home}/evil.duckdb' AS evil",
        "FROM read_parquet('{run}/model_summary.parquet')",
        "FROM read_text('{run}/manifest.json')",
        "FROM glob('{home}/*')",
    ],
)
def test_a_query_of_somebody_reaches_no_file(both: tuple[Path, Path], attack: str) -> None:
    _, apart = both
    run_id = rows(apart, "SELECT run_id FROM run WHERE shown")[0]["run_id"]
    home = apart / "snapshots"
    sql = attack.format(home=quoted(home), run=quoted(home / run_id))
    before = files(apart)
    with scorelake.open(apart) as board:
        for ask in (board.sql, board.rows):
            with pytest.raises(UsageError):
                ask(sql)
    assert files(apart) == before


def test_a_query_of_somebody_for_problems_is_told_where_they_are(both: tuple[Path, Path]) -> None:
    within, apart = both
    with scorelake.open(apart) as board:
        for view in ("problem_counts", "problem_stats", "problem_scores", "head_to_head('a', 'b')"):
            for ask in (board.sql, board.rows):
                with pytest.raises(UsageError, match=r"stay in files \(.*snapshots.*parquet\)") as told:
                    ask(f"FROM {view}")
                assert "board.table" in str(told.value)
        assert board.sql("FROM pair ORDER BY ALL").height
        assert board.sql("FROM leaderboard").height
    with scorelake.open(within) as board:
        assert board.sql("FROM problem_counts").height == 120


def test_everything_else_goes_on(both: tuple[Path, Path], tmp_path: Path) -> None:
    _, apart = both
    assert all(finding.ok for finding in check(Output(apart)))
    board = scorelake.open(apart)
    assert board.table("problem_counts").height == 120
    first = rows(apart, "SELECT run_id FROM run WHERE shown")[0]["run_id"]
    config = '[publish]\nmax_problems = 1\n[metrics]\nnames = ["pass@1"]'
    assert run(lake(tmp_path / "more", COUNTS), apart, config).status == "published"
    out = Output(apart)
    with locked(out):
        rollback(out.fresh(), first)
    assert len(rows(apart, "FROM problem_counts")) == 120


def test_an_output_that_was_moved_is_published_again(both: tuple[Path, Path], tmp_path: Path, cli: Cli) -> None:
    _, apart = both
    lake_, moved = apart.parent / "lake", tmp_path / "moved's [*]"
    toml = tmp_path / "apart.toml"
    toml.write_text(
        'by = ["difficulty"]\n[columns]\ncarry = ["difficulty", "it\'s"]\n[publish]\nmax_problems = 119\n'
    )
    score = ("score", lake_, "--config", toml, "--metrics", "pass@1,pass@2", "--quiet", "--out")
    assert cli(*score, apart).returncode == 0
    before = len(rows(apart, "FROM run"))
    assert cli(*score, apart).returncode == 0
    assert len(rows(apart, "FROM run")) == before
    apart.rename(moved)
    for command in (
        ("check", moved),
        ("page", moved, "--html", tmp_path / "x.html"),
        ("export", moved, tmp_path / "x"),
    ):
        told = cli(*command)
        assert told.returncode == 3, told.stderr
        assert "score" in told.stderr
        assert "Traceback" not in told.stderr
    told = cli("show", moved)
    assert told.returncode == 0, told.stderr  # which needs no problems
    again = cli(*score, moved)
    assert again.returncode == 0, again.stderr
    assert len(rows(moved, "FROM run")) == before + 1
    assert len(rows(moved, "FROM problem_counts")) == 120
    assert cli("check", moved).returncode == 0
    link = tmp_path / "link"
    link.symlink_to(moved)
    assert cli(*score, link).returncode == 0
    assert len(rows(moved, "FROM run")) == before + 1  # a link to it is no other place


def test_a_leaderboard_that_was_copied_alone_says_so(both: tuple[Path, Path], tmp_path: Path) -> None:
    _, apart = both
    alone = tmp_path / "alone" / "leaderboard.duckdb"
    alone.parent.mkdir()
    alone.write_bytes((apart / "leaderboard.duckdb").read_bytes())
    with scorelake.open(alone) as board:
        assert board.leaderboard("pass@1").height == 3
        with pytest.raises(DataError, match="not with it") as told:
            board.table("problem_counts")
        assert "scorelake score" in str(told.value)


def test_views_hold_where_they_were_made(
    both: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, apart = both
    first = rows(apart, "SELECT run_id FROM run WHERE shown")[0]["run_id"]
    monkeypatch.chdir(apart.parent)
    with Output.at("out").held() as out:
        rollback(out, first)
    monkeypatch.chdir(tmp_path)
    assert len(rows(apart, "FROM problem_counts")) == 120
