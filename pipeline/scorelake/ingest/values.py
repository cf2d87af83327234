"""Convert single values of foreign records; any value that has no clear meaning is refused and quoted."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from scorelake.errors import DataError

MAX_NAME = 4096
"""Maximum length of an id, in characters."""
_MAX_ANSWER = 1000
_MAX_SETTING = 60


def quote(value: Any) -> str:
    """Format a value for a message."""
    return json.dumps(value, ensure_ascii=True, default=str)[:80]


def to_name(value: Any, what: str) -> str:
    """Convert an id or a name to text: 7 and 7.0 become "7"; true, 1.5, null and lists are refused."""
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_NAME:
        return value  # most names
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{what} is {quote(value)}, which is not a name")
    text = str(value)
    if not text or len(text) > MAX_NAME:
        raise DataError(f"{what} has {len(text):,} characters; 1 to {MAX_NAME:,} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{what} {quote(text)} has an unpaired surrogate and cannot be stored") from None
    return text


def to_verdict(value: Any, what: str, true: Collection[str] = ()) -> float | None:
    """Convert a verdict to 1, 0 or None (ungraded). Texts are refused unless `true` lists those that mean passed."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return float(value)
    if isinstance(value, str) and true:
        return float(value in true)
    hint = "name the texts that mean passed with --true" if isinstance(value, str) else None
    raise DataError(f"{what} is {quote(value)}, which is neither true nor false", hint=hint)


def to_number(value: Any, what: str) -> float | None:
    """Convert a finite number; null and NaN become None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        number = float(value) if isinstance(value, bool | int | float | Decimal) else math.inf
    except OverflowError:  # an integer beyond the range of a float
        number = math.inf
    if not math.isfinite(number):
        raise DataError(f"{what} is {quote(value)}, which is not a finite number")
    return number


def to_timestamp(value: Any) -> float | None:
    """Convert an ISO 8601 time to seconds since 1970; without a zone it is UTC. Anything else becomes None."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def to_duration(record: dict[str, Any], start: str, end: str) -> float | None:
    """Return the seconds between two times of a record; None if one is missing."""
    first, last = to_timestamp(record.get(start)), to_timestamp(record.get(end))
    return None if first is None or last is None else last - first


def to_answer(value: Any) -> str | None:
    """Convert an answer to text. A long one is cut and gets a digest, so that different answers stay different."""
    if value is None or isinstance(value, list | dict):
        return None
    text = to_text(json.dumps(value) if isinstance(value, bool | int | float) else str(value))
    is_short = len(text) <= _MAX_ANSWER
    return text if is_short else f"{text[:_MAX_ANSWER]}... {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def to_setting(value: Any) -> Any:
    """Convert a protocol setting: short values are kept, long ones are replaced by a digest."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = to_text(
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    )
    is_short = len(text) <= _MAX_SETTING and "\n" not in text
    return text if is_short else f"#{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def to_text(text: str) -> str:
    """Escape unpaired surrogates, which cannot be stored."""
    return text.encode("utf-8", "backslashreplace").decode()


def get_object(record: Any, *keys: str) -> dict[str, Any]:
    """Return the object at nested keys, {} where a key is missing or null; any other type is refused."""
    for key in keys:
        record = record.get(key)
        if record is None:
            return {}
        if not isinstance(record, dict):
            raise DataError(f"{key} is {quote(record)}, not an object")
    return dict(record)


def join(record: Mapping[str, Any], *keys: str, separator: str = " ") -> str:
    """Join the values of these keys that are not empty."""
    return separator.join(str(record[key]) for key in keys if record.get(key))


def pick(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a record under our names, by theirs."""
    return {ours: record.get(theirs) for ours, theirs in names.items()}
