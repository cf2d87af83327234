"""Publication is atomic, and what was published is repaired or refused whatever happens to it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from conftest import Cli, ask, expand, failed_checks, night, nights, put, run, tables
from scorelake import pipeline as module
from scorelake.errors import DataError, LakeError, LockedError, StorageError, UsageError
from scorelake.publish.publication import collect_garbage, rollback
from scorelake.publish.snapshot import Output, locked
from scorelake.read.session import query, reading
from scorelake.storage import disk

pytestmark = pytest.mark.slow


def shown(out: Path) -> str:
    """The run that is shown, asked of a copy: somebody may have the file open."""
    with reading(str(out)) as copy:
        return str(query(copy, "SELECT run_id FROM run WHERE shown")[1][0][0])


def passes(out: Path) -> list[tuple[Any, ...]]:
    sql = "SELECT model, value, problems FROM model_summary WHERE metric = 'pass@1' ORDER BY model"
    with reading(str(out)) as copy:
        return query(copy, sql)[1]


def equals_a_fresh_run(lake: Path, out: Path) -> None:
    run(lake, out.with_name("fresh"))
    assert tables(out) == tables(out.with_name("fresh"))


# --- one truth about what is shown ------------------------------------------------------------------------------


def test_somebody_else_has_published_all_the_same(
    lake: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks do not hold (some network file systems), a run whose base is no longer shown publishes nothing."""
    nights(lake, out)
    night(lake, 1)
    shutil.copytree(out, tmp_path / "other")
    run(lake, tmp_path / "other")
    real = module.publish

    def overtaken(*arguments: Any) -> None:
        os.replace(tmp_path / "other" / "leaderboard.duckdb", out / "leaderboard.duckdb")
        real(*arguments)

    monkeypatch.setattr(module, "publish", overtaken)
    before = {path.name for path in (out / "snapshots").iterdir()}
    with pytest.raises(LockedError):
        run(lake, out)
    assert {path.name for path in (out / "snapshots").iterdir()} == before, (
        "a run that came to nothing leaves nothing"
    )


HOLDER = """
import duckdb, sys
db = duckdb.connect(sys.argv[1])
db.execute(sys.argv[2])
print("open", flush=True)
input()
"""


@contextmanager
def session(out: Path, sql: str = "SELECT 1") -> Iterator[None]:
    """Hold a session with DuckDB's default mode, which locks the file against other processes."""
    command = [sys.executable, "-c", HOLDER, str(out / "leaderboard.duckdb"), sql]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        process.communicate("\n")


def test_a_session_that_somebody_left_open(lake: Path, out: Path, cli: Cli) -> None:
    nights(lake, out)
    night(lake, 1)
    (out / "published.json").unlink()  # as on another machine
    with session(out):
        assert cli("score", lake, "--out", out).returncode == 0
    with session(out):
        for command in (("show", out), ("sql", out, "SELECT 1"), ("check", out), ("runs", out), ("gc", out)):
            done = cli(*command)
            assert done.returncode == 0, (command, done.stderr)
    assert passes(out) == [("m", 0.5, 2)]


def test_what_a_session_wrote_does_not_reach_the_next_board(lake: Path, out: Path) -> None:
    """DuckDB keeps changes in a file beside, and applies them to whatever lies there under the board's name."""
    nights(lake, out)
    with session(out, "UPDATE model_summary SET value = 0.99"):
        assert (out / "leaderboard.duckdb.wal").exists()
        assert failed_checks(out) == ["leaderboard.duckdb"]
        assert any("leaderboard.duckdb.wal" in warning for warning in run(lake, out).warnings)
        assert ask(out, "SELECT DISTINCT value FROM model_summary WHERE metric = 'pass@1'") == [(0.5,)]
    assert failed_checks(out) == []


@pytest.mark.parametrize(
    "edit",
    [
        "CREATE OR REPLACE VIEW leaderboard AS SELECT 'm' AS model, 1.0 AS value",
        "UPDATE source.board SET run_id = 'another'",
    ],
)
def test_a_board_that_was_changed_by_hand(lake: Path, out: Path, edit: str) -> None:
    nights(lake, out)
    assert failed_checks(out) == []
    with duckdb.connect(str(out / "leaderboard.duckdb")) as db:
        db.execute(edit)
    assert "leaderboard.duckdb" in failed_checks(out)
    report = run(lake, out)
    assert report.status == "published"
    assert any("was changed after it was published" in warning for warning in report.warnings)
    assert failed_checks(out) == []
    assert passes(out) == [("m", 0.5, 1)]
    assert ask(out, "SELECT count(DISTINCT run_id) FROM history") == [(2,)]


