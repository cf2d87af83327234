"""Counts per problem -> summary rows, one per group and metric.

Every metric is evaluated once per distinct (n, c) of the whole lake and gathered into groups; rewards are
evaluated per problem. Sums run over sorted rows in numpy, so equal counts give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics import Estimate, Metric, Mixture, Shape, Summaries
from scorelake.metrics.counts import distinct
from scorelake.metrics.draws import Ints
from scorelake.score import beliefs
from scorelake.score.choose import Outcomes, choose
from scorelake.score.curves import curve
from scorelake.score.groups import OF_BENCHMARK, Grouping, grouped
from scorelake.score.overall import overall
from scorelake.score.values import Scored, kinds
from scorelake.settings import UNIFORM, Settings
from scorelake.tables import CURVE, EARLIER, MODEL_SUMMARY, OVERALL, SLICE_SUMMARY, SUBJECT_SUMMARY

ASIDE = ("units", "low", "high")
"""What averages over benchmarks need of a row besides its columns: the size of the sample, and what values can be."""


def tables(scored: Scored, fine: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Scores of models, of their subjects, and of the slices asked for."""
    settings, outcomes = scored.settings, scored.outcomes
    beliefs.check(settings, outcomes)
    groups = grouped(scored.counted, fine, settings)
    made = summarize(choose(settings, outcomes), groups, scored)
    models, subjects, *slices = (frame.drop(ASIDE) for frame in made)
    none = pl.DataFrame(schema=SLICE_SUMMARY.schema)
    return {
        CURVE.name: CURVE.check(curve(groups[0], settings) if outcomes.binary else pl.DataFrame(schema=CURVE.schema)),
        OVERALL.name: OVERALL.check(overall(made[0], settings)),
        MODEL_SUMMARY.name: MODEL_SUMMARY.check(models),
        SUBJECT_SUMMARY.name: SUBJECT_SUMMARY.check(subjects),
        SLICE_SUMMARY.name: SLICE_SUMMARY.check(pl.concat([none, *slices])),
    }


def summarize(chosen: Sequence[Metric], groupings: Sequence[Grouping], scored: Scored) -> list[pl.DataFrame]:
    """One summary table per grouping: groups x metrics, and beside its columns those of ASIDE."""
    settings, outcomes = scored.settings, scored.outcomes
    of = kinds(chosen, outcomes)
    from_rewards, from_answers = of["rewards"], of["answers"]
    from_counts = [*of["counts"], *of["earlier"]]
    rows: list[dict[Metric, Summaries]] = [{} for _ in groupings]
    if from_counts and outcomes.earlier:
        _informed_rows(from_counts, groupings, scored, rows)
    elif from_counts:
        _count_rows(from_counts, groupings, settings, outcomes, rows)
    if from_rewards:
        _problem_rows(from_rewards, scored.of_rewards(from_rewards), groupings, settings, rows)
    if from_answers:
        _problem_rows(from_answers, scored.of_answers(from_answers), groupings, settings, rows)
    return [
        _table(grouping, {metric: mine[metric] for metric in chosen})
        for grouping, mine in zip(groupings, rows, strict=True)
    ]


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
        from scorelake.score.priors import Crowd  # noqa: PLC0415  (scipy loads slowly; most runs do without)

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


def _informed_rows(
    chosen: list[Metric],
    groupings: Sequence[Grouping],
    scored: Scored,
    rows: list[dict[Metric, Summaries]],
) -> None:
    """The same where every problem has a prior of its own: each distinct (n, c) with its earlier counts once."""
    settings, outcomes = scored.settings, scored.outcomes
    counts = scored.counted.others(["n", "c", EARLIER["n"], EARLIER["c"]])
    known = counts.unique().sort(counts.columns)
    found = counts.join(known.with_row_index("place"), on=counts.columns, how="left", maintain_order="left")["place"]
    prior = beliefs.per_row(beliefs.beta(settings, outcomes) or UNIFORM, known)
    worth = beliefs.worth(settings, outcomes)
    estimates = metrics.evaluate(chosen, known["n"].to_numpy(), known["c"].to_numpy(), prior, worth)
    _problem_rows(chosen, estimates, groupings, settings, rows, found.cast(pl.Int64).to_numpy())


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


def _problem_rows(
    chosen: list[Metric],
    estimates: Sequence[Estimate],
    groupings: Sequence[Grouping],
    settings: Settings,
    rows: list[dict[Metric, Summaries]],
    where: Ints | None = None,
) -> None:
    """Estimates of every problem, made once, gathered into each grouping; `where` says which column is whose."""
    for grouping, mine in zip(groupings, rows, strict=True):
        place, starts, clusters = grouping.lined_up()
        place = place if where is None else where[place]
        shape = Shape(place, np.ones(place.size, dtype=np.int64), starts, clusters)
        mine.update(zip(chosen, _summaries(estimates, shape, settings), strict=True))
