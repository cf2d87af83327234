"""Run tasks on a Ray cluster, which repeats a task whose worker or node is lost.

Only tasks and small results pass through the driver; lake and output are on storage that every node sees.
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
MAX_RETRIES = 4
GB = 1 << 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of every gRPC connection: HTTP/2's fixed text and an empty SETTINGS frame."""


@dataclass
class RayEngine:
    """The engine. Every task reserves its processors and memory, and uses no more threads than that."""

    cpus: int
    memory: int
    shared: tuple[str, ...] = ()
    max_retries: int = MAX_RETRIES
    patience_s: float = 600.0
    """Time to wait for a node that is large enough: an autoscaler may be starting one."""
    versions: dict[str, str] = field(default_factory=VERSIONS.copy)
    running: dict[Any, None] = field(default_factory=dict, init=False)
    """Tasks that were submitted, and are waiting or running."""

    def __post_init__(self) -> None:
        threads = str(self.cpus)
        limits = {"POLARS_MAX_THREADS": threads, "NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        # one function for every map, since Ray gives an idle worker to the next task of the same function
        self._function: Any = ray.remote(num_cpus=self.cpus, memory=self.memory, runtime_env={"env_vars": limits})(
            worker_function(self.shared, self.versions)
        )

    @property
    def memory_gb(self) -> float:
        return self.memory / GB

    @property
    def slots(self) -> int:
        """Number of tasks that fit on the living nodes."""
        nodes = living_nodes()
        return sum(int(min(node.get("CPU", 0) // self.cpus, node.get("memory", 0) // self.memory)) for node in nodes)

    @property
    def at_once(self) -> int:
        return max(1, self.slots)

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in the order of the items; the number of tasks that are submitted at a time is limited."""
        queue, submitted = iter(items), deque[tuple[Item, Any]]()
        max_retries = 1 if hasattr(task, AFTER_A_CRASH) else self.max_retries  # after two crashes it is isolated
        try:
            while True:
                for item in islice(queue, max(0, 4 * self.at_once + 16 - len(submitted))):
                    submitted.append((item, self._submit(task, item, max_retries)))
                if not submitted:
                    return
                item, ref = submitted.popleft()
                yield self._result(ref, task, item)
        finally:
            self.cancel([ref for _, ref in submitted])

    def _submit(self, task: Any, item: Any, max_retries: int) -> Any:
        payload = bytes(ray.cloudpickle.dumps((task, item)))
        ref = self._function.options(max_retries=max_retries, retry_exceptions=[EndedError]).remote(payload)
        self.running[ref] = None
        return ref

    def _result(self, ref: Any, task: Any, item: Any) -> Any:
        """Return the result of a task; one that crashed its workers is first repeated in isolation."""
        self._wait(ref)
        try:
            refusal, result = ray.get(ref)
        except ray.exceptions.RayError as error:
            cause, isolated = getattr(error, "cause", None), getattr(task, AFTER_A_CRASH, None)
            if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(cause, EndedError):
                raise (cause if isinstance(cause, ScorelakeError | OSError) else error) from None
            if isinstance(error, ray.exceptions.WorkerCrashedError) and isolated:
                return self._result(self._submit(isolated, item, self.max_retries), isolated, item)
            where = f"{getattr(task, '__name__', task)}({escape_controls(str(item))[:160]})"
            hint = "if memory is short, set [run] memory_gb or a smaller shard_mb; else see Ray's logs on the node"
            raise ClusterError(f"failed after every retry: {first_line(error)}", where=where, hint=hint) from None
        if refusal is not None:
            raise UsageError(refusal[0], hint=refusal[1])
        return result

    def _wait(self, ref: Any) -> None:
        """Wait for a task to end; raise ClusterError if no node has been large enough for too long."""
        last_fit = time.monotonic()
        while not ray.wait([ref], timeout=1.0)[0]:
            if self.slots:
                last_fit = time.monotonic()
            elif time.monotonic() - last_fit > self.patience_s:
                what = f"no node of the cluster has {self.cpus} CPUs and {self.memory_gb:.1f} GB for a task"
                raise ClusterError(what, hint="add a larger node, or ask for less with [run] threads and memory_gb")
        self.running.pop(ref)

    def cancel(self, refs: list[Any]) -> None:
        """Interrupt tasks, the waiting ones first, and give them five seconds to remove their temporary files."""
        for ref in reversed(refs):
            ray.cancel(ref)
            self.running.pop(ref, None)
        if refs:
            ray.wait(refs, num_returns=len(refs), timeout=5.0)


def worker_function(shared: tuple[str, ...], versions: dict[str, str]) -> Callable[[bytes], tuple[Any, Any]]:
    """Return what a worker runs: an error and its hint, or None and the result of the task.

    It is a closure that uses only other packages, so that Ray sends its code: a worker may not have scorelake.
    """

    def run(payload: bytes) -> tuple[Any, Any]:
        node = ray.util.get_node_ip_address()
        for name, version in versions.items():
            try:
                installed = importlib.import_module(name).__version__
            except ImportError:
                installed = "missing"
            if installed != version:
                exact = " ".join(f"'{name}=={version}'" for name, version in versions.items())
                hint = f"install the same versions on every node: pip install {exact}"
                return (f"node {node} has {name} {installed}; this machine has {version}", hint), None
        for path in shared:
            if not os.path.exists(path):
                hint = "lake and output must lie on storage that every node mounts at the same path"
                return (f"{path}: node {node} does not see this path", hint), None
        task, item = pickle.loads(payload)
        return None, task(item)

    return run


@contextlib.contextmanager
def connect(address: str, run: Run, shared: Iterable[str] = ()) -> Iterator[RayEngine]:
    """Open the engine on a running cluster; a task gets its share of the node with the least memory per processor."""
    if address != "auto":
        check_address(address)
    # Otherwise Ray 2.60 repeats a task for ever whose worker its memory monitor ends, whatever max_retries is.
    os.environ.setdefault("RAY_task_oom_retries", str(MAX_RETRIES))
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints; stdout is for data
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            hint = "start one with `ray start --head`, or run on one of its nodes with --address auto"
            raise ClusterError(f"cannot join a Ray cluster: {first_line(error)}", where=address, hint=hint) from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray installs its own, which would hide our message
        try:
            cpus, nodes = run.threads or 1, living_nodes()
            shares = [node["memory"] / node["CPU"] for node in nodes if node.get("CPU") and node.get("memory")]
            memory = run.memory_gb * GB if run.memory_gb else cpus * min(shares, default=2.0 * GB) * 0.9
            engine = RayEngine(cpus, int(memory), tuple(path for path in shared if not is_remote(path)))
            try:
                yield engine
            finally:
                engine.cancel(list(engine.running))
        finally:
            ray.shutdown()


def living_nodes() -> list[dict[str, float]]:
    """Return the resources of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def check_address(address: str, timeout_s: float = 5.0) -> None:
    """Raise if no gRPC server listens at an address: `ray.init` takes minutes to notice, and does not say why."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UsageError("not an address", where=address, hint="--address auto, or host:port of the cluster's head")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0", "false"):
                return  # only Ray itself has the keys
            connection.sendall(PREFACE)
            if connection.makefile("rb").read(9)[3:4] == b"\x04":  # the type of a SETTINGS frame
                return
            reason: object = "the port is open, but another program listens there"
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        reason = getattr(error, "strerror", None) or error
    hint = "host:port of the head as `ray start --head` prints it, usually port 6379; not the dashboard (8265)"
    raise ClusterError(f"no Ray cluster answers: {reason}", where=address, hint=hint)
