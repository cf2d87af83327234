"""One comparison in words a reviewer can quote: what was compared, what it shows, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from scorelake.errors import UsageError
from scorelake.metrics.significance import detectable_lift
from scorelake.read.names import canonical, says, there
from scorelake.read.session import query, settings_shown

if TYPE_CHECKING:
    from scorelake.read.recompute import Kept, Told

POWER = 0.8

_ROWS = """
SELECT p.*, f.family, f.resamples, coalesce(told.label, '') AS label
FROM pair AS p
LEFT JOIN protocol AS told ON told.protocol = p.protocol
LEFT JOIN (
    SELECT benchmark, protocol, metric, count(q) AS family, max(resamples) AS resamples
    FROM internal.model_pair
    GROUP BY ALL
) AS f ON f.benchmark = p.benchmark AND f.protocol = p.protocol AND f.metric = p.metric
WHERE p.metric = ? AND p.model_a = ? AND p.model_b = ? AND (? IS NULL OR p.benchmark = ?)
ORDER BY p.benchmark, p.protocol
"""


@dataclass(frozen=True)
class Asked:
    """What is to be compared."""

    model_a: str
    model_b: str
    metric: str = "pass@1"
    benchmark: str | None = None
    protocols: tuple[str, ...] = ()
    """One: of both. Two: of A, and of B."""
    runs: tuple[str, ...] = ()
    """One: of A, which is compared with B in the run that is shown. Two: of A, and of B."""


@dataclass(frozen=True)
class Comparison:
    """B against A; the numbers are None when the two are not comparable."""

    benchmark: str
    a: str
    b: str
    metric: str
    protocol: str
    row: dict[str, Any]
    """The columns of `pair`."""
    family: int | None
    """Pairs that q and Holm's adjustment count; None for a pair that was compared by itself, now."""
    both: str = "attempted by both under the same protocol"


def compared(folder: Path, out: str, asked: Asked) -> list[Comparison]:
    """One comparison per benchmark and protocol: from the published pairs, or made now from the stored counts.

    folder is where the leaderboard is read, out the output whose snapshots have the counts. A run that is not named
    is the one that the leaderboard in folder shows, whatever is published in out by now.
    """
    if len(asked.protocols) > 2 or len(asked.runs) > 2:
        raise UsageError("two sides are compared, not more", hint="--protocol and --run may be given once or twice")
    name = canonical(asked.metric, settings_shown(folder))
    if not asked.runs:
        _known(folder, asked)
    found = [] if asked.runs or len(asked.protocols) > 1 else _published(folder, asked, name)
    if not found:
        found = _made(folder, out, asked, name)
    if not found:
        raise UsageError(
            f"{asked.model_a} and {asked.model_b} have no benchmark in common"
            + (f" called {asked.benchmark}" if asked.benchmark else "")
        )
    return found


def run_shown(folder: Path) -> str:
    """The id of the run that a leaderboard shows."""
    _, ((run,),) = query(folder, "SELECT run_id FROM run WHERE shown")
    return str(run)


def _published(folder: Path, asked: Asked, metric: str) -> list[Comparison]:
    """Rows of the published pairs, under the protocol asked for."""
    parameters = (metric, asked.model_a, asked.model_b, asked.benchmark, asked.benchmark)
    columns, rows = query(folder, _ROWS, parameters)
    told = [dict(zip(columns, row, strict=True)) for row in rows]
    out = []
    for row in told:
        protocol = row["protocol"]
        label = row["label"]
        if asked.protocols and (protocol is None or not says(protocol, label, asked.protocols[0])):
            continue
        out.append(Comparison(row["benchmark"], asked.model_a, asked.model_b, metric, label, row, row["family"]))
    return out


def _known(folder: Path, asked: Asked) -> None:
    """Both models and the benchmark are there, or the closest names are told."""
    _, rows = query(folder, "SELECT DISTINCT model FROM model_summary ORDER BY ALL")
    there("model", [row[0] for row in rows], (asked.model_a, asked.model_b))
    _, rows = query(folder, "SELECT DISTINCT benchmark FROM model_summary ORDER BY ALL")
    there("benchmark", [row[0] for row in rows], (asked.benchmark,) if asked.benchmark else ())
    _, rows = query(folder, "SELECT protocol, label FROM protocol ORDER BY ALL")
    for protocol in asked.protocols:
        if not any(says(row[0], row[1], protocol) for row in rows):
            labels = " | ".join(label for _, label in rows if label)
            raise UsageError(f"no protocol {protocol} here", hint=f"protocols: {labels or 'none'}")


