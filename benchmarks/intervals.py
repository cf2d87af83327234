"""Do the printed intervals hold what they promise? Simulated lakes, scored by the job's own code.

Writes docs/coverage.md: for every interval of one model's number, how often it covers the truth it is about. (What
claims and ranks promise is measured by benchmarks/ranks.py.)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics.distributions import Floats, Ints
from scorelake.schemas import GROUP, MODEL_SUMMARY, OVERALL
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.overall import overall_table
from scorelake.scoring.summaries import summary_tables
from scorelake.scoring.survey import ALL, BucketTask, Survey, survey_bucket
from scorelake.scoring.tasks import score_buckets
from scorelake.settings import Settings

DOC = Path(__file__).parents[1] / "docs" / "coverage.md"
Rates = Callable[[np.random.Generator, tuple[int, ...]], Floats]


def beta(a: float, b: float) -> Rates:
    return lambda rng, size: rng.beta(a, b, size)


def lumps(*parts: tuple[float, float, float]) -> Rates:
    """Shares of problems whose rates are uniform from one number to another."""

    def draw(rng: np.random.Generator, size: tuple[int, ...]) -> Floats:
        which = rng.choice(len(parts), size, p=[part[0] for part in parts])
        low, high = (np.array([part[i] for part in parts])[which] for i in (1, 2))
        out: Floats = low + (high - low) * rng.random(size)
        return out

    return draw


SHAPES: dict[str, Rates] = {
    "Beta(.3, .7)": beta(0.3, 0.7),
    "Beta(.5, 3)": beta(0.5, 3),
    "Beta(2, 2)": beta(2, 2),
    "Beta(.05, .05)": beta(0.05, 0.05),
    "45% 0, 35% 1, rest uniform": lumps((0.45, 0, 0), (0.35, 1, 1), (0.2, 0, 1)),
    "60% .05, 40% .9": lumps((0.6, 0.05, 0.05), (0.4, 0.9, 0.9)),
    "95% .97, 5% .02": lumps((0.95, 0.97, 0.97), (0.05, 0.02, 0.02)),
    "97% 0, 3% .3": lumps((0.97, 0, 0), (0.03, 0.3, 0.3)),
    "logistic of N(-1, 2)": lambda rng, size: 1 / (1 + np.exp(1 - 2 * rng.normal(size=size))),
    "half .1, half .5 to 1": lumps((0.5, 0.1, 0.1), (0.5, 0.5, 1)),
    "30% 1, rest 0 to .15": lumps((0.3, 1, 1), (0.7, 0, 0.15)),
    "50% 0, 45% 1, rest .5": lumps((0.5, 0, 0), (0.45, 1, 1), (0.05, 0.5, 0.5)),
}
"""The eight of the specification, and four that are no Beta either."""
PROBLEMS = (1, 5, 10, 20, 30, 100, 300)
ATTEMPTS = {
    "1": ("pass@1",),
    "4": ("pass@1", "pass@4", "pass^4", "geom@4"),
    "16": ("pass@1", "pass@8", "pass^8", "pass@16", "geom-ds@8", "geo-spectrum@8", "auc@8"),
    "4-16": ("pass@1", "pass@4", "pass^4"),
}
"""Metrics by attempts per problem; 4-16 is ragged, every number as likely."""


@dataclass(frozen=True)
class Lakes:
    """Many lakes of one kind, each a model: rates, attempts and correct ones, lakes x problems."""

    p: Floats
    n: Ints
    c: Ints

    @classmethod
    def drawn(cls, rates: Rates, attempts: str, size: tuple[int, int], rng: np.random.Generator) -> Lakes:
        p = rates(rng, size)
        if attempts == "90% 1":  # and four on the others
            n = np.broadcast_to(np.where(np.arange(size[1]) < 0.9 * size[1], 1, 4), size)
            return cls(p, n, rng.binomial(n, p).astype(np.int64))
        low, _, high = attempts.partition("-")
        n = rng.integers(int(low), int(high or low) + 1, size)
        return cls(p, n, rng.binomial(n, p).astype(np.int64))


def printed(lakes: Lakes, names: Sequence[str], cluster: Ints | None = None, **settings: object) -> pl.DataFrame:
    """The rows of model_summary of all lakes at once, with what averages need, by the code that scores real ones."""
    outcomes = Outcomes(binary=True, rewards=False, top_n=int(lakes.n.max()))
    frame = problems(lakes, {} if cluster is None else {"_cluster": np.broadcast_to(cluster, lakes.n.shape).ravel()})
    keys = (*GROUP, *(["_cluster"] if cluster is not None else []))
    counts = frame.group_by(*keys, "n", "c").agg(problems=pl.len().cast(pl.Int64), ungraded=pl.lit(0, pl.Int64))
    coverage = frame.group_by("benchmark", "subject", "protocol").agg(problems=pl.len().cast(pl.Int64))
    survey = Survey(0, None, {ALL: counts.sort(*keys, "n", "c")}, {ALL: coverage}, {})
    how = {"metrics": {"names": names}, "columns": {"cluster": "_cluster"} if cluster is not None else {}}
    tables = summary_tables(survey, Settings.model_validate(how | settings), outcomes, [])
    return tables[OVERALL.name].with_columns(tables[MODEL_SUMMARY.name]["sampling"])


def problems(lakes: Lakes, more: dict[str, object]) -> pl.DataFrame:
    """problem_counts of all lakes."""
    lake = np.repeat(np.arange(lakes.n.shape[0]), lakes.n.shape[1])
    columns = {"model": lake, "n": lakes.n.ravel(), "c": lakes.c.ravel(), "problem_id": np.arange(lake.size), **more}
    return pl.DataFrame(columns).with_columns(
        pl.col("model", "problem_id").cast(pl.String).str.zfill(8),
        benchmark=pl.lit("sim"),
        protocol=pl.lit(""),
        subject=pl.lit("all"),
    )


def expected(name: str, rates: Rates, attempts: str, rng: np.random.Generator) -> float:
    """What the metric would be over endlessly many problems with as many attempts each."""
    big = Lakes.drawn(rates, attempts, (1, 1_000_000), rng)
    return metrics.summarize(name, big.n.ravel(), big.c.ravel()).value


def covered(row: pl.DataFrame, truth: Floats | float, ends: tuple[str, str] = ("lo", "hi")) -> float:
    lo, hi = (row[name].to_numpy() for name in ends)
    return float(((lo <= truth) & (truth <= hi)).mean())


def of(table: pl.DataFrame, name: str) -> pl.DataFrame:
    return table.filter(pl.col("metric") == metrics.parse(name).name)


Cell = tuple[str, int, str, str, float]
"""Shape, problems, attempts, metric, share covered."""


def grid(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """lo and hi of every shape, size, number of attempts and metric."""
    out: list[Cell] = []
    for shape, rates in SHAPES.items():
        for attempts, names in ATTEMPTS.items():
            truth = {name: expected(name, rates, attempts, rng) for name in names}
            for size in PROBLEMS:
                table = printed(Lakes.drawn(rates, attempts, (lakes, size), rng), names)
                out += [(shape, size, attempts, name, covered(of(table, name), truth[name])) for name in names]
        print(f"{time.perf_counter() - START:5.0f} s {shape}", file=sys.stderr)
    return out


def clusters(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """Problems in fours that share a rate, declared as clusters or not."""
    out: list[Cell] = []
    for shape in ("Beta(.3, .7)", "60% .05, 40% .9", "95% .97, 5% .02", "logistic of N(-1, 2)"):
        for size in (120, 400):
            p = np.repeat(SHAPES[shape](rng, (lakes, size // 4)), 4, axis=1)
            n = np.full(p.shape, 4)
            drawn = Lakes(p, n, rng.binomial(n, p).astype(np.int64))
            for declared, cluster in (("declared", np.arange(size) // 4), ("not declared", None)):
                table = printed(drawn, ("pass@1", "pass@4"), cluster)
                for name in ("pass@1", "pass@4"):
                    truth = expected(name, SHAPES[shape], "4", rng)
                    out.append((f"{shape}, clusters {declared}", size, "4", name, covered(of(table, name), truth)))
    return out


def subjects(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """Subjects of 2 to 40 problems with rates around the subject's own; declared as clusters or not."""
    out: list[Cell] = []
    for many in (10, 20, 57):
        sizes = np.rint(np.geomspace(2, 40, many)).astype(int)
        subject = np.repeat(np.arange(many), sizes)
        own = SHAPES["Beta(2, 2)"](rng, (lakes, many))[:, subject]
        p = rng.beta(8 * own, 8 * (1 - own))
        n = np.full(p.shape, 4)
        drawn = Lakes(p, n, rng.binomial(n, p).astype(np.int64))
        for declared, cluster in (("declared", subject), ("not declared", None)):
            row = of(printed(drawn, ("pass@1",), cluster), "pass@1")
            out.append((f"{many} subjects of 2 to 40, {declared}", subject.size, "4", "pass@1", covered(row, 0.5)))
    return out


