"""Run `ingest`: find the sources, read them in parallel, check them against each other, write the lake.

Nothing is written into the lake until every source has been read; if one is refused, nothing is.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from scorelake.errors import DataError, UsageError
from scorelake.guard import run_in_subprocess
from scorelake.ingest.archives import BYTES_PER_CHARACTER, CHUNK, MAX_RECORD
from scorelake.ingest.attempt_stats import AttemptStats, compute_stats
from scorelake.ingest.contract import CHOICES, MEASURES, IngestOptions, LogRun, names_task, refusal
from scorelake.ingest.discovery import discover
from scorelake.ingest.formats import FORMATS
from scorelake.ingest.ingest_report import IngestReport, SourceReport, report_source
from scorelake.ingest.staging import StagedRun, describe_conflict, stage
from scorelake.ingest.writer import open_lake, path_key, source_key, write_files
from scorelake.settings import Run
from scorelake.storage import disk
from scorelake.threads import batch_by_size, parallel_map

VERSION = 4
"""Version of the adapters' results; a higher one reads every source again."""
PARALLEL_BYTES = 64 << 20
"""Size of all sources above which several processes are worth their start."""
PROCESS_GB = 0.3
"""Memory of a process without its records."""
Progress: TypeAlias = Callable[[str, int, int], None]
Record: TypeAlias = dict[str, Any]
"""What the description of a lake holds of a source."""


def ingest(
    paths: Sequence[str],
    lake: str,
    format_name: str = "auto",
    options: IngestOptions | None = None,
    skip_refused: bool = False,
    progress: Progress = lambda stage, done, of: None,
    memory_gb: float | None = None,
    workers: int | None = None,
) -> IngestReport:
    """Read all results below the paths into the lake.

    Parameters
    ----------
    paths, lake : files and folders of results; folder to write to, created if it does not exist
    format_name : a format, or auto to recognise it by content
    skip_refused : write the other sources if some are refused
    progress : called with (stage, bytes done, bytes in total)
    memory_gb, workers : gigabytes, default half of the machine; processes, default one per core for large inputs

    Raises
    ------
    UsageError, DataError, LakeError, StorageError
        Refused sources are not raised but listed in the report.
    """
    options = options or IngestOptions()
    if any(map(disk.is_remote, (lake, *paths))):
        raise UsageError("ingest reads and writes local files only", where=lake, hint="ingest locally, then upload")
    if format_name not in ("auto", *FORMATS):
        raise UsageError(f"unknown format {format_name}", where="FORMAT", hint=f"one of {', '.join(sorted(FORMATS))}")
    report = IngestReport()
    with open_lake(Path(lake)) as (target, folder):
        found = discover(paths, FORMATS.get(format_name), dict(options.map), target.root, report)
        runs = {source_key(run): replace(run, options=options) for run in found}
        digest = hashlib.sha256(json.dumps([VERSION, asdict(options)], sort_keys=True).encode()).hexdigest()[:32]
        records = {key: target.unchanged(key, run, digest) for key, run in runs.items()}
        read = partial(_stage_all, (Run(memory_gb=memory_gb).memory, workers), report, progress)
        staged = read(folder / "changed", [run for key, run in runs.items() if records[key] is None])
        related = _list_related(target.sources, records, staged)
        staged += read(folder / "related", [runs[key] for key in related])
        records |= dict.fromkeys(related)
        others = _retain(target.sources, runs.values(), records, staged, report)
        accepted, outcomes = check_sources(staged, others, report)
        report.total.notes += _unused_choices(options, staged) * (len(staged) == len(runs))
        if report.refused and not (skip_refused and (accepted or report.sources)):
            report.status = "refused"
        else:
            files, written = _write(accepted, outcomes, digest, folder, report)
            report.status = "written" if target.commit(files, others, written) else "unchanged"
    return report


def _list_related(
    old: Mapping[str, Record], records: Mapping[str, Record | None], staged: list[StagedRun]
) -> list[str]:
    """List unchanged sources to read again, since those that were read may contradict them, or retry them.

    Or since the values of their benchmark are no longer verdicts, or no longer rewards.
    """
    kinds = [source.kinds for source in staged] + [
        each["kinds"] for key, each in old.items() if records.get(key, each)
    ]
    outcomes, out = choose_outcomes(kinds), []
    for key, record in records.items():
        model, names = record and record["report"]["model"], record["outcomes"] if record else {}
        shared = [source for source in staged if names.keys() & source.kinds.keys()]
        is_shared = any(model == source.run.model or None in (model, source.run.model) for source in shared)
        if is_shared or any(outcomes[name] != outcome for name, outcome in names.items()):
            out.append(key)
    return out


