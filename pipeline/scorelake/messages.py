"""What people, schedulers and monitors are told: progress, errors as words and exit codes, JSON, Prometheus.

Data goes to stdout, everything else to stderr. Heavy libraries are imported where they are used, so that --help is
instant.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorelake.errors import DataError, ScorelakeError

if TYPE_CHECKING:
    from scorelake.ingest.job import Report as Ingested
    from scorelake.lake.guess import Guesses
    from scorelake.lake.look import Seen
    from scorelake.partials import Partial
    from scorelake.publish.garbage import Removed
    from scorelake.read.check import Finding
    from scorelake.run import Progress, Report

_GAUGES = {
    "rows_read": "Rows of the lake.",
    "graded": "Rows with a verdict.",
    "ungraded": "Rows without a verdict.",
    "duplicates": "Rows dropped as repeats of an attempt.",
    "rejected": "Rows that are not valid.",
    "files": "Files in the lake.",
    "quarantined": "Files left out as unreadable.",
}


class Told:
    """Where the outcome of a command is told besides stderr: stdout as JSON, the run report, Prometheus."""

    def __init__(self, as_json: bool = False, report: str | None = None, textfile: Path | None = None) -> None:
        self.as_json, self.report, self.textfile = as_json, report, textfile
        self.began = time.time()

    def end(self, document: dict[str, Any]) -> None:
        if self.as_json:
            print(json.dumps(document))
        with suppress(OSError):  # telling must not hide what is told
            if self.textfile:
                write_prometheus(self.textfile, document, time.time(), time.time() - self.began)
        with suppress(OSError, ScorelakeError):
            if self.report and document["exit_code"] != 6:  # the run that holds the lock tells its own
                write_json(self.report, document)

    def done(self, report: Report) -> None:
        """A run came to its end: words for a person, and all of it for programs."""
        tell(report)
        self.end({"status": report.status, "exit_code": 0, **_plain(report)})


@contextmanager
def failures(told: Told | None = None) -> Iterator[Told]:
    """Turn what a user can cause into one clear message and the right exit code; never a traceback."""
    told = told or Told()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield told
    except ScorelakeError as error:
        code, words = error.exit_code, str(error)
        document = {"error": error.what, "where": error.where, "hint": error.hint}
    except KeyboardInterrupt:
        code, words = 130, "interrupted; nothing was published, and what was counted is kept"
        document = {"error": "interrupted"}
    except OSError as error:
        code, words = 4, f"{error.filename or 'the system'}: {error.strerror or error}; nothing was published"
        document = {"error": words}
    except BaseException as error:
        told.end({"status": "failed", "exit_code": 1, "error": f"{type(error).__name__}: {error}"})
        raise
    else:
        return
    say(f"error: {words}")
    told.end({"status": "failed", "exit_code": code, **document})
    raise SystemExit(code)


def say(text: str) -> None:
    print(text, file=sys.stderr)


def _plain(report: Report) -> dict[str, Any]:
    told = asdict(report)
    run = told.pop("run")
    if "settings" in run:
        run["settings"] = json.loads(run["settings"])
    return told | {"run": run}


def tell(report: Report) -> None:
    """A few lines for a person reading the log."""
    run = report.run
    for file, reason in report.quarantine:
        say(f"quarantined: {file}: {reason}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    if report.status == "planned":
        say(
            f"would read {report.files_read:,} of {run['files']:,} files ({run['bytes_to_read'] / 2**20:,.1f} MiB); "
            f"{report.files_reused:,} are counted already"
        )
        return
    if report.status == "unchanged":
        say(f"nothing new in {run['files']:,} files; the published run {run['run_id']} stands")
        return
    say(
        f"read {run['rows_read']:,} rows = {run['graded']:,} graded + {run['ungraded']:,} ungraded "
        f"+ {run['duplicates']:,} duplicate + {run['rejected']:,} rejected, "
        f"in {report.files_read:,} new and {report.files_reused:,} known files"
    )
    for line in report.change.lines() if report.change else ():
        say(line)
    say(
        f"published {report.metrics} metrics of {report.models:,} models on {report.problems:,} problems as "
        f"{run['run_id']}"
    )


def guessed(guesses: Guesses, seen: Seen, lake: str, config: Path) -> None:
    """Which column was taken for what, and why; an error if something is missing that must be there."""
    print(f"looked at {seen.rows.height:,} rows in {seen.looked_at:,} of {seen.files:,} files of {lake}")
    for key, guess in guesses.columns.items():
        print(f"  {key:<11} {guess.column or '-':<17} {guess.why}")
    for key, columns in (("protocol", guesses.protocol), ("carry", guesses.carry)):
        for column in columns:
            print(f"  {key:<11} {column.name:<17} by its name; {column.told}")
    if guesses.unknown:
        print(f"  verdicts that are neither a known pass nor a known fail: {', '.join(guesses.unknown)}")
    print(f"wrote {config}")
    if guesses.missing:
        raise DataError(
            f"no column was found for {', '.join(guesses.missing)}",
            where=lake,
            hint=f"name it in {config}, then: {_score(lake, config)}",
        )


def next_command(lake: str, config: Path) -> None:
    print(f"next: {_score(lake, config)}")


def _score(lake: str, config: Path) -> str:
    return f"scorelake score {shlex.quote(lake)} --out out --config {shlex.quote(str(config))}"


def ingested(report: Ingested, told: Told) -> None:
    """What came of reading other tools' logs: a receipt per source, every refusal on a line; then the exit code."""
    from scorelake.ingest.receipts import words

    for receipt in report.receipts:
        say(words(receipt))
    if len(report.receipts) > 1 and report.total.rows:
        say(words(report.total))
    if report.ignored:
        say(f"{len(report.ignored):,} files are no results, such as {report.ignored[0]}")
    for error in report.refused:
        hint = f" ({error.hint})" if error.hint else ""
        say(f"refused: {error.where}: {error.what}{hint}".replace("\n", " "))
    code = DataError.exit_code if report.status == "refused" else 0
    if code:
        say(f"error: {len(report.refused):,} refused; nothing was written (--skip-refused leaves them out)")
    refused = [{"file": error.where, "what": error.what, "hint": error.hint} for error in report.refused]
    sources = [receipt.plain() for receipt in report.receipts]
    document = {"sources": sources, "total": report.total.plain(), "refused": refused, "ignored": report.ignored}
    told.end({"status": report.status, "exit_code": code, **document})
    if code:
        raise SystemExit(code)