@pytest.mark.parametrize("how", ["garbage", "gone", "folder", "an older board"])
def test_a_board_that_was_replaced(lake: Path, out: Path, how: str) -> None:
    nights(lake, out)
    older = (out / "leaderboard.duckdb").read_bytes()
    night(lake, 1)
    run(lake, out)
    board = out / "leaderboard.duckdb"
    board.unlink()
    if how == "garbage":
        board.write_bytes(b"precious" * 1000)
    elif how == "folder":
        board.mkdir()
        (board / "precious").touch()
    elif how == "an older board":
        board.write_bytes(older)
    report = run(lake, out)
    assert report.status == "published"
    equals_a_fresh_run(lake, out)
    assert failed_checks(out) == []
    assert ask(out, "SELECT count(*) FROM run") == [(3,)], "history knows every run"
    kept = list((out / "set-aside").glob("leaderboard.duckdb.*"))
    assert len(kept) == (how not in ("gone", "an older board")), "what is not ours is not lost"
    assert run(lake, out).status == "unchanged"


# --- ours or not ------------------------------------------------------------------------------------------------


def test_gc_of_a_folder_that_is_none_of_ours(lake: Path, tmp_path: Path, cli: Cli) -> None:
    put(tmp_path / "data" / "snapshots" / "20260101T000000Z-0123abcd", expand([("a", 4, 2)], model="m"))
    put(tmp_path / "data" / "partials" / ("0" * 32), expand([("a", 4, 2)], model="m"))
    before = sorted(tmp_path.rglob("*"))
    for command in (("gc", tmp_path / "data"), ("rollback", tmp_path / "data", "20260101T000000Z-0123abcd")):
        done = cli(*command)
        assert (done.returncode, "not an output of scorelake" in done.stderr) == (5, True)
    assert cli("gc", tmp_path / "nowhere").returncode == 5
    assert sorted(tmp_path.rglob("*")) == before
    night(lake, 0)
    with pytest.raises(DataError, match="contains snapshots, which scorelake did not write"):
        run(lake, tmp_path / "data")


