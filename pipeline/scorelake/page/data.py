"""The data that the page's script switches between.

A page must stay small enough for mail. Required data comes first, then optional parts in order of priority as long as
they fit. The script lists the parts that did not fit. Without the script none of this is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scorelake.page import svg
from scorelake.page.pairs import packed_pairs
from scorelake.page.sections import MANY, MATRIX, BoardView, pack
from scorelake.read.board import BoardRows, Line, by_subject
from scorelake.read.names import labels
from scorelake.read.numbers import Scale
from scorelake.read.verdict import verdict

Json = dict[str, Any]
Part = list[tuple[Json, str, Any]]
"""Entries to add: the dictionary, the key and the value."""
MAX_SUBJECT_ROWS = 60_000
"""With more rows by subject and metric there is no need to measure their size: they do not fit."""


def script_data(views: list[BoardView], sections: list[Json], metric: str, max_bytes: int) -> Json:
    """Return the data for the script that fits into max_bytes."""
    names = labels(view.board.benchmark for view in views)
    boards = [_board(view, parts, names[view.board.benchmark]) for view, parts in zip(views, sections, strict=True)]
    data: Json = {"metric": metric, "top": views[0].top, "matrix": MATRIX, "many": MANY, "markers": svg.MARKERS}
    data |= {"omitted": [], "boards": boards}
    left = max_bytes - len(encode(data).encode())
    for name, part in _optional_parts(views, sections, boards):
        size = sum(len(encode({key: value}).encode()) for _, key, value in part or ())
        if part is None or size > left:
            data["omitted"].append(name)
            continue
        left -= size
        for target, key, value in part:
            target[key] = value
    return data


def encode(data: Json) -> str:
    """Encode as JSON that no HTML parser takes for markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _board(view: BoardView, sections: Json, benchmark: str) -> Json:
    """Return a board at the metric of the page, with the problems and the history of the first models only."""
    out: Json = {
        "benchmark": benchmark,
        "protocol": view.board.label,
        "models": [view.label(line.model) for line in view.lines],
        "overall": {"name": ""} | _scores(view, view.board),
        "subjects": [],
        "pairs": {},
    }
    if sections["curves"]:
        out["curves"] = sections["curves"]["data"]
    for name, rows in (("problems", "cells"), ("history", "rows")):
        if sections[name]:
            data = sections[name]["data"]
            out[name] = data | {rows: data[rows][:MATRIX]}
    return out


def _optional_parts(
    views: list[BoardView], sections: list[Json], boards: list[Json]
) -> Iterator[tuple[str, Part | None]]:
    """Yield the name and the entries of each optional part; None instead of entries that are clearly too large."""
    paired = list(zip(views, boards, strict=True))
    scores = [_subjects(view) for view in views]
    yield "scores by subject", [(out, "subjects", by_name) for out, by_name in zip(boards, scores, strict=True)]
    others = [(view, out, name) for view, out in paired for name in view.board.lines if name != view.metric]
    metrics = [(out["overall"]["metrics"], name, _metric(view, view.board, name)) for view, out, name in others]
    yield "other metrics", metrics
    yield "pairs of all models", [(out, "pairs", packed_pairs(view)) for view, out in paired]
    for part, rows in (("history", "rows"), ("problems", "cells")):
        full = [(out, section[part]["data"]) for out, section in zip(boards, sections, strict=True) if section[part]]
        yield f"the {part} of all models", [(out[part], rows, data[rows]) for out, data in full]
    size = sum(len(view.lines) * len(rows) * len(view.board.lines) for view, rows in zip(views, scores, strict=True))
    yield "other metrics by subject", None if size > MAX_SUBJECT_ROWS else _other_metrics(views, scores)


def _subjects(view: BoardView) -> list[Json]:
    """Return the subjects of a board at the metric of the page."""
    subjects = by_subject(view.reader, view.board, view.metric)
    names = labels(str(board.subject) for board in subjects)
    return [{"name": names[str(board.subject)]} | _scores(view, board) for board in subjects]


def _other_metrics(views: list[BoardView], scores: list[list[Json]]) -> Part:
    return [
        (target["metrics"], name, _metric(view, board, name))
        for view, subjects in zip(views, scores, strict=True)
        for target, board in zip(subjects, by_subject(view.reader, view.board), strict=True)
        for name in board.lines
        if name not in target["metrics"]
    ]


def _scores(view: BoardView, board: BoardRows) -> Json:
    """Return a board, or one subject of it, at the metric of the page."""
    metric = view.metric if view.metric in board.lines else next(iter(board.lines))
    lines = {line.model: [line.problems, line.of_benchmark, line.attempts] for line in board.lines[metric]}
    counts = [lines.get(line.model, 0) for line in view.lines]
    return {"counts": counts, "metrics": {metric: _metric(view, board, metric)}}


def _metric(view: BoardView, board: BoardRows, name: str) -> Json:
    """Return a board at one metric, with the models in the order of the page."""
    scale = board.scale(name)
    by_model = {line.model: line for line in board.lines[name]}
    lines = [by_model.get(line.model) for line in view.lines]
    family, k = view.facts.families[name]
    return {
        "family": family,
        "k": k,
        "percent": int(scale.percent),
        "places": scale.places,
        "verdict": verdict(view.facts, board, name),
        "rows": [_row(line, scale) if line else 0 for line in lines],
        "reasons": {i: line.reason for i, line in enumerate(lines) if line and line.rank is None and line.reason},
    }


def _row(line: Line, scale: Scale) -> list[float | None]:
    """Return value, lo, hi, rank, rank_lo, rank_hi, and 1 where some problems have too few attempts."""
    ranks = (line.rank, line.rank_lo, line.rank_hi)
    return [*pack(scale, line.value, line.lo, line.hi), *ranks, int(line.scored < line.problems)]
