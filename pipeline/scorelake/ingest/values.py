"""Single values of foreign records as what we take them for; anything else is refused with what it was."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from scorelake.errors import DataError

LONGEST = 4096
"""Characters of an id."""
_ANSWER = 1000
"""Characters of an answer that are kept as they are; a longer one is told by its digest."""


def shown(value: Any) -> str:
    """A value as it is quoted in a message."""
    return json.dumps(value, ensure_ascii=True, default=str)[:80]


def name(value: Any, what: str) -> str:
    """An id or a name as a text. 7 is the text 7; true, 1.5, nothing and lists are no names."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{what} is {shown(value)}, which names nothing")
    text = str(value)
    if not text or len(text) > LONGEST:
        raise DataError(f"{what} has {len(text):,} characters; from 1 to {LONGEST:,} may be")
    if not text.isascii() and not _utf8(text):
        raise DataError(f"{what} {shown(text)} has half a character, which no file can hold")
    return text


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def verdict(value: Any, what: str, true: Collection[str] = ()) -> float | None:
    """1, 0, or None where there is none. Texts are verdicts only where it was said which of them are passes."""
    if value is None or value is True or value is False:
        return None if value is None else float(value)
    if isinstance(value, int | float) and value in (0, 1):
        return float(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, str) and true:
        return float(value in true)
    hint = "say which texts are passes with --true" if isinstance(value, str) else None
    raise DataError(f"{what} is {shown(value)}, which is neither true nor false", hint=hint)


def number(value: Any, what: str) -> float | None:
    """A finite number; None for null and NaN, which say that there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, Decimal):
        value = float(value)
    if not isinstance(value, bool | int | float) or not math.isfinite(_float(value)):
        raise DataError(f"{what} is {shown(value)}, which is no finite number")
    return float(value)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def answer(value: Any) -> str | None:
    """What was answered, as a text; a long one by its beginning and its digest, so that two stay two."""
    if value is None or isinstance(value, list | dict):
        return None
    text = json.dumps(value) if isinstance(value, bool | int | float) else str(value)
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) > _ANSWER:
        return f"{text[:_ANSWER]}... {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return text


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """An object, or nothing at all."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"{what} is {shown(value)}, not an object")
    return value


def brief(value: Any) -> Any:
    """A value of a protocol: short ones as they are, long ones as a digest."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 and "\n" not in text else f"#{hashlib.sha256(text.encode()).hexdigest()[:10]}"
