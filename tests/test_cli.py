"""The command line: exit codes, streams, messages."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import FIXTURES, attempts, expand, put, run
from scorelake import cli as module
from scorelake.cli import lakes
from scorelake.errors import UsageError
from scorelake.read.session import query, reading

GOOD = expand([("a", 4, 2), ("b", 4, 4)], model="m")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    put(tmp_path / "lake", GOOD)
    return tmp_path / "lake"


def test_score_then_everything_else(out: Path, cli) -> None:  # type: ignore[no-untyped-def]
    scored = cli("score", FIXTURES / "lake", "--out", out)
    assert scored.returncode == 0
    assert scored.stdout == "", "data goes to stdout, and score has none"
    assert "graded, " in scored.stderr
    again = cli("score", FIXTURES / "lake", "--out", out)
    assert "No changes in 4 files" in again.stderr
    shown = cli("show", out)
    assert shown.stderr == ""
    assert "model-00" in shown.stdout
    assert "algebra" in cli("show", out, "--by-subject", "--metric", "PASS@4").stdout
    rows = cli("sql", out, "SELECT model, n FROM problem_counts ORDER BY ALL LIMIT 2", "--format", "csv").stdout
    assert rows.splitlines()[0] == "model,n"
    listed = json.loads(cli("sql", out, "SELECT 1 AS a, NULL AS b, 'x' AS c", "--format", "json").stdout)
    assert listed == [{"a": 1, "b": None, "c": "x"}]
    checked = cli("check", out)
    assert checked.returncode == 0
    assert checked.stdout.count("ok") == 4
    assert cli("gc", out, "--keep", 1).returncode == 0


def test_json_on_every_exit_path(out: Path, tmp_path: Path, lake: Path, cli) -> None:  # type: ignore[no-untyped-def]
    def told(*arguments: object) -> dict[str, object]:
        done = cli("score", *arguments, "--json")
        document = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode
        return document  # type: ignore[no-any-return]

    assert told(lake, "--out", out, "--dry-run")["status"] == "planned"
    assert not out.exists(), "a dry run changes nothing"
    document = told(lake, "--out", out)
    assert document["status"] == "published"
    assert document["run"]["rows_read"] == 8  # type: ignore[index]
    assert told(lake, "--out", out)["status"] == "unchanged"
    assert told(tmp_path / "none", "--out", out)["exit_code"] == 5
    assert told(lake, "--out", out, "--metrics", "pas@1")["exit_code"] == 2
    put(lake, attempts(model="m", problem_id=["a"], passed=[2]), "bad.parquet")
    assert told(lake, "--out", out)["exit_code"] == 3


@pytest.mark.parametrize(
    ("frame", "arguments", "code", "says"),
    [
        (GOOD.rename({"passed": "ok"}), (), 2, "and no score (closest: ok)\n  there are: problem_id, ok, model"),
        (GOOD.rename({"model": "who"}), (), 2, '    model = "..."'),
        (GOOD.with_columns(pl.col("passed").cast(pl.String)), (), 3, "column passed is String; it must be boolean"),
        (GOOD.with_columns(problem_id=pl.lit(1.5)), (), 3, "problem_id is Float64; it must be a string or integer"),
        (attempts(model="m", problem_id=["a"], score=["x"]), (), 3, "column score is String; it must be a number"),
        (GOOD.with_columns(passed=pl.lit(3)), (), 3, "8 rows rejected, 0 allowed"),
        (GOOD, ("--metrics", "pass@0"), 2, "pass@0: k must be a whole number >= 1"),
        (GOOD, ("--metrics", "pss@1"), 2, "did you mean pass@1"),
        (GOOD, ("--config", "none.toml"), 2, "no such config file"),
        (GOOD, ("--by", "colour"), 2, "no column colour"),
        (GOOD, ("--column", "modell=m"), 2, "did you mean model? known keys: model, benchmark"),
        (GOOD.head(0), (), 3, "no attempt in any file"),
    ],
)  # fmt: skip
def test_errors_say_what_where_and_what_next(
    out: Path, tmp_path: Path, cli, frame: pl.DataFrame, arguments: tuple[str, ...], code: int, says: str
) -> None:  # type: ignore[no-untyped-def]
    put(tmp_path / "lake", frame)
    done = cli("score", tmp_path / "lake", "--out", out, *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "leaderboard.duckdb").exists()


def test_k_above_n_is_said_not_guessed(out: Path, lake: Path, cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("score", lake, "--out", out, "--metrics", "pass@64").returncode == 0
    shown = cli("show", out, "--metric", "pass@64").stdout
    assert "No value: too few problems have k graded attempts" in shown


def test_wrong_arguments_are_json_too(cli) -> None:  # type: ignore[no-untyped-def]
    done = cli("score", "--json", "lake", "--nope")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["error"]) == (2, 2, "No such option: --nope")


def test_a_metrics_file_that_cannot_be_written_is_mentioned(out: Path, lake: Path, cli) -> None:  # type: ignore[no-untyped-def]
    put(lake, attempts(model="m", problem_id=["a"], passed=True))
    done = cli("score", lake, "--out", out, "--metrics-file", lake / "part-0.parquet" / "x.prom")
    assert done.returncode == 0
    assert "x.prom cannot be written" in done.stderr


@pytest.mark.parametrize("name", ["what?", "back\\slash"])
def test_a_path_that_duckdb_cannot_write_is_a_usage_error(name: str, tmp_path: Path, lake: Path, cli) -> None:  # type: ignore[no-untyped-def]
    put(lake, attempts(model="m", problem_id=["a"], passed=True))
    done = cli("score", lake, "--out", tmp_path / name)
    assert done.returncode == 2
    assert "choose another --out" in done.stderr


def test_sql_cannot_touch_anything_else(out: Path, tmp_path: Path, lake: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    run(lake, out, metrics=["pass@1"])
    before = sorted(tmp_path.rglob("*"))
    for attack in (
        "COPY run TO '{0}/stolen.csv'",
        "SELECT * FROM read_csv('{0}/secret.txt')",
        "SELECT * FROM '{0}/lake/part-0.parquet'",
        "SELECT * FROM read_text('{0}/secret.txt')",
        "ATTACH '{0}/other.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE run",
        "EXPORT DATABASE '{0}/dump'",
    ):
        with reading(str(out)) as folder, pytest.raises(UsageError):
            query(folder, attack.format(tmp_path))
        assert sorted(tmp_path.rglob("*")) == before, attack


def test_a_second_writer_waits_its_turn(out: Path, lake: Path, cli) -> None:  # type: ignore[no-untyped-def]
    from scorelake.publish.snapshot import Output, locked

    with locked(Output(out)):
        done = cli("score", lake, "--out", out)
    assert (done.returncode, "another run is writing here" in done.stderr) == (6, True)


def test_help_is_instant_and_complete(cli) -> None:  # type: ignore[no-untyped-def]
    done = cli("--help")
    assert done.returncode == 0
    for command in ("score", "show", "sql", "synth", "check", "gc"):
        assert f"  {command}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("scorelake.cli", ("polars", "duckdb", "scipy.special", "pyarrow", "pydantic", "rich")),
        ("scorelake.read.show, scorelake.read.session", ("polars", "scipy.special", "pyarrow", "pydantic")),
        ("scorelake.pipeline", ("duckdb", "obstore", "rich")),
    ],
)
def test_commands_load_only_what_they_need(imported: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {imported}; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_progress_is_for_terminals(lake: Path, out: Path) -> None:
    """On a pseudo-terminal the run shows its stages; the pipe of the other tests saw none."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "scorelake", "score", str(lake), "--out", str(out)]
    process = subprocess.Popen(
        command, stderr=follower, stdout=subprocess.DEVNULL, env=os.environ | {"TERM": "xterm"}
    )
    assert process.wait(timeout=60) == 0
    os.close(follower)
    assert b"counting" in os.read(leader, 1 << 16)
    os.close(leader)
    assert module.app.info.name == "scorelake"


@pytest.mark.parametrize(("engine", "threads"), [("local", "3"), ("ray", "7")])
def test_threads_are_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, threads: str) -> None:
    """Here they are Polars'; on a cluster the machine that scores keeps its own."""
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    (tmp_path / "config.toml").write_text("[run]\nthreads = 3\n")
    lakes.load_settings(
        str(tmp_path), None, str(tmp_path / "out"), lakes.EngineName(engine), config=tmp_path / "config.toml"
    )
    assert os.environ["POLARS_MAX_THREADS"] == threads
