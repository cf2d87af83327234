"""Run tasks on a Ray cluster, and again elsewhere if their worker or node is lost.

Only task descriptions and small results pass through the driver; lake and output are on storage that every node sees.
A task may run twice: its output is written to a temporary path and renamed. Attempts are counted here, since Ray's
own retries have no limit: after its memory monitor killed a worker, Ray 2.60 repeats a task forever.
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
from collections import deque
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
from scorelake.text import escape_controls
from scorelake.version import __version__

Item = TypeVar("Item")
Result = TypeVar("Result")
VERSIONS = {"scorelake": __version__, "polars": pl.__version__}
"""Must be the same on every node: hashes and partial counts depend on them."""
GRACE_S = 5.0
"""Time for cancelled tasks to remove their temporary files before they are killed."""
GB = 1 << 30
CRASH = "the worker crashed or was killed"
HINT = "if memory is short, set [run] memory_gb, or smaller shard_mb and bucket_rows; else see Ray's logs on the node"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of every gRPC connection: HTTP/2's fixed text and an empty SETTINGS frame."""
PORT_HINT = "host:port of the head as `ray start --head` prints it, usually port 6379; not the dashboard (8265)"
LOG = logging.getLogger(__name__)


@dataclass
class RayEngine:
    """The engine. Every task reserves its processors and memory, and uses no more threads than that."""

    cpus: int
    memory: int
    shared: tuple[str, ...] = ()
    attempts: int = 5
    backoff_s: float = 1.0
    """Delay of the second attempt of a task; doubled after every further one."""
    patience_s: float = 600.0
    """Time to wait for a node that is large enough: an autoscaler may be starting one."""
    versions: dict[str, str] = field(default_factory=VERSIONS.copy)

    def __post_init__(self) -> None:
        environment = {"env_vars": {"POLARS_MAX_THREADS": str(self.cpus), "OPENBLAS_NUM_THREADS": "1"}}
        # one function for every map, since Ray gives an idle worker to the next task of the same function
        options: Any = {"num_cpus": self.cpus, "memory": self.memory, "max_retries": 0, "runtime_env": environment}
        self._function: Any = ray.remote(**options)(worker_function(self.shared, self.versions))

    @property
    def memory_gb(self) -> float:
        return self.memory / GB

    @property
    def at_once(self) -> int:
        """Number of tasks that fit on the living nodes."""
        return max(1, self._capacity())

    def _capacity(self) -> int:
        sizes = ((node.get("CPU", 0) // self.cpus, node.get("memory", 0) // self.memory) for node in _nodes())
        return sum(int(min(size)) for size in sizes)

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in the order of the items; the number of tasks that are submitted at a time is limited."""
        queue, calls = iter(items), deque[tuple[Item, Any]]()
        try:
            while True:
                for item in islice(queue, max(0, 4 * self.at_once + 16 - len(calls))):
                    calls.append((item, self._submit(task, item, "DEFAULT")))
                if not calls:
                    return
                for attempt in range(1, self.attempts + 1):
                    item, ref = calls[0]
                    lost, result = self._result(ref)
                    if not lost:
                        break
                    name = f"{getattr(task, '__name__', 'task')}({describe(item)})"
                    if attempt == self.attempts:
                        what = f"could not be finished in {attempt} attempts; the last time {lost}"
                        raise ClusterError(what, where=name, hint=HINT)
                    LOG.warning("warning: %s: %s; attempt %d of %d", name, lost, attempt + 1, self.attempts)
                    time.sleep(self.backoff_s * 2 ** (attempt - 1))
                    isolated = getattr(task, AFTER_A_CRASH, task) if lost.startswith(CRASH) else task
                    calls[0] = item, self._submit(isolated, item, "SPREAD")  # on any node
                calls.popleft()
                yield result
        finally:
            self._cancel([ref for _, ref in calls])

    def _submit(self, task: Callable[[Any], Any], item: Any, strategy: str) -> Any:
        payload = bytes(ray.cloudpickle.dumps((task, item)))
        return self._function.options(scheduling_strategy=strategy).remote(payload)

    def _result(self, ref: Any) -> tuple[str, Any]:
        """Wait for an attempt; return the reason why it was lost, or "" and its result."""
        while not ray.wait([ref], timeout=self.patience_s)[0]:
            if not self._capacity():
                what = f"no node of the cluster has {self.cpus} CPUs and {self.memory_gb:.1f} GB for a task"
                raise ClusterError(what, hint="add a larger node, or ask for less with [run] threads and memory_gb")
        try:
            refusal, result = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, EndedError):  # a child process of the task
                return f"{CRASH}: {error.cause.what}", None
            # what is no error of ours is a bug: keep Ray's traceback
            raise (error.cause if isinstance(error.cause, ScorelakeError | OSError) else error) from None
        except ray.exceptions.WorkerCrashedError:
            return CRASH, None
        except ray.exceptions.OutOfMemoryError:
            return "Ray's memory monitor ended the worker", None
        except ray.exceptions.RayError as error:
            return first_line(error), None
        if refusal is not None:
            raise UsageError(refusal[0], where=refusal[1], hint=refusal[2])
        return "", result

    def _cancel(self, refs: list[Any]) -> None:
        """Stop tasks: first with an interrupt, so that they remove their temporary files.

        Ray 2.60 ends the driver if a cancellation meets the result of its task ("Tried to complete task that was not
        pending"). So the last tasks, which still wait, are cancelled first, and the others get a moment to finish.
        """
        left = _unfinished(refs, 0)
        running = 2 * self.at_once if left else 0
        for ref in reversed(left[running:]):
            ray.cancel(ref)
        left = left[:running]
        for timeout_s, force in ((0.3, False), (GRACE_S, True)):
            left = _unfinished(left, timeout_s)
            for ref in left:
                with contextlib.suppress(Exception):
                    ray.cancel(ref, force=force)


def _unfinished(refs: list[Any], timeout_s: float) -> list[Any]:
    return ray.wait(refs, num_returns=len(refs), timeout=timeout_s)[1] if refs else []


def _nodes() -> list[dict[str, float]]:
    """Return the resources of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def describe(item: Any) -> str:
    """Return the items of a task for a message: a.parquet, b.parquet."""
    return escape_controls(", ".join(map(str, item if isinstance(item, tuple) else [item])))[:160]


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
            except KeyboardInterrupt:  # cancelled: a library that is imported by half would break later tasks here
                os._exit(1)
        if installed != versions:
            there, here = (", ".join(f"{k} {v}" for k, v in each.items()) for each in (installed, versions))
            exact = " ".join(f"'{name}=={version}'" for name, version in versions.items())
            hint = f"install the same versions on every node: pip install {exact}"
            return (f"node {node} has {there}; this machine has {here}", None, hint), None
        for path in shared:
            if not os.path.exists(path):
                hint = "lake and output must lie on storage that every node mounts at the same path"
                return (f"node {node} does not see this path", path, hint), None
        try:
            task, item = pickle.loads(payload)
        except KeyboardInterrupt:
            os._exit(1)  # see above
        return None, task(item)

    return run


@contextlib.contextmanager
def connect(address: str, run: Run, shared: Iterable[str] = ()) -> Iterator[RayEngine]:
    """Open the engine on a running cluster."""
    if address != "auto":
        check_address(address)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints; stdout is for data
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            hint = "start one with `ray start --head`, or run on one of its nodes with --address auto"
            raise ClusterError(f"cannot join a Ray cluster: {first_line(error)}", where=address, hint=hint) from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray installs its own, which would hide our message
        try:
            paths = tuple(path for path in shared if not is_remote(path))
            yield RayEngine(run.threads or 1, task_memory(run), paths)
        finally:
            ray.shutdown()


def task_memory(run: Run) -> int:
    """Return the bytes of one task: as set, or its share of the node with the least memory per processor."""
    if run.memory_gb is not None:
        return int(run.memory_gb * GB)
    shares = [node["memory"] / node["CPU"] for node in _nodes() if node.get("CPU") and node.get("memory")]
    return int((run.threads or 1) * min(shares, default=2.0 * GB) * 0.9)


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
                answer = connection.recv(9, socket.MSG_WAITALL)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(f"no Ray cluster answers: {reason}", where=address, hint=PORT_HINT) from None
    if len(answer) < 9 or answer[3] != 4:  # the type of a SETTINGS frame
        raise ClusterError("the port is open but does not answer like a Ray cluster", where=address, hint=PORT_HINT)
