"""A partial: the counts of one shard, in a folder named by the fingerprint of its files and settings.

A folder holds the description (shard.json) and one Parquet file of counts per chunk, sorted by the hash of the
problem. Counts add, so that partials of the same problems can be merged in any order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scorelake.errors import DataError
from scorelake.storage.disk import checksum, read_json
from scorelake.storage.files import File

DESCRIPTION = "shard.json"


class Kind(NamedTuple):
    """What the attempts of a benchmark have."""

    verdicts: bool
    scores: bool
    answers: bool
    """Answers to vote with."""

    def __str__(self) -> str:
        return " and ".join(["verdict"] * self.verdicts + ["reward"] * self.scores)


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
    outcomes: tuple[tuple[str, str, str, str], ...] = ()
    """(benchmark, outcomes that files have, outcomes that its rows have, a file), see `benchmark_kinds`."""
    answers_ignored: bool = False
    """The files have answers to vote with, which were not counted."""
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
        for key in ("rejects", "quarantine", "outcomes"):
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


def benchmark_kinds(partials: Iterable[Partial], answers: bool) -> dict[str, Kind]:
    """Return the kind of every benchmark, whose attempts must all be of it; raise for those that are not.

    Where attempts have verdicts and scores, one that lacks either is ungraded; a file that has no such column, or
    answers in some files only, is an error.
    """
    seen: dict[str, dict[tuple[str, str], str]] = {}
    for benchmark, columns, has, file in (each for partial in partials for each in partial.outcomes):
        seen.setdefault(benchmark, {}).setdefault((columns, has), file)
    kinds, wrong = dict[str, Kind](), list[str]()
    for benchmark, files in sorted(seen.items()):
        have, graded = ({names for names in each if names} for each in zip(*files, strict=True))
        outcomes = "passed+score" if "passed+score" in graded else min(graded or have)
        needed = set(outcomes.split("+")) - {"answer"}
        if answers and "passed" in needed and any("answer" in names for names in have):
            needed.add("answer")
        has_all = all(needed <= set(names.split("+")) for names in have)
        if not has_all or (len(graded) > 1 and outcomes != "passed+score"):
            examples = {(each[1] or each[0]) if has_all else each[0]: file for each, file in reversed(files.items())}
            parts = [f"{names.replace('+', ' and ')} in {file}" for names, file in sorted(examples.items())]
            wrong.append(f"\n  {benchmark}: {', '.join(parts)}")
        kinds[benchmark] = Kind("passed" in needed, "score" in needed, "answer" in needed)
    if wrong:
        raise DataError(
            f"attempts of one benchmark have different outcomes:{''.join(wrong)}",
            hint="all attempts of a benchmark need the same of passed, score and answer; a lake may mix benchmarks",
        )
    return kinds
