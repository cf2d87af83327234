"""Read `_scorelake.json`, which `ingest` writes into a lake: defaults for settings, below config and flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scorelake.errors import DataError, UsageError
from scorelake.settings import NAMING, Settings, Storage, load

NAME, VERSION = "_scorelake.json", 1
_TYPES = {"version": int, "protocol": list, "carry": list, "columns": dict}
_COLUMNS = (*NAMING, "pass_values", "fail_values")


def settings_of(location: str, config: Path | None, **flags: Any) -> Settings:
    """Return the settings for a lake: its own description, overridden by the config, overridden by the flags."""
    settings = load(config, **flags)
    below = described(location, settings.storage)
    return load(config, below=below, **flags) if below else settings


def described(location: str, storage: Storage) -> dict[str, Any]:
    """Return the settings in the description of a lake, as a config would have them; {} without a description."""
    from scorelake.lake.download import read_bytes  # noqa: PLC0415 - loads Polars

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
    for key, value in content.items():
        if key not in _TYPES or not isinstance(value, _TYPES[key]):
            raise _invalid(f"{key} is unknown or has the wrong type", where)
    unknown = sorted(set(content.get("columns", {})) - set(_COLUMNS))
    if unknown:
        raise _invalid(f"columns has unknown keys: {', '.join(unknown)}", where)
    settings = {
        "columns": content.get("columns", {}) | {"carry": content.get("carry", [])},
        "protocol": {"columns": content.get("protocol", [])},
    }
    try:
        load(below=settings)
    except UsageError as error:
        raise _invalid(error.what, where) from None
    return settings


def _invalid(what: str, where: str) -> DataError:
    return DataError(what, where=where, hint="ingest again; or remove the file, and name the columns with --config")
