"""The description of a lake: defaults for settings, overridden by config and flags, refused if damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cloud import QUICK, upload
from conftest import ask, attempts, put, snapshot
from scorelake.errors import DataError
from scorelake.lake.description import NAME, described, settings_for
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.settings import PATIENCE, Settings

CONTENT = {"version": 1, "protocol": ["temperature"], "carry": ["level"], "columns": {"model": "who", "answer": ""}}


def describe(lake: Path, content: Any = CONTENT) -> str:
    lake.mkdir(parents=True, exist_ok=True)
    (lake / NAME).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(lake)


def test_below_the_config_and_the_flags(tmp_path: Path) -> None:
    lake, config = describe(tmp_path / "lake"), tmp_path / "c.toml"
    content = settings_for(lake)
    assert (content.columns.model, content.columns.answer, content.columns.carry) == ("who", "", ("level",))
    assert content.protocol.columns == ("temperature",)
    config.write_text('[columns]\nsubject = "topic"\ncarry = []\n[protocol]\ncolumns = ["grader"]\n')
    content = settings_for(lake, config, columns={"answer": "response"})
    assert (content.columns.model, content.columns.subject, content.columns.answer) == ("who", "topic", "response")
    assert (content.columns.carry, content.protocol.columns) == ((), ("grader",))
    assert settings_for(str(tmp_path / "nothing")) == settings_for(str(config)) == Settings()


def test_counts_depend_on_it(tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    """Two temperatures are two protocols because the lake message so; without its word they are one."""
    lake, out = tmp_path / "lake", tmp_path / "out"
    put(lake, attempts(who="m", problem_id=["a"] * 4, passed=[1, 0, 1, 1], temperature=[0, 1, 0, 1], level="x"))
    describe(lake)
    sql = "SELECT protocol, n FROM problem_counts ORDER BY ALL"
    assert cli("score", lake, "--out", out).returncode == 0
    assert ask(out, sql) == [('{"temperature":0}', 2), ('{"temperature":1}', 2)]
    assert "level" in pl.read_parquet(snapshot(out) / "problem_counts").columns
    assert [f.detail for f in check.check(Output(out)) if not f.ok] == []
    describe(lake, CONTENT | {"protocol": []})
    assert cli("score", lake, "--out", out).returncode == 0
    assert ask(out, sql) == [("", 4)]
    assert cli("count", lake, "--out", tmp_path / "parts", "--shard", "1/1").returncode == 0
    assert score_lake(lake, Output(tmp_path / "parts"), settings_for(str(lake))).files_reused == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        ([1], "must be a JSON object"),
        ({"version": 2}, "has version 2, but this scorelake reads version 1"),
        (CONTENT | {"more": 1}, "more is unknown"),
        (CONTENT | {"carry": "level"}, "carry is unknown or has the wrong type"),
        (CONTENT | {"columns": {"modell": "x"}}, "columns has unknown keys: modell"),
        (CONTENT | {"columns": {"model": 3}}, "columns.model"),
        (CONTENT | {"carry": ["model"]}, "model is a column of the output already"),
    ],
)
def test_what_is_damaged_is_content(tmp_path: Path, content: Any, message: str) -> None:
    lake = describe(tmp_path / "lake", content)
    with pytest.raises(DataError) as error:
        described(lake, PATIENCE)
    assert message in error.value.what
    assert error.value.where == f"{lake}/{NAME}"


def test_object_storage(bucket: str, tmp_path: Path) -> None:
    describe(tmp_path / "lake")
    url = upload(tmp_path / "lake", f"{bucket}/lake")
    assert described(url, QUICK) == described(str(tmp_path / "lake"), PATIENCE)
    assert described(f"{bucket}/other", QUICK) == {}
