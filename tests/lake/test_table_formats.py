"""Delta and Iceberg tables: the counts are those of the current rows, or the table is refused with a reason."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, StringType

from cloud import PATIENT, QUICK, upload
from conftest import ask, attempts, put, run
from scorelake.errors import DataError, LakeError, StorageError, UsageError
from scorelake.lake.listing import listing
from scorelake.lake.sample import sample_lake
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
GRADERS = "SELECT protocol, sum(n), sum(c) FROM problem_counts GROUP BY ALL ORDER BY ALL"


def rows(model: str | None, *passed: Any, **more: Any) -> pa.Table:
    frame = attempts(model=model, problem_id=[f"p{i}" for i in range(len(passed))], passed=list(passed), **more)
    return pa.table({name: frame[name].to_list() for name in frame.columns})


class Delta:
    def __init__(self, folder: Path) -> None:
        self.folder, self.location = folder, str(folder)
        self.partition: list[str] | None = None

    def create(self, data: pa.Table, partition: str | None = None) -> None:
        self.partition = [partition] if partition else None
        write_deltalake(self.folder, data, partition_by=self.partition)

    def append(self, data: pa.Table) -> None:
        write_deltalake(self.folder, data, mode="append", schema_mode="merge", partition_by=self.partition)

    def overwrite(self, data: pa.Table) -> None:
        write_deltalake(self.folder, data, mode="overwrite", partition_by=self.partition)

    def delete(self, condition: str) -> None:
        DeltaTable(self.folder).delete(condition)

    def add_columns(self, **types: str) -> None:
        fields = [Field(name, PrimitiveType(kind)) for name, kind in types.items()]
        DeltaTable(self.folder).alter.add_columns(fields)

    def read(self) -> pa.Table:
        return DeltaTable(self.folder).to_pyarrow_table()


class Iceberg:
    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.folder, self.catalog = folder, catalog
        self.table: Table

    @property
    def location(self) -> str:
        return self.table.metadata_location

    def create(self, data: pa.Table, partition: str | None = None) -> None:
        self.table = self.catalog.create_table("ns.t", schema=data.schema)
        if partition:
            with self.table.update_spec() as spec:
                spec.add_identity(partition)
        self.append(data)

    def append(self, data: pa.Table) -> None:
        self.table.append(data)

    def overwrite(self, data: pa.Table) -> None:
        self.table.overwrite(data)

    def delete(self, condition: str) -> None:
        self.table.delete(condition)

    def add_columns(self, **types: str) -> None:
        with self.table.update_schema() as change:
            for name, kind in types.items():
                change.add_column(name, {"string": StringType(), "double": DoubleType()}[kind])

    def read(self) -> pa.Table:
        return self.table.scan().to_arrow()


Format: TypeAlias = Delta | Iceberg
"""One table, written by the library of its format."""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog in a file, which other processes find in the environment under the name mine."""
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    for key, value in options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{key.upper()}", value)
    catalog = load_catalog("mine", **options)
    catalog.create_namespace("ns")
    yield catalog
    catalog.engine.dispose()  # type: ignore[attr-defined]


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return Delta(tmp_path / "table")


@pytest.fixture
def iceberg(tmp_path: Path, catalog: Catalog) -> Iceberg:
    return Iceberg(tmp_path / "warehouse" / "ns" / "t", catalog)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest) -> Format:
    table: Format = request.getfixturevalue(request.param)
    return table


def counted(out: Path) -> list[tuple[Any, ...]]:
    return ask(out, "SELECT model, problem_id, n, c FROM problem_counts WHERE n > 0 ORDER BY ALL")


def expected(table: Format) -> list[tuple[Any, ...]]:
    """The counts of the rows that the library of the format reads."""
    frame = pl.DataFrame(table.read()).drop_nulls("passed")
    return sorted(frame.group_by("model", "problem_id").agg(n=pl.len(), c=pl.col("passed").sum()).rows())


def check_output(out: Path) -> None:
    assert [finding.detail for finding in check.check(Output(out)) if not finding.ok] == []


def check_counts(table: Format, out: Path) -> Any:
    report = run(table.location, out)
    assert counted(out) == expected(table)
    check_output(out)
    return report


