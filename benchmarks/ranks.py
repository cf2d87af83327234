"""Are claims and ranges of ranks what they promise? Simulated boards, compared and ranked by the job's own code.

Writes docs/ranks.md: false claims on boards of equal models, how often a range of ranks covers the true rank of the
best model, and the sign-flip test beside the sign test where differences are skewed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake import metrics
from scorelake.comparing.boards import ModelBoard
from scorelake.comparing.compare import compare_boards
from scorelake.comparing.sums import BoardMatrix, LakeSums, SumTask
from scorelake.comparing.tables import pair_table
from scorelake.metrics.board import sum_n_ratios
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.paired import MAX_FLIP_RATIO, Lifts, ResamplePlan, compare_scores
from scorelake.metrics.significance import sign_test
from scorelake.publish.paired_problems import paired_test
from scorelake.schemas import MODEL_PAIR, SUBJECT_PAIR
from scorelake.scoring.choose import Outcomes
from scorelake.settings import Settings

DOC = Path(__file__).parents[1] / "docs" / "ranks.md"
PASS, RESAMPLES = metrics.parse("pass@1"), 2000


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


def simulate(which: int, boards: int, batch: int = 20) -> tuple[float, ...]:
    """Boards of a design: any claim false; which share is; best models whose range has their rank; width of ranges.

    A claim is false if it says that the worse of two is better, or that one of two equals is.
    """
    design, out = DESIGNS[which], []
    for first in range(0, boards, batch):
        many = min(batch, boards - first)
        rng = np.random.default_rng([which, first])
        rates = np.stack([design.rates(rng, design.models, design.problems) for _ in range(many)])
        correct = rng.binomial(design.n, (rates - design.behind[:, None]).clip(0, 1))
        table = claims(correct, np.full((design.models, design.problems), design.n), first)
        board, a, b = (table[name].cast(int).to_numpy() for name in ("benchmark", "model_a", "model_b"))
        truth = np.sign(design.behind[a] - design.behind[b])
        claimed = (table["claim"] == "improvement").to_numpy() * 1 - (table["claim"] == "regression").to_numpy() * 1
        false = np.bincount(board, (claimed != 0) & (claimed != truth), many)
        losers, winners = (np.where(claimed > 0, *pair) for pair in ((a, b), (b, a)))
        lost, won = np.zeros((2, many, design.models))
        for counts, models in ((lost, losers), (won, winners)):
            np.add.at(counts, (board, models), claimed != 0)
        covered = (lost[:, design.behind == 0] == 0).mean(axis=1)  # ranges count claims
        width = (design.models - 1 - won - lost).mean(axis=1) / (design.models - 1)
        share = false / np.maximum(np.bincount(board, claimed != 0, many), 1)
        out.append(np.stack([false > 0, share, covered, width]))
    return tuple(np.concatenate(out, axis=1).mean(axis=1).tolist())


def claims(correct: Ints, n: Ints, seed: int, subjects: int = 1) -> pl.DataFrame:
    """The pairs of many boards (boards x models x problems), or of their subjects, by the code of real lakes."""
    settings = Settings.model_validate({"compare": {"metrics": [PASS.name], "seed": seed, "resamples": RESAMPLES}})
    _, models, problems = correct.shape
    model, problem = np.tile(np.arange(models), problems), np.repeat(np.arange(problems), models)
    rng, per = np.random.default_rng(seed), problems // subjects
    names, matrices, boards = [f"{i:03d}" for i in range(models)], {}, []
    for i, passed in enumerate(correct):
        keys, score = rng.integers(0, 2**64, problems, dtype=np.uint64), (passed / n).T.ravel()
        parts = [(None, 0, problems)]
        parts += [(f"s{j:02d}", j * per, (j + 1) * per) for j in range(subjects)] if subjects > 1 else []
        for subject, low, high in parts:
            at, count = slice(low * models, high * models), np.full(models, high - low)
            units = Units.within(keys[low:high], np.unique(keys), clustered=False)
            matrix = [n.T.ravel()[at].astype(float), score[at]]
            matrices[len(boards)] = BoardMatrix(model[at], problem[at] - low, matrix, units, models)
            sizes = (names, high - low, count, count * 0, n.mean(axis=1))
            boards.append(ModelBoard(f"{i:04d}", subject, "", *sizes, np.unique(keys), clustered=False))
    lake = LakeSums(map, [SumTask((), (), pl.DataFrame(), loaded=[matrices])], Outcomes(True, False, int(n.max())))
    results = compare_boards(boards, [PASS], lambda each, _: set(each.models), settings, lake)
    table = SUBJECT_PAIR if subjects > 1 else MODEL_PAIR
    return pair_table(
        table, [each for each in results if (each.board.subject is not None) == (subjects > 1)], [PASS], settings
    )


def subject_pages(share: float) -> list[str]:
    """How often equal models are told apart in any of many subjects: a page would set one of them in bold."""
    out = []
    for models, subjects, problems, n in ((2, 57, 20, 1), (2, 57, 20, 4), (10, 57, 20, 1), (10, 14, 50, 4)):
        pages, wrong = max(20, round(200 * share)), 0
        rng = np.random.default_rng([models, subjects, n])
        for first in range(0, pages, 20):
            rates = rng.beta(0.3, 0.7, (min(20, pages - first), 1, subjects * problems))
            correct = rng.binomial(n, np.repeat(rates, models, axis=1))
            table = claims(correct, np.full(correct.shape[1:], n), first, subjects)
            wrong += table.filter(pl.col("claim").is_in(["improvement", "regression"]))["benchmark"].n_unique()
        out.append(f"| {models} | {subjects} | {problems} | {n} | {pages} | {wrong / pages:.1%} |")
        print(out[-1], flush=True)
    return out


def changes(share: float) -> list[str]:
    """How often the score of a model that did not change is said to have moved, at 5%."""
    out, lakes = [], max(100, round(1000 * share))
    for name, rates in SHAPES.items():
        cells = []
        for what in ("added", "removed", "replaced", "half replaced", "dropped"):
            for k, n in (("pass@1", 4), ("pass@4", 8)):
                rng = np.random.default_rng([n, len(what)])
                p = np.stack([rates(rng, 100) for _ in range(lakes)])
                then, now = {"added": (n, 2 * n), "removed": (2 * n, n)}.get(what, (n, n))
                before = rng.binomial(then, p)
                if what == "added":
                    after = before + rng.binomial(n, p)
                elif what == "removed":
                    after = rng.hypergeometric(before, then - before, now)
                else:  # all others are attempted anew
                    after = rng.binomial(n, p)
                d = metrics.finite(k, now, after) - metrics.finite(k, then, before)
                d = d[:, : {"half replaced": 50, "dropped": 80}.get(what, 100)]
                number = np.full(lakes, float(d.shape[1]))
                p_value = paired_test(number, d.sum(axis=1), (d**2).sum(axis=1), (0.0, 1.0), 0.95)[3]
                cells.append(f"{(p_value <= 0.05).mean():.1%}")
        out.append(f"| {name} | {' | '.join(cells)} |")
        print(out[-1], flush=True)
    return out


def skewed_tests(share: float) -> list[str]:
    """How often two equally good models are told apart at 5%: by the flips, and by the sign test."""
    out = []
    rng, lakes = np.random.default_rng(7), max(100, round(1000 * share))
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
ATTEMPTS = {"1:16": (1, 1), "4:16": (4, 4), "8:16": (8, 8), "1 or 16:16": (1, 16)}  # ratios 16, 4 and 2
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
    out, lakes = [], max(100, round(1000 * share))
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
    started = time.process_time()
    lines, boards = [], 0
    for which, design in enumerate(DESIGNS):
        many = max(4, round(design.boards * share))
        false, share_false, covered, width = simulate(which, many)
        lines.append(
            f"| {design.name} | {design.problems} | {many} | {false:.1%} | {share_false:.1%} | {covered:.1%} "
            f"| {width:.2f} |"
        )
        boards += many
        print(lines[-1], flush=True)
    parts = subject_pages(share), skewed_tests(share), unequal_n(share), margins(share), changes(share)
    DOC.write_text(text(lines, *parts, boards, max(100, round(1000 * share))), encoding="utf-8")
    print(f"{boards:,} boards, {time.process_time() - started:.0f} s of CPU")


def text(
    lines: Sequence[str],
    pages: Sequence[str],
    tests: Sequence[str],
    unequal: Sequence[str],
    worse: Sequence[str],
    moved: Sequence[str],
    boards: int,
    lakes: int,
) -> str:
    ns = " | ".join(f"{n}, {problems}" for n in ATTEMPTS for problems in SIZES)
    sizes = " | ".join(f"n = {n}, {problems}" for n in (1, 4, 16) for problems in SIZES)
    kinds = ("attempts added", "removed", "replaced", "half of the problems replaced", "a fifth dropped")
    changed = " | ".join(f"{kind}, {name}" for kind in kinds for name in ("pass@1", "pass@4"))
    return f"""# Do claims and ranks hold what they promise?

