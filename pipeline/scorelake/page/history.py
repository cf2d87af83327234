"""How scores moved over runs: drawn for the first models, and the largest moves as a table."""

from __future__ import annotations

from typing import Any

from scorelake.page import svg
from scorelake.page.sections import COLOURED, Place
from scorelake.read.movers import movers

RUNS = 60
"""The runs that are drawn, the last ones."""


def history(place: Place) -> dict[str, Any] | None:
    """A drawing, its numbers and the movers; nothing where there is one run."""
    rows = place.read.dicts(
        "FROM history WHERE benchmark = ? AND protocol = ? AND metric = ? AND number <= ? ORDER BY number",
        *place.key,
        place.metric,
        place.facts.run["number"],
    )
    runs = list(dict.fromkeys(row["run_id"] for row in rows))[-RUNS:]
    if len(runs) < 2:
        return None
    when = {row["run_id"]: f"{row['started']:%Y-%m-%d %H:%M}" for row in rows}
    models = [line.model for line in place.lines if line.rank is not None][:COLOURED]
    series = []
    for i, model in enumerate(models):
        mine = {row["run_id"]: row for row in rows if row["model"] == model and row["value"] is not None}
        points = [
            svg.Point(x, mine[run]["value"], mine[run]["lo"], mine[run]["hi"])
            for x, run in enumerate(runs)
            if run in mine
        ]
        if points:
            series.append(svg.Series(place.label(model), points, i + 1))
    if not series:
        return None
    name = f"{place.metric} over the last {len(runs)} runs"
    return {
        "drawn": svg.timeline(series, [when[run] for run in runs], _changed(rows, runs), place.scale.percent, name),
        "legend": [(s.colour, s.name, svg.mark((s.colour or 1) - 1, 7, 7)) for s in series],
        "rows": [(when[run], [_cell(place, s, x) for s in series]) for x, run in enumerate(runs)],
        "names": [s.name for s in series],
        "movers": [
            (
                place.label(m.model),
                place.scale.text(m.before),
                place.scale.text(m.now),
                place.scale.signed(m.change),
                m.told,
            )
            for m in movers(place.read, place.board, place.metric)
        ],
    }


def _cell(place: Place, series: svg.Series, x: int) -> str:
    point = next((p for p in series.points if p.x == x), None)
    return "\u2013" if point is None else place.scale.both(point.value, point.lo, point.hi)


def _changed(rows: list[dict[str, Any]], runs: list[str]) -> list[int]:
    """Runs with another number of problems than the run before."""
    most = {run: max(row["problems"] for row in rows if row["run_id"] == run) for run in runs}
    return [i for i in range(1, len(runs)) if most[runs[i]] != most[runs[i - 1]]]
