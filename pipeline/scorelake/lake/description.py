"""What a lake says of itself: `_scorelake.json`, which `ingest` writes. Defaults below the config and the flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scorelake.errors import DataError, UsageError
from scorelake.settings import NAMING, Settings, Storage, load
from scorelake.storage.disk import is_remote

NAME, VERSION = "_scorelake.json", 1
_KEYS = {"version": int, "protocol": list, "carry": list, "columns": dict}
_COLUMNS = (*NAMING, "pass_values", "fail_values")


def settings_of(location: str, config: Path | None, **flags: Any) -> Settings:
    """Settings for a lake: what it says of itself, then the config, then the flags."""
    told = described(location, load(config, **flags).storage)
    return load(config, below=told, **flags) if told else load(config, **flags)


def described(location: str, storage: Storage) -> dict[str, Any]:
    """The settings that a lake brings along, as a config would have them; nothing if it says nothing."""
    where = f"{location.rstrip('/')}/{NAME}"
    text = _text(location, storage)
    if text is None:
        return {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"cannot be read: {error}", where) from None
    if not isinstance(told, dict):
        raise _damaged("must be a JSON object", where)
    if told.get("version") != VERSION:
        raise DataError(
            f"is of version {told.get('version')!r}, this is a scorelake that reads version {VERSION}",
            where=where,
            hint="use the scorelake that wrote it, or ingest again with this one",
        )
    for key, value in told.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise _damaged(f"{key} is not known, or not as it must be", where)
    unknown = sorted(set(told.get("columns", {})) - set(_COLUMNS))
    if unknown:
        raise _damaged(f"columns has keys that are not known: {', '.join(unknown)}", where)
    tree = {
        "columns": told.get("columns", {}) | {"carry": told.get("carry", [])},
        "protocol": {"columns": told.get("protocol", [])},
    }
    try:
        load(below=tree)
    except UsageError as error:
        raise _damaged(error.what, where) from None
    return tree


def _text(location: str, storage: Storage) -> str | None:
    if not is_remote(location):
        path = Path(location) / NAME
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnicodeDecodeError as error:
            raise _damaged(f"cannot be read: {error}", str(path)) from None
    from scorelake.storage.objects import Objects  # noqa: PLC0415 - the library of object storage is loaded where it is used

    store = Objects(location, storage)
    found = store.find(NAME)
    if found is None:
        return None
    try:
        return store.read(found, 0, found.size).decode() if found.size else ""
    except UnicodeDecodeError as error:
        raise _damaged(f"cannot be read: {error}", f"{store.url}/{NAME}") from None


def _damaged(what: str, where: str) -> DataError:
    return DataError(
        what, where=where, hint="ingest writes it anew; or remove it, and say with --config what is what"
    )
