"""The kernel gives the same counts as the count query, on random lakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import put
from scorelake.counting import kernel, shard
from scorelake.counting.query import count_chunk, layout_of
from scorelake.counting.scan import LakeFile, chunks
from scorelake.lake.listing import listing
from scorelake.schemas import KEYS
from scorelake.settings import Settings
from scorelake.storage.files import Shard
from scorelake.storage.parquet import DamagedError


def lake(home: Path, rng: np.random.Generator, attempts: int, texts: bool = False) -> Path:
    """Files of different writers: keys null, constant, or numbers; verdicts null or wrong; protocols of two types.

    With attempts as texts, one file has no attempts, another has no costs, and two have scores.
    """
    home.mkdir(parents=True)
    for i in range(3):
        rows = int(rng.integers(1, 3000))
        columns: dict[str, Any] = {
            "model": [[None, "a", "b", "c"][k] for k in rng.choice(4, rows, p=[0.01, 0.3, 0.3, 0.39])],
            "problem_id": rng.integers(0, 50, rows) if i == 1 else [f"p{k}" for k in rng.integers(0, 50, rows)],
            "subject": "x" if i == 2 else [["x", "y"][k] for k in rng.integers(0, 2, rows)],
            "passed": [[0, 1, None, 2][k] for k in rng.choice(4, rows, p=[0.4, 0.4, 0.15, 0.05])],
            "t": [[None, 0.5, 1.0][k] for k in rng.integers(0, 3, rows)] if i else ["0.5"] * rows,
        }
        if attempts:
            columns["attempt"] = rng.integers(0, attempts, rows)
        if texts:
            columns["attempt"] = [f"run {k}" for k in columns.pop("attempt")]
            columns["cost"] = [[None, -1.0, 0.1, 2.0][k] for k in rng.choice(4, rows, p=[0.1, 0.01, 0.8, 0.09])]
            columns["score"] = [[None, 0.5, 1.0][k] for k in rng.integers(0, 3, rows)]
            columns.pop(["attempt", "cost", "score"][i])
        pl.DataFrame(columns).write_parquet(home / f"{i}.parquet", row_group_size=700)
    return home


def opened(home: Path, settings: Settings) -> list[LakeFile]:
    listed = listing(home)
    task = shard.Task(Shard(listed.root, listed.files), settings)
    return [shard.open_file(task, file, i, {}) for i, file in enumerate(listed.files)]


def counted(home: Path, use_kernel: bool, chunk_rows: int, **settings: Any) -> pl.DataFrame:
    """The partial counts of a lake, a row per listed attempt."""
    files = opened(home, Settings.model_validate({"protocol": {"columns": ["t"]}, **settings}))
    layout = layout_of(files, ordered="duplicates" in settings)
    frames = [
        count_chunk(chunk, layout, use_kernel).with_columns(pl.col(KEYS).cast(pl.String), chunk=pl.lit(i))
        for i, chunk in enumerate(chunks(files, chunk_rows))
    ]
    counts = pl.concat(frames)
    return (counts.explode(layout.lists) if layout.lists else counts).sort("chunk", *KEYS, *layout.lists)


@pytest.mark.slow
@pytest.mark.parametrize(("attempts", "texts"), [(0, False), (5, False), (64, False), (200, False), (5, True)])
def test_the_kernel_equals_the_query(tmp_path: Path, attempts: int, texts: bool) -> None:
    lists = {"measures": {"cost": {"kind": "cost"}}, "duplicates": {"rule": "last"}} if texts else {}
    for seed in range(3):
        home = lake(tmp_path / f"lake{seed}", np.random.default_rng(seed), attempts, texts)
        for rows in (1000, 1 << 20):
            by_kernel, by_query = (counted(home, use_kernel, rows, **lists) for use_kernel in (True, False))
            assert ("cost" in str(by_query.columns)) == texts
            assert_frame_equal(by_kernel, by_query, check_column_order=False)


def test_too_many_groups_for_a_word_go_to_the_query(tmp_path: Path) -> None:
    files = opened(lake(tmp_path / "lake", np.random.default_rng(1), 9), Settings())
    (chunk,) = chunks(files, 1 << 20)
    with pytest.raises(kernel.TooManyGroupsError):
        kernel.count_rows(chunk, layout_of(files, ordered=False), max_groups=2)


def test_attempts_that_differ_from_the_footer_are_damage(tmp_path: Path) -> None:
    """Statistics decide how many words of bits attempts need; numbers beyond them are not counted."""
    put(tmp_path / "lake", pl.DataFrame({"model": "m", "problem_id": "p", "passed": True, "attempt": [7, 70]}))
    files = opened(tmp_path / "lake", Settings())
    (chunk,) = chunks(files, 100)
    layout = layout_of(files, ordered=False)
    assert layout.words == 2
    with pytest.raises(DamagedError, match="column attempt does not match its statistics"):
        kernel.count_rows(chunk, replace(layout, words=1))
