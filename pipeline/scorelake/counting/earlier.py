"""Earlier attempts of the same problems, counted like the lake: what is known of a problem beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from scorelake.schemas import EARLIER, KEYS
from scorelake.storage.disk import storage_errors


def join(counts: Path, earlier: Path) -> None:
    """Put the counts of earlier attempts beside those of every problem, file by file.

    A problem that was never tried has 0 of 0; rewards are lists, empty where there are none.
    """
    before = pl.scan_parquet(sorted(earlier.glob("*.parquet")), glob=False)
    present = {name: kept for name, kept in EARLIER.items() if name in before.collect_schema()}
    columns = [*KEYS, *(pl.col(name).alias(kept) for name, kept in present.items())]
    earlier_counts = before.select(columns).collect()
    empty = [pl.col(EARLIER[name]).fill_null(0) for name in ("n", "c")]
    empty += [pl.col(kept).fill_null([]) for name, kept in present.items() if name not in ("n", "c")]
    for path in sorted(counts.glob("*.parquet")):
        frame = pl.read_parquet(path, glob=False)
        both = frame.join(earlier_counts, on=KEYS, how="left", nulls_equal=True, maintain_order="left").with_columns(
            empty
        )
        temporary = path.with_name(f".{path.name}")
        with storage_errors(path):
            both.write_parquet(temporary)
            os.replace(temporary, path)
