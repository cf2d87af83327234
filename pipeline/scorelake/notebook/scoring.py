"""Score attempts from Python: write them as a temporary lake, run the job, and return a Board of its output."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
import polars as pl

from scorelake.errors import ScorelakeError, UsageError
from scorelake.lake.description import mapped, settings_for
from scorelake.lake.infer import config_text, infer_config
from scorelake.lake.names import names_setting
from scorelake.lake.sample import FILES, GROUPS, ROWS, pooled_settings, sample_frame
from scorelake.metrics.counts import Attempts
from scorelake.metrics.counts import entries as parse_matrix
from scorelake.notebook.board import Board
from scorelake.pipeline import RunReport, run_score
from scorelake.settings import COMPOSITE, NAMING, Settings
from scorelake.stages import Progress
from scorelake.storage.disk import check_location, storage_errors
from scorelake.text import escape_controls


@runtime_checkable
class ArrowStream(Protocol):
    """Any table with the Arrow PyCapsule interface: pandas, PyArrow, DuckDB relations and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowStream
Matrices: TypeAlias = Attempts | Mapping[str, object]
EntryKind: TypeAlias = Literal["passed", "score"]

FRAME, MATRIX, UNNAMED = "frame", "matrix", "model"
"""Names of such lakes in messages and in the table of runs, and of the model of a single matrix."""
_IMPORTED_BY, _FORK_TIMEOUT_S = os.getpid(), 10.0
_LOG = logging.getLogger(__name__).warning
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
    _check_not_forked()
    if entries not in (None, "passed", "score"):
        raise UsageError(f"entries must be passed or score, got {entries!r}")
    lake = fspath(attempts) if isinstance(attempts, str | PathLike) else None
    is_matrix = lake is None and isinstance(attempts, np.ndarray | Sequence | Mapping)
    target = None if out is None else check_location(out)
    job: dict[str, Any] = {**options}
    config["memory"], warn = job.pop("memory", None), job.pop("warn", _LOG)
    settings = settings_for(lake, **config)
    if entries and not is_matrix:
        hint = 'for a table or a lake, map the column: columns={"score": ...} or {"passed": ...}'
        raise UsageError("entries is for matrices only", hint=hint)
    with ExitStack() as temporary:
        folder = target or str(Path(temporary.enter_context(TemporaryDirectory(prefix="scorelake-"))) / "out")
        if lake is not None:
            report = run_score(lake, folder, settings, **job)
        elif is_matrix:
            frame = _from_matrices(attempts, settings, entries or "passed")
            report = _score_frame(MATRIX, frame, folder, settings, job)
        else:
            frame = _lazy_frame(attempts)
            settings = _infer_columns(frame, settings, config, warn)
            for warning in _pooled_settings(frame, settings):
                warn(warning)
            report = _score_frame(FRAME, frame, folder, settings, job)
        return Board(folder, report, None if target else temporary.pop_all())


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in Options.__annotations__:
            names = ("metrics", "columns", "by", "config", "out", "entries", *Options.__annotations__)
            close = "".join(f"did you mean {near}? " for near in get_close_matches(name, names, n=1))
            raise UsageError(f"score() has no argument {name}", hint=f"{close}arguments: {', '.join(names)}")
        if name in ("progress", "warn") and not callable(value):
            raise UsageError(f"{name} must be a function, got {value!r}")


def _score_frame(name: str, frame: pl.LazyFrame, out: str, settings: Settings, job: Mapping[str, Any]) -> RunReport:
    """Score a frame by way of a temporary file.

    Columns that the settings do not use are written empty, so that error messages can still list them.
    """
    columns = []
    for column, dtype in frame.collect_schema().items():
        if column in settings.used and dtype == pl.Object:
            hint = "cast it to strings, numbers or booleans"
            raise UsageError(f"{column}: a column of Python objects cannot be counted", where=FRAME, hint=hint)
        is_writable = not dtype.is_nested() and dtype not in (pl.Object, pl.Null)
        empty = pl.lit(None, dtype if is_writable else pl.Boolean).alias(column)
        columns.append(pl.col(column) if column in settings.used else empty)
    collected = frame.select(columns).collect()
    with TemporaryDirectory(prefix="scorelake-") as folder:
        path = Path(folder) / f"{name}.parquet"
        with storage_errors(path):
            collected.write_parquet(path, compression="lz4")
        try:
            return run_score(str(path), out, settings, called=name, **job)
        except ScorelakeError as error:
            raise _without_file(error, path, name) from None


def _lazy_frame(attempts: Any) -> pl.LazyFrame:
    if isinstance(attempts, pl.LazyFrame):
        return attempts
    if isinstance(attempts, ArrowStream):  # a Polars DataFrame is one, too
        try:
            return pl.DataFrame(attempts).lazy()
        except Exception as error:  # pandas raises its own for a column of mixed objects
            return _without_mixed_columns(attempts, error).lazy()
    raise UsageError(f"cannot score a {type(attempts).__name__}", hint=_HINT)


