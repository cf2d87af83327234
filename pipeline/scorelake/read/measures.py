"""What attempts cost, for people: the rows of the tables of measures, and the cost of two models in a line."""

from __future__ import annotations

from typing import Any

from scorelake.read.board import Reader
from scorelake.read.format import DASH, amount

_COSTS = """
SELECT m.*, protocol.label, f.on_front, f.front_by_value, f.p_front, c.value AS score, c.lo AS score_lo,
    c.hi AS score_hi, m.value AS cost, m.lo AS cost_lo, m.hi AS cost_hi
FROM measure_summary AS m
LEFT JOIN protocol USING (protocol)
LEFT JOIN frontier AS f USING (benchmark, protocol, model, measure)
LEFT JOIN (FROM cost_curve WHERE k = 1) AS c USING (benchmark, protocol, model, measure)
WHERE m.subject IS NULL AND m.slice IS NULL AND ($measure IS NULL OR measure = $measure)
    AND m.model IN (SELECT model FROM leaderboard)  -- of a series, the last point
ORDER BY m.benchmark, m.protocol, m.measure, score DESC NULLS LAST, m.value, m.model
"""
_LIFTS = """
SELECT benchmark, protocol, measure, if(model_b = $2, [lift, lift_lo, lift_hi], [-lift, -lift_hi, -lift_lo])
FROM measure_pair WHERE (model_a, model_b) IN (($1, $2), ($2, $1))
"""
ON_FRONT = "Frontier: no other model is better and cheaper, both beyond chance"
FRONTIER = f"{ON_FRONT} (in brackets: share of resamples in which no other scores as high for as little)."
HEADS = ("per attempt", "interval", "per pass", "interval", "total", "never solved", "frontier")


def read_costs(read: Reader, measure: str | None = None) -> list[dict[str, Any]]:
    """Return the costs of all models by board and measure, the highest score first; none without measures."""
    if not read.rows("SELECT 1 FROM information_schema.tables WHERE table_name = 'measure_summary'"):
        return []  # the tables exist only with [measures]
    columns, rows = read.table(_COSTS, {"measure": measure})
    return [dict(zip(columns, row, strict=True)) for row in rows]


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a model below HEADS."""
    ends = [DASH if row[lo] is None else f"{amount(row[lo])} to {amount(row[hi])}" for lo, hi in _ENDS]
    front = f"{'yes' if row['on_front'] else 'no'} ({row['p_front']:.0%})" if row["p_front"] is not None else DASH
    never = DASH if row["never_solved"] is None else f"{row['never_solved']:,} of {row['problems']:,}"
    return [amount(row["cost"]), ends[0], amount(row["per_pass"]), ends[1], amount(row["total"]), never, front]


_ENDS = (("cost_lo", "cost_hi"), ("per_pass_lo", "per_pass_hi"))


def compare_costs(read: Reader, a: str, b: str) -> dict[tuple[str, str], str]:
    """Return what two models cost, by benchmark and label of the protocol; empty without measures."""
    rows, out = read_costs(read), dict[tuple[str, str], str]()
    costs = {(row["benchmark"], row["label"], row["measure"], row["model"]): row for row in rows}
    lifts = {tuple(key): ends for *key, ends in read.rows(_LIFTS, a, b)} if rows else {}
    for benchmark, label, measure, model in costs:
        other = costs.get((benchmark, label, measure, a))
        if model == b and other and a != b:
            row = costs[benchmark, label, measure, b]
            each = (f"{amount(x['cost'])} per attempt ({cells(x)[1]})" for x in (row, other))
            text = f"{measure}: {' against '.join(each)}"
            if ends := lifts.get((benchmark, row["protocol"], measure)):
                text += f", a difference of {ends[0]:+.4g} ({ends[1]:+.4g} to {ends[2]:+.4g}) on the same problems"
            out[benchmark, label] = "; ".join(filter(None, (out.get((benchmark, label)), text)))
    return out
