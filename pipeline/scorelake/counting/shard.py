"""Count one shard into a partial: open its files, run the count query per chunk, quarantine files that are broken.

Files are on a local disk here and counts go into a folder; tasks.py brings files from object storage and moves the
folder to its final name.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.counting import kernel
from scorelake.counting.canonical import (
    FAILED,
    INVALID,
    PASSED,
    REJECTED,
    SCORED,
    UNGRADED,
    Schema,
    Source,
    attempt_columns,
    canonical,
    read_types,
    rejection_reasons,
)
from scorelake.counting.partials import Partial
from scorelake.counting.query import count_chunk, layout_of, sort_of
from scorelake.counting.scan import LakeFile, RowGroups, chunks, scan_verified, to_polars
from scorelake.counting.schema_check import UnreadableError
from scorelake.counting.window import newest_value, rows_outside
from scorelake.errors import DataError, ScorelakeError, StorageError
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import first_line, storage_errors
from scorelake.storage.files import File, Shard

FORMAT = 10
"""Raise when partials of an older version must not be added to new ones."""
BYTES_PER_ROW = 200
"""Memory that the count query needs per row of a chunk, measured with scores and numbered attempts: 180."""
MIN_CHUNK_ROWS = 1 << 18
_HAS = dict.fromkeys((FAILED, PASSED), "passed+score") | dict.fromkeys((UNGRADED, REJECTED), "") | {SCORED: "score"}
"""Which of verdict and score a row has, in files with both columns; otherwise passed."""
BROKEN = (
    *(pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError, UnicodeError),
    *(parquet.DamagedError, UnreadableError),
)
"""Errors that a broken file can cause. Anything else is a bug of ours and must not be reported as a broken file."""


@dataclass(frozen=True)
class Task:
    """Count one shard into a folder. Small, frozen and picklable: the same here and on a cluster."""

    shard: Shard
    settings: Settings
    method: str = field(default="auto", kw_only=True)
    """`query` does without the kernel, to compare the two."""
    chunk_rows: int | None = field(default=None, kw_only=True)
    """Rows that are counted together; by default as many as fit into memory."""

    @property
    def name(self) -> str:
        return self.shard.fingerprint(settings=identity(self.settings))


def identity(settings: Settings) -> dict[str, Any]:
    """What partial counts depend on besides the files."""
    return {"format": FORMAT, "counting": settings.counting()}


def count(task: Task, folder: Path) -> Partial:
    """Count a shard into a folder that is there and empty."""
    good: list[LakeFile] = []
    quarantine: list[tuple[str, str]] = []
    schemas: dict[Any, Schema] = {}
    for number, file in enumerate(task.shard.files):
        try:
            good.append(open_file(task, file, number, schemas))
        except UnreadableError as reason:
            quarantine.append((file.name, str(reason)))
    while True:
        try:
            return _count_files(task, good, quarantine, folder)
        except ScorelakeError:
            raise
        except BROKEN as error:  # a file is broken inside: count the others
            _classify_error(error)
            good, broken = _find_broken_files(good)
            if not broken:
                paths = ", ".join(file.file.path for file in good[:3])
                what = f"the files cannot be counted together: {first_line(error)[:200]}"
                raise DataError(what, where=paths) from error
            for left in folder.iterdir():
                left.unlink()
            quarantine += broken


def _count_files(task: Task, files: list[LakeFile], quarantine: list[tuple[str, str]], folder: Path) -> Partial:
    settings, read = task.settings, sum(file.rows for file in files)
    names, methods, outcomes = list[str](), {"kernel"}, dict[tuple[str, str, str], str]()
    counted = problems = 0
    # files of verdicts keep the fast layout beside files of scores; sorts of carried values have columns of their own
    for (columns, sorts), same in groupby(sorted(files, key=_shape), _shape):
        alike = list(same)
        layout = layout_of(alike, settings.duplicates.rule in ("first", "last"))
        use_kernel = task.method == "auto" and not sorts
        methods.add("kernel" if use_kernel else "query")
        bytes_per_row = kernel.BYTES_PER_ROW if use_kernel and not layout.lists else BYTES_PER_ROW
        max_rows = task.chunk_rows or max(MIN_CHUNK_ROWS, int(settings.run.memory * 2**30) // bytes_per_row)
        for chunk in chunks(alike, max_rows):
            counts = count_chunk(chunk, layout, use_kernel)
            if not counts.height:  # all rows are rejected
                continue
            names.append(f"counts-{len(names):05d}.parquet")
            with storage_errors(folder):
                counts.write_parquet(folder / names[-1], compression="lz4", row_group_size=1 << 16)
            counted += int(counts["rows"].sum())
            problems += counts.height
            for benchmark, has in _graded_benchmarks(counts, columns.removesuffix("+answer")):
                outcomes.setdefault((benchmark, columns, has), _file_of(chunk, benchmark))
    rejects = tuple(_rejects(files)) if read > counted else ()
    if sum(rows for *_, rows in rejects) < read - counted:
        raise UnreadableError(f"{counted:,} of {read:,} rows were counted; the others have no reason to be rejected")
    return Partial(
        name=task.name,
        files=task.shard.files,
        method=max(methods) if files else "query",
        read=read,
        rejected=read - counted,
        rejects=rejects,
        quarantine=tuple(quarantine),
        outcomes=tuple((*what, path) for what, path in sorted(outcomes.items())),
        answers_ignored=any(file.canonical.answers == "ignored" for file in files),
        chunks=tuple(names),
        problems=problems,
    )


def _graded_benchmarks(counts: pl.DataFrame, columns: str) -> set[tuple[str, str]]:
    """Return the benchmarks with what their rows have: passed, score, both or nothing; files have these columns."""
    if columns != "passed+score":
        return {(name, columns) for name in counts["benchmark"].unique()}
    rows = counts.select("benchmark", "outcome").explode("outcome").unique()
    return {(name, _HAS.get(outcome, "passed")) for name, outcome in rows.iter_rows()}


def _shape(file: LakeFile) -> tuple[str, list[str]]:
    """Return the outcomes of a file and the sorts of its carried values."""
    folder, columns = pl.String(), file.canonical
    kinds = (
        pl.Null() if s == Source(None) else file.schema.get(s.column or "", folder) for s in columns.carried.values()
    )
    return columns.outcomes, [sort_of(kind) for kind in kinds]


def _file_of(chunk: Sequence[RowGroups], benchmark: str) -> str:
    """Name a file of a benchmark; where benchmarks are a column, one that may have it."""
    for part in chunk:
        (source, *_) = part.file.canonical.keys["benchmark"]
        if source.column is not None or source.value == benchmark:
            return part.file.file.path
    return chunk[0].file.file.path


def unfit(shard: Shard, file: File, settings: Settings) -> UnreadableError | None:
    """Why a file cannot be counted, as far as its footer tells; None if it can."""
    try:
        open_file(Task(shard, settings), file, 0, {}, strict=True)
    except UnreadableError as reason:
        return reason
    return None


def open_file(task: Task, file: File, number: int, schemas: dict[Any, Schema], strict: bool = False) -> LakeFile:
    """A file's footer and columns; a schema that was seen before is not worked out again."""
    path = os.path.join(task.shard.root, file.path)
    if file.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    try:
        metadata = parquet.footer(path)
        arrow = metadata.schema.to_arrow_schema()
        names = file.stored_names(arrow)
        arrow, hive = parquet.renamed(arrow, names), file.constant_columns(names)
        schema_bytes = arrow.serialize().to_pybytes()
        if schema_bytes not in schemas:
            schemas[schema_bytes] = _schema(arrow, task.settings.used)
    except parquet.DamagedError as error:
        raise UnreadableError(f"damaged: {error}") from None
    except UnicodeDecodeError:
        raise UnreadableError("damaged: the name of a column is not UTF-8") from None
    except UnicodeError as error:
        raise UnreadableError(str(error)) from None
    except BROKEN as error:
        _classify_error(error)
        raise UnreadableError(f"not a readable Parquet file: {first_line(error)[:200]}") from None
    columns = canonical(task.settings, schemas[schema_bytes], hive, strict)
    kinds = read_types(columns, schemas[schema_bytes])
    left_out = _left_out(file, path, metadata, hive, names, task.settings)
    return LakeFile(file, number, path, metadata, columns, kinds, left_out, names)


