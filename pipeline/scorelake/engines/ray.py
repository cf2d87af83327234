"""Tasks on a Ray cluster: scheduled where there is room, and again where a worker or a node was lost.

Only descriptions of tasks and their small results pass through the driver; lake and output lie on storage that
every node sees. A task that ran twice did no harm: what it makes is written aside and renamed.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import polars as pl
import ray

from scorelake.errors import ClusterError, UsageError
from scorelake.settings import Run
from scorelake.store.disk import is_remote
from scorelake.version import __version__

Ref: TypeAlias = "ray.ObjectRef[Any]"
Item = TypeVar("Item")
Result = TypeVar("Result")
VERSIONS = {"scorelake": __version__, "polars": pl.__version__}
"""What must be the same everywhere, since hashes and partial counts depend on it."""
RETRIES = 5
"""How often a task may lose its worker."""
PATIENCE = 600.0
"""Seconds to wait for a node that is large enough; an autoscaler may be starting one."""
GRACE = 5.0
"""Seconds for cancelled tasks to clean up before they are killed."""
AWAKE = 64
"""Workers started before there is work for them, at most."""
GB = 1 << 30


@dataclass
class Ray:
    """The engine. Every task declares its processors and memory, and is told to use no more threads than that."""

    cpus: int
    memory: int
    shared: tuple[str, ...] = ()
    """Paths that every node must see."""
    patience: float = PATIENCE
    _running: set[Ref] = field(default_factory=set)
    _made: tuple[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def memory_gb(self) -> float:
        return self.memory / GB

    @property
    def at_once(self) -> int:
        """Tasks that fit on the living nodes."""
        return max(1, sum(self._fit(node) for node in _nodes()))

    def _fit(self, node: dict[str, float]) -> int:
        return int(min(node.get("CPU", 0) // self.cpus, node.get("memory", 0) // self.memory))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order of the items, each as soon as it is done; the first error in that order is raised.

        A few more tasks than fit are handed over at a time, so that the driver's memory does not follow their number.
        """
        remote, packed = self._remote(), ray.put(_pickled(task))
        queue = enumerate(items)
        place: dict[Ref, int] = {}
        done: dict[int, Callable[[], Result]] = {}
        following, more = 0, True
        try:
            while True:
                room = 2 * self.at_once + 16 - len(place) if more else 0
                for _ in range(room):
                    at, item = next(queue, (-1, None))
                    more = at >= 0
                    if not more:
                        break
                    ref = remote.remote(packed, _pickled(item))
                    place[ref] = at
                    self._running.add(ref)
                while following in done:
                    yield done.pop(following)()
                    following += 1
                if not place:
                    return
                for ref in self._next(list(place)):
                    at = place.pop(ref)
                    self._running.discard(ref)
                    done[at] = _outcome(ref)
                    more = more and not isinstance(done[at], _Failed)  # it will be raised, when its turn comes
        finally:
            self.cancel(list(place))

    def wake(self, modules: Iterable[str] = ()) -> None:
        """Have workers load what they will need, while the driver still loads what it needs itself."""
        packed, names = ray.put(_pickled(_loaded)), _pickled(tuple(modules))
        self._running |= {self._remote().remote(packed, names) for _ in range(min(self.at_once, AWAKE))}

    def _remote(self) -> Any:
        """One and the same for every map: workers that have done one are lent to the next at once."""
        told = self.cpus, self.memory, self.shared, tuple(VERSIONS.items())
        if self._made is None or self._made[0] != told:
            self._made = told, self._make()
        return self._made[1]

    def _make(self) -> Any:
        threads = str(self.cpus)
        limits = {"POLARS_MAX_THREADS": threads, "NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        return ray.remote(_runner(self.shared)).options(
            name="scorelake",
            num_cpus=self.cpus,
            memory=self.memory,
            max_retries=RETRIES,
            runtime_env={"env_vars": limits},
        )

    def _next(self, waiting: list[Ref]) -> list[Ref]:
        """Tasks that are done, at least one; an error if none can ever be."""
        hopeless = time.monotonic() + self.patience
        while True:
            ready, rest = ray.wait(waiting, num_returns=1, timeout=1.0)
            if ready:
                return ready + ray.wait(rest, num_returns=len(rest), timeout=0)[0] if rest else ready
            if any(self._fit(node) for node in _nodes()):
                hopeless = time.monotonic() + self.patience
            elif time.monotonic() > hopeless:
                raise ClusterError(
                    f"no node of the cluster has {self.cpus} CPUs and {self.memory_gb:.1f} GB for a task",
                    hint="add a larger node, or ask for less with [run] threads and memory_gb",
                )

    def cancel(self, left: list[Ref] | None = None) -> None:
        """Stop these tasks, or all: first kindly, so that they remove what they have half-written."""
        left = list(self._running) if left is None else left
        self._running.difference_update(left)
        for force in (False, True):
            for ref in left:
                with contextlib.suppress(Exception):
                    ray.cancel(ref, force=force)
            if left and not force:
                _, left = ray.wait(left, num_returns=len(left), timeout=GRACE)


