"""Pairwise comparisons: the matrix in the page, and every pair in small numbers for the script."""

from __future__ import annotations

import math
from typing import Any

from scorelake.page.sections import DASH, MANY, MATRIX, BoardView
from scorelake.read.labels import shortened
from scorelake.read.numbers import Scale

_PAIRS = """
SELECT model_b, model_a, problems, lift, lo, hi, wins_b, wins_a, ties, q, claim FROM pair
WHERE benchmark = ? AND protocol = ? AND metric = ?
"""
_METRICS = "SELECT DISTINCT metric FROM pair WHERE benchmark = ? AND protocol = ? ORDER BY ALL"
SIGNIFICANT = {"improvement": "+", "regression": "-"}
Pair = dict[str, Any]


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
        "names": [shortened(view.label(model), 24) for model in models],
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
    step = round((4 if is_significant else 1) * pair["lift"] / largest)  # pale unless significant
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
