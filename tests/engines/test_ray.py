"""A real cluster of several nodes on this machine: the same bytes as without it, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import ray

from conftest import Nodes, ask, run, snapshot, tables
from scorelake import engines, synth, tasks
from scorelake.engines import local
from scorelake.engines import ray as module
from scorelake.engines.ray import Ray
from scorelake.errors import ClusterError, DataError, UsageError
from scorelake.partials import Partial
from scorelake.settings import load

CUT = "[run]\nshard_mb = 0.001\nbucket_rows = 300\n"
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
    """Counting that takes a moment and leaves a note when it begins and when it ends."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        notes.mkdir()

    def __call__(self, todo: Sequence[tasks.Count]) -> list[Partial]:
        (one,) = todo
        note = self.notes / f"{one.task.name}-{os.getpid()}-{ray.get_runtime_context().get_node_id()}"
        note.touch()
        time.sleep(0.4)
        from scorelake import tasks as own  # the worker's, which are as they were

        partials = own.count_all(todo)
        note.with_suffix(".done").touch()
        return partials

    def begun(self) -> list[str]:
        return sorted(path.name for path in self.notes.glob("*[!.]*") if path.suffix != ".done")

    def running(self) -> list[tuple[int, str]]:
        """Process and node of every task that has begun and not ended."""
        ended = {path.stem for path in self.notes.glob("*.done")}
        told = [name.split("-") for name in self.begun() if name not in ended]
        return [(int(pid), node) for _, pid, node in told]


def struck(
    engine: Ray, lake: Path, out: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch, strike: Callable[[], None]
) -> int:
    """The job, struck once while it counts; how many tasks began more than once."""
    monkeypatch.setattr(tasks, "count_all", slow)
    waiting = [strike]

    def progress(stage: str, done: int, of: int) -> None:
        if stage == "counting" and 0 < done < of and waiting:
            waiting.pop()()

    report = run(lake, out, CUT, engine=engine, progress=progress)
    assert not waiting, "nothing was struck"
    assert report.files_read == 12
    return len(slow.begun()) - len({name.split("-")[0] for name in slow.begun()})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_killed(
    engine: Ray, lake: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(tmp_path / "notes")

    def strike() -> None:
        until(lambda: bool(slow.running()))
        os.kill(slow.running()[0][0], signal.SIGKILL)

    assert struck(engine, lake, tmp_path / "out", slow, monkeypatch, strike) >= 1
    assert tables(tmp_path / "out") == expected


def test_a_node_killed(
    nodes: Nodes, engine: Ray, lake: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed, slow = nodes.add(), Slow(tmp_path / "notes")
    until(lambda: engine.at_once == 3)

    def strike() -> None:
        until(lambda: any(node == doomed.node_id for _, node in slow.running()))
        nodes.kill(doomed)

    assert struck(engine, lake, tmp_path / "out", slow, monkeypatch, strike) >= 1
    assert tables(tmp_path / "out") == expected
    until(lambda: engine.at_once == 2)  # the cluster may notice after the job is done


def test_a_task_that_always_kills_its_worker(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", 1)
    with pytest.raises(ClusterError, match="could not be finished in 2 attempts") as caught:
        list(engine.map(suicide, [0]))
    assert caught.value.exit_code == 4


def suicide(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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
    from scorelake.count import partial
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


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "no Ray cluster answers"),
        ("nowhere", "not an address"),
        ("ray://127.0.0.1:1", "not an address"),
    ],
)
def test_no_cluster_there(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said), engines.connect("ray", address, load()):
        pass


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