@pytest.mark.slow
def test_every_version_counts_its_current_rows(table: Format, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table.create(rows("a", True, False, True), "model")
    assert check_counts(table, out).files_read == 1
    table.append(rows("b/c=d", True, None))
    assert check_counts(table, out).files_reused == 1, "by the table's own list of files"
    assert check_counts(table, out).status == "unchanged"
    table.delete("problem_id = 'p0' and model = 'a'")
    check_counts(table, out)
    if isinstance(table, Delta):
        DeltaTable(table.folder).update(updates={"passed": "true"}, predicate="problem_id = 'p1'")
        check_counts(table, out)
        DeltaTable(table.folder).optimize.compact()
        check_counts(table, out)
        DeltaTable(table.folder).create_checkpoint()
    table.overwrite(rows("z", True, False))
    check_counts(table, out)
    assert counted(out) == [("z", "p0", 1, 1), ("z", "p1", 1, 0)]
    assert len(list(table.folder.rglob("*.parquet"))) > 3, "files of older versions are still there"
    if isinstance(table, Delta):
        DeltaTable(table.folder).restore(1)
        check_counts(table, out)


@pytest.mark.slow
def test_a_column_that_was_added_later_is_null_before(table: Format, tmp_path: Path) -> None:
    config = '[protocol]\ncolumns = ["grader", "temperature"]\n'
    table.create(rows("a", True, False))
    with pytest.raises(UsageError, match="no column grader"):
        run(table.location, tmp_path / "out", config)
    table.add_columns(grader="string", temperature="double")
    table.append(rows("a", True, True, grader="v2", temperature=0.5))
    run(table.location, tmp_path / "out", config)
    assert ask(tmp_path / "out", GRADERS) == [
        ('{"grader":"v2","temperature":0.5}', 2, 2),
        ('{"grader":null,"temperature":null}', 2, 1),
    ]
    check_output(tmp_path / "out")
    run(table.location, tmp_path / "carried", by=("temperature",))
    carried = "SELECT temperature, sum(n) FROM problem_counts GROUP BY 1 ORDER BY 1"
    assert ask(tmp_path / "carried", carried) == [(0.5, 4)], "kept per problem; null values do not count"


def test_object_storage(table: Format, bucket: str, tmp_path: Path) -> None:
    url, out = f"{bucket}/table", tmp_path / "out"
    table.create(rows("a", True, False, True), "model")
    table.delete("model = 'a' and problem_id = 'p0'")
    for files_reused, model in enumerate("bc", 1):
        table.append(rows(model, True))
        name = table.location.rpartition("/")[2]
        if isinstance(table, Iceberg):
            (table.folder / "metadata/version-hint.text").write_text(name.removesuffix(".metadata.json"))
        report = run(upload(table.folder, url), out, PATIENT)
        assert (report.files_reused, counted(out)) == (files_reused if model == "c" else 0, expected(table))
    if isinstance(table, Iceberg):
        assert run(f"{url}/metadata/{name}", out, PATIENT).status == "unchanged"
        with pytest.raises(LakeError, match="no such file"):
            listing(f"{url}/metadata/gone.metadata.json", QUICK)


def test_a_changed_or_missing_file_and_a_table_without_rows(table: Format) -> None:
    table.create(rows("a", True))
    (file,) = table.folder.rglob("*.parquet")
    complete = file.read_bytes()
    file.write_bytes(complete + b"x")
    with pytest.raises(DataError, match=r"bytes, but .* in the log of the table"):
        listing(table.location)
    file.unlink()
    with pytest.raises(DataError, match="the log of the table names this file, but it is missing"):
        listing(table.location)
    file.write_bytes(complete)
    table.delete("model = 'a'")
    with pytest.raises(LakeError, match="no Parquet file inside"):
        listing(table.location)


def test_damaged_metadata(table: Format) -> None:
    table.create(rows("a", True))
    for path in [*table.folder.glob("_delta_log/*.json"), *table.folder.glob("metadata/*.json")]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for path in table.folder.glob("metadata/*-m0.avro"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"of this (Delta|Iceberg) table cannot be read"):
        listing(table.location)
    for path in table.folder.glob("_delta_log/*.json"):
        path.unlink()
    with pytest.raises(DataError, match=r"of this (Delta|Iceberg) table cannot be read"):
        listing(table.location)


def test_a_table_inside_a_lake_is_refused(table: Format, tmp_path: Path) -> None:
    put(table.folder.parent, attempts(model="a", problem_id=["p"], passed=[True]), "loose.parquet")
    table.create(rows("a", True))
    with pytest.raises(DataError, match=r"this folder is an? (Delta|Iceberg) table") as caught:
        listing(table.folder.parent)
    assert caught.value.where == str(table.folder)
    assert "score " in str(caught.value.hint)


@pytest.mark.parametrize(("package", "extra"), [("deltalake", "delta"), ("pyiceberg", "iceberg")])
def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "iceberg.metadata.json").write_text("{}")
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="not installed") as caught:
        listing(tmp_path / ("delta" if extra == "delta" else "iceberg.metadata.json"))
    assert caught.value.hint == f"pip install 'scorelake[{extra}]'"