def _loaded(modules: tuple[str, ...]) -> None:
    """A task: the code of later tasks, compiled or loaded."""
    for name in modules:
        importlib.import_module(name)


def _runner(shared: tuple[str, ...]) -> Callable[[bytes, bytes], tuple[str, Any]]:
    """What a worker runs. Sent whole, not by its name: a worker without scorelake must be able to say so."""
    wanted = VERSIONS

    def run(task: bytes, item: bytes) -> tuple[str, Any]:
        import importlib  # noqa: PLC0415
        import os  # noqa: PLC0415
        import pickle  # noqa: PLC0415

        import ray  # noqa: PLC0415

        found = {}
        for name in wanted:
            try:
                found[name] = importlib.import_module(name).__version__
            except ImportError:
                found[name] = None
        if found != wanted:
            return "unlike", (ray.util.get_node_ip_address(), found)
        for path in shared:
            if not os.path.exists(path):
                return "blind", (ray.util.get_node_ip_address(), path)
        errors = importlib.import_module("scorelake.errors")
        try:
            return "done", pickle.loads(task)(pickle.loads(item))
        except (errors.ScorelakeError, OSError) as error:
            return "failed", pickle.dumps(error)

    return run


@dataclass(frozen=True)
class _Done:
    result: Any

    def __call__(self) -> Any:
        return self.result


@dataclass(frozen=True)
class _Failed:
    error: BaseException

    def __call__(self) -> Any:
        raise self.error


def _outcome(ref: Ref) -> _Done | _Failed:
    """What became of a task; a user's error is the same error as without a cluster."""
    try:
        kind, told = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # a defect of ours: its traceback tells where
        return _Failed(error)
    except ray.exceptions.RayError as error:
        return _Failed(
            ClusterError(
                f"a task could not be finished in {RETRIES + 1} attempts: {_line(error)}",
                hint="if workers run out of memory, give tasks more with [run] memory_gb or less to do with shard_mb",
            )
        )
    if kind in ("unlike", "blind"):
        return _Failed(_unlike(*told) if kind == "unlike" else _blind(*told))
    return _Failed(pickle.loads(told)) if kind == "failed" else _Done(told)


def _unlike(node: str, found: dict[str, str | None]) -> UsageError:
    there = " and ".join(f"{name} {version}" if version else f"no {name}" for name, version in found.items())
    here = " and ".join(f"{name} {version}" for name, version in VERSIONS.items())
    exact = " ".join(f"'{name}=={version}'" for name, version in VERSIONS.items())
    return UsageError(
        f"node {node} has {there}, while this machine has {here}",
        hint=f"the same versions on every node: pip install {exact}",
    )


def _blind(node: str, path: str) -> UsageError:
    return UsageError(
        f"node {node} does not see it",
        where=path,
        hint="lake and output must lie on storage that every node mounts at the same path",
    )


# --- the cluster ----------------------------------------------------------------------------------------------


@contextmanager
def connected(address: str, run: Run, shared: Iterable[str] = (), modules: Iterable[str] = ()) -> Iterator[Ray]:
    """The engine on a running cluster. Whatever happens, no task of ours is left running."""
    with contextlib.redirect_stdout(sys.stderr):  # where Ray prints what its nodes have to say
        _join(address)
        try:
            engine = Ray(run.threads or 1, _memory(run), tuple(path for path in shared if not is_remote(path)))
            try:
                engine.wake(modules)
                yield engine
            finally:
                engine.cancel()
        finally:
            ray.shutdown()


def _join(address: str) -> None:
    if address != "auto":
        _reachable(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise UsageError(
            f"no Ray cluster to be joined: {_line(error)}",
            where=address,
            hint="start one with `ray start --head`, or run on one of its nodes with --address auto",
        ) from None
    signal.signal(signal.SIGTERM, handler)  # Ray puts its own there; ours tells people what happened


def _reachable(address: str) -> None:
    """Ask the port first: Ray takes a minute to give up, and does not say which address was wrong."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        raise UsageError("not an address", where=address, hint="--address auto, or host:port of the cluster's head")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers: {error.strerror or error}",
            where=address,
            hint="host:port of the head as `ray start --head` prints it, usually port 6379",
        ) from None


def _memory(run: Run) -> int:
    """Bytes of one task: as set, or its share of the node with the least memory per processor."""
    if run.memory_gb is not None:
        return int(run.memory_gb * GB)
    shares = [node["memory"] / node["CPU"] for node in _nodes() if node.get("CPU") and node.get("memory")]
    return int((run.threads or 1) * min(shares, default=2.0 * GB) * 0.9)


def _nodes() -> list[dict[str, float]]:
    """The resources of every living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _pickled(thing: object) -> bytes:
    """As Ray pickles it, but as bytes: the worker looks at its own versions before it unpacks them."""
    return bytes(ray.cloudpickle.dumps(thing))


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
