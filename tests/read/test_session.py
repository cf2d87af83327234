"""Queries: one statement, valid JSON, and nothing that ends in a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Cli, expand, put, run
from scorelake.errors import LakeError, UsageError
from scorelake.read.session import query, reading, to_csv, to_json


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("session")
    put(home / "lake", expand([("a", 4, 2)], model="m"))
    run(home / "lake", home / "out", '[lake]\nexclude = ["x*"]\n[uncertainty]\nconfidence = 0.9\n')
    return home / "out"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (" ;", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; DROP TABLE run", "2 statements"),
        ("SELEC 1", "the query failed"),
    ],
)
def test_one_statement(out: Path, sql: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        query(out, sql)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT ci_low FROM leaderboard", "ci_low is called lo here"),
        ("SELECT l.ci_high FROM leaderboard AS l", "ci_high is called hi here"),
        ("SELECT score FROM leaderboard", "score is called value here"),
        ("SELECT model_name FROM leaderboard", "model_name is called model here"),
        ("FROM scores", "SHOW TABLES"),
        (".tables", "SHOW TABLES"),
        ("SELECT nothing FROM run", ""),
    ],
)
def test_a_wrong_name_is_answered_with_ours(out: Path, sql: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        query(out, sql)
    assert hint in (raised.value.hint or "")


def test_errors_of_a_query_are_printed_as_lines(out: Path, cli: Cli) -> None:
    done = cli("sql", out, "SELECT nothing FROM run")
    assert (done.returncode, "\\n" in done.stderr) == (2, False)
    assert done.stderr.splitlines()[-2:] == ["  LINE 1: SELECT nothing FROM run", f"  {' ' * 15}^^^^^^^"]


def test_times_with_a_zone_need_no_other_library(out: Path) -> None:
    sql = "SELECT TIMESTAMPTZ '2026-02-03 04:05:06Z' AS t, range AS i FROM range(3)"
    columns, rows = query(out, sql, limit=2)
    assert (columns, [row[1] for row in rows]) == (["t", "i"], [0, 1])
    assert [row[0].isoformat() for row in rows] == ["2026-02-03T04:05:06+00:00"] * 2
    assert len(query(out, sql)[1]) == 3


def test_valid_json(out: Path) -> None:
    sql = """
        SELECT 'nan'::DOUBLE AS a, '-inf'::DOUBLE AS b, 1.5::DECIMAL(4, 2) AS c, 2::DECIMAL(4, 0) AS d,
            [1.0, 'nan'::DOUBLE] AS e, {'x': 'inf'::DOUBLE} AS f, DATE '2026-02-03' AS g, 'ü\x1b' AS h, true AS i,
            170141183460469231731687303715884105727::HUGEINT AS j, MAP {'k': 1} AS k, NULL AS l
    """
    (row,) = json.loads(to_json(*query(out, sql)), parse_constant=pytest.fail)
    assert row == {
        "a": None, "b": None, "c": 1.5, "d": 2, "e": [1.0, None], "f": {"x": None}, "g": "2026-02-03", "h": "ü\x1b",
        "i": True, "j": 2**127 - 1, "k": {"k": 1}, "l": None,
    }  # fmt: skip
    with pytest.raises(UsageError, match="two columns are called a"):
        to_json(*query(out, "SELECT 1 AS a, 2 AS a"))
    assert to_csv(*query(out, "SELECT 1 AS a, 2 AS a")) == "a,a\n1,2"


def test_nothing_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(LakeError, match="no leaderboard here"), reading(str(path)):
            pass


def test_tables_are_cut_and_spreadsheets_are_csv(out: Path, cli: Cli) -> None:
    done = cli("sql", out, "SELECT range AS x FROM range(5000)")
    assert done.stdout.count("\n") < 1_020
    assert "these are the first 1,000 rows" in done.stderr
    assert cli("sql", out, "SELECT '=1' AS x, 'm;=1+1' AS y", "--spreadsheet").stdout == "x,y\n'=1,m;'=1+1\n"
    assert cli("sql", out, "SELECT 1", "--spreadsheet", "--format", "json").returncode == 2


@pytest.mark.slow
def test_who_reads_has_seen_enough(out: Path) -> None:
    command = [sys.executable, "-m", "scorelake", "sql", str(out), "SELECT * FROM range(3000000)", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "range\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
