"""Arguments -> Settings -> run. The only place that prints: data to stdout, everything else to stderr.

Heavy libraries are imported by the command that needs them, so that --help is instant.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scorelake import __version__
from scorelake.errors import ScorelakeError, UsageError

# Said before numpy is loaded. There is one product of matrices in the job; on a busy machine the threads of the
# linear algebra library wait for each other twenty times longer than one thread takes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Looking for plugins in every installed package is most of the time that pydantic takes to load; there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if TYPE_CHECKING:
    from scorelake.run import Progress, Report
    from scorelake.settings import Settings

app = typer.Typer(
    name="scorelake",
    help="From a lake of LLM evaluation attempts to score tables you query with DuckDB.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Out = Annotated[str, typer.Argument(help="The output of `score`: a folder, or s3://, gs://, az://.")]


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


class Layout(StrEnum):
    clustered = "clustered"
    shuffled = "shuffled"


@app.command()
def score(
    lake: Annotated[str, typer.Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")],
    out: Annotated[
        str, typer.Option(help="Where leaderboard.duckdb, snapshots and partial counts go; also s3://, gs://, az://.")
    ],
    metrics: Annotated[
        str | None, typer.Option(help="Such as pass@1,pass@8,bayes@N. Default: every family at k = 1, 2, 4, ...")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file: columns, policies, rubric, uncertainty.")] = None,
    by: Annotated[list[str] | None, typer.Option(help="Also slice by this carried column. Repeatable.")] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="Gigabytes to aim at when cutting the work; not a limit. Default: half of the machine's."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Where the work runs: in this process, or on a Ray cluster.")
    ] = EngineName.local,
    address: Annotated[
        str | None, typer.Option(help="The Ray cluster: host:port, or auto for the one this machine belongs to.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read; change nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Count every file again.")] = False,
    allow_quarantine: Annotated[
        bool, typer.Option("--allow-quarantine", help="Leave unreadable files out instead of failing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, whatever happens.")] = False,
    metrics_file: Annotated[
        Path | None, typer.Option(help="Write a Prometheus textfile here, whatever happens.")
    ] = None,
) -> None:
    """Count a lake and publish its scores. Incremental: with nothing new it changes nothing."""
    with _failures(_Told(as_json, None if dry_run else f"{out}/report.json", metrics_file)) as told:
        names = tuple(name.strip() for name in (metrics or "").split(",") if name.strip())
        flags = {"metrics.names": names, "by": tuple(by or ()), "run.memory_gb": memory}
        settings = _settings(config, engine, **flags)

        from scorelake import engines, plan

        shared = [plan.everywhere(path) for path in (lake, str(out))]
        with engines.connect(engine, address, settings, shared) as where, _progress() as progress:
            from scorelake.publish import Output
            from scorelake.run import job

            report = job(
                lake,
                Output.at(out, settings.storage),
                settings,
                full=full,
                dry_run=dry_run,
                allow_quarantine=allow_quarantine,
                engine=where,
                progress=progress,
            )
        _tell(report)
        told.end({"status": report.status, "exit_code": 0, **_plain(report)})


@app.command()
def count(
    lake: Annotated[str, typer.Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")],
    out: Annotated[str, typer.Option(help="The output of `score`.")],
    shard: Annotated[str, typer.Option(help="Which part of the lake: 3/64 is the third of 64.")],
    config: Annotated[Path | None, typer.Option(help="TOML file, the same as for `score`.")] = None,
    by: Annotated[list[str] | None, typer.Option(help="Slices, the same as for `score`. Repeatable.")] = None,
    memory: Annotated[
        float | None, typer.Option(help="Gigabytes to aim at when cutting the work, the same for every part.")
    ] = None,
) -> None:
    """Count one part of what is new in a lake, for a later `score` to pick up. Parts may run anywhere, at once."""
    with _failures():
        number, of = _part(shard)
        settings = _settings(config, EngineName.local, **{"by": tuple(by or ()), "run.memory_gb": memory})

        from scorelake.publish import Output
        from scorelake.run import part

        with _progress() as progress:
            partials = part(lake, Output.at(out, settings.storage), settings, number, of, progress)
        for file, reason in (entry for partial in partials for entry in partial.quarantine):
            _say(f"quarantined: {file}: {reason}")
        files, rows = sum(len(partial.files) for partial in partials), sum(partial.read for partial in partials)
        _say(f"part {number} of {of}: {rows:,} rows of {files:,} files counted in {len(partials):,} partials")


@app.command()
def show(
    out: Out,
    metric: Annotated[str, typer.Option(help="Which metric to rank by.")] = "pass@1",
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    by_subject: Annotated[bool, typer.Option("--by-subject", help="One table per subject.")] = False,
) -> None:
    """Print the leaderboard of one metric."""
    with _failures(), _reading(out) as folder:
        from scorelake import show as pages

        pages.leaderboard(folder, metric, benchmark, by_subject)


@app.command()
def compare(
    out: Out,
    model_a: Annotated[str, typer.Argument(help="The model to compare against.")],
    model_b: Annotated[str, typer.Argument(help="The model whose lift is asked for.")],
    metric: Annotated[str, typer.Option(help="Which metric to compare by.")] = "pass@1",
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
) -> None:
    """Say what the problems both models attempted show, and what they do not."""
    with _failures(), _reading(out) as folder:
        from scorelake.claim import claims

        print("\n\n".join(claims(folder, model_a, model_b, metric, benchmark)))


@app.command()
def sql(
    out: Out,
    query: Annotated[str, typer.Argument(help="Any SELECT over the tables and views.")],
    format: Annotated[Format, typer.Option(help="How to print the rows.")] = Format.table,  # noqa: A002
    spreadsheet: Annotated[
        bool, typer.Option("--spreadsheet", help="CSV in which no cell can start a formula.")
    ] = False,
) -> None:
    """Run one query in a read-only session that cannot touch other files."""
    with _failures(), _reading(out) as folder:
        from scorelake import read

        columns, rows = read.query(folder, query)
        if format is Format.table:
            from scorelake import show as pages

            pages.rows(columns, rows)
        else:
            text = read.to_csv(columns, rows, spreadsheet) if format is Format.csv else read.to_json(columns, rows)
            print(text)


@app.command()
def synth(
    lake: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    models: Annotated[int, typer.Option(help="Number of models.")] = 5,
    problems: Annotated[int, typer.Option(help="Number of problems.")] = 200,
    attempts: Annotated[int, typer.Option(help="Largest number of attempts per model and problem.")] = 16,
    seed: Annotated[int, typer.Option(help="Same seed, same lake.")] = 0,
    layout: Annotated[
        Layout, typer.Option(help="clustered by problem under model=, or shuffled by date with models mixed")
    ] = Layout.clustered,
    subjects: Annotated[int, typer.Option(help="Number of subjects, up to 10.")] = 5,
    ragged: Annotated[bool, typer.Option(help="n varies between half of --attempts and all of it.")] = True,
    ungraded: Annotated[float, typer.Option(help="Share of attempts without a verdict.")] = 0.01,
    rewards: Annotated[bool, typer.Option("--rewards", help="Also a continuous score per attempt.")] = False,
    files: Annotated[int | None, typer.Option(help="Number of files.")] = None,
) -> None:
    """Make a realistic lake to try things on."""
    with _failures():
        from scorelake import synth as maker

        if str(lake).startswith(("s3:/", "gs:/", "az:/")):
            raise UsageError("synth writes to a disk", where=str(lake), hint="make the lake here, then upload it")
        plan = maker.Plan(models, problems, attempts, seed, layout.value, subjects, ragged, ungraded, rewards, files)
        total = maker.write(lake, plan)
        _say(f"{total:,} attempts of {models} models on {problems:,} problems in {lake}")


@app.command()
def check(
    out: Out,
    lake: Annotated[str | None, typer.Option(help="The lake, if it is no longer where the run found it.")] = None,
) -> None:
    """Verify checksums and row accounting, and recount the lake independently in SQL."""
    with _failures():
        from scorelake import check as checking
        from scorelake.errors import DataError
        from scorelake.publish import Output

        findings = checking.check(Output.at(out), lake)
        for finding in findings:
            print(f"{'ok    ' if finding.ok else 'FAILED'}  {finding.what}: {finding.detail}")
        failed = [finding.what for finding in findings if not finding.ok]
        if failed:
            raise DataError(f"failed: {', '.join(failed)}", where=str(out), hint="publish again with score --full")


@app.command()
def gc(
    out: Out, keep: Annotated[int, typer.Option(min=1, help="How many of the newest snapshots to keep.")] = 5
) -> None:
    """Remove old snapshots, and partial counts that no kept snapshot uses."""
    with _failures():
        from scorelake.publish import Output, collect_garbage, locked

        output = Output.at(out).fresh()
        with locked(output):
            removed = collect_garbage(output, keep)
        _say(f"removed {len(removed['snapshots'])} snapshots and {len(removed['partials'])} partials")


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        print(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Entry point; usage errors exit 2 like every other misuse."""
    try:
        app()
    except SystemExit as end:
        if isinstance(end.code, int | None):
            _leave(end.code or 0)
        raise
    _leave(0)


