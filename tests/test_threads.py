"""Work side by side: what is handed over together."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scorelake.threads import batch_by_size


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 60))
def test_neighbours_are_taken_together_while_they_are_small(sizes: list[int], most: int) -> None:
    batches = batch_by_size(sizes, float, most)
    assert [size for batch in batches for size in batch] == sizes
    assert all(sum(batch) <= most or len(batch) == 1 for batch in batches)
    assert all(sum(a) + b[0] > most for a, b in pairwise(batches)), "none could have taken one more"
