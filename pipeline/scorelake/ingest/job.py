"""Run `ingest`: find the sources, read them in parallel, check them against each other, write the lake.

Nothing is written into the lake until every source has been read; if one is refused, nothing is.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from scorelake.errors import DataError, StorageError, UsageError
from scorelake.ingest.checks import check_sources
from scorelake.ingest.contract import CHOICES, IngestOptions, LogFormat, LogSource, names_task
from scorelake.ingest.discovery import discover
from scorelake.ingest.formats import FORMATS
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedSource, Tick, stage
from scorelake.ingest.writer import TargetLake, write_files
from scorelake.storage import disk

VERSION = 2
"""Version of the adapters' results; a higher one reads every source again."""
PARALLEL_BYTES = 16 << 20
"""Size of all sources above which several processes are worth their start."""
Progress: TypeAlias = Callable[[str, int, int], None]
Task: TypeAlias = tuple[str, LogSource, IngestOptions, Path]


def ingest(
    paths: Sequence[str],
    lake: str,
    format_name: str = "auto",
    options: IngestOptions | None = None,
    skip_refused: bool = False,
    progress: Progress = lambda stage, done, of: None,
    workers: int | None = None,
) -> IngestReport:
    """Read all results below the paths into the lake.

    Parameters
    ----------
    paths : files and folders of results
    lake : folder to write to; created if it does not exist
    format_name : a format, or auto to recognise it by content
    skip_refused : write the other sources if some are refused
    progress : called with (stage, bytes done, bytes in total)
    workers : processes; by default one per core for large inputs

    Raises
    ------
    UsageError, DataError, LakeError, StorageError
        Refused sources are not raised but listed in the report.
    """
    options = options or IngestOptions()
    if any(disk.is_remote(location) for location in (lake, *paths)):
        hint = "ingest locally, then upload the lake"
        raise UsageError("ingest reads and writes local files only", where=lake, hint=hint)
    formats = ", ".join(sorted(FORMATS))
    if format_name not in ("auto", *FORMATS):
        raise UsageError(f"unknown format {format_name}", where="FORMAT", hint=f"one of auto, {formats}")
    target, report = TargetLake.open(Path(lake)), IngestReport()
    sources = discover(paths, FORMATS.get(format_name), bool(options.map), target.root, report)
    if not sources and not report.refused:
        what = f"no results in {len(report.ignored):,} files"
        raise DataError(what, where=", ".join(paths)[:200], hint=f"formats: {formats}")
    digest = hashlib.sha256(json.dumps([VERSION, asdict(options)], sort_keys=True).encode()).hexdigest()[:32]
    changed = _find_changed(sources, target, digest, report)
    with _temporary_folder(target.root) as folder:
        staged = _stage_all(changed, options, folder, report, progress, workers)
        accepted, outcome = check_sources(staged, target, report)
        report.total.notes += _unused_choices(options, staged) if len(changed) == len(sources) else []
        if report.refused and not (skip_refused and (accepted or report.sources)):
            report.status = "refused"
        elif accepted:
            _write(accepted, outcome, target, digest, folder, report)
        else:
            report.status = "unchanged"
    return report


def _find_changed(
    sources: list[tuple[LogFormat, LogSource]], target: TargetLake, digest: str, report: IngestReport
) -> list[tuple[LogFormat, LogSource]]:
    """Return the sources to read; those with the same content and options are reported as unchanged."""
    changed = []
    for format_, source in sources:
        stored = target.previous(source.path)
        if (stored.get("content"), stored.get("options")) == (source.digest, digest):
            report.sources.append(SourceReport(**stored["receipt"] | {"status": "unchanged"}))
        else:
            changed.append((format_, source))
    return changed


def _unused_choices(options: IngestOptions, staged: list[StagedSource]) -> list[str]:
    """List the choices for tasks that no source has, which may be misspelled."""
    tasks = {task for source in staged for _, task in source.run.choices}
    tasks |= {str(name) for source in staged for name in (source.run.benchmark, *source.benchmarks) if name}
    return [
        f"no task for --{option} {text}; tasks: {', '.join(sorted(tasks))}"
        for option in CHOICES
        for text in getattr(options, option)
        if "=" in text and not any(names_task(text, task) for task in tasks)
    ]


