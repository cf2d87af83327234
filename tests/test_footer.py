"""Our reading of footers against pyarrow's, on sound files of several writers; nonsense is an error."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scorelake import footer

TABLE = pa.table(
    {
        "name": ["a", "b", None, "b"] * 50,
        "number": pa.array([1, 2, 3, None] * 50, pa.int32()),
        "nested": [{"x": 1, "y": [True]}, {"x": 2, "y": []}] * 100,
        "flag": [True, False] * 100,
    }
)


@pytest.mark.parametrize(
    "options",
    [{}, {"row_group_size": 30}, {"use_dictionary": False, "compression": "none"}, {"data_page_version": "2.0"}],
)
def test_the_same_as_pyarrow(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(TABLE, path, **options)
    pl.DataFrame(TABLE).write_parquet(tmp_path / "p.parquet", row_group_size=70)
    for file in (path, tmp_path / "p.parquet"):
        ours, theirs = footer.read(str(file)), pq.read_metadata(file)
        assert ours.rows == theirs.num_rows == 200
        groups = [theirs.row_group(i) for i in range(theirs.num_row_groups)]
        chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
        assert len(ours.chunks) == len(chunks)
        for mine, other in zip(ours.chunks, chunks, strict=True):
            assert mine.name == other.path_in_schema.split(".")[0]
            assert mine.size == other.total_compressed_size
            assert mine.start == min(at for at in (other.dictionary_page_offset, other.data_page_offset) if at)
        for mine in ours.of("number"):
            assert (mine.kind, mine.low, mine.high) == (footer.INT32, b"\1\0\0\0", b"\3\0\0\0")
            assert mine.nulls is not None
            assert mine.nulls > 0
        assert {(mine.low, mine.high) for mine in ours.of("name")} == {(b"a", b"b")}


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1\0\0\0\0PAR1", b"x" * 100, b"PAR1" + b"\xff" * 50 + b"\x32\0\0\0PAR1"]
)
def test_nonsense(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(footer.FooterError):
        footer.read(str(tmp_path / "f"))
