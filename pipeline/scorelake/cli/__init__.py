"""Arguments -> one call per command. What is told of it, and how, is in messages."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from scorelake.cli import lakes, outputs, pages  # noqa: F401 - which register their commands
from scorelake.cli.app import app


def main() -> NoReturn:
    """Entry point; usage errors exit 2 like every other misuse."""
    try:
        app(obj=lakes.GUARDED)
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
