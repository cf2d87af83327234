"""Listing: what belongs to a lake, and in which order."""

import os
from pathlib import Path

import pytest

from conftest import expand, put, run
from scorelake.errors import LakeError
from scorelake.lake.description import described
from scorelake.lake.listing import listing
from scorelake.settings import PATIENCE

ONE = expand([("a", 2, 1)], model="m")


def test_files_in_order_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/part-1.parquet", "a/part-0.parquet", "a/part-0.PQ"):
        put(tmp_path, ONE, name)
    for name in ("_tmp/x.parquet", "a/.hidden.parquet", "_SUCCESS", "notes.txt", "a/_part.parquet"):
        put(tmp_path, ONE, name)
    found = listing(tmp_path)
    assert [file.path for file in found.files] == ["a/part-0.PQ", "a/part-0.parquet", "b/part-1.parquet"]
    assert sorted(found.describe_left_out()) == [
        "left out 1 (no Parquet file by its name): notes.txt",
        "left out 4 (its name starts with _ or .): _SUCCESS, _tmp/, a/.hidden.parquet, ...",
    ]


def test_a_file_that_is_reached_twice_counts_once_under_its_real_path(tmp_path: Path) -> None:
    home, other = tmp_path / "lake", tmp_path / "other"
    real = put(home, ONE, "model=a/part-0.parquet")
    put(other, ONE)
    put(other, ONE, "part-1.parquet")
    (home / "loop").symlink_to(home)
    (home / "latest").symlink_to(home / "model=a")
    (home / "model=b").symlink_to(home / "model=a")
    (home / "dangling.parquet").symlink_to(tmp_path / "nowhere.parquet")
    (home / "a.parquet").symlink_to(real)
    os.link(real, home / "model=a" / "zz.parquet")
    (home / "out").symlink_to(other)
    (home / "model=c").mkdir()
    (home / "model=c" / "x.parquet").symlink_to(other / "part-1.parquet")
    (home / "up").symlink_to(tmp_path)
    found = listing(home)
    assert [file.path for file in found.files] == [
        "model=a/part-0.parquet",
        "model=c/x.parquet",
        "out/part-0.parquet",
        "out/part-1.parquet",
    ]
    assert dict(found.left_out) == {
        "loop/": "a link to another place of this lake",
        "latest/": "a link to another place of this lake",
        "model=b/": "a link to another place of this lake",
        "a.parquet": "a link to another place of this lake",
        "dangling.parquet": "a link to a missing file",
        "model=a/zz.parquet": "the same file as model=a/part-0.parquet",
        "up/": "a link to a folder that is read already",
    }


def test_links_into_a_hidden_cache_are_read(tmp_path: Path) -> None:
    """Data tools keep equal files once; in two partitions these are attempts of two models."""
    put(tmp_path, ONE, ".cache/4f2a")
    for name in ("model=a/x.parquet", "model=b/x.parquet", "model=b/y.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / ".cache" / "4f2a")
    found = listing(tmp_path)
    assert [file.path for file in found.files] == ["model=a/x.parquet", "model=b/x.parquet"]
    assert ("model=b/y.parquet", "the same file as model=b/x.parquet") in found.left_out


def test_loops_of_links_pipes_and_devices_are_left_out(tmp_path: Path, out: Path) -> None:
    """A pair of links to each other was a traceback, and opening a pipe waits for ever."""
    put(tmp_path / "lake", ONE, "z.parquet")
    for name, target in (("one", "two"), ("two", "one"), ("x.parquet", "x.parquet"), ("null.parquet", os.devnull)):
        (tmp_path / "lake" / name).symlink_to(target)
    os.mkfifo(tmp_path / "lake" / "pipe.parquet")
    assert run(tmp_path / "lake", out, metrics=["pass@1"]).run["graded"] == 2
    assert sorted(listing(tmp_path / "lake").left_out) == [
        ("null.parquet", "no regular file"),
        ("one", "no Parquet file by its name"),
        ("pipe.parquet", "no regular file"),
        ("two", "no Parquet file by its name"),
        ("x.parquet", "a link to a missing file"),
    ]
    assert described(str(tmp_path / "lake"), PATIENCE) == {}


def test_a_bracket_in_a_pattern_is_a_bracket(tmp_path: Path) -> None:
    for name in ("run1/a.parquet", "run[1]/a.parquet", "run[1]/b.parquet"):
        put(tmp_path, ONE, name)
    found = listing(tmp_path, exclude=["run[1]/*", "run[2]/*"])
    assert [file.path for file in found.files] == ["run1/a.parquet"]
    assert (found.excluded, found.idle) == (("run[1]/a.parquet", "run[1]/b.parquet"), ("run[2]/*",))


def test_one_file_is_a_lake(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    assert [file.path for file in listing(path).files] == ["part-0.parquet"]


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no such file or folder"):
        listing(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LakeError, match=r"no Parquet file inside \(1 other"):
        listing(tmp_path)
