"""One setting decides how much is worked on at once, and no number depends on it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from scorelake.errors import UsageError
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings, load
from scorelake.synth import Plan, write


def test_shards_follow_the_memory() -> None:
    small, large = (Settings.model_validate({"run": {"memory_gb": gb}}).run for gb in (1, 64))
    assert small.shard_size < large.shard_size
    assert load(**{"run.memory_gb": 2.0}).run.memory == 2.0
    assert Settings().run.memory > 0


def test_explicit_sizes_win() -> None:
    assert Settings.model_validate({"run": {"memory_gb": 1, "shard_mb": 3}}).run.shard_size == 3


def test_memory_must_be_positive() -> None:
    with pytest.raises(UsageError):
        load(**{"run.memory_gb": 0.0})


@pytest.mark.parametrize("layout", ["clustered", "shuffled"])
def test_the_cut_of_the_work_changes_no_summary(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "lake", Plan(3, 40, 8, layout=layout, files=6))  # type: ignore[arg-type]
    tables = []
    for name, run in {"whole": {}, "pieces": {"shard_mb": 0.001, "bucket_rows": 7}}.items():
        out = Output(tmp_path / name)
        score_lake(tmp_path / "lake", out, Settings.model_validate({"run": run}))
        (home,) = out.snapshots.iterdir()
        tables.append([pl.read_parquet(home / f"{table}_summary.parquet") for table in ("model", "subject")])
    for whole, pieces in zip(*tables, strict=True):
        assert whole.equals(pieces, null_equal=True)
