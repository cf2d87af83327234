"""Sections of charts with their numbers in a table: scores over training steps, and score against cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from scorelake.page import svg
from scorelake.page.sections import BoardView
from scorelake.read.format import DASH, amount
from scorelake.read.measures import FRONTIER, HEADS, cells, read_costs
from scorelake.read.sentences import title
from scorelake.read.series import RunSeries, read_series
from scorelake.text import escape_controls

DRAWN, LISTED, NAMED = 200, 25, 24
"""Points of a curve that are drawn, steps in a table, and problems in a list."""
WIDE: svg.Frame = ((520, 320), (46, 122, 12, 30))
NARROW: svg.Frame = ((328, 250), (42, 12, 12, 28))
_BUDGET = """
SELECT model, budget, value, lo, hi FROM budget_curve
WHERE benchmark = ? AND protocol = ? AND measure = ? ORDER BY model, budget
"""


def sections(view: BoardView) -> list[dict[str, Any]]:
    """Return the sections that a board has: none without series and measures."""
    by_measure = groupby(board_costs(view), key=lambda row: row["measure"])
    return [*_series(view), *(_costs(view, measure, list(rows)) for measure, rows in by_measure)]


def board_series(view: BoardView) -> dict[str, list[RunSeries]]:
    """Return the series of a board by metric."""
    found = [each for each in read_series(view.reader) if (each.benchmark, each.protocol) == view.key]
    return {
        metric: [each for each in found if each.metric == metric] for metric in dict.fromkeys(e.metric for e in found)
    }


def board_costs(view: BoardView) -> list[dict[str, Any]]:
    return [row for row in read_costs(view.reader) if (row["benchmark"], row["protocol"]) == view.key]


def _thin(points: Sequence[Any], count: int) -> list[Any]:
    """Return at most so many of the points, evenly, the last included."""
    step = max(1, -(-len(points) // count))
    return list(points[::-1][::step][::-1])


def series_chart(view: BoardView, found: Sequence[RunSeries], frame: svg.Frame, labelled: bool = True) -> Markup:
    """Draw the curves of runs over their steps, with bands from lo to hi for the first seven."""
    scale, metric = found[0].scale, found[0].metric
    lines = [
        svg.Series(
            escape_controls(each.model),
            [svg.Point(*point[:4]) for point in _thin(each.points, DRAWN)],
            i if i <= len(svg.MARKERS) else None,
        )
        for i, each in enumerate(found, start=1)
    ]
    steps = sorted({point[0] for each in found for point in each.points})
    ends = svg.value_ticks(x for line in lines for point in line.points for x in (point.value, point.lo, point.hi))
    area = svg.PlotArea(*frame, (steps[0], steps[-1]), (ends[0], ends[-1]))
    shown = [steps[0]]
    for step in steps:
        if min(area.distance(shown[-1], step), area.distance(step, steps[-1])) >= 60:
            shown.append(step)
    name = f"{metric} of {title(view.board)} over steps"
    ticks = [(step, str(step)) for step in dict.fromkeys([*shown, steps[-1]])]
    return svg.curve_chart(lines, area, name, labelled, bands=True, percent=scale.percent, x_ticks=ticks)


def _series(view: BoardView) -> list[dict[str, Any]]:
    by_metric = board_series(view)
    if not by_metric:
        return []
    first, panels, tables = next(iter(by_metric.values())), [], []
    for metric, found in by_metric.items():
        charts = [series_chart(view, found, frame, frame is WIDE) for frame in (WIDE, NARROW)]
        panels.append((f"{metric} over steps, with intervals", charts[0] + charts[1]))
        steps = _thin(sorted({point[0] for each in found for point in each.points}), LISTED)
        values = [
            {step: each.scale.both(*ends) for step, *ends in (p[:4] for p in each.points)} for each in found[:12]
        ]
        rows = [[str(step), *(row.get(step, DASH) for row in values)] for step in steps]
        heads = ["Step", *(view.facts.short.get(each.model, escape_controls(each.model)) for each in found[:12])]
        tables.append((f"Values of {metric}", f"{metric} with interval, at {len(rows)} steps", heads, rows))
    problems = [
        (f"{escape_controls(each.model)}: {kind} from the first to the last step", len(names), names)
        for each in first
        for kind, names in (("learned", each.learned), ("forgotten", each.forgotten))
    ]
    return [
        {
            "name": "Training steps",
            "words": [f"{escape_controls(each.model)}: {each.text()}" for each in first],
            "panels": panels,
            "legend": [
                (i, escape_controls(each.model), svg.markers(i - 1, (7, 7))) for i, each in enumerate(first[:7], 1)
            ],
            "tables": tables,
            "lists": _name_problems(view, problems),
        }
    ]


def _name_problems(view: BoardView, lists: list[tuple[str, int, list[str]]]) -> list[tuple[str, int, str]]:
    """Return how many problems each list has, and the first by name unless the page hides names."""
    shown = NAMED if view.problem_names == "ids" else 0
    return [(text, count, escape_controls(", ".join(names[:shown]))) for text, count, names in lists]


def _ends(row: dict[str, Any], name: str) -> tuple[float, ...]:
    """Return a value and the ends of its interval, which is the value itself where there is none."""
    return tuple(row[name] if row[f"{name}{end}"] is None else row[f"{name}{end}"] for end in ("", "_lo", "_hi"))


def cost_chart(view: BoardView, rows: Sequence[dict[str, Any]], frame: svg.Frame) -> Markup:
    """Draw score against cost with both intervals, and the frontier."""
    measure = rows[0]["measure"]
    points = [
        svg.Place(
            view.label(row["model"]),
            _ends(row, "cost"),
            _ends(row, "score"),
            row["front_by_value"],
            row["on_front"],
        )
        for row in rows
        if row["cost"] and row["score"] is not None
    ]
    name = f"Score of {title(view.board)} against {measure} per attempt"
    return svg.frontier_chart(points, frame, name) if points else Markup("")


def _costs(view: BoardView, measure: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    order = [line.model for line in view.lines if line.model in {row["model"] for row in rows}][: len(svg.MARKERS)]
    curves = {
        model: [svg.Point(*point[1:]) for point in group]
        for model, group in groupby(view.rows(_BUDGET, measure), lambda row: row[0])
    }
    lines = [svg.Series(view.label(model), _used(curves.get(model, [])), i) for i, model in enumerate(order, 1)]
    lines = [line for line in lines if line.points]
    panels = [
        (f"pass@1 against {measure} per attempt", cost_chart(view, rows, WIDE) + cost_chart(view, rows, NARROW))
    ]
    if lines:
        ends = [point.x for line in lines for point in line.points]
        name = f"Score of {title(view.board)} within a budget"
        charts = []
        for frame in (WIDE, NARROW):
            area = svg.PlotArea(*frame, (min(ends), max(ends)), (0, 1), log=True)
            charts.append(svg.curve_chart(lines, area, name, frame is WIDE, x_ticks=svg.log_ticks(*area.x)))
        panels.append((f"pass@1 if an attempt must not cost more than a budget ({measure})", charts[0] + charts[1]))
    table = [
        [
            view.label(row["model"]),
            view.board.scale(view.metric).both(row["score"]) if row["score"] is not None else DASH,
            *cells(row),
        ]
        for row in rows
    ]
    total = amount(sum(row["total"] for row in rows))
    return {
        "name": f"Score against {measure}",
        "words": [f"All graded attempts: {total} {measure}. {FRONTIER}"],
        "panels": panels,
        "legend": [(line.colour, line.name, svg.markers((line.colour or 1) - 1, (7, 7))) for line in lines],
        "tables": [(f"Values of {measure}", f"{measure} by model", ["Model", "pass@1", *HEADS], table)],
        "lists": [],
    }


def _used(points: list[svg.Point]) -> list[svg.Point]:
    """Leave out the budgets within which nothing passes, and those beyond the dearest attempt that passed."""
    return [
        point for i, point in enumerate(points) if point.value > 0 and (i == 0 or point.value > points[i - 1].value)
    ]
