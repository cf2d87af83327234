"""Commands about an output. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from scorelake import reporting
from scorelake.cli.app import AsJson, Names, Out, command
from scorelake.errors import UsageError
from scorelake.text import escape_control_lines, escape_controls

Metric = Annotated[str | None, Option(help="Metric to rank by. Default: pass@1, else avg@N.")]
PairMetric = Annotated[str | None, Option(help="Any metric that the lake allows. Default: pass@1, else avg@N.")]


@command
def compare(
    out: Out,
    model_a: Annotated[str, Argument(help="The model to compare against.")],
    model_b: Annotated[str, Argument(help="The model whose lift over A is computed.")],
    metric: PairMetric = None,
    benchmark: Annotated[str | None, Option(help="Only this benchmark.")] = None,
    protocol: Annotated[Names, Option(help="Only this protocol, such as temperature=0.2. Twice: of A, of B.")] = None,
    run: Annotated[Names, Option(help="A as of this run (number or id), B as published. Twice: of A, of B.")] = None,
) -> None:
    """Compare two models on the problems both attempted."""
    from scorelake.read import claim, session

    pair = claim.PairRequest(model_a, model_b, metric, benchmark, tuple(protocol or ()), tuple(run or ()))
    with session.reading(out) as folder:
        results = claim.compare_models(folder, out, pair)
    reporting.data("\n\n".join(escape_control_lines(result.text()) for result in results))


@command
def gate(
    out: Out,
    base: Annotated[str, Argument(help="The model to be held against.")],
    candidate: Annotated[str, Argument(help="The model that must not be worse.")],
    metric: PairMetric = None,
    margin: Annotated[float | None, Option(help="The fall that is still accepted. Default: 0.02.")] = None,
    benchmark: Annotated[Names, Option(help="Only this benchmark. Repeatable.")] = None,
    protocol: Annotated[Names, Option(help="Only this protocol. Twice: of the base, and of the candidate.")] = None,
    run: Annotated[Names, Option(help="The run of the base (number or id). Twice: also of the candidate.")] = None,
    superiority: Annotated[bool, Option("--superiority", help="The candidate must be better.")] = False,
    undecided: Annotated[
        Literal["pass", "fail"] | None, Option(help="Count undecided as this, instead of exit 7.")
    ] = None,
    calibration: Annotated[bool, Option(help="Measure error rates on halves of the attempts.")] = True,
    as_json: AsJson = False,
    junit: Annotated[Path | None, Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[Path | None, Option(help="Write a Markdown table to this file.")] = None,
) -> None:
    """Decide whether a model is not worse than another. Exit codes: 0 pass, 3 fail, 7 undecided."""
    from scorelake.read import claim, gate, session

    if superiority and margin is not None:
        raise UsageError("--superiority and --margin exclude each other", hint="a better model has no margin")
    fall = 0.0 if superiority else gate.MARGIN if margin is None else margin
    pair = claim.PairRequest(base, candidate, metric, None, tuple(protocol or ()), tuple(run or ()))
    with session.reading(out) as folder:
        result = gate.decide(folder, out, pair, fall, benchmark or (), calibration)
    verdict = undecided if undecided and result.verdict == "undecided" else result.verdict
    code = {"pass": 0, "fail": 3, "undecided": 7}[verdict]
    for path, text in ((junit, result.junit(undecided)), (markdown, result.markdown())):
        if path:
            path.write_text(text, encoding="utf-8")
    document = {"status": result.verdict, "exit_code": code, **result.document()}
    reporting.data(json.dumps(document) if as_json else escape_control_lines(result.text()))
    raise SystemExit(code)


@command
def plan(
    out: Out,
    question: Annotated[str, Option(help='"A vs B" (two models), "top 1", or "half-width 0.02".')] = "top 1",
    benchmark: Annotated[str | None, Option(help="Only this benchmark.")] = None,
    lift: Annotated[float | None, Option(help="The lift to find. Default: the one seen so far.")] = None,
    cost_per_problem: Annotated[
        float | None, Option(help="The cost of a new problem, as a multiple of an attempt's.")
    ] = None,
    work_list: Annotated[
        Path | None, Option(help="Write the attempts that are missing to this .csv, .jsonl or .parquet file.")
    ] = None,
    attempts: Annotated[int | None, Option(min=1, help="Attempts per problem of the work list.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan problems and attempts that answer a question about pass@1."""
    from scorelake.read import plan as planning
    from scorelake.read import session

    with session.reading(out) as folder:
        needs = planning.plan(folder, out, question, benchmark, lift, cost_per_problem)
        missing = planning.write_work_list(folder, work_list, attempts, benchmark) if work_list else 0
    document = {"status": "planned", "exit_code": 0, "needs": planning.document(needs)}
    text = "\n".join(escape_controls(need.text()) for need in needs)
    text = text or "No other ranked model could be the first: no rank is open."
    reporting.data(json.dumps(document) if as_json else text)
    if work_list:
        reporting.say(f"{missing:,} attempts are listed in {work_list}")


