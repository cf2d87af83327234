"""Who beats whom: the matrix that the page shows, and every pair in small numbers for the script."""

from __future__ import annotations

from typing import Any

from scorelake.page.sections import MANY, MATRIX, Place
from scorelake.read.names import shorten
from scorelake.read.numbers import Scale

_PAIRS = """
SELECT model_a, model_b, problems, lift, lo, hi, wins_a, wins_b, ties, q, claim FROM pair
WHERE benchmark = ? AND protocol = ? AND metric = ?
"""
_COMPARED = "SELECT DISTINCT metric FROM pair WHERE benchmark = ? AND protocol = ? ORDER BY ALL"
SETTLED = {"improvement": "+", "regression": "-"}

Found = dict[tuple[str, str], tuple[Any, ...]]
"""By (row, column): problems, lift, lo, hi, wins of the row, wins of the column, ties, q, claim."""


def pairs(place: Place) -> dict[str, Any] | None:
    """The lift of the row over the column, in rank order, marked where it is not settled.

    With many models only the half below the diagonal: the other half says the same with the other sign.
    """
    ranked = [line.model for line in place.lines if line.rank is not None]
    shown = ranked[:MATRIX]
    found = _found(place, place.metric)
    between = [found[a, b] for i, a in enumerate(shown) for b in shown[i + 1 :] if (a, b) in found]
    lifts = [abs(pair[1]) for pair in between if pair[1] is not None]
    if not lifts:
        return None
    most = max(lifts) or 1.0
    half = len(place.lines) > MANY
    rows = []
    for i, a in enumerate(shown):
        others = shown[:i] if half else [b for b in shown if b != a]
        rows.append((place.short(a), i, [_cell(place, a, b, found.get((a, b)), most) for b in others]))
    return {
        "rows": rows,
        "half": half,
        "names": [shorten(place.label(model), 24) for model in shown],
        "left": len(ranked) - len(shown),
        "settled": sum(pair[8] in SETTLED for pair in between),
        "of": len(between),
        "stricter": _stricter(place, found, shown),
    }


def packed(place: Place, models: list[str]) -> dict[str, Any]:
    """Every metric's pairs as three whole numbers and a sign: model i over model j for i < j, row by row."""
    out: dict[str, Any] = {}
    for (metric,) in place.read.rows(_COMPARED, *place.key):
        scale = place.board.scale(metric)
        found = _found(place, metric)
        told: dict[str, Any] = {"lift": [], "lo": [], "hi": [], "claim": ""}
        claims = []
        for i, a in enumerate(models):
            for b in models[i + 1 :]:
                pair = found.get((a, b))
                known = pair is not None and pair[1] is not None
                for name, value in zip(("lift", "lo", "hi"), pair[1:4] if pair and known else (0, 0, 0), strict=True):
                    told[name].append(_whole(value, scale.percent))
                claims.append("?" if not pair or not known else SETTLED.get(pair[8], "="))
        out[metric] = told | {"claim": "".join(claims)}
    return out


def _whole(value: float, percent: bool) -> float:
    """Tenths of a percent point, rounded as the page rounds them; what is no percent with four digits."""
    if not percent:
        return float(f"{value:.4g}")
    tenths = abs(value) * 1000
    if abs(tenths % 1 - 0.5) < 1e-6:  # so near a half only the exact value decides
        return int(Scale().text(value).replace(".", ""))
    return round(tenths) if value > 0 else -round(tenths)


def _found(place: Place, metric: str) -> Found:
    """Every pair from both sides; the view tells of B over A, the page of the row over the column."""
    return {
        (row[1], row[0]): (*row[2:6], row[7], row[6], *row[8:]) for row in place.read.rows(_PAIRS, *place.key, metric)
    }


def _stricter(place: Place, found: Found, shown: list[str]) -> bool:
    """Some pair is settled by itself while the ranks leave its order open: they hold for all models at once."""
    lines = {line.model: line for line in place.lines}
    return any(
        (a, b) in found and found[a, b][8] in SETTLED and _open(lines[a], lines[b])
        for i, a in enumerate(shown)
        for b in shown[i + 1 :]
    )


def _open(first: Any, second: Any) -> bool:
    return first.rank_lo is not None and second.rank_lo is not None and second.rank_lo <= first.rank


def _cell(place: Place, a: str, b: str, pair: tuple[Any, ...] | None, most: float) -> dict[str, Any]:
    """One cell: a number, a class for its colour, and the whole comparison in words."""
    names = f"{place.label(a)} against {place.label(b)}"
    if pair is None or pair[1] is None:
        return {"text": "\u2013", "step": 0, "open": True, "about": f"{names}: {pair[8] if pair else 'not compared'}"}
    problems, lift, lo, hi, wins, losses, ties, q, claim = pair
    settled = claim in SETTLED
    scale = Scale() if place.scale.percent else Scale(False)
    about = (
        f"{names}: {scale.signed(lift)} points ({scale.signed(lo)} to {scale.signed(hi)}) on {problems:,} problems; "
        f"ahead on {wins:,}, behind on {losses:,}, equal on {ties:,}; q = {q:.2g}: "
        + ("settled" if settled else claim if claim != "inconclusive" else "not settled")
    )
    step = round(4 * lift / most) if settled else round(lift / most)  # what is not settled is not shouted
    return {"text": scale.signed(lift) if settled else "=", "step": step, "open": not settled, "about": about}
