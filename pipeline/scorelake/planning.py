"""Plan a run: list the lake, find what is counted already, and cut the rest into shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scorelake import tasks
from scorelake.counting.partials import Partial
from scorelake.engines import Engine, local
from scorelake.lake import shards
from scorelake.lake.listing import LakeListing, listing
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings
from scorelake.storage.disk import is_remote
from scorelake.storage.files import File, Shard


@dataclass(frozen=True)
class ScorePlan:
    """The files of a lake: those that are counted already, and the shards that are left to count."""

    lake: LakeListing
    reused: list[Partial]
    shards: list[Shard]

    @property
    def file_counts(self) -> dict[str, Any]:
        """How many files are read, and how many are not."""
        read = sum(len(shard.files) for shard in self.shards)
        return {"files_read": read, "files_reused": len(self.lake.files) - read, "ignored": self.lake.ignored}


def plan_lake(
    location: str | Path, out: Output, settings: Settings, full: bool, engine: Engine, every_file: bool = False
) -> ScorePlan:
    """List a lake and find what is counted already; raise if its files do not fit the settings."""
    lake = list_lake(location, out, settings)
    reused = [] if full else tasks.reusable(out.partials, lake.files, settings, local if out.mirror else engine)
    files = _uncounted(lake, reused)
    _check_schema(str(location), lake, files, reused, settings, every_file)
    size = shards.shard_mb(files, settings.run, engine.at_once)
    return ScorePlan(lake, reused, shards.shards(shards.everywhere(lake.root), files, size))


def list_lake(location: str | Path, out: Output, settings: Settings) -> LakeListing:
    return listing(location, settings.storage, settings.lake.exclude, out.name)


def plan_part(
    location: str | Path, out: Output, settings: Settings, number: int, of: int
) -> tuple[list[Partial], list[Shard]]:
    """Return the files of one part that are known to crash a reader, and the shards that the part must count.

    Parts depend only on the lake and the published run, so that machines that see each other's results agree on them.
    """
    lake = list_lake(location, out, settings)
    published = set((out.current() or {}).get("partials", ()))
    earlier = tasks.matching_partials(out.partials, lake.files, settings)
    condemned = [partial for partial in earlier if partial.method == tasks.CONDEMNED]
    reused = [partial for partial in earlier if partial.name in published or partial.method == tasks.CONDEMNED]
    files = _uncounted(lake, reused)
    _check_schema(str(location), lake, files, reused, settings, every_file=False)
    size = shards.shard_mb(files, settings.run, of)
    todo = shards.shards(shards.everywhere(lake.root), files, size)
    return condemned, shards.groups(todo, of)[number - 1]


def crash_candidates(location: str, out: Output, settings: Settings, full: bool) -> list[tasks.Count]:
    """After a crash: every file that is not counted yet, each as a task of its own."""
    if is_remote(location) or out.mirror:
        return []
    lake = list_lake(location, out, settings)
    home = Path(shards.everywhere(str(out.root))) / "partials"
    reused = [] if full else tasks.reusable(home, lake.files, settings)
    root = shards.everywhere(lake.root)
    return [tasks.Count(Shard(root, (file,)), settings, str(home), again=full) for file in _uncounted(lake, reused)]


def shared_output(out: Output) -> Output:
    """The output under a path that means the same in every process."""
    return replace(out, root=Path(shards.everywhere(str(out.root))))


def _uncounted(lake: LakeListing, partials: Sequence[Partial]) -> tuple[File, ...]:
    counted = {file for partial in partials for file in partial.files}
    return tuple(file for file in lake.files if file not in counted)


def _check_schema(
    where: str,
    lake: LakeListing,
    files: Sequence[File],
    reused: Sequence[Partial],
    settings: Settings,
    every_file: bool,
) -> None:
    """Report a mistake in the settings before any file is blamed for it."""
    if every_file:
        tasks.refuse_misfits(lake.root, lake.files, settings, where, every_file=True)
    elif files and not any(partial.read for partial in reused):
        tasks.refuse_misfits(lake.root, files, settings, where, every_file=False)
