"""A quick run of the differential test; `make torture` tries 300 lakes and 10,000 damaged files."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from differential import ENDS, FORBIDDEN, Maker, colliding, mutate, verify
from scorelake.hashing import hash_text

LAKES, DAMAGED = int(os.environ.get("LAKES", "20")), int(os.environ.get("DAMAGED", "50"))


@pytest.mark.slow
def test_random_lakes_are_counted_as_by_a_dictionary(tmp_path: Path) -> None:
    taken: Counter[str] = Counter()
    faults = []
    for seed in range(LAKES):
        lake = Maker(seed).lake()
        end, wrong = verify(lake, tmp_path / str(seed), random.Random(seed))
        faults += [f"seed {seed}: {lake.choices}", *(line[:1500] for line in wrong)] if wrong else []
        taken += lake.taken
        taken[end] += 1
    assert not faults, "\n    ".join(faults)
    assert {"equal", "refused", "kernel", "query", "chunks", "arrow", "polars", "duckdb"} <= set(taken)


@pytest.mark.slow
def test_damaged_files_are_set_aside_or_come_to_the_same() -> None:
    messages: list[str] = []
    ends = mutate(DAMAGED, 1, messages.append)
    assert not set(FORBIDDEN) & set(ends), "\n".join(messages)
    assert {"quarantined", "same"} <= set(ends) <= set(ENDS)
    assert ends.total() == DAMAGED


def test_the_lakes_have_problems_whose_hashes_are_equal() -> None:
    texts = colliding(5)
    assert len(set(texts)) == 6
    assert len(set(hash_text(pl.Series(texts)).tolist())) == 1
