"""A partial: the counts of one shard, in a folder named by the fingerprint of its files and settings.

A folder holds the description (shard.json) and one Parquet file of counts per chunk, sorted by the hash of the
problem. Counts add, so that partials of the same problems can be merged in any order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scorelake.storage.disk import checksum, read_json
from scorelake.storage.files import File

DESCRIPTION = "shard.json"


@dataclass(frozen=True)
class Partial:
    """Description of a counted shard: read = counted + rejected, duplicates still included."""

    name: str
    files: tuple[File, ...]
    method: str
    """How it was counted: query, kernel or none, and why."""
    read: int = 0
    rejected: int = 0
    rejects: tuple[tuple[str, str, int], ...] = ()
    """(file, reason, rows) of rejected rows."""
    quarantine: tuple[tuple[str, str], ...] = ()
    """(file, reason) of files that could not be read."""
    binary: bool = False
    rewards: bool = False
    answers: str = "none"
    """none, ignored or counted: whether the files have answers to vote with, and whether they were counted."""
    carried: dict[str, str] = field(default_factory=dict)
    """Sort of values of the carried columns: texts, numbers, ..."""
    chunks: tuple[str, ...] = ()
    """Names of the files of counts."""
    problems: int = 0
    """Rows of these files."""
    checksum: str = ""

    @property
    def counted(self) -> int:
        return self.read - self.rejected

    def contents(self, home: Path) -> list[Path]:
        return [home / name for name in self.chunks]


def describe(home: Path, partial: Partial, identity: Mapping[str, Any]) -> None:
    """Write the description of a partial."""
    description = json.loads(json.dumps(asdict(partial) | {"identity": dict(identity)}))
    (home / DESCRIPTION).write_text(json.dumps(description | {"digest": _digest(description)}))


def _digest(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def described(home: Path, identity: Mapping[str, Any] | None = None) -> Partial | None:
    """Read the description of a folder; None if there is none, it is damaged, or it has another identity."""
    try:
        description = read_json(home / DESCRIPTION)
        if description.pop("digest") != _digest(description) or description["name"] != home.name:
            return None
        if description.pop("identity") != identity and identity is not None:
            return None
        description["files"] = tuple(File(**file) for file in description["files"])
        description["chunks"] = tuple(description["chunks"])
        for key in ("rejects", "quarantine"):
            description[key] = tuple(tuple(entry) for entry in description[key])
        return Partial(**description)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def is_sound(home: Path, partial: Partial) -> bool:
    """Check the files of counts against their checksum; a shard that fails is counted again."""
    try:
        return checksum(*partial.contents(home)) == partial.checksum
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