# --- Delta ------------------------------------------------------------------------------------------------------


def edit_log(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change every add action in the log."""
    (log,) = (folder / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            change(line["add"])
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_delta_partition_values_come_from_the_log(delta: Delta, tmp_path: Path) -> None:
    """Folder names have no meaning, and null is null."""
    parts = [rows(model, True, day=day, t=0.5, ok=True) for model, day in (("x y", 3), (None, 4))]
    data = pa.concat_tables(parts, promote_options="permissive")
    write_deltalake(delta.folder, data, partition_by=["model", "day", "t", "ok"])

    def move(action: dict[str, Any]) -> None:
        name = action["path"].rpartition("/")[2]
        (old,) = delta.folder.rglob(name)
        (delta.folder / "model=wrong").mkdir(exist_ok=True)
        old.rename(delta.folder / "model=wrong" / name)
        action["path"] = f"model=wrong/{name}"

    edit_log(delta.folder, move)
    config = '[protocol]\ncolumns = ["day", "t", "ok"]\n[policy]\nmax_rejected = 1\n'
    report = run(delta.location, tmp_path / "out", config)
    assert report.run["rejected"] == 1, "a row without a model"
    assert ask(tmp_path / "out", "SELECT model, protocol FROM problem_counts") == [
        ("x y", '{"day":3,"t":0.5,"ok":true}')
    ]
    check_output(tmp_path / "out")


@pytest.mark.parametrize(
    ("storage", "more"), [("log", {}), ("file", {"score": [0.1, 0.2, 0.3], "attempt": ["x", "y", "z"]})]
)
def test_delta_rows_of_a_deletion_vector_are_not_counted(
    delta: Delta, tmp_path: Path, storage: str, more: dict[str, Any]
) -> None:
    """Vectors as Spark writes them, in the log and in a file, in a folder whose name is quoted in the log."""
    out, on = tmp_path / "out", {"delta.enableDeletionVectors": "true"}
    data = rows("a b", True, False, True, **more)
    write_deltalake(delta.folder, data, configuration=on, partition_by=["model"])
    run(delta.location, out)
    assert len(counted(out)) == 3
    vector = deletion_vector(1, delta.folder if storage == "file" else None)
    edit_log(delta.folder, lambda action: action.update(deletionVector=vector))
    report = run(delta.location, out)
    assert (report.run["rows_read"], report.run["rejected"]) == (2, 0)
    assert counted(out) == [("a b", "p0", 1, 1), ("a b", "p2", 1, 1)]
    check_output(out)
    assert sample_lake(listing(delta.location), Settings()).rows["problem_id"].to_list() == ["p0", "p2"]


def test_delta_deletion_vector_that_is_missing(delta: Delta) -> None:
    write_deltalake(delta.folder, rows("a", True), configuration={"delta.enableDeletionVectors": "true"})
    elsewhere = deletion_vector(0) | {"storageType": "p", "pathOrInlineDv": "/gone"}
    edit_log(delta.folder, lambda action: action.update(deletionVector=elsewhere))
    with pytest.raises(DataError, match=r"the metadata of this Delta table cannot be read.*Deletion Vector"):
        listing(delta.location)


def deletion_vector(row: int, folder: Path | None = None) -> dict[str, Any]:
    """A deletion vector with one row, a 64-bit roaring bitmap: in the log as Z85, or in a file with a checksum."""
    data = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    described = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 1}
    if folder is None:
        return described
    name = uuid4()
    content = b"\1" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{name}.bin").write_bytes(content)
    return described | {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1}


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    numbers = (number for (number,) in struct.iter_unpack(">I", data + b"\0" * (-len(data) % 4)))
    return "".join(Z85[number // 85**i % 85] for number in numbers for i in range(4, -1, -1))


def test_delta_files_outside_of_the_folder_are_refused(delta: Delta) -> None:
    delta.create(rows("a", True))
    for path in ("/etc/passwd", "../x.parquet"):
        edit_log(delta.folder, lambda action, path=path: action.update(path=path))  # type: ignore[misc]
        with pytest.raises(DataError, match="a file outside of its folder"):
            listing(delta.location)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_delta_columns_that_are_mapped_to_other_names(delta: Delta, tmp_path: Path, mode: str) -> None:
    """Files have names such as col-1f3a for columns; partition values have them in the log."""
    configuration = {"delta.columnMapping.mode": mode}
    data = rows("a", True, False, True, topic=["x", "y", "x"], day=[1, 2, 2])
    write_deltalake(delta.folder, data, configuration=configuration, partition_by=["model"])
    stored = [set(pq.read_schema(path).names) for path in delta.folder.rglob("*.parquet")]
    assert all(name.startswith("col-") for names in stored for name in names)
    (log,) = (delta.folder / "_delta_log").glob("*.json")
    log.write_text(
        log.read_text().replace('{\\"name\\":\\"topic\\"', '{\\"name\\":\\"area\\"')
    )  # as ALTER TABLE does
    config = '[columns]\nsubject = "area"\n[window]\ncolumn = "day"\nsince = "2"\n'
    run(delta.location, tmp_path / "out", config)
    assert ask(tmp_path / "out", "SELECT subject, model, problem_id, n, c FROM problem_counts ORDER BY ALL") == [
        ("x", "a", "p2", 1, 1),
        ("y", "a", "p1", 1, 0),
    ]
    check_output(tmp_path / "out")
    sample = sample_lake(listing(delta.location), Settings())
    assert sorted(sample.columns) == ["area", "day", "model", "passed", "problem_id"]


# --- Iceberg ----------------------------------------------------------------------------------------------------


def test_iceberg_table_of_a_catalog(iceberg: Iceberg, tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    iceberg.create(rows("a", True))
    assert cli("score", "iceberg:mine/ns.t", "--out", tmp_path / "out").returncode == 0
    assert counted(tmp_path / "out") == expected(iceberg)
    done = cli("score", "iceberg:mine/ns.other", "--out", tmp_path / "out")
    assert (done.returncode, "the catalog has no such table" in done.stderr) == (5, True), done.stderr
    with pytest.raises(UsageError, match="not a table of a catalog"):
        listing("iceberg:mine")
    with pytest.raises(StorageError, match="the catalog unknown cannot be used"):
        listing("iceberg:unknown/ns.t")


def test_iceberg_table_that_was_moved(iceberg: Iceberg, tmp_path: Path) -> None:
    """Metadata has absolute paths; a copy is read from where it is, even if the original is gone."""
    iceberg.create(rows("a", True, False))
    iceberg.append(rows("b", True))
    counts, name = expected(iceberg), iceberg.location.rpartition("/")[2]
    shutil.move(iceberg.folder, tmp_path / "copy")
    run(tmp_path / "copy" / "metadata" / name, tmp_path / "out")
    assert counted(tmp_path / "out") == counts
    (tmp_path / "copy" / "metadata" / "version-hint.text").write_text(name)
    assert run(tmp_path / "copy", tmp_path / "out").status == "unchanged"


def test_iceberg_columns_that_were_renamed(iceberg: Iceberg, tmp_path: Path) -> None:
    """Columns are found by their ids: a renamed one under its old name, and not another one with its new name."""
    out, config = tmp_path / "out", '[columns]\nsubject = "area"\n[policy]\nmax_rejected = 9\n'
    iceberg.create(rows("a", True, False, topic="x"))
    with iceberg.table.update_schema() as change:
        change.rename_column("topic", "area")
    iceberg.append(rows("b", True, area="y"))
    run(iceberg.location, out, config)
    assert ask(out, "SELECT DISTINCT model, subject FROM problem_counts ORDER BY 1") == [("a", "x"), ("b", "y")]
    check_output(out)
    with iceberg.table.update_schema() as change:
        change.delete_column("area")
    iceberg.add_columns(area="string")
    iceberg.append(rows("c", True, area="z"))
    assert run(iceberg.location, out, config).run["rejected"] == 3, "older files do not have the new column"


def test_iceberg_files_that_are_refused(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg does not write such tables, so its plan is replaced."""
    iceberg.create(rows("a", True))
    location, path = iceberg.location, next(iter(iceberg.table.scan().plan_files())).file.file_path
    good = {"file_path": path, "file_format": FileFormat.PARQUET, "partition": {}, "spec_id": 0}
    for changed, message in (
        ({"file_path": "/etc/passwd"}, "a file outside of its folder"),
        ({"file_path": path.replace("/data/", "/data/../../../")}, "a file outside of its folder"),
        ({"file_format": FileFormat.ORC}, "not Parquet"),
    ):
        task = FileScanTask(DataFile.from_args(**(good | changed)))
        monkeypatch.setattr(DataScan, "plan_files", lambda scan, task=task: [task])
        with pytest.raises(DataError, match=message):
            listing(location)


class DeleteManifest(ManifestWriterV2):
    """A manifest of delete files; pyiceberg writes only those of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def add_delete_file(iceberg: Iceberg, content: DataFileContent, path: str) -> None:
    """Commit a snapshot with a delete file more, as Spark and Flink do."""
    table, before = iceberg.table, iceberg.table.current_snapshot()
    assert before is not None
    snapshot, number = before.snapshot_id + 1, table.metadata.next_sequence_number()
    size = len(table.io.new_input(path))
    kind = FileFormat.PUFFIN if path.endswith(".puffin") else FileFormat.PARQUET
    file = DataFile.from_args(
        _table_format_version=2,
        content=content,
        file_path=path,
        file_format=kind,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        equality_ids=None,
    )
    file.spec_id = 0
    manifest, listing = (table.io.new_output(f"{table.location()}/metadata/{snapshot}-{n}.avro") for n in "md")
    codec: Any = "null"
    with DeleteManifest(table.spec(), table.schema(), manifest, snapshot, codec) as writer:
        entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=file)
        writer.add_entry(entry)
    with write_manifest_list(2, listing, snapshot, before.snapshot_id, number, codec) as manifests:
        manifests.add_manifests([*before.manifests(table.io), writer.to_manifest_file()])
    added = Snapshot(
        snapshot_id=snapshot,
        parent_snapshot_id=before.snapshot_id,
        sequence_number=number,
        manifest_list=listing.location,
        schema_id=0,
        summary=Summary(Operation.DELETE),
    )
    reference = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot)
    iceberg.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=added), reference))
    table.refresh()


def puffin(referenced: str, position: int) -> bytes:
    """A Puffin file with a deletion vector of one row."""
    bitmap = struct.pack("<QI", 1, 0) + struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, position)
    vector = b"\xd1\xd3\x39\x64" + bitmap
    blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    described = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": 1, "sequence-number": 1, "offset": 4}
    properties = {"referenced-data-file": referenced, "cardinality": "1"}
    footer = json.dumps({"blobs": [described | {"length": len(blob), "properties": properties}]}).encode()
    return b"PFA1" + blob + b"PFA1" + footer + struct.pack("<II", len(footer), 0) + b"PFA1"


@pytest.mark.parametrize("kind", ["parquet", "puffin"])
def test_iceberg_rows_that_a_delete_file_deletes_are_not_counted(iceberg: Iceberg, tmp_path: Path, kind: str) -> None:
    iceberg.create(rows("a", True, False, True))
    iceberg.append(rows("b", True))
    first = next(task.file.file_path for task in iceberg.table.scan().plan_files() if task.file.record_count == 3)
    path = iceberg.folder / "data" / f"deletes.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"file_path": [first, "other"], "pos": [1, 0]}), path)
    else:
        path.write_bytes(puffin(first, 1))
    add_delete_file(iceberg, DataFileContent.POSITION_DELETES, f"file://{path}")
    check_counts(iceberg, tmp_path / "out")
    assert counted(tmp_path / "out") == [("a", "p0", 1, 1), ("a", "p2", 1, 1), ("b", "p0", 1, 1)]


def test_iceberg_equality_deletes_are_refused(iceberg: Iceberg, tmp_path: Path) -> None:
    iceberg.create(rows("a", True, False, True))
    path = iceberg.folder / "data" / "deletes.parquet"
    pq.write_table(pa.table({"problem_id": ["p1"]}), path)
    add_delete_file(iceberg, DataFileContent.EQUALITY_DELETES, f"file://{path}")
    with pytest.raises(DataError, match="this Iceberg table has equality deletes"):
        listing(iceberg.location)


def test_iceberg_partition_value_that_only_the_metadata_has(
    iceberg: Iceberg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in tables converted from Hive: the column is in folder names and not in the files."""
    iceberg.create(rows("a", True, False), "model")
    (task,) = iceberg.table.scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    pq.write_table(pq.read_table(path).drop_columns(["model"]), path)
    fields = {"file_path": task.file.file_path, "file_format": FileFormat.PARQUET, "partition": task.file.partition}
    file = DataFile.from_args(**fields, spec_id=task.file.spec_id, file_size_in_bytes=path.stat().st_size)
    file.spec_id = task.file.spec_id
    monkeypatch.setattr(DataScan, "plan_files", lambda scan: [FileScanTask(file)])
    run(iceberg.location, tmp_path / "out")
    assert counted(tmp_path / "out") == [("a", "p0", 1, 1), ("a", "p1", 1, 0)]
