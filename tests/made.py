"""Counts of our own making, and what they say in plain Python: by the names of problems, not by codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from scorelake.counts import (
    DOUBT,
    HASH,
    OUTCOMES,
    PROBLEM,
    SEED_LOW,
    TOLD,
    Counts,
    Words,
    bits,
    group_hashes,
    hashed,
    key_hashes,
    mix,
)

from scorelake.schemas import KEYS

Key: TypeAlias = tuple[str, ...]
Said: TypeAlias = tuple[dict[Key, dict[str, Any]], Counter[tuple[Any, ...]]]


def real_hashes(keys: Sequence[Key]) -> Words:
    """The hashes that partials are ordered by."""
    columns = [hashed(pl.Series([key[i] for key in keys], dtype=pl.String)) for i in range(len(KEYS))]
    return key_hashes(*group_hashes(columns[:-1]), columns[-1])


def counts(
    seed: int, rows: int, *, words: int = 1, details: bool = False, hashing: Callable[..., Words] = real_hashes
) -> Counts:
    """Random rows of a few problems, which come several times; texts in an order of their own."""
    rng = np.random.default_rng(seed)
    texts: dict[str, Any] = {}
    codes = {}
    for key in KEYS:
        names = [f"{key}{i}" for i in range(2 if key != KEYS[-1] else 5)]
        rng.shuffle(names)
        texts[key] = pa.array(names, pa.large_string())
        codes[key] = rng.integers(0, len(names), rows).astype(np.uint32)
    keys = [tuple(texts[key][int(codes[key][i])].as_py() for key in KEYS) for i in range(rows)]
    problems = pl.DataFrame(
        {
            HASH: hashing(keys),
            **codes,
            **{name: rng.integers(0, 4, rows) for name in OUTCOMES},
            TOLD: rng.integers(0, 3, rows),
            DOUBT: rng.random(rows) < 0.02,
            **{name: np.uint64(1) << rng.integers(0, 64, rows).astype(np.uint64) for name in bits(words)},
            "min:tier": pl.Series([None if x > 6 else int(x) for x in rng.integers(0, 9, rows)], dtype=pl.Int64),
            "max:tier": pl.Series([None if x > 6 else int(x) for x in rng.integers(0, 9, rows)], dtype=pl.Int64),
        }
    )
    told = None
    if details:
        many = 2 * rows
        told = pl.DataFrame(
            {
                PROBLEM: np.sort(rng.integers(0, rows, many)).astype(np.uint32),
                "score": rng.integers(0, 3, many) / 2,
                **{name: rng.integers(0, 2, many) for name in OUTCOMES},
            }
        )
    return Counts(texts, problems, told)


def said(whole: Counts) -> Said:
    """What counts say: each problem's row by its name, and how often each detail is told of which problem."""
    names = {key: whole.texts[key].to_pylist() for key in KEYS}
    keys = [tuple(names[key][row[key]] for key in KEYS) for row in whole.problems.iter_rows(named=True)]
    rows = [{k: -1 if v is None else v for k, v in row.items()} for row in whole.problems.drop(KEYS).rows(named=True)]
    told = whole.details.rows(named=True) if whole.details is not None else []
    assert len(set(keys)) == len(keys), "a problem comes twice"
    extra = Counter((keys[row[PROBLEM]], *(v for k, v in sorted(row.items()) if k != PROBLEM)) for row in told)
    return dict(zip(keys, rows, strict=True)), extra


def same_hash(many: int, seed: int = SEED_LOW) -> list[str]:
    """Texts of 16 ASCII bytes with one and the same 64-bit hash under a seed.

    The second word undoes what the first one did to the hash; those are kept that are ASCII too.
    """
    rng = np.random.default_rng(1)
    first = rng.integers(0, 128, (1200 * many, 8), dtype=np.uint8).view(np.uint64).ravel()
    second = mix(np.uint64(seed) ^ np.uint64(16) ^ first) ^ np.uint64(0x3132333435363738)
    ascii_only = (second & np.uint64(0x8080808080808080)) == 0
    pairs = np.column_stack([first[ascii_only], second[ascii_only]])[:many]
    assert len(pairs) == many
    return [pair.tobytes().decode() for pair in pairs]
