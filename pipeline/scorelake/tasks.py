"""The tasks of engines: count shards, merge buckets. A task may be repeated: its result has a name of its own.

Files are downloaded from object storage. Results are written to a temporary folder and renamed, or uploaded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from scorelake.counting import partials
from scorelake.counting import shard as counting
from scorelake.counting.merge import Bucket, Merged
from scorelake.counting.merge import merge as merge_bucket
from scorelake.counting.partials import Partial
from scorelake.counting.schema_check import refusal
from scorelake.engines import Engine, local
from scorelake.errors import DataError, EndedError, ScorelakeError, StorageError
from scorelake.guard import AFTER_A_CRASH, CRASHES, crash_reason, run_in_subprocess
from scorelake.lake.download import local_copy
from scorelake.scoring.survey import Survey, survey_bucket
from scorelake.settings import Settings
from scorelake.storage.disk import checksum, is_remote, remove, replace_folder, storage_errors, temp_path
from scorelake.storage.files import File, Shard, stat
from scorelake.text import plural
from scorelake.threads import parallel_map

if TYPE_CHECKING:
    from scorelake.storage.mirror import Mirror

CRASHES_READER = "none: reading it ends the process"
"""The method of a partial whose file crashes every reader."""


@dataclass(frozen=True)
class Count(counting.Task):
    """Count one shard into a folder of partials."""

    folder: str
    again: bool = False  # count even if that has been done
    mirror: Mirror | None = None  # of an output in object storage, to which the partial is sent

    def __str__(self) -> str:
        first, *more = self.shard.files
        return first.path + (f" and {plural(len(more), 'more file')}" if more else "")


@dataclass(frozen=True)
class Merge:
    bucket: Bucket
    settings: Settings
    mirror: Mirror | None = None  # set where other machines wrote the partials, or will read the result

    def __str__(self) -> str:
        return f"bucket {Path(self.bucket.path).stem}"


def refuse_misfits(root: str, files: Sequence[File], settings: Settings, where: str, *, every_file: bool) -> None:
    """Raise if the lake does not fit its settings, before anything is counted.

    Unless every file must fit, it is enough that the first one does.
    """

    def check(files: Sequence[File], every_file: bool) -> ScorelakeError | None:
        shard = Shard(root, tuple(files))
        with (
            TemporaryDirectory() as folder,
            local_copy(shard, Path(folder) / "lake", settings, lambda _: False) as here,
        ):
            reasons = parallel_map(lambda file: (file.name, counting.unfit(here, file, settings)), here.files)
            return refusal(reasons, settings, where, every_file)

    if every_file or check(files[:1], every_file=True) is not None:
        error = check(files, every_file)
        if error is not None:
            raise error


def count_all(tasks: Sequence[Count]) -> list[Partial]:
    """Count small shards in parallel; together they need the memory of a large one."""
    if len(tasks) == 1 or any(task.mirror or is_remote(task.shard.root) for task in tasks):
        return [count(task) for task in tasks]  # one by one: requests to a store must stay interruptible
    return parallel_map(count, tasks, pl.thread_pool_size())


def count_apart(tasks: Sequence[Count]) -> list[Partial]:
    """Count after a crash: in a process of its own. If that crashes too, try halves of the files, down to single
    files; one that ends its process is quarantined."""
    try:
        return run_in_subprocess(count_all, tasks)
    except EndedError as error:
        if error.number not in CRASHES:
            raise
        crash = error
    single = [replace(task, shard=Shard(task.shard.root, (file,))) for task in tasks for file in task.shard.files]
    if len(single) == 1:
        return [quarantine_file(single[0], crash_reason(crash.number))]
    middle = len(single) // 2
    partials = count_apart(single[:middle]) + count_apart(single[middle:])
    if not any(partial.method == CRASHES_READER for partial in partials):
        raise crash
    return partials


setattr(count_all, AFTER_A_CRASH, count_apart)


def count(task: Count) -> Partial:
    """Count one shard, unless that has been done. Several processes may count the same shard at once."""
    mirror, is_sent = task.mirror, False
    if mirror is not None:
        task = replace(task, folder=mirror.here(task.folder))
        with storage_errors(task.folder):
            Path(task.folder).mkdir(parents=True, exist_ok=True)
            is_sent = not task.again and mirror.bring(f"partials/{task.name}")
    home = Path(task.folder) / task.name
    partial = None if task.again else finished(home)
    is_sent = is_sent and partial is not None
    if partial is None or (partial.answers_ignored and task.settings.answers):
        partial = _count(task, home)
    if mirror is not None and not is_sent:
        mirror.send(home)
    return partial


def _count(task: Count, home: Path) -> Partial:
    temporary = temp_path(home)
    try:
        with storage_errors(temporary):
            home.parent.mkdir(exist_ok=True)  # not its parents: without those, this machine does not see the output
            (temporary / "counts").mkdir(parents=True)
        with local_copy(task.shard, temporary / "lake", task.settings) as shard:
            partial = counting.count(replace(task, shard=shard), temporary / "counts")
        for file in () if is_remote(task.shard.root) else task.shard.files:  # stores return the listed version only
            is_same = False
            with suppress(FileNotFoundError):
                is_same = stat(Path(task.shard.root) / file.path, file.path, file.table) == file
            if not is_same:
                what = "the file changed or vanished while the lake was read"
                raise DataError(what, where=file.path, hint="run again")
        with storage_errors(home):
            partial = replace(partial, checksum=checksum(*partial.contents(temporary / "counts")))
            partials.describe(temporary / "counts", partial, counting.identity(task.settings))
            replace_folder(temporary / "counts", home, flushed=False)  # the checksum detects what a power cut spoils
    finally:
        remove(temporary)
    return partial


def finished(home: Path) -> Partial | None:
    """Return the partial in a folder; None if it is missing, damaged, or being replaced."""
    partial = partials.described(home)
    return partial if partial is not None and partials.is_sound(home, partial) else None


def is_sound(home: str) -> bool:
    """Return whether a partial is as it was written. A task: its bytes are read where it runs."""
    return finished(Path(home)) is not None


def matching_partials(folder: Path, files: Sequence[File], settings: Settings) -> list[Partial]:
    """Return partials of the same settings whose files are unchanged, by their descriptions alone."""
    present, identity = set(files), counting.identity(settings)
    homes = sorted(path.parent for path in folder.glob(f"[!.]*/{partials.DESCRIPTION}"))
    return [
        partial
        for partial in (partials.described(home, identity) for home in homes)
        if partial is not None
        and present.issuperset(partial.files)
        and not (partial.answers_ignored and settings.answers)
    ]


def reusable(folder: Path, files: Sequence[File], settings: Settings, engine: Engine = local) -> list[Partial]:
    """Return matching partials that are undamaged and have no file in common."""
    candidates = matching_partials(folder, files, settings)
    sound = engine.map(is_sound, [str(folder / partial.name) for partial in candidates])
    covered, out = set[File](), []
    for partial, holds in zip(candidates, sound, strict=True):
        if holds and covered.isdisjoint(partial.files):
            covered.update(partial.files)
            out.append(partial)
    return out


def quarantine_file(task: Count, reason: str) -> Partial:
    """Quarantine the only file of a shard, since it crashes every reader: write an empty partial."""
    (file,) = task.shard.files
    quarantine = ((file.name, reason),)
    partial = Partial(task.name, (file,), CRASHES_READER, quarantine=quarantine, checksum=checksum())
    home = Path(task.folder if task.mirror is None else task.mirror.here(task.folder)) / partial.name
    temporary = temp_path(home)
    with storage_errors(home):
        temporary.mkdir(parents=True)
        partials.describe(temporary, partial, counting.identity(task.settings))
        replace_folder(temporary, home)
    if task.mirror is not None:
        task.mirror.send(home)
    return partial


def merge_all(tasks: Sequence[Merge]) -> list[tuple[Merged, Survey | None]]:
    """Merge small buckets in parallel; the survey is None for a bucket without problems."""
    if any(task.mirror for task in tasks):
        return [merge(task) for task in tasks]
    return parallel_map(merge, tasks, pl.thread_pool_size())


def merge(task: Merge) -> tuple[Merged, Survey | None]:
    """Merge one bucket, and survey the file that was written."""
    bucket, mirror = task.bucket, task.mirror
    if mirror is not None:
        bucket = replace(bucket, folder=mirror.here(bucket.folder), path=mirror.here(bucket.path))
        with storage_errors(bucket.path):
            Path(bucket.path).parent.mkdir(parents=True, exist_ok=True)
            if not mirror.bring(*(f"partials/{partial.name}" for partial in bucket.partials)):
                raise StorageError("partial counts are gone from the output", where=mirror.url, hint="run again")
    merged = merge_bucket(bucket)
    if not merged.problems:
        return merged, None
    if mirror is not None:
        mirror.send_file(Path(bucket.path))
    return merged, survey_bucket(Path(bucket.path), task.settings)


def wait_until_visible(paths: Sequence[Path], timeout_s: float = 60.0) -> None:
    """Wait for the files of workers: a network file system may list them a moment later."""
    deadline, homes = time.monotonic() + timeout_s, {path.parent for path in paths}
    while missing := set(paths).difference(*(home.iterdir() for home in homes)):
        if time.monotonic() > deadline:
            hint = "the output must lie on storage that every machine sees"
            raise StorageError("was written by a worker, but is not there", where=str(min(missing)), hint=hint)
        time.sleep(0.5)
