"""An output in object storage: the same tables, incremental, and one winner."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import duckdb
import pytest

from cloud import QUICK, upload
from conftest import FIXTURES, expand, put, run, tables
from faulty import Fault, Faulty
from scorelake.errors import LakeError, LockedError, StorageError, UnsettledError
from scorelake.pipeline import RunReport, count_part, score_lake
from scorelake.publish.publication import collect_garbage
from scorelake.publish.snapshot import Output, locked
from scorelake.read import check
from scorelake.settings import Settings, Storage
from scorelake.storage.mirror import BOARD, Mirror, fetch_board
from scorelake.storage.objects import Objects

Cli = Callable[..., CompletedProcess[str]]


def away(lake: Path | str, url: str, cache: str | None = None, **options: bool) -> RunReport:
    """The job into object storage, as on a machine of its own if a cache is named."""
    with pytest.MonkeyPatch.context() as patch:
        if cache is not None:
            patch.setenv("SCORELAKE_CACHE", cache)
        return score_lake(lake, Output.at(url, QUICK), Settings(storage=QUICK), **options)


def ask(url: str, folder: Path, sql: str) -> list[tuple[object, ...]]:
    fetch_board(url, folder)
    with duckdb.connect(str(folder / BOARD), read_only=True) as db:
        return db.execute(sql).fetchall()


def published(url: str, folder: Path) -> dict[str, bytes]:
    """The bytes of every table of the published snapshot, straight from the store."""
    ((run_id,),) = ask(url, folder, "SELECT run_id FROM run WHERE shown")
    there = Objects(f"{url}/snapshots/{run_id}", QUICK)
    files = [found for found in there.list() if found.key.endswith(".parquet") and found.key != "change.parquet"]
    return {found.key: there.read(found, 0, found.size) for found in files}


def keys(url: str) -> set[str]:
    return {found.key for found in Objects(url, QUICK).list()}


def fill(lake: Path, *names: int) -> Path:
    for i in names:
        put(lake, expand([(f"p{i}", 4, i % 5)], model="m"), f"{i}.parquet")
    return lake


def several_runs(lake: Path, url: str, tmp_path: Path) -> None:
    """New, nothing new, something new on another machine, and a race; whatever the store."""
    report = away(upload(fill(lake, 0, 1), f"{url}/lake"), f"{url}/out")
    assert (report.status, report.files_read) == ("published", 2)
    assert away(f"{url}/lake", f"{url}/out").status == "unchanged"
    upload(fill(tmp_path / "late", 2), f"{url}/lake")
    report = away(f"{url}/lake", f"{url}/out", cache=str(tmp_path / "elsewhere"))
    assert (report.files_read, report.files_reused) == (1, 2)
    run(fill(lake, 2), tmp_path / "disk")
    assert published(f"{url}/out", tmp_path) == tables(tmp_path / "disk")
    assert ask(f"{url}/out", tmp_path, "SELECT files FROM run ORDER BY started") == [(2,), (3,)]
    assert all(finding.ok for finding in check.check(Output.at(f"{url}/out", QUICK)))

    behind = Output.at(f"{url}/out", QUICK)
    with locked(behind):
        slow = behind.fresh()
    upload(fill(lake, 3), f"{url}/lake")
    away(f"{url}/lake", f"{url}/out", cache=str(tmp_path / "elsewhere"))
    before = keys(f"{url}/out")
    (slow.root / "late").write_text("an older board")
    assert slow.mirror is not None
    with pytest.raises(LockedError, match="another run has published here meanwhile"):
        slow.mirror.publish(slow.root / "late", slow.seen)
    assert keys(f"{url}/out") == before, "the loser leaves nothing"


def test_several_runs_on_s3(bucket: str, tmp_path: Path) -> None:
    several_runs(tmp_path / "lake", bucket, tmp_path)


def test_several_runs_on_azure(container: str, tmp_path: Path) -> None:
    several_runs(tmp_path / "lake", f"{container}/some folder", tmp_path)
    with pytest.raises(LakeError, match="no such bucket or container"):
        away(tmp_path / "lake", "az://nowhere/out")


@pytest.mark.parametrize("first", [True, False])
def test_two_writers_race(bucket: str, proxy: Faulty, tmp_path: Path, first: bool) -> None:
    """Another machine publishes between our look at the leaderboard and our put, with one there before or not."""
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    if not first:
        away(lake, url)
    fill(lake, 1)

    def interfere(method: str, path: str) -> Fault:
        if method == "PUT" and path.endswith(BOARD):
            proxy.plan = lambda method, path: None
            away(lake, url, cache=str(tmp_path / "other"))
        return None

    proxy.plan = interfere
    waits = Storage(timeout_s=100, retry_s=100)  # for all that the other one does, rather than put again
    with pytest.raises(LockedError, match="another run has published here meanwhile") as caught:
        score_lake(lake, Output.at(url, waits), Settings(storage=waits))
    assert caught.value.exit_code == 6
    assert len({key.split("/")[1] for key in keys(url) if key.startswith("snapshots/")}) == (1 if first else 2)
    assert away(lake, url).status == "unchanged"
    run(lake, tmp_path / "disk")
    assert published(url, tmp_path) == tables(tmp_path / "disk")


def test_one_machine_one_writer(bucket: str, tmp_path: Path) -> None:
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    with locked(Output.at(url)), pytest.raises(LockedError, match="another run is writing here") as caught:
        away(lake, url)
    assert caught.value.where == url


def test_what_was_counted_is_kept(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """The store fails for good after two partials; another machine goes on from there."""
    lake, url = fill(tmp_path / "lake", 0, 1, 2), f"{bucket}/out"
    hasty = QUICK.model_copy(update={"retry_s": 1.0})

    def fail(method: str, path: str) -> Fault:
        done = {path for method, path, fault in proxy.requests if method == "PUT" and path.endswith("shard.json")}
        return "503" if len(done) == 2 else None

    proxy.plan = fail
    with pytest.raises(StorageError, match="cannot be reached or used"):
        score_lake(lake, Output.at(url, hasty), Settings(storage=hasty))
    proxy.plan = lambda method, path: None
    report = away(lake, url, cache=str(tmp_path / "elsewhere"))
    assert (report.files_read, report.files_reused) == (1, 2)
    run(lake, tmp_path / "disk")
    assert published(url, tmp_path) == tables(tmp_path / "disk")


def test_a_third_of_all_requests_fails(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """Every third answer is lost, refused or cut: the put that publishes among them."""
    lake, url = fill(tmp_path / "lake", *range(4)), f"{bucket}/out"
    faults: list[Fault] = ["503", None, None, "lost", None, None, "cut", None, None]

    def plan(method: str, path: str) -> Fault:
        boards = [path for method, path, fault in proxy.requests if method == "PUT" and path.endswith(BOARD)]
        return "lost" if path.endswith(BOARD) and not boards else faults[len(proxy.requests) % len(faults)]

    proxy.plan = plan
    assert away(lake, url).status == "published"
    proxy.plan = lambda method, path: None
    run(lake, tmp_path / "disk")
    assert published(url, tmp_path) == tables(tmp_path / "disk")


def test_the_mirror_holds_what_the_output_holds(bucket: str, tmp_path: Path) -> None:
    lake, url = fill(tmp_path / "lake", 0, 1), f"{bucket}/out"
    away(lake, url)
    there = Objects(url, QUICK)
    there.delete(sorted(key for key in keys(url) if key.startswith("partials/"))[:2])
    assert away(lake, url).files_read == 1, "what is gone there is counted again"
    there.delete(sorted(keys(url)))
    assert away(lake, url).status == "published"
    shard = min(Path(Mirror.of(url).folder).glob("partials/*"))
    shutil.rmtree(shard)
    assert away(lake, url).status == "unchanged"
    assert shard.exists()


def test_garbage(bucket: str, tmp_path: Path) -> None:
    lake, url = tmp_path / "lake", f"{bucket}/out"
    for i in range(3):
        away(fill(lake, i), url)
    (lake / "0.parquet").unlink()
    away(lake, url)
    out = Output.at(url, QUICK)
    with locked(out):
        collect_garbage(out.fresh(), 1)
    kept = {key.split("/")[1] for key in keys(url) if key.startswith("snapshots/")}
    shown = out.current()
    assert shown is not None
    assert kept == {shown["run"]["run_id"]}
    assert {key.split("/")[1] for key in keys(url) if key.startswith("partials/")} >= set(shown["partials"])
    assert away(lake, url).status == "unchanged"


class Elsewhere:
    """An engine on a machine that shares no disk with this one, and has a SCORELAKE_CACHE of its own."""

    at_once = 2
    memory_gb = None

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def map(self, task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            sent = pickle.dumps(item)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SCORELAKE_CACHE", str(self.cache))
                result = task(pickle.loads(sent))
            yield result


def test_machines_that_share_no_disk(bucket: str, tmp_path: Path) -> None:
    """Each works in its own mirror, below its own SCORELAKE_CACHE, not in the driver's."""
    lake, url, cache = fill(tmp_path / "lake", 0, 1, 2), f"{bucket}/out", tmp_path / "node"
    settings = Settings(storage=QUICK, run={"bucket_rows": 1})
    out = Output.at(url, QUICK)
    assert score_lake(lake, out, settings, engine=Elsewhere(cache)).status == "published"
    (node,) = cache.iterdir()
    assert len(list((node / "partials").glob("[!.]*"))) == 3
    merged = {path.name for path in node.glob("snapshots/*/problem_counts/*")}
    shown = {Path(name).name for name in published(url, tmp_path) if "problem_counts" in name}
    assert merged == shown, "a bucket that holds nothing makes no file"
    assert len(merged) > 1
    fill(lake, 3)
    assert score_lake(lake, out, settings, engine=Elsewhere(tmp_path / "new node")).files_read == 1
    run(lake, tmp_path / "disk", "[run]\nbucket_rows = 1\n")
    assert published(url, tmp_path) == tables(tmp_path / "disk")


