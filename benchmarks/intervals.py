"""Do the printed intervals hold what they promise? Simulated lakes, scored by the job's own code.

Writes docs/coverage.md: for every interval that a reader sees, how often it covers the truth it is about.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import polars as pl
from scipy.special import betaln, ndtri

from scorelake import metrics
from scorelake.metrics.draws import Floats
from scorelake.metrics.resample import Plan, bootstrap
from scorelake.score.choose import Outcomes
from scorelake.score.groups import Grouping
from scorelake.score.summaries import summarize
from scorelake.settings import Settings

SHAPES = ((0.3, 0.7), (0.5, 3.0), (2.0, 2.0))
PROBLEMS = (30, 100, 1000)
ATTEMPTS = (16, 64)
DRAWS = (1, 8, 16)
PRIORS = ("uniform", "jeffreys", "empirical")
KEYS = ("benchmark", "model", "protocol")
DOC = Path(__file__).parents[1] / "docs" / "coverage.md"


@dataclass(frozen=True)
class Cell:
    """Lakes of one kind: success rates Beta(a, b), so many problems, n attempts each."""

    a: float
    b: float
    problems: int
    n: int

    @property
    def name(self) -> str:
        return f"| Beta({self.a:g}, {self.b:g}) | {self.problems} | {self.n} |"


def cells() -> Iterator[Cell]:
    return (Cell(a, b, m, n) for a, b in SHAPES for m in PROBLEMS for n in ATTEMPTS)


def printed(c: np.ndarray, n: int, prior: str) -> pl.DataFrame:
    """model_summary of many lakes at once, each lake a model, by the code that scores real ones."""
    lake = np.repeat(np.arange(c.shape[0]), c.shape[1])
    histogram = (
        pl.DataFrame({"benchmark": "sim", "model": lake, "protocol": "", "n": n, "c": c.ravel().astype(np.int64)})
        .with_columns(pl.col("model").cast(pl.String).str.zfill(6), pl.col("n").cast(pl.Int64))
        .group_by(*KEYS, "n", "c")
        .agg(problems=pl.len().cast(pl.Int64))
        .sort(*KEYS, "n", "c")
    )
    totals = (
        histogram.group_by(KEYS)
        .agg(problems_of_benchmark=pl.lit(0), attempts=pl.lit(0), ungraded=pl.lit(0))
        .sort(KEYS)
    )
    settings = Settings.model_validate({"uncertainty": {"prior": prior}})
    chosen = [metrics.parse(f"pass@{k}") for k in DRAWS]
    outcomes = Outcomes(binary=True, rewards=False, top_n=n)
    (table,) = summarize(chosen, [Grouping(KEYS, histogram, totals, histogram.lazy())], settings, outcomes)
    return table


def score_cell(cell: Cell, lakes: int, rng: np.random.Generator) -> list[float]:
    """Shares covered: for each prior and k the posterior interval, then for each k value -/+ z se."""
    p = rng.beta(cell.a, cell.b, (lakes, cell.problems))
    c = rng.binomial(cell.n, p)
    out = []
    for prior in PRIORS:
        table = printed(c, cell.n, prior)
        out += posterior_shares(table, p)
    z = float(ndtri(0.975))
    for k in DRAWS:
        row = table.filter(pl.col("metric") == f"pass@{k}")
        value, se = row["value"].to_numpy(), row["se"].to_numpy()
        truth = -np.expm1(betaln(cell.a, cell.b + k) - betaln(cell.a, cell.b))
        out.append(_covered(value - z * se, value + z * se, np.full(lakes, truth)))
    return out


def posterior_shares(table: pl.DataFrame, p: Floats) -> list[float]:
    """For each k, how often lo to hi covers the mean over the lake's own problems, whose rates are p."""
    out = []
    for k in DRAWS:
        row = table.filter(pl.col("metric") == f"pass@{k}")
        out.append(_covered(row["mu_lo"].to_numpy(), row["mu_hi"].to_numpy(), (1 - (1 - p) ** k).mean(axis=1)))
    return out


def again(cell: Cell, lakes: int) -> list[float]:
    """The empirical intervals of fresh lakes of the same kind."""
    rng = np.random.default_rng([2026, cell.problems, cell.n])
    p = rng.beta(cell.a, cell.b, (lakes, cell.problems))
    return posterior_shares(printed(rng.binomial(cell.n, p), cell.n, "empirical"), p)