@command
def sql(
    out: Out,
    query: Annotated[str, Argument(help="Any SELECT over the tables and views.")],
    format: Annotated[Literal["table", "csv", "json"], Option(help="How to print the rows.")] = "table",  # noqa: A002
    spreadsheet: Annotated[bool, Option("--spreadsheet", help="CSV in which no cell can start a formula.")] = False,
) -> None:
    """Run one SQL query. It can read nothing but this output, and change nothing."""
    if spreadsheet and format == "json":
        raise UsageError("--spreadsheet is for CSV", hint="leave --format out")
    as_table = format == "table" and not spreadsheet
    from scorelake.read import session

    with session.reading(out) as folder:
        columns, rows = session.query(folder, query, limit=session.MAX_ROWS + 1 if as_table else None)
    if as_table:
        from scorelake.read import show

        show.print_rows(columns, rows[: session.MAX_ROWS])
        if len(rows) > session.MAX_ROWS:
            reporting.say(f"these are the first {session.MAX_ROWS:,} rows; --format csv prints them all")
    elif format == "json":
        reporting.data(session.to_json(columns, rows))
    else:
        text = session.to_csv(columns, rows, spreadsheet)
        reporting.data("\n".join(map(escape_controls, text.split("\n"))) if sys.stdout.isatty() else text)


@command
def check(
    out: Out,
    lake: Annotated[str | None, Option(help="The lake, if it is no longer where the run found it.")] = None,
) -> None:
    """Verify checksums and row accounting, and recount in SQL."""
    from scorelake.publish.snapshot import Output
    from scorelake.read import check as checking

    reporting.findings(checking.check(Output.at(out), lake), out)


@command
def gc(out: Out, keep: Annotated[int, Option(min=1, help="How many of the newest snapshots to keep.")] = 5) -> None:
    """Remove old snapshots and partial counts. History stays."""
    from scorelake.publish import publication, snapshot

    with snapshot.Output.at(out).held() as output:
        reporting.removed(publication.collect_garbage(output, keep))


@command
def runs(out: Out) -> None:
    """List all published runs, and which can be rolled back to."""
    from scorelake.publish import runs as published_runs
    from scorelake.publish import snapshot

    reporting.data("\n".join(published_runs.describe_runs(snapshot.Output.at(out))))


@command
def rollback(
    out: Out, run: Annotated[str, Argument(help="A run that `scorelake runs OUT` lists, by number or id.")]
) -> None:
    """Show an earlier run again, until the next `score`."""
    from scorelake.publish import publication, snapshot

    with snapshot.Output.at(out).held() as output:
        manifest = publication.rollback(output, run)
    run_id, number = manifest["run"]["run_id"], manifest["run"]["number"]
    reporting.say(f"Rolled back to run {number} ({run_id}). The next `score` replaces it.")


