"""Numbers of models on problems that take two bytes each: most are the same few, and are told by their places.

A million problems have a few hundred different (n, c), and so a few hundred different scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorelake.metrics.distributions import Floats, Ints, blocks

Places = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Matrix:
    """Rows x columns, each number told by its place in a list; the first of the list is NaN, for none at all."""

    place: Places
    numbers: Floats

    @classmethod
    def of(cls, numbers: Floats) -> Matrix:
        """Every number by itself."""
        place = np.arange(1, numbers.size + 1, dtype=places(numbers.size)).reshape(numbers.shape)
        return cls(place, np.concatenate([[np.nan], numbers.ravel()]))

    def rows(self, some: Ints | int, columns: slice = slice(None)) -> Floats:
        """Some rows, or parts of them, as they are."""
        return np.take(self.numbers, self.place[some, columns])


def places(many: int) -> type[np.unsignedinteger[Any]]:
    """The smallest numbers that tell so many places apart, and none."""
    return np.uint8 if many < 1 << 8 else np.uint16 if many < 1 << 16 else np.uint32


def common(place: Places, there: NDArray[np.bool_]) -> Ints:
    """In how many columns two rows both have something that is there; rows x rows, or one number for all of them."""
    if there[place].all():
        return np.array(place.shape[1])
    out = np.zeros((len(place), len(place)), dtype=np.int64)
    flags = there.astype(np.float32)
    for columns in blocks(place.shape[1], max(16, len(place))):
        some = np.take(flags, place[:, columns])  # exact: a block has fewer columns than 2^24
        out += (some @ some.T).astype(np.int64)
    return out
