"""A file of a lake: partition values as strings; a shard: its fingerprint."""

import os
from pathlib import Path

import pytest

from conftest import expand, put
from scorelake.lake.listing import listing
from scorelake.lake.shards import shards
from scorelake.storage.files import BadNameError, File


def test_partition_values_stay_strings() -> None:
    hive = File("model=007/subject=a%2Fb/x=y=z/plain/part.parquet", 1, 1).hive
    assert hive == {"model": "007", "subject": "a/b", "x": "y=z"}
    assert File("subject=__HIVE_DEFAULT_PARTITION__/p.parquet", 1, 1).hive == {"subject": None}
    assert File("=x/model=a/model=a/p.parquet", 1, 1).hive == {"model": "a"}
    with pytest.raises(BadNameError, match="two of its folders give model; rename one"):
        _ = File("model=a/model=b/p.parquet", 1, 1).hive


def test_a_fingerprint_knows_files_and_settings(tmp_path: Path) -> None:
    path = put(tmp_path, expand([("a", 2, 1)], model="m"))
    shard = shards(str(tmp_path), listing(tmp_path).files, 1)[0]
    os.utime(path, ns=(1, 1))
    touched = shards(str(tmp_path), listing(tmp_path).files, 1)[0]
    names = {shard.fingerprint(settings=1), shard.fingerprint(settings=2), touched.fingerprint(settings=1)}
    assert len(names) == 3
