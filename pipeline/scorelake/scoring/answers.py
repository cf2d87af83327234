"""Answers: what the attempts of a problem said, for votes."""

from __future__ import annotations

import numpy as np
import polars as pl

from scorelake import metrics

COLUMNS = ("answer_counts", "answer_passes")


def ballots(problems: pl.DataFrame) -> metrics.Ballots:
    """The answers of all problems end to end."""
    lengths = problems[COLUMNS[0]].list.len().cast(pl.Int64).to_numpy()
    full = problems.select(COLUMNS).filter(pl.col(COLUMNS[0]).list.len() > 0)
    count, passes = (full[name].explode().to_numpy() for name in COLUMNS)
    n, c = (problems[name].to_numpy() for name in ("n", "c"))
    return metrics.Ballots(n, c, np.repeat(np.arange(problems.height), lengths), count, passes)