def test_counts_of_other_machines_are_used(bucket: str, tmp_path: Path) -> None:
    """Parts counted on machines of their own, one of them twice, are picked up by a run."""
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    away(lake, url)
    fill(lake, 1, 2, 3)
    out, settings = Output.at(url, QUICK), Settings(storage=QUICK)
    counted = [count_part(lake, out, settings, number, 2) for number in (1, 2, 2)]
    assert sum(len(partials) for partials in counted[:2]) == 3
    assert counted[1] == counted[2]
    assert not list((tmp_path / "cache").glob("part-*"))
    report = away(lake, url)
    assert (report.files_read, report.files_reused) == (0, 4)
    run(lake, tmp_path / "disk")
    assert published(url, tmp_path) == tables(tmp_path / "disk")


def test_leftovers_are_swept_after_a_day(bucket: str, tmp_path: Path) -> None:
    away(fill(tmp_path / "lake", 0), f"{bucket}/out")
    before, dead = keys(f"{bucket}/out"), "20200101T000000Z-0123abcd"
    Objects(f"{bucket}/out", QUICK).send({f"snapshots/{dead}/problem_counts/part-00000.parquet": b"half"})
    out = Output.at(f"{bucket}/out", QUICK).fresh()
    collect_garbage(out, 5)
    assert len(keys(f"{bucket}/out")) == len(before) + 1, "somebody may be writing it"
    assert out.mirror is not None
    out.mirror.sweep({path.split("/")[1] for path in before if path.startswith("snapshots/")}, after_s=-60)
    assert keys(f"{bucket}/out") == before


