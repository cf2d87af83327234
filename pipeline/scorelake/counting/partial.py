"""One shard -> one partial: open its files, count them the way that fits, set aside those that cannot be read.

Files lie on a disk here, and counts go into a folder; who brings files from elsewhere, and where the folder ends up,
is not this stage's to know.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from scorelake.counting.columns import Schema, canonical
from scorelake.counting.misfits import UnreadableError
from scorelake.counting.plain import plain, refused
from scorelake.counting.reading import Source
from scorelake.counting.shape import Opened, Shape, Tallied, batches, shape_of
from scorelake.counting.values import series
from scorelake.counts import OUTCOMES, Counts
from scorelake.errors import DataError, ScorelakeError, StorageError
from scorelake.partials import Partial, Piece, Writer
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import storage_errors
from scorelake.storage.files import File, RenamedError, Shard

FORMAT = 5
"""Raise when partials of an older version must not be added to new ones."""
LEAST = 1 << 17
"""Rows from which on the tally counts. It takes 0.1 s to load and is faster from about 100,000 rows on; but the first
time on a machine it takes four seconds to compile, which a small lake should not wait for. The plain way takes 1.5 s
for a million rows and spells every name out: 100,000 rows with names of 35,000 letters take 3.5 GB of memory."""
BROKEN = (
    *(pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError, UnicodeError),
    *(parquet.DamagedError, UnreadableError),
)
"""What a broken file can make a reader do. Anything else is a defect of ours, not to be told as a broken file."""


@dataclass(frozen=True)
class Task:
    """Count one shard into a folder. Small, frozen and picklable: the same here and on a cluster."""

    shard: Shard
    settings: Settings
    least: int = LEAST
    """Rows from which on the tally counts."""

    @property
    def name(self) -> str:
        return self.shard.fingerprint(settings=identity(self.settings))


def identity(settings: Settings) -> dict[str, Any]:
    """What partial counts depend on besides the files."""
    return {"format": FORMAT, "counting": settings.counting()}


def count(task: Task, folder: Path) -> Partial:
    """Count a shard into a folder that is there and empty."""
    good: list[Opened] = []
    quarantine: list[tuple[str, str]] = []
    schemas: dict[Any, Schema] = {}
    for number, file in enumerate(task.shard.files):
        try:
            opened = _open(task, file, number, schemas)
            _fits(opened, [*good[:1], opened][0], task.settings)
            good.append(opened)
        except UnreadableError as reason:
            quarantine.append((file.path, str(reason)))
    return _count(task, good, quarantine, folder)


def _count(task: Task, files: list[Opened], quarantine: list[tuple[str, str]], folder: Path) -> Partial:
    """Count the files together; if one proves to be broken inside, the others."""
    try:
        return _counted(task, files, quarantine, folder)
    except ScorelakeError:
        raise
    except BROKEN as error:
        _blame(error)
        good, broken = _sieve(files, task)
        if not broken:
            paths = ", ".join(opened.file.path for opened in good[:3])
            raise DataError(f"the files cannot be counted together: {_line(error)}", where=paths) from error
        for left in folder.iterdir():
            left.unlink()
        return _count(task, good, [*quarantine, *broken], folder)


def _counted(task: Task, files: list[Opened], quarantine: list[tuple[str, str]], folder: Path) -> Partial:
    settings, expected = task.settings, sum(opened.rows for opened in files)
    shape = shape_of(files, settings.duplicates.rule in ("first", "last"))
    told, pieces, sums = Tallied(), list[Piece](), [0, 0, 0]
    way = _way(files, task.least)
    writer = Writer(folder)
    with ThreadPoolExecutor(1) as aside:  # written while the next ones are made
        waiting: deque[Future[Piece]] = deque()
        for counts in _ways(way, files, shape, settings, told):
            for j, name in enumerate(OUTCOMES):
                sums[j] += int(counts.problems[name].sum())
            waiting.append(aside.submit(_write, writer, counts))
            if len(waiting) > 1:
                pieces.append(waiting.popleft().result())
        pieces += [each.result() for each in waiting]
    if told.read != expected:
        raise UnreadableError(f"{told.read:,} rows were read where the footers say {expected:,}")
    if told.read != sum(sums) + told.bad or sum(sums) != sum(piece.rows for piece in pieces):
        raise AssertionError(f"row accounting: {told.read} read, {sums} counted, {told.bad} bad, {pieces}")
    first = files[0].canonical if files else None
    return Partial(
        name=task.name,
        files=task.shard.files,
        way=f"{way}: {expected:,} rows, {_why(way, task.least)}",
        read=told.read,
        graded=sums[0] + sums[1],
        ungraded=sums[2],
        rejected=told.bad,
        rejects=tuple(_rejects(files)) if told.bad else (),
        quarantine=tuple(quarantine),
        binary=first is not None and first.binary,
        rewards=first is not None and first.score is not None,
        answers=first.answers if first is not None else "none",
        carried={name: sort for opened in files for name, sort in opened.canonical.sorts.items()},
        pieces=tuple(pieces),
    )


def _write(writer: Writer, counts: Counts) -> Piece:
    with storage_errors(writer.home):
        return writer.write(counts)


def _way(files: Sequence[Opened], least: int) -> str:
    return "tally" if sum(opened.rows for opened in files) >= least else "plain"


def _why(way: str, least: int) -> str:
    return f"{least:,} or more" if way == "tally" else f"fewer than {least:,}"


def _ways(way: str, files: list[Opened], shape: Shape, settings: Settings, told: Tallied) -> Iterator[Counts]:
    if way == "plain" or not files:
        return plain(files, shape, told)
    source, most = Source(files), int(settings.run.memory * 2**30)
    threads = settings.run.threads or pl.thread_pool_size()
    tally = source.meanwhile(_compiled, threads, most // 16)
    return tally(source, shape, settings.protocol.columns, settings.carried, told, most=most, threads=threads)


def _compiled() -> Callable[..., Iterator[Counts]]:
    """The tally; compiled code is loaded only for shards that are worth it."""
    from scorelake.counting.shard import ready, tally  # noqa: PLC0415

    ready()
    return tally


def unfit(shard: Shard, file: File, settings: Settings) -> UnreadableError | None:
    """Why a file cannot be counted, as far as its footer tells; None if it can."""
    try:
        _open(Task(shard, settings), file, 0, {})
    except UnreadableError as reason:
        return reason
    return None


def _open(task: Task, file: File, number: int, schemas: dict[Any, Schema]) -> Opened:
    """A file's footer and columns; a schema that was seen before is not worked out again."""
    path = os.path.join(task.shard.root, file.path)
    if file.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    try:
        told = parquet.footer(path)
        arrow = told.schema.to_arrow_schema()
        hive = file.constant_columns(parquet.field_ids(arrow), task.settings.used)
        known = arrow.serialize().to_pybytes()
        if known not in schemas:
            schemas[known] = _schema(arrow, task.settings.used)
    except parquet.DamagedError as error:
        raise UnreadableError(f"damaged: {error}") from None
    except UnicodeDecodeError:
        raise UnreadableError("damaged: the name of a column is not UTF-8") from None
    except (UnicodeError, RenamedError) as error:
        raise UnreadableError(str(error)) from None
    except BROKEN as error:
        _blame(error)
        raise UnreadableError(f"not a readable Parquet file: {_line(error)}") from None
    return Opened(file, number, path, told, canonical(task.settings, schemas[known], hive))


