"""Sections of charts with their numbers in tables: curves over k, history, training steps, and costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup

from scorelake.page import svg
from scorelake.page.sections import COLOURED, MANY, BoardView, Figure, Grid, Section, board_costs
from scorelake.page.svg import Point, Series
from scorelake.read.format import DASH, Scale, amount
from scorelake.read.measures import FRONTIER, HEADS, cells
from scorelake.read.report import changed_settings, movers
from scorelake.read.series import read_series
from scorelake.text import escape_controls, plural

CURVES = {"pass@k": "at least one of k attempts passes", "pass^k": "all k attempts pass"}
DRAWN, LISTED, COLUMNS, NAMED, RUNS = 200, 100, 12, 24, 60
"""Points of a curve over steps; rows and columns of a table; problems in a list; runs of the history."""
VALUES = "Values of this chart"
_COLOURS, _PERCENT = len(svg.MARKERS), Scale()

_CURVES = """
WITH made AS (
    SELECT model, family, k, value, lo, hi, scored FROM curve
    WHERE benchmark = $benchmark AND protocol = $protocol AND value IS NOT NULL AND family IN ('pass@k', 'pass^k')
)
FROM made UNION ALL
SELECT model, 'pass@k', k, value, lo, hi, 0 FROM forecast WHERE benchmark = $benchmark AND protocol = $protocol
    AND k > coalesce((SELECT max(k) FROM made WHERE made.model = forecast.model AND family = 'pass@k'), 0)
ORDER BY k
"""
_HISTORY = """
SELECT run_id, started, model, problems, value, lo, hi FROM history
WHERE benchmark = ? AND protocol = ? AND metric = ? AND number <= ? ORDER BY number
"""
_COST_CURVE = """
SELECT model, k, value, lo, hi, cost, cost_lo, cost_hi, solved_per_cost, solved_per_cost_lo, solved_per_cost_hi
FROM cost_curve WHERE benchmark = ? AND protocol = ? AND measure = ? AND value IS NOT NULL AND cost > 0
ORDER BY model, k
"""
_BUDGET = """
SELECT model, budget, value, lo, hi FROM budget_curve WHERE benchmark = ? AND protocol = ? AND measure = ?
    AND budget >= (SELECT min(budget) FROM budget_curve WHERE value > 0 AND measure = $3 AND benchmark = $1)
    AND budget <= (SELECT max(least_budget) FROM (
        SELECT arg_min(budget, (-value, budget)) AS least_budget FROM budget_curve
        WHERE measure = $3 AND benchmark = $1 GROUP BY model))
ORDER BY model, budget
"""
_STEP_COSTS = """
SELECT s.model, s.step, m.value, m.lo, m.hi
FROM (SELECT DISTINCT benchmark, protocol, model, step FROM series) AS s
JOIN measure_summary AS m
    ON m.benchmark = s.benchmark AND m.protocol = s.protocol AND m.model = concat(s.model, '@', s.step)
