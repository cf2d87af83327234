"""One job, whoever asks for it: settings from what was said, the engine asked for, and a report of what was done."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from scorelake.errors import ScorelakeError
from scorelake.lake.description import settings_of
from scorelake.settings import Settings, load

if TYPE_CHECKING:
    from scorelake.notebook.frames import Entries, Frame, Matrices
    from scorelake.run import Progress, Report

COUNTING = ("scorelake.tasks", "scorelake.count.shard")
"""What workers of a cluster load before there is work for them."""
Config: TypeAlias = str | Path | Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str | Sequence[str]]


class Options(TypedDict, total=False):
    """How the job is done, as on the command line; none of it changes a number."""

    memory: float | None
    """Gigabytes to aim at."""
    engine: str
    """local, or ray."""
    address: str | None
    """Of a Ray cluster."""
    full: bool
    """Count every file again."""
    allow_quarantine: bool
    """Leave unreadable files out."""
    allow_empty: bool
    """Publish even if all values of a metric are lost."""
    progress: Progress
    """Called with a stage, how much is done, and of how much."""
    say: Callable[[str], None]
    """Called with warnings of a cluster, such as of lost workers; by default they are logged."""


def settings_for(
    lake: str | None,
    config: Config | None = None,
    metrics: str | Sequence[str] = (),
    columns: Columns | None = None,
    by: str | Sequence[str] = (),
    memory: float | None = None,
    engine: str = "local",
) -> Settings:
    """Settings for a lake: what it says of itself, then the config (a file, or a dictionary like it), then the rest.

    Without a lake, they are for a frame, which says nothing of itself. Where tasks run here, Polars has as many
    threads as they say; it asks once, when it is loaded.
    """
    flags: dict[str, Any] = {}
    for section, keys in config.items() if isinstance(config, Mapping) else ():
        flags |= {f"{section}.{key}": value for key, value in keys.items()} if isinstance(keys, Mapping) else {}
        flags |= {} if isinstance(keys, Mapping) else {section: keys}
    flags |= {f"columns.{key}": name for key, name in (columns or {}).items()}
    asked = {"metrics.names": _names(metrics), "by": _names(by), "run.memory_gb": memory}
    flags |= {key: value for key, value in asked.items() if value not in (None, ())}
    file = None if config is None or isinstance(config, Mapping) else Path(config)
    settings = load(file, **flags) if lake is None else settings_of(lake, file, **flags)
    if settings.run.threads and engine == "local":
        os.environ["POLARS_MAX_THREADS"] = str(settings.run.threads)
    return settings


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names in a list, or in one text with commas between them, as the command line has them."""
    return tuple(name.strip() for name in (given.split(",") if isinstance(given, str) else given) if name.strip())


def scored(
    attempts: str | PathLike[str] | Frame | Matrices,
    out: str,
    settings: Settings,
    entries: Entries = "passed",
    **options: Any,
) -> Report:
    """The whole job: of a lake where it is, of a frame or a matrix by way of a file that is gone afterwards."""
    if isinstance(attempts, str | PathLike):
        return _job(fspath(attempts), out, settings, **options)
    from scorelake.notebook import frames  # noqa: PLC0415  (Polars loads slowly, and is told its threads before)

    name = frames.MATRIX if frames.is_matrix(attempts) else frames.FRAME
    with TemporaryDirectory(prefix="scorelake-") as home:
        path = Path(home) / f"{name}.parquet"
        frames.write(attempts, path, settings, entries)
        try:
            return _job(str(path), out, settings, called=name, **options)
        except ScorelakeError as error:
            raise _said(error, str(path), name) from None


def _job(
    lake: str,
    out: str,
    settings: Settings,
    engine: str = "local",
    address: str | None = None,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> Report:
    """The job on the engine asked for."""
    from scorelake import engines  # noqa: PLC0415
    from scorelake.lake.iceberg import CATALOG  # noqa: PLC0415
    from scorelake.lake.shards import everywhere  # noqa: PLC0415

    shared = [everywhere(path) for path in (lake, out) if not path.startswith(CATALOG)]
    with engines.connect(engine, address, settings, shared, COUNTING, say) as where:
        from scorelake.publish.snapshot import Output  # noqa: PLC0415
        from scorelake.run import job  # noqa: PLC0415

        return job(lake, Output.at(out, settings.storage), settings, engine=where, **options)


def _said(error: ScorelakeError, path: str, name: str) -> ScorelakeError:
    """The same error about a frame: its file is nobody's business."""
    told = (text and text.replace(path, name).replace(Path(path).name, name) for text in (error.where, error.hint))
    what = error.what.replace(path, name).replace(Path(path).name, name)
    return type(error)(what, **dict(zip(("where", "hint"), told, strict=True)))
