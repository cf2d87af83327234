"""What a table format's own log says of a file: the contract between the formats and the listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scorelake.storage.files import columns_of_table


@dataclass(frozen=True)
class Entry:
    """One file of a table's current version."""

    path: str
    """Relative to the table."""
    size: int
    values: Mapping[str, str | None]
    """Of columns that the file itself may not hold: partition values, and null for what was added since."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Numbers that columns keep when they are renamed, in formats that have them."""

    @property
    def table(self) -> str:
        return columns_of_table(self.values, self.ids)


def spelled(value: Any) -> str | None:
    """A value as a text, as it would be spelled were it in a column."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode() if isinstance(value, bytes) else str(value)
