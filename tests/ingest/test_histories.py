"""After every step of a history, a lake equals a fresh ingest of the logs, or ingest failed and changed nothing.

HISTORIES in the environment is the number of histories.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pytest

from conftest import REPO
from layouts import LAYOUTS, Table, inspect_header, inspect_sample
from scorelake.errors import LakeError, LockedError, ScorelakeError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.job import ingest
from scorelake.lake.listing import listing

HISTORIES = int(os.environ.get("HISTORIES", "4"))
OPTIONS = IngestOptions(model="m", benchmark="toy")
FORMATS = ("inspect", "terminal_bench", "tau2", "humaneval", "verifiers", "harbor", "prime_rl", "livecodebench")
HAVE_IDS = ("inspect", "terminal_bench", "tau2")
"""Formats with an id of the run, which are recognised when a log was moved and changed at once."""
KEYS = ["benchmark", "subject", "model", "temperature", "grader", "setup", "problem_id", "attempt", "passed"]
INGEST = "import sys; from scorelake.ingest import contract, job; "
INGEST += "job.ingest([sys.argv[1]], sys.argv[2], options=contract.IngestOptions(model='m', benchmark='toy'))"
KILL = """
import os
steps, last = 0, int(sys.argv[3])
def counted(function):
    def run(*args, **options):
        global steps
        steps += 1
        if steps > last:
            os._exit(9)
        return function(*args, **options)
    return run