def _leave(code: int) -> NoReturn:
    """End at once, without taking the interpreter apart: that takes a third of a second after a large job.

    And obstore's threads may still want the interpreter meanwhile, and then they abort the process.
    """
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _settings(config: Path | None, engine: EngineName, **flags: Any) -> Settings:
    """Settings, and as many threads as they say where tasks run here: Polars asks once, when it is loaded."""
    from scorelake.settings import load

    settings = load(config, **flags)
    if settings.run.threads and engine is EngineName.local:
        os.environ["POLARS_MAX_THREADS"] = str(settings.run.threads)
    return settings


def _part(shard: str) -> tuple[int, int]:
    """I/N as two numbers."""
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UsageError(f"no such part: {shard}", where="--shard", hint="from 1/N to N/N, such as 3/64")
    return int(number), int(of)


# --- telling people ------------------------------------------------------------------------------------------


class _Told:
    """Where the outcome of a command is told besides stderr: stdout as JSON, the run report, Prometheus."""

    def __init__(self, as_json: bool = False, report: str | None = None, textfile: Path | None = None) -> None:
        self.as_json, self.report, self.textfile = as_json, report, textfile
        self.began = time.time()

    def end(self, document: dict[str, Any]) -> None:
        from scorelake import report

        if self.as_json:
            print(json.dumps(document))
        with suppress(OSError):  # telling must not hide what is told
            if self.textfile:
                report.write_prometheus(self.textfile, document, time.time(), time.time() - self.began)
        with suppress(OSError, ScorelakeError):
            if self.report and document["exit_code"] != 6:  # the run that holds the lock tells its own
                report.write_json(self.report, document)


