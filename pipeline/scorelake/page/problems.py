"""The problems of a board: their difficulty, problems solved never or always, and models by problems."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from string import ascii_letters, digits
from typing import Any

from scorelake.page import svg
from scorelake.page.sections import MANY, MATRIX, BoardView
from scorelake.read.labels import shortened
from scorelake.read.verdict import title
from scorelake.text import escape_controls

LISTED, DRAWN = 24, 1000
"""Problems in a list; problems in the heat map."""
MAX_CODES = 20_000
"""With more distinct (n, c), cells are rounded to percent."""
JUDGED_FROM = 8
"""Suspicious problems are looked for from this number of models on."""

# The view adds floats in any order. Rounding keeps ties equal, so that the page has the same bytes every time.
_STATS = """
SELECT * REPLACE (round(difficulty, 9) AS difficulty)
FROM problem_stats WHERE benchmark = ? AND protocol = ? ORDER BY round(difficulty, 9), subject, problem_id
"""
_CELLS = """
SELECT model, list(position), list(n), list(c)
FROM problem_counts JOIN (
    SELECT unnest($subjects) AS subject, unnest($ids) AS problem_id, unnest(range(len($ids))) AS position
) USING (subject, problem_id)
WHERE benchmark = $benchmark AND protocol = $protocol AND n > 0 AND c IS NOT NULL GROUP BY model
"""
Cell = tuple[int, int] | None


def problems(view: BoardView) -> dict[str, Any] | None:
    """Return the section about problems; None where problems are private."""
    stats = view.dicts(_STATS) if view.problem_names != "none" else []
    if not stats:
        return None
    names = _names(view, stats)
    named = list(zip(names, stats, strict=True))
    bins = svg.bin_difficulties(row["difficulty"] for row in stats)
    flags = {
        "Never solved": [name for name, row in named if row["never_solved"]][::-1],
        "Always solved by every model": [name for name, row in named if row["saturated"]],
        "Suspicious: solved by weak models, not by strong ones": [name for name, row in named if row["suspicious"]],
    }
    return {
        "histogram": svg.difficulty_histogram(bins, f"Difficulty of {len(stats):,} problems of {title(view.board)}"),
        "bins": svg.describe_bins(bins),
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
    return [shortened(escape_controls(text), 80) for text in ids]


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
    steps = [[cell and _step(*cell) for cell in row] for row in cells[:MATRIX]]
    return {
        "heat_map": svg.heat_map(steps, labels, f"Models by problems of {title(view.board)}"),
        "names": [shortened(label, 28) for label in labels],
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


def _step(n: int, c: int) -> int:
    """Return one of five steps: never, up to a third, up to two thirds, more, always."""
    return 0 if c == 0 else 4 if c == n else 1 + min(3 * c // n, 2)