os.replace, os.unlink, os.mkdir, os.fsync = map(counted, (os.replace, os.unlink, os.mkdir, os.fsync))
"""


def attempts(lake: Path) -> set[tuple[Any, ...]]:
    """Return the attempts that `score` would read."""
    out: set[tuple[Any, ...]] = set()
    try:
        files = listing(lake).files
    except LakeError:
        return out
    for file in files:
        benchmark = unquote(file.path.split("/")[0].removeprefix("benchmark="))
        rows = pl.read_parquet(lake / file.path, hive_partitioning=False).to_dicts()
        out |= {tuple({**row, "benchmark": benchmark}.get(key) for key in KEYS) for row in rows}
    return out


@dataclass
class Log:
    """One log of a history: what it holds, and where."""

    format: str
    number: int
    folder: Path
    table: Table
    retries: int = 0

    def write(self) -> Path:
        if self.format == "inspect":
            header = inspect_header(task_id=f"T{self.number}", eval_id=f"E{self.number}-{self.retries}")
            header["eval"]["created"] = f"2026-01-{self.retries + 1:02}T00:00:00+00:00"
            rows = [(name, i, value) for name, values in self.table.items() for i, value in enumerate(values)]
            path = self.folder / f"log-{self.retries}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(header | {"samples": [inspect_sample(*row) for row in rows]}))
            return path
        shutil.rmtree(self.folder, ignore_errors=True)
        path = LAYOUTS[self.format].write(self.folder, self.table)
        for other in self.folder.rglob("*.json"):
            text = other.read_text().replace('"run_id": "r"', f'"run_id": "r{self.number}"')
            other.write_text(text.replace('"timestamp": "T"', f'"timestamp": "T{self.number}"'))
        return path


class History:
    """Logs that change, and a lake that follows them."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.draw, self.logs, self.n_fresh, self.n_logs = home, random.Random(seed), [], 0, 0
        self.lake, self.torn, self.succeeded = home / "lake", None, False
        (home / "logs").mkdir(parents=True)
        self.logs: list[Log]
        self.torn: tuple[Path, bytes] | None
        self.add()

    def add(self) -> None:
        self.n_logs += 1
        shared = self.draw.randrange(self.n_logs) if self.draw.random() < 0.2 else self.n_logs
        names = [f"a__b-{shared}{i}" for i in range(self.draw.randint(1, 3))]
        folder = self.home / "logs" / f"job-{self.n_logs}"
        table = {name: [self.draw.randrange(2) for _ in range(2)] for name in names}
        self.logs.append(Log(self.draw.choice(FORMATS), self.n_logs, folder, table))
        self.logs[-1].write()

    def append(self, log: Log) -> None:
        log.table = {name: [*values, self.draw.randrange(2)] for name, values in log.table.items()}
        log.write()

    def regrade(self, log: Log) -> None:
        log.table = {name: [1 - values[0], *values[1:]] for name, values in log.table.items()}
        log.write()

    def shrink(self, log: Log) -> None:
        kept = (
            None if log.format == "harbor" else 1
        )  # every attempt is a job there, and a deleted job stays in the lake
        log.table = {name: values[:kept] for name, values in list(log.table.items())[:1]}
        log.write()

    def rename(self, log: Log) -> None:
        if not self.succeeded and log.format not in HAVE_IDS:
            return  # moved and changed since it was read: nothing shows that it is the same log
        new = log.folder.with_name(f"moved-{self.draw.randrange(10**6)}")
        log.folder.rename(new)
        log.folder = new
        if log.format in HAVE_IDS and self.draw.random() < 0.5:
            self.regrade(log)

    def copy(self, log: Log) -> None:
        shutil.copytree(log.folder, log.folder.with_name(f"copy-{self.draw.randrange(10**6)}"))

    def retry(self, log: Log) -> None:
        log.retries += 1
        log.table = {name: [self.draw.randrange(2) for _ in values] for name, values in log.table.items()}
        log.write()

    def tear(self, log: Log) -> None:
        path = log.write()
        self.torn = path, path.read_bytes()
        path.write_bytes(self.torn[1][: self.draw.randrange(len(self.torn[1]))])

    def change(self) -> None:
        if self.torn is not None:
            self.torn[0].write_bytes(self.torn[1])
            self.torn = None
        steps: list[Callable[[Log], None]]
        steps = [self.append, self.regrade, self.shrink, self.rename, self.copy, self.retry, self.tear]
        if self.draw.random() < 0.25:
            self.add()
        else:
            self.draw.choice(steps)(self.draw.choice(self.logs))

    def ingest_into(self, lake: Path) -> bool:
        """Ingest the logs; return whether that succeeded."""
        try:
            return ingest([str(self.home / "logs")], str(lake), options=OPTIONS).status != "refused"
        except LockedError:
            raise
        except ScorelakeError:
            return False

    def check(self) -> None:
        """Ingest, and compare with a fresh ingest."""
        before = attempts(self.lake)
        self.succeeded = succeeded = self.ingest_into(self.lake)
        self.n_fresh += 1
        fresh = self.home / f"fresh-{self.n_fresh}"
        assert succeeded == self.ingest_into(fresh)
        assert attempts(self.lake) == (attempts(fresh) if succeeded else before)
        named = {file.path for file in listing(self.lake).files} if attempts(self.lake) else set()
        assert {path.relative_to(self.lake).as_posix() for path in self.lake.rglob("*.parquet")} == named
        shutil.rmtree(fresh, ignore_errors=True)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_lake_equals_a_fresh_ingest_after_every_step(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, seed)
    for _ in range(8):
        history.check()
        history.change()
    history.check()


def test_two_at_once(tmp_path: Path) -> None:
    history = History(tmp_path, 0)
    history.check()
    before = attempts(history.lake)
    history.add()
    with (history.lake / "_ingest" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LockedError):
            history.ingest_into(history.lake)
        assert attempts(history.lake) == before
    history.check()


def check_killed(history: History, before: set[tuple[Any, ...]]) -> None:
    """A killed ingest leaves the old lake or the new one; the next one completes it."""
    after = attempts(history.lake)
    history.check()
    assert after in (before, attempts(history.lake))


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_killed_at_every_step(is_new: bool, tmp_path: Path) -> None:
    killed, step = True, 0
    while killed:
        history = History(tmp_path / str(step), 3)
        before = attempts(history.lake)
        if not is_new:
            history.check()
            before = attempts(history.lake)
            history.regrade(history.logs[0])
            history.add()
        code = f"import sys{KILL}{INGEST}"
        command = [sys.executable, "-c", code, *map(str, (history.home / "logs", history.lake, step))]
        environment = {**os.environ, "PYTHONPATH": str(REPO / "pipeline")}
        killed = subprocess.run(command, env=environment, check=False).returncode == 9
        check_killed(history, before)
        step += 7
    assert step > 14
