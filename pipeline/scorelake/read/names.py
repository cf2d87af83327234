"""Names as people type them: metrics by any of their names, protocols by some of their keys, and what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from scorelake import metrics
from scorelake.errors import UsageError


def canonical(metric: str, settings: dict[str, Any]) -> str:
    """The name that tables have for a metric, the user's own spectra included; the settings are the run's."""
    name = metric.strip().lower().removeprefix("threshold-")
    if name.startswith("spectrum@"):
        return name
    return metrics.parse(metric, settings.get("spectra", {})).name


def there(what: str, known: Sequence[str], given: Sequence[str]) -> None:
    """Every name that is given is known; if not, the three closest are told."""
    for name in given:
        if name not in known:
            near = sorted(known, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())[:3]
            raise UsageError(f"no {what} {name} here", hint=f"did you mean: {', '.join(near)}?" if near else None)


def says(protocol: str, label: str, asked: str) -> bool:
    """A protocol is the one asked for: by its text, its label, or some of its keys and values."""
    parts = {part.strip() for part in asked.split(",")}
    return asked in (protocol, label) or parts <= set(label.split(", "))
