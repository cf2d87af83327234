"""The problems of a board: how hard they are, which nobody or everybody solves, and who solves which."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from string import ascii_letters, digits
from typing import Any

from scorelake.page import svg
from scorelake.page.sections import FLAGGED, HEATED, MANY, MATRIX, Place
from scorelake.read.names import shorten
from scorelake.read.verdict import title
from scorelake.text import escape_controls

_STATS = """
SELECT subject, problem_id, models, attempts, solved_by, difficulty, saturated, never_solved, suspicious
FROM problem_stats WHERE benchmark = ? AND protocol = ? ORDER BY difficulty, subject, problem_id
"""
_CELLS = """
WITH placed AS (
    SELECT subject, problem_id, row_number() OVER (ORDER BY difficulty, subject, problem_id) - 1 AS spot
    FROM problem_stats WHERE benchmark = $benchmark AND protocol = $protocol
), shown AS (
    SELECT subject, problem_id, row_number() OVER (ORDER BY spot) - 1 AS spot
    FROM placed WHERE spot IN (SELECT unnest($shown))
)
SELECT model, list(spot ORDER BY spot), list(n ORDER BY spot), list(c ORDER BY spot)
FROM problem_counts JOIN shown USING (subject, problem_id)
WHERE benchmark = $benchmark AND protocol = $protocol AND n > 0 AND c IS NOT NULL GROUP BY model
"""
ALPHABET = ascii_letters + digits
MOST_KINDS = 20_000
"""More different (n, c) than this are told in percent."""

Cell = tuple[int, int] | None


def problems(place: Place) -> dict[str, Any] | None:
    """Difficulty, flagged problems, and the matrix of models by problems; nothing where problems are private."""
    if place.asked.problems == "none":
        return None
    stats = place.read.rows(_STATS, *place.key)
    if not stats:
        return None
    name = _names(place, stats)
    flags = {
        "Nobody solves": [row for row in reversed(stats) if row[7]],
        "Everybody solves, always": [row for row in stats if row[6]],
        "Suspicious: weak models solve them, strong ones do not": [row for row in stats if row[8]],
    }
    return {
        "strip": svg.strip(
            [row[5] for row in stats], f"Difficulty of {len(stats):,} problems of {title(place.board)}"
        ),
        "bins": svg.bins_told(svg.binned([row[5] for row in stats])),
        "many": len(stats),
        "flags": [
            (what, len(rows), [name[row[:2]] for row in rows[:FLAGGED]], max(len(rows) - FLAGGED, 0))
            for what, rows in flags.items()
        ],
        "known": place.read.rows(_KNOWN, *place.key)[0][0] >= 8,
        "hardest": [
            (name[row[:2]], escape_controls(row[0]), f"{row[5]:.2f}", f"{row[4]:,} of {row[2]:,}", f"{row[3]:,}")
            for row in list(reversed(stats))[: FLAGGED if len(place.lines) <= MANY else FLAGGED // 2]
        ],
        **_matrix(place, stats, name),
    }


_KNOWN = "SELECT max(models) FROM problem_stats WHERE benchmark = ? AND protocol = ?"


def _names(place: Place, stats: list[tuple[Any, ...]]) -> dict[tuple[str, str], str]:
    """What to call each problem: its id, with the subject where ids repeat; or its number by difficulty."""
    if place.asked.problems == "numbers":
        return {row[:2]: f"#{i + 1}" for i, row in enumerate(stats)}
    ids = [row[1] for row in stats]
    twice = len(set(ids)) < len(ids)
    words = [f"{row[0]}/{row[1]}" if twice else str(row[1]) for row in stats]
    return {row[:2]: shorten(escape_controls(text), 80) for row, text in zip(stats, words, strict=True)}


def _matrix(place: Place, stats: list[tuple[Any, ...]], name: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The drawing of the first models and at most so many problems, and every cell as one character."""
    models = [line.model for line in place.lines]
    step = max(len(stats) / HEATED, 1.0)
    shown = [int(i * step) for i in range(int(len(stats) / step))]
    cells = _cells(place, models, shown)
    rounded = len({cell for line in cells for cell in line}) > MOST_KINDS
    if rounded:
        cells = [[cell and (100, round(100 * cell[1] / cell[0])) for cell in line] for line in cells]
    labels = [place.label(model) for model in models[:MATRIX]]
    words = f"Who solves which problem of {title(place.board)}"
    kinds = _kinds(cells)
    sign = {kind: char for char, kind in kinds.items()}
    return {
        "heat": svg.heat([[_step(cell) for cell in line] for line in cells[:MATRIX]], labels, words),
        "names": [shorten(label, 28) for label in labels],
        "left": (len(models) - len(labels), len(stats) - len(shown)),
        "data": {
            "kinds": kinds,
            "cells": ["".join(sign[cell] if cell else " " for cell in line) for line in cells],
            "names": [name[stats[at][:2]] for at in shown],
            "drawn": len(labels),
            "rounded": int(rounded),
        },
    }


def _cells(place: Place, models: list[str], shown: list[int]) -> list[list[Cell]]:
    """(n, c) of every model at the problems shown, by difficulty; None where there was no graded attempt."""
    row = {model: i for i, model in enumerate(models)}
    cells: list[list[Cell]] = [[None] * len(shown) for _ in models]
    given = {"benchmark": place.board.benchmark, "protocol": place.board.protocol, "shown": shown}
    for model, columns, ns, cs in place.read.table(_CELLS, given)[1]:
        if model in row:
            for at, n, c in zip(columns, ns, cs, strict=True):
                cells[row[model]][at] = (n, c)
    return cells


def _kinds(cells: list[list[Cell]]) -> dict[str, tuple[int, int]]:
    """A character for every (n, c), the frequent ones short."""
    seen = Counter(cell for line in cells for cell in line)
    order = sorted((kind for kind in seen if kind is not None), key=lambda kind: (-seen[kind], kind))
    beyond = (chr(0x4E00 + i) for i in range(len(order)))
    return dict(zip(chain(ALPHABET, beyond), order, strict=False))


def _step(cell: Cell) -> int | None:
    """Five steps: never, seldom, sometimes, mostly, always."""
    if cell is None:
        return None
    n, c = cell
    return 0 if c == 0 else 4 if c == n else 1 + min(3 * c // n, 2)
