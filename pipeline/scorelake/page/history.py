"""Scores over runs: a chart of the first models, the data of all, and the largest changes as a table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scorelake.page import svg
from scorelake.page.sections import COLOURED, DASH, BoardView, pack
from scorelake.read.movers import changed_settings, movers

RUNS = 60
"""The last runs are drawn, at most this many."""
_HISTORY = """
SELECT run_id, started, model, problems, value, lo, hi FROM history
WHERE benchmark = ? AND protocol = ? AND metric = ? AND number <= ? ORDER BY number
"""


def history(view: BoardView) -> dict[str, Any] | None:
    """Return the chart, its numbers and the largest changes; None with a single run."""
    times, problems = {}, dict[str, int]()
    scores: dict[str, dict[str, tuple[Any, ...]]] = {}
    for run, started, model, count, *score in view.rows(_HISTORY, view.metric, view.facts.run["number"]):
        times[run] = f"{started:%Y-%m-%d %H:%M}"
        problems[run] = max(count, problems.get(run, 0))
        if score[0] is not None:
            scores.setdefault(model, {})[run] = tuple(score)
    runs = list(times)[-RUNS:]
    lines = [[scores.get(line.model, {}).get(run) for run in runs] for line in view.lines]
    first = [i for i, line in enumerate(view.lines) if line.rank is not None and any(lines[i])][:COLOURED]
    if len(runs) < 2 or not first:
        return None
    names = [view.label(view.lines[i].model) for i in first]
    series = [
        svg.Series(name, [svg.Point(x, *score) for x, score in enumerate(lines[i]) if score], colour)
        for colour, (name, i) in enumerate(zip(names, first, strict=True), start=1)
    ]
    changes = _changes(view, runs, problems)
    scale, started = view.scale, [times[run] for run in runs]
    title = f"{view.metric} over the last {len(runs)} runs"
    return {
        "chart": svg.history_chart(series, started, changes, scale.percent, title),
        "legend": [(colour, name, svg.markers(colour - 1, (7, 7))) for colour, name in enumerate(names, start=1)],
        "rows": [
            (started[x], [scale.both(*score) if score else DASH for score in scores_of_run], changes.get(x, ""))
            for x, scores_of_run in enumerate(zip(*(lines[i] for i in first), strict=True))
        ],
        "names": names,
        "changed": bool(changes),
        "movers": [
            (view.short(m.model), scale.text(m.before), scale.text(m.now), scale.signed(m.change), m.told)
            for m in movers(view.reader, view.board, view.metric)
        ],
        "data": {
            "first": names,
            "runs": started,
            "changes": changes,
            "rows": [[pack(scale, *score) if score else 0 for score in line] for line in lines],
        },
    }


def _changes(view: BoardView, runs: list[str], problems: dict[str, int]) -> dict[int, str]:
    """Return what changed at a run, by its position: the problems, the settings or the version."""
    by_id = {run["run_id"]: run for run in view.reader.dicts("FROM run")}
    out = {}
    for i, (old, new) in enumerate(pairwise(runs), start=1):
        notes = []
        if problems[old] != problems[new]:
            notes.append(f"{problems[old]:,} problems before, {problems[new]:,} now")
        if keys := changed_settings(view.reader, by_id[old], by_id[new]):
            notes.append(f"settings changed: {', '.join(keys)}")
        if by_id[old]["version"] != by_id[new]["version"]:
            notes.append(f"scorelake {by_id[new]['version']}")
        if notes:
            out[i] = "; ".join(notes)
    return out