def _schema(arrow: pa.Schema, used: Container[str]) -> Schema:
    """The columns as Polars knows them; those that are not read may be of any type."""
    doubled = [name for name in arrow.names if arrow.names.count(name) > 1 and name in used]
    if doubled:
        raise parquet.DamagedError(f"column {doubled[0]} is there more than once")
    return {field.name: _kind(field) if field.name in used else pl.Null() for field in arrow}


def _kind(field: pa.Field[Any]) -> pl.DataType:
    if pa.types.is_decimal256(field.type):  # Polars would panic
        raise parquet.DamagedError(f"column {field.name} is {field.type}, which cannot be counted")
    try:
        (column,) = parquet.stored(pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], [field.name])).columns
        return series(column).dtype
    except BROKEN:
        raise parquet.DamagedError(f"column {field.name} is {field.type}, which cannot be counted") from None


def _fits(opened: Opened, first: Opened, settings: Settings) -> None:
    """Files of one lake have the same outcome columns, or their numbers would not mean the same."""
    mine, other, columns = opened.canonical, first.canonical, settings.columns
    for name, here, there in (
        (columns.passed, mine.binary, other.binary),
        (columns.score, mine.score is not None, other.score is not None),
        (columns.answer, mine.answer is not None, other.answer is not None),
    ):
        if here != there:
            words = ("no " * (not each) + f"column {name}" for each in (here, there))
            raise UnreadableError(f"{next(words)}, while {first.file.path} has {next(words)}")
    for name in mine.sorts.keys() & other.sorts.keys():
        if mine.sorts[name] != other.sorts[name]:
            raise UnreadableError(
                f"column {name} holds {mine.sorts[name]}, while that of {first.file.path} holds {other.sorts[name]}"
            )


