"""Run work in a child process, since Arrow can end the process on a damaged file. The child ends with its parent."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from types import FrameType
from typing import TypeVar

from scorelake.errors import EndedError, StorageError

CRASHES = tuple(getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "TRAP"))
"""Signals by which a process ends itself."""
AFTER_A_CRASH = "after_a_crash"
"""Attribute of a task: another task that replaces it after it has crashed its worker."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_isolated(work: Callable[[bool], int], quarantine: Callable[[], int], full: bool) -> int:
    """Run the job in a child process; after a crash, quarantine the files that crash a child, and run it again."""
    code = _run_in_fork(lambda: work(full))
    if code >= 0:
        return code
    if -code not in CRASHES or not quarantine():
        short = "too little memory is a likely cause: try --memory"
        hint = short if -code == signal.SIGKILL else "please report this"
        raise StorageError(f"the job was ended by {signal.Signals(-code).name}; nothing was published", hint=hint)
    return _run_in_fork(lambda: work(False))


def crash_reason(number: int) -> str:
    """Return the reason to quarantine a file on which a process ended by this signal."""
    return f"reading it ends the process ({signal.Signals(number).name}): the file is damaged or encrypted"


def _run_in_fork(work: Callable[[], int]) -> int:
    """Run work in a fork and pass signals on; return its exit code, or the negative number of the signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, _interrupt_once)
        Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
        os._exit(_exit_code(work))

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    handlers = {each: signal.signal(each, pass_on) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _exit_code(work: Callable[[], int]) -> int:
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


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """Ignore the second SIGINT: a terminal interrupts both processes, and the parent passes its own on."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(128 + signal.SIGKILL)


def run_in_subprocess(task: Callable[[Item], Result], item: Item) -> Result:
    """Run a task in a new process (no fork: workers have threads); raise EndedError if a signal ended it."""
    command = [sys.executable, "-c", f"from scorelake.guard import serve; serve({os.getpid()})"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as child:
        try:
            data, _ = child.communicate(pickle.dumps((task, item)))
        except BaseException:
            child.send_signal(signal.SIGINT)  # it removes its temporary files
            with suppress(subprocess.TimeoutExpired):
                child.wait(3)
            child.kill()
            raise
    if child.returncode < 0:
        raise EndedError(f"the process was ended by {signal.Signals(-child.returncode).name}")
    if child.returncode > 0:
        raise StorageError(f"the process ended with exit code {child.returncode}", hint="please report this")
    is_error, result = pickle.loads(data)
    if is_error:
        raise result
    return result  # type: ignore[no-any-return]


def serve(parent: int) -> None:
    """Run the task that comes by stdin, and write its result or error to stdout; the child of `run_in_subprocess`."""
    Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the task prints is no result
    task, item = pickle.load(sys.stdin.buffer)
    try:
        answer = False, task(item)
    except Exception as error:
        answer = True, error
    with results:
        pickle.dump(answer, results)
    os._exit(0)  # do not wait for the thread
