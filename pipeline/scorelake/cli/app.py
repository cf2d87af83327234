"""The command itself: what is said once for all commands, and the arguments that several have."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from scorelake import __version__

# Said before numpy is loaded. There is one product of matrices in the job; on a busy machine the threads of the
# linear algebra library wait for each other twenty times longer than one thread takes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Looking for plugins in every installed package is most of the time that pydantic takes to load; there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="scorelake",
    help="From a lake of LLM evaluation attempts to score tables you query with DuckDB.",
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
        help="Which column is meant, such as model=model_name. Repeatable; a key that is repeated joins its columns.",
    ),
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
