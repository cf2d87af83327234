"""Commands about an output: compare, sql, check, gc, runs, rollback.

Heavy libraries are imported by the command that needs them, so that --help is instant.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

import scorelake
from scorelake import reporting
from scorelake.cli.app import Out, app
from scorelake.errors import UsageError
from scorelake.text import escape_controls


class Format(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


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
    """Compare two models on the problems both attempted."""
    with reporting.failures():
        with scorelake.open(out) as board:
            comparison = board.compare(model_a, model_b, metric, benchmark, tuple(protocol or ()), tuple(run or ()))
        reporting.data(str(comparison))


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
    with reporting.failures():
        if spreadsheet and format is Format.json:
            raise UsageError("--spreadsheet is for CSV", hint="leave --format out")
        as_table = format is Format.table and not spreadsheet
        from scorelake.read import session

        with scorelake.open(out) as board:
            columns, rows = board.rows(query, limit=session.MAX_ROWS + 1 if as_table else None)
        if as_table:
            from scorelake.read import show as pages

            pages.print_rows(columns, rows[: session.MAX_ROWS])
            if len(rows) > session.MAX_ROWS:
                reporting.say(f"these are the first {session.MAX_ROWS:,} rows; --format csv prints them all")
        elif format is Format.json:
            reporting.data(session.to_json(columns, rows))
        else:
            text = session.to_csv(columns, rows, spreadsheet)
            reporting.data("\n".join(map(escape_controls, text.split("\n"))) if sys.stdout.isatty() else text)


@app.command()
def check(
    out: Out,
    lake: Annotated[str | None, typer.Option(help="The lake, if it is no longer where the run found it.")] = None,
) -> None:
    """Verify checksums and row accounting, and recount the lake independently in SQL."""
    with reporting.failures():
        from scorelake.publish.snapshot import Output
        from scorelake.read import check as checking

        reporting.findings(checking.check(Output.at(out), lake), out)


@app.command()
def gc(
    out: Out, keep: Annotated[int, typer.Option(min=1, help="How many of the newest snapshots to keep.")] = 5
) -> None:
    """Remove old snapshots, and partial counts that no kept snapshot uses. History stays."""
    with reporting.failures():
        from scorelake.publish.publication import collect_garbage
        from scorelake.publish.snapshot import Output

        with Output.at(out).held() as output:
            reporting.removed(collect_garbage(output, keep))


@app.command()
def runs(out: Out) -> None:
    """List every run that was ever published, which one is shown, and which can be rolled back to."""
    with reporting.failures():
        from scorelake.publish.runs import describe_runs
        from scorelake.publish.snapshot import Output

        reporting.data("\n".join(describe_runs(Output.at(out))))


@app.command()
def rollback(
    out: Out, run: Annotated[str, typer.Argument(help="A run that `scorelake runs OUT` lists as kept.")]
) -> None:
    """Show an earlier run again, until the next `score`."""
    with reporting.failures():
        from scorelake.publish.publication import rollback as put_back
        from scorelake.publish.snapshot import Output

        with Output.at(out).held() as output:
            manifest = put_back(output, run)
        reporting.say(f"Rolled back to {manifest['run']['run_id']}. The next `score` replaces it.")
