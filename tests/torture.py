"""Break the job on purpose: SIGKILL at named steps and at random moments, and readers during publications.

test_torture runs a few of them, `make torture` many.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from conftest import tables
from scorelake import synth
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output, locked
from scorelake.settings import load

STEPS = (
    "scorelake.tasks.count",
    "scorelake.counting.shard.count",
    "scorelake.counting.shard.count_chunk",
    "scorelake.counting.partials.describe",
    "scorelake.tasks.replace_folder",
    "scorelake.tasks.merge",
    "scorelake.scoring.summaries.summarize",
    "scorelake.pipeline.stage",
    "scorelake.pipeline.publish",
    "scorelake.publish.leaderboard.build",
    "scorelake.publish.leaderboard._load_problems",
    "scorelake.publish.leaderboard._add_comments",
    "scorelake.publish.publication.atomic_replace",
    "scorelake.publish.publication.write_history",
    "scorelake.publish.publication.record_board",
    "scorelake.storage.disk.flush",
    "scorelake.publish.publication.checksum",
    "os.replace",
)
SETTINGS = load(**{"metrics.names": ("pass@1", "pass@4", "bayes@N")})

CHILD = """
import importlib, os, signal, sys
step, moment, nth, lake, out = sys.argv[1:]
import scorelake.pipeline
from scorelake.publish.snapshot import Output
sys.path.insert(0, {here!r})
import torture
home, name = step.rsplit(".", 1)
try:
    owner = importlib.import_module(home)
except ModuleNotFoundError:
    module, kind = home.rsplit(".", 1)
    owner = getattr(importlib.import_module(module), kind)
real, calls = getattr(owner, name), iter(range(1, 1 << 30))
def deadly(*arguments, **options):
    mine = next(calls)  # several threads may call
    if moment == "before" and mine == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*arguments, **options)
    if moment == "after" and mine == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, deadly)
scorelake.pipeline.score_lake(lake, Output(__import__("pathlib").Path(out)), torture.SETTINGS)
"""


def visible(out: Path) -> str | None:
    """All that a reader sees of the scores, as text; None without a leaderboard."""
    path = out / "leaderboard.duckdb"
    if not path.exists():
        return None
    with duckdb.connect(str(path), read_only=True) as db:
        scores = db.execute("SELECT * FROM model_summary ORDER BY ALL").fetchall()
        counts = db.execute("SELECT count(*), sum(n), sum(c), sum(hash(problem_id)) FROM problem_counts").fetchall()
        runs = db.execute("SELECT rows_read, graded FROM run WHERE shown").fetchall()
    return json.dumps([scores, counts, runs], default=str)


class Arena:
    """A lake with a published run, the same lake with a night's new files, and what both should look like."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lake, self.before = home / "lake", home / "before"
        synth.write(self.lake, synth.Plan(3, 60, 8, seed=1))
        score_lake(self.lake, Output(self.before), SETTINGS)
        synth.write(home / "new", synth.Plan(3, 40, 8, seed=2))
        for path in (home / "new").rglob("*.parquet"):  # another benchmark, since attempts are numbered from 0 again
            frame = pl.read_parquet(path, hive_partitioning=False).with_columns(benchmark=pl.lit("night"))
            frame.write_parquet(self.lake / path.parent.name / "part-9.parquet")
        shutil.copytree(self.before, home / "after")
        score_lake(self.lake, Output(home / "after"), SETTINGS)
        self.old, self.new = visible(self.before), visible(home / "after")
        self.tables = tables(home / "after")

    def fresh(self, name: str) -> Path:
        out = self.home / name
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.before, out)
        return out

    def judge(self, out: Path, what: str) -> None:
        """A reader sees old or new, the next run finishes, and its tables are those of an undisturbed one."""
        seen = visible(out)
        assert seen in (self.old, self.new), f"{what}: a reader sees something else"
        score_lake(self.lake, Output(out), SETTINGS)
        assert visible(out) == self.new, f"{what}: the next run differs"
        assert tables(out) == self.tables, f"{what}: tables are not byte-identical"
        leftovers = [path for path in out.rglob(".*") if path.name not in (".lock",)]
        assert not leftovers, f"{what}: {leftovers}"


