"""The whole of `ingest` on one screen: find, read side by side, hold the files against each other, land.

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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from scorelake.errors import DataError, StorageError, UsageError
from scorelake.ingest import landing, receipts
from scorelake.ingest.contract import Format, Options, Source
from scorelake.ingest.documents import position
from scorelake.ingest.find import find, known
from scorelake.ingest.formats import FORMATS
from scorelake.ingest.ledger import Tally, example, tally
from scorelake.ingest.reading import Reading, Tick, read, row_of, two_problems
from scorelake.ingest.receipts import Receipt
from scorelake.storage import disk
from scorelake.threads import parallel_map

VERSION = 1
"""Of what adapters make of a file; a higher one reads every source again."""
TOGETHER = 16 << 20
"""Bytes of sources from which on several processes are worth their start."""
Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass
class Report:
    """What came of it."""

    receipts: list[Receipt] = field(default_factory=list)
    refused: list[DataError] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """Files in the folders that are no results."""
    total: Receipt = field(default_factory=lambda: Receipt("", "", ""))
    status: str = "written"
    """written, unchanged or refused."""


def ingest(
    places: Sequence[str],
    lake: str,
    format_name: str = "auto",
    options: Options | None = None,
    skip_refused: bool = False,
    progress: Progress = lambda stage, done, of: None,
    workers: int | None = None,
) -> Report:
    """Read every result below the places into the lake."""
    options = options or Options()
    if any(disk.is_remote(location) for location in (lake, *places)):
        raise UsageError(
            "ingest reads from and writes to a disk", where=lake, hint="ingest here, then upload the lake"
        )
    home = landing.Lake.at(Path(lake))
    found = find([Path(place) for place in places], known(format_name), bool(options.map), home.root)
    if not found.sources and not found.refused:
        raise DataError(
            f"no result among {len(found.ignored):,} files", where=", ".join(places)[:200], hint=_formats()
        )
    report = Report(refused=found.refused, ignored=found.ignored)
    digest = _digest(options)
    sources = parallel_map(digested, found.sources)
    fresh = []
    for format_, source in sources:
        noted = home.receipt(landing.place_of(source.path))
        if (noted.get("content"), noted.get("options")) == (source.digest, digest):
            report.receipts.append(Receipt(**noted["receipt"] | {"status": "unchanged"}))
        else:
            fresh.append((format_, source))
    with _aside(home.root) as aside:
        readings = _read_all(fresh, options, aside, report, progress, workers)
        kept = _checked(readings, home, report)
        if report.refused and not (skip_refused and (kept or report.receipts)):
            report.status = "refused"
            return report
        _land(kept, home, digest, aside, report)
    return report


def _formats() -> str:
    return f"formats: {', '.join(sorted(FORMATS))}"


def _digest(options: Options) -> str:
    """Of everything that rows depend on besides the bytes of the sources."""
    return hashlib.sha256(json.dumps([VERSION, asdict(options)], sort_keys=True).encode()).hexdigest()[:32]


def digested(item: tuple[Format, Source]) -> tuple[Format, Source]:
    """A source with the digests that name it and its attempts."""
    format_, source = item
    digest, tag = disk.checksum(*source.files, *source.beside), disk.checksum(*source.files)[:12]
    return format_, replace(source, digest=digest, tag=tag)


@contextmanager
def _aside(root: Path) -> Iterator[Path]:
    """A hidden folder beside the lake, gone at the end; what crashed runs left there goes as well."""
    root.parent.mkdir(parents=True, exist_ok=True)
    for old in root.parent.glob(f".{root.name}.*-*-*-*"):
        if disk.is_abandoned(old):
            disk.remove(old)
    aside = disk.temp_path(root)
    aside.mkdir()
    try:
        yield aside
    finally:
        disk.remove(aside)


# --- reading ------------------------------------------------------------------------------------------------------


def _read_all(
    fresh: Sequence[tuple[Format, Source]],
    options: Options,
    aside: Path,
    report: Report,
    progress: Progress,
    workers: int | None,
) -> list[Reading]:
    """In this process, or in several where there is enough to read; in the order of the sources."""
    sizes = [sum(path.stat().st_size for path in source.files) for _, source in fresh]
    tasks = [(format_.name, source, options, aside / str(i)) for i, (format_, source) in enumerate(fresh)]
    done: dict[int, Reading | DataError] = {}
    total, seen = sum(sizes), 0
    many = workers or (multiprocessing.cpu_count() if total > TOGETHER else 1)
    if min(many, len(tasks)) < 2:
        for i, task in enumerate(tasks):
            done[i] = _task(task, lambda seen=seen: progress("reading", seen + position(), total))  # type: ignore[misc]
            seen += sizes[i]
            progress("reading", seen, total)
    else:
        spawn = multiprocessing.get_context("spawn")  # threads of Polars and Arrow do not survive a fork
        with ProcessPoolExecutor(
            min(many, len(tasks)), spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)
        ) as pool:
            try:
                waiting = {pool.submit(_task, task): i for i, task in enumerate(tasks)}
                for each in as_completed(waiting):
                    done[waiting[each]] = each.result()
                    seen += sizes[waiting[each]]
                    progress("reading", seen, total)
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()
                if isinstance(error, BrokenExecutor):
                    raise StorageError(
                        "a process that was reading died", hint="free memory, then run again"
                    ) from None
                raise
    outcomes = [done[i] for i in range(len(tasks))]
    report.refused += [outcome for outcome in outcomes if isinstance(outcome, DataError)]
    return [outcome for outcome in outcomes if isinstance(outcome, Reading)]


def _task(task: tuple[str, Source, Options, Path], tick: Tick = lambda: None) -> Reading | DataError:
    name, source, options, home = task
    try:
        return read(FORMATS[name], source, options, home, tick)
    except DataError as error:
        return error


# --- files against each other -------------------------------------------------------------------------------------


def _checked(readings: list[Reading], lake: landing.Lake, report: Report) -> list[tuple[Reading, str]]:
    """Sources with attempts that count, and what kind of outcome they get; the others are told in the report."""
    kept = []
    for reading in readings:
        newest = _superseded(reading, readings)
        if newest is not None:
            reading.notes.append(f"left out: {newest.source.path} is a newer log of the same task")
        if newest is not None or not reading.tally.rows:
            status = "superseded" if newest is not None else "empty"
            report.receipts.append(receipts.receipt(reading, "passed", [], status))
        else:
            kept.append(reading)
    kept, told = _alone(kept, report)
    kinds = _kinds(kept, lake, report)
    report.total = Receipt("", "", "")
    if set(kinds) != {id(reading) for reading in kept} or told.conflicts:
        kept = [reading for reading in kept if id(reading) in kinds]
        told = _together(kept)
    receipts.fill(report.total, told, kinds[id(kept[0])] if kept else "passed")
    _protocols(kept, report)
    return [(reading, kinds[id(reading)]) for reading in kept]


def _superseded(reading: Reading, readings: list[Reading]) -> Reading | None:
    """The newer log of the same task, where attempts have no names by which repeats would be found."""
    if reading.supersedes is None or reading.supersedes[2]:
        return None
    task, created, _ = reading.supersedes
    newer = [
        other
        for other in readings
        if other.supersedes and other.supersedes[0] == task and other.supersedes[1] > created and other.tally.rows
    ]
    return max(newer, key=lambda other: other.supersedes or (), default=None)


def _together(readings: Sequence[Reading]) -> Tally:
    """What several sources add up to."""
    if len(readings) == 1:
        return readings[0].tally
    return tally([(reading.ledger, reading.salt) for reading in readings])


def _alone(kept: list[Reading], report: Report) -> tuple[list[Reading], Tally]:
    """Sources without those in which an attempt has two verdicts, here or elsewhere; and what all add up to."""
    told = _together(kept)
    if told.mixed is not None:
        (i, row), (j, other) = example([(reading.ledger, reading.salt) for reading in kept], told.mixed)
        what = two_problems(kept[i], row, other, kept[j])
        report.refused.append(DataError(what, where=str(kept[i].source.path), hint="ingest one of the two"))
        return _alone([reading for at, reading in enumerate(kept) if at not in (i, j)], report)
    for (one, row), (two, other) in told.conflicts:
        mine, others = row_of(kept[one], row), row_of(kept[two], other)
        report.refused.append(
            DataError(
                f"one attempt, two verdicts: problem {mine['problem_id']}, attempt {mine['attempt']} is "
                f"{mine['value']:g} here and {others['value']:g} in {kept[two].source.path}",
                where=str(kept[one].source.path),
                hint="ingest one of the two",
            )
        )
    return [reading for i, reading in enumerate(kept) if i not in told.conflicting], told


def _kinds(kept: list[Reading], lake: landing.Lake, report: Report) -> dict[int, str]:
    """passed or score for every source: all files of a lake have the same. Numbers all 0 or 1 are verdicts."""
    rewards = [reading for reading in kept if reading.kind == "score"]
    real = any(reading.tally.odd for reading in rewards)
    wanted = lake.kind or ("passed" if any(reading.kind == "passed" for reading in kept) or not real else "score")
    out = {}
    for reading in kept:
        told = reading.tally
        if wanted == "passed" and reading.kind == "score" and told.odd:
            what = f"{told.odd:,} of {told.graded:,} values are not 0 or 1 (from {told.low:g} to {told.high:g})"
            hint = "where a pass begins, say with --threshold; rewards as they are go into a lake of their own"
            report.refused.append(DataError(what, where=str(reading.source.path), hint=hint))
        elif wanted == "score" and reading.kind == "passed":
            what = "has verdicts, and the lake has rewards"
            report.refused.append(DataError(what, where=str(reading.source.path), hint="give another --lake"))
        else:
            out[id(reading)] = wanted
    return out


def _protocols(kept: list[Reading], report: Report) -> None:
    """Say where one model's attempts at one benchmark will not be pooled, and by which settings."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for reading in kept:
        groups.setdefault((reading.model, reading.benchmark, reading.format), []).append(reading.protocol)
    for (model, benchmark, _), protocols in groups.items():
        keys = sorted({key for one in protocols for key in one})
        differ = [key for key in keys if len({json.dumps(one.get(key)) for one in protocols}) > 1]
        if differ:
            report.total.notes.append(
                f"{model} on {benchmark}: {len(protocols)} sources differ in {', '.join(differ)} and are kept apart; "
                f"--protocol-ignore {','.join(differ)} pools them"
            )


# --- landing ------------------------------------------------------------------------------------------------------


def _land(kept: list[tuple[Reading, str]], lake: landing.Lake, digest: str, aside: Path, report: Report) -> None:
    files: dict[str, Path] = {}
    notes: dict[str, dict[str, Any]] = {}
    for i, (reading, kind) in enumerate(kept):
        home = aside / f"out-{i}"
        home.mkdir()
        written = landing.write(reading, kind, digest, home)
        told = receipts.receipt(reading, kind, sorted(written))
        if set(written) <= set(files):
            told.notes.append("the same attempts as in another file of this run")
        files |= written
        report.receipts.append(told)
        noted = {"content": reading.source.digest, "options": digest, "receipt": told.plain()}
        notes[landing.place_of(reading.source.path)] = noted
    if not kept:
        report.status = "unchanged"
        return
    readings = [reading for reading, _ in kept]
    carried = [name for name in readings[0].carried if all(name in reading.carried for reading in readings)]
    shape = {"kind": kept[0][1], "answers": all(reading.answers for reading in readings), "carried": carried}
    landing.land(lake, files, notes, shape)