@pytest.mark.parametrize("name", [".lock", "snapshots", "partials"])
def test_no_link_is_followed_for_writing(lake: Path, out: Path, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    nights(lake, out)
    (precious / "folder").mkdir(parents=True)
    (precious / "file").write_text("precious")
    if name == ".lock":
        (out / name).unlink()
    else:
        shutil.rmtree(out / name)
    os.symlink(precious / "file" if name == ".lock" else precious / "folder", out / name)
    night(lake, 1)
    with pytest.raises((StorageError, UsageError), match=r"is a link|is not a regular file"):
        run(lake, out)
    assert (precious / "file").read_text() == "precious"
    assert list((precious / "folder").iterdir()) == []


DAMAGE = [b"\xff\xfe\x00", b'{"run": 3}', b"[" * 100_000]


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake and its output, which nobody changes."""
    home = tmp_path_factory.mktemp("first night")
    nights(home / "lake", home / "out")
    return home


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("which", ["manifest.json", "shard.json", "scorelake-output.json", "published.json"])
def test_damaged_state_is_named_and_mended(first_night: Path, tmp_path: Path, which: str, damage: bytes) -> None:
    lake, out = first_night / "lake", tmp_path / "out"
    shutil.copytree(first_night / "out", out)
    (path,) = out.rglob(which)
    path.write_bytes(damage)
    report = run(lake, out)
    if which == "manifest.json":
        assert any("manifest.json is damaged" in warning for warning in report.warnings)
        assert list((out / "set-aside").iterdir())
    assert tables(out) == tables(first_night / "out")
    assert failed_checks(out) == []
    assert run(lake, out).status == "unchanged"


@pytest.mark.parametrize(("before", "after"), [('"read": 4', '"read": 5'), ('"problems": 1', '"problems": "1"')])
def test_a_partial_that_says_something_else(lake: Path, out: Path, before: str, after: str) -> None:
    """Valid JSON of the right shape with something wrong in it is not believed."""
    nights(lake, out)
    (path,) = out.rglob("shard.json")
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    assert run(lake, out).files_read == 1
    equals_a_fresh_run(lake, out)


def test_an_output_inside_its_lake(lake: Path, tmp_path: Path) -> None:
    for i in range(3):
        night(lake, i)
        assert run(lake, lake / "scores").problems == i + 1
    assert run(lake, lake / "scores").status == "unchanged"
    assert run(lake, tmp_path / "elsewhere").problems == 3, "an output of ours is part of no lake"
    with pytest.raises(LakeError, match="is an output of scorelake"):
        run(tmp_path / "elsewhere", tmp_path / "other")
    assert failed_checks(lake / "scores") == []


@pytest.mark.parametrize("lake", [".", "data", "data/more"])
def test_a_lake_inside_its_output(tmp_path: Path, lake: str) -> None:
    put(tmp_path / "data" / "more", expand([("a", 4, 2)], model="m"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="the lake lies in the output"):
        run(tmp_path / lake, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_files_can_be_left_out(lake: Path, out: Path) -> None:
    for date in ("2026-02-03", "2026-02-04"):
        put(lake, expand([(f"p{date}", 4, 2)], model="m"), f"date={date}/a.parquet")
    (lake / "date=2026-02-04" / "bad.parquet").write_text("no")
    with pytest.raises(DataError, match="cannot be read"):
        run(lake, out)
    config = '[lake]\nexclude = ["date=2026-02-04/*", "date=1999/*"]\n'
    report = run(lake, out, config)
    assert report.warnings == ("[lake] exclude: no file matches date=1999/*",)
    assert ask(out, "SELECT files, excluded FROM run") == [(1, 2)]
    assert "date=2026-02-04" in ask(out, "SELECT value FROM setting WHERE key = 'lake.exclude'")[0][0]
    assert failed_checks(out) == []
    with pytest.raises(LakeError, match="leaves none of 3 Parquet files"):
        run(lake, out, '[lake]\nexclude = ["*"]\n')


# --- history for ever ------------------------------------------------------------------------------------------


def test_nights_with_gc_every_night(lake: Path, out: Path) -> None:
    for i in range(4):
        night(lake, i)
        run(lake, out)
        with locked(Output(out)):
            collect_garbage(Output(out), 1)
    assert len(list((out / "snapshots").iterdir())) == 1
    sql = "FROM history AS h JOIN run USING (run_id, number) WHERE metric = 'pass@1' ORDER BY number"
    rows = ask(out, f"SELECT number, h.problems, attempts, settings {sql}")
    assert [row[:3] for row in rows] == [(i + 1, i + 1, 4 * (i + 1)) for i in range(4)]
    assert pl.read_parquet(out / "history.parquet")["run_id"].n_unique() == 4
    assert failed_checks(out) == []


# --- what changed, and undo ------------------------------------------------------------------------------------


def fallen(lake: Path, share: float) -> None:
    for model in ("m", "n"):
        put(lake, expand([(f"p{i}", 20, int(20 * share)) for i in range(40)], model=model), f"{model}.parquet")


def test_a_fall_of_all_models_is_told(lake: Path, out: Path) -> None:
    fallen(lake, 0.8)
    put(lake, expand([("q", 4, 2)], model="old"), "old.parquet")
    first = run(lake, out)
    assert first.warnings == ()
    fallen(lake, 0.55)
    (lake / "old.parquet").unlink()
    put(lake, expand([("q", 4, 2)], model="new"), "new.parquet")
    report = run(lake, out, "[uncertainty]\nconfidence = 0.9\n")
    assert len(report.warnings) == 2
    assert "default / m: pass@1 0.8000 to 0.5500, -0.2500 (" in report.warnings[0]
    change = report.change
    assert change is not None
    assert (change.files.new, change.files.changed, change.files.gone) == (1, 2, 1)
    assert (change.new, change.gone, change.settings) == (("new",), ("old",), ("uncertainty.confidence",))
    rows = ask(out, "SELECT model, what, outside, settings_changed FROM change WHERE metric = 'pass@1' ORDER BY ALL")
    assert rows == [("m", "moved", True, True), ("n", "moved", True, True), ("new", "new", False, True),
                    ("old", "gone", False, True)]  # fmt: skip


def test_a_board_does_not_lose_its_values_unnoticed(lake: Path, out: Path) -> None:
    run(expand([("a", 8, 4), ("b", 8, 2)], model="m"), out)
    with pytest.raises(DataError, match="would lose every value"):
        run(lake, out, metrics=["pass@16"])
    assert passes(out) == [("m", 0.375, 2)]
    put(lake, expand([("a", 4, 2), ("b", 4, 1)], model="m"))
    with pytest.raises(DataError, match=r"would lose every value of maj@8, pass@8, pass\^8"):
        run(lake, out)
    assert run(lake, out, allow_empty=True).status == "published"
    assert run(lake, out, metrics=["pass@1"]).status == "published", "who asks for fewer metrics gets fewer"


def test_undo(lake: Path, out: Path) -> None:
    ids = []
    for i in range(3):
        night(lake, i, c=i)
        ids.append(run(lake, out).run["run_id"])
    with locked(Output(out)):
        rollback(Output(out), ids[0])
    assert shown(out) == ids[0]
    assert passes(out) == [("m", 0.0, 1)]
    assert ask(out, "SELECT count(*) FROM run") == [(3,)], "nothing is forgotten"
    assert failed_checks(out) == ["recount in SQL"], "the lake has gone on"
    report = run(lake, out)
    assert (report.status, report.run["number"]) == ("published", 4)
    assert any(f"rollback to {ids[0]} ends" in warning for warning in report.warnings)
    equals_a_fresh_run(lake, out)
    with locked(Output(out)), pytest.raises(UsageError, match="no such run"):
        rollback(Output(out), "../../etc")
    collect_garbage(Output(out), 1)
    with locked(Output(out)), pytest.raises(UsageError, match="its snapshot has been removed"):
        rollback(Output(out), ids[1])
    assert shown(out) == report.run["run_id"]


def test_undo_on_the_command_line(lake: Path, out: Path, cli: Cli) -> None:
    for i in range(2):
        night(lake, i)
        assert cli("score", lake, "--out", out).returncode == 0
    rows = cli("runs", out).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert [row.rpartition("  ")[2] for row in rows] == ["kept", "shown"]
    assert "newer run" not in cli("show", out).stdout
    for name in ("1", rows[0].split()[1]):
        assert "Rolled back to run 1 (" in cli("rollback", out, name).stderr
    for command in ("show", "report"):
        assert "This is run 1 of 2, from 20" in cli(command, out).stdout
    cli("page", out, "--html", out.parent / "page.html")
    assert "a newer run exists: scorelake rollback OUT 2" in (out.parent / "page.html").read_text()
    assert [row.rpartition("  ")[2] for row in cli("runs", out).stdout.splitlines()] == ["shown", "kept"]
    for name, reason in (("20260101T000000Z-0123abcd", "no such run"), ("9", "no such run"), ("20", "more than one")):
        assert reason in cli("rollback", out, name).stderr
    assert "MiB; history stays" in cli("gc", out, "--keep", 1).stderr


# --- readers, leftovers and garbage -----------------------------------------------------------------------------


def test_leftovers_are_swept(lake: Path, out: Path) -> None:
    nights(lake, out)
    process = f"-{os.getpid()}-"
    dead = disk.temp_path(Path("dead" * 8)).name.replace(process, "-4194305-")  # no process has that number
    run_id = "20200101T000000Z-deaddead"
    for name in (f"snapshots/.{run_id}/x", f"partials/{dead}/x", f".leaderboard-{run_id}"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("half")
    living = disk.temp_path(out / "partials" / ("0" * 32))  # somebody counts
    living.mkdir()
    nights(lake, out, 2)
    assert list(out.rglob("*dead*")) == []
    assert living.exists()


def test_gc_keeps_what_the_published_run_needs(lake: Path, out: Path) -> None:
    nights(lake, out, 4)
    (lake / "0.parquet").unlink()
    run(lake, out)
    (out / "snapshots" / "my notes").mkdir()
    os.symlink(lake, out / "snapshots" / "20260101T000000Z-0123abcd")
    output = Output(out)
    manifest = output.current()
    removed = collect_garbage(output, 1)
    assert manifest is not None
    assert (len(removed.snapshots), removed.bytes > 0, output.current()) == (5, True, manifest)
    assert len(list(lake.iterdir())) == 3, "a link is removed, not what it leads to"
    (out / "snapshots" / "my notes").rmdir()
    assert [m["run"]["run_id"] for m in output.manifests()] == [manifest["run"]["run_id"]]
    assert {path.name for path in output.partials.iterdir()} == set(manifest["partials"])
    assert run(lake, out).status == "unchanged"
