"""The command line in a process of its own that need not load libraries again: most of what a short command takes.

A server that has loaded the libraries of others, and none of our modules, forks a process for every call. That is
`python -m scorelake` but for these libraries. Where the environment is not the one that the server began with, or
anything else is asked for, it is a new interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_CHANGING = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _CHANGING}


LIBRARIES = [
    *("duckdb", "jinja2", "numpy", "polars", "pyarrow.parquet", "pydantic", "rich.console", "scipy.special", "typer"),
]


class Server:
    """Started with the first of its calls."""

    def __init__(self) -> None:
        import pytest  # not in the processes that are forked, which load this module

        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(LIBRARIES)
        self.began_with = environment()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENBLAS_NUM_THREADS", "1")  # as the command line has it before it loads numpy
            first = self.context.Process(target=os.getpid)
            first.start()
            first.join()

    def call(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        command = [sys.executable, "-m", "scorelake", *words]
        if set(options) - {"cwd"} or environment() != self.began_with:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)
        with tempfile.TemporaryDirectory() as home:
            out, err = Path(home, "out"), Path(home, "err")
            cwd = str(options.get("cwd") or Path.cwd())
            child = self.context.Process(target=command_line, args=(words, cwd, str(out), str(err)))
            child.start()
            child.join(120)
            if child.exitcode is None:
                child.kill()
                raise subprocess.TimeoutExpired(command, 120)
            return subprocess.CompletedProcess(command, child.exitcode, out.read_text(), err.read_text())


def command_line(words: list[str], cwd: str, out: str, err: str) -> None:
    """In the new process: what is printed goes to files."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.chdir(cwd)
    sys.argv[1:] = words
    runpy.run_module("scorelake", run_name="__main__", alter_sys=True)
