"""Where tasks run. An engine has one method, map(task, items); `local` is the specification of all others.

Other engines are extras, imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from scorelake.engines import local
from scorelake.errors import UsageError
from scorelake.settings import Settings

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs a top-level function over items; what it needs to know is in them, and what it makes is in files."""

    @property
    def at_once(self) -> int:
        """How many tasks run side by side: work is cut into at least that many pieces."""

    @property
    def memory_gb(self) -> float | None:
        """What one task may use, where that is not for this machine to say."""

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order of the items, each as soon as it is done.

        An item says in str() what it is, for errors. A task may name another one, to be done instead after it has
        crashed its worker: see guard.AFTER_A_CRASH.
        """


def connect(
    name: str,
    address: str | None,
    settings: Settings,
    shared: Iterable[str] = (),
    modules: Iterable[str] = (),
    say: Callable[[str], None] | None = None,
) -> AbstractContextManager[Engine]:
    """An engine by its name, for as long as it is needed.

    Every machine it uses must see the shared paths; workers elsewhere load the modules while there is no task yet.
    Warnings, such as of workers that were lost, are said; by default they are logged.
    """
    if name == "local":
        if address is not None:
            raise UsageError("--address is for --engine ray", hint="add --engine ray, or leave the address out")
        return nullcontext(local)
    if name != "ray":
        raise UsageError(f"no engine {name}", hint="known engines: local, ray")
    try:
        from scorelake.engines import ray  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--engine ray needs a package that is not installed: {error.name}",
            hint="pip install 'scorelake[ray]'",
        ) from None
    return ray.connected(address or "auto", settings.run, shared, modules, say or ray.LOG)
