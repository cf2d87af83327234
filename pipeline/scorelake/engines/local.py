"""Run tasks one after another in this process; Polars uses every core inside each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

at_once = 1
memory_gb: float | None = None


def map(task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:  # noqa: A001
    """Yield results in the order of the items."""
    for item in items:
        yield task(item)
