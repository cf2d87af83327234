"""The command line: each command parses its arguments and makes one call. Messages are in reporting."""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress

from scorelake import reporting
from scorelake.cli import lakes, outputs, quick  # noqa: F401 - which register their commands
from scorelake.cli.app import GUARDED, app


def main() -> None:
    """Run a command and exit with its code."""
    code: list[int] = []
    atexit.register(_leave, code)  # first, so that it comes last
    try:
        app(obj=GUARDED)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            code.append(end.code or 0)
        explain = getattr(end.__context__, "format_message", None)  # wrong arguments, which Typer has printed
        if explain is not None and "--json" in sys.argv:
            reporting.data(json.dumps({"status": "failed", "exit_code": end.code, "error": explain()}))
        raise
    code.append(0)


def _leave(code: list[int]) -> None:
    """Exit without finalizing the interpreter, which threads of obstore may still use; without a code after a bug."""
    if code:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code[0])
