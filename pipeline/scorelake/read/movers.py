"""Who moved most since the run before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scorelake.read.board import Board, Reader

_CHANGE = """
SELECT model, value_before, value, change, outside, problems_before, problems FROM change
WHERE benchmark = ? AND protocol = ? AND metric = ? AND change IS NOT NULL AND change <> 0
ORDER BY abs(change) DESC, model LIMIT ?
"""


@dataclass(frozen=True)
class Mover:
    """One model's move, and what may be said of it."""

    model: str
    before: float
    now: float
    change: float
    told: str


def movers(read: Reader, board: Board, metric: str, many: int = 10) -> list[Mover]:
    """The largest moves first; none where there was no run before."""
    return [
        Mover(model, before, now, change, _told(outside, was, problems))
        for model, before, now, change, outside, was, problems in read.rows(
            _CHANGE, board.benchmark, board.protocol, metric, many
        )
    ]


def _told(outside: bool | None, was: int | None, problems: int | None) -> str:
    if was != problems:
        return f"other problems: {was or 0:,} before, {problems or 0:,} now"
    if outside is None:
        return ""
    return "more than noise of the attempts" if outside else "within the noise of the attempts"


def changed_settings(read: Reader, before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """Settings that differ between two runs and that scores may depend on, by their keys."""
    if before is None or before["settings"] == now["settings"]:
        return []
    rows = read.rows(
        """
        SELECT coalesce(one.key, two.key)
        FROM (FROM setting WHERE settings = ?) AS one
        FULL JOIN (FROM setting WHERE settings = ?) AS two ON one.key = two.key
        WHERE one.value IS DISTINCT FROM two.value
            AND split_part(coalesce(one.key, two.key), '.', 1) NOT IN ('run', 'storage', 'gates')
        ORDER BY 1
        """,
        before["settings"],
        now["settings"],
    )
    return [str(key) for (key,) in rows]


def run_before(read: Reader, run: dict[str, Any]) -> dict[str, Any] | None:
    """The run that was published before this one."""
    found = read.dicts("FROM run WHERE number < ? ORDER BY number DESC LIMIT 1", run["number"])
    return found[0] if found else None
