"""A comparison of two models in words that can be quoted: the numbers, the claim, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from scorelake.errors import UsageError
from scorelake.metrics.significance import detectable_lift
from scorelake.read.board import opened
from scorelake.read.format import check_names, check_protocols, matches_protocol
from scorelake.read.measures import compare_costs
from scorelake.read.sentences import pair_conclusion
from scorelake.text import escape_controls

POWER = 0.8
_PAIRS = """
SELECT p.*, f.family, coalesce(protocol.label, '') AS label
FROM pair AS p
LEFT JOIN protocol ON protocol.protocol = p.protocol
LEFT JOIN (
    SELECT benchmark, protocol, metric, count(q) AS family
    FROM source.model_pair
    GROUP BY ALL
) AS f ON f.benchmark = p.benchmark AND f.protocol = p.protocol AND f.metric = p.metric
WHERE p.metric = ? AND p.model_a = ? AND p.model_b = ? AND (? IS NULL OR p.benchmark = ?)
ORDER BY p.benchmark, p.protocol
"""


@dataclass(frozen=True)
class PairRequest:
    """Two models to compare."""

    model_a: str
    model_b: str
    metric: str | None = None  # by default pass@1, else avg@N
    benchmark: str | None = None
    protocols: tuple[str, ...] = ()  # one: of both models. Two: of A, and of B
    runs: tuple[str, ...] = ()  # one: of A, compared with B in the current run. Two: of A, and of B


@dataclass(frozen=True)
class PairResult:
    """B against A on one benchmark; the numbers are None if they are not comparable."""

    benchmark: str
    a: str
    b: str
    metric: str
    protocol: str
    row: dict[str, Any]  # the columns of `pair`
    settings: dict[str, Any]  # the settings of the current run
    family: int | None = None
    """Number of pairs over which q and p_holm are adjusted; None for a pair that was compared on demand."""
    common: str = "attempted by both under the same protocol"  # which problems were compared
    cost: str = ""  # what both models cost; empty without measures

    @property
    def where(self) -> str:
        return ", ".join(part for part in (self.benchmark, self.protocol, self.metric) if part)

    def text(self) -> str:
        """Return the claim with its numbers, one per line; one line if the models are not comparable."""
        row, margin = self.row, self.settings["compare"].get("margin")
        head = escape_controls(f"{self.b} against {self.a} ({self.where}): {row['claim']}")
        if row["lift"] is None:
            return head
        confidence = self.settings["uncertainty"]["confidence"]
        units = "clusters" if self.settings["columns"]["cluster"] else "problems"
        se = (row["hi"] - row["lo"]) / 2 / NormalDist().inv_cdf((1 + confidence) / 2)
        pairs = self.family or 1
        lift = detectable_lift(se, confidence, POWER, pairs)
        such = f"{row['problems']:,} such problems, "
        such += f"adjusted for {pairs:,} pairs" if pairs > 1 else "compared alone"
        detectable = f"a true lift of {lift:.4f} is found {POWER:.0%} of the time with {such}"
        if lift == 0:
            difference = "both score the same" if row["lift"] == 0 else "the difference is the same"
            detectable = f"unknown: {difference} on every problem"
        method, test = "from the intervals of both models: attempts per problem differ", "the same intervals"
        if row["resamples"]:
            method = f"paired bootstrap over {units}, {row['resamples']:,} resamples"
            test = f"signs of the differences of {units} flipped"
        adjusted = ", equal to p: a single comparison is not adjusted"
        if self.family == 1:
            adjusted = f", equal to p: there is no other pair in {self.where}"
        elif self.family is not None:
            adjusted = f" (Benjamini-Hochberg), {row['p_holm']:.3g} by Holm, over all {pairs:,} pairs of {self.where}"
        lines = {
            "problems": f"{row['problems']:,}, {self.common}",
            "lift": f"{row['lift']:+.4f}, {confidence:.0%} interval {row['lo']:+.4f} to {row['hi']:+.4f} ({method})",
            "wins": f"{self.b} ahead on {row['wins_b']:,}, {self.a} on {row['wins_a']:,}, equal on {row['ties']:,}",
            "flip test" if row["resamples"] else "test": f"p = {row['p_one_sided']:.3g} one-sided, "
            f"{row['p_two_sided']:.3g} two-sided ({test})",
            "q": f"{row['q']:.3g}{adjusted}",
            "shows": pair_conclusion(self.a, self.b, row, margin, confidence, self.family),
            "does not show": "how either does on other kinds of problems, or under another protocol",
            "detectable": detectable,
        } | ({"cost": self.cost} if self.cost else {})
        return "\n".join([head, *(f"  {name:<15}{text}" for name, text in lines.items())])


def compare_models(folder: Path, out: str, request: PairRequest) -> list[PairResult]:
    """Compare two models on every benchmark and protocol: from the published pairs, or from the stored counts.

    `folder` contains the leaderboard, `out` is the output whose snapshots have the counts. The current run is that of
    the leaderboard in `folder`, even if a later run has been published in `out`.
    """
    if len(request.protocols) > 2 or len(request.runs) > 2:
        hint = "--protocol and --run may be given once or twice"
        raise UsageError("a comparison has two sides, not more", hint=hint)
    with opened(folder) as read:
        settings, run_id = read.settings(), read.run_id
        metric = read.metric(request.metric)
        results, costs = [], {} if request.runs else compare_costs(read, request.model_a, request.model_b)
        if not request.runs:
            a, b, benchmark = request.model_a, request.model_b, request.benchmark
            check_names("model", read.names("model"), (a, b))
            check_names("benchmark", read.names("benchmark"), [benchmark or None])
            check_protocols(read.names("protocol"), request.protocols)
            rows = read.dicts(_PAIRS, metric, a, b, benchmark, benchmark) if len(request.protocols) < 2 else []
            results = [
                PairResult(row["benchmark"], a, b, metric, row["label"], row, settings, row["family"])
                for row in rows
                if all(
                    row["protocol"] is not None and matches_protocol(row["protocol"], row["label"], text)
                    for text in request.protocols
                )
            ]
    if not results:
        from scorelake.read.recompute import compare_stored  # noqa: PLC0415  (Polars loads slowly)

        results = compare_stored(out, run_id, request, metric, settings)
    if not results:
        name = f" called {request.benchmark}" if request.benchmark else ""
        raise UsageError(f"{request.model_a} and {request.model_b} have no benchmark in common{name}")
    return [replace(each, cost=costs.get((each.benchmark, each.protocol), "")) for each in results]
