"""What the page's script switches between, as plain data.

A page must stay small enough for mail. So the least is put in first, then what is asked for most, as long as there is
room; what finds none is named, and the script says so. Without the script nothing of this is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scorelake.page import svg
from scorelake.page.pairs import packed
from scorelake.page.sections import MANY, MATRIX, Place
from scorelake.read.board import Board, by_subject
from scorelake.read.names import labels
from scorelake.read.numbers import millionths
from scorelake.read.verdict import verdict

Told = dict[str, Any]
MOST_ROWS = 60_000
"""Rows by subject at every metric that may fit into a page at all."""


def data(places: list[Place], shown: list[Told], room: int) -> Told:
    """Everything for the script that fits into so many bytes."""
    named = labels(place.board.benchmark for place in places)
    boards = [_board(place, its, named[place.board.benchmark]) for place, its in zip(places, shown, strict=True)]
    asked = places[0].asked
    out: Told = {"metric": asked.metric, "top": asked.top, "matrix": MATRIX, "many": MANY, "shapes": svg.SHAPES}
    out |= {"left": [], "boards": boards}
    room -= len(told(out).encode())
    for what, pieces in _more(places, shown, boards):
        size = sum(len(told({key: value}).encode()) for _, key, value in pieces or ())
        if pieces is None or size > room:
            out["left"].append(what)
            continue
        room -= size
        for target, key, value in pieces:
            target[key] = value
    return out


def told(data: Told) -> str:
    """JSON that no HTML parser and no script takes for anything else."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for char, escaped in escapes.items():
        text = text.replace(char, escaped)
    return text


def _board(place: Place, its: Told, benchmark: str) -> Told:
    """A board with the metric of the page only, and with the cells and histories of its first models."""
    out: Told = {
        "benchmark": benchmark,
        "protocol": place.board.label,
        "models": [place.label(line.model) for line in place.lines],
        "whole": {"name": ""} | _view(place, place.board),
        "subjects": [],
        "pairs": {},
    }
    if its["curves"]:
        out["curves"] = its["curves"]["data"]
    if its["problems"]:
        out["problems"] = its["problems"]["data"] | {"cells": its["problems"]["data"]["cells"][:MATRIX]}
    if its["history"]:
        out["history"] = its["history"]["data"] | {"rows": its["history"]["data"]["rows"][:MATRIX]}
    return out


def _more(
    places: list[Place], shown: list[Told], boards: list[Told]
) -> Iterator[tuple[str, list[tuple[Told, str, Any]] | None]]:
    """What else may be in the page, the most wanted first: its name, and what is to be put where.

    None instead of what is so large that it need not be looked at.
    """
    where = list(zip(places, shown, boards, strict=True))
    views = [_subjects(place) for place in places]
    yield "scores by subject", [(board, "subjects", its) for board, its in zip(boards, views, strict=True)]
    yield (
        "other metrics",
        [
            (board["whole"]["metrics"], name, _metric(place, place.board, name))
            for place, _, board in where
            for name in place.board.lines
            if name != place.metric
        ],
    )
    yield (
        "pairs of all models",
        [(board, "pairs", packed(place, [line.model for line in place.lines])) for place, _, board in where],
    )
    for part, rows, what in (("history", "rows", "history"), ("problems", "cells", "problems")):
        yield (
            f"the {what} of all models",
            [(board[part], rows, its[part]["data"][rows]) for _, its, board in where if its[part]],
        )
    yield "other metrics by subject", _other_metrics(places, views)


def _subjects(place: Place) -> list[Told]:
    """The subjects of a board at the metric of the page."""
    found = by_subject(place.read, place.board, place.metric)
    named = labels(str(board.subject) for board in found)
    return [{"name": named[str(board.subject)]} | _view(place, board) for board in found]


def _other_metrics(places: list[Place], views: list[list[Told]]) -> list[tuple[Told, str, Any]] | None:
    """The subjects of all boards at the other metrics."""
    sizes = [len(p.lines) * len(its) * len(p.board.lines) for p, its in zip(places, views, strict=True)]
    if sum(sizes) > MOST_ROWS:
        return None
    return [
        (view["metrics"], name, _metric(place, board, name))
        for place, its in zip(places, views, strict=True)
        for view, board in zip(its, by_subject(place.read, place.board), strict=True)
        for name in board.lines
        if name not in view["metrics"]
    ]


def _view(place: Place, board: Board) -> Told:
    """A board, or one subject of it, at the metric of the page."""
    metric = place.metric if place.metric in board.lines else next(iter(board.lines))
    order = {line.model: i for i, line in enumerate(place.lines)}
    counts: list[Any] = [0] * len(order)
    for line in board.lines[metric]:
        if line.model in order:
            counts[order[line.model]] = [line.problems, line.of_benchmark, line.attempts]
    return {"counts": counts, "metrics": {metric: _metric(place, board, metric)}}


def _metric(place: Place, board: Board, name: str) -> Told:
    """The rows of one metric as the page orders them: value, lo, hi, rank, rank_lo, rank_hi, 1 if of some only."""
    order = {line.model: i for i, line in enumerate(place.lines)}
    lines, scale = board.lines[name], board.scale(name)
    number = millionths if scale.percent else float
    rows: list[Any] = [0] * len(order)
    reasons = {}
    for line in lines:
        if line.model in order:
            ends = [None if x is None else number(x) for x in (line.value, line.lo, line.hi)]
            partly = int(line.scored < line.problems)
            rows[order[line.model]] = [*ends, line.rank, line.rank_lo, line.rank_hi, partly]
            if line.rank is None and line.reason:
                reasons[order[line.model]] = line.reason
    family, k = place.facts.families[name]
    return {
        "family": family,
        "k": k,
        "percent": int(scale.percent),
        "places": scale.places,
        "verdict": verdict(place.facts, board, name),
        "rows": rows,
        "reasons": reasons,
    }
