"""Iceberg tables: whatever was overwritten, deleted or changed, the counts are those of the current rows, or the
table is refused by name."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.types import DoubleType, StringType

from cloud import PATIENT, QUICK, upload
from conftest import ask, attempts, run
from scorelake.errors import DataError, LakeError, StorageError, UsageError
from scorelake.lake.listing import listing
from scorelake.publish.snapshot import Output
from scorelake.read import check

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog in a file, which the environment describes to other processes under the name of mine."""
    told = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    for key, value in told.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{key.upper()}", value)
    made = load_catalog("mine", **told)
    made.create_namespace("ns")
    yield made
    made.engine.dispose()  # type: ignore[attr-defined]


def rows(model: str, *verdicts: Any, **more: Any) -> pa.Table:
    ids = [f"p{i}" for i in range(len(verdicts))]
    frame = attempts(model=model, problem_id=ids, passed=list(verdicts), **more)
    return pa.table({name: frame[name].to_list() for name in frame.columns})


def made(catalog: Catalog, *tables: pa.Table) -> Table:
    table = catalog.create_table("ns.t", schema=tables[0].schema)
    for each in tables:
        table.append(each)
    return table


def counted(out: Path) -> list[tuple[Any, ...]]:
    return ask(out, "SELECT model, problem_id, n, c FROM problem_counts WHERE n > 0 ORDER BY ALL")


def truth(table: Table) -> list[tuple[Any, ...]]:
    """The same of the table as its own library reads it."""
    frame = pl.DataFrame(table.scan().to_arrow()).drop_nulls("passed")
    return sorted(frame.group_by("model", "problem_id").agg(n=pl.len(), c=pl.col("passed").sum()).rows())


def same(table: Table, out: Path, config: str | None = None) -> Any:
    """The counts are those of the table, and the recount in SQL agrees."""
    report = run(table.metadata_location, out, config)
    assert counted(out) == truth(table)
    assert [f.detail for f in check.check(Output(out)) if not f.ok] == []
    return report


@pytest.mark.parametrize("partitioned", [False, True])
def test_every_version(catalog: Catalog, tmp_path: Path, partitioned: bool) -> None:
    out = tmp_path / "out"
    table = made(catalog, rows("a", True, False, True))
    if partitioned:
        with table.update_spec() as spec:
            spec.add_identity("model")
    assert same(table, out).files_read == 1
    table.append(rows("b/c=d", True, None))
    assert same(table, out).files_reused == 1, "by the table's own list of files"
    assert same(table, out).status == "unchanged"
    table.delete("problem_id = 'p0' and model = 'a'")
    same(table, out)
    table.overwrite(rows("a", False, False), overwrite_filter="model = 'a'")
    same(table, out)
    table.overwrite(rows("z", True, False))
    same(table, out)
    assert counted(out) == [("z", "p0", 1, 1), ("z", "p1", 1, 0)], "what was overwritten lies there still"
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) > 4