def test_the_command_line(bucket: str, cli: Cli, tmp_path: Path) -> None:
    url = f"{bucket}/out"
    assert cli("score", FIXTURES / "lake", "--out", url, "--metrics", "pass@1").returncode == 0
    there = Objects(url, QUICK)
    found = there.find("report.json")
    assert found is not None
    assert json.loads(there.read(found, 0, found.size))["status"] == "published"
    assert "model-00" in cli("show", url).stdout
    published, made = (cli("compare", url, "model-00", "model-01", "--metric", name) for name in ("pass@1", "maj@3"))
    assert "over all 6 pairs" in published.stdout
    assert "a single comparison is not adjusted" in made.stdout, made.stderr
    done = cli("sql", url, "SELECT count(*) AS models FROM leaderboard", "--format", "csv")
    assert done.stdout == "models\n4\n", done.stderr
    done = cli("show", f"{bucket}/nothing")
    assert (done.returncode, done.stdout) == (5, "")
    assert "no leaderboard here" in done.stderr
    assert not list(tmp_path.glob("s3:*"))


HASTY = Storage(timeout_s=10, retry_s=3)


def hasty(lake: Path, url: str) -> RunReport:
    return score_lake(lake, Output.at(url, HASTY), Settings(storage=HASTY))


def of_the_board(method: str, path: str) -> bool:
    return method == "PUT" and path.endswith(BOARD)


