"""A real cluster of several nodes on this machine: the same bytes as without it, whatever dies meanwhile."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ray

import crashing
from conftest import Nodes, ask, expand, put, run, snapshot, tables
from scorelake import engines, synth, tasks
from scorelake.comparing import sums
from scorelake.engines import attempts, joining, local
from scorelake.engines import ray as module
from scorelake.engines.ray import Ray
from scorelake.errors import ClusterError, DataError, UsageError
from scorelake.settings import load
from scorelake.storage.mirror import Mirror

CUT = "[run]\nshard_mb = 0.001\nbucket_rows = 60\n"
"""The same cut as on one machine makes the same files."""


@pytest.fixture
def engine(on_ray: Ray) -> Ray:
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


# --- what is the same -----------------------------------------------------------------------------------------


def test_its_own_cut_changes_no_number(engine: Ray, lake: Path, tmp_path: Path) -> None:
    """More pieces than one machine would make; the summaries are byte-identical, the problems equal."""
    out, alone = tmp_path / "out", tmp_path / "alone"
    small = "[run]\nbucket_rows = 50\n"
    run(lake, alone)
    run(lake, out, small, engine=engine)
    mine, theirs = tables(out), tables(alone)
    assert {name: mine[name] for name in theirs if "/" not in name} == {
        name: data for name, data in theirs.items() if "/" not in name
    }
    assert len(list((snapshot(out) / "problem_counts").iterdir())) > 1
    everything = "SELECT * FROM problem_counts ORDER BY ALL"
    assert ask(out, everything) == ask(alone, everything)


def test_scores_are_scored_where_they_lie(engine: Ray, tmp_path: Path) -> None:
    """Problems with scores are scored part by part on the workers, and their values written there."""
    synth.write(tmp_path / "lake", synth.Plan(3, 40, 8, layout="shuffled", files=3, rewards=True))
    config = "[metrics]\nnames = ['pass@1', 'avg@N', 'max@2']\n[run]\nbucket_rows = 50\n"
    run(tmp_path / "lake", tmp_path / "alone", config)
    run(tmp_path / "lake", tmp_path / "out", config, engine=engine)
    mine, theirs = tables(tmp_path / "out"), tables(tmp_path / "alone")
    assert any(name.startswith("problem_score/") for name in mine)
    assert mine == theirs


def test_tasks_declare_what_they_use(engine: Ray) -> None:
    def told(_: int) -> tuple[int, str | None, str | None]:
        return pl.thread_pool_size(), os.environ.get("NUMBA_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")

    assert list(engine.map(told, [0])) == [(1, "1", "1")]
    assert engine.at_once == 2
    ((asked,),) = engine.map(resources, [0])
    assert asked == {"CPU": 1.0, "memory": 2.0**30}


def resources(_: int) -> list[dict[str, float]]:
    return [ray.get_runtime_context().get_assigned_resources()]


def test_memory_of_a_task_is_its_share_of_a_node(engine: Ray) -> None:
    smallest = min(node["Resources"]["memory"] for node in ray.nodes() if node["Alive"])
    assert module._memory(load().run) == pytest.approx(0.9 * smallest)
    assert module._memory(load(**{"run.memory_gb": 3.0}).run) == 3 << 30 == replace(engine, memory=3 << 30).memory


# --- what dies ------------------------------------------------------------------------------------------------


class Slow:
    """Tasks of one stage that leave a note when they begin and when they end, and go on only after somebody was
    struck: so whoever is struck is at work."""

    def __init__(self, notes: Path, stage: str) -> None:
        self.notes, self.stage, self.struck = notes, stage, notes.with_name("struck")
        notes.mkdir()

    def __call__(self, todo: Any) -> Any:
        told = str(todo) if hasattr(todo, "works") else " ".join(str(one) for one in todo)
        name = hashlib.sha256(told.encode()).hexdigest()[:8]
        note = self.notes / f"{name}-{os.getpid()}-{ray.get_runtime_context().get_node_id()}"
        note.touch()
        while not self.struck.exists():
            time.sleep(0.02)
        module, task = self.stage.split(".")
        own = importlib.import_module(f"scorelake.{module}")  # the worker's, which is as it was
        result = getattr(own, task)(todo)
        note.with_suffix(".done").touch()
        return result

    def begun(self) -> list[str]:
        return sorted(path.name for path in self.notes.glob("*[!.]*") if path.suffix != ".done")

    def running(self) -> list[tuple[int, str]]:
        """Process and node of every task that has begun and not ended."""
        ended = {path.stem for path in self.notes.glob("*.done")}
        told = [name.split("-") for name in self.begun() if name not in ended]
        return [(int(pid), node) for _, pid, node in told]


STAGES = ("tasks.count_all", "tasks.merge_all", "sums.sum_models", "sums.sum_pairs")


def struck(
    engine: Ray, lake: Path, out: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch, strike: Callable[[], None]
) -> int:
    """The job, struck once in the middle of a stage; how many tasks began more than once."""
    module, task = slow.stage.split(".")
    monkeypatch.setattr({"tasks": tasks, "sums": sums}[module], task, slow)

    def attack() -> None:
        try:
            strike()
        finally:
            slow.struck.touch()

    with ThreadPoolExecutor(1) as other:
        attacked = other.submit(attack)
        report = run(lake, out, CUT, engine=engine)
        attacked.result()
    assert report.files_read == 12
    return len(slow.begun()) - len({name.split("-")[0] for name in slow.begun()})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_killed(
    engine: Ray, lake: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    slow = Slow(tmp_path / "notes", stage)

    def strike() -> None:
        until(lambda: bool(slow.running()))
        os.kill(slow.running()[0][0], signal.SIGKILL)

    assert struck(engine, lake, tmp_path / "out", slow, monkeypatch, strike) >= 1
    assert tables(tmp_path / "out") == expected


@pytest.mark.parametrize("stage", STAGES[::2])
def test_a_node_killed(
    nodes: Nodes,
    engine: Ray,
    lake: Path,
    tmp_path: Path,
    expected: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    doomed, slow = nodes.add(), Slow(tmp_path / "notes", stage)
    until(lambda: engine.at_once == 3)

    def strike() -> None:
        until(lambda: any(node == doomed.node_id for _, node in slow.running()))
        nodes.kill(doomed)

    assert struck(engine, lake, tmp_path / "out", slow, monkeypatch, strike) >= 1
    assert tables(tmp_path / "out") == expected
    until(lambda: engine.at_once == 2)  # the cluster may notice after the job is done


def test_a_task_that_always_kills_its_worker(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS", 2)
    with pytest.raises(ClusterError, match="could not be finished in 2 attempts: the worker crashed") as caught:
        list(engine.map(suicide, ["a.parquet"]))
    assert (caught.value.where, caught.value.exit_code) == ("suicide(a.parquet)", 4)


def suicide(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_run_out_of_memory(
    nodes: Nodes, engine: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node on which Ray's memory monitor takes any memory for too much: it ends five workers, and no more."""
    with monkeypatch.context() as patch:
        patch.setenv("RAY_memory_usage_threshold", "0.001")
        patch.setenv("RAY_memory_monitor_refresh_ms", "100")
        full = nodes.add(memory=900 << 30)
    try:
        said: list[str] = []
        there = replace(engine, memory=500 << 30, rest_s=0.0, say=said.append)
        with pytest.raises(ClusterError, match="in 5 attempts: Ray's memory monitor ended the worker") as caught:
            list(there.map(greedy, [str(tmp_path)]))
    finally:
        nodes.kill(full)
    assert len(list(tmp_path.iterdir())) <= 5
    assert [words[-6:] for words in said] == [f"{number} of 5" for number in (2, 3, 4, 5)]
    assert (caught.value.where, caught.value.exit_code) == (f"greedy({tmp_path})", 4)
    assert "memory_gb" in str(caught.value.hint)


