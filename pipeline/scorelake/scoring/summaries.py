"""Summary tables: every metric of every model, subject and slice.

Metrics of counts are evaluated once per distinct (n, c) of the lake and multiplied by the histograms of the groups.
Metrics that depend on more are evaluated per problem, bucket by bucket, and their moments are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from itertools import count, takewhile
from operator import add

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics.counts import distinct
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.estimate import Estimate, Prior, evaluate, of_ends
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
EXTRA = ("units", "low", "high")
"""Columns that averages over benchmarks need of a row: the sample size, and the bounds of its metric."""
_MIN_SUBJECTS, _ALIKE = 10, 1.5  # see subject_warnings
EVERY_K = 64  # every k up to here; then four in each doubling


@dataclass(frozen=True)
class GroupMoments:
    """The groups of one summary table, sorted by their keys, and the moments of each metric by its name."""

    groups: pl.DataFrame
    moments: dict[str, Moments]

    def __add__(self, other: GroupMoments) -> GroupMoments:
        """Merge the moments of other problems."""
        groups, index = distinct_rows(pl.concat([self.groups, other.groups]))
        mine, theirs = np.split(index, [self.groups.height])
        moments = {
            name: each.expand(mine, groups.height) + other.moments[name].expand(theirs, groups.height)
            for name, each in self.moments.items()
        }
        return GroupMoments(groups, moments)


@dataclass(frozen=True)
class Grouping:
    """One summary table to make: its group columns, its histogram, and totals of its groups."""

    keys: Sequence[str]
    histogram: pl.DataFrame  # problems by the keys, the cluster if configured, n and c; sorted
    groups: pl.DataFrame
    """The keys, attempts and ungraded attempts of each group, and the problems that any model has there."""
    clustered: bool

    def codes(self) -> Ints:
        """Return the group of each row of the histogram."""
        return _run_ids(self.histogram, self.keys)

    def clusters(self) -> tuple[Ints, Ints] | None:
        """Return the cluster of each row of the histogram, and the first cluster of each group."""
        if not self.clustered:
            return None
        cluster = _run_ids(self.histogram, (*self.keys, CLUSTER))
        return cluster, cluster[np.flatnonzero(np.diff(self.codes(), prepend=-1))]


def _run_ids(rows: pl.DataFrame, keys: Sequence[str]) -> Ints:
    return rows.select(pl.struct(keys).rle_id()).to_series().cast(pl.Int64).to_numpy()


def table_keys(settings: Settings) -> list[tuple[Sequence[str], str]]:
    """Return the keys of each summary table and the column it is sliced by: models, subjects, then each slice."""
    return [(MODEL, ALL), (GROUP, ALL), *((SLICE, column) for column in settings.by)]


def groupings(survey: Survey, settings: Settings) -> list[Grouping]:
    """Return the summary tables to make."""
    cluster, out = settings.columns.cluster, []
    for keys, column in table_keys(settings):
        clustered = cluster is not None and not (cluster == "subject" and keys == GROUP)
        named = pl.lit(column).alias("slice")
        fine, coverage = (frames[column].with_columns(named) for frames in (survey.histograms, survey.coverage))
        histogram = coarsen(fine, (*keys, CLUSTER) if clustered else keys)
        shared = [key for key in keys if key != "model"]
        any_model = coverage.group_by(shared).agg(pl.col("problems").sum().alias(OF_BENCHMARK))
        attempts = (pl.col("n") * pl.col("problems")).sum()
        groups = histogram.group_by(keys, maintain_order=True).agg(pl.col("ungraded").sum(), attempts=attempts)
        groups = groups.join(any_model, on=shared, how="left", nulls_equal=True, maintain_order="left")
        out.append(Grouping(keys, histogram, groups, clustered))
    return out


def summary_tables(
    survey: Survey, settings: Settings, outcomes: Outcomes, moments: Sequence[GroupMoments]
) -> dict[str, pl.DataFrame]:
    """Return the summaries of models, subjects and slices, the curves, and under OVERALL the rows to be averaged."""
    # `moments` are those of metrics that do not follow from (n, c), as bucket_moments makes them.
    check_priors(settings, outcomes)
    check_rewards(survey.rewards, settings)
    groups = groupings(survey, settings)
    frames = summarize(choose(settings, outcomes), groups, settings, outcomes, moments)
    models, subjects, *slices = (frame.drop(EXTRA) for frame in frames)
    models = models.join(sampling(groups[0]), on=MODEL, how="left", maintain_order="left")
    none = pl.DataFrame(schema=SLICE_SUMMARY.schema)
    curves = curve_table(groups[0], settings) if outcomes.binary else pl.DataFrame(schema=CURVE.schema)
    return {
        CURVE.name: CURVE.check(curves),
        OVERALL.name: frames[0],
        MODEL_SUMMARY.name: MODEL_SUMMARY.check(models),
        SUBJECT_SUMMARY.name: SUBJECT_SUMMARY.check(subjects),
        SLICE_SUMMARY.name: SLICE_SUMMARY.check(pl.concat([none, *slices])),
    }


def sampling(models: Grouping) -> pl.DataFrame:
    """Return for each model and benchmark whether n is fixed, adaptive (attempts stop after a pass) or unknown."""
    rows = models.histogram.filter(pl.col("n") > 0).group_by(MODEL).agg("n", "c", "problems")
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


def summarize(
    chosen: Sequence[Metric],
    groups: Sequence[Grouping],
    settings: Settings,
    outcomes: Outcomes,
    moments: Sequence[GroupMoments] = (),
) -> list[pl.DataFrame]:
    """Return one summary table per grouping, groups x metrics, with the columns EXTRA."""
    made: list[dict[Metric, Summaries]] = [{} for _ in groups]
    per_table = [moments[i::2] for i in range(2)] if groups[0].clustered else [moments, [None] * len(moments)]
    for each, summaries, by_group, by_cluster in zip(groups, made, *per_table, strict=False):
        summaries.update(_from_moments(chosen, by_group, by_cluster if each.clustered else None, settings))
    from_counts = [metric for metric in chosen if metric not in made[0]]
    if from_counts:
        for summaries, results in zip(made, _from_counts(from_counts, groups, settings, outcomes), strict=True):
            summaries.update(zip(from_counts, results, strict=True))
    return [
        _table(each, {metric: summaries[metric] for metric in chosen})
        for each, summaries in zip(groups, made, strict=True)
    ]


def _from_moments(
    chosen: Sequence[Metric], by_group: GroupMoments, by_cluster: GroupMoments | None, settings: Settings
) -> dict[Metric, Summaries]:
    how, mine = settings.uncertainty, [metric for metric in chosen if metric.name in by_group.moments]
    clusters = None
    if by_cluster is not None:
        starts = np.flatnonzero(np.diff(_run_ids(by_cluster.groups, by_group.groups.columns), prepend=-1))
        clusters = [by_cluster.moments[metric.name] for metric in mine], starts
    moments = [[by_group.moments[metric.name]] for metric in mine]
    results = summarize_moments(moments, how.confidence, how.min_coverage, how.bounds, clusters)
    return dict(zip(mine, results, strict=True))


def _from_counts(
    chosen: Sequence[Metric], groups: Sequence[Grouping], settings: Settings, outcomes: Outcomes
) -> list[list[Summaries]]:
    """Evaluate the distinct (n, c) of all groupings once, and aggregate them by each."""
    keys, prior, weights = groups[0].keys, beta_prior(settings, outcomes), None
    rows = pl.concat([each.histogram.select(*keys, "n", "c") for each in groups])
    priors: list[Prior]
    if prior is not None:
        n, c, column = distinct(rows["n"].to_numpy(), rows["c"].to_numpy())
        priors = [prior]
    else:  # a mixture of priors per model and benchmark, fitted to its problems and shared by its subjects and slices
        models = groups[0].histogram.partition_by(keys, maintain_order=True)
        fits = [fit_beta_mixture(*(rows[name].to_numpy() for name in ("n", "c", "problems"))) for rows in models]
        order = rows.select(keys).unique(maintain_order=True).with_row_index("fit")
        rows = rows.join(order, on=keys, how="left", maintain_order="left")
        once, column = distinct_rows(rows.select("fit", "n", "c"))
        fit, n, c = (once[name].cast(pl.Int64).to_numpy() for name in once.columns)
        alpha, beta, weights = (np.stack(each, axis=1) for each in zip(*fits, strict=True))
        priors = [(a[fit], b[fit]) for a, b in zip(alpha, beta, strict=True)]
    estimates = [evaluate(chosen, n, c, each, outcome_weights(settings, outcomes)) for each in priors]
    columns = np.split(column, np.cumsum([each.histogram.height for each in groups])[:-1])
    out = []
    for each, mine in zip(groups, columns, strict=True):
        first = mine[np.flatnonzero(np.diff(each.codes(), prepend=-1))]
        out.append(_aggregate(estimates, each, mine, settings, None if weights is None else weights[:, fit[first]]))
    return out


def _aggregate(
    estimates: Sequence[Sequence[Estimate]],
    grouping: Grouping,
    column: Ints,
    settings: Settings,
    weights: Floats | None = None,
) -> list[Summaries]:
    """Summarize estimates of (n, c), under each prior, by groups; `column` is the estimate of each histogram row."""
    how, problems = settings.uncertainty, grouping.histogram["problems"].to_numpy()
    width, clusters = estimates[0][0].value.shape[1], grouping.clusters()
    matrix = problem_histogram(grouping.codes(), column, problems, (grouping.groups.height, width))
    moments = [parallel_map(partial(Moments.of, histogram=matrix), under_prior) for under_prior in estimates]
    by_cluster = None
    if clusters is not None:
        code, starts = clusters
        matrix = problem_histogram(code, column, problems, (int(code.max(initial=-1)) + 1, width))
        by_cluster = [Moments.of(estimate, matrix) for estimate in estimates[0]], starts
    by_metric = list(zip(*moments, strict=True))
    return summarize_moments(by_metric, how.confidence, how.min_coverage, how.bounds, by_cluster, weights)


def _table(grouping: Grouping, made: dict[Metric, Summaries]) -> pl.DataFrame:
    """Return a row per group and metric: groups in the order of their keys, metrics in the order given."""
    named = pl.DataFrame(
        [(metric.name, metric.family.name, metric.k, metric.param, *made[metric].bounds) for metric in made],
        {name: MODEL_SUMMARY.schema[name] for name in _METRIC} | {"low": pl.Float64(), "high": pl.Float64()},
        orient="row",
    )
    groups, many = grouping.groups, grouping.groups.height
    columns = {
        field.name: pl.Series(np.stack([getattr(each, field.name) for each in made.values()], axis=1).ravel())
        for field in fields(Summaries)
        if field.name != "bounds"
    }
    repeated = groups[np.repeat(np.arange(many), len(made))]
    names = named[np.tile(np.arange(len(made)), many)]
    parts = [
        repeated.select(grouping.keys),
        names.select(_METRIC),
        pl.DataFrame(columns).fill_nan(None),
        names.select("low", "high"),
        repeated.select(OF_BENCHMARK, "attempts", "ungraded"),
    ]
    return pl.concat(parts, how="horizontal")


def curve_ks(top_n: int) -> list[int]:
    """Return 1, 2, 3, ... 64, 80, 96, 112, 128, 160, ... up to the largest number of attempts."""
    further = (int(EVERY_K * 2**i * step) for i in count() for step in (1.25, 1.5, 1.75, 2.0))
    return [*range(1, min(top_n, EVERY_K) + 1), *takewhile(lambda k: k <= top_n, further)]


def curve_table(models: Grouping, settings: Settings) -> pl.DataFrame:
    """Return a row per model, k and family (one of k right, or all), where a problem has k attempts."""
    n, c, column = distinct(*(models.histogram[name].to_numpy() for name in ("n", "c")))
    chosen = [metrics.parse(f"pass{sign}{k}") for k in curve_ks(int(n.max(initial=0))) for sign in "@^"]
    if not chosen:
        return pl.DataFrame(schema=CURVE.schema)
    made = _aggregate([of_ends(chosen, n, c)], models, column, settings)
    share = (pl.col("problems_scored") / pl.col("problems")).alias("scored")
    table = _table(models, dict(zip(chosen, made, strict=True))).filter(pl.col("problems_scored") > 0)
    return table.with_columns(share).select(*CURVE.columns).sort("benchmark", "model", "protocol", "family", "k")


def bucket_moments(
    rows: pl.DataFrame, estimates: Sequence[ProblemEstimates], settings: Settings
) -> list[GroupMoments]:
    """Return the moments of each summary table (see table_keys); each followed by those of its clusters."""
    cluster, tables = settings.columns.cluster, []
    named = rows if cluster is None else rows.with_columns(cluster_name(cluster))
    for keys, column in table_keys(settings):
        table = named.with_columns(*slice_value(column), slice=pl.lit(column))
        tables += [table.select(keys), *([] if cluster is None else [table.select(*keys, CLUSTER)])]
    out = []
    for table in tables:
        groups, code = distinct_rows(table)
        moments: dict[str, Moments] = {}
        for each in estimates:
            size = each.estimates[0].value.shape[1]
            column_of = np.arange(size) if each.column is None else each.column
            matrix = problem_histogram(code, column_of, 1, (groups.height, size))
            made = parallel_map(partial(Moments.of, histogram=matrix), each.estimates)
            moments.update(zip((metric.name for metric in each.metrics), made, strict=True))
        out.append(GroupMoments(groups, moments))
    return out


def add_moments(buckets: Iterable[list[GroupMoments]]) -> list[GroupMoments]:
    """Merge the moments of buckets in their order."""
    return [reduce(add, tables) for tables in zip(*buckets, strict=True)]