def _made(folder: Path, out: str, asked: Asked, metric: str) -> list[Comparison]:
    """The same from the counts of snapshots."""
    from scorelake.publish.snapshot import Output  # noqa: PLC0415  (Polars loads slowly; tables do without)
    from scorelake.read.recompute import Kept, Side, compared  # noqa: PLC0415

    kept = Kept(Output.at(out))
    runs = [kept.run(name) for name in asked.runs]
    runs += [kept.shown(run_shown(folder))] * (2 - len(runs))
    protocols = (asked.protocols * 2)[:2] if len(asked.protocols) == 1 else asked.protocols or (None, None)
    models = (asked.model_a, asked.model_b)
    for model, run in zip(models, runs, strict=True):
        there("model", kept.counts(run).histogram["model"].unique().sort().to_list(), (model,))
    a, b = (Side(*side) for side in zip(models, runs, protocols, strict=True))
    return [_worded(told, kept, metric) for told in compared(kept, (a, b), metric, asked.benchmark)]


def _worded(told: Told, kept: Kept, metric: str) -> Comparison:
    """Names for both sides that tell them apart, and what they have in common."""
    a, b = told.sides
    labels = told.labels
    names, protocol, both = [a.model, b.model], labels[0], "attempted by both under the same protocol"
    if labels[0] != labels[1]:
        names = [f"{side.model} ({label})" for side, label in zip(told.sides, labels, strict=True)]
        protocol, both = "", "attempted under both protocols"
    if a.run != b.run:
        names = [f"{name} (run {side.run})" for name, side in zip(names, told.sides, strict=True)]
        both = "attempted in both runs, which may share attempts"
        changed = _changed(kept, a.run, b.run)
        both += f"; settings differ: {', '.join(changed)}" if changed else ""
    return Comparison(told.benchmark, names[0], names[1], metric, protocol, told.row, None, both)


def _changed(kept: Kept, a: str, b: str) -> list[str]:
    """Settings that counts depend on and that the two runs do not share."""
    one, two = (kept.settings(run).counting() for run in (a, b))
    return sorted(key for key in one | two if one.get(key) != two.get(key))


def tell(c: Comparison, settings: dict[str, Any]) -> str:
    """The claim as text."""
    row = c.row
    where = ", ".join(part for part in (c.benchmark, c.protocol, c.metric) if part)
    head = f"{c.b} against {c.a} ({where}): {row['claim']}"
    if row["lift"] is None:
        return head
    share, drawn = settings["uncertainty"]["confidence"], "clusters" if settings["columns"]["cluster"] else "problems"
    se = (row["hi"] - row["lo"]) / 2 / NormalDist().inv_cdf((1 + share) / 2)
    lines = {
        "problems": f"{row['problems']:,}, {c.both}",
        "lift": f"{row['lift']:+.4f}, {share:.0%} interval {row['lo']:+.4f} to {row['hi']:+.4f} "
        f"(paired bootstrap over {drawn}, {row['resamples']:,} resamples)",
        "wins": f"{c.b} ahead on {row['wins_b']:,}, {c.a} on {row['wins_a']:,}, equal on {row['ties']:,}",
        "flip test": f"p = {row['p_one_sided']:.3g} one-sided, {row['p_two_sided']:.3g} two-sided "
        f"(signs of the differences of {drawn} flipped)",
        "q": _family(c, where),
        "shows": _shows(c, settings),
        "does not show": "how either does on other kinds of problems, or under another protocol",
        "detectable": _detectable(detectable_lift(se, share, POWER), row["problems"]),
    }
    return "\n".join([head, *(f"  {name:<15}{text}" for name, text in lines.items())])


def _family(c: Comparison, where: str) -> str:
    """What q is, and over which pairs."""
    q = f"{c.row['q']:.3g}"
    if c.family is None:
        return f"{q}, which is p: this pair was compared by itself, now. Who looks at many pairs must adjust"
    if c.family == 1:
        return f"{q}, which is p: there is no other pair in {where}"
    return f"{q} (Benjamini-Hochberg), {c.row['p_holm']:.3g} by Holm, over all {c.family:,} pairs of {where}"


def _shows(c: Comparison, settings: dict[str, Any]) -> str:
    """The claim in words; of an inconclusive one, what it lacks."""
    row, share, margin = c.row, settings["uncertainty"]["confidence"], settings["compare"].get("margin")
    near = f"{2 * share - 1:.0%} interval"
    words = {
        "improvement": f"{c.b} scores higher on problems like these",
        "regression": f"{c.b} scores lower on problems like these",
        "equivalent": f"the two differ by less than the margin of {margin} on problems like these ({near})",
        "not worse": f"{c.b} is not worse by the margin of {margin} or more on problems like these ({near})",
    }
    if row["claim"] in words:
        return words[row["claim"]]
    if row["lo"] <= 0 <= row["hi"]:
        return "no difference that these problems can settle; the interval contains zero, no proof of equality"
    return f"nothing that may be claimed: the interval leaves zero out, but q is above {1 - share:.2g}" + (
        f"; among {c.family:,} pairs some look like this by chance" if c.family and c.family > 1 else ""
    )


def _detectable(lift: float, problems: int) -> str:
    if lift == 0:
        return "unknown: the two score the same on every problem"
    return f"a true lift of {lift:.4f} is found {POWER:.0%} of the time with {problems:,} such problems"
