"""Publication is atomic; leftovers of crashes and old snapshots are removed, and nothing else."""

import os
from pathlib import Path

import duckdb
import pytest

from conftest import ask, expand, nights, put, run
from scorelake.errors import DataError
from scorelake.publish.publication import collect_garbage
from scorelake.publish.snapshot import Output
from scorelake.storage import disk


@pytest.mark.slow
def test_every_kept_run_has_a_row(tmp_path: Path) -> None:
    out = nights(tmp_path, 3)
    assert [row[0] for row in ask(out, "SELECT files FROM run ORDER BY started")] == [1, 2, 3]


@pytest.mark.slow
def test_a_reader_keeps_its_version(tmp_path: Path) -> None:
    out = nights(tmp_path, 1)
    with duckdb.connect(str(out / "leaderboard.duckdb"), read_only=True) as reader:
        nights(tmp_path, 2)
        assert reader.execute("SELECT max(files) FROM run").fetchone() == (1,)
    assert ask(out, "SELECT max(files) FROM run") == [(2,)]


@pytest.mark.slow
def test_leftovers_are_swept(tmp_path: Path) -> None:
    out = nights(tmp_path, 1)
    dead = disk.temp_path(Path("dead" * 8)).name.replace(
        f"-{os.getpid()}-", "-4194305-"
    )  # no process has that number
    run_id = "20200101T000000Z-deaddead"
    for name in (f"snapshots/.{run_id}/x", f"partials/{dead}/x", f".leaderboard-{run_id}"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("half")
    living = disk.temp_path(out / "partials" / ("0" * 32))  # somebody counts
    living.mkdir()
    nights(tmp_path, 2)
    assert list(out.rglob("*dead*")) == []
    assert living.exists()


def test_a_foreign_file_is_not_replaced(lake: Path, out: Path) -> None:
    put(lake, expand([("a", 4, 2)], model="m"))
    (out).mkdir()
    (out / "leaderboard.duckdb").write_text("precious")
    with pytest.raises(DataError, match="which scorelake did not write"):
        run(lake, out)
    assert (out / "leaderboard.duckdb").read_text() == "precious"


@pytest.mark.slow
def test_gc_keeps_what_the_published_run_needs(lake: Path, tmp_path: Path) -> None:
    out = Output(nights(tmp_path, 4))
    (lake / "0.parquet").unlink()
    run(lake, out.root)
    shown = out.current()
    removed = collect_garbage(out, 1)
    assert len(removed.snapshots) == 4
    assert out.current() == shown
    assert [m["run"]["run_id"] for m in out.manifests()] == [shown["run"]["run_id"]]  # type: ignore[index]
    kept = {path.name for path in out.partials.iterdir()}
    assert kept == set(shown["partials"])  # type: ignore[index]
    assert removed.bytes > 0
    assert run(lake, out.root).status == "unchanged"
