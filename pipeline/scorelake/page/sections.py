"""The sections of a board as plain data for the template: scores, curves, subjects and budget."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

from markupsafe import Markup

from scorelake.page import svg
from scorelake.read.board import BoardRows, Facts, Line, Reader, board_rows
from scorelake.read.format import DASH, Scale, shorten
from scorelake.read.sentences import ADAPTIVE, is_first_for_sure, tiers, title
from scorelake.text import escape_controls, plural

COLOURED, MATRIX, SUBJECTS = 3, 40, 24
"""Coloured curves; models in the matrices of pairs and problems; models and columns in tables by subject."""
FEW, MANY = 3, 100
"""Up to FEW models have large rows. With more than MANY, tables are shorter so that the page stays light."""
SMALL = 20
"""Scores by subject on fewer problems are grey."""
UNGRADED = 0.05
"""A model is flagged from this share of ungraded attempts on."""
CURVES = {"pass@k": "at least one of k attempts passes", "pass^k": "all k attempts pass"}

_CURVES = """
SELECT model, family, k, value, lo, hi, scored FROM curve
WHERE benchmark = ? AND protocol = ? AND value IS NOT NULL AND family IN ('pass@k', 'pass^k') ORDER BY k
"""
_CHANGES = """
SELECT c.model, c.change, c.what, list(h.value ORDER BY h.number)[-12:]
FROM change AS c LEFT JOIN history AS h
    ON h.benchmark = c.benchmark AND h.protocol = c.protocol AND h.metric = c.metric AND h.model = c.model
    AND h.number <= ?
