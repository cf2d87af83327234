"""Commands that read or make a lake. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from scorelake import guard, reporting
from scorelake.cli.app import GUARDED, AsJson, Columns, Measures, Names, Window, app, command
from scorelake.errors import ScorelakeError, UsageError
from scorelake.storage.disk import is_remote, replace_text

if TYPE_CHECKING:
    from scorelake.lake.listing import LakeListing
    from scorelake.settings import Settings

CONFIG = "scorelake.toml"
"""The name of a config that is found without --config."""
Lake = Annotated[str, Argument(help="Folder of Parquet files, or one file; also s3://, gs://, az://.")]
Config = Annotated[Path | None, Option(help="Settings in TOML. Default: scorelake.toml here or beside the lake.")]
Rule = Literal["fail", "ungraded"]


@app.command()
def score(
    context: typer.Context,
    lake: Lake,
    out: Annotated[str, Option(help="Folder of the leaderboard; also s3://, gs://, az://.")],
    metrics: Annotated[str | None, Option(help="Such as pass@1,bayes@N, or all. Default: about 15.")] = None,
    config: Config = None,
    column: Columns = None,
    measure: Measures = None,
    window: Window = None,
    by: Annotated[Names, Option(help="Also report by this column. Repeatable.")] = None,
    memory: Annotated[float | None, Option(help="Gigabytes to aim at. Default: half of the machine.")] = None,
    engine: Annotated[Literal["local", "ray"], Option(help="Run in this process or on a Ray cluster.")] = "local",
    address: Annotated[str | None, Option(help="Address of the Ray cluster: host:port, or auto.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Check the files and columns without scoring.")] = False,
    full: Annotated[bool, Option("--full", help="Recount every file.")] = False,
    allow_quarantine: Annotated[bool, Option("--allow-quarantine", help="Leave unreadable files out.")] = False,
    allow_empty: Annotated[bool, Option("--allow-empty", help="Publish even if a metric loses all values.")] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, Option("--quiet", help="Print only warnings and errors.")] = False,
    metrics_file: Annotated[Path | None, Option(help="Write a Prometheus textfile here, also on errors.")] = None,
    scores: Annotated[bool, Option("--scores", help="Add the [gates] metric of every model to it.")] = False,
) -> None:
    """Score a lake and publish the results. Incremental: without changes nothing is published."""
    output = reporting.CommandOutput(as_json, None if dry_run else out, lake, metrics_file, scores, quiet)
    options: dict[str, Any] = {"dry_run": dry_run, "allow_quarantine": allow_quarantine, "allow_empty": allow_empty}
    given: dict[str, Any] = {"config": config, "metrics": metrics or "", "by": tuple(by or ()), "memory": memory}
    given |= {"measures": measure, "window": window}

    def settings() -> Settings:
        return load_settings(lake, column, out, engine, quiet, **given)

    def work(full: bool) -> None:
        chosen = settings()  # before Polars is loaded, which reads its number of threads
        from scorelake import pipeline

        with reporting.progress_bar(quiet) as progress:
            report = pipeline.run_score(lake, out, chosen, engine, address, full=full, progress=progress, **options)
        output.done(report)

    run_job(context.obj == GUARDED and engine == "local", work, settings, lake, out, output, full)


@command
def init(
    lake: Lake,
    config: Annotated[Path, Option(help="The file to write.")] = Path(CONFIG),
    force: Annotated[bool, Option("--force", help="Overwrite that file.")] = False,
) -> None:
    """Infer the columns of a lake, and write a commented config."""
    if config.exists() and not force:
        raise UsageError("exists already", where=str(config), hint="--force overwrites it, --config names another")
    from scorelake import settings, tasks
    from scorelake.lake.description import described

    if described(lake, settings.PATIENCE):
        reporting.say(f"note: {lake} has its own column mapping: `score` needs no config, and a config overrides it")
    listed = write_inferred_config(lake, config)
    tasks.refuse_misfits(listed.root, listed.files, settings.load(config), lake, every_file=True)
    print(f"next: {reporting.score_command(lake, config)}")


@command
def ingest(
    format: Annotated[str, Argument(help="auto, or the tool that wrote the files; docs/ingest.md lists them.")],  # noqa: A002
    sources: Annotated[list[str], Argument(help="Files and folders of results.")],
    lake: Annotated[str, Option(help="Folder to which the attempts are added.")],
    model: Annotated[str | None, Option(help="The model, where the files do not name it.")] = None,
    benchmark: Annotated[str | None, Option(help="The benchmark, where the files do not name it.")] = None,
    subject: Annotated[str | None, Option(help="The subject, or for Inspect metadata.KEY.")] = None,
    scorer: Annotated[
        Names, Option(help="Inspect: SCORER or SCORER.KEY. prime-rl: agent. Repeatable, also TASK=SCORER.")
    ] = None,
    filter: Annotated[  # noqa: A002
        Names, Option(help="lm-eval: which filter's verdicts. Or TASK=FILTER. Repeatable.")
    ] = None,
    metric: Annotated[Names, Option(help="Which metric or reward. Or TASK=METRIC. Repeatable.")] = None,
    split: Annotated[str | None, Option(help="HELM: which split.")] = None,
    map: Annotated[Names, Option(help="KEY=THEIRS, such as passed=correct. Repeatable.")] = None,  # noqa: A002
    true: Annotated[Names, Option(help="A text that means passed. Repeatable.")] = None,
    threshold: Annotated[float | None, Option(help="Lowest reward that counts as passed.")] = None,
    errors: Annotated[
        Rule | None, Option(help="How attempts without a verdict count. Default: as in the tool.")
    ] = None,
    missing: Annotated[Rule | None, Option(help="SWE-bench: problems that were never attempted.")] = None,
    protocol_ignore: Annotated[Names, Option(help="Settings that are not part of the protocol.")] = None,
    memory: Annotated[float | None, Option(help="Gigabytes to keep to. Default: half of the machine.")] = None,
    skip_refused: Annotated[bool, Option("--skip-refused", help="Skip refused files instead of failing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert logs of other tools into a lake. Every file gets a report."""
    if memory is not None and not memory > 0:
        raise UsageError("must be above 0", where="--memory")
    from scorelake.ingest import contract, job

    names = {"model": model, "benchmark": benchmark, "subject": subject, "split": split, "threshold": threshold}
    choices = {"scorer": scorer, "filter": filter, "metric": metric, "errors": errors, "missing": missing}
    options = contract.IngestOptions.parse(**names, **choices, map=map, true=true, ignore=protocol_ignore)
    with reporting.progress_bar() as progress:
        report = job.ingest(sources, lake, format, options, skip_refused, progress, memory)
    reporting.ingested(report, reporting.CommandOutput(as_json))


