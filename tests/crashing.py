"""Counting where a file called evil ends the process, on workers and in the processes that these start.

The functions travel to workers as they are; there they find this file, for processes that know them by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorelake.guard import AFTER_A_CRASH
from scorelake.tasks import count_apart as COUNT_APART  # noqa: N812

HOME = str(Path(__file__).parent)


def armed() -> Any:
    """The tasks of this process, in which reading such a file aborts."""
    from scorelake import tasks
    from scorelake.storage import parquet

    read = parquet.batches

    def batches(path: str, *more: Any, **options: Any) -> Any:
        if "evil" in path:
            os.abort()
        return read(path, *more, **options)

    parquet.batches = batches
    return tasks


def count_all(todo: Sequence[Any]) -> Any:
    return armed().count_all(todo)


def count_apart(todo: Sequence[Any]) -> Any:
    """As a worker does it, with processes that abort as this one would."""
    from scorelake import tasks

    sys.path.insert(0, HOME)
    import crashing

    kept = tasks.count_all
    tasks.count_all = crashing.count_all
    try:
        return COUNT_APART(todo)
    finally:
        tasks.count_all = kept
        sys.path.remove(HOME)


setattr(count_all, AFTER_A_CRASH, count_apart)
