"""Changes between runs, read from the tables: the models that moved most, and settings that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scorelake.read.board import BoardRows, Reader

_CHANGES = """
SELECT model, value_before, value, change, outside, problems_before, problems FROM change
WHERE benchmark = ? AND protocol = ? AND metric = ? AND change IS NOT NULL AND change <> 0
ORDER BY abs(change) DESC, model LIMIT ?
"""
_SETTINGS = """
SELECT coalesce(one.key, two.key) AS key
FROM (FROM setting WHERE settings = ?) AS one
FULL JOIN (FROM setting WHERE settings = ?) AS two ON one.key = two.key
WHERE one.value IS DISTINCT FROM two.value
    AND split_part(coalesce(one.key, two.key), '.', 1) NOT IN ('run', 'storage', 'gates')
ORDER BY key
"""


@dataclass(frozen=True)
class Mover:
    """The change of one model's score, with a note on its significance."""

    model: str
    before: float
    now: float
    change: float
    note: str


def movers(read: Reader, board: BoardRows, metric: str, limit: int = 10) -> list[Mover]:
    """Return the largest changes since the previous run; none for a first run."""
    rows = read.rows(_CHANGES, board.benchmark, board.protocol, metric, limit)
    return [Mover(model, before, now, change, _note(*rest)) for model, before, now, change, *rest in rows]


def _note(outside: bool | None, before: int | None, now: int | None) -> str:
    if before != now:
        return f"other problems: {before or 0:,} before, {now or 0:,} now"
    if outside is None:
        return ""
    return "significant change" if outside else "not significant"


def changed_settings(read: Reader, before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """Return the keys of settings that differ between two runs and may affect scores."""
    if before is None or before["settings"] == now["settings"]:
        return []
    return [str(key) for (key,) in read.rows(_SETTINGS, before["settings"], now["settings"])]


def run_before(read: Reader, run: dict[str, Any]) -> dict[str, Any] | None:
    """Return the run that was published before this one."""
    return next(iter(read.dicts("FROM run WHERE number < ? ORDER BY number DESC LIMIT 1", run["number"])), None)
