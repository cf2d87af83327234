"""The sections of a board as plain data for the template: each function asks the tables and shapes what they say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from markupsafe import Markup

from scorelake.page import svg
from scorelake.read.board import Board, Facts, Line, Reader
from scorelake.read.names import shorten
from scorelake.read.numbers import Scale, ticks
from scorelake.read.verdict import tiers, title, verdict
from scorelake.text import escape_controls, plural

COLOURED, MATRIX, SUBJECTS, FLAGGED, HEATED = 3, 40, 24, 24, 1000
"""Curves in colour; models against each other; models by subject; problems listed; problems drawn."""
FEW, MANY = 3, 100
"""Up to so many models have large rows; with more than so many, tables are shorter, so that the page stays light."""
SMALL = 20
"""Problems below which a score by subject is greyed."""
UNGRADED = 0.05
"""The share of attempts without a verdict from which on a model is flagged."""


@dataclass(frozen=True)
class Asked:
    """What the page shall show."""

    metric: str
    top: int = 50
    problems: str = "ids"
    """How problems are named: ids, numbers, or none at all."""


@dataclass(frozen=True)
class Place:
    """One board, and whom to ask about it."""

    facts: Facts
    board: Board
    read: Reader
    asked: Asked

    @property
    def metric(self) -> str:
        """The metric asked for, or what this benchmark has instead."""
        lines = self.board.lines
        return self.asked.metric if self.asked.metric in lines else next(iter(lines))

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


def axis(lines: list[Line]) -> tuple[float, float]:
    """Round ends around all intervals."""
    ends = [x for line in lines for x in (line.value, line.lo, line.hi) if x is not None]
    seen = ticks(min(ends), max(ends)) if ends else [0.0, 1.0]
    return (seen[0], seen[-1]) if seen[0] < seen[-1] else (seen[0] - 0.5, seen[0] + 0.5)


def leaderboard(place: Place) -> dict[str, Any]:
    """The table: every model with its place, its score, its interval as text and drawn, and what it rests on."""
    lines, scale = place.lines, place.scale
    ranked = [line for line in lines if line.rank is not None]
    band = dict(zip((line.model for line in ranked), _bands(tiers(ranked)), strict=True))
    ends = axis(lines[: place.asked.top])
    moved, flags = _moves(place), _flags(place)
    rows = [
        {
            "i": i,
            "place": line.rank_range,
            "name": place.label(line.model),
            "score": scale.text(line.value) + "*" * (line.value is not None and line.scored < line.problems),
            "range": scale.between(line.lo, line.hi),
            "plot": svg.whisker(line.value, line.lo, line.hi, ends) if i < place.asked.top else "",
            "band": band.get(line.model, "t0"),
            "change": moved.get(line.model),
            "problems": f"{line.problems:,} of {line.of_benchmark:,}",
            "attempts": f"{line.attempts:,}",
            "each": f"{line.attempts / line.problems:.1f}" if line.problems else "0",
            "flags": flags.get(line.model, ""),
            "reason": line.reason if line.rank is None else None,
        }
        for i, line in enumerate(lines)
    ]
    return {
        "rows": [row for row, line in zip(rows, lines, strict=True) if line.rank is not None],
        "below": [row for row, line in zip(rows, lines, strict=True) if line.rank is None],
        "axis": svg.axis_labels(ends, scale.percent),
        "moves": bool(moved),
        "unit": scale.unit,
        "single": len(lines) == 1,
        "few": len(lines) <= FEW,
    }


def _bands(tiers: list[int]) -> list[str]:
    """Classes of the rows: the shade of their tier, and the bar that joins the rows of one tier."""
    out = []
    for i, tier in enumerate(tiers):
        before, after = i > 0 and tiers[i - 1] == tier, i + 1 < len(tiers) and tiers[i + 1] == tier
        told = (" joined" if before or after else "", " first" if after and not before else "")
        out.append(f"t{tier % 2}{told[0]}{told[1]}{' last' if before and not after else ''}")
    return out


def _flags(place: Place) -> dict[str, str]:
    """What a reader must know of single models: problems that they miss, attempts without a verdict."""
    sql = "SELECT model, ungraded FROM model_summary WHERE benchmark = ? AND protocol = ? AND metric = ?"
    ungraded = dict(place.read.rows(sql, *place.key, place.metric))
    out = {}
    for line in place.lines:
        missed, none = line.of_benchmark - line.problems, ungraded[line.model]
        told = [f"misses {plural(missed, 'problem')}"] if missed and line.rank is not None else []
        if none and none >= UNGRADED * (none + line.attempts):
            told.append(f"{none / (none + line.attempts):.0%} of its attempts are ungraded")
        out[line.model] = "; ".join(told)
    return out


def _moves(place: Place) -> dict[str, dict[str, Any]]:
    """The change since the run before, and a small line over the last twelve; nothing where there is one run."""
    before = """
        SELECT model, change, what FROM change WHERE benchmark = ? AND protocol = ? AND metric = ? AND what <> 'gone'
    """
    moved = {model: (change, what) for model, change, what in place.read.rows(before, *place.key, place.metric)}
    if not any(what in ("moved", "same") for _, what in moved.values()):
        return {}
    values: dict[str, list[float | None]] = defaultdict(list)
    for model, value in place.read.rows(_VALUES, *place.key, place.metric, place.facts.run["number"]):
        values[model].append(value)
    return {
        model: {
            "text": what if change is None else place.scale.signed(change),
            "line": svg.sparkline(values[model][-12:]),
        }
        for model, (change, what) in moved.items()
    }


_VALUES = """
SELECT model, value FROM history
WHERE benchmark = ? AND protocol = ? AND metric = ? AND number <= ? ORDER BY number
"""


def curves(place: Place) -> dict[str, Any] | None:
    """pass@k and pass^k drawn over k, and their numbers for the first ten models."""
    sql = """
        SELECT model, family, k, value, lo, hi, coverage FROM curve
        WHERE benchmark = ? AND protocol = ? AND value IS NOT NULL AND family IN ('pass@k', 'pass^k') ORDER BY k
    """
    found: dict[tuple[str, str], list[svg.Point]] = defaultdict(list)
    for model, family, k, value, lo, hi, coverage in place.read.rows(sql, *place.key):
        if is_step(k):
            found[family, model].append(svg.Point(k, value, lo, hi, coverage))
    most = max((int(points[-1].x) for points in found.values()), default=1)
    if most < 2:
        return None
    order = [line.model for line in place.lines]
    panels = [_panel(place, family, order, found, most) for family in ("pass@k", "pass^k")]
    ks = sorted({int(p.x) for points in found.values() for p in points})
    return {
        "panels": panels,
        "legend": [(i + 1, place.label(model), svg.mark(i, (7, 7))) for i, model in enumerate(order[:COLOURED])],
        "ks": ks,
        "rows": [
            (place.short(model), family, [_at(found[family, model], k) for k in ks])
            for model in order[: 10 if len(order) <= MANY else 5]
            for family in ("pass@k", "pass^k")
            if (family, model) in found
        ],
        "gap": _gap(place, order[0], found),
        "data": {
            family: [_packed(found.get((family, model), [])) for model in order] for family in ("pass@k", "pass^k")
        },
        "others": max(len(order) - COLOURED, 0),
    }


def is_step(k: int) -> bool:
    """1, 2, 3, 4, 6, 8, 12, 16, ...: enough to draw a curve by."""
    while k > 3 and k % 2 == 0:
        k //= 2
    return k <= 3


def _at(points: list[svg.Point], k: int) -> str:
    """One cell of the table of a curve; a star where it is not of all problems."""
    point = next((p for p in points if p.x == k), None)
    return "\u2013" if point is None else f"{Scale().text(point.value)}{'' if point.coverage >= 1 else '*'}"


def _packed(points: list[svg.Point]) -> list[list[int]]:
    """A curve in small numbers: k, value, lo, hi in ten-thousandths, and whether it is of all problems."""
    return [
        [
            int(p.x),
            *(round((v if v is not None else p.value) * 10_000) for v in (p.value, p.lo, p.hi)),
            int(p.coverage >= 1),
        ]
        for p in points
    ]


def _panel(
    place: Place, family: str, order: list[str], found: dict[tuple[str, str], list[svg.Point]], most: int
) -> dict[str, Any]:
    series = [
        svg.Series(place.label(model), found[family, model], i + 1 if i < COLOURED else None)
        for i, model in enumerate(order)
        if (family, model) in found
    ]
    words = {"pass@k": "what sampling can find", "pass^k": "what can be relied on"}[family]
    wide = svg.Frame(520, 320, 46, 122, 12, 30, (1, most), (0, 1), log=True)
    narrow = svg.Frame(328, 250, 42, 12, 12, 28, (1, most), (0, 1), log=True)
    name = f"{family} of {title(place.board)}: {words}"
    drawn = [svg.curves(series, frame, name, True, frame is wide) for frame in (wide, narrow)]
    return {"family": family, "words": words, "drawn": Markup("").join(drawn)}


def _gap(place: Place, model: str, found: dict[tuple[str, str], list[svg.Point]]) -> str | None:
    """The distance between both curves in words, for the first model."""
    up, down = found.get(("pass@k", model)), found.get(("pass^k", model))
    if not up or not down:
        return None
    whole = [(a, b) for a, b in zip(up, down, strict=False) if a.coverage >= 1 and a.x == b.x] or [(up[-1], down[-1])]
    a, b = whole[-1]
    text = Scale().text
    return (
        f"With {a.x:g} attempts, {place.label(model)} solves {text(a.value)}% of the problems at least once, "
        f"and {text(b.value)}% every time. The gap of {text(a.value - b.value)} points is what sampling can find "
        "and cannot be relied on."
    )


def subjects(place: Place) -> list[dict[str, Any]]:
    """Heat tables: scores by subject, and by every slice that was asked for."""
    by = """
        SELECT subject, model, value, lo, hi, problems, rank_hi FROM subject_leaderboard
        WHERE benchmark = ? AND protocol = ? AND metric = ? ORDER BY subject
    """
    out = [_heat(place, "subject", place.read.rows(by, *place.key, place.metric))]
    sliced: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    sql = """
        SELECT slice, slice_value, model, value, lo, hi, problems, NULL FROM slice_summary
        WHERE benchmark = ? AND protocol = ? AND metric = ? ORDER BY slice, slice_value
    """
    for row in place.read.rows(sql, *place.key, place.metric):
        sliced[row[0]].append(row[1:])
    out += [_heat(place, escape_controls(name), rows) for name, rows in sliced.items()]
    return [table for table in out if table is not None and len(table["names"]) > 1]


def _heat(place: Place, what: str, rows: list[tuple[Any, ...]]) -> dict[str, Any] | None:
    names = list(dict.fromkeys(row[0] for row in rows))
    if not names:
        return None
    cells = {(row[1], row[0]): row[2:] for row in rows}
    columns = names[:SUBJECTS]
    most = [max((cells[key][3] for key in cells if key[1] == name), default=0) for name in columns]
    shown = [line.model for line in place.lines][: SUBJECTS if len(place.lines) <= MANY else SUBJECTS // 2]
    return {
        "what": what,
        "small": SMALL,
        "names": [(shorten(escape_controls(str(name)), 40), n) for name, n in zip(columns, most, strict=True)],
        "rows": [(place.short(m), [_subject(place, cells.get((m, name))) for name in columns]) for m in shown],
        "left": (len(place.lines) - len(shown), len(names) - len(columns)),
    }


def _subject(place: Place, cell: tuple[Any, ...] | None) -> dict[str, Any]:
    if cell is None or cell[0] is None:
        return {"text": "\u2013", "step": None, "bold": False, "small": True, "about": ""}
    value, lo, hi, problems, rank_hi = cell
    step = min(int(value * 5), 4) if place.scale.percent else None
    about = f"{place.scale.both(value, lo, hi)}, {problems:,} problems"
    return {
        "text": place.scale.text(value),
        "step": step,
        "bold": rank_hi == 1,
        "small": problems < SMALL,
        "about": about,
    }


def budget(place: Place) -> dict[str, Any] | None:
    """What more attempts and more problems would buy, for the first models."""
    sql = """
        SELECT model, se, se_endless_attempts, share_attempts, problems, attempts_per_problem FROM budget
        WHERE benchmark = ? AND protocol = ? AND share_attempts IS NOT NULL
    """
    z = NormalDist().inv_cdf((1 + place.facts.confidence) / 2)
    found = {row[0]: row[1:] for row in place.read.rows(sql, *place.key)}
    rows = []
    for line in place.lines[:12]:
        if line.model not in found:
            continue
        se, endless, part, problems, n = found[line.model]
        told = [f"\u00b1{100 * z * x:.1f}" for x in (se, endless, se / 2**0.5)]
        about = f"attempts make {100 * part:.0f}% of the variance, problems {100 - 100 * part:.0f}%"
        rows.append(
            (
                place.short(line.model),
                *told,
                svg.stack(part, about),
                f"{100 * part:.0f}%",
                f"{problems:,} \u00d7 {n:.1f}",
            )
        )
    if not rows:
        return None
    first = rows[0]
    words = (
        f"For {first[0]}: more attempts narrow the interval of pass@1 from {first[1]} to {first[2]} points at best; "
        f"twice the problems to {first[3]}."
    )
    return {"rows": rows, "words": words}


def view(place: Place) -> dict[str, Any]:
    """Everything that stands above the problems."""
    return {
        "title": title(place.board),
        "metric": place.metric,
        "verdict": verdict(place.facts, place.board, place.metric),
        "board": leaderboard(place),
        "curves": curves(place),
        "subjects": subjects(place),
        "budget": budget(place),
    }