def test_a_put_that_fails_leaves_no_run(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """The snapshot was sent already; without its publication it is no run, and it is taken back."""
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    proxy.plan = lambda method, path: "503" if of_the_board(method, path) else None
    with pytest.raises(StorageError) as caught:
        hasty(lake, url)
    assert "nothing was published" in str(caught.value)
    assert not [key for key in keys(url) if key.startswith(("snapshots/", "leaderboard"))]
    proxy.plan = lambda method, path: "503" if of_the_board(method, path) or method in ("POST", "DELETE") else None
    with pytest.raises(StorageError):
        hasty(lake, url)
    assert [key for key in keys(url) if key.startswith("snapshots/")], "it could not even be taken back"
    proxy.plan = lambda method, path: None
    assert away(lake, url).status == "published"
    assert ask(url, tmp_path, "SELECT number FROM run") == [(1,)]
    assert ask(url, tmp_path, "SELECT count(DISTINCT run_id) FROM history") == [(1,)]


def test_a_put_whose_answers_are_lost(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """The put succeeded: the object is read, and the run is reported as published."""
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    proxy.plan = lambda method, path: "lost" if of_the_board(method, path) else None
    report = hasty(lake, url)
    assert report.status == "published"
    assert ask(url, tmp_path, "SELECT run_id FROM run WHERE shown") == [(report.run["run_id"],)]
    fill(lake, 1)
    assert hasty(lake, url).status == "published", "the same where a board was there before"
    proxy.plan = lambda method, path: None
    assert away(lake, url).status == "unchanged"


def test_a_store_that_dies_while_it_is_put(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    """The outcome is unknown: the error says so, the snapshot stays, and the next run finds out."""
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"

    def dying(method: str, path: str) -> Fault:
        dead = any(of_the_board(method, path) for method, path, _ in proxy.requests)
        return "lost" if of_the_board(method, path) and not dead else "503" if dead else None

    proxy.plan = dying
    with pytest.raises(UnsettledError) as caught:
        hasty(lake, url)
    assert "not known" in str(caught.value)
    assert "nothing was published" not in str(caught.value)
    assert caught.value.exit_code == 4
    proxy.plan = lambda method, path: None
    assert away(lake, url).status == "unchanged", "it had been published"
    assert all(finding.ok for finding in check.check(Output.at(url, QUICK)))


def test_history_that_could_not_be_sent(bucket: str, proxy: Faulty, tmp_path: Path) -> None:
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    proxy.plan = lambda method, path: "503" if path.endswith(("history.parquet", "runs.parquet")) else None
    assert hasty(lake, url).status == "published"
    proxy.plan = lambda method, path: None
    fill(lake, 1)
    assert away(lake, url, cache=str(tmp_path / "elsewhere")).run["number"] == 2
    assert ask(url, tmp_path, "SELECT number, files FROM run ORDER BY number") == [(1, 1), (2, 2)]
    assert {"history.parquet", "runs.parquet"} <= keys(url)


def test_rollback(bucket: str, cli: Cli, tmp_path: Path) -> None:
    lake, url = fill(tmp_path / "lake", 0), f"{bucket}/out"
    first = away(lake, url).run["run_id"]
    fill(lake, 1)
    away(lake, url)
    assert cli("rollback", url, first, env=os.environ | {"SCORELAKE_CACHE": str(tmp_path / "other")}).returncode == 0
    assert ask(url, tmp_path, "SELECT run_id FROM run WHERE shown") == [(first,)]
    assert "shown" in cli("runs", url).stdout.splitlines()[0]
    assert away(lake, url).run["number"] == 3
