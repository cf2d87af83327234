"""Commands that turn published tables into something to look at: show, page, report, export.

Heavy libraries are imported by the command that needs them, so that --help is instant.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scorelake import reporting
from scorelake.cli.app import Out, app
from scorelake.errors import UsageError

Metric = Annotated[str | None, typer.Option(help="Which metric to rank by. Default: pass@1, else avg@N.")]


class Form(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"


class Kind(StrEnum):
    csv = "csv"
    parquet = "parquet"
    xlsx = "xlsx"


class Naming(StrEnum):
    ids = "ids"
    numbers = "numbers"
    none = "none"


@app.command()
def show(
    out: Out,
    metric: Metric = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    by_subject: Annotated[bool, typer.Option("--by-subject", help="One table per subject.")] = False,
    by: Annotated[str | None, typer.Option(help="One table per value of a column that was scored with --by.")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only so many models of each table.")] = None,
    format: Annotated[Form, typer.Option(help="How to print it.")] = Form.table,  # noqa: A002
) -> None:
    """Print the leaderboard of one metric."""
    with reporting.failures():
        from scorelake.read.session import reading
        from scorelake.read.show import show_leaderboard

        column = "subject" if by is None and by_subject else by
        with reading(out) as folder:
            text = show_leaderboard(folder, metric, benchmark, column, top, format.value)
        if text is not None:
            typer.echo(text)


@app.command()
def page(
    out: Out,
    html: Annotated[Path, typer.Option(help="The file to write.")],
    metric: Metric = None,
    title: Annotated[str | None, typer.Option(help="The heading. Default: the benchmarks.")] = None,
    problems: Annotated[
        Naming, typer.Option(help="Problems by their ids, by numbers, or (for private sets) none.")
    ] = Naming.ids,
    top: Annotated[int, typer.Option(min=1, help="Models shown at first; all are in the page.")] = 50,
) -> None:
    """Write the leaderboard as one self-contained page, for mail, a phone or a projector."""
    with reporting.failures():
        from scorelake.page.build import build_page
        from scorelake.read.session import reading
        from scorelake.storage.disk import replace_text

        if html.is_dir():
            raise UsageError("is a folder", where=f"--html {html}", hint="give the file to write, such as page.html")
        _refuse_ours(out, html)
        with reading(out) as folder:
            text = build_page(folder, metric, title, problems.value, top)
        replace_text(html, text)
        reporting.say(f"the page is in {html} ({len(text.encode()) / 1e6:.2f} MB)")


@app.command()
def report(
    out: Out,
    metric: Metric = None,
    page: Annotated[
        str | None,
        typer.Option(help="The address of the page, to link to. Default: OUT/leaderboard.html, if current."),
    ] = None,
) -> None:
    """Print one page of Markdown for a pull request or a chat: verdict, top ten, movers, warnings."""
    with reporting.failures():
        from scorelake.read.report import is_of
        from scorelake.read.report import report as written
        from scorelake.read.session import reading

        default_page = Path(out) / "leaderboard.html"
        with reading(out) as folder:
            address = page or (default_page.as_posix() if is_of(default_page, folder) else None)
            typer.echo(written(folder, metric, address), nl=False)


@app.command()
def export(
    out: Out,
    directory: Annotated[Path, typer.Argument(help="The folder to write to.")],
    format: Annotated[Kind, typer.Option(help="CSV cells never start a formula; XLSX is one workbook.")] = Kind.csv,  # noqa: A002
) -> None:
    """Write the tables as files for other programs, at full precision."""
    with reporting.failures():
        from scorelake.read.export import write
        from scorelake.read.session import reading

        _refuse_ours(out, directory)
        with reading(out) as folder:
            paths = write(folder, directory, format.value)
        reporting.say(f"wrote {', '.join(path.name for path in paths)} to {directory}")


def _refuse_ours(out: str, target: Path) -> None:
    """Raise if something would be written among the files that an output consists of."""
    from scorelake.publish.snapshot import PARTS
    from scorelake.storage.disk import MARK, is_marked, is_remote

    home = (Path(out) if Path(out).is_dir() else Path(out).parent).resolve()
    if is_remote(out) or not is_marked(home) or not target.resolve().is_relative_to(home):
        return
    inside = target.resolve().relative_to(home).parts
    if not inside or inside[0] in (*PARTS, MARK):
        raise UsageError("is part of the output itself", where=str(target), hint="give another place to write to")