def _retain(
    old: dict[str, Record],
    runs: Iterable[LogRun],
    records: dict[str, Record | None],
    staged: list[StagedRun],
    report: IngestReport,
) -> dict[str, Record]:
    """Return the records of the lake that stay: unchanged sources, and those of other paths that nothing replaces.

    A log that was moved is recognised by its content; if it was changed as well, by the id of its run.
    """
    out = {key: record for key, record in records.items() if record is not None}
    report.sources += [SourceReport(**record["report"] | {"status": "unchanged"}) for record in out.values()]
    seen = {path_key(run.path) for run in runs}
    seen |= {path_key(Path(str(error.where))) for error in report.refused}
    elsewhere = {key: record for key, record in old.items() if key.partition("-")[0] not in seen}
    out |= elsewhere
    for source in staged:
        for key, record in elsewhere.items():
            is_same_run = source.run_key == record["run"] != "" and record["precedence"] <= source.run.precedence
            if (is_same_run or source.run.digest == record["content"]) and out.pop(key, None):
                source.run.notes.append(f"replaces the attempts read from {record['report']['source']}: the same run")
    return out


def check_sources(
    staged: list[StagedRun], others: Mapping[str, Record], report: IngestReport
) -> tuple[list[StagedRun], dict[str, str]]:
    """Return the sources to write and the outcome of every benchmark; add the rest and the total to the report.

    `others` are records of sources that stay in the lake.
    """
    kept = []
    logs: list[tuple[float, str, object]]
    logs = [(each.run.precedence, each.run_key, each.run.path) for each in staged if each.run_key]
    logs += [(each["precedence"], each["run"], each["report"]["source"]) for each in others.values() if each["run"]]
    newest_logs = {run: (precedence, path) for precedence, run, path in sorted(logs, key=lambda log: log[0])}
    for source in staged:
        precedence, newest = newest_logs.get(source.run_key, (source.run.precedence, None))
        if precedence > source.run.precedence:
            source.run.notes.append(f"skipped: {newest} is a newer log of the same run")
            report.sources.append(report_source(source, {}, [], "superseded"))
        elif not source.stats.total("rows"):
            report.sources.append(report_source(source, {}, [], "empty"))
        else:
            kept.append(source)
    kept, stats = _without_conflicts(kept, report)
    # Where attempts stay in the lake, others of the benchmark have the same outcome.
    outcomes = choose_outcomes(source.kinds for source in kept)
    outcomes |= {name: outcome for record in others.values() for name, outcome in record["outcomes"].items()}
    accepted = _with_outcomes(kept, outcomes, report)
    if len(accepted) != len(kept):
        stats = compute_stats([(source.path, source.identity) for source in accepted])
    report.total = SourceReport(notes=_protocol_notes(accepted))
    report.total.set_counts(stats, {outcomes[name] for source in accepted for name in source.kinds})
    rewards = sorted(name for name, outcome in outcomes.items() if outcome == "score")
    if rewards and {*outcomes.values()} == {"passed", "score"}:
        report.total.notes.append(f"rewards, not verdicts: {', '.join(rewards)}; the other benchmarks have verdicts")
    return accepted, outcomes


def _without_conflicts(kept: list[StagedRun], report: IngestReport) -> tuple[list[StagedRun], AttemptStats]:
    """Refuse sources that contradict each other; return the others and the statistics of all."""
    stats = kept[0].stats if len(kept) == 1 else compute_stats([(source.path, source.identity) for source in kept])
    if not stats.conflicting_sources:
        return kept, stats
    reasons = dict.fromkeys(sorted(stats.conflicting_sources), "has verdicts that another file contradicts")
    for pair in reversed(stats.conflicts):
        for (i, row), (j, other_row) in (pair, reversed(pair)):
            reasons[i] = describe_conflict(kept[i], row, kept[j], other_row)
    report.refused += [refusal(what, kept[i].run.path, "ingest one of the two") for i, what in reasons.items()]
    return _without_conflicts([source for i, source in enumerate(kept) if i not in reasons], report)


