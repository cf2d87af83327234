"""How scores moved over runs: drawn for the first models, as data for all, the largest moves as a table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scorelake.page import svg
from scorelake.page.sections import COLOURED, Place
from scorelake.read.movers import changed_settings, movers
from scorelake.read.numbers import millionths

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
    mine: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["value"] is not None:
            mine.setdefault(row["model"], {})[row["run_id"]] = row
    ranked = [line.model for line in place.lines if line.rank is not None and line.model in mine]
    series = [
        svg.Series(place.label(model), _points(mine[model], runs), i + 1) for i, model in enumerate(ranked[:COLOURED])
    ]
    series = [one for one in series if one.points]
    if not series:
        return None
    changed = _changed(place, rows, runs)
    name = f"{place.metric} over the last {len(runs)} runs"
    return {
        "drawn": svg.timeline(series, [when[run] for run in runs], changed, place.scale.percent, name),
        "legend": [(s.colour, s.name, svg.mark((s.colour or 1) - 1, (7, 7))) for s in series],
        "rows": [(when[run], [_cell(place, s, x) for s in series], changed.get(x, "")) for x, run in enumerate(runs)],
        "names": [s.name for s in series],
        "changed": bool(changed),
        "movers": [
            (
                place.short(m.model),
                place.scale.text(m.before),
                place.scale.text(m.now),
                place.scale.signed(m.change),
                m.note,
            )
            for m in movers(place.read, place.board, place.metric)
        ],
        "data": {
            "first": [s.name for s in series],
            "runs": [when[run] for run in runs],
            "changed": changed,
            "rows": [_packed(place, mine.get(line.model, {}), runs) for line in place.lines],
        },
    }


def _points(mine: dict[str, dict[str, Any]], runs: list[str]) -> list[svg.Point]:
    return [
        svg.Point(x, mine[run]["value"], mine[run]["lo"], mine[run]["hi"])
        for x, run in enumerate(runs)
        if run in mine
    ]


def _packed(place: Place, mine: dict[str, dict[str, Any]], runs: list[str]) -> list[list[float | None] | int]:
    """A model's scores run by run, each with its interval; 0 where it has none."""
    number = millionths if place.scale.percent else float
    return [
        [None if mine[run][end] is None else number(mine[run][end]) for end in ("value", "lo", "hi")]
        if run in mine
        else 0
        for run in runs
    ]


def _cell(place: Place, series: svg.Series, x: int) -> str:
    point = next((p for p in series.points if p.x == x), None)
    return "\u2013" if point is None else place.scale.both(point.value, point.lo, point.hi)


def _changed(place: Place, rows: list[dict[str, Any]], runs: list[str]) -> dict[int, str]:
    """Runs with other problems, settings or version than the run before, and what is different."""
    most = {run: max(row["problems"] for row in rows if row["run_id"] == run) for run in runs}
    known = {run["run_id"]: run for run in place.read.dicts("FROM run")}
    out = {}
    for i, (one, two) in enumerate(pairwise(runs), start=1):
        told = [f"{most[one]:,} problems before, {most[two]:,} now"] if most[one] != most[two] else []
        if keys := changed_settings(place.read, known[one], known[two]):
            told.append(f"other settings: {', '.join(keys)}")
        if known[one]["version"] != known[two]["version"]:
            told.append(f"scorelake {known[two]['version']}")
        if told:
            out[i] = "; ".join(told)
    return out
