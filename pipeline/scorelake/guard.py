"""A process around the job: what a library does to it, an abort or a segmentation fault, ends only the child.

The child does the work and tells people about it. The parent waits, passes signals on, and learns how it ended.
Should the parent be killed, the child ends as well: a job whose caller is gone holds no lock.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from scorelake.errors import EndedError, StorageError

Suspect: TypeAlias = tuple[str, Callable[[], int], Callable[[str], object]]
"""A file's name, a try to count it alone, and how to leave a verdict on it."""
CRASHES = tuple(getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "TRAP"))
"""Signals by which a process ends through its own doing."""
AFTER_A_CRASH = "after_a_crash"
"""The attribute of a task that names another one, to be done instead where the first has ended its worker."""
Item = TypeVar("Item")
Result = TypeVar("Result")


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


def run_isolated(work: Callable[[bool], int], suspects: Callable[[bool], list[Suspect]], full: bool) -> int:
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
                condemn(crash_reason(-ended))
                found.append(name)
    if not found:
        told = signal.Signals(-code).name
        hint = "it may have had too little memory: try --memory" if -code == signal.SIGKILL else "please report this"
        raise StorageError(f"the job was ended by {told}; nothing was published", hint=hint)
    return in_child(lambda: work(False))


def crash_reason(number: int) -> str:
    """What is said of a file on which a process ended by this signal."""
    return f"reading it ends the process ({signal.Signals(number).name}): the file is damaged or encrypted"


def run_in_subprocess(task: Callable[[Item], Result], item: Item) -> Result:
    """What a task gives, done in a new process that ends with this one; EndedError if a signal ended it.

    New, and no fork: a worker of a cluster has threads that a fork would break.
    """
    ours, theirs = os.pipe()
    command = [sys.executable, "-c", f"from scorelake.guard import serve; serve({theirs})"]
    paths = os.pathsep.join(sys.path)
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[theirs], env={**os.environ, "PYTHONPATH": paths}
    )
    os.close(theirs)
    assert child.stdin is not None
    try:
        with os.fdopen(ours, "rb") as told, suppress(BrokenPipeError):
            pickle.dump((task, item), child.stdin)
            child.stdin.flush()
            answer = told.read()
        code = child.wait()
    except BaseException:
        child.send_signal(signal.SIGINT)  # it removes what it has half-written
        with suppress(subprocess.TimeoutExpired):
            child.wait(3)
        raise
    finally:
        child.kill()
        child.wait()
        with suppress(OSError):
            child.stdin.close()
    if code < 0:
        raise EndedError(f"the process that did it was ended by {signal.Signals(-code).name}")
    if code > 0:
        raise StorageError(f"the process that did it ended with exit code {code}", hint="please report this")
    done, result = pickle.loads(answer)
    if done:
        return result  # type: ignore[no-any-return]
    raise result


def serve(answer: int) -> None:
    """The other side of `apart`: a task and its item come in by stdin, what becomes of them goes out by the pipe."""
    task, item = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    try:
        told: tuple[bool, Any] = True, task(item)
    except Exception as error:
        told = False, error
    with os.fdopen(answer, "wb") as out:
        pickle.dump(told, out)
    os._exit(0)  # the thread that waits for the other side is in no hurry


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