def _left_out(
    file: File,
    path: str,
    metadata: pq.FileMetaData,
    hive: Mapping[str, str | None],
    names: Mapping[str, str],
    settings: Settings,
) -> NDArray[np.int64]:
    """Return the rows that the table has deleted, or that are outside the window."""
    try:
        return np.union1d(file.deleted, rows_outside(path, metadata, hive, settings, names))
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        name, since = settings.window.column, settings.window.since
        raise UnreadableError(f"column {name} cannot be held against the window since {since}: {error}") from None


def newest(shard: Shard, file: File, column: str) -> Any:
    """Return the largest value of a column in a file; None if it has none, or cannot be read."""
    path = os.path.join(shard.root, file.path)
    try:
        metadata = parquet.footer(path)
        names = file.stored_names(metadata.schema.to_arrow_schema())
        return newest_value(path, metadata, file.constant_columns(names), names.get(column, column))
    except BROKEN as error:
        _classify_error(error)
        return None


def _schema(arrow: pa.Schema, used: Container[str]) -> Schema:
    """The columns as Polars knows them; those that are not read may be of any type."""
    doubled = [name for name in arrow.names if arrow.names.count(name) > 1 and name in used]
    if doubled:
        raise parquet.DamagedError(f"column {doubled[0]} is there more than once")
    return {field.name: _kind(field) if field.name in used else pl.Null() for field in arrow}


