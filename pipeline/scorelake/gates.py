"""Quality gates: what a run must reach before it may replace what people see."""

from __future__ import annotations

from typing import Any

import polars as pl

from scorelake.errors import DataError
from scorelake.settings import Gates

_WHO = ("benchmark", "model", "protocol")


def check(gates: Gates, run: dict[str, Any], models: pl.DataFrame, before: pl.DataFrame | None) -> None:
    """Raise with every gate that failed, and the numbers. `before` is the model summary now published, if any."""
    failed = [*_shares(gates, run), *_sizes(gates, models), *_falls(gates, models, before)]
    if failed:
        raise DataError(
            f"{len(failed)} gate{'s' * (len(failed) > 1)} failed:" + "".join(f"\n  {line}" for line in failed[:20]),
            hint="what is published stays as it was; mend the lake, or change [gates]",
        )


def _shares(gates: Gates, run: dict[str, Any]) -> list[str]:
    out = []
    for key, field, of in (
        ("max_ungraded", "ungraded", "rows_read"),
        ("max_rejected", "rejected", "rows_read"),
        ("max_quarantined", "quarantined", "files"),
    ):
        share, limit = run[field] / max(1, run[of]), getattr(gates, key)
        if share > limit:
            out.append(f"{key}: {run[field]:,} of {run[of]:,} is {share:.4g}, allowed {limit:g}")
    return out


def _sizes(gates: Gates, models: pl.DataFrame) -> list[str]:
    groups = models.select(*_WHO, "problems", "attempts").unique().sort(_WHO)
    out = []
    for key, column in (("min_problems", "problems"), ("min_attempts", "attempts")):
        limit = getattr(gates, key)
        low = groups.filter(pl.col(column) < limit)
        out += [f"{key}: {_who(row)} has {row[column]:,}, needed {limit:,}" for row in low.rows(named=True)]
    return out


def _falls(gates: Gates, models: pl.DataFrame, before: pl.DataFrame | None) -> list[str]:
    if gates.max_fall is None or before is None:
        return []
    same = [frame.filter(pl.col("metric") == gates.metric).select(*_WHO, "value") for frame in (before, models)]
    both = same[0].join(same[1], on=_WHO, how="left", suffix="_now", nulls_equal=True).sort(_WHO)
    fallen = both.filter((pl.col("value") - pl.col("value_now").fill_null(0)) > gates.max_fall)
    return [
        f"max_fall: {_who(row)} fell from {row['value']:.4f} to "
        + (f"{row['value_now']:.4f}" if row["value_now"] is not None else "nothing")
        + f" in {gates.metric}, allowed {gates.max_fall:g}"
        for row in fallen.rows(named=True)
    ]


def _who(row: dict[str, Any]) -> str:
    return " / ".join(part for part in (row["benchmark"], row["model"], row["protocol"]) if part)
