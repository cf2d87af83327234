"""Counts per problem -> summary rows, one per group and metric.

Every metric is evaluated once per distinct (n, c) of the whole lake and gathered into groups; what depends on more is
evaluated per problem, part by part (see sheets). Sums run in one order, so equal counts give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics import Estimate, Metric, Mixture, Shape, Summaries
from scorelake.metrics.counts import distinct
from scorelake.metrics.moments import groups as groups_of
from scorelake.schemas import CURVE, MODEL_SUMMARY, OVERALL, SLICE_SUMMARY, SUBJECT_SUMMARY
from scorelake.scoring import beliefs, rewards
from scorelake.scoring.choose import Outcomes, choose
from scorelake.scoring.curves import curve
from scorelake.scoring.groups import OF_BENCHMARK, Grouping, grouped, starts
from scorelake.scoring.overall import overall
from scorelake.scoring.sheets import Sheet
from scorelake.settings import Settings
from scorelake.survey import Survey

ASIDE = ("units", "low", "high")
"""What averages over benchmarks need of a row besides its columns: the size of the sample, and what values can be."""


def tables(told: Survey, settings: Settings, outcomes: Outcomes, made: Sequence[Sheet]) -> dict[str, pl.DataFrame]:
    """Scores of models, of their subjects, and of the slices asked for.

    In: the sheets of all problems, where metrics need them.
    """
    beliefs.check(settings, outcomes)
    rewards.check(told.rewards, settings)
    groups = grouped(told, settings)
    found = summarize(choose(settings, outcomes), groups, settings, outcomes, made)
    models, subjects, *slices = (frame.drop(ASIDE) for frame in found)
    none = pl.DataFrame(schema=SLICE_SUMMARY.schema)
    return {
        CURVE.name: CURVE.check(curve(groups[0], settings) if outcomes.binary else pl.DataFrame(schema=CURVE.schema)),
        OVERALL.name: OVERALL.check(overall(found[0], settings)),
        MODEL_SUMMARY.name: MODEL_SUMMARY.check(models),
        SUBJECT_SUMMARY.name: SUBJECT_SUMMARY.check(subjects),
        SLICE_SUMMARY.name: SLICE_SUMMARY.check(pl.concat([none, *slices])),
    }


def summarize(
    chosen: Sequence[Metric],
    groupings: Sequence[Grouping],
    settings: Settings,
    outcomes: Outcomes,
    made: Sequence[Sheet],
) -> list[pl.DataFrame]:
    """One summary table per grouping: groups x metrics, and beside its columns those of ASIDE."""
    rows: list[dict[Metric, Summaries]] = [{} for _ in groupings]
    if made:
        for mine, sheets in zip(rows, _by_table(made, groupings), strict=True):
            told = _told(*sheets, settings)
            mine.update({metric: told[metric.name] for metric in chosen if metric.name in told})
    from_counts = [metric for metric in chosen if metric not in rows[0]]
    if from_counts:
        _count_rows(from_counts, groupings, settings, outcomes, rows)
    return [
        _table(grouping, {metric: mine[metric] for metric in chosen})
        for grouping, mine in zip(groupings, rows, strict=True)
    ]


def _by_table(made: Sequence[Sheet], groupings: Sequence[Grouping]) -> list[tuple[Sheet, Sheet | None]]:
    """The sheet of each grouping, and the one by cluster, if there are any."""
    if groupings[0].cluster is None:
        return [(sheet, None) for sheet in made]
    return list(zip(made[::2], made[1::2], strict=True))


def _told(sheet: Sheet, by_cluster: Sheet | None, settings: Settings) -> dict[str, Summaries]:
    """The summaries of a sheet's metrics."""
    how, names = settings.uncertainty, list(sheet.moments)
    kinds, powers = zip(*(sheet.kinds[name] for name in names), strict=True)
    clusters = None
    if by_cluster is not None:
        begins = starts(by_cluster.groups, sheet.groups.columns)
        clusters = [by_cluster.moments[name] for name in names], begins
    told = groups_of([sheet.moments[name] for name in names], powers, clusters)
    made = told.summaries(kinds, how.confidence, how.min_coverage, how.bounds)
    return dict(zip(names, made, strict=True))


def _count_rows(
    chosen: list[Metric],
    groupings: Sequence[Grouping],
    settings: Settings,
    outcomes: Outcomes,
    rows: list[dict[Metric, Summaries]],
) -> None:
    """Evaluate the distinct (n, c) of all groupings once, and gather them into each."""
    n, c = (np.concatenate([g.histogram[name].to_numpy() for g in groupings]) for name in ("n", "c"))
    ends = np.cumsum([g.histogram.height for g in groupings])
    starts = [grouping.starts(grouping.histogram) for grouping in groupings]
    prior, worth = beliefs.beta(settings, outcomes), beliefs.worth(settings, outcomes)
    mixtures: list[Mixture | None] = [None for _ in groupings]
    if prior is not None:
        pairs = distinct(n, c)
        place = pairs.place
        estimates = metrics.evaluate(chosen, pairs.n, pairs.c, prior, worth)
    else:
        from scorelake.scoring.priors import Crowd  # noqa: PLC0415  (scipy loads slowly; most runs do without)

        crowd = Crowd([g.histogram for g in groupings], groupings[0].keys)
        place = crowd.place
        estimates = metrics.evaluate(chosen, crowd.n, crowd.c, crowd.prior, worth)
        mixtures = [crowd.mixture(part, at) for part, at in zip(np.split(place, ends[:-1]), starts, strict=True)]
    shapes = [
        Shape(part, g.histogram["problems"].to_numpy(), at, g.clusters(g.histogram), mixture)
        for g, part, at, mixture in zip(groupings, np.split(place, ends[:-1]), starts, mixtures, strict=True)
    ]
    made: list[list[Summaries]] = []
    for mine, shape in zip(rows, shapes, strict=True):
        known = [told for told, other in zip(made, shapes, strict=False) if shape.same(other)]
        made.append(known[0] if known else _summaries(estimates, shape, settings))
        mine.update(zip(chosen, made[-1], strict=True))


def _summaries(estimates: Sequence[Estimate], shape: Shape, settings: Settings) -> list[Summaries]:
    how = settings.uncertainty
    return metrics.aggregate(estimates, shape, how.confidence, how.min_coverage, how.bounds)


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
        if field.name != "bounds"
    }
    low, high = np.array([each.bounds for each in made.values()]).reshape(-1, 2).T
    columns |= {"low": pl.Series(np.tile(low, many)), "high": pl.Series(np.tile(high, many))}
    return pl.concat(
        [
            groups[np.repeat(np.arange(many), len(made))].select(grouping.keys),
            named[np.tile(np.arange(len(made)), many)],
            pl.DataFrame(columns).fill_nan(None),
            groups[np.repeat(np.arange(many), len(made))].select(OF_BENCHMARK, "attempts", "ungraded"),
        ],
        how="horizontal",
    )
