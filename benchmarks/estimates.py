"""Do estimates under a model hold what docs/ say of them? Simulated lakes, by the job's own functions.

Writes sections of docs/coverage.md (costs), docs/series.md, docs/adjusted.md (uneven boards, forecasts, judges) and
docs/plan.md. Run all, or those named: costs, series, adjusted, forecast, judges, plan.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import polars as pl
from scipy.special import expit

from intervals import SHAPES, table
from scorelake.metrics import cost_at_k, forecast, interval, judge_corrected, rasch
from scorelake.metrics.bootstrap import resample
from scorelake.metrics.distributions import Floats
from scorelake.metrics.series import best_step, learned, simultaneous_band
from scorelake.metrics.significance import pilot_variance, problems_needed
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.measures import measure_tables
from scorelake.scoring.series import RESAMPLES, paired_t
from scorelake.scoring.survey import BucketTask
from scorelake.settings import MEASURE_COLUMNS, Settings

DOCS = Path(__file__).parents[1] / "docs"
Rng = np.random.Generator
Rows = list[list[str]]


def write(page: str, heading: str, about: str, lakes: int, heads: Sequence[str], rows: Rows) -> None:
    """Replace the section of a page, or add it at the end."""
    about = f"Written by `make coverage` (benchmarks/estimates.py), {lakes:,} lakes per row. {about}"
    section = f"## {heading}\n{fill(' '.join(about.split()), 118)}\n\n{table(heads, rows)}\n"
    path = DOCS / f"{page}.md"
    old = path.read_text().rstrip() + "\n"
    before = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", old, flags=re.MULTILINE | re.DOTALL)
    parts = (old[: before.start()], old[before.end() :]) if before else (old + "\n", "")
    path.write_text("\n".join(filter(None, (parts[0] + section, parts[1]))))


def percent(hits: Sequence[bool] | Floats) -> str:
    return f"{np.mean(hits):.1%}"


def _attempts(lakes: int, size: int, n: int, hard: float, fails: float, rng: Rng) -> tuple[Floats, Floats]:
    """Return verdicts and lognormal costs, lakes x problems x n: dearer if hard or failed."""
    skill = rng.normal(0.3, 1.5, (lakes, size, 1))
    passed = rng.random((lakes, size, n)) < expit(skill)
    logs = -hard * skill + fails * ~passed + rng.normal(0, 0.8, passed.shape) + rng.normal(0, 0.5, skill.shape)
    return passed, 0.01 * np.exp(logs)


def costs(rng: Rng, lakes: int = 400) -> None:
    """Mean cost, cost of a pass and cost@k; every lake is a benchmark of its own with one model."""
    rows: Rows = []
    for size, n, (hard, fails) in ((30, 4, (0.4, 0.7)), (30, 4, (0.0, 0.0)), (100, 4, (0.4, 0.7))):
        passed, usd = _attempts(1, 400_000, n, hard, fails, rng)
        one, bad = (usd * passed).sum(axis=2)[0], (usd * ~passed).sum(axis=2)[0]
        c = passed.sum(axis=2)[0]
        truth = [usd.mean(), usd.sum() / passed.sum(), np.nanmean(cost_at_k(one, bad, n, c, 4))]
        passed, usd = _attempts(lakes, size, n, hard, fails, rng)
        sums = {"sum": usd.sum(axis=2), "passed_sum": (usd * passed).sum(axis=2), "max": usd.max(axis=2)}
        sums |= {"count": np.full(usd.shape[:2], n), "passed_count": passed.sum(axis=2)}
        lake, problem = (x.ravel().astype(str) for x in np.indices(usd.shape[:2]))
        frame = pl.DataFrame({"benchmark": lake, "problem_id": problem, "n": n, "c": passed.sum(axis=2).ravel()})
        zero = {f"usd_{end}": pl.lit(0.0) for end in MEASURE_COLUMNS}
        frame = frame.with_columns(model=pl.lit("m"), protocol=pl.lit(""), subject=pl.lit("all"), **zero)
        frame = frame.with_columns(pl.Series(f"usd_{end}", x.ravel()) for end, x in sums.items())
        frame = frame.with_columns(usd_passed_bins=pl.lit([], pl.List(pl.UInt8)))
        settings = Settings.model_validate({"measures": {"usd": {"kind": "cost"}}})
        with TemporaryDirectory() as home:
            frame.write_parquet(f"{home}/part.parquet")
            outcomes = Outcomes(binary=True, rewards=False, top_n=n)
            task = BucketTask(f"{home}/part.parquet", frame.height, settings, outcomes)
            tables = measure_tables([task], settings, outcomes)
        summary, curve = tables["measure_summary"], tables["cost_curve"].filter(k=4)
        ends = [(summary, "lo", "hi"), (summary, "per_pass_lo", "per_pass_hi"), (curve, "cost_lo", "cost_hi")]
        hits = [
            percent(each.select((pl.col(lo) <= true) & (pl.col(hi).fill_null(np.inf) >= true)).to_series().to_numpy())
            for (each, lo, hi), true in zip(ends, truth, strict=True)
        ]
        rows.append([str(size), str(n), f"{hard:g}", f"{fails:g}", *hits])
    heads = ["problems", "n", "log cost per logit of difficulty", "of a failure", "mean", "cost of a pass", "cost@4"]
    about = """Costs are lognormal (sd of the logarithm .8 within a problem, .5 between problems and more) and
        depend on the difficulty of the problem and on the outcome as the columns say."""
    write("coverage", "The cost of attempts", about, lakes, heads, rows)


def series(rng: Rng, lakes: int = 200) -> None:
    """Bands, best steps and learned problems of runs over steps."""
    rows: Rows = []
    for steps, size, n in (*product((10, 30), (50, 200), (1, 8)), (100, 200, 8)):
        time = np.linspace(0, 1, steps)
        curves = {"rising": 2 * (1 - (1 - time) ** 2), "flat": np.zeros(steps)}
        weights = resample(np.arange(size, dtype=np.uint64), RESAMPLES, 0).weights
        cells = []
        for name, drift in curves.items():
            truth = expit(rng.normal(-0.5, 1.5, 100_000)[:, None] + drift).mean(axis=0)
            inside, naive, corrected, error, false = [], [], [], [], []
            for _ in range(lakes):
                c = rng.binomial(n, expit(rng.normal(-0.5, 1.5, size) + drift[:, None]))
                scores = c / n
                lo, hi = simultaneous_band(scores, weights)
                inside.append(bool(((lo <= truth) & (truth <= hi)).all()))
                best, value, _ = best_step(scores, weights[:500])
                naive.append(scores[best].mean() - truth[best])
                corrected.append(value - truth[best])
                error.append(scores[best].std(ddof=1) / np.sqrt(size))
                false.append(bool((learned(np.full(size, n), c[0], np.full(size, n), c[-1])[1] <= 0.05).any()))
            cells += [percent(inside)]
            if name == "flat":
                cells += [f"{np.mean(x):+.4f}" for x in (naive, corrected)] + [
                    f"{np.mean(error):.4f}",
                    percent(false),
                ]
        rows.append([str(steps), str(size), str(n), *cells])
    heads = ["steps", "problems", "n", "band, rising", "band, flat", "best value: bias of the maximum", "corrected"]
    heads += ["standard error", "series with a false learned or forgotten"]
    about = """Problems are drawn anew, success rates are logistic. `band`: how often the simultaneous band contains
        the whole true curve (nominal 95%). On a flat series the value of the best step has the bias shown, before and
        after the correction."""
    write("series", "Measured", about, lakes, heads, rows)


def adjusted(rng: Rng, lakes: int = 300) -> None:
    """A model that tried only the 30 easiest of 100 problems; the others tried all."""
    rows: Rows = []
    for name, others, n in product(("Rasch", "two skills"), (8, 30), (4, 8)):
        naive, bias, inside = [], [], []
        for _ in range(lakes):
            logits = rng.normal(0, 1, (others + 1, 1)) - rng.normal(0, 1.5, 100)
            if name == "two skills":
                logits = logits + rng.normal(0, 1, (others + 1, 1)) * np.repeat([-0.7, 0.7], 50)
            rate, tried = expit(logits), np.ones((others + 1, 100), dtype=bool)
            tried[0, np.argsort(-rate[1:].mean(axis=0))[30:]] = False
            c, (j, i) = rng.binomial(n, rate), np.nonzero(tried)
            fit = rasch(j, i, np.full(j.size, n), c[tried])
            of = (x[:1] for x in (fit.value_all, fit.se, fit.tried))
            (lo,), (hi,) = interval(*of, (0.0, 1.0))
            truth = rate[0].mean()
            naive.append(c[0][tried[0]].mean() / n - truth)
            bias.append(fit.value_all[0] - truth)
            inside.append(lo <= truth <= hi)
        rows.append([name, str(others), str(n), f"{np.mean(naive):+.3f}", f"{np.mean(bias):+.3f}", percent(inside)])
    heads = [
        "success depends on",
        "other models",
        "n",
        "bias of the plain mean",
        "bias of value_adjusted",
        "interval covers",
    ]
    about = """Others tried 100 problems, the model only the 30 that are easiest for them; the truth is its success
        rate on all 100. `two skills`: half of the problems need another skill, which is as spread between models as
        the first and unrelated to it (weight .7). The interval takes the difficulties as known: with few attempts of
        few other models it is too narrow."""
    write("adjusted", "Measured: a model that tried the 30 easiest of 100 problems", about, lakes, heads, rows)


def forecasts(rng: Rng, lakes: int = 60) -> None:
    """pass@k at twice and four times the attempts."""
    rows: Rows = []
    for shape, rates in list(SHAPES.items())[:10]:
        big, cells = rates(rng, (1, 1_000_000)), []
        for n, times in ((8, 2), (8, 4)):
            truth, hits, widths = (1 - (1 - big) ** (n * times)).mean(), [], []
            for _ in range(lakes):
                _, lo, hi = forecast(np.full(100, n), rng.binomial(n, rates(rng, (100,))), n * times)
                hits.append(lo <= truth <= hi)
                widths.append(hi - lo)
            cells += [percent(hits), f"{np.mean(widths):.2f}"]
        rows.append([shape, *cells])
    heads = ["success rates", "2n covers", "width", "4n covers", "width"]
    write("adjusted", "Measured: forecasts", "100 problems with n = 8.", lakes, heads, rows)


def judges(rng: Rng, lakes: int = 2000) -> None:
    """A judge that errs on 15% of failures and 10% of passes, less often on clear cases."""
    rows: Rows = []
    for problems, labels, n in product((300, 1000), (30, 60, 150), (1, 4)):
        plain, inside = [], []
        for _ in range(lakes):
            rate = rng.beta(0.6, 0.6, problems)
            gold = rng.random((problems, n)) < rate[:, None]
            flip = rng.random((problems, n)) < np.where(gold, 0.1, 0.15)
            judged = (gold ^ flip).mean(axis=1)
            at = rng.choice(problems, labels, replace=False)
            _, _, lo, hi = judge_corrected(judged, gold.mean(axis=1)[at], judged[at], at)
            plain.append(abs(judged.mean() - 0.5) <= 1.96 * judged.std(ddof=1) / np.sqrt(problems))
            inside.append(lo <= 0.5 <= hi)
        rows.append([str(problems), str(labels), str(n), percent(plain), percent(inside)])
    heads = ["problems", "labelled", "n", "judged value covers", "corrected value covers"]
    about = """A judge passes 15% of the failures and fails 10% of the passes; the truth is the success rate over
        endlessly many problems."""
    write("adjusted", "Measured: judges", about, lakes, heads, rows)


def plans(rng: Rng, lakes: int = 4000) -> None:
    """The power at the size that a pilot plans, for the true lift."""
    rows: Rows = []
    for size, n, lift in product((100, 300), (2, 8), (0.03, 0.06)):
        power = []
        for _ in range(lakes):
            a, b = _two(size, n, lift, rng)
            needed = int(problems_needed(lift, pilot_variance(np.full(size, n), a, np.full(size, n), b), n))
            a, b = _two(needed, n, lift, rng)
            power.append(paired_t(((b - a) / n)[None], 0.95)[3][0] <= 0.05)
        rows.append([str(size), str(n), f"{lift:g}", percent(power)])
    heads = ["problems of the pilot", "n", "true lift", "power at the planned size"]
    about = "Each lake is a pilot, followed by one of the size that it plans for a power of 80% at the true lift."
    write("plan", "Measured", about, lakes, heads, rows)


def _two(size: int, n: int, lift: float, rng: Rng) -> tuple[Floats, Floats]:
    """Correct attempts of two models, the second better by the lift on average."""
    rate = rng.beta(1, 1, size) * (1 - 2 * lift)
    return rng.binomial(n, rate), rng.binomial(n, rate + 2 * lift * rng.random(size))


ALL: dict[str, Callable[[Rng], None]] = {
    "costs": costs, "series": series, "adjusted": adjusted, "forecast": forecasts, "judges": judges, "plan": plans,
}  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or ALL:
        ALL[name](np.random.default_rng(0))


if __name__ == "__main__":
    main()