@contextmanager
def _failures(told: _Told | None = None) -> Iterator[_Told]:
    """Turn what a user can cause into one clear message and the right exit code; never a traceback."""
    told = told or _Told()
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
        code, words = 1, f"{error.filename or 'the system'}: {error.strerror or error}; nothing was published"
        document = {"error": words}
    except typer.Exit:
        raise
    except BaseException as error:
        told.end({"status": "failed", "exit_code": 1, "error": f"{type(error).__name__}: {error}"})
        raise
    else:
        return
    _say(f"error: {words}")
    told.end({"status": "failed", "exit_code": code, **document})
    raise typer.Exit(code)


@contextmanager
def _reading(out: str) -> Iterator[Path]:
    """An output for readers: the folder itself, or for the time being a copy of the leaderboard."""
    from scorelake.storage import is_remote

    if not is_remote(out):
        yield Path(out)
        return
    from tempfile import TemporaryDirectory

    from scorelake.mirror import fetch_board

    with TemporaryDirectory() as folder:
        fetch_board(out, Path(folder))
        yield Path(folder)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _plain(report: Report) -> dict[str, Any]:
    told = dict(vars(report))
    run = dict(told.pop("run"))
    if "settings" in run:
        run["settings"] = json.loads(run["settings"])
    return told | {"run": run}


def _tell(report: Report) -> None:
    """A few lines for a person reading the log."""
    run = report.run
    for file, reason in report.quarantine:
        _say(f"quarantined: {file}: {reason}")
    for warning in report.warnings:
        _say(f"warning: {warning}")
    if report.status == "planned":
        _say(
            f"would read {report.files_read:,} of {run['files']:,} files ({run['bytes_to_read'] / 2**20:,.1f} MiB); "
            f"{report.files_reused:,} are counted already"
        )
        return
    if report.status == "unchanged":
        _say(f"nothing new in {run['files']:,} files; the published run {run['run_id']} stands")
        return
    _say(
        f"read {run['rows_read']:,} rows = {run['graded']:,} graded + {run['ungraded']:,} ungraded "
        f"+ {run['duplicates']:,} duplicate + {run['rejected']:,} rejected, "
        f"in {report.files_read:,} new and {report.files_reused:,} known files"
    )
    _say(
        f"published {report.metrics} metrics of {report.models:,} models on {report.problems:,} problems as "
        f"{run['run_id']}"
    )


class _progress:  # noqa: N801
    """A progress bar on a terminal, nothing elsewhere."""

    def __enter__(self) -> Progress:
        self.bar = None
        if not sys.stderr.isatty():
            return lambda stage, done, of: None
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self.bar = Bar(
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