@contextmanager
def _temporary_folder(root: Path) -> Iterator[Path]:
    """Create a hidden folder next to the lake and remove it at the end, with those of crashed runs."""
    root.parent.mkdir(parents=True, exist_ok=True)
    for old in root.parent.glob(f".{root.name}.*-*-*-*"):
        if disk.is_abandoned(old):
            disk.remove(old)
    folder = disk.temp_path(root)
    folder.mkdir()
    try:
        yield folder
    finally:
        disk.remove(folder)


def _stage_all(
    inputs: Sequence[tuple[LogFormat, LogSource]],
    options: IngestOptions,
    folder: Path,
    report: IngestReport,
    progress: Progress,
    workers: int | None,
) -> list[StagedSource]:
    """Read the sources in this process, or in several if there is enough to read. Results keep their order."""
    sizes = [sum(path.stat().st_size for path in source.files) for _, source in inputs]
    tasks: list[Task] = [(item.name, source, options, folder / str(i)) for i, (item, source) in enumerate(inputs)]
    n_workers = workers or (multiprocessing.cpu_count() if sum(sizes) > PARALLEL_BYTES else 1)
    results: dict[int, StagedSource | DataError] = {}

    def add(i: int, result: StagedSource | DataError) -> None:
        results[i] = result
        progress("reading", sum(sizes[j] for j in results), sum(sizes))

    if min(n_workers, len(tasks)) > 1:
        _run_parallel(tasks, n_workers, add)
    else:
        for i, task in enumerate(tasks):

            def tick(source: LogSource = task[1], done: int = sum(sizes[:i])) -> None:
                progress("reading", done + source.position(), sum(sizes))

            add(i, _run_task(task, tick))
    in_order = [results[i] for i in range(len(tasks))]
    report.refused += [result for result in in_order if isinstance(result, DataError)]
    return [result for result in in_order if isinstance(result, StagedSource)]


def _run_parallel(tasks: Sequence[Task], workers: int, add: Callable[[int, StagedSource | DataError], None]) -> None:
    spawn = multiprocessing.get_context("spawn")  # threads of Polars and Arrow do not survive a fork
    ignore_interrupt = (signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with ProcessPoolExecutor(min(workers, len(tasks)), spawn, *ignore_interrupt) as pool:
        try:
            futures = {pool.submit(_run_task, task): i for i, task in enumerate(tasks)}
            for future in as_completed(futures):
                add(futures[future], future.result())
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            if isinstance(error, BrokenExecutor):
                raise StorageError("a worker process died", hint="free memory, then run again") from None
            raise


def _run_task(task: Task, tick: Tick = lambda: None) -> StagedSource | DataError:
    name, source, options, folder = task
    try:
        return stage(FORMATS[name], source, options, folder, tick)
    except DataError as error:
        # A copy has no traceback, whose frames would keep the file open.
        return DataError(error.what, where=error.where, hint=error.hint)


def _write(
    sources: list[StagedSource], outcome: str, target: TargetLake, digest: str, folder: Path, report: IngestReport
) -> None:
    files: dict[str, Path] = {}
    stored = {}
    for i, staged in enumerate(sources):
        written = write_files(staged, outcome, digest, folder / f"out-{i}")
        source_report = report_source(staged, outcome, list(written))
        if set(written) <= set(files):
            source_report.notes.append("has the same attempts as another file of this run")
        files |= written
        report.sources.append(source_report)
        # "receipt" is the key that earlier versions wrote; it lets a new version replace their files.
        receipt = {"content": staged.source.digest, "options": digest, "receipt": asdict(source_report)}
        stored[staged.source.path] = receipt
    has_answers = all(staged.has_answers for staged in sources)
    carried = [name for name in sources[0].carried if all(name in staged.carried for staged in sources)]
    target.commit(files, stored, outcome, has_answers, carried)
