"""Are claims and ranges of ranks what they promise? Simulated boards, compared and ranked by the job's own code.

Writes docs/ranks.md: false claims on boards of equal models, how often a range of ranks covers the true rank of the
best model, and the sign-flip test beside the sign test where differences are skewed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake import metrics
from scorelake.comparing.boards import list_benchmarks
from scorelake.comparing.compare import BoardResult, compare_boards
from scorelake.comparing.sums import LakeSums
from scorelake.comparing.tables import pair_table
from scorelake.engines import local
from scorelake.metrics.board import sum_n_ratios
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.paired import MAX_FLIP_RATIO, Lifts, ResamplePlan, compare_scores
from scorelake.metrics.significance import sign_test
from scorelake.schemas import MODEL_PAIR
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.survey import BucketTask, survey_bucket
from scorelake.settings import Settings

DOC = Path(__file__).parents[1] / "docs" / "ranks.md"
PASS = metrics.parse("pass@1")


def same(rng: np.random.Generator, models: int, problems: int) -> Floats:
    """Equal on every problem."""
    return np.broadcast_to(rng.beta(0.3, 0.7, problems), (models, problems))


def alike(rng: np.random.Generator, models: int, problems: int) -> Floats:
    """Equal on average over problems, each model good at others."""
    return rng.beta(0.3, 0.7, (models, problems))


def middling(rng: np.random.Generator, models: int, problems: int) -> Floats:
    """The same, and no problem very easy or very hard."""
    return rng.beta(2, 2, (models, problems))


def rare(rng: np.random.Generator, models: int, problems: int) -> Floats:
    """Equal on average: nearly all problems are nearly always solved, each model fails at 5% of its own."""
    return np.where(rng.random((models, problems)) < 0.05, 0.02, 0.97)


def apart(rng: np.random.Generator, models: int, problems: int) -> Floats:
    """A difficulty that is shared, and a taste of each model's own; gaps are added."""
    own = rng.normal(0, 0.1, (models, problems)).clip(-0.2, 0.2)
    return 0.2 + rng.beta(1, 1, problems) * 0.5 + own


@dataclass(frozen=True)
class Design:
    """Boards of one kind."""

    name: str
    rates: Callable[[np.random.Generator, int, int], Floats]
    models: int
    problems: int
    n: int
    boards: int
    gaps: tuple[float, ...] = ()
    """How far each model is behind the best; none, if all are equal."""

    @property
    def behind(self) -> Floats:
        return np.array(self.gaps or (0.0,) * self.models)


STEPS = {many: tuple(np.linspace(0, 0.2, many)) for many in (10, 30)}
LEADER = (0.0, *(0.03,) * 19)
DESIGNS = (
    Design("50 models, equal on every problem, n = 1", same, 50, 100, 1, 200),
    Design("50 models, equal on every problem, n = 8", same, 50, 200, 8, 200),
    Design("50 models, equal on average, n = 16", alike, 50, 500, 16, 150),
    Design("50 models, equal on average, middling problems, n = 4", middling, 50, 200, 4, 200),
    Design("50 models, equal on average, rare failures, n = 4", rare, 50, 300, 4, 150),
    Design("10 models, equal on every problem, n = 1", same, 10, 50, 1, 400),
    Design("10 models, 0.022 apart, n = 4", apart, 10, 100, 4, 400, STEPS[10]),
    Design("30 models, 0.007 apart, n = 4", apart, 30, 200, 4, 200, STEPS[30]),
    Design("10 models, five of them best by 0.1, n = 8", apart, 10, 100, 8, 400, (0.0,) * 5 + (0.1,) * 5),
    Design("20 models, one best by 0.03, n = 1", apart, 20, 300, 1, 250, LEADER),
    Design("20 models, one best by 0.03, n = 16", apart, 20, 300, 16, 250, LEADER),
)


def simulate(task: tuple[int, int]) -> tuple[float, ...]:
    """One board: is any claim false; which share is; the share of its best models whose range has their rank; width.

    A claim is false if it says that the worse of two is better, or that one of two equals is.
    """
    which, number = task
    design = DESIGNS[which]
    rng = np.random.default_rng([which, number])
    rates = design.rates(rng, design.models, design.problems) - design.behind[:, None]
    settings = Settings.model_validate({"compare": {"metrics": [PASS.name], "seed": number}})
    result = compare_board(rng.binomial(design.n, rates.clip(0, 1)), design.n, f"{which} {number}", settings)
    table = pair_table(MODEL_PAIR, [result], [PASS], ("benchmark",), settings)
    a, b = (table[name].cast(int).to_numpy() for name in ("model_a", "model_b"))
    truth = np.sign(design.behind[a] - design.behind[b])
    said = (table["claim"] == "improvement").to_numpy() * 1 - (table["claim"] == "regression").to_numpy() * 1
    losers, winners = np.where(said > 0, (a, b), (b, a))[:, said != 0]
    lost, won = (np.bincount(models, minlength=design.models) for models in (losers, winners))  # ranges count claims
    covered = lost[design.behind == 0] == 0
    width = (design.models - 1 - won - lost).mean() / (design.models - 1)
    false = np.count_nonzero((said != 0) & (said != truth))
    return float(false > 0), false / max(1, np.count_nonzero(said)), float(covered.mean()), float(width)


