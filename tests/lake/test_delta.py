"""Delta tables: whatever was overwritten, deleted, compacted or added, the counts are those of the current rows."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from cloud import PATIENT, QUICK, upload
from conftest import ask, attempts, put, run
from scorelake.errors import DataError, LakeError, UsageError
from scorelake.lake.listing import listing
from scorelake.publish.snapshot import Output
from scorelake.read import check


def rows(model: str, *verdicts: Any, **more: Any) -> pl.DataFrame:
    ids = [f"p{i}" for i in range(len(verdicts))]
    return attempts(model=model, problem_id=ids, passed=list(verdicts), **more)


def counted(out: Path) -> list[tuple[Any, ...]]:
    return ask(out, "SELECT model, problem_id, n, c FROM problem_counts WHERE n > 0 ORDER BY ALL")


def truth(table: str) -> list[tuple[Any, ...]]:
    """The same of the table as its own library reads it."""
    frame = pl.DataFrame(DeltaTable(table).to_pyarrow_table()).drop_nulls("passed")
    found = frame.group_by("model", "problem_id").agg(n=pl.len(), c=pl.col("passed").sum())
    return sorted(found.rows())


def same(table: Path, out: Path, config: str | None = None, **options: Any) -> Any:
    """The counts are those of the table, and the recount in SQL agrees."""
    report = run(table, out, config, **options)
    assert counted(out) == truth(str(table))
    assert [f.detail for f in check.check(Output(out)) if not f.ok] == []
    return report


@pytest.mark.parametrize("partition", [None, ["model"]])
def test_every_version(tmp_path: Path, partition: list[str] | None) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    write_deltalake(table, rows("a", 1, 0, 1).cast({"passed": pl.Boolean}).to_arrow(), partition_by=partition)
    assert same(table, out).files_read == 1
    more = pl.concat([rows("a", 0, 0), rows("b/c=d", 1, None)]).cast({"passed": pl.Boolean})
    write_deltalake(table, more.to_arrow(), mode="append", partition_by=partition)
    assert same(table, out).files_reused == 1, "by the table's own list of files"
    assert same(table, out).status == "unchanged"
    DeltaTable(table).delete("problem_id = 'p0'")
    same(table, out)
    DeltaTable(table).update(updates={"passed": "true"}, predicate="problem_id = 'p1'")
    same(table, out)
    DeltaTable(table).optimize.compact()
    same(table, out)
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, rows("z", True, False).to_arrow(), mode="overwrite")
    same(table, out)
    assert counted(out) == [("z", "p0", 1, 1), ("z", "p1", 1, 0)], "what was overwritten lies there still"
    assert len(list(table.rglob("*.parquet"))) > 5
    DeltaTable(table).restore(1)
    same(table, out)


def test_partition_values_are_the_log_s(tmp_path: Path) -> None:
    """Folders are only folders: moved and renamed, a file keeps what the log says of it. Null is null."""
    table = tmp_path / "table"
    frame = pl.concat([rows("x y", True, day=3), rows(None, True, day=4)]).with_columns(
        t=pl.lit(0.5), ok=pl.lit(True)
    )
    write_deltalake(table, frame.to_arrow(), partition_by=["model", "day", "t", "ok"])
    log = next((table / "_delta_log").glob("*.json"))
    for path in list(table.rglob("*.parquet")):
        plain = path.relative_to(table).as_posix()
        new = f"model=wrong/day=9/{path.name}"
        (table / new).parent.mkdir(parents=True, exist_ok=True)
        path.rename(table / new)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "add" in line and line["add"]["path"].endswith(path.name):
                assert plain.count("=") == 4
                line["add"]["path"] = new
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = '[protocol]\ncolumns = ["day", "t", "ok"]\n[policy]\nmax_rejected = 1\n'
    report = run(table, tmp_path / "out", config)
    assert report.run["rejected"] == 1, "a row without a model"
    assert ask(tmp_path / "out", "SELECT model, protocol FROM problem_counts") == [
        ("x y", '{"day":3,"t":0.5,"ok":true}')
    ]
    assert [f.detail for f in check.check(Output(tmp_path / "out")) if not f.ok] == []


def test_a_column_that_was_added_is_null_before(tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    config = '[protocol]\ncolumns = ["grader"]\n[columns]\ncarry = ["level"]\n'
    write_deltalake(table, rows("a", True, False).to_arrow())
    with pytest.raises(UsageError, match="no column grader"):
        run(table, out, config)
    new = rows("a", True, True, grader="v2", level="hard")
    write_deltalake(table, new.to_arrow(), mode="append", schema_mode="merge")
    run(table, out, config)
    assert ask(out, "SELECT protocol, sum(n), sum(c) FROM problem_counts GROUP BY ALL ORDER BY ALL") == [
        ('{"grader":"v2"}', 2, 2),
        ('{"grader":null}', 2, 1),
    ]
    assert [f.detail for f in check.check(Output(out)) if not f.ok] == []
    DeltaTable(table).alter.add_columns(Field("temperature", PrimitiveType("double")))
    run(table, out, '[protocol]\ncolumns = ["temperature"]\n')
    assert ask(out, "SELECT DISTINCT protocol FROM problem_counts") == [('{"temperature":null}',)]


def test_object_storage(bucket: str, tmp_path: Path) -> None:
    table, url = tmp_path / "table", f"{bucket}/table"
    write_deltalake(table, rows("a", True, False, True).to_arrow(), partition_by=["model"])
    write_deltalake(table, rows("b", True).to_arrow(), mode="append", partition_by=["model"])
    DeltaTable(table).delete("model = 'a' AND problem_id = 'p0'")
    upload(table, url)
    run(url, tmp_path / "out", PATIENT)
    assert counted(tmp_path / "out") == truth(str(table))
    write_deltalake(table, rows("c", True).to_arrow(), mode="append", partition_by=["model"])
    upload(table, url)
    report = run(url, tmp_path / "out", PATIENT)
    assert (report.files_read, report.files_reused) == (1, 2)
    assert counted(tmp_path / "out") == truth(str(table))
    files = listing(url, QUICK).files
    assert {file.constant_columns({})["model"] for file in files} == {"a", "b", "c"}


def test_column_mapping_is_refused(tmp_path: Path) -> None:
    write_deltalake(
        tmp_path / "table", rows("a", True).to_arrow(), configuration={"delta.columnMapping.mode": "name"}
    )
    with pytest.raises(
        DataError, match=r"maps its columns to other names in its files \(delta.columnMapping.mode = name"
    ):
        run(tmp_path / "table", tmp_path / "out")


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A vector in the log as Spark writes it, and one in a file that is gone; the feature alone is no reason."""
    table = tmp_path / "table"
    on = {"delta.enableDeletionVectors": "true"}
    write_deltalake(table, rows("a", True, False, True).to_arrow(), configuration=on)
    run(table, tmp_path / "out")
    assert len(counted(tmp_path / "out")) == 3
    (log,) = (table / "_delta_log").glob("*.json")
    text = log.read_text()
    for vector, readable in (
        (deleted(1), True),
        (deleted(1) | {"storageType": "p", "pathOrInlineDv": "/gone"}, False),
    ):
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            if "add" in line:
                line["add"]["deletionVector"] = vector
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if readable:
            (batch,) = DeltaTable(table).deletion_vectors()
            assert pl.DataFrame(batch)["selection_vector"].to_list() == [[True, False, True]]
        with pytest.raises(DataError, match="this Delta table has deletion vectors"):
            run(table, tmp_path / "other")


