"""Sort rows by text columns through the ranks of their distinct values.

Keys repeat: a million problems are twenty models times fifty thousand names. Sorting the distinct texts and
then one integer per row is ten times faster than comparing rows of texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl


def by_text(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The frame in the order of its text columns, as `frame.sort(columns)`; rows must differ in them."""
    place, room = np.zeros(frame.height, dtype=np.uint64), 1
    for name in columns:
        texts = frame[name].unique().sort()
        room *= max(1, texts.len())
        if texts.null_count() or room >= 1 << 64:
            return frame.sort(columns)
        if texts.len() > 1:
            rank = frame[name].cast(pl.Enum(texts)).to_physical().to_numpy()
            place = place * np.uint64(texts.len()) + rank
    # one buffer per column first: picking rows out of many pieces costs more than the sort
    return frame.rechunk()[np.argsort(place)]
