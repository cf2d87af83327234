"""One comparison in words a reviewer can quote: what was compared, what it shows, and what it does not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics.significance import detectable_lift, sign_test
from scorelake.read.session import query

POWER = 0.8

_ROWS = """
SELECT benchmark, protocol, model_a, model_b, problems, lift, lo, hi, wins_a, wins_b, ties, p_holm, claim,
    count(p_holm) OVER (PARTITION BY benchmark) AS family
FROM comparison
WHERE metric = ?
QUALIFY (? IS NULL OR benchmark = ?) AND list_sort([model_a, model_b]) = list_sort([?, ?])
ORDER BY benchmark, protocol
"""


@dataclass(frozen=True)
class Comparison:
    """B against A on one benchmark under one protocol; the numbers are None when the two are not comparable."""

    benchmark: str
    protocol: str | None
    model_a: str
    model_b: str
    problems: int | None
    lift: float | None
    lo: float | None
    hi: float | None
    wins_a: int | None
    wins_b: int | None
    ties: int | None
    p_holm: float | None
    claim: str
    family: int
    """Pairs of the benchmark that Holm's adjustment counts."""

    def turned(self) -> Comparison:
        """The same evidence seen from the other model."""
        turn = {"improvement": "regression", "regression": "improvement"}
        return Comparison(
            **vars(self)
            | {
                "model_a": self.model_b,
                "model_b": self.model_a,
                "lift": _negative(self.lift),
                "lo": _negative(self.hi),
                "hi": _negative(self.lo),
                "wins_a": self.wins_b,
                "wins_b": self.wins_a,
                "claim": turn.get(self.claim, self.claim),
            }
        )


def _negative(x: float | None) -> float | None:
    return None if x is None else 0.0 - x


def claims(out: Path, model_a: str, model_b: str, metric: str, benchmark: str | None) -> list[str]:
    """One claim per benchmark and protocol that has the pair."""
    name = metric if metric.startswith("spectrum") else metrics.parse(metric).name
    _, rows = query(out, _ROWS, (name, benchmark, benchmark, model_a, model_b))
    if not rows:
        raise _nothing(out, model_a, model_b, name, benchmark)
    _, run = query(out, "SELECT settings FROM run ORDER BY started DESC LIMIT 1")
    settings = json.loads(run[0][0])
    found = [Comparison(*row) for row in rows]
    return [tell(c if c.model_b == model_b else c.turned(), name, settings) for c in found]


def tell(c: Comparison, metric: str, settings: dict[str, Any]) -> str:
    """The claim as text."""
    where = ", ".join(part for part in (c.benchmark, c.protocol, metric) if part)
    if c.lift is None or c.lo is None or c.hi is None or c.wins_a is None or c.wins_b is None:
        return f"{c.model_b} against {c.model_a} ({where}): {c.claim}"
    share, resamples = settings["uncertainty"]["confidence"], settings["compare"]["resamples"]
    drawn = "clusters" if settings["columns"]["cluster"] else "problems"
    one_sided, two_sided = sign_test(c.wins_a, c.wins_b)
    se = (c.hi - c.lo) / 2 / NormalDist().inv_cdf((1 + share) / 2)
    lines = {
        "problems": f"{c.problems:,}, attempted by both under the same protocol",
        "lift": f"{c.lift:+.4f}, {share:.0%} interval {c.lo:+.4f} to {c.hi:+.4f} "
        f"(paired bootstrap over {drawn}, {resamples:,} resamples)",
        "wins": f"{c.model_b} ahead on {c.wins_b:,}, {c.model_a} on {c.wins_a:,}, equal on {c.ties:,}",
        "sign test": f"p = {one_sided:.3g} one-sided, {two_sided:.3g} two-sided, "
        f"{c.p_holm:.3g} after Holm over {c.family:,} pair{'s' * (c.family != 1)}",
        "shows": _shows(c),
        "does not show": "how either does on other kinds of problems, or under another protocol",
        "detectable": _detectable(detectable_lift(se, share, POWER), c),
    }
    head = f"{c.model_b} against {c.model_a} ({where}): {c.claim}"
    return "\n".join([head, *(f"  {name:<15}{text}" for name, text in lines.items())])


def _shows(c: Comparison) -> str:
    if c.claim == "inconclusive":
        return "no difference that these problems can settle; that is not evidence of equality"
    word = "higher" if c.claim == "improvement" else "lower"
    text = f"{c.model_b} scores {word} on problems like these"
    if c.p_holm is not None and c.p_holm > 0.05:
        text += "; by size more than by count: the sign test alone does not settle it"
    return text


def _detectable(lift: float, c: Comparison) -> str:
    if lift == 0:
        return "unknown: the two score the same on every problem"
    return f"a true lift of {lift:.4f} is found {POWER:.0%} of the time with {c.problems:,} such problems"


def _nothing(out: Path, model_a: str, model_b: str, metric: str, benchmark: str | None) -> UsageError:
    _, known = query(out, "SELECT DISTINCT model FROM model_summary ORDER BY ALL")
    names = [row[0] for row in known]
    missing = [model for model in (model_a, model_b) if model not in names]
    if missing:
        return UsageError(f"no model {' or '.join(missing)} here", hint=f"models: {', '.join(names)}")
    if model_a == model_b:
        return UsageError("a model is not compared with itself", hint="name two models")
    _, compared = query(out, "SELECT DISTINCT metric FROM comparison ORDER BY ALL")
    return UsageError(
        f"{model_a} and {model_b} are not compared by {metric}" + (f" in {benchmark}" if benchmark else ""),
        hint=f"compared: {', '.join(row[0] for row in compared)}; name others in [compare] metrics and score again",
    )
