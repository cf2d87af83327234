"""The package as a notebook sees it: quick to load, typed, with clear errors, and without effects on its caller."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scorelake as sl
from conftest import FIXTURES, REPO, expand, run
from scorelake.errors import UsageError

HEAVY = ("numpy", "scipy", "polars", "pyarrow", "duckdb", "pydantic", "numba", "jinja2", "pandas", "typer")


def _python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_public_names_are_documented() -> None:
    classes = ["Board", "Comparison", "Drawing"]
    assert dir(sl) == [*classes, "__version__", "errors", "gate", "metrics", "open", "plan", "score"]
    assert [name for name in dir(sl) if f"`{name}`" not in (sl.__doc__ or "")] == []
    things = {name: getattr(sl, name) for name in dir(sl) if name != "__version__"}
    things |= {name: thing for name, thing in vars(sl.Board).items() if not name.startswith("_")}
    assert [name for name, thing in things.items() if not thing.__doc__] == []
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        sl.scores  # type: ignore[attr-defined]  # noqa: B018
    assert (Path(sl.__file__).parent / "py.typed").exists()


def test_metrics_has_functions_only() -> None:
    """No modules, imports or types, and each has a section in docs/api.md."""
    page = (REPO / "docs" / "api.md").read_text(encoding="utf-8")
    assert dir(sl.metrics) == sorted(sl.metrics.__all__)
    assert [name for name in dir(sl.metrics) if not inspect.isfunction(getattr(sl.metrics, name))] == []
    assert [name for name in dir(sl.metrics) if f"## `scorelake.metrics.{name}`" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import scorelake as sl; sl.score, sl.open, sl.errors", HEAVY),
        ("import scorelake as sl; sl.metrics.pass_at_k(3, 1, 2)", HEAVY[2:]),
        # the command line sets the threads of Polars before it is loaded
        (f"from scorelake.lake.description import settings_for; settings_for('{FIXTURES / 'lake'}')", ("polars",)),
    ],
)
def test_heavy_libraries_are_loaded_on_first_use(code: str, heavy: tuple[str, ...]) -> None:
    assert _python(f"{code}; import sys; print(*[name for name in {heavy} if name in sys.modules])").split() == []


@pytest.mark.slow
def test_submodules_do_not_replace_functions() -> None:
    """`import scorelake.scoring.values` binds a package; sl.score stays the function."""
    _python("import scorelake.scoring.values, scorelake.pipeline, scorelake as sl; sl.score([[1]])")


@pytest.mark.slow
def test_the_calling_process_is_not_changed() -> None:
    """Environment, folder, filters, hooks and handlers, random state, threads and allocators stay."""
    _python(
        "import logging, multiprocessing, os, random, signal, sys, threading, warnings\n"
        "import numpy as np, threadpoolctl\n"
        "import scorelake as sl\n"
        "def state():\n"
        "    blas = [(pool['internal_api'], pool['num_threads']) for pool in threadpoolctl.threadpool_info()]\n"
        "    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]\n"
        "    numbers = (random.getstate(), np.random.get_state()[1].tolist(), np.geterr())\n"
        "    others = (os.getcwd(), list(warnings.filters), sys.path[:], sys.excepthook, threading.excepthook)\n"
        "    loggers = [logging.root, *(logging.getLogger(name) for name in ('scorelake', 'scorelake.notebook'))]\n"
        "    logs = [(logger.handlers[:], logger.filters[:], logger.level, logger.propagate) for logger in loggers]\n"
        "    arrow = (pa.default_memory_pool().backend_name, pa.cpu_count(), pa.io_thread_count())\n"
        "    libraries = (polars.thread_pool_size(), polars.Config.state(), multiprocessing.get_start_method(True))\n"
        "    return dict(os.environ), handlers, numbers, blas, others, logs, arrow, libraries\n"
        "import polars, pyarrow as pa, scipy.sparse, scipy.special\n"
        "before = state()\n"
        "with sl.score({'a': [[1, 0], [0, 1]], 'b': [[1], [1]]}, config={'run': {'threads': 1}}) as board:\n"
        "    board.compare('a', 'b', 'maj@1'), repr(board), board._repr_html_(), board.plot.curve()\n"
        f"sl.score('{FIXTURES / 'lake'}', metrics='pass@1').leaderboard()\n"
        f"sl.score(polars.read_parquet('{FIXTURES / 'results.parquet'}'), metrics='pass@1').sql('FROM run')\n"
        "sl.metrics.summarize('pass@1', [4], [2])\n"
        "try: sl.score([[2]])\n"
        "except sl.errors.ScorelakeError: pass\n"
        "for old, new in zip(before, state(), strict=True):\n"
        "    assert old == new, (old, new)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )


@pytest.mark.slow
def test_settings_come_from_a_file_a_dictionary_or_arguments(tmp_path: Path) -> None:
    """Arguments override the config."""
    (tmp_path / "a.toml").write_text('by = ["difficulty"]\n[metrics]\nnames = ["pass@2"]\n[compare]\nseed = 7\n')
    config = {"by": ["difficulty"], "metrics": {"names": ["pass@2"]}, "compare": {"seed": 7}}
    arguments: list[dict[str, Any]] = [
        {"config": tmp_path / "a.toml"},
        {"config": config},
        {"config": {"compare": {"seed": 7}, "columns": {}}, "by": "difficulty"},
    ]
    settings = []
    for given in arguments:
        with sl.score(FIXTURES / "lake", metrics="pass@1", **given) as board:
            settings.append(board.table("setting").drop("settings").sort("key").rows())
    assert settings[0] == settings[1] == settings[2]
    assert dict(settings[0])["metrics.names"] == '["pass@1"]'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"entries": "foo"}, "entries must be passed or score, got 'foo'"),
        ({"columns": "model"}, "columns must be a dictionary, got 'model'"),
        ({"columns": {"modle": "m"}}, "unknown key columns.modle"),
        ({"metrics": 3}, "metrics must be a name or a list of names, got 3"),
        ({"by": 3}, "by must be a name"),
        ({"config": [1]}, r"config must be a path or a URL, got \[1\]"),
        ({"config": {"polcy": {}}}, "unknown key polcy"),
        ({"config": {"columns": 3}, "columns": {"model": "m"}}, "columns: .* got 3"),
        ({"out": 3}, "out must be a path or a URL, got 3"),
        ({"memry": 3}, r"(?s)score\(\) has no argument memry\n.*did you mean memory\?"),
        ({"progress": 3}, "progress must be a function, got 3"),
        ({"memory": "much"}, "run.memory_gb"),
        ({"engine": "spark"}, "(?s)no engine spark\n.*known engines: local, ray"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sl.score([[1, 0]], **given)


def test_entries_is_for_matrices_only() -> None:
    for attempts in (FIXTURES / "lake", expand([("p", 2, 1)], model="m")):
        with pytest.raises(UsageError, match="entries is for matrices only"):
            sl.score(attempts, entries="passed")
    with pytest.raises(UsageError, match="out must be a path or a URL, got 3"):
        sl.open(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_lake_is_scored_as_by_the_job(out: Path) -> None:
    run(FIXTURES / "lake", out, metrics=["pass@1"])
    stages: list[str] = []
    options: dict[str, Any] = {"progress": lambda stage, done, total: stages.append(stage)}
    with sl.score(FIXTURES / "lake", metrics=["pass@1"], **options) as board, sl.open(out) as published:
        assert board.table("model_summary").equals(published.table("model_summary"))
    assert {"counting", "merging", "scoring", "publishing"} <= set(stages)