Made by `make coverage` (benchmarks/ranks.py): {boards:,} simulated boards, each compared and ranked by the code that
does it for real lakes, at 95% confidence with {RESAMPLES:,} resamples and flips; and {lakes:,} lakes in each cell of
the tables of two models, where 5% is known to +/- {1.96 * (0.05 * 0.95 / lakes) ** 0.5:.1%}. A claim needs q <= 5%
over all pairs of the board, and a difference beyond what chance makes between either model and its rivals (max-T).
Ranges of ranks count the claims.

- **a false claim**: the share of boards with *any* claim that is false: that one of two equals is better, or the
  worse of two. On a board of equals every claim is false, so it is to be at most 5%, give or take chance.
- **false share**: the share of a board's claims that are false, on average. That is what q promises on every board:
  at most 5%. Where many claims are true a few false ones among them are within it.
- **rank covered**: how often the range rank_lo to rank_hi of a model that is truly the best has its rank, 1. To be at
  least 95%, give or take chance.
- **width**: the mean range of ranks, as a share of the board: 0 means one rank, 1 means any rank.

| boards of | problems | boards | a false claim | false share | rank covered | width |
|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Where models are equal, any order is possible, and the width is near 1 as it should be. Models "equal on average"
differ from problem to problem, and would score the same on endlessly many.

