"""Arguments -> one call per command. Messages and exit codes are in reporting."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress

from scorelake import reporting
from scorelake.cli import lakes, outputs, quick  # noqa: F401 - which register their commands
from scorelake.cli.app import app


def main() -> None:
    """Entry point; usage errors exit 2 like every other misuse."""
    code: list[int] = []
    atexit.register(_leave, code)  # first, so that it comes last
    try:
        app(obj=lakes.GUARDED)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            code.append(end.code or 0)
        explain = getattr(end.__context__, "format_message", None)  # wrong arguments, which Typer has printed
        if explain is not None and "--json" in sys.argv:
            reporting.data(json.dumps({"status": "failed", "exit_code": end.code, "error": explain()}))
        raise
    code.append(0)


def _leave(code: list[int]) -> None:
    """When everything else is done, end at once, without taking the interpreter apart.

    obstore's threads may still want the interpreter meanwhile, and then they abort the process. (It saves no time:
    5.8 s with and without it, for 10 million attempts.) Without a code something unforeseen has happened, and the
    interpreter says what.
    """
    if code:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code[0])