def _kind(field: pa.Field[Any]) -> pl.DataType:
    if not pa.types.is_decimal256(field.type):  # Polars would panic
        with suppress(*BROKEN):
            (column,) = parquet.stored(pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], [field.name])).columns
            return to_polars(column).dtype
    raise parquet.DamagedError(f"column {field.name} is {field.type}, which cannot be counted")


def _classify_error(error: BaseException) -> None:
    """What is wrong with the machine is not wrong with a file.

    Polars panics when it can open nothing or start no thread, and from then on at every call.
    """
    trouble = parquet.machine_trouble(error)
    if isinstance(error, pl.exceptions.PanicException) and not _polars_works():
        trouble = StorageError(
            f"Polars cannot work here: {first_line(error)[:200]}; nothing was published", hint="run again"
        )
    if trouble is not None:
        raise trouble from error


def _polars_works() -> bool:
    try:
        return pl.LazyFrame({"a": [1, 1]}).group_by("a").len().collect().height == 1
    except BROKEN:
        return False


def _find_broken_files(files: list[LakeFile]) -> tuple[list[LakeFile], list[tuple[str, str]]]:
    """Read files one at a time to their ends: those that can be counted, and the others with the reason."""
    good, broken = [], []
    for file in files:
        try:
            for groups in parquet.units(file.metadata):
                errors: list[BaseException] = []
                part = RowGroups(file, groups)
                query = scan_verified(part, errors).select(**attempt_columns(file.canonical, file.schema))
                try:
                    query.select(pl.len(), pl.all().count()).collect(engine="streaming")
                except BROKEN as error:
                    raise errors[0] if errors else error from None
            good.append(file)
        except parquet.DamagedError as error:
            broken.append((file.file.path, f"damaged: {error}"))
        except BROKEN as error:
            _classify_error(error)
            broken.append((file.file.path, _where(file) or f"cannot be read to its end: {first_line(error)[:200]}"))
    return good, broken


def _where(file: LakeFile) -> str | None:
    """Which column of a broken file cannot be read to its end, and why; None if each of them can."""
    for name in file.canonical.columns:
        for groups in parquet.units(file.metadata):
            try:
                for batch in parquet.batches(file.path, file.metadata, groups, [name], file.names):
                    try:
                        batch.validate(full=True)
                    except pa.ArrowInvalid:
                        return f"column {name}, row group {groups[0]}: holds bytes that are not UTF-8"
            except BROKEN as error:
                checksum = "CRC checksum" in str(error)
                why = (
                    "a page does not match its checksum"
                    if checksum
                    else f"cannot be read to its end: {first_line(error)[:200]}"
                )
                return f"{'damaged: ' * checksum}column {name}, row group {groups[0]}: {why}"
    return None


def _rejects(files: Sequence[LakeFile]) -> Iterator[tuple[str, str, int]]:
    """Which files hold the rejected rows, and why; a second read, only when there are any."""
    for file in files:
        reasons = rejection_reasons(file.canonical, file.schema)
        flags = {reason: flag.fill_null(value=False) for reason, flag in reasons.items()}
        parts = [RowGroups(file, groups) for groups in parquet.units(file.metadata)]
        sums = [
            scan_verified(part, []).with_columns(**flags).select(pl.col(*flags).sum()).collect() for part in parts
        ]
        for reason in reasons:
            rows = sum(int(each[reason].item()) for each in sums)
            if rows and reason == INVALID:
                yield file.file.path, f"{reason} ({_examples(file, parts, flags[reason])})", rows
            elif rows:
                yield file.file.path, reason, rows


def _examples(file: LakeFile, parts: Sequence[RowGroups], is_invalid: pl.Expr) -> str:
    """Name the columns of outcomes and up to three values that are not valid."""
    names = list(dict.fromkeys(file.canonical.kind.meta.root_names()))
    invalid = [scan_verified(part, []).filter(is_invalid).select(names).unique().head(3).collect() for part in parts]
    rows = pl.concat(invalid).unique().sort(names).head(3)
    return "; ".join(f"{name} = {', '.join(str(value) for value in rows[name])}" for name in names)
