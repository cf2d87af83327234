"""The result of a paired comparison, as text and as a data frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from scorelake.read.claim import Asked, compared, tell
from scorelake.read.session import settings_shown
from scorelake.text import escape_control_lines

if TYPE_CHECKING:
    import polars as pl

_COUNTS = ("problems", "wins_a", "wins_b", "ties")
_NUMBERS = ("problems", "lift", "lo", "hi", "wins_a", "wins_b", "ties", "p_one_sided", "p_two_sided", "p_holm", "q")
_STYLE = "border-left: 3px solid #0b5a94; padding-left: .8em; margin: .5em 0"
_ROW = Markup('<tr><th style="text-align: left">{}</th><td style="text-align: left">{}</td></tr>')


@dataclass(frozen=True)
class Comparison:
    """Result of a paired comparison (returned by `Board.compare`).

    It prints one claim per benchmark and protocol that both models ran under.

    Attributes
    ----------
    claims : tuple of str
        The claims as text.
    frame : polars.DataFrame
        The numbers, one row per claim.

    Examples
    --------
    >>> comparison = board.compare("model-02", "model-01")
    >>> comparison.frame.select("model_a", "model_b", "problems", "claim").rows()
    [('model-02', 'model-01', 60, 'improvement')]
    """

    claims: tuple[str, ...]
    _rows: tuple[dict[str, Any], ...] = field(repr=False)

    @property
    def frame(self) -> pl.DataFrame:
        """Return the numbers, one row per claim.

        Returns
        -------
        polars.DataFrame
            The lift with its interval, wins, p-values, q, and the claim as a word.
        """
        import polars as pl  # noqa: PLC0415 - loads slowly, and text does not need it

        keys = dict.fromkeys(("benchmark", "protocol", "metric", "model_a", "model_b"), pl.String())
        numbers = {name: pl.Int64() if name in _COUNTS else pl.Float64() for name in _NUMBERS}
        return pl.DataFrame(list(self._rows), schema={**keys, **numbers, "claim": pl.String()})

    def __str__(self) -> str:
        return "\n\n".join(escape_control_lines(claim) for claim in self.claims)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        out = Markup("")
        for claim in self.claims:
            head, *lines = escape_control_lines(claim).split("\n")
            rows = Markup("").join(_ROW.format(line[2:17].strip(), line[17:]) for line in lines)
            out += Markup('<div style="{}"><strong>{}</strong><table>{}</table></div>').format(_STYLE, head, rows)
        return str(out)


def compare(folder: Path, out: str, query: Asked) -> Comparison:
    """Compare two models from the published tables, or from the counts where the tables do not have the pair."""
    settings = settings_shown(folder)
    results = compared(folder, out, query)
    rows = tuple(
        {"benchmark": result.benchmark, "protocol": result.protocol, "metric": result.metric}
        | {"model_a": result.a, "model_b": result.b, "claim": result.row["claim"]}
        | {name: result.row.get(name) for name in _NUMBERS}
        for result in results
    )
    return Comparison(tuple(tell(result, settings) for result in results), rows)
