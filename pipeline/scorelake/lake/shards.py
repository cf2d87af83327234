"""Cut a lake into shards, and distribute shards over tasks or machines. This changes no number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

from scorelake.settings import Run, Settings
from scorelake.storage.disk import is_remote
from scorelake.storage.files import File, Shard
from scorelake.threads import batch_by_size

# Each file of a shuffled lake has nearly every problem, so that larger shards are cheaper: 20 files of 4 MB took
# 10.5 s of CPU to count and merge as 20 shards, 3.9 s as one.
SMALL, FEW_FILES = 64 << 10, 32
"""Up to this many files of fewer bytes are shards of their own."""
SMALLEST_MB = 16.0
"""A smaller task costs more than it does."""
BATCH_MB = 64.0
"""Small shards are counted together up to this size."""
ALIKE_GB = 4.0
"""The memory that machines without a setting assume, so that all of them cut the lake alike."""
FEW, ROUNDS = 8, 2
"""With FEW tasks or more at once, each gets ROUNDS shards, so that one slow shard does not hold up the others."""


def shards(root: str, files: tuple[File, ...], megabytes: float) -> list[Shard]:
    """Cut files, in order, into shards of up to this size; a few small files are shards of their own."""
    few = sum(file.size < SMALL for file in files) <= FEW_FILES
    out: list[Shard] = []
    for stands_alone, run in groupby(files, lambda file: few and file.size < SMALL):
        max_size = -1 if stands_alone else megabytes * 2**20  # no two files are that small, not even empty ones
        out += [Shard(root, batch) for batch in batch_by_size(list(run), lambda file: file.size, max_size)]
    return out


def fitted(settings: Settings, memory_gb: float | None) -> Settings:
    """Return settings with this memory per task, unless they set their own."""
    if memory_gb is None or settings.run.memory_gb is not None:
        return settings
    return settings.model_copy(update={"run": settings.run.model_copy(update={"memory_gb": memory_gb})})


def shard_mb(files: Sequence[File], run: Run, at_once: int) -> float:
    """Return the size of shards: as set, else by memory, and smaller if more tasks run at once."""
    if run.shard_mb is not None or at_once == 1:
        return run.shard_size
    sizes = [file.size / 2**20 for file in files]
    spare = max(sizes, default=0.0) / 2  # files are not cut: avoid a small last shard
    share = sum(sizes) / (at_once if at_once < FEW else ROUNDS * at_once) + spare
    return min(run.shard_size, max(SMALLEST_MB, share))


def groups(shards: Sequence[Shard], number: int) -> list[list[Shard]]:
    """Distribute shards over machines: the largest first, each to the machine with the fewest bytes."""
    out: list[list[Shard]] = [[] for _ in range(number)]
    for shard in sorted(shards, key=lambda shard: (-shard.size, shard.files)):
        min(out, key=lambda group: sum(each.size for each in group)).append(shard)
    return out


def everywhere(path: str) -> str:
    """Return a path that is valid in every process: absolute, or the address in object storage."""
    return path if is_remote(path) else os.path.abspath(path)