@app.command()
def count(
    context: typer.Context,
    lake: Lake,
    out: Annotated[str, Option(help="The output of `score`.")],
    shard: Annotated[str, Option(help="Which part of the lake: 3/64 is the third of 64.")],
    config: Config = None,
    column: Columns = None,
    by: Annotated[Names, Option(help="Slices, the same as for `score`. Repeatable.")] = None,
    memory: Annotated[float | None, Option(help="Gigabytes to aim at: the same for every part.")] = None,
) -> None:
    """Count one part of a lake for a later `score`. Parts may run in parallel, on any machine."""

    def settings() -> Settings:
        return load_settings(lake, column, out, config=config, by=tuple(by or ()), memory=memory)

    def work(_: bool) -> None:
        number, of = part_of(shard)
        chosen = settings()
        from scorelake import pipeline
        from scorelake.publish.snapshot import Output

        with reporting.progress_bar() as progress:
            partials = pipeline.count_part(lake, Output.at(out, chosen.storage), chosen, number, of, progress)
        reporting.counted(partials, number, of)

    run_job(context.obj == GUARDED, work, settings, lake, out)


@command
def synth(
    lake: Annotated[str, Argument(help="A new or empty folder.")],
    models: Annotated[int, Option(help="Number of models.")] = 5,
    problems: Annotated[int, Option(help="Number of problems.")] = 200,
    attempts: Annotated[int, Option(help="Largest number of attempts per model and problem.")] = 16,
    seed: Annotated[int, Option(help="Same seed, same lake.")] = 0,
    layout: Annotated[
        Literal["clustered", "shuffled"], Option(help="clustered: a folder per model; shuffled: by date.")
    ] = "clustered",
    subjects: Annotated[int, Option(help="Number of subjects, up to 10.")] = 5,
    ragged: Annotated[bool, Option(help="n varies between half of --attempts and all of it.")] = True,
    ungraded: Annotated[float, Option(help="Share of attempts without a verdict.")] = 0.01,
    rewards: Annotated[bool, Option("--rewards", help="Also a continuous score per attempt.")] = False,
    files: Annotated[int | None, Option(help="Number of files.")] = None,
    steps: Annotated[int, Option(help="Checkpoints of each model, in the column step.")] = 0,
    costs: Annotated[bool, Option("--costs", help="Also the column cost_usd.")] = False,
) -> None:
    """Generate a realistic lake for experiments."""
    from scorelake import synth as maker

    if is_remote(lake):
        raise UsageError("synth writes to a disk", where=lake, hint="make the lake here, then upload it")
    shape = models, problems, attempts, seed, layout, subjects, ragged, ungraded, rewards, files, steps, costs
    total = maker.write(Path(lake), maker.Plan(*shape))
    reporting.say(f"{total:,} attempts of {models} models on {problems:,} problems in {lake}")
    named = " --column step=step" * bool(steps) + " --measure cost_usd=cost" * costs
    reporting.say(f"next: scorelake score {shlex.quote(lake)} --out out{named}")


