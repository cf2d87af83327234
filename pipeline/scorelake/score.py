"""Stage 4. Histogram x metrics -> summary rows.

Every metric is evaluated once per distinct (n, c) of the whole lake and gathered into groups; rewards are
evaluated per problem. Sums run over sorted rows in numpy, so equal counts give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics import Estimate, Metric, Mixture, Shape, Summaries
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.draws import Floats, Ints, ratio
from scorelake.metrics.levels import any_above
from scorelake.settings import UNIFORM, Settings
from scorelake.threads import side_by_side

TAUS = (0.25, 0.5, 0.75)
"""Thresholds of g-pass by default; 0 is pass@k and 1 is pass^k, which are there already."""
_ANSWERS = ("answer_counts", "answer_passes")
ROW = "_row"
"""Numbers the problems where there are answers: votes are counted once and gathered into every table."""


@dataclass(frozen=True)
class Outcomes:
    """What the lake's columns allow: pass/fail, rewards, the largest number of attempts of a problem, and votes."""

    binary: bool
    rewards: bool
    top_n: int
    answers: bool = False


def choose(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The metrics asked for, or every family the lake allows at k = 1, 2, 4, ... up to the largest n."""
    names = settings.metrics.names
    own = _own(settings)
    return _pick(names, [] if names else [*_defaults(outcomes.top_n), *own], settings, outcomes)


def choose_compared(settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The metrics to compare models by: as asked, or pass@1 (avg@N of rewards) and the scored ones asked for."""
    if settings.compare.metrics:
        return _pick(settings.compare.metrics, [], settings, outcomes)
    first = metrics.parse("pass@1" if outcomes.binary else "avg@N")
    also = choose(settings, outcomes) if settings.metrics.names else []
    return list(dict.fromkeys([first, *(metric for metric in also if not metric.family.pooled)]))


def _own(settings: Settings) -> list[Metric]:
    weights = settings.metrics.spectrum
    return [metrics.spectrum(weights)] if weights else []


def _pick(names: Sequence[str], others: list[Metric], settings: Settings, outcomes: Outcomes) -> list[Metric]:
    """The named metrics, all of which the lake must allow, or those of the others that it does."""
    chosen = [_named(name, _own(settings)) for name in names] or others
    allowed = [metric for metric in dict.fromkeys(chosen) if _allowed(metric, settings, outcomes)]
    refused = [metric.name for metric in chosen if metric not in allowed]
    votes = [metric.name for metric in chosen if metric.family.vote and metric not in allowed]
    if names and votes and outcomes.binary:
        raise UsageError(
            f"{', '.join(votes)}: this lake has no column {settings.columns.answer} to vote with",
            hint='[columns] answer = "..." names the column that holds the answers',
        )
    if names and refused:
        raise UsageError(
            f"{', '.join(refused)}: this lake has no {'pass/fail' if not outcomes.binary else 'rubric'} outcome",
            hint="[policy] pass_threshold makes score pass/fail; [rubric] levels makes it a rubric",
        )
    return allowed


def _named(name: str, own: list[Metric]) -> Metric:
    if own and name.lower().replace("spectrum@k", own[0].name) == own[0].name:
        return own[0]
    return metrics.parse(name)


def _defaults(top_n: int) -> list[Metric]:
    ks = [2**i for i in range(max(1, top_n).bit_length())]
    out: list[Metric] = []
    for family in metrics.families():
        if family.parameter == "weights":
            continue
        if not family.takes_k:
            out.append(metrics.parse(family.name))
        elif family.parameter == "tau":
            out += [metrics.parse(family.name.replace("k_tau", f"{k}_{tau}")) for tau in TAUS for k in ks]
        else:
            out += [metrics.parse(family.name.removesuffix("k") + str(k)) for k in ks]
    return out


def _allowed(metric: Metric, settings: Settings, outcomes: Outcomes) -> bool:
    """Credit metrics need pass/fail, votes also answers; metrics of rewards take the score, bayes@N of a rubric."""
    if metric.family.vote is not None:
        return outcomes.binary and outcomes.answers
    if metric.family.finite is None or not outcomes.rewards:
        return outcomes.binary
    return metric.family.name != "bayes@N" or bool(settings.rubric.levels)


def per_problem(
    chosen: Sequence[Metric],
    problems: pl.DataFrame,
    settings: Settings,
    outcomes: Outcomes,
    pairs: Distinct | None = None,
) -> list[Callable[[slice], Floats]]:
    """For each metric the finite values of some rows of problem_counts, NaN where undefined.

    Of some at a time: the values of all metrics for all rows would take more memory than all else. If the pairs of
    all rows are known, they need not be looked for.
    """
    from_rewards = [m for m in chosen if outcomes.rewards and m.family.finite is not None]
    from_answers = [m for m in chosen if m.family.vote is not None]
    from_counts = [m for m in chosen if m not in from_rewards and m not in from_answers]
    out: dict[Metric, Callable[[slice], Floats]] = {}
    if from_counts:
        pairs = pairs or distinct(problems["n"].to_numpy(), problems["c"].to_numpy())
        prior = settings.uncertainty.pseudo_counts or UNIFORM  # one for all models: bayes@N needs it
        estimates = metrics.evaluate(from_counts, pairs.n, pairs.c, prior)
        out |= {m: _gather(e.value[0], pairs.place) for m, e in zip(from_counts, estimates, strict=True)}
    if from_rewards:
        estimate = _of_rewards(problems, settings)
        out |= {m: estimate.of(m).value[0].__getitem__ for m in from_rewards}
    if from_answers:
        ballots = _ballots(problems)
        out |= {m: metrics.of_answers(m, ballots).value[0].__getitem__ for m in from_answers}
    return [out[metric] for metric in chosen]


def _gather(values: Floats, place: Ints) -> Callable[[slice], Floats]:
    return lambda rows: values[place[rows]]


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, the histogram and totals by them, and the problems.

    With clusters, the histogram is by the keys and the cluster column.
    """

    keys: Sequence[str]
    histogram: pl.DataFrame
    totals: pl.DataFrame
    problems: pl.LazyFrame
    cluster: str | None = None

    def starts(self, rows: pl.DataFrame) -> Ints:
        """Where each group of the sorted rows begins."""
        return _starts(rows, self.keys)

    def clusters(self, rows: pl.DataFrame) -> Ints | None:
        """Where each cluster begins, if there are any."""
        return None if self.cluster is None else _starts(rows, (*self.keys, self.cluster))


def summarize(
    chosen: Sequence[Metric], groupings: Sequence[Grouping], settings: Settings, outcomes: Outcomes
) -> list[pl.DataFrame]:
    """One summary table per grouping: groups x metrics."""
    from_rewards = [m for m in chosen if outcomes.rewards and m.family.finite is not None]
    from_answers = [m for m in chosen if m.family.vote is not None]
    from_counts = [m for m in chosen if m not in from_rewards and m not in from_answers]
    rows: list[dict[Metric, Summaries]] = [{} for _ in groupings]
    if from_counts:
        _count_rows(from_counts, groupings, settings, rows)
    if from_rewards:
        for grouping, mine in zip(groupings, rows, strict=True):
            mine.update(_reward_rows(from_rewards, grouping, settings))
    if from_answers:
        _answer_rows(from_answers, groupings, settings, rows)
    return [
        _table(grouping, {metric: mine[metric] for metric in chosen})
        for grouping, mine in zip(groupings, rows, strict=True)
    ]


def _count_rows(
    chosen: list[Metric],
    groupings: Sequence[Grouping],
    settings: Settings,
    rows: list[dict[Metric, Summaries]],
) -> None:
    """Evaluate the distinct (n, c) of all groupings once, and gather them into each."""
    n, c = (np.concatenate([g.histogram[name].to_numpy() for g in groupings]) for name in ("n", "c"))
    ends = np.cumsum([g.histogram.height for g in groupings])
    starts = [grouping.starts(grouping.histogram) for grouping in groupings]
    prior = settings.uncertainty.pseudo_counts
    mixtures: list[Mixture | None] = [None for _ in groupings]
    if prior is not None:
        pairs = distinct(n, c)
        place = pairs.place
        estimates = metrics.evaluate(chosen, pairs.n, pairs.c, prior)
    else:
        from scorelake.priors import Crowd  # noqa: PLC0415  (scipy loads slowly; most runs do without)

        crowd = Crowd([g.histogram for g in groupings], groupings[0].keys)
        place = crowd.place
        estimates = metrics.evaluate(chosen, crowd.n, crowd.c, crowd.prior)
        mixtures = [crowd.mixture(part, at) for part, at in zip(np.split(place, ends[:-1]), starts, strict=True)]
    shapes = [
        Shape(part, g.histogram["problems"].to_numpy(), at, g.clusters(g.histogram), mixture)
        for g, part, at, mixture in zip(groupings, np.split(place, ends[:-1]), starts, mixtures, strict=True)
    ]
    for mine, shape in zip(rows, shapes, strict=True):
        mine.update(zip(chosen, _summaries(estimates, shape, settings), strict=True))


def _summaries(estimates: Sequence[Estimate], shape: Shape, settings: Settings) -> list[Summaries]:
    return metrics.aggregate(estimates, shape, settings.uncertainty.confidence, settings.uncertainty.min_coverage)


def _starts(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    """Where each group of the sorted rows begins."""
    group = rows.select(pl.struct(keys).rle_id()).to_series().to_numpy()
    return np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)


def _table(grouping: Grouping, made: dict[Metric, Summaries]) -> pl.DataFrame:
    """Groups x metrics: groups in the order of their keys, metrics in the order they were chosen."""
    named = pl.DataFrame(
        [(metric.name, metric.family.name, metric.k, metric.param) for metric in made],
        {"metric": pl.String, "family": pl.String, "k": pl.Int64, "param": pl.Float64},
        orient="row",
    )
    groups, many = grouping.totals, grouping.totals.height
    columns = {
        field.name: pl.Series(np.stack([getattr(each, field.name) for each in made.values()], axis=1).ravel())
        for field in fields(Summaries)
    }
    return pl.concat(
        [
            groups[np.repeat(np.arange(many), len(made))].select(grouping.keys),
            named[np.tile(np.arange(len(made)), many)],
            pl.DataFrame(columns).fill_nan(None),
            groups[np.repeat(np.arange(many), len(made))].select("attempts", "ungraded"),
        ],
        how="horizontal",
    )


# --- rewards --------------------------------------------------------------------------------------------------


def _reward_rows(chosen: list[Metric], grouping: Grouping, settings: Settings) -> dict[Metric, Summaries]:
    together = [grouping.cluster] if grouping.cluster else []
    order = tuple(dict.fromkeys((*grouping.keys, *together, "subject", "problem_id")))
    table = grouping.problems.select(*order, "rewards", "reward_counts").sort(order).collect()
    place, ones = np.arange(table.height), np.ones(table.height, dtype=np.int64)
    shape = Shape(place, ones, grouping.starts(table), grouping.clusters(table))
    estimate = _of_rewards(table, settings)
    return {metric: _summaries([estimate.of(metric)], shape, settings)[0] for metric in chosen}


def _of_rewards(table: pl.DataFrame, settings: Settings) -> _Rubric | _Rewards:
    return _Rubric(table, settings) if settings.rubric.levels else _Rewards(table)


class _Flat:
    """The lists of all problems end to end: rewards rising within a problem, and whose they are."""

    def __init__(self, table: pl.DataFrame) -> None:
        lengths = table["reward_counts"].list.len().fill_null(0).to_numpy().astype(np.int64)
        self.owner: Ints = np.repeat(np.arange(table.height), lengths)
        full = table.filter(pl.col("reward_counts").list.len() > 0)
        self.reward: Floats = full["rewards"].explode().to_numpy()
        self.count: Ints = full["reward_counts"].explode().to_numpy()
        self.height = table.height

    def per_problem(self, entries: Floats | Ints) -> Floats:
        return np.bincount(self.owner, entries, self.height).astype(np.float64)


class _Rubric:
    """Rewards from a finite set of levels: finite values and posteriors."""

    def __init__(self, table: pl.DataFrame, settings: Settings) -> None:
        worth = sorted(settings.rubric.worth.items(), key=lambda item: (item[1], item[0]))
        self.worth = np.array([weight for _, weight in worth])
        flat = _Flat(table)
        levels = np.array([level for level, _ in worth])
        order = np.argsort(levels)
        column = order[np.searchsorted(levels[order], flat.reward)]
        self.counts = np.zeros((flat.height, levels.size), dtype=np.int64)
        self.counts[flat.owner, column] = flat.count

    def of(self, metric: Metric) -> Estimate:
        return metrics.of_levels(metric, self.worth, self.counts, np.ones((1, self.worth.size)))


class _Rewards:
    """Any real rewards: finite values only, since a posterior needs a finite set of levels."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.flat = flat = _Flat(table)
        self.n = flat.per_problem(flat.count).astype(np.int64)
        first = np.searchsorted(flat.owner, np.arange(flat.height))
        running = np.concatenate([[0], np.cumsum(flat.count)])
        self.below = running[:-1] - running[first][flat.owner]  # attempts of the problem with a lower reward
        self.gap = np.diff(flat.reward, prepend=0.0)
        begins = np.unique(first[self.n > 0])
        self.gap[begins] = flat.reward[begins]  # the lowest reward itself, which every draw reaches

    def of(self, metric: Metric) -> Estimate:
        flat, k = self.flat, metric.draws
        if metric.k is None:
            value = ratio(flat.per_problem(flat.reward * flat.count), self.n)
        else:
            reached = any_above(self.below, self.n[flat.owner], k)
            value = np.where(self.n >= k, flat.per_problem(self.gap * reached), np.nan)
        unknown = np.full(value.size, np.nan)
        return Estimate(value[None], unknown[None], unknown[None, None], bounds=(-np.inf, np.inf))


# --- answers --------------------------------------------------------------------------------------------------


def _answer_rows(
    chosen: list[Metric], groupings: Sequence[Grouping], settings: Settings, rows: list[dict[Metric, Summaries]]
) -> None:
    """Evaluate every problem once, and gather them into each grouping."""
    ballots = _ballots(groupings[0].problems.select(ROW, "n", "c", *_ANSWERS).sort(ROW).collect())
    estimates = side_by_side(partial(metrics.of_answers, ballots=ballots), chosen)
    for grouping, mine in zip(groupings, rows, strict=True):
        together = [grouping.cluster] if grouping.cluster else []
        order = tuple(dict.fromkeys((*grouping.keys, *together, "subject", "problem_id")))
        table = grouping.problems.select(*order, ROW).sort(order).collect()
        place, ones = table[ROW].cast(pl.Int64).to_numpy(), np.ones(table.height, dtype=np.int64)
        shape = Shape(place, ones, grouping.starts(table), grouping.clusters(table))
        mine.update(zip(chosen, _summaries(estimates, shape, settings), strict=True))


def _ballots(problems: pl.DataFrame) -> metrics.Ballots:
    """The answers of all problems end to end."""
    lengths = problems[_ANSWERS[0]].list.len().cast(pl.Int64).to_numpy()
    full = problems.select(_ANSWERS).filter(pl.col(_ANSWERS[0]).list.len() > 0)
    count, passes = (full[name].explode().to_numpy() for name in _ANSWERS)
    n, c = (problems[name].to_numpy() for name in ("n", "c"))
    return metrics.Ballots(n, c, np.repeat(np.arange(problems.height), lengths), count, passes)
