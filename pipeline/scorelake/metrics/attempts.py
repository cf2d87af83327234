"""Matrices of attempts: a row per problem, an entry per attempt. Rows may differ in length; None is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats, Ints

Attempts: TypeAlias = NDArray[Any] | Sequence[object]
"""problems x attempts: a numpy array, masked or not, or lists of lists, which may be ragged and hold None.

Checkers see `list[object]` where some rows hold None, so no more is asked of them; what is wrong is told at once.
"""

_SHAPE = "a matrix has a row per problem and an entry per attempt: [[0, 1, 1], [1, None]]"


@dataclass(frozen=True)
class Entries:
    """The entries of a matrix one after another: their values, whether they are there, their rows and places."""

    value: Floats
    there: NDArray[np.bool_]
    problem: Ints
    position: Ints
    problems: int


def entries(matrix: Attempts, what: str = "R") -> Entries:
    """The entries of a matrix; what is no matrix of numbers is an error."""
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.dtype.kind in "biuf":
        problem, position = np.divmod(np.arange(matrix.size), max(matrix.shape[1], 1))
        there = ~np.ma.getmaskarray(matrix).ravel()
        value = np.where(there, np.ma.getdata(matrix).ravel(), 0).astype(np.float64)
        return Entries(value, there, problem, position, len(matrix))
    rows = _rows(matrix, what)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    problem = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(problem.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = list(chain.from_iterable(rows))
    for entry in flat:
        if not isinstance(entry, Real | np.bool_ | None):
            raise MetricError(f"{what}: an entry must be a number, a boolean or None, got {entry!r}", hint=_SHAPE)
    there = np.array([entry is not None for entry in flat], dtype=bool)
    value = np.array([0.0 if entry is None else float(entry) for entry in flat])
    return Entries(value, there, problem, position, len(rows))


def tallied(matrix: Attempts, what: str = "R") -> tuple[Ints, Ints]:
    """n and c of every problem: entries that are there, and those among them that are 1."""
    counts = categories(matrix, 2, what)
    return counts.sum(axis=1), counts[:, 1]


def categories(matrix: Attempts, many: int, what: str = "R") -> Ints:
    """How often every problem has each of the outcomes 0, 1, ...: problems x outcomes."""
    given = entries(matrix, what)
    value = given.value[given.there]
    odd = ~((value >= 0) & (value < many) & (value == np.floor(value)))
    if odd.any():
        raise MetricError(
            f"{what}: an entry must be {'0 or 1' if many == 2 else f'from 0 to {many - 1}'}, got {value[odd][0]:g}",
            hint="None stands for a missing attempt; outcomes of more kinds need their weights w",
        )
    out = np.zeros((given.problems, many), dtype=np.int64)
    np.add.at(out, (given.problem[given.there], value.astype(np.int64)), 1)
    return out


def _rows(matrix: Any, what: str) -> list[list[Any]]:
    """Rows as lists; one flat row is one problem."""
    if isinstance(matrix, np.ndarray):
        if matrix.ndim not in (1, 2):
            raise MetricError(f"{what} has {matrix.ndim} dimensions", hint=_SHAPE)
        listed = matrix.tolist()  # of a masked array, None where it is masked
    elif _is_row(matrix):
        listed = list(matrix)
    else:
        raise MetricError(f"{what} is a {type(matrix).__name__}, no matrix of attempts", hint=_SHAPE)
    rows = listed if any(_is_row(row) for row in listed) else [listed] if listed else []
    if not rows or not all(_is_row(row) for row in rows):
        raise MetricError(f"{what} is no matrix of attempts", hint=_SHAPE)
    return [row.tolist() if isinstance(row, np.ndarray) else list(row) for row in rows]


def _is_row(row: object) -> bool:
    return isinstance(row, np.ndarray | Sequence) and not isinstance(row, str | bytes)
