"""The sections below the leaderboard as plain data for the template: pairs and problems."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain
from string import ascii_letters, digits
from typing import Any

from scorelake.page import svg
from scorelake.page.sections import MANY, MATRIX, BoardView
from scorelake.read.format import DASH, Scale, shorten
from scorelake.read.sentences import title
from scorelake.text import escape_controls

_PAIRS = """
SELECT model_b, model_a, problems, lift, lo, hi, wins_b, wins_a, ties, q, claim FROM pair
WHERE benchmark = ? AND protocol = ? AND metric = ?
"""
_METRICS = "SELECT DISTINCT metric FROM pair WHERE benchmark = ? AND protocol = ? ORDER BY ALL"
SIGNIFICANT = {"improvement": "+", "regression": "-"}
Pair = dict[str, Any]
LISTED, DRAWN = 24, 1000
"""Problems in a list; problems in the heat map."""
MAX_CODES = 20_000
"""With more distinct (n, c), cells are rounded to percent."""
BINS = 20
"""Columns of the difficulty histogram."""
JUDGED_FROM = 8
"""Suspicious problems are looked for from this number of models on."""

# The view adds floats in any order. Rounding keeps ties equal, so that the page has the same bytes every time.
_STATS = """
SELECT * REPLACE (round(difficulty, 9) AS difficulty)
FROM problem_stats WHERE benchmark = ? AND protocol = ? ORDER BY round(difficulty, 9), subject, problem_id
"""
_CELLS = """
SELECT model, list(wanted.position), list(n), list(c)
FROM problem_counts JOIN (
    SELECT unnest($subjects) AS subject, unnest($ids) AS problem_id, unnest(range(len($ids))) AS position
) AS wanted USING (subject, problem_id)
WHERE benchmark = $benchmark AND protocol = $protocol AND n > 0 AND c IS NOT NULL GROUP BY model
"""
Cell = tuple[int, int] | None


def _pairs(view: BoardView, metric: str) -> dict[tuple[str, str], Pair]:
    """Return the pairs by (row, column), in both orders. The table has B over A, the page the row over the column."""
    return {(pair["model_b"], pair["model_a"]): pair for pair in view.dicts(_PAIRS, metric)}


def pair_matrix(view: BoardView) -> dict[str, Any] | None:
    """Return the lift of the row over the column in rank order.

    With many models only the half below the diagonal is there: the other half differs in the sign only.
    """
    ranked = {line.model: line for line in view.lines if line.rank is not None}
    models = list(ranked)[:MATRIX]
    pairs = _pairs(view, view.metric)
    upper = [(a, b) for i, a in enumerate(models) for b in models[i + 1 :] if (a, b) in pairs]
    lifts = [abs(pairs[key]["lift"]) for key in upper if pairs[key]["lift"] is not None]
    if not lifts:
        return None
    significant = [key for key in upper if pairs[key]["claim"] in SIGNIFICANT]
    half = len(view.lines) > MANY
    rows = []
    for i, a in enumerate(models):
        columns = models[:i] if half else [b for b in models if b != a]
        rows.append((view.short(a), i, [_cell(view, a, b, pairs.get((a, b)), max(lifts) or 1.0) for b in columns]))
    return {
        "rows": rows,
        "names": [shorten(view.label(model), 24) for model in models],
        "omitted": len(ranked) - len(models),
        "significant": len(significant),
        "total": len(upper),
        "overlap": any((ranked[b].rank_lo or math.inf) <= (ranked[a].rank or 0) for a, b in significant),
    }


def _cell(view: BoardView, a: str, b: str, pair: Pair | None, largest: float) -> dict[str, Any]:
    """Return a number, the class of its colour, and the comparison in words."""
    names = f"{view.label(a)} vs. {view.label(b)}"
    if pair is None or pair["lift"] is None:
        reason = pair["claim"] if pair else "not compared"
        return {"text": DASH, "step": 0, "equal": True, "about": f"{names}: {reason}"}
    claim, is_significant = pair["claim"], pair["claim"] in SIGNIFICANT
    lift, lo, hi = (Scale(view.scale.percent).signed(pair[end]) for end in ("lift", "lo", "hi"))
    about = (
        f"{names}: {lift} points ({lo} to {hi}) on {pair['problems']:,} problems; ahead on {pair['wins_b']:,}, "
        f"behind on {pair['wins_a']:,}, equal on {pair['ties']:,}; q = {pair['q']:.2g}: "
        + ("significant" if is_significant else "not significant" if claim == "inconclusive" else claim)
    )
    step = round(4 * pair["lift"] / largest) if is_significant else 0
    return {"text": lift if is_significant else "=", "step": step, "equal": not is_significant, "about": about}


def packed_pairs(view: BoardView) -> dict[str, Any]:
    """Return every metric's pairs as three numbers and a sign: model i over model j for i < j, row by row."""
    models = [line.model for line in view.lines]
    out: dict[str, Any] = {}
    for (metric,) in view.rows(_METRICS):
        percent = view.board.scale(metric).percent
        pairs = _pairs(view, metric)
        rows = [pairs.get((a, b)) for i, a in enumerate(models) for b in models[i + 1 :]]
        compared = [pair if pair and pair["lift"] is not None else None for pair in rows]
        ends = ("lift", "lo", "hi")
        out[metric] = {end: [_pack(pair[end], percent) if pair else 0 for pair in compared] for end in ends}
        out[metric]["claim"] = "".join(SIGNIFICANT.get(pair["claim"], "=") if pair else "?" for pair in compared)
    return out


