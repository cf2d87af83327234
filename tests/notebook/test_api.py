"""The package as a notebook sees it: small, quick to load, typed; and the command line goes through it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import scorelake as sl
from conftest import FIXTURES, expand, put, run
from scorelake.cli import app
from scorelake.errors import UsageError


def test_what_is_there() -> None:
    public = [name for name in dir(sl) if name in sl.__all__]
    assert public == ["Board", "Comparison", "Drawing", "__version__", "errors", "metrics", "open", "score"]
    for name in public:
        assert getattr(sl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        sl.scores  # type: ignore[attr-defined]  # noqa: B018
    assert (Path(sl.__file__).parent / "py.typed").exists()


def _loaded(code: str, among: tuple[str, ...]) -> list[str]:
    told = f"{code}; import sys; print(*[name for name in {among} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_heavy_parts_are_loaded_when_used() -> None:
    heavy = ("numpy", "scipy", "polars", "pyarrow", "duckdb", "pydantic", "numba", "jinja2", "pandas", "typer")
    assert _loaded("import scorelake as sl; sl.score, sl.open, sl.errors", heavy) == []
    assert _loaded("import scorelake as sl; sl.metrics.pass_at_k(3, 1, 2)", heavy[2:]) == []
    assert _loaded("import scorelake.notebook.board", ("polars", "pandas")) == []  # threads are told before


def test_the_room_does_not_take_the_place_of_the_function() -> None:
    """There is a package scorelake.scoring as well: whoever loads it, and when, sl.score stays the function."""
    code = (
        "import scorelake.scoring.values, scorelake.run, scorelake as sl; assert callable(sl.score); sl.score([[1]])"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_help_is_worth_reading() -> None:
    for thing in (sl, sl.score, sl.open, sl.Board, sl.Comparison, sl.Drawing, sl.metrics):
        assert len(thing.__doc__ or "") > 60
    for name, thing in vars(sl.Board).items():
        if not name.startswith("_"):
            assert thing.__doc__, name
    for name in sl.metrics.__all__:
        assert getattr(sl.metrics, name).__doc__, name


def test_the_command_line_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """score, compare and sql have no second way to do what the package does."""
    lake = put(tmp_path / "lake", expand([(f"p{i}", 2, 1) for i in range(25)], model="m")).parent
    called: list[tuple[str, Any]] = []
    score, opened = sl.score, sl.open
    monkeypatch.setattr(sl, "score", lambda *a, **k: (called.append(("score", k["columns"])), score(*a, **k))[1])
    monkeypatch.setattr(sl, "open", lambda *a: (called.append(("open", a)), opened(*a))[1])
    out = str(tmp_path / "out")
    arguments = ["score", str(lake), "--out", out, "--metrics", "pass@1,pass@2", "--column", "model=model"]
    for command in (arguments, ["compare", out, "m", "m"], ["sql", out, "SELECT 1"]):
        CliRunner().invoke(app, command)
    assert called == [("score", {"model": "model"}), ("open", (out,)), ("open", (out,))]


def test_settings_come_from_anywhere(tmp_path: Path) -> None:
    """A file, a dictionary and arguments say the same; arguments win."""
    (tmp_path / "some.toml").write_text('by = ["difficulty"]\n[metrics]\nnames = ["pass@2"]\n[compare]\nseed = 7\n')
    written = {"by": ["difficulty"], "metrics": {"names": ["pass@2"]}, "compare": {"seed": 7}}
    lake = FIXTURES / "lake"
    boards = [
        sl.score(lake, config=tmp_path / "some.toml", metrics=["pass@1"]),
        sl.score(lake, config=written, metrics="pass@1"),
        sl.score(lake, config={"compare": {"seed": 7}}, by="difficulty", metrics=["pass@1"]),
    ]
    shown = [board.table("setting").drop("settings").sort("key").rows() for board in boards]
    assert shown[0] == shown[1] == shown[2]
    assert dict(shown[0])["metrics.names"] == '["pass@1"]'


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"entries": "foo"}, "entries must be passed or score, got 'foo'"),
        ({"columns": "model"}, "columns must be a dictionary, got 'model'"),
        ({"columns": {"modle": "m"}}, "unknown key columns.modle"),
        ({"metrics": 3}, "metrics must be a name or a list of names, got 3"),
        ({"metrics": [3]}, "metrics must be a name or a list of names, got 3 among"),
        ({"metrics": None}, "metrics must be a name"),
        ({"by": 3}, "by must be a name"),
        ({"by": [None]}, "by must be a name"),
        ({"config": [1]}, r"config must be a path or an address, got \[1\]"),
        ({"config": {3: 4}}, "unknown key 3"),
        ({"config": {"columns": 3}, "columns": {"model": "m"}}, "columns: .* got 3"),
        ({"config": {"run": 3}, "memory": 2}, "run: .* got 3"),
        ({"out": 3}, "out must be a path or an address, got 3"),
        ({"out": ""}, "out must be a path or an address, got ''"),
        ({"memry": 3}, r"(?s)score\(\) has no argument memry\n.*did you mean memory\?"),
        ({"metric": "pass@1"}, r"(?s)no argument metric\n.*did you mean metrics\?"),
        ({"dry_run": True}, "no argument dry_run"),
        ({"progress": 3}, "progress must be a function, got 3"),
        ({"memory": "much"}, "run.memory_gb"),
        ({"engine": "spark"}, "(?s)no engine spark\n.*known engines: local, ray"),
    ],
)
def test_a_wrong_argument_is_told_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sl.score([[1, 0]], **given)


def test_entries_are_of_matrices() -> None:
    for attempts in (FIXTURES / "lake", expand([("p", 2, 1)], model="m")):
        for entries in ("passed", "score"):
            with pytest.raises(UsageError, match="entries is for matrices only"):
                sl.score(attempts, entries=entries)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="out must be a path or an address, got 3"):
        sl.open(3)  # type: ignore[arg-type]


def test_an_unknown_section_is_told_as_of_a_file(tmp_path: Path) -> None:
    """Also an empty one; an empty section that is known says nothing."""
    (tmp_path / "some.toml").write_text("[polcy]\n")
    told = []
    for config in (tmp_path / "some.toml", {"polcy": {}}):
        with pytest.raises(UsageError, match="unknown key polcy") as error:
            sl.score(FIXTURES / "lake", config=config)
        told.append((error.value.what, error.value.hint))
    assert told[0] == told[1]
    sl.score([[1, 0]], metrics="pass@1", config={"columns": {}, "policy": {}}).close()


def test_a_lake_is_scored_as_by_the_job(tmp_path: Path) -> None:
    run(FIXTURES / "lake", tmp_path / "out", metrics=["pass@1"])
    stages: list[str] = []
    with sl.score(
        FIXTURES / "lake", metrics=["pass@1"], progress=lambda stage, done, of: stages.append(stage)
    ) as mine:
        assert mine.table("model_summary").equals(sl.open(tmp_path / "out").table("model_summary"))
    assert {"counting", "merging", "scoring", "publishing"} <= set(stages)
