"""Data frames and matrices of attempts, written as one Parquet file that is counted like any lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics.counts import Attempts
from scorelake.metrics.counts import entries as parse_matrix
from scorelake.storage.disk import storage_errors

if TYPE_CHECKING:
    from scorelake.settings import Settings


@runtime_checkable
class ArrowStream(Protocol):
    """Any table with the Arrow PyCapsule interface: pandas, PyArrow, DuckDB relations and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowStream
Matrices: TypeAlias = Attempts | Mapping[str, object]
EntryKind: TypeAlias = Literal["passed", "score"]

FRAME, MATRIX = "frame", "matrix"
"""The name of such a lake in messages and in the table of runs."""
UNNAMED = "model"
"""The model of a matrix without a name."""
_HINT = "pass a path, a Polars, pandas or Arrow table, a matrix (problems x attempts), or matrices by model"


def write_attempts(attempts: Frame | Matrices, path: Path, settings: Settings, entries: EntryKind) -> None:
    """Write the attempts as Parquet.

    Columns that the settings do not use are written empty, so that error messages can still list them.
    """
    if isinstance(attempts, pl.LazyFrame):
        frame = attempts
    elif is_matrix(attempts):
        frame = _from_matrices(attempts, settings, entries).lazy()
    elif isinstance(attempts, ArrowStream):  # a Polars DataFrame is one, too
        frame = pl.DataFrame(attempts).lazy()
    else:
        raise UsageError(f"cannot score a {type(attempts).__name__}", hint=_HINT)
    schema, columns = frame.collect_schema(), []
    for name, dtype in schema.items():
        if name in settings.used and dtype == pl.Object:
            raise UsageError(
                f"{name}: a column of Python objects cannot be counted",
                where=FRAME,
                hint="cast it to strings, numbers or booleans",
            )
        writable = not dtype.is_nested() and dtype not in (pl.Object, pl.Null)
        empty = pl.lit(None, dtype if writable else pl.Boolean).alias(name)
        columns.append(pl.col(name) if name in settings.used else empty)
    collected = frame.select(columns).collect()
    with storage_errors(path):
        collected.write_parquet(path, compression="lz4")


def is_matrix(attempts: object) -> bool:
    """Return whether attempts are a matrix, or several by model."""
    return isinstance(attempts, np.ndarray | Sequence | Mapping) and not isinstance(attempts, str | bytes)


def _from_matrices(attempts: Any, settings: Settings, entries: EntryKind) -> pl.DataFrame:
    """Return one row per entry, with problems and attempts numbered from 0."""
    by_model: Mapping[str, Any] = attempts if isinstance(attempts, Mapping) else {UNNAMED: attempts}
    if not by_model:
        raise UsageError("there is no matrix to score", hint=_HINT)
    parsed = {
        model: parse_matrix(matrix, f"the matrix of {model}" if isinstance(attempts, Mapping) else "R")
        for model, matrix in by_model.items()
    }
    # No table would show a problem that has no attempts in any matrix.
    attempted = np.concatenate([matrix.problem for matrix in parsed.values()])
    missing = np.setdiff1d(np.arange(max(matrix.problems for matrix in parsed.values())), attempted)
    if missing.size:
        raise UsageError(
            f"row {missing[0]} has no attempts" + (f", and {missing.size - 1:,} more rows" * (missing.size > 1)),
            where=MATRIX,
            hint="remove the row, or write [None] for a problem with one ungraded attempt",
        )
    columns = settings.columns
    frames = [
        pl.DataFrame(
            {
                columns.model: pl.repeat(str(model), matrix.value.size, dtype=pl.String, eager=True),
                columns.problem_id: matrix.problem,
                columns.attempt: matrix.position,
                getattr(columns, entries): pl.Series(matrix.value).set(pl.Series(~matrix.there), None),
            }
        )
        for model, matrix in parsed.items()
    ]
    return pl.concat(frames, how="vertical_relaxed")