WHERE s.benchmark = ? AND s.protocol = ? AND m.measure = ?
QUALIFY row_number() OVER (PARTITION BY s.model, s.step ORDER BY m.problems DESC) = 1  -- not the subjects
ORDER BY s.model, s.step
"""
_CROSSOVER = """
SELECT model, metric, metric_k, step_from, step_to, direction, lift, lift_k FROM crossover
WHERE benchmark = ? AND protocol = ? ORDER BY ALL
"""


def line_figure(
    lines: Sequence[Series],
    caption: str,
    across: str,
    y: tuple[float, float] | None = None,
    scale: Scale = _PERCENT,
    text: Callable[[Point], str] | None = None,
    names: Mapping[float, str] | None = None,
    table: Grid | None = None,
    points: Sequence[Any] = (),
    **drawn: Any,
) -> Figure:
    """Return a chart of lines, with a table of their values: a row for every x, a column for every coloured line.

    `across` names the x axis; `names` are its values as text, and k, budgets and costs have a log axis. Without `y`
    the other axis follows the values. `points` are those of all models for the script, under the name `source`.
    """
    shown, is_log = [p for line in lines for p in line.points], across in ("k", "Budget", "Cost")
    xs = sorted({p.x for p in shown})
    reach = [x for p in shown for x in (p.x, *(p.x_ends or ())) if x > 0 or not is_log] or [1.0]
    around, ends = svg.value_ticks(x for p in shown for x in (p.value, p.lo, p.hi)), (min(reach), max(reach))
    ticks = svg.log_ticks(*ends) if is_log else svg.linear_ticks(ends)
    if across == "k":
        ticks = [(2.0**i, f"{2**i}" if i else "k = 1") for i in range(int(xs[-1]).bit_length())]
    elif names:
        ticks = [(end, names[end].partition(": ")[0]) for end in ends]

    def draw(frame: svg.Frame) -> Markup:
        area = svg.PlotArea(*frame, ends, y or (around[0], around[-1]), ticks, is_log, scale.percent)
        return svg.line_chart(lines, area, caption, **drawn) if shown else Markup("")

    if table is None:
        rows, columns = svg.thin(xs, 30 if is_log else LISTED), [line for line in lines if line.has_column]
        write = text or (lambda p: scale.both(p.value, p.lo, p.hi))
        values = [{p.x: write(p) for p in line.points} for line in columns]
        heads = [names[x] if names else f"{x:g}" if x < 1e6 else f"{x:.0f}" for x in rows]
        body = [[head, *(row.get(x, DASH) for row in values)] for head, x in zip(heads, rows, strict=True)]
        table = Grid(caption, [across, *(line.name for line in columns)], body, VALUES, rows)
    return Figure(caption, draw, table, drawn.get("source", ""), points)


def curve_points(view: BoardView) -> dict[tuple[str, str], list[Point]]:
    """Return the points of pass@k and pass^k by family and model, at k = 1, 2, 3, 4, 6, 8, 12, ... and forecasts."""
    points: dict[tuple[str, str], list[Point]] = defaultdict(list)
    keys = dict(zip(("benchmark", "protocol"), view.key, strict=True))
    for model, family, k, value, lo, hi, scored in view.reader.table(_CURVES, keys)[1]:
        if scored == 0 or k // (k & -k) <= 3:  # the odd part of k is 1 or 3
            points[family, model].append(Point(k, value, lo, hi, scored))
    return points


def curve_figure(lines: Sequence[Series], caption: str, **drawn: Any) -> Figure:
    """Return a chart of curves over k."""
    return line_figure(lines, caption, "k", (0, 1), text=_curve_cell, **drawn)


def _curve_cell(point: Point) -> str:
    """Return the percentage, with a star where it does not cover all problems."""
    text = Scale().text(point.value)
    if point.coverage == 0:
        return f"forecast {text} ({Scale().between(point.lo, point.hi)})"
    return text if point.coverage >= 1 else f"{text}*"


def curves(view: BoardView) -> list[Section]:
    """Return pass@k and pass^k over k."""
    points, models = curve_points(view), [line.model for line in view.lines]
    largest = max((int(curve[-1].x) for curve in points.values()), default=1)
    if largest < 2:
        return []
    figures, columns = [], COLUMNS if len(models) <= MANY else 6
    for family, caption in CURVES.items():
        lines = [
            Series(view.label(model), points[family, model], i if i <= COLOURED else None, i <= columns)
            for i, model in enumerate(models, start=1)
            if (family, model) in points
        ]
        packed = [_pack(points.get((family, model), []), 10_000) for model in models]
        if lines:
            figures.append(curve_figure(lines, f"{family}, %: {caption}", source=family, points=packed))
    coverages = {point.coverage for curve in points.values() for point in curve}
    is_cut = any(0 < coverage < 1 for coverage in coverages) or any(c[-1].x < largest for c in points.values())
    notes = [
        "Dashed, *: some problems have fewer than k attempts. A line ends where too few problems have k."
    ] * is_cut
    if 0 in coverages:
        notes.append(
            "Dotted, with its interval: a forecast for more attempts than were made, from the distribution of "
            "success rates over problems. It is no part of the leaderboard."
        )
    legend = [(i, view.label(model)) for i, model in enumerate(models[:COLOURED], 1)]
    words, others = _gap(view, models[0], points), max(len(models) - COLOURED, 0)
    return [Section("curves", "pass@k and pass^k", words, figures, legend, others, notes=notes)]


def _pack(points: Iterable[Point], unit: int) -> list[list[float]]:
    """Return x; value, lo and hi in these units; and 2 where all problems are covered, 0 for a forecast."""
    ends = [(p.value, p.value if p.lo is None else p.lo, p.value if p.hi is None else p.hi) for p in points]
    scores = [[round(unit * x) if unit > 1 else x for x in values] for values in ends]
    return [[int(p.x), *score, p.kind] for p, score in zip(points, scores, strict=True)]


def _gap(view: BoardView, model: str, points: Mapping[tuple[str, str], Sequence[Point]]) -> list[str]:
    """Describe the distance between both curves of a model."""
    up, down = ({p.x: p for p in points.get((family, model), ()) if p.coverage} for family in CURVES)
    common = [x for x in up if x in down and up[x].coverage >= 1] or [x for x in up if x in down]
    if not common or up[common[-1]].value == down[common[-1]].value:
        return []
    k, text = int(common[-1]), Scale().text
    a, b = up[k].value, down[k].value
    return [
        f"{view.label(model)} solves {text(a)}% of the problems at least once in {plural(k, 'attempt')} and "
        f'{text(b)}% every time. {text(a - b)} points separate "solved at least once in {k}" from '
        '"solved every time".'
    ]


def history(view: BoardView) -> list[Section]:
    """Return scores over runs, their numbers and the largest changes; nothing with a single run."""
    times, problems, points = {}, dict[str, int](), defaultdict[str, dict[str, Any]](dict)
    for run, started, model, count, *score in view.rows(_HISTORY, view.metric, view.facts.run["number"]):
        times[run] = f"{started:%Y-%m-%d %H:%M}"
        problems[run] = max(count, problems.get(run, 0))
        if score[0] is not None:
            points[model][run] = score
    runs, scale = list(times)[-RUNS:], view.scale
    lines = [
        [Point(x, *points[each.model][run]) for x, run in enumerate(runs) if run in points[each.model]]
        for each in view.lines
    ]
    first = [i for i, line in enumerate(view.lines) if line.rank is not None and lines[i]][:COLOURED]
    if len(runs) < 2 or not first:
        return []
    changes = _changes_at_runs(view, runs, problems)
    names = {x: ": ".join(filter(None, (times[run], changes.get(x)))) for x, run in enumerate(runs)}
    ends = svg.value_ticks(x for line in lines for p in line for x in (p.value, p.lo, p.hi))
    figure = line_figure(
        [Series(view.label(view.lines[i].model), lines[i], colour) for colour, i in enumerate(first, start=1)],
        f"{view.metric} with interval, by run",
        "Run",
        (ends[0], ends[-1]),
        scale,
        names={float(x): name for x, name in names.items()},
        intervals="bars",
        changes={x: names[x] for x in changes},
        source="history",
        points=[_pack(line, 10_000 if scale.percent else 1) for line in lines],
    )
    moved = movers(view.reader, view.board, view.metric, view.facts.short, 10)
    largest = Grid("Largest changes since the previous run", ["Model", "Before", "Now", "Change", "Note"], moved)
    words = f"{view.metric} of the first models and of pinned models."
    words += " Dashed line: problems or settings changed (see the table below)." * bool(changes)
    legend = [(colour, view.label(view.lines[i].model)) for colour, i in enumerate(first, 1)]
    notes = [] if moved else ["No score changed since the previous run."]
    return [Section("history", "History", [words], [figure], legend, tables=[largest] if moved else [], notes=notes)]


def _changes_at_runs(view: BoardView, runs: list[str], problems: dict[str, int]) -> dict[int, str]:
    """Return what changed at a run, by its position: the problems, the settings or the version."""
    by_id = {run["run_id"]: run for run in view.reader.dicts("FROM run")}
    out = {}
    for i, (old, new) in enumerate(pairwise(runs), start=1):
        keys, version = changed_settings(view.reader, by_id[old], by_id[new]), by_id[new]["version"]
        notes = [f"{problems[old]:,} problems before, {problems[new]:,} now"] * (problems[old] != problems[new])
        notes += [f"settings changed: {', '.join(keys)}"] * bool(keys)
        notes += [f"scorelake {version}"] * (by_id[old]["version"] != version)
        if notes:
            out[i] = "; ".join(notes)
    return out


def series(view: BoardView, runs: Sequence[str] = ()) -> list[Section]:
    """Return the curves of all or of some runs over their training steps, and what they learned and forgot."""
    ranks = {line.model.rpartition("@")[0]: i for i, line in enumerate(view.lines)}
    found = [each for each in read_series(view.reader) if (each.benchmark, each.protocol) == view.key]
    found = sorted((e for e in found if e.model in (runs or [e.model])), key=lambda e: ranks.get(e.model, len(ranks)))
    if not found:
        return []
    figures = []
    for metric in dict.fromkeys(each.metric for each in found):
        of_metric, lines = [each for each in found if each.metric == metric], []
        for i, each in enumerate(of_metric, start=1):
            shown, colour = svg.thin(each.points, DRAWN), i if i <= _COLOURS else None
            points, band = [Point(*p[:4]) for p in shown], [Point(*p[:2], *p[4:6]) for p in shown]
            lines.append(Series(escape_controls(each.model), points, colour, i <= COLUMNS, band))
        name = f"{metric} over steps, with intervals"
        figures.append(line_figure(lines, name, "Step", None, of_metric[0].scale, intervals="band"))
    first = [each for each in found if each.metric == found[0].metric]
    legend = {each.model: i for i, each in enumerate(first[:_COLOURS], 1)}
    for measure in board_costs(view):
        lines = _lines(view, legend, view.rows(_STEP_COSTS, measure))
        if lines:
            name = f"{measure} per attempt over steps, with intervals"
            y = (0, svg.value_ticks([0.0, *(p.hi for line in lines for p in line.points)])[-1])
            money = Scale(percent=False)
            figures.append(line_figure(lines, name, "Step", y, money, _cost_text, intervals="band"))
    words = [f"{escape_controls(each.model)}: {each.text()}" for each in first[:_COLOURS]]
    for run, metric, metric_k, start, end, direction, lift, lift_k in view.rows(_CROSSOVER):
        signed, other = Scale().signed, "falls" if direction == "rises" else "rises"
        moved = f"{metric} {direction} ({signed(lift)} points) while {metric_k} {other} ({signed(lift_k)})"
        words.append(f"{escape_controls(run)}: from step {start} to {end}, {moved}.")
    lists = [
        (
            f"{escape_controls(each.model)}: {kind} from the first to the last step",
            escape_controls(", ".join(names[:NAMED])) + f" and {len(names) - NAMED:,} more" * (len(names) > NAMED),
        )
        for each in first
        for kind, names in (("learned", each.learned), ("forgotten", each.forgotten))
        if names and view.problem_names == "ids"
    ]
    names, others = [(i, escape_controls(name)) for name, i in legend.items()], len(first) - len(legend)
    return [Section("series", "Training steps", words, figures, names, others, lists, has_band=True)]


def _cost_text(point: Point) -> str:
    return _amounts(point.value, point.lo, point.hi)


def _amounts(value: float | None, lo: float | None, hi: float | None) -> str:
    above = "or more" if hi is None and lo is not None else f"to {amount(hi)}"
    return f"{amount(value)} ({amount(lo)} {above})"


def costs(view: BoardView) -> list[Section]:
    """Return a section for every measure; all but the first are folded."""
    return [_costs(view, measure, rows, i > 0) for i, (measure, rows) in enumerate(board_costs(view).items())]


def frontier(view: BoardView, rows: Sequence[dict[str, Any]]) -> Figure:
    """Return a chart of score against cost, with both intervals and the frontier."""
    name, colours, lines, stairs = f"pass@1 against {rows[0]['measure']} per attempt", _colours(view, rows), [], []
    for row in rows:
        if row["cost"] and row["score"] is not None:
            x_ends = tuple(row["cost"] if row[end] is None else row[end] for end in ("cost_lo", "cost_hi"))
            point = Point(row["cost"], row["score"], row["score_lo"], row["score_hi"], x_ends=x_ends)
            label, colour = view.label(row["model"]), colours.get(row["model"], 0)
            lines.append(Series(label, [point], colour, is_hollow=not row["on_front"]))
            stairs += [point] if row["front_by_value"] else []
    scores = (DASH if row["score"] is None else Scale().both(row["score"]) for row in rows)
    body = [[view.label(row["model"]), score, *cells(row)] for row, score in zip(rows, scores, strict=True)]
    table = Grid(f"{rows[0]['measure']} by model", ["Model", "pass@1", *HEADS], body, VALUES)
    stairs.sort(key=lambda point: point.x)
    return line_figure(lines, name, "Cost", table=table, intervals="bars", stairs=stairs)


def _colours(view: BoardView, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the colours of the first models that have costs."""
    models = {row["model"] for row in rows}
    return {
        model: i for i, model in enumerate([line.model for line in view.lines if line.model in models][:_COLOURS], 1)
    }


