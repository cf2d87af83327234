"""Small lakes and the job on them, for every test."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import settings
from typer.testing import CliRunner

import forked
from cloud import bucket, container, moto, proxy  # noqa: F401 - fixtures
from scorelake.cli import app
from scorelake.pipeline import RunReport, score_lake
from scorelake.publish.snapshot import Output
from scorelake.read.check import check
from scorelake.settings import load

if TYPE_CHECKING:
    from scorelake.engines.ray import RayEngine

# A slow machine is not a failure: no property test has a deadline.
settings.register_profile("scorelake", deadline=None)
settings.load_profile("scorelake")

REPO = Path(__file__).parents[1]
FIXTURES = REPO / "fixtures"


Cli = Callable[..., subprocess.CompletedProcess[str]]


def attempts(**columns: Any) -> pl.DataFrame:
    """Attempts as a frame; scalars stretch to the longest column."""
    height = max(len(column) for column in columns.values() if isinstance(column, list | pl.Series))
    stretched = {k: v if isinstance(v, list | pl.Series) else [v] * height for k, v in columns.items()}
    return pl.DataFrame(stretched, strict=False)


def expand(counts: list[tuple[str, int, int]], **columns: Any) -> pl.DataFrame:
    """One row per attempt from (problem, n, c)."""
    problem = [name for name, n, _ in counts for _ in range(n)]
    passed = [i < c for _, n, c in counts for i in range(n)]
    return attempts(problem_id=problem, passed=passed, **columns)


def put(lake: Path, frame: pl.DataFrame, name: str = "part-0.parquet", **options: Any) -> Path:
    path = lake / name
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(path, **options)
    return path


def run(lake: Path | str | pl.DataFrame, out: Path, config: str | None = None, **options: Any) -> RunReport:
    """The job with settings from TOML text; a frame becomes the only file of a lake beside the output."""
    if isinstance(lake, pl.DataFrame):
        lake = put(out.parent / "lake", lake).parent
    flags = {key: options.pop(key) for key in ("by",) if key in options}
    names = options.pop("metrics", ())
    toml = None
    if config is not None:
        out.mkdir(parents=True, exist_ok=True)
        toml = out.parent / f"{out.name}.toml"
        toml.write_text(config)
    return score_lake(lake, Output(out), load(toml, **{"metrics.names": tuple(names), **flags}), **options)


def call(*arguments: object, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which takes a fraction of the time of `cli`; a bug is an exception."""
    words = [str(argument) for argument in arguments]
    with chdir(cwd):
        done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def ask(out: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Rows of a query on the published leaderboard."""
    with duckdb.connect(str(out / "leaderboard.duckdb"), read_only=True) as db:
        return db.execute(sql, parameters).fetchall()


def snapshot(out: Path) -> Path:
    """The folder of the published run."""
    ((run_id,),) = ask(out, "SELECT run_id FROM run WHERE shown")
    return out / "snapshots" / run_id


def tables(out: Path) -> dict[str, bytes]:
    """The bytes of every table of the published snapshot that follows from the lake alone."""
    home = snapshot(out)
    files = sorted(path for path in home.rglob("*.parquet") if path.name != "change.parquet")
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in files}


def failed_checks(out: Path) -> list[str]:
    """What `scorelake check` finds wrong."""
    return [finding.what for finding in check(Output(out)) if not finding.ok]


SLOW = {"nodes", "cli", "proxy", "container"}
"""Fixtures that start processes or servers: a cluster, the command line, object storage."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the cluster comes first: so one worker of xdist has all of it, and there is only one cluster."""
    items.sort(key=lambda item: item.path.parent.name != "engines")
    for item in items:
        if SLOW & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What did not run for want of a browser is said where nobody overlooks it."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    many = sum("NO BROWSER" in reason for reason in skipped)
    if many:
        terminalreporter.write_line(
            f"NO BROWSER: {many} tests of the page did not run; `make system` installs one", red=True
        )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(scope="session")
def cli() -> Cli:
    """The command line in a process of its own."""
    return forked.Server().call


class Nodes:
    """A real Ray cluster on this machine: every node has its own raylet and workers."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # a lost node, which refuses connections, is noticed after two seconds; a slow one has all the time it needs
        quick = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_timeout_ms": 30_000,
            "health_check_failure_threshold": 4,
        }
        self.cluster = Cluster()
        self.cache = tempfile.mkdtemp()
        self.add(_system_config=quick, include_dashboard=False)
        self.add()
        self.address: str = self.cluster.address

    def add(self, **options: Any) -> Any:
        """One more node, with a cache of its own."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SCORELAKE_CACHE", self.cache)
            return self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20, **options)

    def kill(self, node: Any) -> None:
        """SIGKILL to everything of a node."""
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Two nodes of one processor each, started when the first test asks for them."""
    running = Nodes()
    yield running
    running.cluster.shutdown()
    shutil.rmtree(running.cache)


@pytest.fixture(scope="session")
def on_ray(nodes: Nodes) -> Iterator[RayEngine]:
    """The engine on that cluster; tests share it, since new workers take seconds to start."""
    from scorelake.engines.ray import connect

    with connect(nodes.address, load(**{"run.memory_gb": 1.0}).run) as engine:
        yield engine


def night(lake: Path, i: int, c: int = 2) -> None:
    put(lake, expand([(f"p{i}", 4, c)], model="m"), f"{i}.parquet")


def nights(lake: Path, out: Path, many: int = 1) -> list[RunReport]:
    """So many runs, each with one more file."""
    reports = []
    for i in range(many):
        night(lake, i)
        reports.append(run(lake, out))
    return reports
