"""A task in a process of its own: what it gives, what it raises, and what ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scorelake.errors import DataError, EndedError, StorageError
from scorelake.guard import run_in_subprocess


def test_what_a_task_gives_and_raises() -> None:
    assert run_in_subprocess(sorted, [3, 1, 2]) == [1, 2, 3]
    assert run_in_subprocess(len, b"x" * 10_000_000) == 10_000_000
    with pytest.raises(FileNotFoundError, match="/no/such/folder"):
        run_in_subprocess(os.listdir, "/no/such/folder")
    with pytest.raises(DataError, match="where it is: five") as caught:
        run_in_subprocess(_raise, ("five", "where it is"))
    assert caught.value.exit_code == 3


def _raise(arguments: tuple[str, str]) -> None:
    raise DataError(arguments[0], where=arguments[1])


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_what_ends_its_process(number: signal.Signals) -> None:
    with pytest.raises(EndedError) as caught:
        run_in_subprocess(signal.raise_signal, number)
    assert caught.value.number == number
    assert f"ended by {number.name}" in caught.value.what


def test_a_process_that_ends_without_a_word() -> None:
    with pytest.raises(StorageError, match="exit code 7"):
        run_in_subprocess(os._exit, 7)


def test_it_ends_with_the_one_that_waits(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from scorelake.guard import run_in_subprocess\n"
        "run_in_subprocess(os.system, 'echo $PPID > aside; mv aside pid; exec sleep 10')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    assert child != parent.pid
    parent.kill()
    parent.wait()
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split(")")[1]:
        assert time.monotonic() < until
        time.sleep(0.05)
