"""The application, and arguments that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Argument, Option

from scorelake import __version__, reporting

# Before numpy is loaded. On a busy machine the threads of OpenBLAS wait twenty times longer for each other than one
# thread takes for the only matrix product of the job.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Searching all installed packages for plugins is most of pydantic's import time; there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

Names = list[str] | None
GUARDED = "guarded"
"""Set by the entry point: the job runs in a child process, so that a file that crashes it can be named."""

app = typer.Typer(
    name="scorelake",
    help="Turn LLM evaluation logs into leaderboards with confidence intervals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


Out = Annotated[str, Argument(help="The output of `score`: a folder, or s3://, gs://, az://.")]
_COLUMN = "Map a column, such as model=model_name. Repeatable; a repeated key joins its columns."
_WINDOW = "Only the newest rows: date=7d, date=2026-11-01 (since), or run=3."
_MEASURE = "A column of what attempts cost, such as cost_usd=cost. Kinds: cost, tokens, time. Repeatable."
Columns = Annotated[Names, Option("--column", metavar="KEY=NAME", help=_COLUMN)]
Window = Annotated[str | None, Option(metavar="COLUMN=LENGTH", help=_WINDOW)]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document to stdout, also on errors.")]
Measures = Annotated[Names, Option("--measure", metavar="NAME=KIND", help=_MEASURE)]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command. Errors that users can cause become one message and an exit code; with --json a document."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> None:
        with reporting.failures(reporting.CommandOutput(options.get("as_json", False))):
            function(*args, **options)

    return app.command()(run)


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        print(__version__)
        raise typer.Exit