def test_by_its_name_in_a_catalog(catalog: Catalog, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    table, out = made(catalog, rows("a", True)), tmp_path / "out"
    assert cli("score", "iceberg:mine/ns.t", "--out", out).returncode == 0
    assert counted(out) == truth(table)
    assert "ok      recount in SQL: 1 problems equal" in cli("check", out).stdout
    done = cli("score", "iceberg:mine/ns.other", "--out", out)
    assert (done.returncode, "the catalog has no such table" in done.stderr) == (5, True), done.stderr
    with pytest.raises(UsageError, match="not a table of a catalog"):
        listing("iceberg:mine")
    with pytest.raises(StorageError, match="the catalog unknown cannot be asked"):
        listing("iceberg:unknown/ns.t")


def test_a_moved_table(catalog: Catalog, tmp_path: Path) -> None:
    """Metadata tells absolute places; a copy elsewhere is read from where it is, the original being gone."""
    table = made(catalog, rows("a", True, False), rows("b", True))
    expected = truth(table)
    shutil.move(tmp_path / "warehouse" / "ns" / "t", tmp_path / "copy")
    name = table.metadata_location.rpartition("/")[2]
    run(tmp_path / "copy" / "metadata" / name, tmp_path / "out")
    assert counted(tmp_path / "out") == expected
    (tmp_path / "copy" / "metadata" / "version-hint.text").write_text(name)
    assert run(tmp_path / "copy", tmp_path / "out").status == "unchanged"


def test_a_folder_does_not_tell_its_version(catalog: Catalog, tmp_path: Path) -> None:
    made(catalog, rows("a", True))
    with pytest.raises(DataError, match="this folder is an Iceberg table") as error:
        listing(tmp_path / "warehouse" / "ns" / "t")
    assert "metadata/NAME.metadata.json, or iceberg:CATALOG/NAMESPACE.TABLE" in (error.value.hint or "")


def test_object_storage(catalog: Catalog, bucket: str, tmp_path: Path) -> None:
    table = made(catalog, rows("a", True, False))
    table.delete("problem_id = 'p0'")
    table.append(rows("b", True))
    home = tmp_path / "warehouse" / "ns" / "t"
    url = upload(home, f"{bucket}/table")
    name = table.metadata_location.rpartition("/")[2]
    run(f"{url}/metadata/{name}", tmp_path / "out", PATIENT)
    assert counted(tmp_path / "out") == truth(table)
    (home / "metadata" / "version-hint.text").write_text(name.removesuffix(".metadata.json"))
    upload(home, url)
    assert run(url, tmp_path / "out", PATIENT).status == "unchanged"
    with pytest.raises(LakeError, match="no such file"):
        listing(f"{url}/metadata/gone.metadata.json", QUICK)


def test_columns_that_were_added_are_null_before(catalog: Catalog, tmp_path: Path) -> None:
    table = made(catalog, rows("a", True, False))
    with table.update_schema() as change:
        change.add_column("grader", StringType())
        change.add_column("temperature", DoubleType())
    table.append(rows("a", True, True, grader="v2", temperature=0.5))
    run(table.metadata_location, tmp_path / "out", '[protocol]\ncolumns = ["grader", "temperature"]\n')
    assert ask(tmp_path / "out", "SELECT protocol, sum(n), sum(c) FROM problem_counts GROUP BY ALL ORDER BY ALL") == [
        ('{"grader":"v2","temperature":0.5}', 2, 2),
        ('{"grader":null,"temperature":null}', 2, 1),
    ]
    assert [f.detail for f in check.check(Output(tmp_path / "out")) if not f.ok] == []


def test_columns_that_were_renamed(catalog: Catalog, tmp_path: Path) -> None:
    """Files keep the name they were written with: never null for what is there under another name."""
    table = made(catalog, rows("a", True, False, topic="x"))
    with table.update_schema() as change:
        change.rename_column("topic", "area")
    same(table, tmp_path / "out")
    with pytest.raises(
        DataError, match="column area is called topic in this file: it was renamed since; compact the table"
    ):
        run(table.metadata_location, tmp_path / "other", '[columns]\nsubject = "area"')
    table.append(rows("b", True, area="y"))
    with pytest.raises(DataError, match="1 of the lake's files"):
        run(table.metadata_location, tmp_path / "other", '[columns]\nsubject = "area"')
    table.overwrite(table.scan().to_arrow())
    run(table.metadata_location, tmp_path / "other", '[columns]\nsubject = "area"')
    assert ask(tmp_path / "other", "SELECT DISTINCT subject FROM problem_counts ORDER BY 1") == [("x",), ("y",)]


def test_a_name_that_was_used_before(catalog: Catalog, tmp_path: Path) -> None:
    table = made(catalog, rows("a", True, False, topic="x"))
    with table.update_schema() as change:
        change.delete_column("topic")
    with table.update_schema() as change:
        change.add_column("topic", StringType())
    with pytest.raises(DataError, match="column topic of this file is another column, which was dropped since"):
        run(table.metadata_location, tmp_path / "out", '[columns]\nsubject = "topic"')


def test_delete_files_are_refused(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg reads delete files and writes none, so the plan is made to name one."""
    table = made(catalog, rows("a", True, False))
    location = table.metadata_location
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path="x", file_format=FileFormat.PARQUET, partition={}
    )
    (task,) = table.scan().plan_files()
    monkeypatch.setattr(DataScan, "plan_files", lambda scan: [FileScanTask(task.file, delete_files={deletes})])
    with pytest.raises(DataError, match="this Iceberg table has delete files"):
        listing(location)


def test_files_elsewhere_and_of_other_formats(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog, rows("a", True))
    (task,) = table.scan().plan_files()
    good = {"file_path": task.file.file_path, "file_format": FileFormat.PARQUET, "partition": {}, "spec_id": 0}
    for changed, says in (
        ({"file_path": "/etc/passwd"}, "a file outside of its folder"),
        ({"file_path": task.file.file_path.replace("/data/", "/data/../../../")}, "a file outside of its folder"),
        ({"file_format": FileFormat.ORC}, "not Parquet"),
    ):
        file = DataFile.from_args(**(good | changed))
        monkeypatch.setattr(DataScan, "plan_files", lambda scan, file=file: [FileScanTask(file)])
        with pytest.raises(DataError, match=says):
            listing(table.metadata_location)


def test_a_partition_value_that_only_the_metadata_tells(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in tables that were made of Hive's: the column is in the folders' names and not in the files."""
    table = catalog.create_table("ns.t", schema=rows("a", True).schema)
    with table.update_spec() as spec:
        spec.add_identity("model")
    table.append(rows("a", True, False))
    (task,) = table.scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    pq.write_table(pq.read_table(path).drop_columns(["model"]), path)
    told = {"file_path": task.file.file_path, "file_format": FileFormat.PARQUET, "partition": task.file.partition}
    file = DataFile.from_args(**told, spec_id=task.file.spec_id, file_size_in_bytes=path.stat().st_size)
    file.spec_id = task.file.spec_id
    monkeypatch.setattr(DataScan, "plan_files", lambda scan: [FileScanTask(file)])
    run(table.metadata_location, tmp_path / "out")
    assert counted(tmp_path / "out") == [("a", "p0", 1, 1), ("a", "p1", 1, 0)]


def test_metadata_that_cannot_be_read(catalog: Catalog, tmp_path: Path) -> None:
    table = made(catalog, rows("a", True))
    path = Path(table.metadata_location.removeprefix("file://"))
    manifests = list(path.parent.glob("*-m0.avro"))
    data = {each: each.read_bytes() for each in (path, *manifests)}
    for each, good in data.items():
        for damaged in (b"", good[: len(good) // 2], b"{}"):
            each.write_bytes(damaged)
            with pytest.raises(DataError, match="the metadata of this Iceberg table cannot be read"):
                listing(path)
        each.write_bytes(good)
    (file,) = (tmp_path / "warehouse").rglob("*.parquet")
    file.unlink()
    with pytest.raises(DataError, match="the log of the table names this file, but it is missing"):
        listing(path)


def test_an_empty_table(catalog: Catalog) -> None:
    table = catalog.create_table("ns.t", schema=rows("a", True).schema)
    with pytest.raises(LakeError, match="no Parquet file inside"):
        listing(table.metadata_location)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata").mkdir()
    path = tmp_path / "metadata" / "v1.metadata.json"
    path.write_text("{}")
    for name in [name for name in sys.modules if name.startswith("pyiceberg")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="needs a package that is not installed") as error:
        listing(path)
    assert error.value.hint == "pip install 'scorelake[iceberg]'"
