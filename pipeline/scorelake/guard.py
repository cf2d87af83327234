"""Run work in a child process, so that a crash of a library (abort, segmentation fault) ends only the child.

Arrow can end the process on a damaged file without checksums. If the parent is killed, the child ends too: a job
whose caller is gone holds no lock.
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
from typing import TypeAlias, TypeVar

from scorelake.errors import EndedError, StorageError

Candidate: TypeAlias = tuple[str, Callable[[], int], Callable[[str], object]]
"""The name of a file that may have caused a crash, a function that counts it, and one that quarantines it."""
CRASHES = tuple(getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "SEGV", "TRAP"))
"""Signals by which a process ends itself."""
AFTER_A_CRASH = "after_a_crash"
"""Attribute of a task: another task that replaces it after it has crashed its worker."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def run_isolated(work: Callable[[bool], int], candidates: Callable[[bool], list[Candidate]], full: bool) -> int:
    """Run the job in a child process and return its exit code.

    If it crashes, count the candidates one at a time, each in a child process; quarantine those that crash, and run
    the job once more.
    """
    code = _run_in_fork(lambda: work(full))
    if code >= 0:
        return code
    quarantined = 0
    for _, count, quarantine in candidates(full) if -code in CRASHES else ():
        ended = _run_in_fork(count)
        if -ended in CRASHES:
            quarantine(crash_reason(-ended))
            quarantined += 1
    if not quarantined:
        hint = (
            "too little memory is a likely cause: try --memory" if -code == signal.SIGKILL else "please report this"
        )
        raise StorageError(f"the job was ended by {signal.Signals(-code).name}; nothing was published", hint=hint)
    return _run_in_fork(lambda: work(False))


def crash_reason(number: int) -> str:
    """Return the reason to quarantine a file on which a process ended by this signal."""
    return f"reading it ends the process ({signal.Signals(number).name}): the file is damaged or encrypted"


def _run_in_fork(work: Callable[[], int]) -> int:
    """Run work in a fork and pass signals on; return its exit code, or the negative number of the signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        signal.signal(signal.SIGINT, _interrupt_once)
        Thread(target=_exit_with_parent, args=(read_end,), daemon=True).start()
        os._exit(_exit_code(work))
    os.close(read_end)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    handlers = {each: signal.signal(each, pass_on) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(write_end)
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


def _exit_with_parent(read_end: int) -> None:
    """Wait for the parent to end: only then is the other end of the pipe closed."""
    os.read(read_end, 1)
    os._exit(128 + signal.SIGKILL)


def run_in_subprocess(task: Callable[[Item], Result], item: Item) -> Result:
    """Run a task in a new process and return its result; raise EndedError if a signal ended it.

    Not a fork: a worker of a cluster has threads that a fork would break.
    """
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", f"from scorelake.guard import serve; serve({write_end})"],
        stdin=subprocess.PIPE,
        pass_fds=[write_end],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(write_end)
    assert child.stdin is not None
    try:
        with os.fdopen(read_end, "rb") as results, suppress(BrokenPipeError):
            pickle.dump((task, item), child.stdin)
            child.stdin.flush()
            data = results.read()
        code = child.wait()
    except BaseException:
        child.send_signal(signal.SIGINT)  # it removes its temporary files
        with suppress(subprocess.TimeoutExpired):
            child.wait(3)
        raise
    finally:
        child.kill()
        child.wait()
        with suppress(OSError):
            child.stdin.close()
    if code < 0:
        raise EndedError(f"the process was ended by {signal.Signals(-code).name}")
    if code > 0:
        raise StorageError(f"the process ended with exit code {code}", hint="please report this")
    is_error, result = pickle.loads(data)
    if is_error:
        raise result
    return result  # type: ignore[no-any-return]


def serve(write_end: int) -> None:
    """Run the task that comes by stdin, and write its result or error to a pipe; the child of `run_in_subprocess`."""
    task, item = pickle.load(sys.stdin.buffer)
    Thread(target=_exit_with_parent, args=(sys.stdin.fileno(),), daemon=True).start()
    try:
        answer = False, task(item)
    except Exception as error:
        answer = True, error
    with os.fdopen(write_end, "wb") as results:
        pickle.dump(answer, results)
    os._exit(0)  # do not wait for the thread
