"""A real cluster of several nodes on this machine: the same bytes as without it, whatever dies meanwhile."""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ray

import crashing
from conftest import Nodes, ask, expand, put, run, tables
from scorelake import engines, synth, tasks
from scorelake.engines.ray import CRASH, RayEngine, check_address, describe, task_memory
from scorelake.errors import ClusterError, DataError, ScorelakeError, UsageError
from scorelake.settings import load

CUT = "[run]\nshard_mb = 0.001\nbucket_rows = 60\n"
"""The same cut as on one machine makes the same files."""


@pytest.fixture
def engine(on_ray: RayEngine) -> RayEngine:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file
    return on_ray


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("shared") / "lake"
    synth.write(home, synth.Plan(3, 40, 8, layout="shuffled", files=12))
    return home


@pytest.fixture(scope="module")
def expected(lake: Path) -> dict[str, bytes]:
    run(lake, lake.parent / "local", CUT)
    return tables(lake.parent / "local")


def test_tasks_reserve_and_use_their_resources(engine: RayEngine) -> None:
    def usage(_: int) -> tuple[int, str | None, dict[str, float]]:
        resources = ray.get_runtime_context().get_assigned_resources()
        return pl.thread_pool_size(), os.environ.get("OPENBLAS_NUM_THREADS"), resources

    assert list(engine.map(usage, [0])) == [(1, "1", {"CPU": 1.0, "memory": 2.0**30})]
    assert engine.at_once == 2
    smallest = min(node["Resources"]["memory"] for node in ray.nodes() if node["Alive"])
    assert task_memory(load().run) == pytest.approx(0.9 * smallest)
    assert task_memory(load(**{"run.memory_gb": 3.0}).run) == 3 << 30


class Paused:
    """A task of one stage that leaves a note when it begins, and goes on only after something was killed."""

    def __init__(self, notes: Path, stage: str) -> None:
        self.notes, self.resume, self.name = notes, notes.with_name("resume"), stage.removeprefix("tasks.")
        notes.mkdir()

    def __call__(self, work: Any) -> Any:
        name = hashlib.sha256(" ".join(str(each) for each in work).encode()).hexdigest()[:8]
        (self.notes / f"{name}-{os.getpid()}-{ray.get_runtime_context().get_node_id()}").touch()
        until(self.resume.exists)
        return getattr(importlib.import_module("scorelake.tasks"), self.name)(work)  # not patched there

    def begun(self) -> list[tuple[str, int, str]]:
        """Task, process and node of every attempt."""
        notes = [path.name.split("-") for path in self.notes.iterdir()]
        return [(name, int(pid), node) for name, pid, node in notes]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300  # Ray starts slowly on a busy machine
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("victim", "stage"),
    # later stages of so small a lake have fewer tasks than the cluster has nodes
    [("worker", "tasks.merge_all"), ("node", "tasks.count_all")],
)
def test_a_lost_worker_or_node_changes_nothing(
    nodes: Nodes,
    engine: RayEngine,
    lake: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
    stage: str,
) -> None:
    paused = Paused(tmp_path / "notes", stage)
    monkeypatch.setattr(tasks, paused.name, paused)
    doomed = nodes.add() if victim == "node" else None
    until(lambda: engine.at_once == (3 if doomed else 2))

    def victims() -> list[int]:
        return [pid for _, pid, node in paused.begun() if doomed is None or node == doomed.node_id]

    def attack() -> None:
        try:
            until(lambda: bool(victims()))
            pids = victims()[:1]
            if doomed:
                nodes.kill(doomed)
            else:
                os.kill(pids[0], signal.SIGKILL)
            until(lambda: not Path(f"/proc/{pids[0]}").exists())  # or it finishes its task before it ends
        finally:
            paused.resume.touch()

    with ThreadPoolExecutor(1) as other:
        attacked = other.submit(attack)
        report = run(lake, tmp_path / "out", CUT, engine=engine)
        attacked.result()
    assert report.files_read == 12
    assert len(paused.begun()) > len({name for name, *_ in paused.begun()}), "a task began again"
    assert tables(tmp_path / "out") == expected
    until(lambda: engine.at_once == 2)  # the cluster may notice after the job is done


def test_the_number_of_attempts_is_limited(engine: RayEngine, caplog: pytest.LogCaptureFixture) -> None:
    twice = replace(engine, attempts=2, backoff_s=0.0)
    with pytest.raises(
        ClusterError, match=r"not be finished in 2 attempts; the last time the worker crashed"
    ) as caught:
        list(twice.map(kill_worker, ["a.parquet"]))
    assert (caught.value.where, caught.value.exit_code) == ("kill_worker(a.parquet)", 4)
    assert caplog.messages == [f"warning: kill_worker(a.parquet): {CRASH}; attempt 2 of 2"]


