"""Rewards: evaluated per problem, since no two need to have the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.errors import DataError
from scorelake.metrics import Estimate, Metric
from scorelake.metrics.beta_powers import any_above
from scorelake.metrics.counts import distinct, totals
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.schemas import EARLIER
from scorelake.settings import Settings
from scorelake.threads import parallel_map

COLUMNS = ("rewards", "reward_counts")
EARLIER_COLUMNS = tuple(EARLIER[name] for name in COLUMNS)
_BLOCK = 1 << 20
"""Rewards worked on at once."""


def columns(earlier: bool) -> tuple[str, ...]:
    """What must be read of every problem."""
    return (*COLUMNS, *EARLIER_COLUMNS) if earlier else COLUMNS


def estimates(table: pl.DataFrame, chosen: Sequence[Metric], settings: Settings) -> list[Estimate]:
    """For each metric what every problem's rewards come to: levels of a rubric if there is one, else as they are."""
    if settings.rubric.levels:
        return parallel_map(Rubric(table, settings).of, chosen)
    each = max(1, int(table[COLUMNS[0]].list.len().sum()) // max(1, table.height))
    step = max(1, _BLOCK // each)
    bounds = settings.rubric.bounds or (-np.inf, np.inf)  # infinite where nobody says
    parts = parallel_map(
        lambda at: Rewards(table[at : at + step]).values(chosen), range(0, max(1, table.height), step)
    )
    unknown = np.full(table.height, np.nan)  # a posterior needs a finite set of levels
    return [
        Estimate(np.concatenate(column)[None], unknown[None], unknown[None, None], bounds=bounds)
        for column in zip(*parts, strict=True)
    ]


def check(ends: tuple[float, float] | None, settings: Settings) -> None:
    """Raise if the least or the largest score lies outside what the settings say there can be."""
    low, high = settings.rubric.bounds or (-np.inf, np.inf)
    outside = [end for end in ends or () if not low <= end <= high]
    if outside and not settings.rubric.levels:
        raise DataError(
            f"a score of {outside[0]:g} lies outside [rubric] bounds = [{low:g}, {high:g}]",
            hint="mend the lake, or give bounds that hold for every score",
        )


class _Flat:
    """The lists of all problems end to end: rewards rising within a problem, and whose they are."""

    def __init__(self, table: pl.DataFrame, names: Sequence[str] = COLUMNS) -> None:
        rewards, counts = names
        lengths = table[counts].list.len().fill_null(0).to_numpy().astype(np.int64)
        self.owner: Ints = np.repeat(np.arange(table.height), lengths)
        full = table.filter(pl.col(counts).list.len() > 0)
        self.reward: Floats = full[rewards].explode().to_numpy()
        self.count: Ints = full[counts].explode().to_numpy()
        self.height = table.height

    def per_problem(self, entries: Floats | Ints) -> Floats:
        return np.bincount(self.owner, entries, self.height).astype(np.float64)


class Rubric:
    """Rewards from a finite set of levels: finite values and posteriors."""

    def __init__(self, table: pl.DataFrame, settings: Settings) -> None:
        worth = sorted(settings.rubric.worth.items(), key=lambda item: (item[1], item[0]))
        self.worth = np.array([weight for _, weight in worth])
        told = settings.rubric.outcomes
        self.mass = np.array([[1 + told.get(level, 0.0) for level, _ in worth]])
        levels = np.array([level for level, _ in worth])
        self.counts = self._counts(_Flat(table), levels)
        if EARLIER_COLUMNS[0] in table.columns:
            self.mass = self.mass + self._counts(_Flat(table, EARLIER_COLUMNS), levels)

    @staticmethod
    def _counts(flat: _Flat, levels: Floats) -> Ints:
        """Problems x levels."""
        order = np.argsort(levels)
        column = order[np.searchsorted(levels[order], flat.reward)]
        out = np.zeros((flat.height, levels.size), dtype=np.int64)
        out[flat.owner, column] = flat.count
        return out

    def of(self, metric: Metric) -> Estimate:
        return metrics.of_levels(metric, self.worth, self.counts, self.mass)


class Rewards:
    """Any real rewards: finite values only."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.flat = flat = _Flat(table)
        self.n = totals(flat.owner, flat.count, flat.height)
        first = np.searchsorted(flat.owner, np.arange(flat.height))
        running = np.concatenate([[0], np.cumsum(flat.count)])
        below = running[:-1] - running[first][flat.owner]  # attempts of the problem with a lower reward
        self.gap = np.diff(flat.reward, prepend=0.0)
        begins = first[self.n > 0]
        self.gap[begins] = flat.reward[begins]  # the lowest reward itself, which every draw reaches
        self.pairs = distinct(self.n[flat.owner], below)

    def values(self, chosen: Sequence[Metric]) -> list[Floats]:
        return [self.value(metric) for metric in chosen]

    def value(self, metric: Metric) -> Floats:
        """The metric of every problem, NaN where it has too few attempts."""
        flat, k = self.flat, metric.draws
        if metric.k is None:
            return ratio(flat.per_problem(flat.reward * flat.count), self.n)
        reached = any_above(self.pairs.c, self.pairs.n, k)[self.pairs.place]
        return np.where(self.n >= k, flat.per_problem(self.gap * reached), np.nan)
