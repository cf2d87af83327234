"""Text helpers. Names are data: printed, none of them may move the cursor, hide text or reverse its direction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any


def escape_controls(text: str) -> str:
    r"""Escape invisible characters (control, bidirectional, zero-width): "a\x1b" -> "a\\x1b"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_control_lines(text: str) -> str:
    """Escape a message of several lines; further lines of our own are empty or begin with two spaces."""
    first, *more = text.split("\n")
    return escape_controls(first) + "".join(
        ("\n" if line[:2] in ("", "  ") else "\\n") + escape_controls(line) for line in more
    )


def protocol_label(protocol: str) -> str:
    """Return a readable form of a protocol: temperature=0.2, grader=x. Empty if none is configured."""
    values = json.loads(protocol) if protocol else {}
    return ", ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()
    )


def bare(name: str) -> str:
    """Return a name in lower case without punctuation: Task-ID -> taskid."""
    return "".join(letter for letter in name.casefold() if letter.isalnum()) or name


def plural(number: int, noun: str) -> str:
    """Return a count with its noun: 1 problem, 2 problems."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def score_name(row: Mapping[str, Any]) -> str:
    """Return the benchmark, model and protocol of a row, as far as it has them: "gsm8k / model-a"."""
    return " / ".join(row[key] for key in ("benchmark", "model", "protocol") if row[key])


def toml_text(text: str) -> str:
    """Quote a text for TOML."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain) + '"'


def json_value(value: Any) -> Any:
    """Return what JSON can hold: NaN and infinity become null, other types text."""
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
