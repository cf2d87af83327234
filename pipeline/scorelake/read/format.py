"""Names and numbers for people: safe labels, and values with as many digits as their interval justifies.

A name is data and stays unchanged in every table. Metrics between 0 and 1 are percentages. Rounding is half up, from
the exact value of the float, here and in the page's script.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from difflib import SequenceMatcher
from math import ceil, floor
from statistics import median
from typing import Any

from scorelake.errors import UsageError
from scorelake.text import escape_controls, protocol_label

MAX_LABEL, SHORT_LABEL = 200, 60
"""Characters of a name on the page, and where there is little room."""
DASH, MINUS = "\u2013", "\u2212"
_MILLION = 1_000_000
_PLACES = ((0.005, 1), (0.0005, 2))
"""Decimal places of a percentage by the smallest half width of the median interval; 3 below."""


@dataclass(frozen=True)
class Scale:
    """How the values of one metric on one board are written."""

    percent: bool = True
    places: int = 1

    @classmethod
    def of(cls, rows: Iterable[tuple[float | None, float | None, float | None]]) -> Scale:
        """Return the scale of rows of (value, lo, hi)."""
        numbers = [[x for x in row if x is not None] for row in rows]
        half_widths = [(row[2] - row[1]) / 2 for row in numbers if len(row) == 3]
        half = median(half_widths) if half_widths else 1.0
        percent = all(0 <= x <= 1 for row in numbers for x in row)
        return cls(percent, next((places for minimum, places in _PLACES if half >= minimum), 3))

    @property
    def unit(self) -> str:
        return "%" if self.percent else ""

    def heading(self, name: str) -> str:
        """Return the head of a column whose values have no unit."""
        return f"{name}, %" if self.percent else name

    def text(self, value: float | None) -> str:
        """Format a value without its unit; a dash for None."""
        if value is None:
            return DASH
        if not self.percent:
            return f"{value:.4g}"
        return str((Decimal(value) * 100).quantize(Decimal(1).scaleb(-self.places), ROUND_HALF_UP) + 0)

    def signed(self, value: float | None) -> str:
        """Format a difference, in percentage points if the scale is percent."""
        text = self.text(value)
        return text.replace("-", MINUS) if value is None or text.startswith("-") else f"+{text}"

    def between(self, lo: float | None, hi: float | None) -> str:
        return DASH if lo is None or hi is None else f"{self.text(lo)} to {self.text(hi)}"

    def both(self, value: float | None, lo: float | None = None, hi: float | None = None) -> str:
        """Format a value with its interval: 67.7% (61.3 to 73.5)."""
        text = f"{self.text(value)}{self.unit if value is not None else ''}"
        return text if lo is None else f"{text} ({self.between(lo, hi)})"

    def pack(self, *values: float | None) -> list[float | None]:
        """Return values as the page's script gets them: percentages in millionths."""
        return [millionths(value) if self.percent else value for value in values]


def amount(value: float | None) -> str:
    """Format money, tokens or seconds: amount(0.01234) -> "0.01234", amount(81234.5) -> "81,234"."""
    return DASH if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def millionths(value: float | None) -> int | None:
    """Convert to millionths such that rounding to fewer digits gives the same as rounding the value.

    The last digit records that something was cut off: 0 becomes 1, 5 becomes 6.
    """
    if value is None:
        return None
    exact = Decimal(value) * _MILLION
    cut = int(exact)
    return cut + (1 if value > 0 else -1) if cut != exact and cut % 5 == 0 else cut


def ticks(lo: float, hi: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers for an axis from below lo to above hi."""
    span = max(hi - lo, 1e-9)
    power = 10.0 ** (len(str(int(1 / span))) * -1 if span < 1 else len(str(int(span))) - 1)
    step = next(s * power for s in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20) if span / (s * power) <= count)
    first, last = floor(lo / step + 1e-9), ceil(hi / step - 1e-9)
    return [round(i * step, 9) for i in range(first, last + 1)]


def canonical(metric: str, settings: dict[str, Any]) -> str:
    """Return the name of a metric in the tables; the settings of the run define the user's own spectra."""
    name = metric.strip().lower().removeprefix("threshold-")
    if name.startswith("spectrum@"):
        return name
    from scorelake.metrics import parse  # noqa: PLC0415 - scipy takes longer to load than `show` to print

    return parse(metric, settings.get("spectra", {})).name


def check_names(kind: str, available: Iterable[str], names: Iterable[str | None]) -> None:
    """Raise if a name is not available, and suggest the three closest. None is skipped."""
    available = list(available)
    for name in names:
        if name is not None and name not in available:
            near = sorted(available, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())
            hint = f"did you mean: {', '.join(near[:3])}?" if near else f"this output has no {kind}"
            raise UsageError(f"no {kind} {name} here", hint=hint)


def check_protocols(available: Iterable[str], texts: Iterable[str | None]) -> None:
    """Raise if a text selects none of the protocols. None is skipped."""
    named = {protocol: protocol_label(protocol) for protocol in sorted(available)}
    for text in texts:
        if text is not None and not any(matches_protocol(*each, text) for each in named.items()):
            labels = " | ".join(filter(None, named.values())) or "none"
            raise UsageError(f"no protocol {text} here", hint=f"protocols: {labels}")


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