def _pooled_settings(frame: pl.LazyFrame, settings: Settings) -> list[str]:
    """Return warnings for the columns of a frame: those that are not used are not in the temporary lake."""
    keys = {part for key in COMPOSITE for part in settings.columns.parts(key)}
    names = [name for name in frame.collect_schema() if name in keys or names_setting(name)]
    if keys.issuperset(names):
        return []
    return pooled_settings(sample_frame(frame.select(names).collect()).rows, settings)


def _without_mixed_columns(frame: Any, error: Exception) -> pl.DataFrame:
    """Convert a pandas frame column by column; those of mixed types become Python objects, which may be unused."""
    if not hasattr(frame, "items"):
        raise error
    columns = list[pl.Series]()
    for name, values in frame.items():
        try:
            columns.append(pl.DataFrame(values.to_frame(str(name))).to_series())
        except Exception:
            columns.append(pl.Series(str(name), list(values), dtype=pl.Object))
    return pl.DataFrame(columns)


def _check_not_forked() -> None:
    """Refuse a fork of a process in which Polars has run: its threads are gone, and the first query would hang."""
    if os.getpid() == _IMPORTED_BY:
        return
    query = pl.LazyFrame({"key": [1, 1]}).group_by("key").len()
    probe = Thread(target=query.collect, daemon=True)
    probe.start()
    probe.join(_FORK_TIMEOUT_S)
    if probe.is_alive():
        hint = 'use multiprocessing.get_context("spawn"), or a subprocess'
        raise UsageError("score() cannot run in a fork of a process that has used Polars", hint=hint)


def _infer_columns(
    frame: pl.LazyFrame, settings: Settings, config: Mapping[str, Any], warn: Callable[[str], None]
) -> Settings:
    """Infer columns as `scorelake init` does if a required one is missing, and report them as arguments of score().

    Columns that were given stay. If one of these is missing or a required one cannot be inferred, the settings stay,
    and the job raises its own error.
    """
    columns, schema = settings.columns, frame.collect_schema()
    if any(len(columns.parts(key)) > 1 for key in COMPOSITE):
        return settings
    given = {getattr(columns, key): key for key in columns.model_fields_set.intersection(NAMING)}
    required = {columns.model, columns.problem_id, columns.passed if columns.passed in schema else columns.score}
    is_text = schema.get(columns.passed) in (pl.String, pl.Categorical, pl.Enum) and not columns.pass_values
    if not given.keys() <= schema.keys() or (required <= schema.keys() and not is_text):
        return settings
    rows = frame.head(FILES * GROUPS * ROWS).collect()
    rows = rows.drop(set(given.values()) - given.keys(), strict=False).rename(given)
    inferred = infer_config(sample_frame(rows))
    if inferred.missing:
        return settings
    below = tomllib.loads(config_text(inferred, FRAME))
    if columns.pass_values:
        below["columns"].pop("fail_values", None)  # a given pass value may be among them
    guessed = settings_for(None, **config, below=below)
    old, new = (each.model_dump(include={"columns", "protocol", "duplicates"}) for each in (settings, guessed))
    changed = {part: {key: new[part][key] for key in new[part] if new[part][key] != old[part][key]} for part in new}
    arguments = {"columns": changed.pop("columns"), "config": {part: keys for part, keys in changed.items() if keys}}
    warn(f"inferred {', '.join(f'{name}={_json(value)}' for name, value in arguments.items() if value)}")
    return guessed


def _from_matrices(attempts: Any, settings: Settings, entries: EntryKind) -> pl.LazyFrame:
    """Return one row per entry, with problems and attempts numbered from 0."""
    is_named = isinstance(attempts, Mapping)
    parsed = {
        model: parse_matrix(matrix, f"the matrix of {model}" if is_named else "R")
        for model, matrix in (attempts if is_named else {UNNAMED: attempts}).items()
    }
    if not parsed:
        raise UsageError("there is no matrix to score", hint=_HINT)
    # No table would show a problem that has no attempts in any matrix.
    attempted = np.concatenate([matrix.problem for matrix in parsed.values()])
    missing = np.setdiff1d(np.arange(max(matrix.problems for matrix in parsed.values())), attempted)
    if missing.size:
        more = f", and {missing.size - 1:,} more rows" * (missing.size > 1)
        hint = "remove the row, or write [None] for a problem with one ungraded attempt"
        raise UsageError(f"row {missing[0]} has no attempts{more}", where=MATRIX, hint=hint)
    columns, frames = settings.columns, []
    for model, matrix in parsed.items():
        outcome = pl.Series(matrix.value).set(pl.Series(~matrix.there), None)
        rows = {
            columns.parts("problem_id")[0]: matrix.problem,
            columns.attempt: matrix.position,
            getattr(columns, entries): outcome,
        }
        frames.append(pl.DataFrame(rows).with_columns(pl.lit(str(model)).alias(columns.parts("model")[0])))
    return pl.concat(frames, how="vertical_relaxed").lazy()


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
    arguments = [f"columns={_json(columns)}"] if columns else []
    return f"to score(): {', '.join([*arguments, *(f'by={_json(word)}' for flag, word in given if flag == '--by')])}"


def _json(value: object) -> str:
    """Return texts, lists and dictionaries as Python would write them, in one line."""
    return escape_controls(json.dumps(value, ensure_ascii=False))
