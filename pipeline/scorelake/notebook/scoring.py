"""Score attempts from Python: write them as a temporary lake, run the job, and return a Board of its output."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from scorelake.errors import ScorelakeError, UsageError
from scorelake.lake.description import settings_of
from scorelake.notebook.board import Board, check_location
from scorelake.settings import Settings, load

if TYPE_CHECKING:
    from scorelake.notebook.frames import EntryKind, Frame, Matrices
    from scorelake.pipeline import RunReport
    from scorelake.stages import Progress

Config: TypeAlias = str | Path | Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str | Sequence[str]]


class Options(TypedDict, total=False):
    """How the job runs, as on the command line; none of it changes a number."""

    memory: float | None
    engine: str
    address: str | None
    full: bool
    allow_quarantine: bool
    allow_empty: bool
    progress: Progress
    warn: Callable[[str], None]


def score_attempts(
    attempts: str | PathLike[str] | Frame | Matrices,
    out: str | PathLike[str] | None,
    entries: EntryKind | None,
    options: Options,
    **config: Any,
) -> Board:
    """Run the job and return its board; `config` are arguments of `settings_for`."""
    _check_options(options)
    if entries not in (None, "passed", "score"):
        raise UsageError(f"entries must be passed or score, got {entries!r}")
    lake = fspath(attempts) if isinstance(attempts, str | PathLike) else None
    target = None if out is None else check_location(out)
    settings = settings_for(lake, memory=options.get("memory"), **config)
    job: dict[str, Any] = {name: value for name, value in options.items() if name != "memory"}
    with ExitStack() as temporary:
        folder = target or str(Path(temporary.enter_context(TemporaryDirectory(prefix="scorelake-"))) / "out")
        if lake is None:
            report = _score_frame(attempts, folder, settings, entries, job)
        elif entries is None:
            from scorelake.pipeline import run_score  # noqa: PLC0415 - loads Polars

            report = run_score(lake, folder, settings, **job)
        else:
            raise _entries_without_matrix()
        return Board(folder, report, None if target else temporary.pop_all())


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in Options.__annotations__:
            names = ("metrics", "columns", "by", "config", "out", "entries", *Options.__annotations__)
            close = "".join(f"did you mean {near}? " for near in get_close_matches(name, names, n=1))
            raise UsageError(f"score() has no argument {name}", hint=f"{close}arguments: {', '.join(names)}")
        if name in ("progress", "warn") and not callable(value):
            raise UsageError(f"{name} must be a function, got {value!r}")


def settings_for(
    lake: str | None,
    config: Config | None = None,
    metrics: str | Sequence[str] = (),
    columns: Columns | None = None,
    by: str | Sequence[str] = (),
    memory: float | None = None,
) -> Settings:
    """Return the settings: the description of the lake, overridden by the config, overridden by the arguments."""
    if not isinstance(columns, Mapping | None):
        raise UsageError(f"columns must be a dictionary, got {columns!r}", hint='e.g. {"model": "model_name"}')
    flags = _flatten(config) if isinstance(config, Mapping) else {}
    flags |= {f"columns.{key}": name for key, name in (columns or {}).items()}
    given = {"metrics.names": _names(metrics, "metrics"), "by": _names(by, "by"), "run.memory_gb": memory}
    flags |= {key: value for key, value in given.items() if value not in (None, ())}
    file = None if config is None or isinstance(config, Mapping) else Path(check_location(config, "config"))
    return load(file, **flags) if lake is None else settings_of(lake, file, **flags)


def _score_frame(
    attempts: Any, out: str, settings: Settings, entries: EntryKind | None, job: Mapping[str, Any]
) -> RunReport:
    """Score a data frame or matrices by way of a temporary file."""
    from scorelake.notebook import frames  # noqa: PLC0415 - loads Polars
    from scorelake.pipeline import run_score  # noqa: PLC0415

    is_matrix = frames.is_matrix(attempts)
    if entries and not is_matrix:
        raise _entries_without_matrix()
    name = frames.MATRIX if is_matrix else frames.FRAME
    with TemporaryDirectory(prefix="scorelake-") as folder:
        path = Path(folder) / f"{name}.parquet"
        frames.write_attempts(attempts, path, settings, entries or "passed")
        try:
            return run_score(str(path), out, settings, called=name, **job)
        except ScorelakeError as error:
            raise _without_file(error, path, name) from None


def _names(value: Any, argument: str) -> tuple[str, ...]:
    """Return names from a sequence, or from one text separated by commas."""
    names = value.split(",") if isinstance(value, str) else value
    names = list(names) if isinstance(names, Iterable) and not isinstance(names, bytes | Mapping) else [None]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{argument} must be a name or a list of names, got {value!r}")
    return tuple(name.strip() for name in names if name.strip())


def _flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a config to dotted keys, which override the description of the lake key by key."""
    flags: dict[str, Any] = {}
    for section, keys in config.items():
        if isinstance(keys, Mapping) and keys:
            flags |= {f"{section}.{key}": value for key, value in keys.items()}
            continue
        load(**{str(section): keys})  # raises the same error for an unknown section as a config file does
        flags |= {} if isinstance(keys, Mapping) else {str(section): keys}
    return flags


def _entries_without_matrix() -> UsageError:
    hint = 'for a table or a lake, map the column: columns={"score": ...} or {"passed": ...}'
    return UsageError("entries is for matrices only", hint=hint)


def _without_file(error: ScorelakeError, path: Path, name: str) -> ScorelakeError:
    """Return the error without the temporary file, its folder, and commands that need a file."""
    what, where, hint = (
        (text or "").replace(str(path), name).replace(path.name, name)
        for text in (error.what, error.where, error.hint)
    )
    what = what.replace(", or in conflict with the folder's name", "")
    hint = re.sub(r"(; |\. |\n  )`scorelake init.*\Z", "", hint, flags=re.DOTALL)
    hint = re.sub(r"in the command: (--(?:column|by) [^\n]+)", _as_arguments, hint)
    return type(error)(what, where=where or None, hint=hint or None)


def _as_arguments(flags: re.Match[str]) -> str:
    """Convert flags of the command line to arguments of score()."""
    words = shlex.split(flags[1])
    given = list(zip(words[::2], words[1::2], strict=True))
    columns = dict(word.split("=", 1) for flag, word in given if flag == "--column")
    arguments = [f"columns={json.dumps(columns, ensure_ascii=False)}"] if columns else []
    arguments += [f"by={json.dumps(word, ensure_ascii=False)}" for flag, word in given if flag == "--by"]
    return f"to score(): {', '.join(arguments)}"