def choose_outcomes(kinds: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Choose passed or score for every benchmark: score where there are rewards and no source has verdicts."""
    by_benchmark: dict[str, set[str]] = {}
    for benchmark, kind in (item for each in kinds for item in each.items()):
        by_benchmark.setdefault(benchmark, set()).add(kind)
    return {
        name: "score" if "score" in each and "passed" not in each else "passed" for name, each in by_benchmark.items()
    }


def _with_outcomes(kept: list[StagedRun], outcomes: Mapping[str, str], report: IngestReport) -> list[StagedRun]:
    """Refuse sources whose values are not what their benchmarks have."""
    accepted = []
    for source in kept:
        stats, where = source.stats, source.run.path
        wrong = [name for name, kind in source.kinds.items() if kind not in ("either", outcomes[name])]
        if not wrong:
            accepted.append(source)
        elif outcomes[wrong[0]] == "score":
            what = f"has verdicts, but the lake has rewards of {wrong[0]}"
            report.refused.append(refusal(what, where, "give another --lake"))
        else:
            counts = f"{stats.total('non_binary'):,} of {stats.total('graded'):,}"
            what = f"{counts} values are not 0 or 1 ({stats.extent})"
            hint = f"there are verdicts of {wrong[0]}: set the smallest reward that passes with --threshold, "
            hint += "or ingest all logs at once into a new lake"
            report.refused.append(refusal(what, where, hint))
    return accepted


def _protocol_notes(kept: list[StagedRun]) -> list[str]:
    """List the settings by which one model's attempts at one benchmark will not be pooled, and those that are."""
    groups: dict[tuple[Any, ...], list[StagedRun]] = {}
    for source in kept:
        groups.setdefault((source.run.model, source.run.benchmark, source.run.format), []).append(source)
    out = []
    for (model, benchmark, _), sources in groups.items():
        what = f"{model} on {benchmark}: {len(sources)} sources differ in"
        if differ := _differing([source.run.protocol for source in sources]):
            hint = f"--protocol-ignore {','.join(differ)} pools them"
            out.append(f"{what} {', '.join(differ)} and are not pooled; {hint}")
        if differ := _differing([source.run.provenance for source in sources]):
            hint = '[protocol] columns = ["provenance"] keeps them apart'
            out.append(f"{what} {', '.join(differ)} (provenance) and are pooled; {hint}")
    return out


def _differing(settings: list[dict[str, Any]]) -> list[str]:
    keys = sorted({key for each in settings for key in each})
    return [key for key in keys if len({json.dumps(each.get(key)) for each in settings}) > 1]


def _unused_choices(options: IngestOptions, staged: list[StagedRun]) -> list[str]:
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
    resources: tuple[float, int | None],
    report: IngestReport,
    progress: Progress,
    folder: Path,
    runs: Sequence[LogRun],
) -> list[StagedRun]:
    """Read the runs in this process, or in several if there is enough to read. Results keep their order."""
    memory, workers = resources
    sizes = [sum(path.stat().st_size for path in run.files) for run in runs]
    total, done = sum(sizes), 0
    n_workers = min(workers or (os.cpu_count() or 1 if total > PARALLEL_BYTES else 1), len(runs))
    n_workers = max(1, min(n_workers, int(memory / (2 * PROCESS_GB))))
    max_record = int((memory / n_workers - PROCESS_GB) * 2**30 / BYTES_PER_CHARACTER)
    for run in runs:
        run.reading.max_record = max(CHUNK, min(MAX_RECORD, max_record))

    def read(batch: tuple[int, ...]) -> list[StagedRun | DataError]:
        nonlocal done
        tasks = [(runs[i], folder / str(i)) for i in batch]
        tick: Callable[[int], None] = lambda position: progress("reading", done + position, total)  # noqa: E731
        results = run_in_subprocess(_read_all, tasks) if n_workers > 1 else [_read_one(*task, tick) for task in tasks]
        done += sum(sizes[i] for i in batch)
        tick(0)
        return results

    size = total / (2 * n_workers) if n_workers > 1 else 0  # a process takes 1 s of CPU to start
    batches = batch_by_size(range(len(runs)), sizes.__getitem__, size)
    results = list(chain.from_iterable(parallel_map(read, batches, n_workers)))
    seen = {error.where for error in report.refused}
    for run, error in zip(runs, results, strict=True):
        if isinstance(error, DataError):
            if not Path(str(error.where)).is_relative_to(run.path):
                report.ignored[str(run.path)] = f"needs {error.where}, which is refused"
            # A broken file that several runs share is named once.
            report.refused += [error] if error.where not in seen else []
            seen.add(error.where)
    return [result for result in results if isinstance(result, StagedRun)]


def _read_all(tasks: Sequence[tuple[LogRun, Path]]) -> list[StagedRun | DataError]:
    """Read runs in a process of its own, which an interrupt from the terminal ends without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return [_read_one(*task, tick=lambda position: None) for task in tasks]


def _read_one(run: LogRun, folder: Path, tick: Callable[[int], None]) -> StagedRun | DataError:
    try:
        return stage(run, FORMATS[run.format], folder / "attempts.parquet", tick)
    except DataError as error:
        # A copy has no traceback, whose frames would keep the file open.
        return DataError(error.what, where=error.where, hint=error.hint)


def _write(
    sources: list[StagedRun], outcomes: Mapping[str, str], digest: str, folder: Path, report: IngestReport
) -> tuple[dict[str, Path], dict[str, Record]]:
    """Write the files of all sources to the folder; return them by name, and the records of the sources."""
    files: dict[str, Path] = {}
    records = {}
    for i, staged in enumerate(sources):
        own = {name: outcomes[name] for name in staged.kinds}
        written = write_files(staged, own, digest, folder / f"out-{i}")
        source_report = report_source(staged, own, list(written))
        if set(written) <= set(files):
            source_report.notes.append("has the same attempts as another file of this run")
        files |= written
        report.sources.append(source_report)
        records[source_key(staged.run)] = {
            "content": staged.run.digest,
            "options": digest,
            "run": staged.run_key,
            "precedence": staged.run.precedence,
            "kinds": staged.kinds,
            "outcomes": own,
            "has_answers": "answer" in staged.filled,
            "carried": list(staged.carried),
            "measures": [name for name in MEASURES if name in staged.filled],
            "files": source_report.files,
            "report": asdict(source_report),
        }
    return files, records