def kill_worker(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_run_out_of_memory(
    nodes: Nodes,
    engine: RayEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node on which Ray's memory monitor takes any memory for too much: it ends five workers, and no more."""
    with monkeypatch.context() as patch:
        patch.setenv("RAY_memory_usage_threshold", "0.001")
        patch.setenv("RAY_memory_monitor_refresh_ms", "100")
        full = nodes.add(memory=900 << 30)
    try:
        there = replace(engine, memory=500 << 30, backoff_s=0.0)
        with pytest.raises(ClusterError, match="in 5 attempts; the last time Ray's memory monitor") as caught:
            list(there.map(greedy, [str(tmp_path)]))
    finally:
        nodes.kill(full)
    assert len(list(tmp_path.iterdir())) <= 5
    assert [text[-6:] for text in caplog.messages] == [f"{number} of 5" for number in (2, 3, 4, 5)]
    assert (caught.value.where, caught.value.exit_code) == (f"greedy({tmp_path})", 4)
    assert "memory_gb" in str(caught.value.hint)


def greedy(notes: str) -> None:
    (Path(notes) / f"{os.getpid()}").touch()
    time.sleep(60)


def test_tasks_are_named_in_messages() -> None:
    assert describe(("a", "b")) == "a, b"
    assert describe("\x1b[2J" + "y" * 1000) == "\\x1b[2J" + "y" * 153


def test_a_file_that_ends_the_worker_is_named(
    engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its verdict, which is remembered; the files beside it are counted."""
    ray.cloudpickle.register_pickle_by_value(crashing)
    monkeypatch.setattr(tasks, "count_all", crashing.count_all)
    for name in ("good", "evil", "other"):
        put(tmp_path / "lake", expand([("p", 4, 2)], model=name), f"{name}.parquet")
    with pytest.raises(DataError, match=r"evil\.parquet: reading it ends the process \(SIGABRT\)"):
        run(tmp_path / "lake", tmp_path / "out", engine=engine)
    report = run(tmp_path / "lake", tmp_path / "out", engine=engine, allow_quarantine=True)
    assert [file for file, _ in report.quarantine] == ["evil.parquet"]
    assert report.files_reused == 3
    assert ask(tmp_path / "out", "SELECT DISTINCT model FROM model_summary ORDER BY ALL") == [("good",), ("other",)]


def test_interrupted(nodes: Nodes, engine: RayEngine, lake: Path, tmp_path: Path) -> None:
    """Ctrl-C while tasks run: exit 130, nothing half-written, and the cluster is free again."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", ASLEEP, "score", str(lake), "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--engine", "ray", "--address", nodes.address], stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            until(lambda: len(list(out.glob("partials/.*"))) == 1)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (
        130,
        "error: interrupted; nothing was published, and what was counted is kept\n",
    )
    assert list(out.glob("partials/.*")) == []
    assert not (out / "leaderboard.duckdb").exists()
    assert list(engine.map(abs, [-1])) == [1]


ASLEEP = """
import scorelake.cli, scorelake.tasks
def asleep(todo):
    import time
    from scorelake import tasks
    from scorelake.counting import shard
    def count(task, folder):
        while True:
            time.sleep(0.05)
    shard.count = count
    return tasks.count_all(todo)
scorelake.tasks.count_all = asleep
scorelake.cli.main()
"""
"""The command line with tasks that never end once they have begun to write."""


def test_nodes_must_have_the_same_versions_and_see_lake_and_output(engine: RayEngine) -> None:
    other = replace(engine, versions={"scorelake": "9.9", "polars": pl.__version__, "absent": "1"})
    with pytest.raises(UsageError) as caught:
        list(other.map(abs, [1]))
    assert f"has scorelake 0.1.0, polars {pl.__version__}, absent missing; this machine has" in caught.value.what
    assert "pip install 'scorelake==9.9'" in str(caught.value.hint)
    with pytest.raises(UsageError, match=r"/no/such/lake: node .* does not see this path"):
        list(replace(engine, shared=("/no/such/lake",)).map(abs, [1]))


def test_no_node_is_large_enough(engine: RayEngine) -> None:
    greedy = replace(engine, memory=99_999 << 30, patience_s=0.5)
    with pytest.raises(ClusterError, match=r"no node of the cluster has 1 CPUs and 99999\.0 GB"):
        list(greedy.map(abs, [1]))


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        *((each, UsageError, "not an address") for each in ("nowhere", "ray://127.0.0.1:1", ":6379", "a:99999")),
        ("127.0.0.1:1", ClusterError, "no Ray cluster answers: Connection refused"),
        (f"{'x' * 70}.example:6379", ClusterError, "no Ray cluster answers: "),
    ],
)
def test_a_wrong_address(address: str, error: type[ScorelakeError], message: str) -> None:
    with pytest.raises(error, match=message) as caught, engines.connect("ray", address, load()):
        pass
    assert caught.value.where == address


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_another_server_is_there(answer: bytes | None) -> None:
    """A port that accepts and is silent, one that hangs up, a web server, and another that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            there, _ = server.accept()
            with there:
                there.recv(64)
                there.sendall(answer or b"")
                if answer is None:
                    there.recv(64)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClusterError, match="the port is open but does not answer like a Ray cluster") as caught:
            check_address(address, timeout_s=0.5)
        thread.join()
    assert (caught.value.where, caught.value.exit_code) == (address, 4)
    assert "6379" in str(caught.value.hint)


def test_engines_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--address is for --engine ray"):
        engines.connect("local", "auto", load())
    monkeypatch.delitem(sys.modules, "scorelake.engines.ray")
    monkeypatch.delattr(engines, "ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="a package that is not installed: ray") as caught:
        engines.connect("ray", None, load())
    assert caught.value.hint == "pip install 'scorelake[ray]'"


def test_the_command_line(nodes: Nodes, lake: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    """From another folder than the workers', with paths of its own; the same line as always, and nothing of Ray's."""
    done = cli(
        "score", "lake", "--out", tmp_path / "out", "--engine", "ray", "--address", nodes.address, cwd=lake.parent
    )
    assert (done.returncode, done.stdout) == (0, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("712 new rows in 12 files")
    assert second.startswith("published ")
