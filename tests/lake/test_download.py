"""A lake in object storage gives what the same lake gives on a disk, or a clear error."""

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen

import polars as pl
import pytest

from cloud import PATIENT, QUICK, upload
from conftest import FIXTURES, attempts, expand, put, run, tables
from faulty import Fault, Faulty
from scorelake.errors import DataError
from scorelake.lake.download import local_copy
from scorelake.lake.listing import listing
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.settings import Settings
from scorelake.storage.files import Shard
from scorelake.storage.objects import Objects

Cli = Callable[..., CompletedProcess[str]]


def wide(lake: Path, name: str = "big.parquet", rows: int = 60_000) -> pl.DataFrame:
    """A file most of which is a column nobody asks for."""
    dice = random.Random(name)
    frame = attempts(
        model="m",
        problem_id=[f"p{i % 50}" for i in range(rows)],
        passed=[dice.random() < 0.5 for _ in range(rows)],
        response=[dice.randbytes(100).hex() for _ in range(rows)],
    )
    put(lake, frame, name, row_group_size=rows // 2)
    return frame


def test_same_tables_as_from_disk(bucket: str, tmp_path: Path) -> None:
    url = upload(FIXTURES / "lake", f"{bucket}/some lake")
    run(FIXTURES / "lake", tmp_path / "disk", by=("difficulty",))
    report = run(url, tmp_path / "cloud", PATIENT, by=("difficulty",))
    assert tables(tmp_path / "cloud") == tables(tmp_path / "disk")
    assert report.run["lake"] == url
    assert "lake" not in {path.name for path in (tmp_path / "cloud").rglob("*")}, "copies are removed"
    assert all(finding.ok for finding in check.check(Output(tmp_path / "cloud")))


def test_names_and_single_files(bucket: str, tmp_path: Path) -> None:
    name = "model=a%2Fb/subject=it's 007/x=y.parquet"
    put(tmp_path / "lake", expand([("a", 4, 2)]), name)
    put(tmp_path / "lake", expand([("b", 4, 2)]), "_temporary/x.parquet")
    url = upload(tmp_path / "lake", f"{bucket}/lake")
    run(tmp_path / "lake", tmp_path / "disk")
    for i, location in enumerate((url, f"{url}/")):
        run(location, tmp_path / str(i))
        assert tables(tmp_path / str(i)) == tables(tmp_path / "disk")
    assert listing(f"{url}/{name}", QUICK).files[0].path == "x=y.parquet"


def test_only_used_columns_are_downloaded(bucket: str, tmp_path: Path) -> None:
    frame = wide(tmp_path / "lake")
    url = upload(tmp_path / "lake", f"{bucket}/lake")
    listed = listing(url, QUICK)
    shard = Shard(url, listed.files)
    with local_copy(shard, tmp_path / "copy", Settings(storage=QUICK)) as copy:
        path = Path(copy.root) / "big.parquet"
        assert path.stat().st_size == listed.files[0].size > 6_000_000
        assert path.stat().st_blocks * 512 < 1_000_000
        columns = frame.select("problem_id", "passed", "model")
        assert pl.read_parquet(path, columns=columns.columns).equals(columns)
    assert not (tmp_path / "copy").exists()
    run(url, tmp_path / "cloud")
    run(tmp_path / "lake", tmp_path / "disk")
    assert tables(tmp_path / "cloud") == tables(tmp_path / "disk")


def test_a_file_that_changes_while_it_is_read(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    wide(tmp_path / "lake")
    url = upload(tmp_path / "lake", f"{bucket}/lake")
    wide(tmp_path / "lake", rows=60_001)
    gets: list[str] = []

    def change(method: str, path: str) -> Fault:
        gets.extend([path] * (method == "GET" and path.endswith(".parquet")))
        if method == "GET" and len(gets) == 2:
            gets.append("once")
            proxy.plan = lambda method, path: None
            upload(tmp_path / "lake", url)
        return None

    proxy.plan = change
    with pytest.raises(DataError, match="changed or vanished while the lake was read") as caught:
        run(url, tmp_path / "out", PATIENT)
    assert caught.value.where == "big.parquet"
    assert not (tmp_path / "out" / "leaderboard.duckdb").exists()
    assert run(url, tmp_path / "out", PATIENT).status == "published"


def test_damage_is_reported_as_on_a_disk(bucket: str, tmp_path: Path) -> None:
    put(tmp_path / "lake", expand([("a", 4, 2)], model="m"))
    wide(tmp_path / "lake", "cut.parquet")
    cut = (tmp_path / "lake" / "cut.parquet").read_bytes()
    (tmp_path / "lake" / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "lake" / "empty.parquet").write_bytes(b"")
    url = upload(tmp_path / "lake", f"{bucket}/lake")
    reports = [run(lake, tmp_path / str(i), allow_quarantine=True) for i, lake in enumerate((tmp_path / "lake", url))]
    assert reports[0].quarantine == reports[1].quarantine
    assert len(reports[1].quarantine) == 2


def test_errors_of_the_command_line(bucket: str, proxy: Faulty, cli: Cli, tmp_path: Path) -> None:
    url = upload(FIXTURES / "lake", f"{bucket}/lake")
    (tmp_path / "quick.toml").write_text("[storage]\ntimeout_s = 1\nretry_s = 0.5\n")

    def score(location: str, code: int, message: str) -> None:
        done = cli("score", location, "--out", tmp_path / "out", "--config", tmp_path / "quick.toml", "--json")
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert json.loads(done.stdout)["exit_code"] == code

    score(f"{bucket}-other/lake", 5, "no such bucket")
    proxy.plan = lambda method, path: "403"
    score(url, 2, "access denied")
    proxy.plan = lambda method, path: "503" if "parquet" in path else None
    score(url, 4, "cannot be reached or used")
    proxy.plan = lambda method, path: None
    score(url, 0, "published")
    content = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert b"hunter2" not in content
    assert b"somebody" not in content


def test_an_interrupt_does_not_wait_for_the_store(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    url = upload(FIXTURES / "lake", f"{bucket}/lake")
    proxy.plan = lambda method, path: "stall" if "parquet" in path else None
    command = [sys.executable, "-m", "scorelake", "score", url, "--out", str(tmp_path / "out")]
    with Popen(command, stderr=PIPE, text=True) as running:
        while "stall" not in [fault for *_, fault in proxy.requests]:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=20)  # the store may be silent for 30 seconds, and fail for 180
    assert running.returncode == 130, stderr
    assert "interrupted" in stderr
    assert not list((tmp_path / "out" / "partials").glob(".*")), "copies are removed"


def test_keys_that_a_disk_cannot_hold(bucket: str, tmp_path: Path) -> None:
    path, url = put(tmp_path, expand([("a", 4, 2)], model="m")), f"{bucket}/lake"
    Objects(url, QUICK).send({"both.parquet": path, "both.parquet/part.parquet": path})
    assert run(url, tmp_path / "out").run["graded"] == 8, "one at a time both can be held"
    with pytest.raises(DataError, match="its key is also a folder of other keys"):
        check.check(Output(tmp_path / "out"))
    Objects(url, QUICK).send({"long/" + "x" * 300 + ".parquet": path})
    with pytest.raises(DataError, match="a part of its key is longer than 255 bytes") as caught:
        run(url, tmp_path / "out")
    assert str(caught.value.where).startswith("long/xxx")


def test_an_object_that_stands_for_a_folder_is_ignored(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """Consoles make an empty object whose key ends in a slash; an empty file is another matter."""
    import urllib.request

    path = put(tmp_path, expand([("a", 4, 2)], model="m"))
    url = f"{bucket}/lake"
    Objects(url, QUICK).send({"night.parquet/part.parquet": path})
    for name in ("night.parquet/", "empty.parquet/"):
        request = urllib.request.Request(f"{proxy.url}/{bucket[5:]}/lake/{name}", data=b"", method="PUT")
        urllib.request.urlopen(request).close()
    assert run(url, tmp_path / "out").run["files"] == 1
    Objects(url, QUICK).send({"zero.parquet": b""})
    with pytest.raises(DataError, match=r"zero.parquet: the file is empty"):
        run(url, tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "message"),
    [("a//b.parquet", "contained empty path segment"), ("a/b.parquet/", "the key of the object may end in a slash")],
)
def test_keys_that_are_no_paths_are_refused_at_once(
    bucket: str, proxy: Faulty, tmp_path: Path, key: str, message: str
) -> None:
    import urllib.request

    data = put(tmp_path, expand([("a", 4, 2)], model="m")).read_bytes()
    headers = {"Content-Type": "application/octet-stream"}
    url = f"{proxy.url}/{bucket[5:]}/lake/{key}"
    urllib.request.urlopen(urllib.request.Request(url, data=data, method="PUT", headers=headers)).close()
    began = time.monotonic()
    with pytest.raises(DataError, match=message):
        run(f"{bucket}/lake", tmp_path / "out")
    assert time.monotonic() - began < Settings().storage.retry_s / 2, "it is not retried"