def greedy(notes: str) -> None:
    (Path(notes) / f"{os.getpid()}").touch()
    time.sleep(60)


def test_a_stopped_worker(engine: Ray, tmp_path: Path) -> None:
    """Others finish meanwhile; then it is named, its work is done elsewhere, and it is gone."""
    said: list[str] = []
    quick = replace(engine, silent_s=2.0, say=said.append)
    stopped = tmp_path / "stopped"
    assert list(quick.map(stopping, [("a", ""), ("b", str(stopped)), ("c", "")])) == ["a", "b", "c"]
    process = int(stopped.read_text())
    words = next(words for words in said if f"worker {process} of node " in words)  # on a busy machine not the only
    assert words.startswith(f"warning: stopping(b, {stopped}): worker")
    assert words.endswith("has been silent for 2 s; attempt 2 of 5 runs elsewhere")
    until(lambda: not Path(f"/proc/{process}").exists())


def stopping(told: tuple[str, str]) -> str:
    """The first attempt stops its worker."""
    name, note = told
    if note and not Path(note).exists():
        Path(note).write_text(f"{os.getpid()}")
        os.kill(os.getpid(), signal.SIGSTOP)
    return name


def test_workers_that_always_stop(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS", 2)
    quick = replace(engine, silent_s=0.9)
    with pytest.raises(ClusterError, match=r"in 2 attempts: worker \d+ of node .* was silent for 0\.9 s") as caught:
        list(quick.map(stop, ["b.parquet"]))
    assert (caught.value.where, caught.value.exit_code) == ("stop(b.parquet)", 4)


def stop(_: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_worker_that_was_stopped_before_it_began(engine: Ray) -> None:
    """Ray takes it for idle and gives it work, which it never begins, while others do theirs."""
    said: list[str] = []
    quick = replace(engine, silent_s=2.0, say=said.append)
    idle = max(quick.map(process, range(4)))
    os.kill(idle, signal.SIGSTOP)
    try:
        assert idle not in set(quick.map(process, range(6)))
    finally:
        with suppress(ProcessLookupError):
            os.kill(idle, signal.SIGKILL)
    assert any("has been silent for 2 s; attempt 2 of 5" in words for words in said)


def process(_: int) -> int:
    time.sleep(0.2)
    return os.getpid()


def test_every_processor_is_taken(engine: Ray, tmp_path: Path) -> None:
    """By somebody else's work: said after a while, and an error in the end."""
    said: list[str] = []

    def hold(mark: str) -> None:
        Path(mark).touch()
        time.sleep(60)

    others = [ray.remote(hold).options(num_cpus=1).remote(str(tmp_path / str(i))) for i in range(2)]
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        hasty = replace(engine, silent_s=0.5, patience=4.0, say=said.append)
        with pytest.raises(ClusterError, match=r"no task has begun, for \d+ s") as caught:
            list(hasty.map(abs, [1]))
    finally:
        for other in others:
            ray.cancel(other, force=True)
    assert caught.value.exit_code == 4
    (words,) = said
    assert re.fullmatch(r"warning: no task has begun; waiting for room since \d+ s, at most 4 s", words)


def test_a_file_that_ends_the_worker_is_named(engine: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_workers_have_a_cache_of_their_own(nodes: Nodes, engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORELAKE_CACHE", "/the/drivers")
    mirror = Mirror.of("s3://bucket/out")
    assert mirror.folder.startswith("/the/drivers/")
    (there,) = engine.map(folder, [mirror])
    assert there == mirror.folder.replace("/the/drivers", nodes.cache)


def folder(mirror: Mirror) -> str:
    return mirror.folder


def test_interrupted(nodes: Nodes, engine: Ray, lake: Path, tmp_path: Path) -> None:
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
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (
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
    from scorelake.counting import partial
    def count(task, folder):
        while True:
            time.sleep(0.05)
    partial.count = count
    return tasks.count_all(todo)
scorelake.tasks.count_all = asleep
scorelake.cli.main()
"""
"""The command line with tasks that never end once they have begun to write."""


# --- what people get wrong ------------------------------------------------------------------------------------


def test_bad_data_is_refused_in_the_same_words(engine: Ray, tmp_path: Path) -> None:
    synth.write(tmp_path / "lake", synth.Plan(1, 10, 4))
    (tmp_path / "lake" / "cut.parquet").write_bytes(b"PAR1 cut off")
    said = []
    for where in (local, engine):
        with pytest.raises(DataError) as caught:
            run(tmp_path / "lake", tmp_path / "out", engine=where)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "cut.parquet" in said[0]


def test_nodes_must_have_the_same_versions(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSIONS", {"scorelake": "9.9", "polars": pl.__version__, "absent": "1"})
    with pytest.raises(UsageError) as caught:
        list(engine.map(abs, [1]))
    assert f"has scorelake 0.1.0 and polars {pl.__version__} and no absent, while" in caught.value.what
    assert "pip install 'scorelake==9.9'" in str(caught.value.hint)


def test_nodes_must_see_lake_and_output(engine: Ray) -> None:
    blind = replace(engine, shared=("/no/such/lake",))
    with pytest.raises(UsageError, match=r"/no/such/lake: node .* does not see it"):
        list(blind.map(abs, [1]))


def test_no_node_is_large_enough(engine: Ray) -> None:
    greedy = replace(engine, memory=99_999 << 30, patience=0.5)
    with pytest.raises(ClusterError, match=r"no node of the cluster has 1 CPUs and 99999\.0 GB"):
        list(greedy.map(abs, [1]))


@pytest.mark.parametrize("address", ["nowhere", "ray://127.0.0.1:1", ":6379", "host:port", "127.0.0.1:99999"])
def test_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="not an address"), engines.connect("ray", address, load()):
        pass


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "no Ray cluster answers: Connection refused"),
        ("no-such-host.invalid:6379", "no Ray cluster answers: "),
        (f"{'x' * 70}.example:6379", "no Ray cluster answers: "),
    ],
)
def test_no_cluster_there(address: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said) as caught, engines.connect("ray", address, load()):
        pass
    assert (caught.value.where, caught.value.exit_code) == (address, 4)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "something listens there, but says nothing"),
        (b"", "something listens there, but says nothing"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no Ray cluster but a web server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "what answers there is no Ray cluster$"),
        (b"-ERR unknown command\r\n", "what answers there is no Ray cluster$"),
    ],
)
def test_something_else_is_there(answer: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts and is silent, one that hangs up, a web server, and others that talk."""
    monkeypatch.setattr(joining, "ANSWER", 0.5)
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
        with pytest.raises(ClusterError) as caught, engines.connect("ray", address, load()):
            pass
        thread.join()
    assert re.search(said, caught.value.what)
    assert (caught.value.where, caught.value.exit_code) == (address, 4)
    assert "6379" in str(caught.value.hint)


def test_an_address_is_for_ray() -> None:
    with pytest.raises(UsageError, match="--address is for --engine ray"):
        engines.connect("local", "auto", load())


def test_ray_is_an_extra(lake: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; import scorelake.cli; scorelake.cli.main()"
    command = [sys.executable, "-c", code, "score", str(lake), "--out", str(tmp_path / "out"), "--engine", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "hint: pip install 'scorelake[ray]'" in done.stderr


def test_the_command_line(nodes: Nodes, lake: Path, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    """From another folder than the workers', with paths of its own; the same line as always, and nothing of Ray's."""
    done = cli(
        "score", "lake", "--out", tmp_path / "out", "--engine", "ray", "--address", nodes.address, cwd=lake.parent
    )
    assert (done.returncode, done.stdout) == (0, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("712 rows read in 12 files")
    assert second.startswith("published ")
