"""Settings of a run: the description that `ingest` writes into a lake, then the config, then arguments.

Nothing here loads Polars, since the command line sets its number of threads from the settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, get_args

from scorelake.errors import DataError, UsageError
from scorelake.lake.layouts import known_settings
from scorelake.settings import COMPOSITE, NAMING, Measure, Settings, Storage, load
from scorelake.storage.disk import check_location, read_bytes

NAME, VERSION = "_scorelake.json", 1
_KINDS = get_args(Measure.model_fields["kind"].annotation)
_LISTS, _TABLES = ("protocol", "carry", "files"), ("columns", "sources", "measures")
_COLUMNS = (*NAMING, "pass_values", "fail_values")
Config: TypeAlias = str | Path | Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str | Sequence[str]]


def settings_for(
    lake: str | None,
    config: Config | None = None,
    metrics: str | Sequence[str] = (),
    columns: Columns | None = None,
    by: str | Sequence[str] = (),
    memory: float | None = None,
    below: Mapping[str, Mapping[str, Any]] | None = None,
    measures: Mapping[str, Any] | None = None,
    window: str | None = None,
) -> Settings:
    """Return settings: the description of the lake (without a lake `below`), then the config, then the arguments."""
    if not isinstance(columns, Mapping | None):
        raise UsageError(f"columns must be a dictionary, got {columns!r}", hint='e.g. {"model": "model_name"}')
    flags = _flatten(config) if isinstance(config, Mapping) else {}
    flags |= {f"columns.{key}": name for key, name in (columns or {}).items()}
    flags |= {f"measures.{name}": measure for name, measure in (measures or {}).items()}
    if window:
        column, _, length = window.partition("=")
        if not (column and length):
            hint = "such as date=7d, date=2026-11-01 or run=3"
            raise UsageError(f"must be COLUMN=LENGTH, got {window}", where="--window", hint=hint)
        flags |= {
            "window.column": column,
            f"window.{'last' if re.fullmatch('[0-9]+[hdw]?', length) else 'since'}": length,
        }
    given = {"metrics.names": _names(metrics, "metrics"), "by": _names(by, "by"), "run.memory_gb": memory}
    flags |= {key: value for key, value in given.items() if value not in (None, ())}
    file = None if config is None or isinstance(config, Mapping) else Path(check_location(config, "config"))
    settings = load(file, below=below, **flags)
    if lake is not None and (below := described(lake, settings.storage)):
        return load(file, below=below, **flags)
    return settings


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


def load_description(location: str, storage: Storage) -> dict[str, Any]:
    """Return the checked description of a lake; {} without one."""
    where = f"{location.rstrip('/')}/{NAME}"
    try:
        content = json.loads(read_bytes(where, storage).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, RecursionError) as error:
        raise _invalid(f"cannot be read: {error}", where) from None
    if not isinstance(content, dict):
        raise _invalid("must be a JSON object", where)
    if content.get("version") != VERSION:
        what = f"has version {content.get('version')!r}, but this scorelake reads version {VERSION}"
        raise DataError(what, where=where, hint="use the scorelake that wrote it, or ingest again with this one")
    types = {"version": int} | dict.fromkeys(_LISTS, list) | dict.fromkeys(_TABLES, dict)
    for key, value in content.items():
        if not isinstance(value, types.get(key, ())):
            raise _invalid(f"{key} is unknown or has the wrong type", where)
    if unknown := sorted(set(content.get("columns", {})) - set(_COLUMNS)):
        raise _invalid(f"columns has unknown keys: {', '.join(unknown)}", where)
    return content


def described(location: str, storage: Storage) -> dict[str, Any]:
    """Return the settings of a lake that describes itself, as a config would have them; {} of any other."""
    content = load_description(location, storage)
    if not content:
        return known_settings(location)
    settings = {
        "columns": content.get("columns", {}) | {"carry": content.get("carry", [])},
        "protocol": {"columns": content.get("protocol", [])},
        "measures": content.get("measures", {}),
    }
    try:
        load(below=settings)
    except UsageError as error:
        raise _invalid(error.what, f"{location.rstrip('/')}/{NAME}") from None
    return settings


def _invalid(what: str, where: str) -> DataError:
    return DataError(what, where=where, hint="ingest again; or remove the file, and name the columns with --config")


def mapped(pairs: Iterable[str]) -> dict[str, str | tuple[str, ...]]:
    """Return the column of each key, from KEY=NAME as --column has them; several where a key is repeated."""
    names: dict[str, dict[str, None]] = {}
    for pair in pairs:
        key, given, name = pair.partition("=")
        if not given or key not in NAMING:
            meant = "".join(f"did you mean {near}? " for near in get_close_matches(key, NAMING, n=1))
            what = "must be KEY=NAME" if not given else f"unknown key {key}"
            raise UsageError(f"{what}, got {pair}", where="--column", hint=f"{meant}known keys: {', '.join(NAMING)}")
        names.setdefault(key, {})[name] = None
        if len(names[key]) > 1 and key not in COMPOSITE:
            raise UsageError(f"{key} is given twice, and differently", where="--column")
    return {key: tuple(each) if len(each) > 1 else next(iter(each)) for key, each in names.items()}


def measured(pairs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the measures of NAME=KIND or NAME=KIND:COLUMN, as --measure has them."""
    out: dict[str, dict[str, str]] = {}
    for pair in pairs:
        name, _, rest = pair.partition("=")
        kind, _, column = rest.partition(":")
        if kind not in _KINDS:
            hint = f"kinds: {', '.join(_KINDS)}; such as cost_usd=cost"
            raise UsageError(f"must be NAME=KIND or NAME=KIND:COLUMN, got {pair}", where="--measure", hint=hint)
        out[name] = {"kind": kind} | ({"column": column} if column else {})
    return out