def _pack(value: float, percent: bool) -> float:
    """Return tenths of a percentage point, rounded as the page rounds; other values with four digits."""
    return int(Scale().text(value).replace(".", "")) if percent else float(f"{value:.4g}")


def problems(view: BoardView) -> dict[str, Any] | None:
    """Return the section about problems; None where problems are private, or with one only."""
    stats = view.dicts(_STATS) if view.problem_names != "none" else []
    if len(stats) < 2:
        return None
    names = _names(view, stats)
    named = list(zip(names, stats, strict=True))
    counts = Counter(min(int(row["difficulty"] * BINS), BINS - 1) for row in stats)
    flags = {
        "Never solved": [name for name, row in named if row["never_solved"]][::-1],
        "Always solved by every model": [name for name, row in named if row["saturated"]],
        "Suspicious: solved by weak models, not by strong ones": [name for name, row in named if row["suspicious"]],
    }
    return {
        "bins": [(counts[i], i / BINS, 96 * counts[i] / max(counts.values())) for i in range(BINS)],
        "total": len(stats),
        "flags": [
            (flag, len(flagged), flagged[:LISTED], max(len(flagged) - LISTED, 0)) for flag, flagged in flags.items()
        ],
        "judged_from": JUDGED_FROM,
        "judged": max(row["models"] for row in stats) >= JUDGED_FROM,
        "hardest": named[::-1][: LISTED if len(view.lines) <= MANY else LISTED // 2],
        **_heat_map(view, stats, names),
    }


def _names(view: BoardView, stats: list[dict[str, Any]]) -> list[str]:
    """Return what to call each problem: its id, with the subject where ids repeat; or its number by difficulty."""
    if view.problem_names == "numbers":
        return [f"#{i + 1}" for i in range(len(stats))]
    repeated = len({row["problem_id"] for row in stats}) < len(stats)
    ids = [f"{row['subject']}/{row['problem_id']}" if repeated else str(row["problem_id"]) for row in stats]
    return [shorten(escape_controls(text), 80) for text in ids]


def _heat_map(view: BoardView, stats: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Return the drawing of the first models on at most DRAWN problems, and every cell as one character."""
    models = [line.model for line in view.lines]
    step = max(len(names) / DRAWN, 1.0)
    positions = [int(i * step) for i in range(int(len(names) / step))]
    cells = _cells(view, models, [stats[i] for i in positions])
    rounded = len({cell for row in cells for cell in row}) > MAX_CODES
    if rounded:
        cells = [[cell and (100, round(100 * cell[1] / cell[0])) for cell in row] for row in cells]
    frequency = Counter(cell for row in cells for cell in row if cell)
    order = sorted(frequency, key=lambda cell: (-frequency[cell], cell))  # frequent cells get one byte in UTF-8
    code = dict(zip(order, chain(ascii_letters + digits, map(chr, range(0x4E00, 0x4E00 + len(order)))), strict=False))
    labels = [view.label(model) for model in models[:MATRIX]]
    # 0 never, 1 below a third, 2 below two thirds, 3 more, 4 always
    steps = [[cell and (cell[1] > 0) + 3 * cell[1] // cell[0] for cell in row] for row in cells[:MATRIX]]
    return {
        "heat_map": svg.heat_map(steps, labels, f"Models by problems of {title(view.board)}"),
        "names": [shorten(label, 28) for label in labels],
        "omitted": (len(models) - len(labels), len(names) - len(positions)),
        "data": {
            "codes": {char: cell for cell, char in code.items()},
            "cells": ["".join(code[cell] if cell else " " for cell in row) for row in cells],
            "names": [names[i] for i in positions],
            "drawn": len(labels),
            "rounded": int(rounded),
        },
    }


def _cells(view: BoardView, models: list[str], drawn: list[dict[str, Any]]) -> list[list[Cell]]:
    """Return (n, c) of every model at the drawn problems; None without a graded attempt."""
    cells: dict[str, list[Cell]] = {model: [None] * len(drawn) for model in models}
    keys: dict[str, Any] = {"benchmark": view.board.benchmark, "protocol": view.board.protocol}
    keys |= {"subjects": [row["subject"] for row in drawn], "ids": [row["problem_id"] for row in drawn]}
    for model, *columns in view.reader.table(_CELLS, keys)[1]:
        for position, n, c in zip(*columns, strict=True) if model in cells else ():
            cells[model][position] = (n, c)
    return list(cells.values())