def removed(what: Removed) -> None:
    """What `gc` freed."""
    say(
        f"removed {len(what.snapshots):,} snapshots and {len(what.partials):,} partials, "
        f"{what.bytes / 2**20:,.1f} MiB; history stays"
    )


def counted(partials: Sequence[Partial], number: int, of: int) -> None:
    """What came of counting one part of a lake."""
    for file, reason in (entry for partial in partials for entry in partial.quarantine):
        say(f"quarantined: {file}: {reason}")
    files, rows = sum(len(partial.files) for partial in partials), sum(partial.read for partial in partials)
    say(f"part {number} of {of}: {rows:,} rows of {files:,} files counted in {len(partials):,} partials")


def findings(found: Sequence[Finding], out: str) -> None:
    """What a check found, line by line; an error if anything failed."""
    for finding in found:
        print(f"{'ok    ' if finding.ok else 'FAILED'}  {finding.what}: {finding.detail}")
    failed = [finding.what for finding in found if not finding.ok]
    if failed:
        raise DataError(f"failed: {', '.join(failed)}", where=out, hint="publish again with score --full")


class Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __enter__(self) -> Progress:
        self.bar = None
        if not sys.stderr.isatty():
            return lambda stage, done, of: None
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Columns

        self.bar = Columns(
            TextColumn("{task.description:<11}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.bar.start()
        self.tasks: dict[str, Any] = {}
        return self._update

    def _update(self, stage: str, done: int, of: int) -> None:
        assert self.bar is not None
        if stage not in self.tasks:
            for task in self.tasks.values():
                self.bar.update(task, visible=False)
            self.tasks[stage] = self.bar.add_task(stage, total=max(of, 1))
        self.bar.update(self.tasks[stage], completed=done, total=max(of, 1))

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def write_json(location: str, document: dict[str, Any]) -> None:
    """Replace the report in one step."""
    from scorelake.settings import Storage
    from scorelake.store.disk import is_remote, replace_text

    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if not is_remote(location):
        replace_text(Path(location), text)
        return
    from scorelake.store.objects import Objects

    folder, _, name = location.rpartition("/")
    Objects(folder, Storage(timeout_s=5, retry_s=5)).send({name: text.encode()})


def write_prometheus(path: Path, document: dict[str, Any], finished: float, seconds: float) -> None:
    """The textfile format of Prometheus' node exporter; counts only where the run came that far."""
    from scorelake.store.disk import replace_text

    gauges = [
        ("last_run_success", "1 if the last run published or found nothing new.", int(document["exit_code"] == 0)),
        ("last_run_exit_code", "Exit code of the last run.", document["exit_code"]),
        ("last_run_timestamp_seconds", "When the last run ended.", round(finished, 3)),
        ("last_run_duration_seconds", "How long the last run took.", round(seconds, 3)),
    ]
    run = document.get("run", {})
    gauges += [(key, text, run[key]) for key, text in _GAUGES.items() if key in run]
    lines = [
        f"# HELP scorelake_{name} {text}\n# TYPE scorelake_{name} gauge\nscorelake_{name} {number}\n"
        for name, text, number in gauges
    ]
    replace_text(path, "".join(lines))