def kill_at_steps(arena: Arena, steps: tuple[str, ...] = STEPS, nths: tuple[int, ...] = (1, 2)) -> int:
    """SIGKILL itself before and after the first calls of each step."""
    code, kills = CHILD.format(here=str(Path(__file__).parent)), 0
    for step in steps:
        for moment in ("before", "after"):
            for nth in nths:
                out = arena.fresh("killed")
                command = [sys.executable, "-c", code, step, moment, str(nth), str(arena.lake), str(out)]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
                assert done.returncode in (0, -signal.SIGKILL), done.stderr
                assert done.returncode or nth > 1, f"{step} is never called"
                kills += done.returncode != 0
                arena.judge(out, f"{moment} call {nth} of {step}")
    return kills


def kill_at_random(arena: Arena, many: int, seed: int = 0) -> int:
    """SIGKILL from outside at a random moment of a run: of the command alone, or also of the job that it guards."""
    rng, kills = random.Random(seed), 0
    score = [sys.executable, "-m", "scorelake", "score", str(arena.lake)]
    command = [*score, "--metrics", "pass@1,pass@4,bayes@N", "--out"]
    began = time.perf_counter()
    subprocess.run([*command, str(arena.fresh("timed"))], check=True, capture_output=True)
    length = time.perf_counter() - began
    runs = 0
    while kills < many:
        out = arena.fresh("killed")
        runs += 1
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, str(out)], start_new_session=True, **quiet)
        time.sleep(rng.uniform(0.3, 1.0) * length)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL) if kills % 2 else os.killpg(process.pid, signal.SIGKILL)
        kills += process.wait() != 0
        _until_gone(process.pid, out)
        arena.judge(out, f"random kill {kills} in run {runs}")
    return runs


def _until_gone(group: int, out: Path, patience: float = 10.0) -> None:
    """A job whose caller was killed ends as well, and holds no lock; the system may take a moment to bury it."""
    hopeless = time.monotonic() + patience
    while time.monotonic() < hopeless:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    with locked(Output(out)):
        pass


def read_while_publishing(home: Path, publications: int, readers: int = 3) -> tuple[int, list[str]]:
    """Readers that open, check and close all the time, while a writer publishes; reads made, and what went wrong."""
    home.mkdir(parents=True, exist_ok=True)
    out = home / "out"
    pieces = home / "lake"
    pieces.mkdir()
    _piece(pieces, 0)
    score_lake(pieces, Output(out), SETTINGS)
    context = multiprocessing.get_context("spawn")
    stop, queue = context.Event(), context.Queue()
    pool = [context.Process(target=_reader, args=(str(out), stop, queue)) for _ in range(readers)]
    for process in pool:
        process.start()
    for i in range(1, publications + 1):
        _piece(pieces, i)
        score_lake(pieces, Output(out), SETTINGS)
    stop.set()
    results = [queue.get(timeout=60) for _ in pool]
    for process in pool:
        process.join()
    return sum(reads for reads, _ in results), [fault for _, faults in results for fault in faults]


def _piece(folder: Path, i: int) -> None:
    """One more file: problem i, with i + 1 attempts, all passed."""
    frame = pl.DataFrame({"model": ["m"] * (i + 1), "problem_id": [str(i)] * (i + 1), "passed": [True] * (i + 1)})
    frame.write_parquet(folder / f"{i}.parquet")


def _reader(out: str, stop, queue) -> None:  # type: ignore[no-untyped-def]
    reads, faults = 0, []
    while not stop.is_set():
        try:
            with duckdb.connect(f"{out}/leaderboard.duckdb", read_only=True) as db:
                problems, n, rows, files = db.execute(
                    "SELECT (SELECT count(*) FROM problem_counts), (SELECT sum(n) FROM problem_counts), "
                    "max(rows_read), max(files) FROM run"
                ).fetchone()  # type: ignore[misc]
            if not (problems == files and n == rows == files * (files + 1) // 2):
                faults.append(f"torn: {problems} problems, {files} files, {n} attempts, {rows} rows")
        except Exception as error:
            faults.append(repr(error))
        reads += 1
    queue.put((reads, faults))