def votes(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """A right answer and three wrong ones, of which the first is the more tempting the harder the problem."""
    out: list[Cell] = []
    for shape in ("Beta(.3, .7)", "60% .05, 40% .9", "half .1, half .5 to 1"):
        for size in (30, 100):
            made = [_ballots(SHAPES[shape], many, rng) for many in ((1, 100_000), (lakes, size))]
            truth, table = (_scored(frame, lake, ("vote@5",)) for lake, frame in made)
            share = covered(of(table, "vote@5"), float(truth["value"][0]))
            out.append((f"{shape}, votes", size, "8", "vote@5", share))
    return out


def _ballots(rates: Rates, size: tuple[int, int], rng: np.random.Generator) -> tuple[Lakes, pl.DataFrame]:
    p = rates(rng, size)
    wrong = (1 - p)[..., None] * np.stack([1 - p, p / 2, p / 2], axis=-1)
    answers = rng.multinomial(8, np.concatenate([p[..., None], wrong], axis=-1)).reshape(-1, 4)
    order = np.argsort(-answers, axis=1, kind="stable")
    counts = np.take_along_axis(answers, order, axis=1)
    passes = np.where(order == 0, counts, 0)
    lakes = Lakes(p, np.full(size, 8), answers[:, 0].reshape(size))
    lists = {"answer_counts": counts.astype(np.int64), "answer_passes": passes.astype(np.int64)}
    kinds = dict.fromkeys(lists, pl.List(pl.Int64))
    frame = problems(lakes, {name: pl.Series(rows.tolist(), dtype=kinds[name]) for name, rows in lists.items()})
    return lakes, frame


def _scored(
    frame: pl.DataFrame, lakes: Lakes, names: Sequence[str], rewards: bool = False, **settings: object
) -> pl.DataFrame:
    """Metrics of answers or rewards of all lakes at once."""
    chosen_settings = Settings.model_validate({"metrics": {"names": names}, **settings})
    outcomes = Outcomes(binary=True, rewards=rewards, top_n=int(lakes.n.max()), answers=not rewards)
    with TemporaryDirectory() as home:
        path = Path(home, "part.parquet")
        frame.with_columns(ungraded=pl.lit(0, pl.Int64)).sort(GROUP).write_parquet(path)
        (result,) = score_buckets([BucketTask(str(path), frame.height, chosen_settings, outcomes)])
        survey = survey_bucket(path, chosen_settings)
        return summary_tables(survey, chosen_settings, outcomes, result.moments)[MODEL_SUMMARY.name]


def rewards(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """Scores between 0 and 1 around each problem's rate: bounds known, and not."""
    out: list[Cell] = []
    for shape in ("Beta(.3, .7)", "95% .97, 5% .02", "half .1, half .5 to 1"):
        for size in (30, 100):
            made = [_rewards(SHAPES[shape], many, rng) for many in ((1, 200_000), (lakes, size))]
            for label, options in (("bounds known", {"rubric": {"bounds": (0.0, 1.0)}}), ("not known", {})):
                names = ("avg@N", "max@4")
                truth, table = (_scored(frame, lake, names, rewards=True, **options) for lake, frame in made)
                for name in names:
                    share = covered(of(table, name), float(of(truth, name)["value"][0]))
                    out.append((f"{shape}, scores, {label}", size, "4", name, share))
    return out


def skewed(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """Rewards without bounds: lognormal around each problem's mean, which is lognormal itself."""
    out: list[Cell] = []
    for spread in (0.5, 1.0):
        for size in (10, 30, 100):
            mean = np.exp(spread * rng.normal(size=(lakes, size, 1)))
            lake, frame = _reward_lakes(mean * np.exp(0.5 * rng.normal(size=(lakes, size, 4))))
            row = of(_scored(frame, lake, ("avg@N",), rewards=True), "avg@N")
            share = covered(row, np.exp((spread**2 + 0.25) / 2))
            out.append((f"lognormal({spread}), bounds not known", size, "4", "avg@N", share))
    return out


def _rewards(rates: Rates, size: tuple[int, int], rng: np.random.Generator) -> tuple[Lakes, pl.DataFrame]:
    p = np.clip(rates(rng, size), 1e-3, 1 - 1e-3)
    return _reward_lakes(rng.beta(4 * p[..., None], 4 * (1 - p[..., None]), (*size, 4)))


def _reward_lakes(values: Floats) -> tuple[Lakes, pl.DataFrame]:
    """Lakes of rewards, lakes x problems x 4."""
    p, size, scores = values.mean(axis=-1), values.shape[:2], np.sort(values.reshape(-1, 4), axis=1)
    lakes = Lakes(p, np.full(size, 4), np.zeros(size, dtype=np.int64))
    ones = np.ones(scores.shape, dtype=np.int64)
    lists = {
        "rewards": pl.Series(scores.tolist(), dtype=pl.List(pl.Float64)),
        "reward_counts": pl.Series(ones.tolist(), dtype=pl.List(pl.Int64)),
    }
    return lakes, problems(lakes, lists)


def macro(lakes: int, rng: np.random.Generator) -> list[Cell]:
    """Averages over three benchmarks of different shapes and sizes."""
    out: list[Cell] = []
    mixes = (
        (("Beta(.3, .7)", 200), ("Beta(2, 2)", 50), ("Beta(.5, 3)", 20)),
        (("60% .05, 40% .9", 30), ("95% .97, 5% .02", 30), ("97% 0, 3% .3", 30)),
        (("half .1, half .5 to 1", 100), ("logistic of N(-1, 2)", 100), ("30% 1, rest 0 to .15", 100)),
    )
    for mix in mixes:
        parts, truth = [], dict.fromkeys(("pass@1", "pass@4"), 0.0)
        for i, (shape, size) in enumerate(mix):
            table = printed(Lakes.drawn(SHAPES[shape], "4", (lakes, size), rng), tuple(truth))
            parts.append(table.with_columns(benchmark=pl.lit(str(i))))
            for name in truth:
                truth[name] += expected(name, SHAPES[shape], "4", rng) / len(mix)
        overall = overall_table(pl.concat(parts), Settings())
        named = " + ".join(f"{shape} x {size}" for shape, size in mix)
        many = sum(size for _, size in mix)
        out += [(named, many, "4", name, covered(of(overall, name), value)) for name, value in truth.items()]
    return out


def stopping(lakes: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Attempts that stop at a pass: bias, coverage, coverage of the corrected value, and how often it is noticed."""
    heads = ["rates", "attempts", "problems", "bias of pass@1", "covered", "corrected", "called adaptive"]
    rules = (("1 to 16 at random", 0), ("until a pass, at most 16", 1), ("until three passes, at most 16", 3))
    rows = []
    for shape, mean in (("Beta(.3, .7)", 0.3), ("Beta(.5, 3)", 1 / 7)):
        for rule, r in rules:
            for size in (30, 200):
                p = SHAPES[shape](rng, (lakes, size))
                passes = (rng.random((*p.shape, 16)) < p[..., None]).cumsum(axis=-1)
                n = np.minimum((passes < r).sum(axis=-1) + 1, 16) if r else rng.integers(1, 17, p.shape)
                drawn = Lakes(p, n, np.take_along_axis(passes, n[..., None] - 1, axis=-1)[..., 0])
                table = printed(drawn, ("pass@1", f"stopped@{r or 1}"))
                corrected = f"{covered(of(table, f'stopped@{r}'), mean):.1%}" if r else "-"
                table = of(table, "pass@1")
                adaptive = (table["sampling"] == "adaptive").mean()
                bias = float(table["value"].to_numpy().mean()) - mean
                shares = f"{bias:+.3f}", f"{covered(table, mean):.1%}", corrected, f"{adaptive:.1%}"
                rows.append([shape, rule, str(size), *shares])
    return heads, rows


def fixed(lakes: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """The same problems again: rerun_lo to rerun_hi, and the posterior under three priors."""
    heads = ["rates", "problems", "n", "rerun, pass@1"]
    priors = ("uniform", "jeffreys", "empirical")
    heads += [f"{prior} {name}" for prior in priors for name in ("pass@1", "pass@8")]
    rows = []
    for shape, rates in SHAPES.items():
        for size, attempts in ((30, "4"), (100, "1-4"), (100, "90% 1"), (300, "16")):
            drawn = Lakes.drawn(rates, attempts, (lakes, size), rng)
            truth = {"pass@1": drawn.p.mean(axis=1), "pass@8": (1 - (1 - drawn.p) ** 8).mean(axis=1)}
            shares = [covered(of(printed(drawn, ("pass@1",)), "pass@1"), truth["pass@1"], ("rerun_lo", "rerun_hi"))]
            for prior in priors:
                used = drawn if prior != "empirical" else Lakes(*(x[:EMPIRICAL] for x in (drawn.p, drawn.n, drawn.c)))
                table = printed(used, tuple(truth), uncertainty={"prior": prior})
                shares += [covered(of(table, k), truth[k][: used.n.shape[0]], ("mu_lo", "mu_hi")) for k in truth]
            rows.append([shape, str(size), attempts, *(f"{share:.1%}" for share in shares)])
    return heads, rows


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def wide(cells: Sequence[Cell]) -> str:
    """A row per shape and size, a column per attempts and metric."""
    columns = [(attempts, name) for attempts, names in ATTEMPTS.items() for name in names]
    covers = {cell[:4]: cell[4] for cell in cells}
    rows = [
        [shape, str(size), *(f"{covers[shape, size, attempts, name]:.1%}" for attempts, name in columns)]
        for shape in SHAPES
        for size in PROBLEMS
    ]
    return table(["rates", "problems", *(f"n = {attempts} {name}" for attempts, name in columns)], rows)


def tall(cells: Sequence[Cell]) -> str:
    heads = ["what", "problems", "n", "metric", "covered"]
    return table(heads, [[what, str(size), n, name, f"{share:.1%}"] for what, size, n, name, share in cells])


def verdict(cells: Sequence[Cell]) -> str:
    """What was reached, and every cell that was not."""
    large = [cell for cell in cells if cell[1] >= 30]
    within = [cell for cell in large if 0.93 <= cell[4] <= 0.98]
    above = sum(cell[4] > 0.98 for cell in large)
    low = sorted((cell for cell in cells if cell[4] < 0.93), key=lambda cell: cell[4])
    least = min(cell[4] for cell in cells)
    lines = [
        f"{len(cells)} cells, lowest {least:.1%}. Of the {len(large)} with 30 problems or more, {len(within)}",
        f"({len(within) / len(large):.0%}) cover 93 to 98%, {above} ({above / len(large):.0%}) more than 98%:",
        "numbers near 0 or 1, where few problems of a sample tell of the rest: wider than it need be.",
    ]
    if low:
        short = {cell[3]: None for cell in low if cell[4] < 0.91}
        lines += ["", f"Below 93%; below 91% only {', '.join(short) or 'none'}:", ""]
        lines += [f"- {what}, {size} problems, n = {n}, {name}: {share:.1%}" for what, size, n, name, share in low]
    return "\n".join(lines)


TEXT = """# Coverage of the printed intervals

Written by `make coverage` (benchmarks/intervals.py): {lakes:,} simulated lakes per cell, scored by the job's
own code. Nominal is 95%; with {lakes:,} lakes a share of 95% is known to about +/- {noise:.1%}. What claims and
ranks promise is in docs/ranks.md.

## The interval of a value: `lo` and `hi`
Problems and attempts are drawn anew for every lake. The truth is what the metric would be over endlessly many
problems of the same kind, with as many attempts each.

{verdict}

{grid}

## Clusters, votes, scores, averages over benchmarks
Clusters: problems come in fours that share a rate. Where they are not declared (`[columns] cluster`), no
interval can know. Scores without known bounds have half a problem at the smallest and the largest score seen, and
no less than Student's interval, which falls short where scores pile up at an end or have long tails;
set `[rubric] bounds` or levels to avoid the first.

{others}

## Attempts that depend on outcomes
The truth is the mean success rate. "Corrected" is the interval of `stopped@1` or `stopped@3`; "called adaptive" is
the share of lakes with that word in the column `sampling`: a false alarm where n is random.

{stopping}

## The same problems again: `rerun_lo`, `rerun_hi`, and the posterior: `mu_lo`, `mu_hi`
The truth is the mean over the lake's own problems. n = 90% 1: nine problems of ten have one attempt, the others four.
`empirical` is of {empirical} lakes per row.

{fixed}

The uniform and Jeffreys priors believe every problem by itself and pull each of its rates the same way; the
pulls do not average out over problems, so the more problems, the narrower the interval around the wrong place.
`empirical` learns a Beta from all problems of the model and is right where the rates are Beta-shaped. That is
why nothing that ranks or is read at a glance uses the posterior.
"""

START, EMPIRICAL = time.perf_counter(), 60


def main(lakes: int) -> None:
    rng = np.random.default_rng(2026)
    cells = grid(lakes, rng)
    others = [cell for made in (clusters, subjects, votes, rewards, skewed, macro) for cell in made(lakes, rng)]
    heads, rows = fixed(lakes, rng)
    honest = [cell for cell in others if not any(x in cell[0] for x in ("not known", "not declared"))]
    text = TEXT.format(
        lakes=lakes,
        noise=1.96 * (0.95 * 0.05 / lakes) ** 0.5,
        verdict=verdict([*cells, *honest]),
        grid=wide(cells),
        others=tall(others),
        fixed=table(heads, rows),
        stopping=table(*stopping(lakes, rng)),
        empirical=EMPIRICAL,
    )
    DOC.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
