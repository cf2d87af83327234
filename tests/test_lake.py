"""Listing: what belongs to a lake, partition values as strings, shards."""

import os
from pathlib import Path

import pytest

from conftest import expand, put
from scorelake import lake
from scorelake.errors import LakeError
from scorelake.lake import File

ONE = expand([("a", 2, 1)], model="m")


def test_files_in_order_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/part-1.parquet", "a/part-0.parquet", "a/part-0.PQ"):
        put(tmp_path, ONE, name)
    for name in ("_tmp/x.parquet", "a/.hidden.parquet", "_SUCCESS", "notes.txt", "a/_part.parquet"):
        put(tmp_path, ONE, name)
    found = lake.listing(tmp_path)
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
    found = lake.listing(home)
    assert len(found.files) == 1, "each file once, and none from outside"


def test_one_file_is_a_lake(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    assert [file.path for file in lake.listing(path).files] == ["part-0.parquet"]


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no such file or folder"):
        lake.listing(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LakeError, match=r"no Parquet file inside \(1 other"):
        lake.listing(tmp_path)


def test_partition_values_stay_strings() -> None:
    hive = File("model=007/subject=a%2Fb/x=y=z/plain/part.parquet", 1, 1).hive
    assert hive == {"model": "007", "subject": "a/b", "x": "y=z"}
    assert File("subject=__HIVE_DEFAULT_PARTITION__/p.parquet", 1, 1).hive == {"subject": None}


def test_shards_cover_every_file_once() -> None:
    files = tuple(File(f"{i}", size, 0) for i, size in enumerate([1, 5, 2**20, 3, 2**19, 2**19, 2**22]))
    cut = lake.shards(".", files, 1.0)
    assert [file for shard in cut for file in shard.files] == list(files)
    assert all(shard.size <= 2**20 or len(shard.files) == 1 for shard in cut)
    assert lake.shards(".", (), 1.0) == []


def test_a_fingerprint_knows_files_and_settings(tmp_path: Path) -> None:
    path = put(tmp_path, ONE)
    shard = lake.shards(str(tmp_path), lake.listing(tmp_path).files, 1)[0]
    os.utime(path, ns=(1, 1))
    touched = lake.shards(str(tmp_path), lake.listing(tmp_path).files, 1)[0]
    names = {shard.fingerprint(settings=1), shard.fingerprint(settings=2), touched.fingerprint(settings=1)}
    assert len(names) == 3
