"""A quick run of the differential test; `python tests/differential.py` makes many more lakes and damaged files."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from differential import ENDS, FORBIDDEN, Maker, colliding, mutate, verify
from scorelake.hashing import hash_text

LAKES, DAMAGED = 25, 50


@pytest.mark.slow
def test_random_lakes_are_counted_as_by_a_dictionary(tmp_path: Path) -> None:
    taken: Counter[str] = Counter()
    for seed in range(LAKES):
        lake = Maker(seed).lake()
        end, wrong = verify(lake, tmp_path / str(seed), random.Random(seed))
        assert end in ("equal", "refused"), f"seed {seed}:\n" + "\n".join(wrong)
        taken += lake.taken
        taken[end] += 1
    assert {"equal", "refused", "query", "chunks", "arrow", "polars", "duckdb"} <= set(taken)


@pytest.mark.slow
def test_damaged_files_are_set_aside_or_come_to_the_same() -> None:
    told: list[str] = []
    ends = mutate(DAMAGED, 1, told.append)
    assert not set(FORBIDDEN) & set(ends), "\n".join(told)
    assert {"quarantined", "same"} <= set(ends) <= set(ENDS)
    assert sum(ends.values()) == DAMAGED


def test_the_lakes_have_problems_whose_hashes_are_equal() -> None:
    texts = colliding(5)
    assert len(set(texts)) == 6
    assert len(set(hash_text(pl.Series(texts)).tolist())) == 1
