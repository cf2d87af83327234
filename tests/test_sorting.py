"""Sorting through ranks must be sorting."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from scorelake.sorting import by_ranks

TEXT = st.sampled_from(["", "a", "A", "ä", "b", "10", "9", "日本", "🙂", "z" * 30])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TEXT, st.integers(-5, 2**40), st.one_of(st.none(), TEXT)), unique=True, max_size=40))
def test_equals_a_plain_sort(rows: list[tuple[str, int, str | None]]) -> None:
    schema = {"one": pl.String, "two": pl.Int64, "three": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index()
    pieces = pl.concat([frame[:3], frame[3:]], rechunk=False)
    assert by_ranks(pieces, ["one", "two", "three"]).equals(frame.sort("one", "two", "three"), null_equal=True)
