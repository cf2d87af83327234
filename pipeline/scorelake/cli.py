"""Arguments -> one call per command. What is told of it, and how, is in messages.

Heavy libraries are imported by the command that needs them, so that --help is instant.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scorelake import __version__, guard, messages
from scorelake.errors import UsageError
from scorelake.words import visible, visible_lines

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

COUNTING = ("scorelake.tasks", "scorelake.count.shard")
"""What workers of a cluster load before there is work for them."""
GUARDED = "guarded"
"""Said by the entry point alone: the job runs in a child, so that no file can end the command without a word."""
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Publish even if all values of a metric are lost.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")]
MetricsFile = Annotated[Path | None, typer.Option(help="Write a Prometheus textfile here, whatever happens.")]
Scores = Annotated[bool, typer.Option("--scores", help="In the textfile: also the [gates] metric of every model.")]
Out = Annotated[str, typer.Argument(help="The output of `score`: a folder, or s3://, gs://, az://.")]


Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="KEY=NAME", help="Which column is meant, such as model=model_name. Repeatable."),
]


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


class Rule(StrEnum):
    fail = "fail"
    ungraded = "ungraded"


class Layout(StrEnum):
    clustered = "clustered"
    shuffled = "shuffled"


@app.command()
def score(
    context: typer.Context,
    lake: Annotated[str, typer.Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")],
    out: Annotated[
        str, typer.Option(help="Where leaderboard.duckdb, snapshots and partial counts go; also s3://, gs://, az://.")
    ],
    metrics: Annotated[
        str | None, typer.Option(help="Such as pass@1,pass@8,bayes@N. Default: every family at k = 1, 2, 4, ...")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file: columns, policies, rubric, uncertainty.")] = None,
    column: Columns = None,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read, and whether it fits.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Count every file again.")] = False,
    allow_quarantine: Annotated[
        bool, typer.Option("--allow-quarantine", help="Leave unreadable files out instead of failing.")
    ] = False,
    allow_empty: AllowEmpty = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, whatever happens.")] = False,
    quiet: Quiet = False,
    metrics_file: MetricsFile = None,
    scores: Scores = False,
) -> None:
    """Count a lake and publish its scores. Incremental: with nothing new it changes nothing."""
    names = tuple(name.strip() for name in (metrics or "").split(",") if name.strip())
    flags = {"metrics.names": names, "by": tuple(by or ()), "run.memory_gb": memory}
    told = messages.Told(as_json, None if dry_run else out, lake, metrics_file, scores, quiet)
    options = {"dry_run": dry_run, "allow_quarantine": allow_quarantine, "allow_empty": allow_empty}

    def settings() -> Settings:
        return _settings(lake, config, engine, column, **flags)

    def work(full: bool) -> int:
        with messages.failures(told):
            with messages.Bar(quiet) as progress:
                report = _job(lake, out, settings(), engine, address, progress, full=full, **options)
            told.done(report)
        return 0

    if context.obj != GUARDED or engine is not EngineName.local:
        work(full)
        return
    with messages.failures(told):
        code = guard.surviving(work, lambda full: _suspects(lake, out, settings(), full), full)
    raise typer.Exit(code)


def _job(
    lake: str,
    out: str,
    settings: Settings,
    engine: EngineName,
    address: str | None,
    progress: Progress,
    **options: bool,
) -> Report:
    """The job on the engine asked for."""
    from scorelake import engines
    from scorelake.lake.iceberg import CATALOG
    from scorelake.lake.shards import everywhere

    shared = [everywhere(path) for path in (lake, out) if not path.startswith(CATALOG)]
    with engines.connect(engine, address, settings, shared, COUNTING) as where:
        from scorelake.publish.snapshot import Output
        from scorelake.run import job

        return job(lake, Output.at(out, settings.storage), settings, engine=where, progress=progress, **options)


@app.command()
def init(
    lake: Annotated[str, typer.Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")],
    config: Annotated[Path, typer.Option(help="The file to write.")] = Path("scorelake.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite that file.")] = False,
) -> None:
    """Look at a lake, guess which column is which, and write a config that says what each guess rests on."""
    with messages.failures():
        if config.exists() and not force:
            raise UsageError(
                "is there already", where=str(config), hint="--force overwrites it, --config names another"
            )
        from scorelake import tasks
        from scorelake.lake.description import described
        from scorelake.lake.guess import guess
        from scorelake.lake.listing import listing
        from scorelake.lake.look import look
        from scorelake.lake.template import config as template
        from scorelake.settings import PATIENCE, Settings, load
        from scorelake.store.disk import replace_text

        if described(lake, PATIENCE):
            messages.say(f"note: {lake} describes itself, so that `score` needs no config; a config overrides that")
        listed = listing(lake)
        seen = look(listed, Settings())
        guesses = guess(seen)
        replace_text(config, template(guesses, lake))
        messages.guessed(guesses, seen, lake, config)
        tasks.refuse_misfits(listed.root, listed.files, load(config), lake, every_file=True)
        messages.next_command(lake, config)


@app.command()
def ingest(
    format: Annotated[str, typer.Argument(help="auto, or the tool that wrote the files; docs/ingest.md lists them.")],  # noqa: A002
    sources: Annotated[list[str], typer.Argument(help="Files and folders of results.")],
    lake: Annotated[str, typer.Option(help="Folder that the attempts are added to, for `score` to read.")],
    model: Annotated[str | None, typer.Option(help="The model, where the files do not name it.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="The benchmark, where the files do not name it.")] = None,
    subject: Annotated[str | None, typer.Option(help="The subject, or for Inspect metadata.KEY.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Inspect: SCORER or SCORER.KEY. prime-rl: the agent.")] = None,
    filter: Annotated[str | None, typer.Option(help="lm-eval: which filter's verdicts.")] = None,  # noqa: A002
    metric: Annotated[str | None, typer.Option(help="Which metric or reward, where there are several.")] = None,
    split: Annotated[str | None, typer.Option(help="HELM: which split.")] = None,
    map: Annotated[list[str] | None, typer.Option(help="KEY=THEIRS, such as passed=correct. Repeatable.")] = None,  # noqa: A002
    true: Annotated[list[str] | None, typer.Option(help="A text that means passed. Repeatable.")] = None,
    threshold: Annotated[float | None, typer.Option(help="A reward from which on an attempt passed.")] = None,
    errors: Annotated[
        Rule | None, typer.Option(help="Attempts without a verdict. Default: as the tool does.")
    ] = None,
    missing: Annotated[Rule | None, typer.Option(help="SWE-bench: problems that were never attempted.")] = None,
    protocol_ignore: Annotated[list[str] | None, typer.Option(help="Settings that do not tell runs apart.")] = None,
    skip_refused: Annotated[bool, typer.Option("--skip-refused", help="Leave out what is refused.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, whatever happens.")] = False,
) -> None:
    """Turn the logs of other tools into a lake of attempts, with a receipt for every file."""
    told = messages.Told(as_json)
    with messages.failures(told):
        from scorelake.ingest import job
        from scorelake.ingest.contract import Options

        said = {"model": model, "benchmark": benchmark, "subject": subject, "scorer": scorer, "filter": filter}
        said |= {
            "metric": metric,
            "split": split,
            "errors": errors and str(errors),
            "missing": missing and str(missing),
        }
        options = Options.asked(map or [], true or [], protocol_ignore or [], threshold=threshold, **said)
        with messages.Bar() as progress:
            report = job.ingest(sources, lake, format, options, skip_refused, progress)
    messages.ingested(report, told)


@app.command()
def count(
    context: typer.Context,
    lake: Annotated[str, typer.Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")],
    out: Annotated[str, typer.Option(help="The output of `score`.")],
    shard: Annotated[str, typer.Option(help="Which part of the lake: 3/64 is the third of 64.")],
    config: Annotated[Path | None, typer.Option(help="TOML file, the same as for `score`.")] = None,
    column: Columns = None,
    by: Annotated[list[str] | None, typer.Option(help="Slices, the same as for `score`. Repeatable.")] = None,
    memory: Annotated[
        float | None, typer.Option(help="Gigabytes to aim at when cutting the work, the same for every part.")
    ] = None,
) -> None:
    """Count one part of what is new in a lake, for a later `score` to pick up. Parts may run anywhere, at once."""
    flags = {"by": tuple(by or ()), "run.memory_gb": memory}

    def settings() -> Settings:
        return _settings(lake, config, EngineName.local, column, **flags)

    def work(_: bool) -> int:
        with messages.failures():
            number, of = _part(shard)
            told = settings()

            from scorelake.publish.snapshot import Output
            from scorelake.run import part

            with messages.Bar() as progress:
                partials = part(lake, Output.at(out, told.storage), told, number, of, progress)
            messages.counted(partials, number, of)
        return 0

    if context.obj != GUARDED:
        work(False)
        return
    with messages.failures():
        code = guard.surviving(work, lambda full: _suspects(lake, out, settings(), full), full=False)
    raise typer.Exit(code)


@app.command()
def show(
    out: Out,
    metric: Annotated[str, typer.Option(help="Which metric to rank by.")] = "pass@1",
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    by_subject: Annotated[bool, typer.Option("--by-subject", help="One table per subject.")] = False,
) -> None:
    """Print the leaderboard of one metric."""
    with messages.failures():
        from scorelake.read import show as pages
        from scorelake.read.session import reading

        with reading(out) as folder:
            pages.leaderboard(folder, metric, benchmark, by_subject)


@app.command()
def compare(
    out: Out,
    model_a: Annotated[str, typer.Argument(help="The model to compare against.")],
    model_b: Annotated[str, typer.Argument(help="The model whose lift is asked for.")],
    metric: Annotated[str, typer.Option(help="Any metric that the lake allows.")] = "pass@1",
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Only this protocol, such as temperature=0.2. Twice, for one model: of A, and of B."),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(help="A as it was in this run, B as published. Twice: of A, and of B."),
    ] = None,
) -> None:
    """Say what the problems both models attempted show, and what they do not."""
    with messages.failures():
        from scorelake.read.claim import Asked, claims

        asked = Asked(model_a, model_b, metric, benchmark, tuple(protocol or ()), tuple(run or ()))
        messages.data("\n\n".join(visible_lines(claim) for claim in claims(out, asked)))


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
    with messages.failures():
        from scorelake.read import session

        if spreadsheet and format is Format.json:
            raise UsageError("--spreadsheet is for CSV", hint="leave --format out")
        as_table = format is Format.table and not spreadsheet
        with session.reading(out) as folder:
            columns, rows = session.query(folder, query, limit=session.MOST + 1 if as_table else None)
        if as_table:
            from scorelake.read import show as pages

            pages.rows(columns, rows[: session.MOST])
            if len(rows) > session.MOST:
                messages.say(f"these are the first {session.MOST:,} rows; --format csv prints them all")
        elif format is Format.json:
            messages.data(session.to_json(columns, rows))
        else:
            text = session.to_csv(columns, rows, spreadsheet)
            messages.data("\n".join(map(visible, text.split("\n"))) if sys.stdout.isatty() else text)


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
    with messages.failures():
        from scorelake import synth as maker

        if str(lake).startswith(("s3:/", "gs:/", "az:/")):
            raise UsageError("synth writes to a disk", where=str(lake), hint="make the lake here, then upload it")
        plan = maker.Plan(models, problems, attempts, seed, layout.value, subjects, ragged, ungraded, rewards, files)
        total = maker.write(lake, plan)
        messages.say(f"{total:,} attempts of {models} models on {problems:,} problems in {lake}")


@app.command()
def check(
    out: Out,
    lake: Annotated[str | None, typer.Option(help="The lake, if it is no longer where the run found it.")] = None,
) -> None:
    """Verify checksums and row accounting, and recount the lake independently in SQL."""
    with messages.failures():
        from scorelake.publish.snapshot import Output
        from scorelake.read import check as checking

        messages.findings(checking.check(Output.at(out), lake), out)


@app.command()
def gc(
    out: Out, keep: Annotated[int, typer.Option(min=1, help="How many of the newest snapshots to keep.")] = 5
) -> None:
    """Remove old snapshots, and partial counts that no kept snapshot uses. History stays."""
    with messages.failures():
        from scorelake.publish.garbage import collect_garbage
        from scorelake.publish.snapshot import Output

        with Output.at(out).held() as output:
            messages.removed(collect_garbage(output, keep))


@app.command()
def runs(out: Out) -> None:
    """List every run that was ever published, which one is shown, and which can be rolled back to."""
    with messages.failures():
        from scorelake.publish.snapshot import Output
        from scorelake.read.runs import lines

        messages.data("\n".join(lines(Output.at(out))))


@app.command()
def rollback(
    out: Out, run: Annotated[str, typer.Argument(help="A run that `scorelake runs OUT` lists as kept.")]
) -> None:
    """Show an earlier run again, until the next `score`."""
    with messages.failures():
        from scorelake.publish.publication import rollback as put_back
        from scorelake.publish.snapshot import Output

        with Output.at(out).held() as output:
            manifest = put_back(output, run)
        messages.say(f"shown is {manifest['run']['run_id']} again, until the next score")


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
        app(obj=GUARDED)
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


def _settings(
    lake: str, config: Path | None, engine: EngineName, column: list[str] | None = None, **flags: Any
) -> Settings:
    """Settings, and as many threads as they say where tasks run here: Polars asks once, when it is loaded."""
    from scorelake.lake.description import settings_of
    from scorelake.settings import mapped

    settings = settings_of(lake, config, **flags, **mapped(column or ()))
    if settings.run.threads and engine is EngineName.local:
        os.environ["POLARS_MAX_THREADS"] = str(settings.run.threads)
    return settings


def _suspects(
    lake: str, out: str, settings: Settings, full: bool
) -> list[tuple[str, Callable[[], int], Callable[[str], None]]]:
    """The files that may have ended the job: a name, a try to count it alone, and how to leave a verdict on it."""
    from functools import partial

    from scorelake import tasks
    from scorelake.publish.snapshot import Output
    from scorelake.run import suspects

    def tried(task: tasks.Count) -> int:
        with messages.failures(messages.Told()):
            tasks.count(task)
        return 0

    some = suspects(lake, Output.at(out, settings.storage), settings, full)
    return [(task.shard.files[0].path, partial(tried, task), partial(tasks.condemn, task)) for task in some]


def _part(shard: str) -> tuple[int, int]:
    """I/N as two numbers."""
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UsageError(f"no such part: {shard}", where="--shard", hint="from 1/N to N/N, such as 3/64")
    return int(number), int(of)