WHERE c.benchmark = ? AND c.protocol = ? AND c.metric = ? AND c.what <> 'gone' GROUP BY ALL
"""
_BUDGET = """
SELECT model, se, se_endless_attempts, share_attempts, problems, attempts_per_problem FROM budget
WHERE benchmark = ? AND protocol = ? AND share_attempts IS NOT NULL
"""


@dataclass(frozen=True)
class BoardView:
    """One board at the metric that is shown, and the session to query for it."""

    facts: Facts
    board: BoardRows
    reader: Reader
    metric: str
    top: int = 50
    problem_names: str = "ids"
    """How problems are named: ids, numbers, or none to leave them out."""

    @property
    def lines(self) -> list[Line]:
        return self.board.lines[self.metric]

    @property
    def scale(self) -> Scale:
        return self.board.scale(self.metric)

    @property
    def key(self) -> tuple[str, str]:
        return self.board.benchmark, self.board.protocol

    def label(self, model: str) -> str:
        return self.facts.label[model]

    def short(self, model: str) -> str:
        return self.facts.short[model]

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Query with the benchmark and the protocol as the first two parameters."""
        return self.reader.rows(sql, self.board.benchmark, self.board.protocol, *parameters)

    def dicts(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Query as `rows` does, with the names of the columns."""
        return self.reader.dicts(sql, self.board.benchmark, self.board.protocol, *parameters)


def board_views(facts: Facts, reader: Reader, metric: str, **options: Any) -> list[BoardView]:
    """Return a view of every board at the metric, or at the board's own headline metric where it has no values."""
    return [BoardView(facts, board, reader, board.headline(metric), **options) for board in facts.boards]


def leaderboard(view: BoardView) -> dict[str, Any]:
    """Return the table: each model with its rank range, score, interval, and what these are based on."""
    lines, scale = view.lines, view.scale
    ends = svg.value_ticks(x for line in lines[: view.top] for x in (line.value, line.lo, line.hi))
    axis = (ends[0], ends[-1])
    ranked = [line for line in lines if line.rank is not None]
    tier_class = dict(zip((line.model for line in ranked), _tier_classes(ranked), strict=True))
    changes, flags = _changes(view), _flags(view)
    rows = [
        {
            "i": i,
            "rank": line.rank_range,
            "name": view.label(line.model),
            "score": line.score(scale),
            "range": scale.between(line.lo, line.hi),
            "plot": svg.whisker(line.value, line.lo, line.hi, axis) if i < view.top else "",
            "tier": tier_class.get(line.model, "t0"),
            "change": changes.get(line.model),
            "problems": f"{line.problems:,} of {line.problems_of_benchmark:,}",
            "attempts": f"{line.attempts:,}",
            "each": f"{line.attempts / line.problems:.1f}" if line.problems else "0",
            "flags": flags.get(line.model, ""),
            "reason": line.explanation if line.rank is None else None,
        }
        for i, line in enumerate(lines)
    ]
    return {
        "ranked": [row for row, line in zip(rows, lines, strict=True) if line.rank is not None],
        "unranked": [row for row, line in zip(rows, lines, strict=True) if line.rank is None],
        "axis": svg.axis_labels(axis, scale.percent),
        "has_changes": bool(changes),
        "unit": scale.unit,
        "single": len(lines) == 1,
        "few": len(lines) <= FEW,
    }


def _tier_classes(ranked: list[Line]) -> list[str]:
    """Return the CSS classes of the rows: the shade of their tier, and the bar that joins the rows of one tier."""
    numbers, out = tiers(ranked), []
    for i, tier in enumerate(numbers):
        before, after = i > 0 and numbers[i - 1] == tier, numbers[i + 1 : i + 2] == [tier]
        joined = " joined first" if after and not before else " joined last" if before and not after else " joined"
        out.append(f"t{tier % 2}{joined if before or after else ''}")
    return out


def _flags(view: BoardView) -> dict[str, str]:
    """Return notes on single models: problems they miss, ungraded attempts."""
    sql = "SELECT model, ungraded FROM model_summary WHERE benchmark = ? AND protocol = ? AND metric = ?"
    ungraded = dict(view.rows(sql, view.metric))
    out = {}
    for line in view.lines:
        missed, total = line.problems_of_benchmark - line.problems, ungraded[line.model] + line.attempts
        notes = [f"misses {plural(missed, 'problem')}"] if missed and line.rank is not None else []
        if ungraded[line.model] and ungraded[line.model] >= UNGRADED * total:
            notes.append(f"{ungraded[line.model] / total:.0%} of its attempts are ungraded")
        notes += [ADAPTIVE] if line.sampling == "adaptive" else []
        out[line.model] = "; ".join(notes)
    return out


def _changes(view: BoardView) -> dict[str, dict[str, Any]]:
    """Return the change since the previous run and a sparkline of the last twelve; empty with one run."""
    board = view.board
    rows = view.reader.rows(_CHANGES, view.facts.run["number"], board.benchmark, board.protocol, view.metric)
    if not any(what in ("moved", "same") for _, _, what, _ in rows):
        return {}
    return {
        model: {"text": what if change is None else view.scale.signed(change), "line": svg.sparkline(values)}
        for model, change, what, values in rows
    }


def curve_points(view: BoardView) -> dict[tuple[str, str], list[svg.Point]]:
    """Return the points of pass@k and pass^k by family and model, at k = 1, 2, 3, 4, 6, 8, 12, ..."""
    points: dict[tuple[str, str], list[svg.Point]] = defaultdict(list)
    for model, family, k, *values in view.rows(_CURVES):
        if k // (k & -k) <= 3:  # the odd part of k is 1 or 3
            points[family, model].append(svg.Point(k, *values))
    return points


def curves(view: BoardView) -> dict[str, Any] | None:
    """Return pass@k and pass^k over k as charts, and as numbers for the first ten models."""
    points = curve_points(view)
    ks = sorted({int(p.x) for curve in points.values() for p in curve})
    if not ks or ks[-1] < 2:
        return None
    models = [line.model for line in view.lines]
    return {
        "panels": [(family, caption, _panel(view, family, points, ks[-1])) for family, caption in CURVES.items()],
        "legend": [(i + 1, view.label(model), svg.markers(i, (7, 7))) for i, model in enumerate(models[:COLOURED])],
        "ks": ks,
        "rows": [
            (view.short(model), family, [_curve_cell(points[family, model], k) for k in ks])
            for model in models[: 10 if len(models) <= MANY else 5]
            for family in CURVES
            if (family, model) in points
        ],
        "gap": _gap(view, models[0], points),
        "data": {family: [_pack_curve(points.get((family, model), [])) for model in models] for family in CURVES},
        "others": max(len(models) - COLOURED, 0),
    }


def _curve_cell(points: list[svg.Point], k: int) -> str:
    """Return the percentage at k, with a star where it does not cover all problems."""
    point = next((p for p in points if p.x == k), None)
    return DASH if point is None else f"{Scale().text(point.value)}{'' if point.coverage >= 1 else '*'}"


def _pack_curve(points: list[svg.Point]) -> list[list[int]]:
    """Return k; value, lo and hi in ten-thousandths; and 1 where all problems are covered."""
    ends = [(p.value, p.value if p.lo is None else p.lo, p.value if p.hi is None else p.hi) for p in points]
    scores = [[round(10_000 * x) for x in values] for values in ends]
    return [[int(p.x), *score, int(p.coverage >= 1)] for p, score in zip(points, scores, strict=True)]


def _panel(view: BoardView, family: str, points: dict[tuple[str, str], list[svg.Point]], largest: int) -> Markup:
    """Draw the curves of one family, in a wide and in a narrow version."""
    series = [
        svg.Series(view.label(line.model), points[family, line.model], i + 1 if i < COLOURED else None)
        for i, line in enumerate(view.lines)
        if (family, line.model) in points
    ]
    name = f"{family} of {title(view.board)}: {CURVES[family]}"
    wide = svg.PlotArea((520, 320), (46, 122, 12, 30), (1, largest), (0, 1), log=True)
    narrow = svg.PlotArea((328, 250), (42, 12, 12, 28), (1, largest), (0, 1), log=True)
    return svg.curve_chart(series, wide, name, labelled=True) + svg.curve_chart(series, narrow, name, labelled=False)


def _gap(view: BoardView, model: str, points: dict[tuple[str, str], list[svg.Point]]) -> str | None:
    """Describe the distance between both curves of a model."""
    up, down = (points.get((family, model)) for family in CURVES)
    if not up or not down:
        return None
    common = [(a, b) for a, b in zip(up, down, strict=False) if a.coverage >= 1 and a.x == b.x]
    a, b = common[-1] if common else (up[-1], down[-1])
    text = Scale().text
    return (
        f"{view.label(model)} solves {text(a.value)}% of the problems at least once in {plural(int(a.x), 'attempt')} "
        f"and {text(b.value)}% every time. {text(a.value - b.value)} points separate "
        f'"solved at least once in {a.x:g}" from "solved every time".'
    )


def subjects(view: BoardView) -> list[dict[str, Any]]:
    """Return the tables of scores by subject and by every slice; a slice may be called subject, too."""
    slices = view.reader.names("slice", "slice_summary")
    boards = partial(board_rows, view.reader, metric=view.metric, of=view.board)
    tables = [("subject", boards(by_subject=True)), *((name, boards(by_slice=name)) for name in slices)]
    return [_heat_table(view, escape_controls(name), parts) for name, parts in tables if len(parts) > 1]


def _heat_table(view: BoardView, name: str, parts: list[BoardRows]) -> dict[str, Any]:
    """Return models by parts of the benchmark; a cell is None where there is no score."""
    columns = [part.lines[view.metric] for part in parts[:SUBJECTS]]
    names = [shorten(escape_controls(str(part.part)), 40) for part in parts]
    cells = [{line.model: _heat_cell(view, line, lines) for line in lines} for lines in columns]
    models = [line.model for line in view.lines][: SUBJECTS if len(view.lines) <= MANY else SUBJECTS // 2]
    return {
        "by": name,
        "small": SMALL,
        "names": [(name, max(line.problems for line in lines)) for name, lines in zip(names, columns, strict=False)],
        "rows": [(view.short(model), [column.get(model) for column in cells]) for model in models],
        "omitted": (len(view.lines) - len(models), len(parts) - len(columns)),
    }


def _heat_cell(view: BoardView, line: Line, others: list[Line]) -> dict[str, Any] | None:
    if line.value is None:
        return None
    return {
        "text": view.scale.text(line.value),
        "class": f"h{min(int(line.value * 5), 4)}" * view.scale.percent + " small" * (line.problems < SMALL),
        "bold": is_first_for_sure(line, others),
        "about": f"{view.scale.both(line.value, line.lo, line.hi)}, {line.problems:,} problems",
    }


def budget(view: BoardView) -> dict[str, Any] | None:
    """Return how far more attempts and more problems would narrow the intervals of the first models."""
    z = NormalDist().inv_cdf((1 + view.facts.confidence) / 2)
    parts = {row[0]: row[1:] for row in view.rows(_BUDGET)}
    rows = []
    for model in [line.model for line in view.lines[:12] if line.model in parts]:
        se, endless, share, problems, n = parts[model]
        widths = [f"\u00b1{100 * z * x:.1f}" for x in (se, endless, se / 2**0.5)]
        about = f"{100 * share:.0f}% of the variance is from attempts, {100 - 100 * share:.0f}% from problems"
        bar = svg.share_bar(share, about)
        rows.append((view.short(model), *widths, bar, f"{100 * share:.0f}%", f"{problems:,} \u00d7 {n:.1f}"))
    if not rows:
        return None
    model, now, attempts, problems, *_ = rows[0]
    words = (
        f"For {model}, more attempts narrow the interval of pass@1 from {now} to {attempts} points at best; "
        f"twice the problems narrow it to {problems}."
    )
    return {"rows": rows, "words": words}
