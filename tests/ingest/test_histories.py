"""After every step of a history, a lake equals a fresh ingest of the logs, or ingest failed and changed nothing.

HISTORIES and INGEST_KILLS in the environment are the numbers of histories and of kills at random moments.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pytest

from conftest import REPO
from layouts import LAYOUTS, Table
from scorelake.errors import LakeError, LockedError, ScorelakeError
from scorelake.ingest.archives import ZipFile
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.job import ingest
from scorelake.lake.listing import listing

HISTORIES, KILLS = int(os.environ.get("HISTORIES", "5")), int(os.environ.get("INGEST_KILLS", "3"))
TABLES = [name for name, layout in LAYOUTS.items() if layout.options == LAYOUTS["generic_csv"].options]
LOGS = [name for name, layout in LAYOUTS.items() if layout.format != "generic"]
RUN_PER_ATTEMPT = ("harbor", "lm_eval", "swebench", "bfcl", "lighteval")
"""The second attempts are a source of their own, and one that is deleted stays in the lake."""
HAVE_IDS = ("inspect", "terminal_bench", "tau2", "lm_eval", "every_eval_ever")
"""Formats with an id of the run, by which a log is recognised that was moved and changed at once."""
IDS = {  # as the layouts write them
    '"task_id": "T1"': '"task_id": "T{}"',
    '"eval_id": "E1"': '"eval_id": "E{}-{}"',
    '"created": "2026-01-01': '"created": "2026-01-{1:02}',
    '"run_id": "r"': '"run_id": "r{}"',
    '"timestamp": "T"': '"timestamp": "T{}"',
    '"evaluation_id": "e/1"': '"evaluation_id": "e/{}"',
    '"groups": ["toy"]': '"groups": ["toy-helm"]',
}
KILLED_INGEST = """
import json, os, sys
from scorelake.ingest import contract, job
options = {k: tuple(map(tuple, v)) if k == "map" else v for k, v in json.loads(sys.argv[3]).items()}
left = int(sys.argv[4])
def kill_after(*event):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
sys.addaudithook(kill_after)
job.ingest([sys.argv[1]], sys.argv[2], options=contract.IngestOptions(**options))
print(-left)
"""


def attempts(lake: Path) -> set[str]:
    """Return the attempts that `score` would read, with all columns but the name of the file."""
    try:
        files = listing(lake).files
    except LakeError:
        return set()
    out = set()
    for file in files:
        rows = pl.read_parquet(lake / file.path, hive_partitioning=False).drop("source").to_dicts()
        benchmark = {"benchmark": unquote(file.path.split("/")[0].removeprefix("benchmark="))}
        out |= {json.dumps(row | benchmark, sort_keys=True) for row in rows}
    return out


def columns(lake: Path) -> dict[str, Any]:
    """Return what the description says of the columns."""
    path = lake / "_scorelake.json"
    described = json.loads(path.read_text()) if path.exists() else {}
    return {key: described.get(key) for key in ("columns", "carry", "measures", "protocol")}


@dataclass
class Log:
    """One log of a history: its layout, content and folder."""

    layout: str
    number: int
    folder: Path
    table: Table
    retries: int = 0

    @property
    def has_id(self) -> bool:
        return self.layout.startswith(HAVE_IDS) and self.layout != "tau2_folder"

    def write(self) -> Path:
        """Write the log with ids of its own; a retry of an Inspect log is another file."""
        if not self.layout.startswith("inspect"):
            shutil.rmtree(self.folder, ignore_errors=True)
        path = LAYOUTS[self.layout].write(self.folder, self.table)
        if self.layout.startswith("inspect"):
            path = path.replace(path.with_name(f"log-{self.retries}{path.suffix}"))
        for other in sorted(self.folder.rglob("*.*")):
            if other.suffix == ".eval" and other == path:
                with ZipFile(path) as archive:
                    members = {name: self._with_ids(archive.read(name).decode()) for name in archive.namelist()}
                with ZipFile(path, "w", 8) as archive:
                    for name, text in members.items():
                        archive.writestr(name, text)
            elif other.suffix in (".json", ".jsonl") and other.is_file():
                other.write_text(self._with_ids(other.read_text()))
                if self.layout == "lm_eval":
                    renamed = other.rename(other.with_name(other.name.replace("00.5", f"{self.number:02}.5")))
                    path = renamed if other == path else path
        return path

    def _with_ids(self, text: str) -> str:
        for theirs, ours in IDS.items():
            text = text.replace(theirs, ours.format(self.number, self.retries + 1))
        return text


class History:
    """Logs that change, and a lake that follows them."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.draw, self.lake = home, random.Random(seed), home / "lake"
        self.logs: list[Log] = []
        self.torn: tuple[Path, bytes] | None = None
        self.n_fresh, self.n_logs, self.succeeded = 0, 0, False
        self.layouts = TABLES if seed % 5 == 4 else LOGS
        self.options: dict[str, Any] = {"model": "m", "benchmark": "toy", "metric": ("toy-helm=exact_match",)}
        if self.layouts == TABLES:
            self.options = LAYOUTS["generic_csv"].options
        (home / "logs").mkdir(parents=True)
        self.add()

    def add(self) -> None:
        self.n_logs += 1
        shared = self.draw.randrange(self.n_logs) if self.draw.random() < 0.2 else self.n_logs
        names = [f"a__b-{shared}{i}" for i in range(self.draw.randint(1, 3))]
        folder = self.home / "logs" / f"job-{self.n_logs}"
        table = {name: [self.draw.randrange(2) for _ in range(2)] for name in names}
        self.logs.append(Log(self.draw.choice(self.layouts), self.n_logs, folder, table))
        self.logs[-1].write()

    def append(self, log: Log) -> None:
        log.table = {name: [*values, self.draw.randrange(2)] for name, values in log.table.items()}
        log.write()

    def regrade(self, log: Log) -> None:
        log.table = {name: [1 - values[0], *values[1:]] for name, values in log.table.items()}
        log.write()

    def shrink(self, log: Log) -> None:
        kept = None if log.layout.startswith(RUN_PER_ATTEMPT) else 1
        log.table = {name: values[:kept] for name, values in list(log.table.items())[:1]}
        log.write()

    def move(self, log: Log) -> None:
        if not self.succeeded and not log.has_id:
            return  # moved and changed since it was read: nothing shows that it is the same log
        new = log.folder.with_name(f"moved-{self.draw.randrange(10**6)}")
        new = self.draw.choice([new, new / "deeper"])
        new.parent.mkdir(exist_ok=True)
        log.folder = log.folder.rename(new)
        if log.has_id and self.draw.random() < 0.5:
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
        elif self.draw.random() < 0.25:
            self.add()
        else:
            steps: list[Callable[[Log], None]]
            steps = [self.append, self.regrade, self.shrink, self.move, self.copy, self.retry, self.tear]
            self.draw.choice(steps)(self.draw.choice(self.logs))

    def ingest_into(self, lake: Path) -> bool:
        """Ingest the logs; return whether that succeeded."""
        try:
            report = ingest([str(self.home / "logs")], str(lake), options=IngestOptions(**self.options))
            return report.status != "refused"
        except LockedError:
            raise
        except ScorelakeError:
            return False

    def ingest_twice_at_once(self) -> bool:
        """Start two ingests; return whether one succeeded."""
        with ThreadPoolExecutor(2) as pool:
            results = [pool.submit(self.ingest_into, self.lake) for _ in range(2)]
        errors = [each.exception() for each in results]
        assert all(isinstance(error, LockedError | None) for error in errors), errors
        assert None in errors
        succeeded = {each.result() for each, error in zip(results, errors, strict=True) if error is None}
        assert len(succeeded) == 1
        return succeeded.pop()

    def check(self) -> None:
        """Ingest, and compare with a fresh ingest."""
        before = attempts(self.lake), columns(self.lake)
        is_double = self.draw.random() < 0.1
        self.succeeded = self.ingest_twice_at_once() if is_double else self.ingest_into(self.lake)
        self.n_fresh += 1
        fresh = self.home / f"fresh-{self.n_fresh}"
        assert self.succeeded == self.ingest_into(fresh)
        expected = (attempts(fresh), columns(fresh)) if self.succeeded else before
        assert (attempts(self.lake), columns(self.lake)) == expected
        named = {file.path for file in listing(self.lake).files} if expected[0] else set()
        assert {path.relative_to(self.lake).as_posix() for path in self.lake.rglob("*.parquet")} == named
        shutil.rmtree(fresh, ignore_errors=True)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_lake_equals_a_fresh_ingest_after_every_step(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, seed)
    for _ in range(8):
        history.check()
        history.change()
    history.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_ingest_leaves_the_old_lake_or_the_new_one(seed: int, tmp_path: Path) -> None:
    """The process ends at a random call of the operating system; the next ingest completes its work."""
    history = History(tmp_path, seed)
    history.add()
    if seed % 3:
        history.check()
        history.regrade(history.logs[0])
        history.add()

    def run(lake: Path, last_event: int) -> subprocess.CompletedProcess[str]:
        arguments = [str(history.home / "logs"), str(lake), json.dumps(history.options), str(last_event)]
        environment = {**os.environ, "PYTHONPATH": str(REPO / "pipeline")}
        command = [sys.executable, "-c", KILLED_INGEST, *arguments]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    before = attempts(history.lake)
    if history.lake.exists():
        shutil.copytree(history.lake, tmp_path / "other")
    n_events = int(run(tmp_path / "other", 0).stdout)
    assert run(history.lake, history.draw.randint(1, n_events)).returncode == 9
    after = attempts(history.lake)
    history.check()
    assert after in (before, attempts(history.lake))
