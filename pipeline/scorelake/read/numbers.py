"""Numbers for people: percent if a metric lies between 0 and 1, with as many digits as its interval justifies.

Rounding is half up, from the exact value of the float, here and in the page's script.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import ceil, floor
from statistics import median

MILLION = 1_000_000
_PLACES = ((0.005, 1), (0.0005, 2))
"""Decimal places of a percentage by the smallest half width of the median interval; 3 below."""


@dataclass(frozen=True)
class Scale:
    """How the values of one metric on one board are written."""

    percent: bool = True
    places: int = 1

    @property
    def unit(self) -> str:
        return "%" if self.percent else ""

    def text(self, value: float | None) -> str:
        """Format a value without its unit; a dash for None."""
        if value is None:
            return "\u2013"
        if not self.percent:
            return f"{value:.4g}"
        return str((Decimal(value) * 100).quantize(Decimal(1).scaleb(-self.places), ROUND_HALF_UP) + 0)

    def signed(self, value: float | None) -> str:
        """Format a difference, in percentage points if the scale is percent."""
        text = self.text(value)
        return text.replace("-", "\u2212") if value is None or text.startswith("-") else f"+{text}"

    def between(self, lo: float | None, hi: float | None) -> str:
        return "\u2013" if lo is None or hi is None else f"{self.text(lo)} to {self.text(hi)}"

    def both(self, value: float | None, lo: float | None, hi: float | None) -> str:
        """Format a value with its interval: 67.7% (61.3 to 73.5)."""
        text = f"{self.text(value)}{self.unit if value is not None else ''}"
        return text if lo is None else f"{text} ({self.between(lo, hi)})"


def scale(rows: Iterable[tuple[float | None, float | None, float | None]]) -> Scale:
    """Return the scale of rows of (value, lo, hi)."""
    numbers = [[x for x in row if x is not None] for row in rows]
    half_widths = [(row[2] - row[1]) / 2 for row in numbers if len(row) == 3]
    percent = all(0 <= x <= 1 for row in numbers for x in row)
    half = median(half_widths) if half_widths else 1.0
    return Scale(percent, next((places for minimum, places in _PLACES if half >= minimum), 3))


def millionths(value: float | None) -> int | None:
    """Convert to millionths such that rounding to fewer digits gives the same as rounding the value.

    The last digit records that something was cut off: 0 becomes 1, 5 becomes 6.
    """
    if value is None:
        return None
    exact = Decimal(value) * MILLION
    cut = int(exact)
    return cut + (1 if value > 0 else -1) if cut != exact and cut % 5 == 0 else cut


def ticks(lo: float, hi: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers for an axis from below lo to above hi."""
    span = max(hi - lo, 1e-9)
    power = 10.0 ** (len(str(int(1 / span))) * -1 if span < 1 else len(str(int(span))) - 1)
    step = next(s * power for s in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20) if span / (s * power) <= count)
    first, last = floor(lo / step + 1e-9), ceil(hi / step - 1e-9)
    return [round(i * step, 9) for i in range(first, last + 1)]
