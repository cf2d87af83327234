"""`scorelake publish --postgres`, against a real server on a local socket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import REPO, Cli
from counted import Row, rows, scored
from scorelake.read import postgres

psycopg = pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of its own; skips where Debian's package is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("publish --postgres is not tried here: PostgreSQL is not installed")
    programs = found[-1].parent
    home = Path(tempfile.mkdtemp(prefix="scorelake-pg-"))
    as_owner = []
    if os.getuid() == 0:  # the server refuses to run as root
        shutil.chown(home, "postgres")
        as_owner = ["runuser", "-u", "postgres", "--"]

    def pg(program: str, *arguments: str) -> None:
        subprocess.run([*as_owner, str(programs / program), *arguments], check=True, capture_output=True, cwd=home)

    pg("initdb", "-D", str(home / "data"), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
    options = f"-c listen_addresses='' -c unix_socket_directories={home} -c fsync=off"
    pg("pg_ctl", "-D", str(home / "data"), "-w", "-l", str(home / "log"), "-o", options, "start")
    yield f"postgresql://postgres@/postgres?host={home}"
    pg("pg_ctl", "-D", str(home / "data"), "-m", "immediate", "stop")
    shutil.rmtree(home)


def attempts(c: int, problems: int = 25) -> list[Row]:
    return [{"model": m, "problem_id": f"p{i}", "n": 4, "c": c} for m in ("a", "b,\"'") for i in range(problems)]


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


def test_tables_views_and_comments_arrive_with_the_same_values(server: str, tmp_path: Path, cli: Cli) -> None:
    out = scored(tmp_path, attempts(3))
    done = cli("publish", out, "--postgres", server, "--schema", "first")
    assert done.returncode == 0, done.stderr
    assert "schema first" in done.stderr
    for table in ("leaderboard", "model_summary", "comparison", "problem_counts", "run"):
        columns = [row["column_name"] for row in rows(out, f"DESCRIBE {table}")]
        fields = ", ".join(columns)
        ours = pl.DataFrame(rows(out, f"FROM {table}"), infer_schema_length=None)
        theirs = pl.DataFrame(ask(server, f"SELECT {fields} FROM first.{table}"), schema=columns, orient="row")
        assert ours.rows() or table == "comparison"
        assert sorted(map(repr, ours.rows())) == sorted(map(repr, theirs.rows()))
    comment = "SELECT col_description('first.leaderboard'::regclass, 1), obj_description('first.run'::regclass)"
    assert all(text for text in ask(server, comment)[0])
    assert ask(server, "SELECT to_regclass('first.problem_scores')") == [(None,)]


def test_a_run_is_copied_once_and_the_next_one_replaces_it_for_views_of_others(
    server: str, tmp_path: Path, cli: Cli
) -> None:
    out = scored(tmp_path / "old", attempts(1))
    command = ("--postgres", server, "--schema", "again")
    assert cli("publish", out, *command).returncode == 0
    with psycopg.connect(server) as connection:
        connection.execute("CREATE VIEW public.best AS SELECT max(value) AS value FROM again.leaderboard")
    assert "nothing to do" in cli("publish", out, *command).stderr
    newer = scored(tmp_path / "new", attempts(4))
    assert cli("publish", newer, *command).returncode == 0
    assert ask(server, "SELECT value FROM public.best") == [(1.0,)]


@pytest.mark.parametrize("moment", [1, 4, 8, 12])
def test_a_publication_that_ends_early_leaves_the_run_before_it(
    moment: int, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, real, calls = f"kept{moment}", postgres._batches, list[str]()
    counted = f"(SELECT sum(c)::int FROM {schema}.problem_counts)"
    values = f"SELECT min(value), max(value), {counted} FROM {schema}.leaderboard WHERE metric = 'pass@1'"

    def batches(db: Any, table: str, columns: Any) -> Iterator[bytes]:
        calls.append(table)
        if len(calls) == moment:
            assert ask(server, values) == before, "a reader sees the old run while the new one is copied"
            raise KeyboardInterrupt
        yield from real(db, table, columns)

    assert postgres.publish(scored(tmp_path / "old", attempts(1)), server, schema)
    before, newer = ask(server, values), scored(tmp_path / "new", attempts(4))
    monkeypatch.setattr(postgres, "_batches", batches)
    with pytest.raises(KeyboardInterrupt):
        postgres.publish(newer, server, schema)
    assert ask(server, values) == before
    monkeypatch.undo()
    assert postgres.publish(newer, server, schema)
    assert ask(server, values) == [(1.0, 1.0, 200)]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@localhost/x", "a password on the command line"),
        ("nonsense", "not an address"),
        ("postgresql://me@127.0.0.1:1/x", "nothing was changed there"),
    ],
)
def test_addresses_that_cannot_work_are_explained_without_passwords(
    url: str, message: str, tmp_path: Path, cli: Cli
) -> None:
    done = cli("publish", scored(tmp_path, attempts(2)), "--postgres", url)
    assert done.returncode in (2, 4)
    assert message in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_of_others_and_names_with_nul_are_refused(server: str, tmp_path: Path, cli: Cli) -> None:
    with psycopg.connect(server) as connection:
        connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.run (x int)")
    out = scored(tmp_path / "a", attempts(2))
    done = cli("publish", out, "--postgres", server, "--schema", "theirs")
    assert (done.returncode, "not scorelake's" in done.stderr) == (2, True)
    odd = scored(tmp_path / "b", [row | {"model": "nul\0"} for row in attempts(2)[:25]])
    done = cli("publish", odd, "--postgres", server, "--schema", "odd")
    assert (done.returncode, "NUL" in done.stderr) == (3, True)


def test_the_queries_of_the_example_dashboard_run(server: str, tmp_path: Path) -> None:
    assert postgres.publish(scored(tmp_path, attempts(2)), server)
    dashboard = json.loads((REPO / "docs" / "grafana.json").read_text())
    queries = [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    queries += [panel["targets"][0]["rawSql"] for panel in dashboard["panels"]]
    for query in queries:
        filled = query.replace("$benchmark", "default").replace("$metric", "pass@1")
        assert ask(server, filled.replace("$__timeFilter(started)", "started > 'epoch'")), query