def find_config(lake: str) -> Path | None:
    """Return the config in the working folder, else in the folder of the lake or beside it."""
    folders = [Path()] if is_remote(lake) else [Path(), Path(lake), Path(lake).parent]
    return next((folder / CONFIG for folder in folders if (folder / CONFIG).is_file()), None)


def write_inferred_config(lake: str, config: Path) -> LakeListing:
    """Infer the columns of a lake, print them and write them to a config; return the listing of the lake."""
    from scorelake.lake import infer, listing, sample
    from scorelake.settings import Settings

    listed = listing.listing(lake)
    sampled = sample.sample_lake(listed, Settings())
    inferred = infer.infer_config(sampled)
    replace_text(config, infer.config_text(inferred, lake))
    reporting.inferred(inferred, sampled, lake, config)
    return listed


def published_settings(out: str) -> Settings | None:
    """Return the settings of the published run of an output on a disk; None if there is none."""
    from scorelake.publish.snapshot import Output, stored_settings

    with suppress(ScorelakeError):  # `score` itself reports what is wrong with the output
        if not is_remote(out) and Path(out).is_dir() and (manifest := Output.at(out).current()) is not None:
            return stored_settings(manifest)
    return None


def changed_settings(before: Settings, now: Settings) -> list[str]:
    """Return what differs of the settings that scores depend on: keys, with the value of `before`."""
    from scorelake.publish.runs import flatten_settings

    trees = [{**each.counting(), **each.scoring(), "gates": each.gates.model_dump()} for each in (before, now)]
    old, new = (dict(flatten_settings(tree)) for tree in trees)
    moving = "window.since" if now.window.last else ""
    return [f"{key} = {value}" for key, value in old.items() if new.get(key) != value and key != moving]


def load_settings(
    lake: str, column: Names, out: str, engine: str = "local", quiet: bool = False, **arguments: Any
) -> Settings:
    """Return the settings of `score`. Polars reads its number of threads once, when it is loaded."""
    from scorelake.lake.description import described, mapped, measured, settings_for

    say = (lambda text: None) if quiet else reporting.say
    if arguments.get("config") is None and (config := find_config(lake)):
        say(f"using {config}")
        arguments["config"] = config
    arguments["measures"] = measured(arguments.get("measures") or ())
    settings = settings_for(lake, columns=mapped(column or ()), **arguments)
    before = published_settings(out)
    if before is not None and (changed := ", ".join(changed_settings(before, settings))):
        is_given = column or any(arguments.get(name) for name in ("config", "metrics", "by", "measures", "window"))
        if is_given or described(lake, settings.storage):
            say(f"settings changed since the last run of {out}, which had {changed}")
        else:
            say(f"using the settings of the last run of {out}: {changed} (--config overrides them)")
            settings = before.model_copy(update={"run": settings.run, "storage": settings.storage})
    if settings.run.threads and engine == "local":
        os.environ["POLARS_MAX_THREADS"] = str(settings.run.threads)
    return settings


def run_job(
    is_guarded: bool,
    work: Callable[[bool], None],
    settings: Callable[[], Settings],
    lake: str,
    out: str,
    output: reporting.CommandOutput | None = None,
    full: bool = False,
) -> None:
    """Run a job here, or in a child process so that a file that crashes it can be found."""

    def reported(full: bool) -> int:
        with reporting.failures(output):
            work(full)
        return 0

    def quarantine() -> int:
        from scorelake import stages
        from scorelake.publish.snapshot import Output

        chosen = settings()
        return stages.quarantine_crashing_files(lake, Output.at(out, chosen.storage), chosen, full)

    if not is_guarded:
        reported(full)
        return
    with reporting.failures(output):
        code = guard.run_isolated(reported, quarantine, full)
    raise typer.Exit(code)


def part_of(shard: str) -> tuple[int, int]:
    """Parse I/N."""
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UsageError(f"no such part: {shard}", where="--shard", hint="from 1/N to N/N, such as 3/64")
    return int(number), int(of)
