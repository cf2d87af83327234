"""Names of metrics, models and protocols: parsing them as typed, and labels that are safe to print.

A name is data and stays unchanged in every table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.text import escape_controls

MAX_LABEL = 200
"""Characters of a name on the page."""


def canonical(metric: str, settings: dict[str, Any]) -> str:
    """Return the name of a metric in the tables; the settings of the run define the user's own spectra."""
    name = metric.strip().lower().removeprefix("threshold-")
    if name.startswith("spectrum@"):
        return name
    return metrics.parse(metric, settings.get("spectra", {})).name


def check_names(kind: str, available: Sequence[str], names: Iterable[str | None]) -> None:
    """Raise if a name is not available, and suggest the three closest. None is skipped."""
    for name in names:
        if name is not None and name not in available:
            near = sorted(available, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())[
                :3
            ]
            raise UsageError(f"no {kind} {name} here", hint=f"did you mean: {', '.join(near)}?" if near else None)


def matches_protocol(protocol: str, label: str, text: str) -> bool:
    """Return whether a text selects a protocol: by its JSON, its label, or a subset of its keys and values."""
    parts = {part.strip() for part in text.split(",")}
    return text in (protocol, label) or parts <= set(label.split(", "))


def shorten(text: str, limit: int = MAX_LABEL) -> str:
    """Cut a text in the middle, where names of one family differ least: shorten("abcdefg", 5) -> "ab…fg"."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return text[: limit - 1 - tail] + "\u2026" + (text[-tail:] if tail else "")


def labels(names: Iterable[str], limit: int = MAX_LABEL) -> dict[str, str]:
    """Return a printable label for every name; no two are equal."""
    unique: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        text, copies = shorten(escape_controls(name), limit), 1
        label = text
        while label in taken:
            copies += 1
            label = f"{text} ({copies})"
        taken.add(label)
        unique[name] = label
    return unique
