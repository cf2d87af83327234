"""One job, whoever asks for it: settings from what was said, the engine asked for, and a report of what was done."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from scorelake.errors import ScorelakeError
from scorelake.lake.description import settings_of
from scorelake.notebook import arguments
from scorelake.settings import Settings, load

if TYPE_CHECKING:
    from scorelake.notebook.frames import Entries, Frame, Matrices
    from scorelake.run import Report
    from scorelake.stages import Progress

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
    flags = _flags(config) if isinstance(config, Mapping) else {}
    flags |= {f"columns.{key}": name for key, name in arguments.columns(columns).items()}
    asked = {
        "metrics.names": arguments.names(metrics, "metrics"),
        "by": arguments.names(by, "by"),
        "run.memory_gb": memory,
    }
    flags |= {key: value for key, value in asked.items() if value not in (None, ())}
    file = None if config is None or isinstance(config, Mapping) else Path(arguments.place(config, "config"))
    settings = load(file, **flags) if lake is None else settings_of(lake, file, **flags)
    if settings.run.threads and engine == "local":
        os.environ["POLARS_MAX_THREADS"] = str(settings.run.threads)
    return settings


def _flags(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config that is a dictionary, key by key, so that what the lake says of itself stays below it."""
    flags: dict[str, Any] = {}
    for section, keys in config.items():
        if isinstance(keys, Mapping) and keys:
            flags |= {f"{section}.{key}": value for key, value in keys.items()}
            continue
        alone = {str(section): keys}
        load(**alone)  # what is no section, or should be one, is told as of a file
        flags |= {} if isinstance(keys, Mapping) else alone
    return flags


def scored(
    attempts: str | PathLike[str] | Frame | Matrices,
    out: str,
    settings: Settings,
    entries: Entries | None = None,
    **options: Any,
) -> Report:
    """The whole job: of a lake where it is, of a frame or a matrix by way of a file that is gone afterwards."""
    if isinstance(attempts, str | PathLike):
        arguments.entries(entries, matrix=False)
        return _job(fspath(attempts), out, settings, **options)
    from scorelake.notebook import frames  # noqa: PLC0415  (Polars loads slowly, and is told its threads before)

    matrix = frames.is_matrix(attempts)
    arguments.entries(entries, matrix)
    name = frames.MATRIX if matrix else frames.FRAME
    with TemporaryDirectory(prefix="scorelake-") as home:
        path = Path(home) / f"{name}.parquet"
        frames.write(attempts, path, settings, entries or "passed")
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
    with engines.connect(engine, address, settings, shared, say) as where:
        from scorelake.publish.snapshot import Output  # noqa: PLC0415
        from scorelake.run import job  # noqa: PLC0415

        return job(lake, Output.at(out, settings.storage), settings, engine=where, **options)


def _said(error: ScorelakeError, path: str, name: str) -> ScorelakeError:
    """The same error about a frame: its file is nobody's business, it has no folder, and no command is about it."""
    what, where, hint = (
        text and text.replace(path, name).replace(Path(path).name, name)
        for text in (error.what, error.where, error.hint)
    )
    what = (what or "").replace(", or in conflict with the folder's name", "")
    return type(error)(what, where=where, hint=hint and _as_arguments(hint))


def _as_arguments(hint: str) -> str:
    """A hint for the command line, as arguments of score()."""
    hint = re.sub(r"(; |\n  )`scorelake init[^`]*` guesses (which|all columns and writes a config)\Z", "", hint)
    before, command, flags = hint.partition("in the command: ")
    if not command:
        return hint
    words = shlex.split(flags)
    given = list(zip(words[::2], words[1::2], strict=True))
    named = dict(word.split("=", 1) for flag, word in given if flag == "--column")
    told = [f"columns={json.dumps(named, ensure_ascii=False)}"] if named else []
    told += [f"by={json.dumps(word, ensure_ascii=False)}" for flag, word in given if flag == "--by"]
    return f"{before}to score(): {', '.join(told)}"
