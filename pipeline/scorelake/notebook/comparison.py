"""Two models against each other: a claim in words that shows itself, and its numbers as a frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from scorelake.read.claim import PairRequest, compare_models
from scorelake.text import escape_control_lines

if TYPE_CHECKING:
    import polars as pl

_NUMBERS = ("problems", "lift", "lo", "hi", "wins_a", "wins_b", "ties", "p_one_sided", "p_two_sided", "p_holm", "q")
_STYLE = "border-left: 3px solid #0b5a94; padding-left: .8em; margin: .5em 0"


@dataclass(frozen=True)
class Comparison:
    """What the problems that two models attempted show, and what they do not; `Board.compare` makes it.

    It prints its claims, one per benchmark and protocol that both ran under.

    >>> comparison = board.compare("model-02", "model-01")
    >>> comparison.frame.select("model_a", "model_b", "problems", "claim").rows()
    [('model-02', 'model-01', 60, 'improvement')]
    """

    claims: tuple[str, ...]
    """The claims in words."""
    _rows: tuple[dict[str, Any], ...] = field(repr=False)

    @property
    def frame(self) -> pl.DataFrame:
        """The numbers, one row per claim: lift, its interval, wins, p-values, q and the claim in a word."""
        import polars as pl  # noqa: PLC0415  (loads slowly; words do without)

        whole = ("problems", "wins_a", "wins_b", "ties")
        texts = ("benchmark", "protocol", "metric", "model_a", "model_b", "claim")
        kinds = {name: pl.Int64() if name in whole else pl.Float64() for name in _NUMBERS}
        schema = {**dict.fromkeys(texts[:-1], pl.String()), **kinds, "claim": pl.String()}
        return pl.DataFrame(list(self._rows), schema=schema)

    def __str__(self) -> str:
        return "\n\n".join(escape_control_lines(claim) for claim in self.claims)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(Markup("").join(_html(claim) for claim in self.claims))


def compare(folder: Path, out: str, asked: PairRequest) -> Comparison:
    """The comparison asked for, from a published board and, where its tables do not have it, its counts."""
    found = compare_models(folder, out, asked)
    rows = tuple(
        {"benchmark": each.benchmark, "protocol": each.protocol, "metric": each.metric}
        | {"model_a": each.a, "model_b": each.b, "claim": each.row["claim"]}
        | {name: each.row.get(name) for name in _NUMBERS}
        for each in found
    )
    return Comparison(tuple(each.text() for each in found), rows)


def _html(claim: str) -> Markup:
    """The first line as a heading, the others as names with their texts."""
    head, *lines = escape_control_lines(claim).split("\n")
    cells = [(line[2:17].strip(), line[17:]) for line in lines]
    rows = Markup("").join(
        Markup('<tr><th style="text-align: left">{}</th><td style="text-align: left">{}</td></tr>').format(*cell)
        for cell in cells
    )
    return Markup('<div style="{}"><strong>{}</strong><table>{}</table></div>').format(_STYLE, escape(head), rows)
