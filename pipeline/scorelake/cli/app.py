"""The application, and arguments that several commands share."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from scorelake import __version__

# Before numpy is loaded. On a busy machine the threads of OpenBLAS wait twenty times longer for each other than one
# thread takes for the only matrix product of the job.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Searching all installed packages for plugins is most of pydantic's import time; there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="scorelake",
    help="Turn LLM evaluation logs into leaderboards with confidence intervals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


Out = Annotated[str, typer.Argument(help="The output of `score`: a folder, or s3://, gs://, az://.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="KEY=NAME",
        help="Map a column, such as model=model_name. Repeatable; a repeated key joins its columns.",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(metavar="COLUMN=LENGTH", help="Only the newest rows: date=7d, date=2026-11-01 (since), or run=3."),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="NAME=KIND",
        help="A column of what attempts cost, such as cost_usd=cost. Kinds: cost, tokens, time. Repeatable.",
    ),
]


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        print(__version__)
        raise typer.Exit
