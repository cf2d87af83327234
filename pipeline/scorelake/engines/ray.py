"""Tasks on a Ray cluster: scheduled where there is room, and again where a worker or a node was lost or is silent.

Only descriptions of tasks and their small results pass through the driver; lake and output lie on storage that
every node sees. A task that ran twice did no harm: what it makes is written aside and renamed. Ray itself tries
nothing again: how often, and when, is for the driver to say (see attempts).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import pickle
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import polars as pl
import ray
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from scorelake.engines.attempts import CRASH, MEMORY, NODE, Attempt, Attempts, Work, called, failure
from scorelake.engines.joining import join, line
from scorelake.engines.worker import SPACE, end, runner
from scorelake.errors import ClusterError, UsageError
from scorelake.guard import AFTER_A_CRASH
from scorelake.settings import Run
from scorelake.storage.disk import is_remote
from scorelake.version import __version__

Ref: TypeAlias = "ray.ObjectRef[Any]"
Item = TypeVar("Item")
Result = TypeVar("Result")
VERSIONS = {"scorelake": __version__, "polars": pl.__version__}
"""What must be the same everywhere, since hashes and partial counts depend on it."""
PATIENCE = 600.0
"""Seconds to wait for room: an autoscaler may be starting a node, or other work may have every processor."""
GRACE = 5.0
"""Seconds for cancelled tasks to clean up before they are killed."""
AWAKE = 64
"""Workers started before there is work for them, at most."""
GB = 1 << 30
LOST: dict[tuple[type[Exception], ...], str] = {
    (ray.exceptions.OutOfMemoryError,): MEMORY,
    (ray.exceptions.WorkerCrashedError,): CRASH,
    (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError, ray.exceptions.ObjectLostError): NODE,
}
"""Errors of Ray by which an attempt is lost, and what to call them."""
LOG = logging.getLogger(__name__).warning
"""Where warnings go unless somebody else wants to tell them."""


@dataclass
class Ray:
    """The engine. Every task declares its processors and memory, and is told to use no more threads than that."""

    cpus: int
    memory: int
    shared: tuple[str, ...] = ()
    """Paths that every node must see."""
    silent_s: float = 60.0
    """Seconds after which a worker that is not heard of is given up."""
    patience: float = PATIENCE
    rest_s: float = 1.0
    """Seconds before the next attempt after a node ran out of memory; twice as long after every further one."""
    say: Callable[[str], None] = LOG
    _name: str = field(default_factory=lambda: secrets.token_hex(8))
    """Under which its attempts say that they are alive."""
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
        attempts, hand_over = Attempts(self.silent_s, self.rest_s, self.say), self._hand_over(task)
        queue = enumerate(items)
        done: dict[int, _Done | _Failed] = {}
        following, more = 0, True
        try:
            while True:
                room = 2 * self.at_once + 16 - len(attempts.works) if more else 0
                for _ in range(room):
                    at, item = next(queue, (-1, None))
                    more = at >= 0
                    if not more:
                        break
                    attempts.works[at] = Work(at, called(task, item), _pickled(item))
                while following in done:
                    yield done.pop(following)()
                    following += 1
                if not attempts.works:
                    return
                for at, outcome in self._next(attempts, hand_over):
                    done[at] = outcome
                    more = more and not isinstance(outcome, _Failed)  # it will be raised, when its turn comes
        finally:
            self.cancel([attempt.ref for attempt in attempts.alive])

    def _hand_over(self, task: Callable[[Any], Any]) -> Callable[[Work], tuple[Ref, str]]:
        """How an attempt is begun: the first like all first ones, others on any node, and with more care if the
        work itself may have ended a worker and the task says how."""
        careful = getattr(task, AFTER_A_CRASH, None)
        packed = ray.put(_pickled(task))
        with_care = packed if careful is None else ray.put(_pickled(careful))

        def hand_over(work: Work) -> tuple[Ref, str]:
            name = f"{self._name}/{secrets.token_hex(8)}"
            ref = self._remote(again=work.tried > 0).remote(
                with_care if work.is_suspicious else packed, work.packed, name
            )
            self._running.add(ref)
            return ref, name

        return hand_over

    def _next(
        self, attempts: Attempts, hand_over: Callable[[Work], tuple[Ref, str]]
    ) -> Iterator[tuple[int, _Done | _Failed]]:
        """Wait until something is done, at least one item; an error if nothing can ever be."""
        attempts.moved = began = time.monotonic()
        heard, warned, found = began, False, False
        while not found:
            now = time.monotonic()
            for work in attempts.works.values():
                if work.wants(now):
                    attempts.handed_over(work, *hand_over(work), now)
            for attempt in self._ended(attempts):
                outcome = _outcome(attempt.ref)
                if isinstance(outcome, str):
                    attempts.lost(attempt, outcome, now)
                else:
                    found = True
                    self._leave(attempts.done(attempt, now))
                    yield attempt.work.at, outcome
            if now - heard > min(self.silent_s / 6, self.patience / 6, 10.0):
                heard = now
                with contextlib.suppress(ray.exceptions.RpcError):  # then nobody can be heard, and nobody is silent
                    for attempt in attempts.hear(_told, now):
                        self._give_up(attempts, attempt)
                warned = self._still(attempts, now, warned)
            for at in [at for at, work in attempts.works.items() if work.is_lost]:
                found = True
                work = attempts.works.pop(at)
                self._leave(work.alive)
                yield at, _Failed(failure(work))

    def _ended(self, attempts: Attempts) -> list[Attempt]:
        """Attempts that came to an end, after a moment at the latest."""
        alive = {attempt.ref: attempt for attempt in attempts.alive}
        if not alive:
            time.sleep(0.1)
            return []
        ready, rest = ray.wait(list(alive), num_returns=1, timeout=min(1.0, self.silent_s / 6))
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        self._running.difference_update(ready)
        return [alive[ref] for ref in ready]

    def _give_up(self, attempts: Attempts, attempt: Attempt) -> None:
        """Its worker is ended as well, where it has begun: one that is stopped would keep its processor for ever."""
        where = "a worker that never began"
        if attempt.said:
            address, node, process, _ = json.loads(attempt.said)
            where = f"worker {process} of node {address}"
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            ending = ray.remote(end).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            self._running.add(ending.remote(process))
        attempts.given_up(attempt, where)

    def _leave(self, others: list[Attempt]) -> None:
        """Attempts whose result nobody needs; they are asked to stop, and killed when the engine is left."""
        for attempt in others:
            with contextlib.suppress(Exception):
                ray.cancel(attempt.ref, force=attempt.silent)

    def _still(self, attempts: Attempts, now: float, warned: bool) -> bool:
        """Say that nothing runs, once; an error if that has lasted too long."""
        waited = now - attempts.moved
        if not attempts.is_still or waited <= min(self.silent_s, self.patience):
            return warned and attempts.is_still
        size = f"{self.cpus} CPUs and {self.memory_gb:.1f} GB"
        fits = any(self._fit(node) for node in _nodes())
        what = "no task has begun" if fits else f"no node of the cluster has {size} for a task"
        if waited > self.patience:
            hint = "see with `ray status` what else runs there, and for stopped workers; then run again"
            if not fits:
                hint = "add a larger node, or ask for less with [run] threads and memory_gb"
            raise ClusterError(f"{what}, for {waited:.0f} s" if fits else what, hint=hint)
        if not warned:
            self.say(f"warning: {what}; waiting for room since {waited:.0f} s, at most {self.patience:g} s")
        return True

    def wake(self, modules: Iterable[str] = ()) -> None:
        """Have workers load what they will need, while the driver still loads what it needs itself."""
        packed, names = ray.put(_pickled(_loaded)), _pickled(tuple(modules))
        self._running |= {self._remote().remote(packed, names, "") for _ in range(min(self.at_once, AWAKE))}

    def _remote(self, again: bool = False) -> Any:
        """One and the same for every map: workers that have done one are lent to the next at once."""
        told = self.cpus, self.memory, self.shared, self.silent_s, tuple(VERSIONS.items())
        if self._made is None or self._made[0] != told:
            self._made = told, self._make()
        return self._made[1][again]

    def _make(self) -> tuple[Any, Any]:
        """For first attempts, and for others: Ray would like to put these where the first were."""
        threads = str(self.cpus)
        limits = {"POLARS_MAX_THREADS": threads, "NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        function = ray.remote(runner(self.shared, VERSIONS, min(self.silent_s / 6, 10.0)))
        first, others = (
            function.options(
                name="scorelake",
                num_cpus=self.cpus,
                memory=self.memory,
                max_retries=0,
                runtime_env={"env_vars": limits},
                scheduling_strategy=strategy,
            )
            for strategy in ("DEFAULT", "SPREAD")
        )
        return first, others

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

    def forget(self) -> None:
        """Remove what attempts that were killed said last."""
        with contextlib.suppress(Exception):
            internal_kv._internal_kv_del(f"{self._name}/", del_by_prefix=True, namespace=SPACE)


def _loaded(modules: tuple[str, ...]) -> None:
    """A task: the code of later tasks, compiled or loaded."""
    for name in modules:
        importlib.import_module(name)


def _told(attempt: Attempt) -> str:
    """What a running attempt says of itself, which changes while it is alive; nothing if it has not begun."""
    said: bytes | None = internal_kv._internal_kv_get(attempt.name, namespace=SPACE)
    return (said or b"").decode()


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


def _outcome(ref: Ref) -> _Done | _Failed | str:
    """What became of an attempt, or why it was lost; a user's error is the same error as without a cluster."""
    try:
        kind, told = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # a defect of ours: its traceback tells where
        return _Failed(error)
    except ray.exceptions.RayError as error:
        return next((why for kinds, why in LOST.items() if isinstance(error, kinds)), line(error))
    match kind:
        case "done":
            return _Done(told)
        case "lost":
            return str(told)
        case "failed":
            return _Failed(pickle.loads(told))
    return _Failed(_unlike(*told) if kind == "unlike" else _blind(*told))


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
def connected(
    address: str,
    run: Run,
    shared: Iterable[str] = (),
    modules: Iterable[str] = (),
    say: Callable[[str], None] = LOG,
) -> Iterator[Ray]:
    """The engine on a running cluster. Whatever happens, no task of ours is left running."""
    with contextlib.redirect_stdout(sys.stderr):  # where Ray prints what its nodes have to say
        join(address)
        try:
            seen = tuple(path for path in shared if not is_remote(path))
            engine = Ray(run.threads or 1, _memory(run), seen, run.silent_s, say=say)
            try:
                engine.wake(modules)
                yield engine
            finally:
                engine.cancel()
                engine.forget()
        finally:
            ray.shutdown()


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