def _blame(error: BaseException) -> None:
    """What is wrong with the machine is not wrong with a file.

    Polars panics when it can open nothing or start no thread, and from then on at every call.
    """
    trouble = parquet.machine_trouble(error)
    if isinstance(error, pl.exceptions.PanicException) and not _polars_works():
        trouble = StorageError(f"Polars cannot work here: {_line(error)}; nothing was published", hint="run again")
    if trouble is not None:
        raise trouble from error


def _polars_works() -> bool:
    try:
        return pl.LazyFrame({"a": [1, 1]}).group_by("a").len().collect().height == 1
    except BROKEN:
        return False


def _sieve(files: list[Opened], task: Task) -> tuple[list[Opened], list[tuple[str, str]]]:
    """Read files one at a time to their ends: those that can be counted, and the others with the reason."""
    good, broken = [], []
    for opened in files:
        try:
            shape, told = shape_of([opened], ordered=False), Tallied()
            for _ in _ways(_way(files, task.least), [opened], shape, task.settings, told):
                pass
            if told.read != opened.rows:
                raise parquet.DamagedError(f"{told.read:,} rows were read where the footer says {opened.rows:,}")
            good.append(opened)
        except parquet.DamagedError as error:
            broken.append((opened.file.path, f"damaged: {error}"))
        except BROKEN as error:
            _blame(error)
            broken.append((opened.file.path, _where(opened) or f"cannot be read to its end: {_line(error)}"))
    return good, broken


def _where(opened: Opened) -> str | None:
    """Which column of a broken file cannot be read to its end, and why; None if each of them can."""
    for name in opened.canonical.columns:
        for groups in parquet.units(opened.told):
            try:
                for batch in parquet.batches(opened.path, opened.told, groups, [name]):
                    if not _valid(batch):
                        return f"column {name}, row group {groups[0]}: holds bytes that are not UTF-8"
            except BROKEN as error:
                checksum = "CRC checksum" in str(error)
                why = (
                    "a page does not match its checksum" if checksum else f"cannot be read to its end: {_line(error)}"
                )
                return f"{'damaged: ' * checksum}column {name}, row group {groups[0]}: {why}"
    return None


def _valid(batch: pa.RecordBatch) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rejects(files: Sequence[Opened]) -> Iterator[tuple[str, str, int]]:
    """Which files hold the rejected rows, and why; a second look, only when there are any."""
    for opened in files:
        reasons: dict[str, int] = {}
        for groups in parquet.units(opened.told):
            for _, batch in batches(opened, groups):
                for reason, rows in refused(batch, opened.canonical).items():
                    reasons[reason] = reasons.get(reason, 0) + rows
        yield from ((opened.file.path, reason, rows) for reason, rows in reasons.items() if rows)


def _line(error: BaseException) -> str:
    """The first line of a library's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