def _costs(view: BoardView, measure: str, rows: list[dict[str, Any]], is_folded: bool) -> Section:
    colours, figures = _colours(view, rows), [frontier(view, rows)]
    if lines := _lines(view, colours, view.rows(_BUDGET, measure)):
        name = f"pass@1 if an attempt must not cost more than a budget ({measure})"
        figures.append(line_figure(lines, name, "Budget", (0, 1)))
    sampled = view.rows(_COST_CURVE, measure)
    lines = _lines(view, colours, [(row[0], row[5], *row[2:5]) for row in sampled])
    if any(len(line.points) > 1 for line in lines):
        name = f"pass@k against the {measure} of sampling until solved, at most k times"
        head = ["Model", "k", "pass@k", f"{measure} until solved", f"solved per {measure}"]
        body = [
            [view.label(row[0]), f"{row[1]}", Scale().both(*row[2:5]), _amounts(*row[5:8]), _amounts(*row[8:])]
            for row in sampled
            if row[0] in colours
        ]
        table = Grid(f"{name}, with intervals", head, body, VALUES)
        figures.append(line_figure(lines, name, "Cost", (0, 1), table=table))
    words = [f"Graded attempts of these models: {amount(sum(row['total'] for row in rows))} {measure}."]
    words += [] if is_folded else [f"{FRONTIER} Filled marks are on the frontier, hollow ones are not."]
    legend = [(colour, view.label(model)) for model, colour in colours.items()]
    return Section("costs", f"Score against {measure}", words, figures, legend, is_folded=is_folded)


def _lines(view: BoardView, colours: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> list[Series]:
    """Return a line per coloured model from rows of its name, x, value, lo and hi."""
    points = {model: [Point(*row[1:]) for row in group] for model, group in groupby(rows, lambda row: row[0])}
    named = {model: view.facts.label.get(model) or escape_controls(model) for model in colours}
    return [Series(named[model], points[model], i) for model, i in colours.items() if model in points]