def deleted(row: int) -> dict[str, Any]:
    """A deletion vector with one row in it, inside the log: a 64-bit roaring bitmap in Z85."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (number,) in struct.iter_unpack(">I", padded):
        text += "".join(letters[number // 85**i % 85] for i in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": 1}


def test_a_log_that_lies(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, rows("a", True).to_arrow())
    (log,) = (table / "_delta_log").glob("*.json")
    (file,) = table.glob("*.parquet")
    text = log.read_text()
    for path, says in (
        ("/etc/passwd", "a file outside of its folder"),
        ("../x.parquet", "a file outside of its folder"),
        ("gone.parquet", "it is missing"),
    ):
        log.write_text(text.replace(file.name, path))
        with pytest.raises(DataError, match=says):
            listing(table)
    for damaged in (text[: len(text) // 2], "{", ""):
        log.write_text(damaged)
        with pytest.raises(DataError, match="the log of this Delta table cannot be read"):
            listing(table)
    log.write_text(text)
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(DataError, match="in the log of the table"):
        listing(table)
    log.unlink()
    with pytest.raises(DataError, match="the log of this Delta table cannot be read"):
        listing(table)


def test_a_table_among_loose_files(tmp_path: Path) -> None:
    put(tmp_path, rows("a", True), "loose.parquet")
    write_deltalake(tmp_path / "table", rows("a", True).to_arrow())
    with pytest.raises(DataError, match="this folder is a Delta table") as error:
        listing(tmp_path)
    assert error.value.where == f"{tmp_path}/table"
    assert error.value.hint == "score the table itself: that folder"


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(tmp_path, rows("a", True).to_arrow())
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(UsageError, match="not installed") as error:
        listing(tmp_path)
    assert error.value.hint == "pip install 'scorelake[delta]'"


def test_nothing_left(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", rows("a", True).to_arrow())
    DeltaTable(tmp_path / "table").delete()
    with pytest.raises(LakeError, match="no Parquet file inside"):
        listing(tmp_path / "table")
