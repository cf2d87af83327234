"""Attempts that are no lake: data frames and matrices, written as one Parquet file that is counted like any other.

A frame gives the columns that the settings name. Its other columns stay behind: they are written empty, so that
errors can still tell which columns there are. A matrix R has a row per problem and an entry per attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics.attempts import Attempts
from scorelake.metrics.attempts import Entries as EntriesOf
from scorelake.metrics.attempts import entries as entries_of
from scorelake.storage.disk import storage_errors

if TYPE_CHECKING:
    from scorelake.settings import Settings


@runtime_checkable
class ArrowStream(Protocol):
    """Any table that speaks Arrow: pandas, PyArrow, DuckDB relations and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowStream
Matrices: TypeAlias = Attempts | Mapping[str, object]
Entries: TypeAlias = Literal["passed", "score"]

FRAME, MATRIX = "frame", "matrix"
"""What such a lake is called in messages and in the table of runs."""
ALONE = "model"
"""The model of a matrix that comes without a name."""
_KINDS = "a path, a Polars, pandas or Arrow table, a matrix (problems x attempts), or matrices by model"


def write(attempts: Frame | Matrices, path: Path, settings: Settings, entries: Entries = "passed") -> None:
    """The attempts as a Parquet file with the columns that these settings count."""
    frame = attempts if isinstance(attempts, pl.LazyFrame) else _frame(attempts, settings, entries).lazy()
    schema = frame.collect_schema()
    kept = settings.used
    columns = [
        pl.col(name) if name in kept else pl.lit(None, kind if _plain(kind) else pl.Boolean).alias(name)
        for name, kind in schema.items()
    ]
    odd = [name for name, kind in schema.items() if name in kept and kind == pl.Object]
    if odd:
        raise UsageError(
            f"{', '.join(odd)}: a column of Python objects cannot be counted",
            where=FRAME,
            hint="cast it to texts, numbers or booleans first",
        )
    made = frame.select(columns).collect()
    with storage_errors(path):
        made.write_parquet(path, compression="lz4")


def is_matrix(attempts: object) -> bool:
    """A matrix, or several by their models; not a frame."""
    return isinstance(attempts, np.ndarray | Sequence | Mapping) and not isinstance(attempts, str | bytes)


def _frame(attempts: Frame | Matrices, settings: Settings, entries: Entries) -> pl.DataFrame:
    if isinstance(attempts, pl.DataFrame):
        return attempts
    if not is_matrix(attempts):
        if isinstance(attempts, ArrowStream):
            return pl.DataFrame(attempts)
        raise UsageError(f"cannot score a {type(attempts).__name__}", hint=f"attempts are {_KINDS}")
    named: Mapping[str, Any] = attempts if isinstance(attempts, Mapping) else {ALONE: attempts}
    if not named:
        raise UsageError("there is no matrix to score", hint=f"attempts are {_KINDS}")
    return pl.concat(list(_matrices(named, settings, entries)), how="vertical_relaxed")


def _matrices(named: Mapping[str, Any], settings: Settings, entries: Entries) -> Iterator[pl.DataFrame]:
    """One row per entry; problems and attempts are numbered from 0, since no name tells them apart."""
    names = settings.columns
    every = {
        model: entries_of(matrix, "R" if model == ALONE and len(named) == 1 else f"the matrix of {model}")
        for model, matrix in named.items()
    }
    _refuse_unattempted(list(every.values()))
    for model, found in every.items():
        yield pl.DataFrame(
            {
                names.model: pl.repeat(str(model), found.value.size, dtype=pl.String, eager=True),
                names.problem_id: found.problem,
                names.attempt: found.place,
                getattr(names, entries): pl.Series(found.value).set(pl.Series(~found.there), None),
            }
        )


def _refuse_unattempted(every: Sequence[EntriesOf]) -> None:
    """A row that is empty in every matrix is a problem that no table would have: nobody would miss it."""
    tried = np.zeros(max(found.problems for found in every), dtype=bool)
    for found in every:
        tried[found.problem] = True
    if not tried.all():
        none = np.flatnonzero(~tried)
        raise UsageError(
            f"row {none[0]} has no attempts" + (f", and {none.size - 1:,} more rows" if none.size > 1 else ""),
            where=MATRIX,
            hint="leave the row out; or write [None] for a problem with an attempt that nobody graded",
        )


def _plain(kind: pl.DataType) -> bool:
    """A type that Parquet has whatever it holds."""
    return not kind.is_nested() and kind not in (pl.Object, pl.Null)