## Equal models in many subjects

Models that are equal on every problem, compared in each subject by pass@1. A page prints a score in bold, or says
that a model is better, only where the pair has a claim. The share of pages with any such claim, which is false; to
be at most 5% (q is over all subjects), 7% at the most.

| models | subjects | problems each | n | pages | a false claim |
|---|---|---|---|---|---|
{chr(10).join(pages)}

## Skewed differences

Two models with the same mean: B is a little worse (.45 to .5) on nine problems of ten, and much better (.95) on the
tenth. The sign test asks who wins more problems, which is another question; the flips ask for the mean. Told apart at
p <= 5%, of {lakes:,} such pairs; and how often the interval of the lift covers the true one, 0.

| problems | n | sign-flip test | sign test | interval covers |
|---|---|---|---|---|
{chr(10).join(tests)}

## Unequal numbers of attempts

Two models with the same success rate on every problem: one with 1, 4 or 8 attempts per problem, or with 1 and on a
tenth of the problems 16; the other with 16. Beyond a ratio of 2 the interval of the difference comes from the
intervals of both models. How often one is called better than the other by pass@1, of {4 * lakes:,} such pairs, by
attempts and number of problems; it is to be at most about 5%.

| success rates | {ns} |
|---|{"---|" * len(ATTEMPTS) * len(SIZES)}
{chr(10).join(unequal)}

## Margins

B is worse than A by exactly the margin: 0.05, or half of the mean success rate if that is less. How often B is called
`not worse` or `equivalent`, by attempts and number of problems; it is to be at most 5%, give or take chance.

| success rates | {sizes} |
|---|{"---|" * 3 * len(SIZES)}
{chr(10).join(worse)}

## Changes between runs

A model that did not change, 100 problems, paired by problem: attempts are added (n becomes 2n), removed (2n becomes
n) or replaced by new ones; half of the problems are replaced, or a fifth is dropped, and the others attempted anew.
How often `change` has p <= 5%; to be 2 to 8%.

| success rates | {changed} |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(moved)}

Where nearly all values are 1 (Beta(8, 1.2), pass@4) the differences of few problems decide and are skewed: Student's
t is then too sure.
"""


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
