"""The command line: exit codes, streams, messages."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import FIXTURES, Cli, attempts, call, expand, put, run
from scorelake.cli import lakes
from scorelake.publish.snapshot import Output, locked

GOOD = expand([("a", 4, 2), ("b", 4, 4)], model="m")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return put(tmp_path / "lake", GOOD).parent


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published") / "out"
    run(FIXTURES / "lake", out, metrics=["pass@1", "pass@4", "pass^64"])
    return out


def test_score_prints_to_stderr_only(out: Path, cli: Cli) -> None:
    scored = cli("score", FIXTURES / "lake", "--out", out)
    assert (scored.returncode, scored.stdout) == (0, ""), "data goes to stdout, and score has none"
    assert "graded, " in scored.stderr
    assert "No changes in 4 files" in call("score", FIXTURES / "lake", "--out", out).stderr
    assert call("score", FIXTURES / "lake", "--out", out, "--quiet", "--metrics", "pass@1").stderr == ""


def test_commands_about_an_output(published: Path) -> None:
    shown = call("show", published)
    assert (shown.stderr, "model-00" in shown.stdout) == ("", True)
    assert "algebra" in call("show", published, "--by-subject", "--metric", "PASS@4").stdout
    above_n = call("show", published, "--metric", "pass^64").stdout
    assert "No value: too few problems have k graded attempts" in above_n
    rows = call(
        "sql", published, "SELECT model, n FROM problem_counts ORDER BY ALL LIMIT 2", "--format", "csv"
    ).stdout
    assert rows.splitlines()[0] == "model,n"
    listed = call("sql", published, "SELECT 1 AS a, NULL AS b, 'x' AS c", "--format", "json").stdout
    assert json.loads(listed) == [{"a": 1, "b": None, "c": "x"}]
    checked = call("check", published)
    assert (checked.returncode, checked.stdout.count("ok")) == (0, 4)
    assert call("gc", published, "--keep", 1).returncode == 0


def test_json_is_one_document_on_every_exit_path(out: Path, published: Path, tmp_path: Path, lake: Path) -> None:
    def document(*arguments: object) -> dict[str, object]:
        done = call(*arguments, "--json")
        document = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode
        return document  # type: ignore[no-any-return]

    assert document("score", lake, "--out", out, "--dry-run")["status"] == "planned"
    assert not out.exists(), "a dry run changes nothing"
    first = document("score", lake, "--out", out)
    assert (first["status"], first["run"]["rows_read"]) == ("published", 8)  # type: ignore[index]
    assert document("score", lake, "--out", out)["status"] == "unchanged"
    assert document("score", tmp_path / "none", "--out", out)["exit_code"] == 5
    assert document("score", lake, "--out", out, "--metrics", "pas@1")["exit_code"] == 2
    put(lake, attempts(model="m", problem_id=["a"], passed=[2]), "bad.parquet")
    assert document("score", lake, "--out", out)["exit_code"] == 3
    assert document("ingest", "auto", tmp_path / "none", "--lake", tmp_path / "other")["exit_code"] == 5
    assert document("gate", published, "model-00", "model-01")["exit_code"] == 3
    assert document("gate", published, "model-00", "model-01", "--margin", 0.5)["exit_code"] == 0
    assert document("gate", published, "model-00", "nobody")["exit_code"] == 2
    assert document("plan", published)["exit_code"] == 0
    assert document("plan", published, "--question", "why")["exit_code"] == 2


def test_wrong_arguments_are_json_too(cli: Cli) -> None:
    done = cli("score", "--json", "lake", "--nope")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["error"]) == (2, 2, "No such option: --nope")


@pytest.mark.parametrize(
    ("frame", "arguments", "code", "message"),
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
        (GOOD, ("--address", "auto"), 2, "add --engine ray"),
        (GOOD.head(0), (), 3, "no attempt in any file"),
    ],
)  # fmt: skip
def test_errors_say_what_where_and_what_next(
    out: Path, tmp_path: Path, frame: pl.DataFrame, arguments: tuple[str, ...], code: int, message: str
) -> None:
    put(tmp_path / "lake", frame)
    done = call("score", tmp_path / "lake", "--out", out, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "leaderboard.duckdb").exists()


def test_a_metrics_file_that_cannot_be_written_is_mentioned(out: Path, lake: Path) -> None:
    done = call("score", lake, "--out", out, "--metrics-file", lake / "part-0.parquet" / "x.prom")
    assert done.returncode == 0
    assert "x.prom cannot be written" in done.stderr


def test_outputs_that_cannot_be_written(tmp_path: Path, lake: Path) -> None:
    for name in ("what?", "back\\slash"):
        done = call("score", lake, "--out", tmp_path / name)
        assert (done.returncode, "choose another --out" in done.stderr) == (2, True)
    done = call("synth", "s3://bucket/lake")
    assert (done.returncode, done.stderr.startswith("error: s3://bucket/lake: synth writes to a disk")) == (2, True)
    with locked(Output(tmp_path / "out")):
        done = call("score", lake, "--out", tmp_path / "out")
    assert (done.returncode, "another run is writing here" in done.stderr) == (6, True)


def test_sql_cannot_touch_anything_else(published: Path) -> None:
    (published.parent / "secret.txt").write_text("secret")
    before = sorted(published.parent.rglob("*"))
    for attack in (
        "COPY run TO '{0}/stolen.csv'",
        "SELECT * FROM read_csv('{0}/secret.txt')",
        "SELECT * FROM '{0}/out/history.parquet'",
        "SELECT * FROM read_text('{0}/secret.txt')",
        "ATTACH '{0}/other.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE run",
        "EXPORT DATABASE '{0}/dump'",
    ):
        assert call("sql", published, attack.format(published.parent)).returncode == 2, attack
        assert sorted(published.parent.rglob("*")) == before, attack


def test_help_fits_a_terminal() -> None:
    """Every command is listed with a whole sentence, and no line is longer than 80 characters."""
    lines = call("--help").stdout.splitlines()
    commands = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line]
    assert {"score", "show", "sql", "synth", "check", "gc", "quick"} <= set(commands)
    for command in commands:
        lines += call(command, "--help").stdout.splitlines()
    assert [line for line in lines if len(line) > 80 or (line[:2] == "  " and line.endswith("..."))] == []


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
    subprocess.run(command, stderr=follower, check=True, timeout=60, env=os.environ | {"TERM": "xterm"})
    os.close(follower)
    assert b"counting" in os.read(leader, 1 << 16)
    os.close(leader)


@pytest.mark.parametrize(("engine", "threads"), [("local", "3"), ("ray", "7")])
def test_threads_are_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, threads: str) -> None:
    """Here they are Polars'; on a cluster the machine that scores keeps its own."""
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    config = tmp_path / "config.toml"
    config.write_text("[run]\nthreads = 3\n")
    lakes.load_settings(str(tmp_path), None, str(tmp_path / "out"), engine, config=config)
    assert os.environ["POLARS_MAX_THREADS"] == threads
