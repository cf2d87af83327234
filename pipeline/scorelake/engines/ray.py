"""Run tasks on a Ray cluster, and again elsewhere if their worker or node is lost.

Only task descriptions and small results pass through the driver; lake and output are on storage that every node sees.
A task may run twice: its output is written to a temporary path and renamed. Attempts are counted here, since Ray's
own retries have no limit: after its memory monitor killed a worker, Ray 2.60 repeats a task forever, whatever
`max_retries` is.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import polars as pl
import ray

from scorelake.errors import ClusterError, EndedError, ScorelakeError, UsageError
from scorelake.guard import AFTER_A_CRASH
from scorelake.settings import Run
from scorelake.storage.disk import first_line, is_remote
from scorelake.text import escape_controls, plural
from scorelake.version import __version__

Item = TypeVar("Item")
Result = TypeVar("Result")
VERSIONS = {"scorelake": __version__, "polars": pl.__version__}
"""Must be the same on every node: hashes and partial counts depend on them."""
GRACE_S = 5.0
"""Time for cancelled tasks to remove their temporary files before they are killed."""
GB = 1 << 30
MEMORY, CRASH = "Ray's memory monitor ended the worker", "the worker crashed or was killed"
HINT = "if memory is short, set [run] memory_gb, or smaller shard_mb and bucket_rows; else see Ray's logs on the node"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of every gRPC connection: HTTP/2's fixed text and an empty SETTINGS frame."""
PORT_HINT = "host:port of the head as `ray start --head` prints it, usually port 6379; not the dashboard (8265)"
LOG = logging.getLogger(__name__).warning


@dataclass
class Call:
    """One task of a map: its current attempt, and why earlier ones failed."""

    task: Callable[[Any], Any]
    item: Any
    failures: list[str] = field(default_factory=list)
    ref: Any = None

    def __str__(self) -> str:
        """Return a short text such as `count_all(a.parquet, b.parquet)`."""
        items = list(self.item) if isinstance(self.item, (tuple, list)) else [self.item]
        text = ", ".join(str(each) for each in items[:3])
        short = text if len(text) <= 160 else f"{text[:160]}..."
        others = f" and {len(items) - 3:,} more" if len(items) > 3 else ""
        return f"{getattr(self.task, '__name__', type(self.task).__name__)}({escape_controls(short)}{others})"