def compare_board(correct: Ints, n: int, name: str, settings: Settings) -> BoardResult:
    """Compare a simulated board (models x problems) by the code that compares real ones."""
    models, problems = correct.shape
    told = {"model": np.repeat(np.arange(models), problems), "problem_id": np.tile(np.arange(problems), models)}
    frame = pl.DataFrame({**told, "c": correct.ravel().astype(np.int64)}).select(
        pl.lit("sim").alias("benchmark"),
        pl.lit("all").alias("subject"),
        pl.col("model").cast(pl.String).str.zfill(2),
        pl.lit("").alias("protocol"),
        pl.format(f"{name} {{}}", "problem_id").alias("problem_id"),
        pl.lit(n, pl.Int64).alias("n"),
        "c",
        pl.lit(0, pl.Int64).alias("ungraded"),
    )
    outcomes = Outcomes(binary=True, rewards=False, top_n=n)
    with TemporaryDirectory() as home:
        path = Path(home, "part.parquet")
        frame.write_parquet(path)
        benchmarks = list_benchmarks(survey_bucket(path, settings), settings)
        bucket = BucketTask(str(path), frame.height, settings, outcomes)
        sums = LakeSums.of(local.map, [(bucket,)], benchmarks, in_process=True)
        ((result,),) = compare_boards(benchmarks, [PASS], lambda board, _: set(board.models), settings, sums)
    return result


def skewed_tests(share: float) -> list[str]:
    """How often two equally good models are told apart at 5%: by the flips, and by the sign test."""
    out = []
    rng, lakes = np.random.default_rng(7), max(100, round(4000 * share))
    for problems, n in ((50, 16), (100, 16), (300, 16), (100, 4)):
        tenth = rng.random((lakes, problems)) < 0.1
        a, b = np.full(tenth.shape, 0.5), np.where(tenth, 0.95, 0.45)  # mean difference 0, median -0.05
        scores = np.stack([rng.binomial(n, p) / n for p in (a, b)], axis=1).reshape(2 * lakes, problems)
        units = Units.of(rng.integers(0, 2**64, problems, dtype=np.uint64))
        first = 2 * np.arange(lakes)
        lifts, _ = compare_scores(scores, units, ResamplePlan(), (first, first + 1), np.arange(0))
        flip, sign = lifts.p_two_sided <= 0.05, sign_test(lifts.wins_a, lifts.wins_b)[1] <= 0.05
        covered = (lifts.lo <= 0) & (lifts.hi >= 0)
        out.append(f"| {problems} | {n} | {flip.mean():.1%} | {sign.mean():.1%} | {covered.mean():.1%} |")
    return out


SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "p = .03": lambda rng, many: np.full(many, 0.03),
    "95% .97, 5% .02": lambda rng, many: np.where(rng.random(many) < 0.95, 0.97, 0.02),
    "Beta(.3, .7)": lambda rng, many: rng.beta(0.3, 0.7, many),
    "Beta(8, 1.2)": lambda rng, many: rng.beta(8, 1.2, many),
    "60% .05, 40% .9": lambda rng, many: np.where(rng.random(many) < 0.6, 0.05, 0.9),
    "97% 0, 3% .3": lambda rng, many: np.where(rng.random(many) < 0.97, 0.0, 0.3),
}
"""Success rates of problems, the same for both models."""


SIZES = (20, 50, 100, 300)
"""Problems of two models."""
ATTEMPTS = {"1:16": (1, 1), "4:16": (4, 4), "8:16": (8, 8), "1 or 16:16": (1, 16)}
"""Attempts per problem of one model, the least and the most; the other has 16. The last has 16 on a tenth."""


