"""Run `ingest`: find the sources, read them in parallel, check them against each other, write the lake.

Nothing is written into the lake until every source has been read; if one is refused, nothing is.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from scorelake.errors import DataError, StorageError, UsageError
from scorelake.ingest.checks import check_sources
from scorelake.ingest.contract import CHOICES, IngestOptions, LogFormat, LogSource, names_task
from scorelake.ingest.discovery import discover
from scorelake.ingest.formats import FORMATS
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedSource, Tick, stage
from scorelake.ingest.writer import open_lake, path_key, source_key, write_files
from scorelake.storage import disk

VERSION = 3
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
    _check_arguments(paths, lake, format_name)
    report = IngestReport()
    with open_lake(Path(lake)) as (target, folder):
        sources = discover(paths, FORMATS.get(format_name), bool(options.map), target.root, report)
        if not sources and not report.refused:
            what = f"no results in {len(report.ignored):,} files"
            raise DataError(what, where=", ".join(paths)[:200], hint=f"formats: {', '.join(sorted(FORMATS))}")
        digest = hashlib.sha256(json.dumps([VERSION, asdict(options)], sort_keys=True).encode()).hexdigest()[:32]
        records = {source_key(*one): target.unchanged(*one, digest) for one in sources}
        read = partial(_stage_all, options=options, report=report, progress=progress, workers=workers)
        staged = read([one for one in sources if records[source_key(*one)] is None], folder=folder / "changed")
        # What has not changed is read again only where new attempts may contradict it, or be those of a retry.
        related = [one for one in sources if _is_related(records[source_key(*one)], staged)]
        staged += read(related, folder=folder / "related")
        records |= dict.fromkeys(source_key(*one) for one in related)
        others = _retain(target.sources, sources, records, staged, report)
        accepted, outcome = check_sources(staged, others, report)
        report.total.notes += _unused_choices(options, staged) if len(staged) == len(sources) else []
        if report.refused and not (skip_refused and (accepted or report.sources)):
            report.status = "refused"
        else:
            files, written = _write(accepted, outcome, digest, folder, report)
            report.status = "written" if target.commit(files, others | written) else "unchanged"
    return report


def _check_arguments(paths: Sequence[str], lake: str, format_name: str) -> None:
    if any(disk.is_remote(location) for location in (lake, *paths)):
        raise UsageError("ingest reads and writes local files only", where=lake, hint="ingest locally, then upload")
    if format_name not in ("auto", *FORMATS):
        raise UsageError(
            f"unknown format {format_name}", where="FORMAT", hint=f"one of auto, {', '.join(sorted(FORMATS))}"
        )


def _is_related(record: dict[str, Any] | None, staged: list[StagedSource]) -> bool:
    """Check whether a source in the lake has a model and a benchmark in common with those that were read."""
    if record is None:
        return False
    model, benchmarks = record["report"]["model"], set(record["report"]["benchmarks"])
    return any(
        benchmarks & {name or source.run.benchmark for name in source.benchmarks}
        and (model == source.run.model or None in (model, source.run.model))
        for source in staged
    )


def _retain(
    old: dict[str, dict[str, Any]],
    sources: list[tuple[LogFormat, LogSource]],
    records: dict[str, dict[str, Any] | None],
    staged: list[StagedSource],
    report: IngestReport,
) -> dict[str, dict[str, Any]]:
    """Return the records of the lake that stay: unchanged sources, and those of other paths that nothing replaces.

    A log that was moved is recognised by its content; if it was changed as well, by the id of its run.
    """
    out = {key: record for key, record in records.items() if record is not None}
    report.sources += [SourceReport(**record["report"] | {"status": "unchanged"}) for record in out.values()]
    seen = {path_key(source.path) for _, source in sources}
    seen |= {path_key(Path(str(error.where))) for error in report.refused}
    out |= {key: record for key, record in old.items() if key.partition("-")[0] not in seen}
    for source in staged:
        for key, record in old.items():
            is_same_run = source.run_key == record["run"] != "" and record["precedence"] <= source.run.precedence
            if (
                key not in records
                and (is_same_run or source.source.digest == record["content"])
                and out.pop(key, None)
            ):
                source.run.notes.append(f"replaces the attempts read from {record['report']['source']}: the same run")
    return out


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
    refused = {str(result): result for result in in_order if isinstance(result, DataError)}
    report.refused += refused.values()  # a broken file that several sources share is named once
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
    sources: list[StagedSource], outcome: str, digest: str, folder: Path, report: IngestReport
) -> tuple[dict[str, Path], dict[str, dict[str, Any]]]:
    """Write the files of all sources to the folder; return them by name, and the records of the sources."""
    files: dict[str, Path] = {}
    records = {}
    for i, staged in enumerate(sources):
        written = write_files(staged, outcome, digest, folder / f"out-{i}")
        source_report = report_source(staged, outcome, list(written))
        if set(written) <= set(files):
            source_report.notes.append("has the same attempts as another file of this run")
        files |= written
        report.sources.append(source_report)
        records[source_key(FORMATS[staged.format], staged.source)] = {
            "content": staged.source.digest,
            "options": digest,
            "run": staged.run_key,
            "precedence": staged.run.precedence,
            "outcome": outcome,
            "has_answers": staged.has_answers,
            "carried": list(staged.carried),
            "files": source_report.files,
            "report": asdict(source_report),
        }
    return files, records