@command
def show(
    out: Out,
    metric: Metric = None,
    benchmark: Annotated[str | None, Option(help="Only this benchmark.")] = None,
    by_subject: Annotated[bool, Option("--by-subject", help="One table per subject.")] = False,
    by: Annotated[str | None, Option(help="One table per value of a column that was scored with --by.")] = None,
    top: Annotated[int | None, Option(min=1, help="Largest number of models per table.")] = None,
    series: Annotated[str | None, Option(help="Instead: the curve of this run over its steps.")] = None,
    measure: Annotated[str | None, Option(help="Instead: what attempts cost by this measure.")] = None,
    format: Annotated[  # noqa: A002
        Literal["table", "csv", "json", "markdown"], Option(help="How to print it.")
    ] = "table",
) -> None:
    """Print the leaderboard of one metric."""
    from scorelake.read import session, show

    column = "subject" if by is None and by_subject else by
    with session.reading(out) as folder:
        if series or measure:
            what = show.show_series if series else show.show_measure
            text = what(folder, series or measure or "", format)
        else:
            text = show.show_leaderboard(folder, metric, benchmark, column, top, format)
    if text is not None:
        typer.echo(text)


@command
def page(
    out: Out,
    html: Annotated[Path, Option(help="The file to write.")],
    metric: Metric = None,
    title: Annotated[str | None, Option(help="The heading. Default: the benchmarks.")] = None,
    problems: Annotated[
        Literal["ids", "numbers", "none"], Option(help="Problems by id, by number, or none.")
    ] = "ids",
    top: Annotated[int, Option(min=1, help="Models shown at first; all are in the page.")] = 50,
) -> None:
    """Write the leaderboard as one self-contained HTML page."""
    from scorelake.page.build import build_page
    from scorelake.read.session import reading
    from scorelake.storage.disk import replace_text

    if html.is_dir():
        raise UsageError("is a folder", where=f"--html {html}", hint="give the file to write, such as page.html")
    _refuse_ours(out, html)
    with reading(out) as folder:
        text = build_page(folder, metric, title, problems, top)
    replace_text(html, text)
    reporting.say(f"the page is in {html} ({len(text.encode()) / 1e6:.2f} MB)")


@command
def report(
    out: Out,
    metric: Metric = None,
    page: Annotated[
        str | None, Option(help="Address of the page. Default: OUT/leaderboard.html, if current.")
    ] = None,
) -> None:
    """Print a summary in Markdown, for a pull request or a chat."""
    from scorelake.read import report, session

    default_page = Path(out) / "leaderboard.html"
    with session.reading(out) as folder:
        address = page or (default_page.as_posix() if report.is_of(default_page, folder) else None)
        typer.echo(report.report(folder, metric, address), nl=False)


@command
def export(
    out: Out,
    directory: Annotated[Path, Argument(help="The folder to write to.")],
    format: Annotated[  # noqa: A002
        Literal["csv", "parquet", "xlsx", "eee"], Option(help="XLSX is one workbook; eee is Every Eval Ever.")
    ] = "csv",
) -> None:
    """Write the tables as files for other programs."""
    from scorelake.read import export, session

    _refuse_ours(out, directory)
    with session.reading(out) as folder:
        paths = export.write(folder, directory, format)
    reporting.say(f"wrote {', '.join(path.name for path in paths)} to {directory}")


@command
def publish(
    out: Out,
    postgres: Annotated[str, Option(help="postgresql://user@host/database, or service=name; no password.")],
    schema: Annotated[str, Option(help="The schema of the tables.")] = "scorelake",
    tables: Annotated[Names, Option("--with", help="Copy this large view too, such as problem_scores.")] = None,
) -> None:
    """Copy the tables to PostgreSQL, in one transaction."""
    from scorelake.read import postgres as database
    from scorelake.read import session

    with session.reading(out) as folder:
        target = database.publish(folder, postgres, schema, tables or ())
    reporting.say(f"published to {target}" if target else "the database has this run already: nothing to do")


def _refuse_ours(out: str, target: Path) -> None:
    """Raise if a target is among the files of an output."""
    from scorelake.publish.snapshot import PARTS
    from scorelake.storage.disk import MARK, is_marked, is_remote

    home = (Path(out) if Path(out).is_dir() else Path(out).parent).resolve()
    if is_remote(out) or not is_marked(home) or not target.resolve().is_relative_to(home):
        return
    inside = target.resolve().relative_to(home).parts
    if not inside or inside[0] in (*PARTS, MARK):
        raise UsageError("is part of the output itself", where=str(target), hint="choose another path")
