"""Loops inside numpy leave the interpreter alone, so several of them run at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Results in the order of the items; one thread per core, since more would only wait for each other."""
    todo = list(items)
    cores = min(len(todo), _cores())
    if cores < 2:
        return [task(item) for item in todo]
    with ThreadPoolExecutor(cores) as threads:
        return list(threads.map(task, todo))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