@dataclass
class RayEngine:
    """The engine. Every task reserves its processors and memory, and uses no more threads than that."""

    cpus: int
    memory: int
    shared: tuple[str, ...] = ()
    warn: Callable[[str], None] = LOG
    attempts: int = 5
    backoff_s: float = 1.0
    """Delay of the next attempt after a node ran out of memory; doubled after every further one."""
    patience_s: float = 600.0
    """Time to wait for a node that is large enough: an autoscaler may be starting one."""
    versions: dict[str, str] = field(default_factory=VERSIONS.copy)
    _running: dict[Any, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        threads = str(self.cpus)
        limits = {"POLARS_MAX_THREADS": threads, "NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        # one function for every map, since Ray gives an idle worker to the next task of the same function
        self._function: Any = ray.remote(
            num_cpus=self.cpus, memory=self.memory, max_retries=0, runtime_env={"env_vars": limits}
        )(worker_function(self.shared, self.versions))

    @property
    def memory_gb(self) -> float:
        return self.memory / GB

    @property
    def at_once(self) -> int:
        """Number of tasks that fit on the living nodes."""
        return max(1, sum(self._tasks_on(node) for node in _nodes()))

    def _tasks_on(self, node: dict[str, float]) -> int:
        return int(min(node.get("CPU", 0) // self.cpus, node.get("memory", 0) // self.memory))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in the order of the items; the number of tasks that are submitted at a time is limited."""
        queue, calls = iter(items), deque[Call]()
        try:
            while True:
                for item in islice(queue, max(0, 4 * self.at_once + 16 - len(calls))):
                    calls.append(Call(task, item))
                    self._submit(calls[-1])
                if not calls:
                    return
                result = self._result(calls[0])
                calls.popleft()
                yield result
        finally:
            self.cancel([call.ref for call in calls])

    def _submit(self, call: Call) -> None:
        """Start an attempt: after a failure on any node, and isolated if the task may have ended its worker."""
        may_crash = any(CRASH in reason for reason in call.failures)
        function = getattr(call.task, AFTER_A_CRASH, call.task) if may_crash else call.task
        strategy = "SPREAD" if call.failures else "DEFAULT"
        payload = bytes(ray.cloudpickle.dumps((function, call.item)))
        call.ref = self._function.options(scheduling_strategy=strategy).remote(payload)
        self._running[call.ref] = None

    def _result(self, call: Call) -> Any:
        """Return the result of a call, after as many attempts as it takes and are allowed."""
        while True:
            self._wait(call.ref)
            try:
                refusal, result = ray.get(call.ref)
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, EndedError):  # what is no error of ours is a bug: keep Ray's traceback
                    raise (error.cause if isinstance(error.cause, ScorelakeError | OSError) else error) from None
                reason = f"{CRASH}: {error.cause.what}"  # a child process of the task
            except ray.exceptions.WorkerCrashedError:
                reason = CRASH
            except ray.exceptions.OutOfMemoryError:
                reason = MEMORY
            except ray.exceptions.RayError as error:
                reason = first_line(error)
            else:
                if refusal is not None:
                    raise UsageError(refusal[0], where=refusal[1], hint=refusal[2])
                return result
            call.failures.append(reason)
            tried = len(call.failures)
            if tried == self.attempts:
                reasons = "; ".join(f"{why} ({plural(n, 'time')})" for why, n in Counter(call.failures).items())
                message = f"could not be finished in {tried} attempts: {reasons}"
                raise ClusterError(message, where=str(call), hint=HINT)
            self.warn(f"warning: {call}: {reason}; attempt {tried + 1} of {self.attempts}")
            if reason == MEMORY:
                time.sleep(self.backoff_s * 2 ** (tried - 1))
            self._submit(call)

    def _wait(self, ref: Any) -> None:
        """Wait for an attempt to end; raise ClusterError if no node has been large enough for too long."""
        began = None
        while not ray.wait([ref], timeout=1.0)[0]:
            if any(self._tasks_on(node) for node in _nodes()):
                began = None
                continue
            what = f"no node of the cluster has {self.cpus} CPUs and {self.memory_gb:.1f} GB for a task"
            if began is None:
                began = time.monotonic()
                self.warn(f"warning: {what}; waiting for one, at most {self.patience_s:g} s")
            elif time.monotonic() - began > self.patience_s:
                raise ClusterError(what, hint="add a larger node, or ask for less with [run] threads and memory_gb")
        self._running.pop(ref, None)

    def cancel(self, refs: list[Any] | None = None) -> None:
        """Stop these tasks, or all: first with an interrupt, so that they remove their temporary files.

        Ray 2.60 ends the driver if a cancellation meets the result of its task ("Tried to complete task that was not
        pending"). So the last tasks, which still wait, are cancelled first, and the others get a moment to finish.
        """
        left = _unfinished(list(self._running) if refs is None else refs, 0)
        first = 2 * self.at_once if left else 0
        for ref in reversed(left[first:]):
            ray.cancel(ref)
        left = left[:first]
        for timeout_s, force in ((0.3, False), (GRACE_S, True)):
            left = _unfinished(left, timeout_s)
            for ref in left:
                with contextlib.suppress(Exception):
                    ray.cancel(ref, force=force)
        for ref in list(self._running) if refs is None else refs:
            self._running.pop(ref, None)


def _unfinished(refs: list[Any], timeout_s: float) -> list[Any]:
    return ray.wait(refs, num_returns=len(refs), timeout=timeout_s)[1] if refs else []


def worker_function(shared: tuple[str, ...], versions: dict[str, str]) -> Callable[[bytes], tuple[Any, Any]]:
    """Return what a worker runs: the arguments of a UsageError, or None and the result of the task.

    It is a closure that uses only other packages, so that Ray sends its code: a worker may not have scorelake.
    """

    def run(payload: bytes) -> tuple[Any, Any]:
        node, installed = ray.util.get_node_ip_address(), dict.fromkeys(versions, "missing")
        for name in versions:
            try:
                installed[name] = importlib.import_module(name).__version__
            except ImportError:
                continue
        if installed != versions:
            there, here = (", ".join(f"{k} {v}" for k, v in each.items()) for each in (installed, versions))
            exact = " ".join(f"'{name}=={version}'" for name, version in versions.items())
            hint = f"install the same versions on every node: pip install {exact}"
            return (f"node {node} has {there}; this machine has {here}", None, hint), None
        for path in shared:
            if not os.path.exists(path):
                hint = "lake and output must lie on storage that every node mounts at the same path"
                return (f"node {node} does not see this path", path, hint), None
        task, item = pickle.loads(payload)
        return None, task(item)

    return run


@contextlib.contextmanager
def connect(
    address: str, run: Run, shared: Iterable[str] = (), warn: Callable[[str], None] = LOG
) -> Iterator[RayEngine]:
    """Open the engine on a running cluster."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:  # Ray prints; stdout is for data
        if address != "auto":
            check_address(address)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            hint = "start one with `ray start --head`, or run on one of its nodes with --address auto"
            raise ClusterError(f"cannot join a Ray cluster: {first_line(error)}", where=address, hint=hint) from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray installs its own, which would hide our message
        stack.callback(ray.shutdown)
        paths = tuple(path for path in shared if not is_remote(path))
        engine = RayEngine(run.threads or 1, task_memory(run), paths, warn)
        stack.callback(engine.cancel)
        yield engine


def task_memory(run: Run) -> int:
    """Return the bytes of one task: as set, or its share of the node with the least memory per processor."""
    if run.memory_gb is not None:
        return int(run.memory_gb * GB)
    shares = [node["memory"] / node["CPU"] for node in _nodes() if node.get("CPU") and node.get("memory")]
    return int((run.threads or 1) * min(shares, default=2.0 * GB) * 0.9)


def _nodes() -> list[dict[str, float]]:
    """Return the resources of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def check_address(address: str, timeout_s: float = 5.0) -> None:
    """Raise if no gRPC server listens at an address: `ray.init` takes minutes to notice, and does not say why."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UsageError("not an address", where=address, hint="--address auto, or host:port of the cluster's head")
    answer = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0", "false"):
                return  # only Ray itself has the keys
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(PREFACE)
                while len(answer) < 9 and (more := connection.recv(64)):
                    answer += more
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(f"no Ray cluster answers: {reason}", where=address, hint=PORT_HINT) from None
    if len(answer) < 9 or answer[3] != 4:  # the type of a SETTINGS frame
        raise ClusterError("the port is open but does not answer like a Ray cluster", where=address, hint=PORT_HINT)
