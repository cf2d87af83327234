"""How the work is cut: files into shards, shards for an engine or for machines.

Pieces fit into memory, and there are enough of them. None of it changes a number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

from scorelake.settings import Run, Settings
from scorelake.storage.disk import is_remote
from scorelake.storage.files import File, Shard
from scorelake.threads import batch_by_size

SMALL = 64 << 10
"""Bytes below which a file is small."""
FEW_FILES = 32
"""Small files, up to which each may stand alone. That makes 2 MB in all, counted in a second whichever way. More
would cost: every file of a shuffled lake holds nearly every problem, and 20 files of 4 MB took 10.5 s of processor
time to count and merge when each stood alone, 3.9 s together."""
SMALLEST_MB = 16.0
"""Below that a task costs more than it does."""
BATCH_MB = 64.0
"""Small shards counted together; progress is told in between."""
ALIKE_GB = 4.0
"""The memory that machines with no setting agree on when each cuts the work for itself."""
FEW, ROUNDS = 8, 2
"""Pieces per task that runs at once, unless these are few: one slow or lost piece must not hold up the whole. But
every piece of a shuffled lake holds nearly every problem again, which is not worth it where tasks are few."""


def shards(root: str, files: tuple[File, ...], megabytes: float) -> list[Shard]:
    """Cut files, in order, into shards: the unit that is read again when one of its files changes.

    Small files stand alone while they are few, so that a change costs only the changed file; many are batched.
    Larger files are counted together up to the given size, since files of a shuffled lake share their problems.
    """
    few = sum(file.size < SMALL for file in files) <= FEW_FILES
    out: list[Shard] = []
    for stands_alone, run in groupby(files, lambda file: few and file.size < SMALL):
        max_size = -1 if stands_alone else megabytes * 2**20  # no two files are that small, not even empty ones
        out += [Shard(root, batch) for batch in batch_by_size(list(run), lambda file: file.size, max_size)]
    return out


def fitted(settings: Settings, memory_gb: float | None) -> Settings:
    """Settings in which a task has this memory, unless they name their own."""
    if memory_gb is None or settings.run.memory_gb is not None:
        return settings
    return settings.model_copy(update={"run": settings.run.model_copy(update={"memory_gb": memory_gb})})


def shard_mb(files: Sequence[File], run: Run, at_once: int) -> float:
    """Megabytes of files counted together: as set, else by memory, and less where more tasks run at once."""
    if run.shard_mb is not None or at_once == 1:
        return run.shard_size
    sizes = [file.size / 2**20 for file in files]
    spare = max(sizes, default=0.0) / 2  # files are not cut, and no small piece should be left at the end
    share = sum(sizes) / (at_once if at_once < FEW else ROUNDS * at_once) + spare
    return min(run.shard_size, max(SMALLEST_MB, share))


def groups(shards: Sequence[Shard], number: int) -> list[list[Shard]]:
    """Shards dealt to a number of machines, the largest first, to the one with least: the same for all who ask."""
    out: list[list[Shard]] = [[] for _ in range(number)]
    sizes = [0] * number
    for shard in sorted(shards, key=lambda shard: (-shard.size, shard.files)):
        least = sizes.index(min(sizes))
        out[least].append(shard)
        sizes[least] += shard.size
    return out


def everywhere(path: str) -> str:
    """A path that means the same in every process, wherever it was started."""
    return path if is_remote(path) else os.path.abspath(path)