def compare_cell(cell: Cell, lakes: int, rng: np.random.Generator) -> list[float]:
    """Two kinds of equal models: alike on every problem, and alike only on average. Covered, then claimed."""
    out = []
    for alike in (True, False):
        p = rng.beta(cell.a, cell.b, (lakes, 1 if alike else 2, cell.problems))
        rates: Floats = rng.binomial(cell.n, np.broadcast_to(p, (lakes, 2, cell.problems))) / cell.n
        pairs = np.arange(lakes) * 2
        lifts, _ = bootstrap(rates.reshape(2 * lakes, -1), pairs, pairs + 1, [], None, Plan())
        out += [_covered(lifts.lo, lifts.hi, np.zeros(lakes)), float((lifts.lo > 0).mean())]
    return out


def _covered(lo: Floats, hi: Floats, truth: Floats) -> float:
    return float(((lo <= truth) & (truth <= hi)).mean())


def table(heads: list[str], rows: list[tuple[Cell, list[float]]]) -> str:
    lines = [f"| rates | problems | n | {' | '.join(heads)} |", "|---|--:|--:|" + "--:|" * len(heads)]
    lines += [cell.name + "".join(f" {share:.1%} |" for share in shares) for cell, shares in rows]
    return "\n".join(lines)


TEXT = """# Coverage of the printed intervals

Written by `make coverage` (benchmarks/intervals.py): {lakes:,} simulated lakes per row, scored by the job's own code.
Nominal is 95%; with {lakes:,} lakes a share is known to about +/- {noise:.1%}.

## Posterior intervals: `lo` and `hi` of the summary tables
The truth is the mean over the lake's own problems (problems fixed). One column per prior and k of pass@k.

{posterior}

{verdict}

The uniform and Jeffreys priors believe every problem by itself, and pull each of its rates the same way; the
pulls do not average out over problems, so the more problems, the narrower the interval around the wrong place.
They are exact for one problem drawn from that prior, and near it for benchmarks that look like it.
`prior = "empirical"` learns the crowd from all problems of the model instead.

## Problems as a sample: `value` -/+ 1.96 `se`
The truth is the mean over all problems that might have been drawn.

{sample}

It fails where nearly every problem scores 1 (Beta(2, 2) at large k): what is missing from 1 sits in a few hard
problems, and a sample of 30 often has none of them. No spread in the sample tells of that; take more problems.

## Paired comparison: `lo` and `hi` of `comparison`, two equal models, pass@1
`same`: equal success rates on every problem. `other`: rates drawn apart, equal only on average. `claimed` is the
share of false claims of improvement (nominal 2.5%, as many again of regression).

{compare}

Largest share of false claims of improvement: {worst:.1%}.
"""


def verdict(rows: list[tuple[Cell, list[float]]], lakes: int) -> str:
    """The range of the empirical shares; rows that leave 93 to 97% are repeated to tell chance from a fault."""
    first = len(DRAWS) * PRIORS.index("empirical")
    shares = [(cell, row[first : first + len(DRAWS)]) for cell, row in rows]
    low, high = (end(x for _, row in shares for x in row) for end in (min, max))
    lines = [f"`empirical` covers {low:.1%} to {high:.1%}."]
    off = [(cell, row) for cell, row in shares if not all(0.93 <= x <= 0.97 for x in row)]
    if off:
        lines.append(f"Rows that leave 93 to 97%, and the same with {3 * lakes:,} fresh lakes (k = 1, 8, 16):\n")
    for cell, row in off:
        told = [", ".join(f"{x:.1%}" for x in some) for some in (row, again(cell, 3 * lakes))]
        lines.append(
            f"- Beta({cell.a:g}, {cell.b:g}), {cell.problems} problems, n = {cell.n}: {told[0]}; then {told[1]}"
        )
    return "\n".join(lines)


def main(lakes: int) -> None:
    start, rng = time.perf_counter(), np.random.default_rng(2026)
    scored, compared = [], []
    for cell in cells():
        scored.append((cell, score_cell(cell, lakes, rng)))
        compared.append((cell, compare_cell(cell, lakes, rng)))
        print(f"{time.perf_counter() - start:5.0f} s {cell.name}", file=sys.stderr)
    posts = len(PRIORS) * len(DRAWS)
    text = TEXT.format(
        lakes=lakes,
        noise=1.96 * (0.95 * 0.05 / lakes) ** 0.5,
        posterior=table([f"{p} {k}" for p in PRIORS for k in DRAWS], [(c, row[:posts]) for c, row in scored]),
        verdict=verdict(scored, lakes),
        sample=table([f"pass@{k}" for k in DRAWS], [(c, row[posts:]) for c, row in scored]),
        compare=table(["same covered", "same claimed", "other covered", "other claimed"], compared),
        worst=max(row[i] for _, row in compared for i in (1, 3)),
    )
    DOC.parent.mkdir(exist_ok=True)
    DOC.write_text(text)
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
