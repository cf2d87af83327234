"""Messages: progress, errors with exit codes, JSON documents. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorelake.errors import DataError, ScorelakeError, UnreachableError
from scorelake.storage.disk import first_line
from scorelake.text import escape_control_lines, escape_controls, json_value, plural

if TYPE_CHECKING:
    from scorelake.counting.partials import Partial
    from scorelake.ingest.ingest_report import IngestReport
    from scorelake.lake.infer import InferredConfig
    from scorelake.lake.sample import LakeSample
    from scorelake.pipeline import RunReport
    from scorelake.publish.publication import Removed
    from scorelake.read.check import Finding
    from scorelake.stages import Progress


@dataclass
class CommandOutput:
    """Where the outcome of a command goes besides stderr: JSON on stdout, the run report, Prometheus."""

    as_json: bool = False
    out: str | None = None
    lake: str = ""
    textfile: Path | None = None
    scores: bool = False
    quiet: bool = False
    published: str = ""
    began: float = field(default_factory=time.monotonic)

    def end(self, document: dict[str, Any], reachable: bool = True) -> None:
        """Write the files first: stdout may be full or closed."""
        if self.out is not None:
            from scorelake.publish import monitoring

            seconds = time.monotonic() - self.began
            with suppress(OSError, ScorelakeError):  # a report that fails must not hide the outcome
                if reachable:
                    document = monitoring.complete_report(document, self.out, self.lake, seconds)
                    if document["exit_code"] != 6:  # the run that holds the lock writes its own
                        monitoring.write_report(self.out, document)
            try:
                if self.textfile and "time" in document:
                    monitoring.write_textfile(self.textfile, document, self._scores())
            except (OSError, ScorelakeError) as error:
                say(f"warning: {self.textfile} cannot be written ({first_line(error)}); alarms see its old values")
        if self.as_json:
            data(json.dumps(json_value(document)))

    def _scores(self) -> list[tuple[dict[str, str], float]]:
        if not self.scores or self.out is None:
            return []
        from scorelake.read.board import opened
        from scorelake.read.measures import read_costs
        from scorelake.read.session import reading

        with reading(self.out) as folder, opened(folder) as read:
            rows, costs = read.dicts(_SCORES), read_costs(read)
        scores = [(row, row.pop("value")) for row in rows]
        return scores + [
            ({key: row[key] for key in ("benchmark", "model", "protocol", "measure")}, row["total"]) for row in costs
        ]

    def done(self, report: RunReport) -> None:
        """Report a finished run: lines for a person, the whole document for programs."""
        self.published = str(report.run.get("run_id", "")) if report.status == "published" else ""
        run_summary(report, self.quiet)
        document = {"status": report.status, "exit_code": 0, **asdict(report)}
        run = document.pop("run")
        if "settings" in run:
            run["settings"] = json.loads(run["settings"])
        self.end(document | {"run": run})


_SCORES = """
SELECT benchmark, model, protocol, metric, value FROM model_summary
WHERE value IS NOT NULL AND metric = (
    SELECT value ->> '$' FROM setting JOIN run USING (settings) WHERE shown AND key = 'gates.metric'
)
ORDER BY ALL
"""


@contextmanager
def failures(output: CommandOutput | None = None) -> Iterator[CommandOutput]:
    """Turn errors that users can cause into one message and an exit code, without a traceback."""
    output = output or CommandOutput()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reachable = True
    try:
        yield output
        sys.stdout.flush()
    except ScorelakeError as error:
        code, words = error.exit_code, str(error)
        document = {"error": error.what, "where": error.where, "hint": error.hint}
        reachable = not isinstance(error, UnreachableError)
    except KeyboardInterrupt:
        kept = ", and what was counted is kept" if output.out is not None else ""
        code, words = 130, f"interrupted{_outcome(output)}{kept}"
        document = {"error": "interrupted"}
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(0) from None
    except OSError as error:
        code, words = 4, f"{error.filename or 'the system'}: {error.strerror or error}{_outcome(output)}"
        document = {"error": words}
    except SystemExit:
        raise
    except BaseException as error:
        output.end({"status": "failed", "exit_code": 1, "error": f"{type(error).__name__}: {error}"})
        raise
    else:
        return
    say(f"error: {words}")
    output.end({"status": "failed", "exit_code": code, **document}, reachable)
    raise SystemExit(code)


def _outcome(output: CommandOutput) -> str:
    """Return whether a run was published; empty for commands that publish nothing."""
    if output.out is None:
        return ""
    return f"; the run was published as {output.published}" if output.published else "; nothing was published"


def data(text: str) -> None:
    """Print the result of a command to stdout; raise SystemExit if that fails."""
    try:
        print(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # it is not tried again when the process ends
        say(f"error: stdout cannot be written: {error.strerror}; what was done before is kept")
        raise SystemExit(4) from None


def say(text: str) -> None:
    """Print a message to stderr, with control characters escaped."""
    print(escape_control_lines(text), file=sys.stderr)


def run_summary(report: RunReport, quiet: bool = False) -> None:
    """Print a summary of a run; with `quiet` only warnings."""
    run = report.run
    for file, reason in report.quarantine:
        say(f"quarantined: {file}: {reason}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    if quiet:
        return
    for line in report.left_out:
        say(line)
    if report.status == "planned":
        say(
            f"would read {report.files_read:,} of {plural(run['files'], 'file')} "
            f"({run['bytes_to_read'] / 2**20:,.1f} MiB); {report.files_reused:,} are counted already"
        )
        return
    if report.status == "unchanged":
        say(f"No changes in {plural(run['files'], 'file')}; run {run['run_id']} remains published.")
        return
    cached, new = run["rows_read"] - run["rows_new"], "No new rows"
    if run["rows_new"]:
        new = f"{plural(run['rows_new'], 'new row')} in {plural(report.files_read, 'file')}"
    reused = f"; {cached:,} cached from {plural(report.files_reused, 'file')}" if cached else ""
    say(
        f"{new}{reused}. Total: {run['graded']:,} graded, {run['ungraded']:,} ungraded, "
        f"{plural(run['duplicates'], 'duplicate')}, {run['rejected']:,} rejected"
    )
    if report.kinds:
        say(f"outcomes: {'; '.join(f'{name} {kind}' for name, kind in report.kinds.items())}")
    for line in report.change.lines() if report.change else ():
        say(line)
    say(
        f"published {plural(report.metrics, 'metric')} of {plural(report.models, 'model')} on "
        f"{plural(report.distinct_problems, 'problem')} as {run['run_id']}"
    )


def inferred(inferred: InferredConfig, sample: LakeSample, lake: str, config: Path) -> None:
    """Print the chosen columns with reasons; raise DataError if a required one is missing."""
    looked_at = f"{plural(sample.rows.height, 'row')} in {sample.sampled_files:,} of {plural(sample.files, 'file')}"
    lines = [f"looked at {looked_at} of {lake}"]
    for key, choice in inferred.columns.items():
        lines.append(f"  {key:<11} {'@'.join(choice.names) or '-':<17} {choice.why}")
    for key, columns in (("protocol", inferred.protocol), ("carry", inferred.carry)):
        for column in columns:
            why = inferred.reasons.get(column.name, "by its name")
            lines.append(f"  {key:<11} {column.name:<17} {why}; {column.summary}")
    if inferred.unknown:
        lines.append(f"  verdicts that are neither a known pass nor a known fail: {', '.join(inferred.unknown)}")
    lines += [f"these rows are {inferred.numbers}"] if inferred.numbers else []
    for line in (*lines, f"wrote {config}"):
        print(escape_controls(line))
    if inferred.missing:
        hint = f"name it in {config}, then: {score_command(lake, config)}"
        raise DataError(f"no column was found for {', '.join(inferred.missing)}", where=lake, hint=hint)


def score_command(lake: str, config: Path) -> str:
    """Return the command that scores a lake with a config."""
    return f"scorelake score {shlex.quote(lake)} --out out --config {shlex.quote(str(config))}"


def ingested(report: IngestReport, output: CommandOutput) -> None:
    """Report every source and every refusal, then exit."""
    from scorelake.ingest.ingest_report import format_report

    for source in report.sources:
        say(format_report(source))
    if report.total.rows and (len(report.sources) > 1 or report.total.notes):
        say(format_report(report.total))
    for reason in sorted({*report.ignored.values()}):
        names = [name for name, each in report.ignored.items() if each == reason]
        shown = escape_controls(f"({reason}): {', '.join(names[:3])}{', ...' * (len(names) > 3)}")
        say(f"skipped {plural(len(names), 'file')} {shown}")
    for error in report.refused:
        hint = f" ({error.hint})" if error.hint else ""
        say(f"refused: {error.where}: {error.what}{hint}".replace("\n", " "))
    code = DataError.exit_code if report.status == "refused" else 0
    if code:
        say(f"error: {len(report.refused):,} refused; nothing was written (--skip-refused skips them)")
    refused = [{"file": error.where, "what": error.what, "hint": error.hint} for error in report.refused]
    sources = [asdict(source) for source in report.sources]
    document = {"sources": sources, "total": asdict(report.total), "refused": refused, "ignored": report.ignored}
    output.end({"status": report.status, "exit_code": code, **document})
    if code:
        raise SystemExit(code)


def removed(what: Removed) -> None:
    """Print what `gc` removed."""
    counts = f"{plural(len(what.snapshots), 'snapshot')} and {plural(len(what.partials), 'partial')}"
    say(f"removed {counts}, {what.bytes / 2**20:,.1f} MiB; history stays")


def counted(partials: Sequence[Partial], number: int, of: int) -> None:
    """Print the result of counting one part of a lake."""
    for file, reason in (entry for partial in partials for entry in partial.quarantine):
        say(f"quarantined: {file}: {reason}")
    files, rows = sum(len(partial.files) for partial in partials), sum(partial.read for partial in partials)
    say(f"part {number} of {of}: {rows:,} rows of {files:,} files counted in {len(partials):,} partials")


def findings(findings: Sequence[Finding], out: str) -> None:
    """Print the findings of a check; raise DataError if one failed."""
    for finding in findings:
        result = {True: "ok", False: "FAILED", None: "not checked"}[finding.ok]
        print(escape_controls(f"{result:<6}  {finding.what}: {finding.detail}"))
    failed = [finding for finding in findings if finding.ok is False]
    if failed:
        hints = {finding.hint for finding in failed}
        hint = hints.pop() if len(hints) == 1 else ""
        names = ", ".join(finding.what for finding in failed)
        raise DataError(f"failed: {names}", where=out, hint=hint or "publish again with score --full")


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Show a progress bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, of: None
        return
    from rich import console, progress

    terminal = console.Console(stderr=True)
    done = progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f}")  # a bar without colours does not move
    columns = (
        progress.TextColumn("{task.description:<11}"),
        done if terminal.no_color else progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    )
    stages: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=terminal, transient=True) as bar:

        def update(stage: str, done: int, of: int) -> None:
            if stage not in stages:
                for task in stages.values():
                    bar.update(task, visible=False)
                stages[stage] = bar.add_task(stage, total=max(of, 1))
            bar.update(stages[stage], completed=done, total=max(of, 1))

        yield update
