"""Summary tables: every metric of every model, subject and slice.

Metrics of counts are evaluated once per distinct (n, c) of the lake and multiplied by the histograms of the groups.
Metrics that depend on more are evaluated per problem, bucket by bucket, and their moments are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from itertools import count, takewhile
from operator import add

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics.counts import distinct
from scorelake.metrics.distributions import Floats
from scorelake.metrics.estimate import Prior, evaluate, of_ends
from scorelake.metrics.families import Metric
from scorelake.metrics.forecast import fit_beta_mixture
from scorelake.metrics.sampling import stops_after
from scorelake.metrics.summary import Moments, Summaries, problem_histogram, summarize_moments
from scorelake.schemas import CURVE, GROUP, MODEL_SUMMARY, OVERALL, SLICE_SUMMARY, SUBJECT_SUMMARY
from scorelake.scoring.choose import Outcomes, beta_prior, check_priors, choose, outcome_weights
from scorelake.scoring.survey import (
    ALL,
    CLUSTER,
    SLICE_VALUE,
    Survey,
    cluster_name,
    coarsen,
    distinct_rows,
    slice_value,
)
from scorelake.scoring.values import ProblemEstimates, check_rewards
from scorelake.settings import Settings
from scorelake.threads import parallel_map

MODEL = ("benchmark", "model", "protocol")
SLICE = ("benchmark", "slice", SLICE_VALUE, "model", "protocol")
OF_BENCHMARK = "problems_of_benchmark"
_METRIC = ("metric", "family", "k", "param")
_MIN_SUBJECTS, _ALIKE = 10, 1.5  # see subject_warnings
EVERY_K = 64  # every k up to here; then four in each doubling


@dataclass(frozen=True)
class GroupMoments:
    """Moments of metrics over the groups of one summary table; those of disjoint sets of problems add up."""

    groups: pl.DataFrame  # sorted by their keys
    moments: dict[str, list[Moments]]
    """By the name of the metric; one for each prior of a mixture."""
    clusters: GroupMoments | None = None  # the same by group and cluster, where clusters are the sample
    weights: Floats | None = None  # of a mixture of priors, priors x groups

    @classmethod
    def of(
        cls, rows: pl.DataFrame, keys: Sequence[str], estimates: Sequence[ProblemEstimates], cluster: str | None
    ) -> GroupMoments:
        """Compute the moments of rows that have a number of `problems` each."""
        groups, group = distinct_rows(rows.select(keys))
        moments: dict[str, list[Moments]] = {}
        for each in estimates:
            matrix = problem_histogram(group, each.index, rows["problems"].to_numpy(), (groups.height, each.size))
            made = parallel_map(partial(Moments.of, histogram=matrix), each.estimates)
            for metric, mine in zip(each.metrics, made, strict=True):
                moments.setdefault(metric.name, []).append(mine)
        if cluster is None or (cluster == "subject" and "subject" in keys):
            return cls(groups, moments)
        return cls(groups, moments, cls.of(rows, (*keys, CLUSTER), estimates, None))

    def __add__(self, other: GroupMoments) -> GroupMoments:
        """Merge the moments of other problems."""
        groups, index = distinct_rows(pl.concat([self.groups, other.groups]))
        mine, theirs = np.split(index, [self.groups.height])
        moments = {
            name: [
                one.expand(mine, groups.height) + two.expand(theirs, groups.height)
                for one, two in zip(each, other.moments[name], strict=True)
            ]
            for name, each in self.moments.items()
        }
        clusters = self.clusters + other.clusters if self.clusters and other.clusters else None
        return GroupMoments(groups, moments, clusters, self.weights)

    def summaries(self, settings: Settings) -> dict[str, Summaries]:
        """Turn the moments into summaries, by the name of the metric."""
        how, clusters = settings.uncertainty, None
        if self.clusters is not None:
            _, group = distinct_rows(self.clusters.groups.select(self.groups.columns))
            clusters = (
                [each[0] for each in self.clusters.moments.values()],
                np.flatnonzero(np.diff(group, prepend=-1)),
            )
        moments, ends = list(self.moments.values()), (how.confidence, how.min_coverage, how.bounds)
        return dict(zip(self.moments, summarize_moments(moments, *ends, clusters, self.weights), strict=True))


def bucket_moments(
    rows: pl.DataFrame, estimates: Sequence[ProblemEstimates], settings: Settings
) -> list[GroupMoments]:
    """Return the moments of each summary table over the problems of a bucket."""
    cluster = settings.columns.cluster
    rows = rows.with_columns(*([] if cluster is None else [cluster_name(cluster)]), problems=1)
    return [
        GroupMoments.of(rows.with_columns(*slice_value(column), slice=pl.lit(column)), keys, estimates, cluster)
        for keys, column in table_keys(settings)
    ]


def add_moments(buckets: Iterable[list[GroupMoments]]) -> list[GroupMoments]:
    """Merge the moments of buckets in their order."""
    return [reduce(add, tables) for tables in zip(*buckets, strict=True)]


def count_moments(
    chosen: Sequence[Metric], survey: Survey, settings: Settings, outcomes: Outcomes
) -> list[GroupMoments]:
    """Return the moments of each summary table, of metrics that are evaluated once per distinct (n, c)."""
    prior, shares = beta_prior(settings, outcomes), None
    keys, histogram = ("n", "c") if prior else (*MODEL, "n", "c"), survey.histograms[ALL]
    once, _ = distinct_rows(histogram.select(keys))
    priors: list[Prior] = [prior] if prior else []
    if (
        prior is None
    ):  # a mixture of priors per model and benchmark, fitted to its problems; subjects, slices share it
        models = coarsen(histogram, MODEL).partition_by(MODEL, maintain_order=True)
        fits = [fit_beta_mixture(*(rows[name].to_numpy() for name in ("n", "c", "problems"))) for rows in models]
        alpha, beta, shares = (np.stack(each, axis=1) for each in zip(*fits, strict=True))
        _, fit = distinct_rows(once.select(MODEL))
        priors = [(a[fit], b[fit]) for a, b in zip(alpha, beta, strict=True)]
    n, c, weights = once["n"].to_numpy(), once["c"].to_numpy(), outcome_weights(settings, outcomes)
    estimates = [evaluate(chosen, n, c, each, weights) for each in priors]
    out = []
    for table, column in table_keys(settings):
        rows = survey.histograms[column].with_columns(slice=pl.lit(column))
        _, index = distinct_rows(rows.select(keys))
        made = [ProblemEstimates(chosen, each, index) for each in estimates]
        moments = GroupMoments.of(rows, table, made, settings.columns.cluster)
        if shares is not None:
            moments = replace(moments, weights=shares[:, distinct_rows(moments.groups.select(MODEL))[1]])
        out.append(moments)
    return out


def table_keys(settings: Settings) -> list[tuple[Sequence[str], str]]:
    """Return the keys of each summary table and the column it is sliced by: models, subjects, then each slice."""
    return [(MODEL, ALL), (GROUP, ALL), *((SLICE, column) for column in settings.by)]


def summary_tables(
    survey: Survey, settings: Settings, outcomes: Outcomes, moments: list[GroupMoments]
) -> dict[str, pl.DataFrame]:
    """Return the summaries of models, subjects and slices, the curves, and under OVERALL the rows to be averaged."""
    # `moments` are those of metrics that do not follow from (n, c), as bucket_moments makes them.
    check_priors(settings, outcomes)
    check_rewards(survey.rewards, settings)
    chosen = choose(settings, outcomes)
    from_counts = [metric for metric in chosen if not moments or metric.name not in moments[0].moments]
    parts = [moments] if moments else []
    if from_counts:
        parts.append(count_moments(from_counts, survey, settings, outcomes))
    frames = []
    for (keys, column), *tables in zip(table_keys(settings), *parts, strict=True):
        made = {name: summary for each in tables for name, summary in each.summaries(settings).items()}
        frames.append(_table(_groups(survey, keys, column), {metric: made[metric.name] for metric in chosen}))
    label = sampling(coarsen(survey.histograms[ALL], MODEL))
    models = frames[0].join(label, on=MODEL, how="left", maintain_order="left")
    curves = curve_table(survey, settings) if outcomes.binary else pl.DataFrame(schema=CURVE.schema)
    slices = [
        pl.DataFrame(schema=SLICE_SUMMARY.schema),
        *(each.select(*SLICE_SUMMARY.columns) for each in frames[2:]),
    ]
    return {
        CURVE.name: CURVE.check(curves),
        OVERALL.name: frames[0],
        MODEL_SUMMARY.name: MODEL_SUMMARY.check(models.select(*MODEL_SUMMARY.columns)),
        SUBJECT_SUMMARY.name: SUBJECT_SUMMARY.check(frames[1].select(*SUBJECT_SUMMARY.columns)),
        SLICE_SUMMARY.name: SLICE_SUMMARY.check(pl.concat(slices)),
    }


def _groups(survey: Survey, keys: Sequence[str], column: str) -> pl.DataFrame:
    """Return the groups of a table, sorted by keys, with their attempts and the problems that any model has there."""
    histogram, coverage = (
        frames[column].with_columns(slice=pl.lit(column)) for frames in (survey.histograms, survey.coverage)
    )
    shared = [key for key in keys if key != "model"]
    any_model = coverage.group_by(shared).agg(pl.col("problems").sum().alias(OF_BENCHMARK))
    attempts = (pl.col("n") * pl.col("problems")).sum()
    groups = histogram.group_by(keys).agg(pl.col("ungraded").sum(), attempts=attempts).sort(keys)
    return groups.join(any_model, on=shared, how="left", nulls_equal=True, maintain_order="left")


def sampling(histogram: pl.DataFrame) -> pl.DataFrame:
    """Return for each model and benchmark whether n is fixed, adaptive (attempts stop after a pass) or unknown."""
    rows = histogram.filter(pl.col("n") > 0).group_by(MODEL).agg("n", "c", "problems")
    labels = []
    for n, c, problems in zip(*(rows[name].to_list() for name in ("n", "c", "problems")), strict=True):
        is_adaptive = min(n) < max(n) and stops_after(np.repeat(n, problems), np.repeat(c, problems)) > 0
        labels.append("adaptive" if is_adaptive else "unknown" if min(n) < max(n) else "fixed")
    return rows.select(*MODEL, pl.Series("sampling", labels, pl.String))


def mark_retried(models: pl.DataFrame, retried: Collection[tuple[str, ...]]) -> pl.DataFrame:
    """Call the sampling of groups adaptive whose order of attempts suggests retries, where n differs."""
    groups = pl.DataFrame(sorted(retried), schema=dict.fromkeys(MODEL, pl.String), orient="row")
    marked = models.join(groups.with_columns(_retried=True), on=MODEL, how="left", maintain_order="left")
    is_retried = pl.col("_retried").is_not_null() & (pl.col("sampling") == "unknown")
    label = pl.when(is_retried).then(pl.lit("adaptive")).otherwise("sampling").alias("sampling")
    return marked.with_columns(label).drop("_retried")


def sampling_warnings(models: pl.DataFrame) -> list[str]:
    """Warn of models whose numbers of attempts depend on outcomes, from rows of model_summary."""
    found = models.filter(pl.col("sampling") == "adaptive").group_by("benchmark", maintain_order=True)
    return [
        f"{benchmark}: attempts of {', '.join(names[:5])}{' and others' * (len(names) > 5)} seem to stop after "
        "a pass, which biases their scores upwards (column sampling of model_summary); if problems are attempted "
        "until r passes, the metric stopped@r is not biased"
        for benchmark, names in found.agg(pl.col("model").unique(maintain_order=True)).iter_rows()
    ]


def subject_warnings(scores: pl.DataFrame, settings: Settings) -> list[str]:
    """Warn where the problems of a subject are so alike that they should be a cluster, from subject_summary."""
    # By subjects as clusters, the standard error is at least 1.5 times that of independent problems: for the median
    # of the models, and with ten subjects or more, since few subjects say little about others.
    if settings.columns.cluster is not None:
        return []
    size, value, se = pl.col("problems_scored").cast(pl.Float64), pl.col("value"), pl.col("se").fill_null(0.0)
    mean, problems = (size * value).sum() / size.sum(), size.sum()
    moved = size * (mean - value) / (problems - size)  # by leaving out one subject at a time
    by_subject = (1 - 1 / pl.len()) * ((moved - moved.mean()) ** 2).sum()
    alone = (se**2 * size * (size - 1) + size * (value - mean) ** 2).sum() / problems / (problems - 1)
    found = (
        scores.filter(pl.col("metric").is_in(["pass@1", "avg@N"])).drop_nulls("value")
        .group_by("benchmark", "protocol", "metric", "model", maintain_order=True)
        .agg(subjects=pl.len(), ratio=(by_subject / alone).sqrt().fill_nan(1.0))
        .filter(pl.col("subjects") >= _MIN_SUBJECTS)
        .group_by("benchmark", maintain_order=True).agg(pl.col("ratio").median())
        .filter(pl.col("ratio") >= _ALIKE)
    )  # fmt: skip
    return [
        f"{benchmark}: problems of a subject are alike; if subjects are a sample, intervals should be {ratio:.1f} "
        'times as wide: [columns] cluster = "subject"'
        for benchmark, ratio in found.iter_rows()
    ]


def _table(groups: pl.DataFrame, made: dict[Metric, Summaries]) -> pl.DataFrame:
    """Return a row per group and metric, with the sample size (units) and the bounds of the metric (low, high)."""
    named = pl.DataFrame(
        [(metric.name, metric.family.name, metric.k, metric.param, *made[metric].bounds) for metric in made],
        {name: MODEL_SUMMARY.schema[name] for name in _METRIC} | {"low": pl.Float64(), "high": pl.Float64()},
        orient="row",
    )
    columns = {
        field.name: np.stack([getattr(each, field.name) for each in made.values()], axis=1).ravel()
        for field in fields(Summaries)
        if field.name != "bounds"
    }
    rows = groups.join(named, how="cross", maintain_order="left_right")
    return pl.concat([rows, pl.DataFrame(columns, nan_to_null=True)], how="horizontal")


def curve_ks(top_n: int) -> list[int]:
    """Return 1, 2, 3, ... 64, 80, 96, 112, 128, 160, ... up to the largest number of attempts."""
    further = (int(EVERY_K * 2**i * step) for i in count() for step in (1.25, 1.5, 1.75, 2.0))
    return [*range(1, min(top_n, EVERY_K) + 1), *takewhile(lambda k: k <= top_n, further)]


def curve_table(survey: Survey, settings: Settings) -> pl.DataFrame:
    """Return a row per model, k and family (one of k right, or all), where a problem has k attempts."""
    rows = survey.histograms[ALL]
    n, c, index = distinct(rows["n"].to_numpy(), rows["c"].to_numpy())
    chosen = [metrics.parse(f"pass{sign}{k}") for k in curve_ks(int(n.max(initial=0))) for sign in "@^"]
    if not chosen:
        return pl.DataFrame(schema=CURVE.schema)
    estimates = [ProblemEstimates(chosen, of_ends(chosen, n, c), index)]
    made = GroupMoments.of(rows, MODEL, estimates, settings.columns.cluster).summaries(settings)
    table = _table(_groups(survey, MODEL, ALL), dict(zip(chosen, made.values(), strict=True)))
    share = (pl.col("problems_scored") / pl.col("problems")).alias("scored")
    table = table.filter(pl.col("problems_scored") > 0).with_columns(share)
    return table.select(*CURVE.columns).sort("benchmark", "model", "protocol", "family", "k")
