"""A process around the job: what a library does to it, an abort or a segmentation fault, ends only the child.

The child does the work and tells people about it. The parent waits, passes signals on, and learns how it ended.
Should the parent be killed, the child ends as well: a job whose caller is gone holds no lock.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import TypeAlias

from scorelake.errors import StorageError

Suspect: TypeAlias = tuple[str, Callable[[], int], Callable[[str], None]]
"""A file's name, a try to count it alone, and how to leave a verdict on it."""
CRASHES = tuple(getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "TRAP"))
"""Signals by which a process ends through its own doing."""


def in_child(work: Callable[[], int]) -> int:
    """Do the work in a child: its exit code, or the number of the signal that ended it, negative."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        signal.signal(signal.SIGINT, _once)
        Thread(target=_end_with, args=(ours,), daemon=True).start()
        os._exit(_done(work))
    os.close(ours)
    passed = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _passing_on(child)) for number in passed}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(theirs)
        for number, handler in before.items():
            signal.signal(number, handler)


def surviving(work: Callable[[bool], int], suspects: Callable[[bool], list[Suspect]], full: bool) -> int:
    """The exit code of the work, done in a child. If that crashes, files are tried one at a time, each in a child of
    its own; those that crash it get their verdict, and the work is done once more."""
    code = in_child(lambda: work(full))
    if code >= 0:
        return code
    found = []
    if -code in CRASHES:
        for name, tried, condemn in suspects(full):
            ended = in_child(tried)
            if -ended in CRASHES:
                condemn(
                    f"reading it ends the process ({signal.Signals(-ended).name}): the file is damaged or encrypted"
                )
                found.append(name)
    if not found:
        told = signal.Signals(-code).name
        hint = "it may have had too little memory: try --memory" if -code == signal.SIGKILL else "please report this"
        raise StorageError(f"the job was ended by {told}; nothing was published", hint=hint)
    return in_child(lambda: work(False))


def _done(work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _once(number: int, frame: FrameType | None) -> None:
    """A terminal interrupts both, and the parent passes its own on: once is enough."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with(parent: int) -> None:
    """The other end of the pipe is closed only when the parent is gone."""
    os.read(parent, 1)
    os._exit(128 + signal.SIGKILL)


def _passing_on(child: int) -> Callable[[int, FrameType | None], None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    return pass_on
