"""Partial counts on disk: a description comes back as it was written, and damage is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scorelake.counting import partials
from scorelake.counting.partials import Partial, describe, described, is_sound
from scorelake.storage.disk import checksum
from scorelake.storage.files import File

PARTIAL = Partial(
    name="x",
    files=(File("a.parquet", 5, 6, 7, 8), File("é/b.parquet", 1, 2, etag="tag")),
    method="query",
    read=3,
    rejected=1,
    rejects=(("a.parquet", "no model", 1),),
    quarantine=(("é/b.parquet", "the file is empty (0 bytes)"),),
    outcomes=(("gsm8k", "passed", "passed", "a.parquet"),),
    chunks=("counts-00000.parquet", "counts-00001.parquet"),
    problems=7,
    checksum="abc",
)
IDENTITY = {"format": 3, "counting": {"columns": {"model": "m"}}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the partial, which has its name."""
    (tmp_path / PARTIAL.name).mkdir()
    return tmp_path / PARTIAL.name


def test_a_description_comes_back(home: Path) -> None:
    describe(home, PARTIAL, IDENTITY)
    assert described(home) == PARTIAL
    assert described(home, IDENTITY) == PARTIAL
    assert described(home, {**IDENTITY, "format": 2}) is None
    home.rename(home.with_name("y"))
    assert described(home.with_name("y")) is None, "of another folder"
    assert PARTIAL.counted == 2
    assert PARTIAL.contents(home) == [home / "counts-00000.parquet", home / "counts-00001.parquet"]


def test_a_damaged_description_is_none(home: Path) -> None:
    assert described(home) is None
    assert described(home / "nowhere") is None
    describe(home, PARTIAL, IDENTITY)
    path = home / partials.DESCRIPTION
    good = path.read_bytes()
    description = json.loads(good)
    less: list[Any] = [{k: v for k, v in description.items() if k != key} for key in description if key != "checksum"]
    changed = [{**description, **change} for change in ({"more": 1}, {"files": 5}, {"chunks": 1})]
    for bad in (*less, *changed, [], None, "x", 5):
        path.write_text(json.dumps(bad))
        assert described(home) is None, bad
    for end in range(len(good)):
        path.write_bytes(good[:end])
        assert described(home) is None, end
    path.write_bytes(b"\xff" + good)
    assert described(home) is None
    (home / "file").touch()
    assert described(home / "file") is None


def test_bytes_that_changed_are_noticed(tmp_path: Path) -> None:
    for path in PARTIAL.contents(tmp_path):
        path.write_bytes(path.name.encode() * 9)
    partial = replace(PARTIAL, checksum=checksum(*PARTIAL.contents(tmp_path)))
    assert is_sound(tmp_path, partial)
    for path in partial.contents(tmp_path):
        good = path.read_bytes()
        path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
        assert not is_sound(tmp_path, partial)
        path.unlink()
        assert not is_sound(tmp_path, partial)
        path.write_bytes(good)
        assert is_sound(tmp_path, partial)
