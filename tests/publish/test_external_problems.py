"""A leaderboard whose problems stay in the files of the snapshot ([publish] max_problems)."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

import scorelake
from conftest import Cli, put, run
from counted import rows, scored
from looked_at import model
from scorelake.errors import DataError, UsageError
from scorelake.read.session import query, reading

COUNTS = [
    {**row, "difficulty": "hard", "it's": 3}
    for row in (*model("a", [3] * 20 + [1] * 20), *model("b", [2] * 40), *model("c", [1] * 40))
]
SETTINGS = {
    "columns": {"carry": ["difficulty", "it's"]},
    "metrics": {"names": ["pass@1", "pass@2"]},
    "by": ["difficulty"],
}


def external_output(home: Path) -> Path:
    return scored(home / "external's [*]", COUNTS, **SETTINGS, publish={"max_problems": 119})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One output with tables of problems, one with views over files; neither is changed."""
    home = tmp_path_factory.mktemp("both")
    return scored(home / "internal's", COUNTS, **SETTINGS), external_output(home)


def native_tables(out: Path) -> set[str]:
    with duckdb.connect(str(out / "leaderboard.duckdb"), read_only=True) as db:
        return {name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def current_run(out: Path) -> str:
    return str(rows(out, "SELECT run_id FROM run WHERE shown")[0]["run_id"])


def quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def test_every_view_answers_the_same(both: tuple[Path, Path]) -> None:
    internal, external = both
    for view in ("problem_counts", "problem_scores", "head_to_head('a', 'b')", "pair"):
        assert rows(external, f"FROM {view} ORDER BY ALL") == rows(internal, f"FROM {view} ORDER BY ALL"), view
    stats = "SELECT * REPLACE (round(discrimination, 12) AS discrimination) FROM problem_stats ORDER BY ALL"
    assert rows(external, stats) == rows(internal, stats)  # floats are added in another order
    assert {"problem_count", "problem_name"}.isdisjoint(native_tables(external))
    comments = "SELECT comment FROM duckdb_views() WHERE view_name = 'problem_count' AND comment IS NOT NULL"
    assert len(rows(external, comments)) == 1


@pytest.mark.slow
def test_values_per_problem_stay_in_files_too(tmp_path: Path) -> None:
    """Metrics of scores have one value per problem."""
    scores = [{"model": f"m{i % 3}", "problem_id": i // 9, "score": i * 7 % 11 / 10} for i in range(360)]
    put(tmp_path / "lake", pl.DataFrame(scores))
    settings = '[metrics]\nnames = ["avg@N", "max@2"]\n[run]\nbucket_rows = 10\n[publish]\nmax_problems = '
    for limit in (10**9, 1):
        run(tmp_path / "lake", tmp_path / str(limit), f"{settings}{limit}\n")
    for view in ("problem_scores", "problem_counts"):
        internal, external = (rows(tmp_path / str(limit), f"FROM {view} ORDER BY ALL") for limit in (10**9, 1))
        assert internal == external, view
    assert {"problem_count", "problem_name", "problem_score"}.isdisjoint(native_tables(tmp_path / "1"))


def test_our_own_queries_reach_these_files_and_no_others(both: tuple[Path, Path], tmp_path: Path) -> None:
    internal, external = both
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with reading(str(external)) as folder:
        assert query(folder, "SELECT count(*) FROM problem_counts", problems=True)[1] == [(120,)]
        assert query(folder, "SELECT count(*) FROM problem_stats", problems=True)[1] == [(40,)]
        for other in (secret, external / "snapshots" / ".." / "runs.parquet", internal / "snapshots" / "x.csv"):
            with pytest.raises(UsageError, match=r"disabled|Permission"):
                query(folder, f"FROM '{quoted(other)}'", problems=True)
        with pytest.raises(UsageError, match="locked"):
            query(folder, "SET enable_external_access = true", problems=True)
    files = f"{quoted(internal / 'snapshots')}/*/problem_score.parquet"
    with reading(str(internal)) as folder, pytest.raises(UsageError, match=r"disabled|Permission"):
        query(folder, f"FROM read_parquet('{files}')", problems=True)


ATTACKS = (
    "COPY (SELECT 1 AS x) TO '{run}/model_summary.parquet' (FORMAT parquet)",
    "COPY (SELECT 1 AS x) TO '{home}/evil.csv'",
    "COPY (SELECT 1 AS x) TO '{home}/parts' (FORMAT parquet, PARTITION_BY x)",
    "EXPORT DATABASE '{home}/dump'",
    "ATTACH '{home}/evil.duckdb' AS evil",
    "FROM read_parquet('{run}/model_summary.parquet')",
    "FROM read_text('{run}/manifest.json')",
    "FROM glob('{home}/*')",
)


@pytest.mark.slow
def test_a_query_of_a_user_reaches_no_file(both: tuple[Path, Path]) -> None:
    _, external = both
    home = external / "snapshots"
    before = {path: path.read_bytes() for path in sorted(external.rglob("*")) if path.is_file()}
    with scorelake.open(external) as board:
        for attack in ATTACKS:
            sql = attack.format(home=quoted(home), run=quoted(home / current_run(external)))
            with pytest.raises(UsageError):
                board.sql(sql)
    assert {path: path.read_bytes() for path in sorted(external.rglob("*")) if path.is_file()} == before


def test_a_query_of_a_user_for_problems_names_the_files(both: tuple[Path, Path]) -> None:
    internal, external = both
    with scorelake.open(external) as board:
        for view in ("problem_counts", "head_to_head('a', 'b')"):
            with pytest.raises(UsageError, match=r"are in files \(.*snapshots.*parquet\)(.|\n)*board.table"):
                board.sql(f"FROM {view}")
        assert board.sql("FROM pair ORDER BY ALL").height
        assert board.table("problem_counts").height == 120
    with scorelake.open(internal) as board:
        assert board.sql("FROM problem_counts").height == 120


def test_an_output_that_was_moved_is_published_again(tmp_path: Path, cli: Cli) -> None:
    out, moved, toml = external_output(tmp_path), tmp_path / "moved's [*]", tmp_path / "external.toml"
    toml.write_text(
        'by = ["difficulty"]\n[columns]\ncarry = ["difficulty", "it\'s"]\n[publish]\nmax_problems = 119\n'
    )
    score = ("score", out.parent / "lake", "--config", toml, "--metrics", "pass@1,pass@2", "--quiet", "--out")
    assert cli(*score, out).returncode == 0
    before = len(rows(out, "FROM run"))
    assert cli(*score, out).returncode == 0
    assert len(rows(out, "FROM run")) == before
    out.rename(moved)
    for command, *options in (("check",), ("page", "--html", tmp_path / "x.html"), ("export", tmp_path / "x")):
        done = cli(command, moved, *options)
        assert done.returncode == 3, done.stderr
        assert "score" in done.stderr
        assert "Traceback" not in done.stderr
    assert cli("show", moved).returncode == 0  # needs no problems
    assert cli(*score, moved).returncode == 0
    assert len(rows(moved, "FROM run")) == before + 1
    assert len(rows(moved, "FROM problem_counts")) == 120
    assert cli("check", moved).returncode == 0
    link = tmp_path / "link"
    link.symlink_to(moved)
    assert cli(*score, link).returncode == 0
    assert len(rows(moved, "FROM run")) == before + 1, "a link is not another location"


def test_a_leaderboard_copied_without_its_files_names_them(both: tuple[Path, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "leaderboard.duckdb"
    copy.parent.mkdir()
    copy.write_bytes((both[1] / "leaderboard.duckdb").read_bytes())
    with scorelake.open(copy) as board:
        assert board.leaderboard("pass@1").height == 3
        with pytest.raises(DataError, match="files that are missing") as raised:
            board.table("problem_counts")
        assert "scorelake score" in str(raised.value)
