"""The problems of a board: how hard they are, which nobody or everybody solves, and who solves which."""

from __future__ import annotations

from typing import Any

from scorelake.page import svg
from scorelake.page.sections import FLAGGED, HEATED, MATRIX, Place
from scorelake.read.labels import shortened
from scorelake.read.verdict import title
from scorelake.words import visible

_STATS = """
SELECT subject, problem_id, models, attempts, solved_by, difficulty, saturated, never_solved, suspicious
FROM problem_stats WHERE benchmark = ? AND protocol = ? ORDER BY difficulty, subject, problem_id
"""
_CELLS = """
SELECT model, subject, problem_id, n, c FROM problem_counts
WHERE benchmark = ? AND protocol = ? AND n > 0 AND c IS NOT NULL
"""
FIRST = 35
"""Characters of the packed matrix start here, above the ones that JSON or HTML would escape most."""
LARGEST = 80
"""The largest n that one character holds; beyond, a cell is told in percent."""


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
        "many": len(stats),
        "flags": [
            (what, len(rows), [name[row[:2]] for row in rows[:FLAGGED]], max(len(rows) - FLAGGED, 0))
            for what, rows in flags.items()
        ],
        "known": place.read.rows(_KNOWN, *place.key)[0][0] >= 8,
        "hardest": [
            (name[row[:2]], visible(row[0]), f"{row[5]:.2f}", f"{row[4]:,} of {row[2]:,}", f"{row[3]:,}")
            for row in list(reversed(stats))[:FLAGGED]
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
    return {row[:2]: shortened(visible(text), 80) for row, text in zip(stats, words, strict=True)}


def _matrix(place: Place, stats: list[tuple[Any, ...]], name: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The drawing, and every cell as one character: c of n, for the first models and at most so many problems."""
    models = [line.model for line in place.lines][:MATRIX]
    step = max(len(stats) / HEATED, 1.0)
    shown = [stats[int(i * step)][:2] for i in range(int(len(stats) / step))]
    column = {key: i for i, key in enumerate(shown)}
    row = {model: i for i, model in enumerate(models)}
    cells: list[list[tuple[int, int] | None]] = [[None] * len(shown) for _ in models]
    for model, subject, problem, n, c in place.read.rows(_CELLS, *place.key):
        if model in row and (subject, problem) in column:
            cells[row[model]][column[subject, problem]] = (n, c)
    labels = [place.label(model) for model in models]
    words = f"Who solves which problem of {title(place.board)}"
    return {
        "heat": svg.heat([[_step(cell) for cell in line] for line in cells], labels, words),
        "names": [shortened(label, 28) for label in labels],
        "left": (len(place.lines) - len(models), len(stats) - len(shown)),
        "data": {
            "n": ["".join(_packed(cell, 0) for cell in line) for line in cells],
            "c": ["".join(_packed(cell, 1) for cell in line) for line in cells],
            "problems": [name[key] for key in shown],
        },
    }


def _step(cell: tuple[int, int] | None) -> int | None:
    """Five steps: never, seldom, sometimes, mostly, always."""
    if cell is None:
        return None
    n, c = cell
    return 0 if c == 0 else 4 if c == n else 1 + min(int(3 * c / n), 2)


def _packed(cell: tuple[int, int] | None, part: int) -> str:
    if cell is None:
        return " "
    n, c = cell
    if n > LARGEST:
        n, c = LARGEST, round(c / n * LARGEST)
    return chr(FIRST + (n, c)[part])
