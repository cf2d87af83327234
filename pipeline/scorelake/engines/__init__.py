"""Where tasks run: `map(task, items)`. The local engine is the specification of every other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from scorelake.errors import UsageError
from scorelake.settings import Settings

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Run a top-level function over small frozen dataclasses; its output is in files, and its result is small."""

    @property
    def at_once(self) -> int:
        """Number of tasks that run in parallel: the work is cut into at least as many."""

    @property
    def memory_gb(self) -> float | None:
        """Memory of one task; None where the settings of this machine apply."""

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield results in the order of the items, and raise the first error in that order.

        `str(item)` names the item in errors. The attribute `guard.AFTER_A_CRASH` of a task is another task, which
        replaces it after it crashed its worker.
        """


class LocalEngine:
    """Run tasks one after another in this process; Polars uses every core inside each."""

    at_once = 1
    memory_gb: float | None = None

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return (task(item) for item in items)


local = LocalEngine()


def connect(
    name: str, address: str | None, settings: Settings, shared: Iterable[str] = ()
) -> AbstractContextManager[Engine]:
    """Open an engine by its name; every machine must see the `shared` paths."""
    if name == "local" and address is not None:
        raise UsageError("--address is for --engine ray", hint="add --engine ray, or leave the address out")
    if name == "local":
        return nullcontext(local)
    if name != "ray":
        raise UsageError(f"no engine {name}", hint="known engines: local, ray")
    try:
        from scorelake.engines import ray  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        what = f"--engine ray needs a package that is not installed: {error.name}"
        raise UsageError(what, hint="pip install 'scorelake[ray]'") from None
    return ray.connect(address or "auto", settings.run, shared)
