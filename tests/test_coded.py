"""Counts whose keys are codes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from scorelake.coded import HASH, added_by_hash
from scorelake.tables import KEYS


def partials(seed: int) -> pl.DataFrame:
    """The rows of several partials, each sorted by hash, as a merge reads them."""
    rng = np.random.default_rng(seed)
    problems = pl.DataFrame({key: rng.integers(0, 3, 200) for key in KEYS}, schema=dict.fromkeys(KEYS, pl.UInt32))
    problems = problems.unique(maintain_order=True)
    problems = problems.with_columns(pl.Series(HASH, rng.permutation(1 << 20)[: problems.height].astype(np.uint64)))
    some = [problems.sample(fraction=share, seed=seed).sort(HASH) for share in (1.0, 0.5, 0.1)]
    rows = pl.concat(some)
    return rows.with_columns(
        n=pl.Series(rng.integers(0, 100, rows.height)),
        seen0=pl.Series(rng.integers(0, 1 << 62, rows.height).astype(np.uint64)),
        seen1=pl.Series([None, 7] * rows.height).head(rows.height).cast(pl.UInt64),
    )


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_problem_are_added_up(seed: int) -> None:
    rows = partials(seed)
    added = added_by_hash(rows)
    assert added is not None
    want = rows.drop(HASH).group_by(KEYS).sum()
    assert added.select(want.columns).sort(KEYS).equals(want.sort(KEYS))


def test_two_problems_with_one_hash_are_not_added_up() -> None:
    rows = partials(0)
    first, second = rows[HASH][0], rows[HASH][1]
    assert added_by_hash(rows.with_columns(pl.col(HASH).replace(second, first))) is None


def test_a_missing_key_is_not_added_up() -> None:
    rows = partials(0).with_row_index("i")
    subject = pl.when(pl.col("i") > 0).then("subject").alias("subject")
    assert added_by_hash(rows.with_columns(subject).drop("i")) is None


def test_nothing_is_nothing() -> None:
    added = added_by_hash(partials(0).clear())
    assert added is not None
    assert added.is_empty()