def unequal_n(share: float) -> list[str]:
    """How often two equal models are told apart at 5%: one with fewer attempts per problem, one with 16."""
    out, lakes = [], max(100, round(4000 * share))
    for name, rates in SHAPES.items():
        cells = []
        for number, (least, most) in enumerate(ATTEMPTS.values()):
            for problems in SIZES:
                rng = np.random.default_rng([number, problems])
                p = np.stack([rates(rng, problems) for _ in range(lakes)])
                few = np.where(np.arange(problems) < problems // 10, most, least)
                attempts = np.stack([few, np.full(problems, 16)])
                scores = (rng.binomial(attempts, np.stack([p, p], axis=1)) / attempts).reshape(2 * lakes, problems)
                apart = (sum_n_ratios(attempts.astype(float)) / problems).max() > MAX_FLIP_RATIO
                lifts = two_by_two(scores, rng, np.full((2 * lakes, 2 * lakes), apart))
                cells.append(f"{((lifts.p_two_sided <= 0.05) & ((lifts.lo > 0) | (lifts.hi < 0))).mean():.1%}")
        out.append(f"| {name} | {' | '.join(cells)} |")
        print(out[-1], flush=True)
    return out


def margins(share: float) -> list[str]:
    """How often B is called not worse by a margin that it is worse by: one with 1, 4 or 16 attempts."""
    out, lakes = [], max(100, round(4000 * share))
    for name, rates in SHAPES.items():
        cells, mean = [], rates(np.random.default_rng(0), 1_000_000).mean()
        margin = min(0.05, mean / 2)
        for n in (1, 4, 16):
            for problems in SIZES:
                rng = np.random.default_rng([n, problems])
                p = np.stack([rates(rng, problems) for _ in range(lakes)])
                both = np.stack([p, p * (1 - margin / mean)], axis=1)
                lifts = two_by_two((rng.binomial(n, both) / n).reshape(2 * lakes, problems), rng)
                cells.append(f"{(lifts.inner_lo > -margin).mean():.1%}")
        out.append(f"| {name} | {' | '.join(cells)} |")
        print(out[-1], flush=True)
    return out


def two_by_two(scores: Floats, rng: np.random.Generator, n_differs: NDArray[np.bool_] | None = None) -> Lifts:
    """Compare the second of every two rows with the first."""
    units = Units.of(rng.integers(0, 2**64, scores.shape[1], dtype=np.uint64))
    first = 2 * np.arange(len(scores) // 2)
    return compare_scores(scores, units, ResamplePlan(500), (first, first + 1), np.arange(0), n_differs)[0]


def main(share: float) -> None:
    started = time.perf_counter()
    lines, boards = [], 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for which, design in enumerate(DESIGNS):
            many = max(4, round(design.boards * share))
            found = list(pool.map(simulate, [(which, i) for i in range(many)], chunksize=4))
            false, share_false, covered, width = np.array(found).mean(axis=0)
            lines.append(
                f"| {design.name} | {design.problems} | {many} | {false:.1%} | {share_false:.1%} | {covered:.1%} "
                f"| {width:.2f} |"
            )
            boards += many
            print(lines[-1], flush=True)
    tests = skewed_tests(share)
    DOC.write_text(text(lines, tests, unequal_n(share), margins(share), boards), encoding="utf-8")
    print("\n".join(tests), f"\n{boards:,} boards in {time.perf_counter() - started:.0f} s")


def text(
    lines: Sequence[str], tests: Sequence[str], unequal: Sequence[str], worse: Sequence[str], boards: int
) -> str:
    ns = " | ".join(f"{n}, {problems}" for n in ATTEMPTS for problems in SIZES)
    sizes = " | ".join(f"n = {n}, {problems}" for n in (1, 4, 16) for problems in SIZES)
    return f"""# Do claims and ranks hold what they promise?

Made by `make coverage` (benchmarks/ranks.py): {boards:,} simulated boards, each compared and ranked by the code that
does it for real lakes, with the default settings: 95% confidence, 10,000 resamples and flips. A claim needs q <= 5%
over all pairs of the board, and a difference beyond what chance makes between either model and its rivals (max-T).
Ranges of ranks count the claims.

- **a false claim**: the share of boards with *any* claim that is false: that one of two equals is better, or the
  worse of two. On a board of equals every claim is false, so it is to be at most 5%, give or take chance.
- **false share**: the share of a board's claims that are false, on average. That is what q promises on every board:
  at most 5%. Where many claims are true a few false ones among them are within it.
- **rank covered**: how often the range rank_lo to rank_hi of a model that is truly the best has its rank, 1. To be at
  least 95%, give or take chance.
- **width**: the mean range of ranks, as a share of the board: 0 is settled, 1 is anything.

| boards of | problems | boards | a false claim | false share | rank covered | width |
|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Where models are equal nothing is settled, and the width is near 1: that is right. Models "equal on average" differ
from problem to problem, and would score the same on endlessly many.

## Skewed differences

Two models with the same mean: B is a little worse (.45 to .5) on nine problems of ten, and much better (.95) on the
tenth. The sign test asks who wins more problems, which is another question; the flips ask for the mean. Told apart at
p <= 5%, of thousands of such pairs; and how often the interval of the lift covers the true one, 0.

| problems | n | sign-flip test | sign test | interval covers |
|---|---|---|---|---|
{chr(10).join(tests)}

## Unequal numbers of attempts

Two models with the same success rate on every problem: one with 1, 4 or 8 attempts per problem, or with 1 and on a
tenth of the problems 16; the other with 16. Beyond a ratio of 2 the interval of the difference comes from the
intervals of both models. How often one is called better than the other by pass@1, by attempts and number of problems;
it is to be at most about 5%.

| success rates | {ns} |
|---|{"---|" * len(ATTEMPTS) * len(SIZES)}
{chr(10).join(unequal)}

## Margins

B is worse than A by exactly the margin: 0.05, or half of the mean success rate if that is less. How often B is called
`not worse` or `equivalent`, by attempts and number of problems; it is to be at most 5%, give or take chance.

| success rates | {sizes} |
|---|{"---|" * 3 * len(SIZES)}
{chr(10).join(worse)}
"""


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
