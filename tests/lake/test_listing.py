"""Listing: what belongs to a lake, and in which order."""

from pathlib import Path

import pytest

from conftest import expand, put
from scorelake.errors import LakeError
from scorelake.lake.listing import listing

ONE = expand([("a", 2, 1)], model="m")


def test_files_in_order_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/part-1.parquet", "a/part-0.parquet", "a/part-0.PQ"):
        put(tmp_path, ONE, name)
    for name in ("_tmp/x.parquet", "a/.hidden.parquet", "_SUCCESS", "notes.txt", "a/_part.parquet"):
        put(tmp_path, ONE, name)
    found = listing(tmp_path)
    assert [file.path for file in found.files] == ["a/part-0.PQ", "a/part-0.parquet", "b/part-1.parquet"]
    assert found.ignored == 4  # a hidden folder is not even looked into


def test_links(tmp_path: Path) -> None:
    home, other = tmp_path / "lake", tmp_path / "other"
    put(home, ONE, "a/part-0.parquet")
    put(other, ONE)
    (home / "loop").symlink_to(home)
    (home / "again").symlink_to(home / "a")
    (home / "out").symlink_to(other)
    (home / "out.parquet").symlink_to(other / "part-0.parquet")
    found = listing(home)
    assert len(found.files) == 1, "each file once, and none from outside"


def test_one_file_is_a_lake(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    assert [file.path for file in listing(path).files] == ["part-0.parquet"]


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no such file or folder"):
        listing(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LakeError, match=r"no Parquet file inside \(1 other"):
        listing(tmp_path)
