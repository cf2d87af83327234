"""Score attempts from Python: write them as a temporary lake, run the job, and return a Board of its output."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
import polars as pl

from scorelake.errors import ScorelakeError, UsageError
from scorelake.lake.description import settings_for
from scorelake.metrics.counts import Attempts
from scorelake.metrics.counts import entries as parse_matrix
from scorelake.notebook.board import Board
from scorelake.pipeline import RunReport, run_score
from scorelake.settings import Settings, mapped
from scorelake.stages import Progress
from scorelake.storage.disk import check_location, storage_errors


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


class Options(TypedDict, total=False):
    """How the job runs, as on the command line; none of it changes a number."""

    memory: float | None
    engine: str
    address: str | None
    full: bool
    allow_quarantine: bool
    allow_empty: bool
    progress: Progress
    warn: Callable[[str], None]


def score_attempts(
    attempts: str | PathLike[str] | Frame | Matrices,
    out: str | PathLike[str] | None,
    entries: EntryKind | None,
    options: Options,
    **config: Any,
) -> Board:
    """Run the job and return its board; `config` are arguments of `settings_for`."""
    _check_options(options)
    if entries not in (None, "passed", "score"):
        raise UsageError(f"entries must be passed or score, got {entries!r}")
    lake = fspath(attempts) if isinstance(attempts, str | PathLike) else None
    target = None if out is None else check_location(out)
    settings = settings_for(lake, memory=options.get("memory"), **config)
    if entries and not is_matrix(attempts):
        hint = 'for a table or a lake, map the column: columns={"score": ...} or {"passed": ...}'
        raise UsageError("entries is for matrices only", hint=hint)
    job: dict[str, Any] = {name: value for name, value in options.items() if name != "memory"}
    with ExitStack() as temporary:
        folder = target or str(Path(temporary.enter_context(TemporaryDirectory(prefix="scorelake-"))) / "out")
        if lake is None:
            report = _score_frame(attempts, folder, settings, entries, job)
        else:
            report = run_score(lake, folder, settings, **job)
        return Board(folder, report, None if target else temporary.pop_all())


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in Options.__annotations__:
            names = ("metrics", "columns", "by", "config", "out", "entries", *Options.__annotations__)
            close = "".join(f"did you mean {near}? " for near in get_close_matches(name, names, n=1))
            raise UsageError(f"score() has no argument {name}", hint=f"{close}arguments: {', '.join(names)}")
        if name in ("progress", "warn") and not callable(value):
            raise UsageError(f"{name} must be a function, got {value!r}")


def _score_frame(
    attempts: Any, out: str, settings: Settings, entries: EntryKind | None, job: Mapping[str, Any]
) -> RunReport:
    """Score a data frame or matrices by way of a temporary file."""
    name = MATRIX if is_matrix(attempts) else FRAME
    with TemporaryDirectory(prefix="scorelake-") as folder:
        path = Path(folder) / f"{name}.parquet"
        write_attempts(attempts, path, settings, entries or "passed")
        try:
            return run_score(str(path), out, settings, called=name, **job)
        except ScorelakeError as error:
            raise _without_file(error, path, name) from None


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
                columns.parts("model")[0]: pl.repeat(str(model), matrix.value.size, dtype=pl.String, eager=True),
                columns.parts("problem_id")[0]: matrix.problem,
                columns.attempt: matrix.position,
                getattr(columns, entries): pl.Series(matrix.value).set(pl.Series(~matrix.there), None),
            }
        )
        for model, matrix in parsed.items()
    ]
    return pl.concat(frames, how="vertical_relaxed")


def _without_file(error: ScorelakeError, path: Path, name: str) -> ScorelakeError:
    """Return the error without the temporary file, its folder, and commands that need a file."""
    what, where, hint = (
        (text or "").replace(str(path), name).replace(path.name, name)
        for text in (error.what, error.where, error.hint)
    )
    what = what.replace(", or in conflict with the folder's name", "")
    hint = re.sub(r"(; |\. |\n  )`scorelake init.*\Z", "", hint, flags=re.DOTALL)
    hint = re.sub(r"in the command: (--(?:column|by) [^\n]+)", _as_arguments, hint)
    return type(error)(what, where=where or None, hint=hint or None)


def _as_arguments(flags: re.Match[str]) -> str:
    """Convert flags of the command line to arguments of score()."""
    words = shlex.split(flags[1])
    given = list(zip(words[::2], words[1::2], strict=True))
    columns = mapped(word for flag, word in given if flag == "--column")
    arguments = [f"columns={json.dumps(columns, ensure_ascii=False)}"] if columns else []
    arguments += [f"by={json.dumps(word, ensure_ascii=False)}" for flag, word in given if flag == "--by"]
    return f"to score(): {', '.join(arguments)}"
