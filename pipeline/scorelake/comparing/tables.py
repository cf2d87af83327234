"""Tables of pairs and ranks of models.

Only problems that both models attempted under one protocol are compared. Where two models have too little in common,
the row has the reason instead of numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, islice, product
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from scipy.special import ndtr

from scorelake.comparing.boards import REASONS, REFUSED, ModelBoard, rank_eligibility
from scorelake.comparing.compare import BoardResult, HasValue, MetricResult, compare_boards
from scorelake.comparing.sums import BoardMatrix, LakeSums, SumTask
from scorelake.hashing import hash_text, problem_hashes
from scorelake.metrics.bootstrap import Units
from scorelake.metrics.distributions import Ints
from scorelake.metrics.families import Metric
from scorelake.metrics.significance import benjamini_hochberg, holm
from scorelake.schemas import (
    MODEL_PAIR,
    MODEL_RANK,
    MODEL_SUMMARY,
    SUBJECT_PAIR,
    SUBJECT_RANK,
    SUBJECT_SUMMARY,
    Table,
    rank_of_value,
)
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.overall import benchmark_weights, pool_protocols
from scorelake.scoring.series import without_earlier_points
from scorelake.scoring.survey import cluster_keys
from scorelake.scoring.values import problem_values
from scorelake.settings import Settings

_UNPUBLISHED = {"inner_lo": pl.Float64(), "inner_hi": pl.Float64(), "separated": pl.Boolean()}
"""What claims are made with: ends of the narrower interval that margins are tested with, and Lifts.separated."""
CLAIMED = ("improvement", "regression")
PROBLEM = ("subject", "problem_id")


def pair_table(
    table: Table, results: Sequence[BoardResult], chosen: Sequence[Metric], settings: Settings
) -> pl.DataFrame:
    """Return every pair of every board, and the pairs of models without a common protocol."""
    keys, schema = [key for key in ("benchmark", "subject") if key in table.columns], table.schema | _UNPUBLISHED
    boards = [result.board for result in results]
    strangers = pairs_without_common_protocol(boards, chosen, keys, settings.compare.max_pairs)
    frames = [
        pl.DataFrame(schema=schema),
        *(_pairs(result.board, each, settings) for result in results for each in result.metrics),
        pl.DataFrame(strangers, schema),
    ]
    rows = pl.concat(frames, how="diagonal").select(*schema)
    rows = _add_claims(_adjust(rows), settings).drop(_UNPUBLISHED)
    order = {metric.name: i for i, metric in enumerate(chosen)}
    position = pl.col("metric").replace_strict(order, return_dtype=pl.Int64)
    return table.check(rows.sort(*keys, "protocol", position, "model_a", "model_b", nulls_last=True))


def _pairs(board: ModelBoard, result: MetricResult, settings: Settings) -> pl.DataFrame:
    """Return a row per pair: numbers where it is compared, the reason where it is not."""
    lifts, models = result.lifts, pl.Series(board.models, dtype=pl.String)
    ties = lifts.problems - lifts.wins_a - lifts.wins_b
    resamples = pl.Series(np.full(ties.size, result.resamples)).set(pl.Series(lifts.by_means), None)
    numbers = pl.DataFrame({"pair": result.compared, "ties": ties, "resamples": resamples, **vars(lifts)})
    numbers = numbers.drop("problems", "t", "by_means")
    numbers = numbers.rename({"p_b": "p_one_sided", "p_a": "p_one_sided_a"})
    pairs = pl.DataFrame(
        {
            "pair": np.arange(result.a.size),
            "model_a": models.gather(result.a),
            "model_b": models.gather(result.b),
            "problems": result.problems.astype(np.int64),
            "claim": _refusals(board, result, result.a, result.b, settings),
            "claim_a": _refusals(board, result, result.b, result.a, settings),
        }
    )
    return pairs.join(numbers, on="pair", how="left", maintain_order="left").with_columns(
        benchmark=pl.lit(board.benchmark),
        subject=pl.lit(board.subject, pl.String),
        protocol=pl.lit(board.protocol),
        metric=pl.lit(result.metric.name),
    )


def _refusals(board: ModelBoard, result: MetricResult, one: Ints, two: Ints, settings: Settings) -> pl.Series:
    """Return why pairs are not compared, null where they are."""
    metric = result.metric
    fixed = {"needed": settings.compare.min_problems, "metric": metric.name, "k": metric.draws}
    fixed["instead"] = metric.family.instead

    def text(code: int, shared: int, usable: int, i: int, j: int) -> str | None:
        if code == 0:
            return None
        n, other_n = (f"{mean:,.1f}".removesuffix(".0") for mean in board.mean_n[[i, j]])
        problems, other_problems = board.problems[[i, j]]
        facts = {"shared": shared, "usable": usable, "problems": problems, "other_problems": other_problems}
        spread = " on average" if n == other_n else ""
        return REFUSED + REASONS[code - 1].format(n=n, other_n=other_n, spread=spread, **facts, **fixed)

    columns = (each.tolist() for each in (result.codes, result.shared, result.problems, one, two))
    return pl.Series(map(text, *columns), dtype=pl.String)


def _adjust(rows: pl.DataFrame) -> pl.DataFrame:
    """Adjust p-values over the tested pairs of a benchmark, protocol and metric (of all its subjects)."""
    p = pl.col("p_two_sided")
    family = ("benchmark", "protocol", "metric", p.is_null())
    q = p.map_batches(lambda each: pl.Series(benjamini_hochberg(each)), pl.Float64).over(family)
    by_holm = p.map_batches(lambda each: pl.Series(holm(each)), pl.Float64).over(family)
    return rows.with_columns(q=q.fill_nan(None), p_holm=by_holm.fill_nan(None))


def _add_claims(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Add the claim that the numbers of a pair support, of B over A and of A over B."""
    # Ranges of ranks count these claims, so that no model is called worse than one in whose range it is.
    margin = settings.compare.margin
    lo, hi, inner_lo, inner_hi = (pl.col(name) for name in ("lo", "hi", "inner_lo", "inner_hi"))
    significant = (pl.col("q") <= 1 - settings.uncertainty.confidence + 1e-12) & pl.col("separated")
    columns = []
    for name, low, high, inner_low, inner_high in (
        ("claim", lo, hi, inner_lo, inner_hi),
        ("claim_a", -hi, -lo, -inner_hi, -inner_lo),
    ):
        refused = pl.when(pl.col("lift").is_null()).then(pl.col(name))
        claim = refused.when(significant & (low > 0)).then(pl.lit("improvement"))
        claim = claim.when(significant & (high < 0)).then(pl.lit("regression"))
        if margin is not None:
            claim = claim.when((inner_low > -margin) & (inner_high < margin)).then(pl.lit("equivalent"))
            claim = claim.when(inner_low > -margin).then(pl.lit("not worse"))
        columns.append(claim.otherwise(pl.lit("inconclusive")).alias(name))
    return rows.with_columns(columns)


def pairs_without_common_protocol(
    boards: Sequence[ModelBoard], chosen: Sequence[Metric], keys: Sequence[str], max_pairs: int
) -> list[dict[str, Any]]:
    """Return rows for models of a benchmark that never ran under the same protocol; none if there are too many."""
    protocols: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}
    for board in boards:
        by_model = protocols.setdefault(tuple(getattr(board, key) for key in keys), {})
        by_model.update({model: by_model.get(model, frozenset()) | {board.protocol} for model in board.models})
    pairs = [(group, *pair) for group, models in protocols.items() for pair in _disjoint(models, max_pairs)]
    if len(chosen) * len(pairs) > max_pairs:
        return []
    return [
        dict(zip(keys, group, strict=True))
        | {"metric": metric.name, "model_a": a, "model_b": b}
        | {"claim": protocol_difference(protocols[group][a], protocols[group][b])}
        | {"claim_a": protocol_difference(protocols[group][b], protocols[group][a])}
        for group, a, b in pairs
        for metric in chosen
    ]


def _disjoint(protocols: dict[str, frozenset[str]], max_pairs: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of models without a common protocol, at most one more than max_pairs."""
    models: dict[frozenset[str], list[str]] = {}
    for model in sorted(protocols):
        models.setdefault(protocols[model], []).append(model)
    disjoint = [(models[one], models[two]) for one, two in combinations(models, 2) if not one & two]
    pairs = ((min(pair), max(pair)) for ours, theirs in disjoint for pair in product(ours, theirs))
    return islice(pairs, max_pairs + 1)


@lru_cache
def protocol_difference(a: frozenset[str], b: frozenset[str]) -> str:
    """Return a refusal that names the protocol columns without a common value."""
    ours, theirs = ([json.loads(text or "{}") for text in sorted(protocols)] for protocols in (a, b))
    differences = []
    for column in dict.fromkeys(name for protocol in (*ours, *theirs) for name in protocol):
        mine, other = ([json.dumps(protocol.get(column)) for protocol in side] for side in (ours, theirs))
        if not set(mine) & set(other):
            differences.append(f"{column} {' or '.join(dict.fromkeys(mine))} and {' or '.join(dict.fromkeys(other))}")
    return f"{REFUSED}protocol differs ({'; '.join(differences) or 'in combination'})"


def rank_table(
    table: Table, summary: pl.DataFrame, results: Sequence[BoardResult], pairs: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Return a row per row of the summary, in its order. Rank, range and value are of the same models."""
    # A model's range leaves out the ranks of the models that `pairs` claims to be better or worse.
    board = [key for key in ("benchmark", "subject", "protocol") if key in table.columns]
    keys, text = [*board, "metric"], pl.String()
    reasons, ranges = [], []
    for each in results:
        named = tuple(getattr(each.board, key) for key in board)
        unranked = rank_eligibility(each.board, settings.compare)
        reasons += [(*named, *pair) for pair in zip(each.board.models, unranked, strict=True)]
        for result in each.metrics:
            if (ranks := result.ranks) is not None:
                models = [each.board.models[i] for i in result.ranked]
                columns = zip(models, *(end.tolist() for end in (ranks.lo, ranks.hi, ranks.best)), strict=True)
                ranges += [(*named, result.metric.name, *row) for row in columns]
    attempted = pl.DataFrame(reasons, dict.fromkeys([*board, "model", "unranked"], text), orient="row")
    numbers = {name: table.schema[name] for name in ("rank_lo", "rank_hi", "p_best")}
    ranked = pl.DataFrame(ranges, {**dict.fromkeys([*keys, "model"], text), **numbers}, orient="row")
    claimed = pairs.filter(pl.col("claim").is_in(CLAIMED))
    for side in ("model_a", "model_b"):  # both have a range
        claimed = claimed.join(ranked, left_on=[*keys, side], right_on=[*keys, "model"], how="semi", nulls_equal=True)
    rows = summary.select(*keys, "model", "value", "problems", "problems_scored")
    for more, on in ((attempted.with_columns(is_tried=True), board), (_count_claims(ranked, claimed, keys), keys)):
        rows = rows.join(more, on=[*on, "model"], how="left", validate="m:1", nulls_equal=True, maintain_order="left")
    rows = rows.with_columns(reason=_reason(settings))
    rank = rank_of_value().over(*board, "metric").cast(pl.Int64)
    rows = rows.with_columns(value=pl.when(pl.col("reason").is_null()).then("value")).with_columns(rank=rank)
    # values are over each model's own problems, ranges over common ones: let ranges contain the rank
    ends = {"rank_lo": pl.min_horizontal("rank_lo", "rank"), "rank_hi": pl.max_horizontal("rank_hi", "rank")}
    rows = rows.with_columns(pl.when(pl.col(name).is_not_null()).then(end).alias(name) for name, end in ends.items())
    return table.check(rows.select(*table.columns))


def overall_ranges(
    overall: pl.DataFrame, models: pl.DataFrame, tables: Mapping[str, pl.DataFrame], settings: Settings
) -> pl.DataFrame:
    """Rank the averages over benchmarks, with ranges from the lifts of the pairs on each benchmark.

    A model that is not ranked on one of its benchmarks has no rank: it may have tried the easy problems only.
    """
    # Lifts on different benchmarks are independent, and their weighted mean is tested as a normal variable. A model
    # is above another if q over all pairs, and p times the number of rivals, are at most 1 - confidence.
    keys, level = ["metric", "protocol"], 1 - settings.uncertainty.confidence
    weights = benchmark_weights(pool_protocols(models, models), settings).filter(pl.col("weight") > 0)
    pairs, has_reason = tables[MODEL_PAIR.name], pl.col("reason").is_not_null()
    ranks = pool_protocols(tables[MODEL_RANK.name].filter(has_reason), models).select(*keys, "benchmark", "model")
    unranked = ranks.join(weights, on=["benchmark", "protocol"], how="semi").select(*keys, "model").unique()
    is_ranked = pl.col("is_unranked").is_null()
    overall = (
        overall.join(unranked.with_columns(is_unranked=True), on=[*keys, "model"], how="left", maintain_order="left")
        .with_columns(all=pl.col("value"), value=pl.when(is_ranked).then("value"))
        .with_columns(rank=rank_of_value().over(keys).cast(pl.Int64), value="all").select(*overall.columns)
    )  # fmt: skip
    se = (pl.col("hi") - pl.col("lo")) / 2 / NormalDist().inv_cdf(1 - level / 2)
    sums = (
        pool_protocols(pairs.drop_nulls("lift"), models).join(weights, on=["benchmark", "protocol"])
        .group_by(*keys, "model_a", "model_b", maintain_order=True)
        .agg(
            lift=(pl.col("weight") * pl.col("lift")).sum() / pl.col("weight").sum(),
            se=((pl.col("weight") * se) ** 2).sum().sqrt() / pl.col("weight").sum(),
            benchmarks=pl.len().cast(pl.Int64),
        )
    )  # fmt: skip
    valued = overall.drop_nulls("rank").with_columns(rivals=pl.len().over(keys) - 1)
    for side in ("model_a", "model_b"):
        sides = valued.select(*keys, "benchmarks", pl.col("model").alias(side), "rivals")
        sums = sums.join(sides, on=[*keys, "benchmarks", side], suffix="_b")
    z = (pl.col("lift").abs() / pl.col("se")).fill_nan(0.0)  # 0 / 0: the two never differ
    sums = sums.with_columns(p=pl.Series(2 * ndtr(-sums.select(z).to_series().to_numpy())))
    q = pl.col("p").map_batches(lambda p: pl.Series(benjamini_hochberg(p)), return_dtype=pl.Float64).over(keys)
    claimed = sums.filter(q.is_between(0, level) & (pl.col("p") * pl.col("rivals") <= level))
    is_complete = pl.len().over(keys) * 2 == pl.col("rivals") * (pl.col("rivals") + 1)
    complete = sums.filter(is_complete).select(keys).unique()
    ranges = valued.join(complete, on=keys, how="semi").select(
        *keys, "model", rank_lo=1, rank_hi=pl.col("rivals") + 1
    )
    ranges = ranges.with_columns(pl.col("rank_lo", "rank_hi").cast(pl.Int64))
    ranges = _count_claims(ranges, claimed, keys)
    out = overall.drop("rank_lo", "rank_hi").join(ranges, on=[*keys, "model"], how="left", maintain_order="left")
    return out.select(*overall.columns)


def _reason(settings: Settings) -> pl.Expr:
    """Return why a model is not ranked by a metric: too few attempts, or no value."""
    share = f"{settings.uncertainty.min_coverage:.0%}"
    unscored = pl.format(
        f"no value: {{}} of {{}} problems have enough attempts, {share} needed", "problems_scored", "problems"
    )
    return (
        pl.when(pl.col("is_tried").is_null()).then(pl.lit("no graded attempt"))
        .when(pl.col("unranked").is_not_null()).then("unranked")
        .when(pl.col("value").is_null()).then(unscored)
    )  # fmt: skip


def _count_claims(ranges: pl.DataFrame, claimed: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    b_leads = pl.col("lift") > 0
    for end, step, model in (
        ("rank_lo", 1, pl.when(b_leads).then("model_a").otherwise("model_b")),
        ("rank_hi", -1, pl.when(b_leads).then("model_b").otherwise("model_a")),
    ):
        counts = claimed.group_by(*keys, model.alias("model")).agg(_more=pl.len().cast(pl.Int64) * step)
        ranges = ranges.join(counts, on=[*keys, "model"], how="left", nulls_equal=True, maintain_order="left")
        ranges = ranges.with_columns(pl.col(end) + pl.col("_more").fill_null(0)).drop("_more")
    return ranges


def comparison_tables(
    boards: Sequence[ModelBoard],
    chosen: Sequence[Metric],
    settings: Settings,
    summaries: dict[str, pl.DataFrame],
    lake: LakeSums,
) -> dict[str, pl.DataFrame]:
    """Return the tables of pairs and ranks."""
    models, by_subject = (
        without_earlier_points(summaries[table.name], settings) for table in (MODEL_SUMMARY, SUBJECT_SUMMARY)
    )
    results = compare_boards(boards, chosen, _has_value(models, by_subject, chosen), settings, lake)
    overall = [each for each in results if each.board.subject is None]
    named = [replace(each, board=replace(each.board, subject=each.board.only_subject)) for each in overall]
    subjects = [each for each in (*results, *named) if each.board.subject is not None]
    pairs = pair_table(MODEL_PAIR, overall, chosen, settings)
    subject_pairs = pair_table(SUBJECT_PAIR, subjects, chosen, settings)
    return {
        MODEL_PAIR.name: pairs,
        SUBJECT_PAIR.name: subject_pairs,
        MODEL_RANK.name: rank_table(MODEL_RANK, models, overall, pairs, settings),
        SUBJECT_RANK.name: rank_table(SUBJECT_RANK, by_subject, subjects, subject_pairs, settings),
    }


def _has_value(models: pl.DataFrame, by_subject: pl.DataFrame, chosen: Sequence[Metric]) -> HasValue:
    keys = ("benchmark", "subject", "protocol", "metric")
    overall = models.with_columns(subject=pl.lit(None, pl.String))
    rows = pl.concat([each.select(*keys, "model", "value") for each in (overall, by_subject)]).drop_nulls("value")
    rows = rows.filter(pl.col("metric").is_in([metric.name for metric in chosen]))
    valued = {tuple(key): set(names) for *key, names in rows.group_by(keys).agg("model").iter_rows()}
    return lambda board, metric: valued.get((board.benchmark, board.subject, board.protocol, metric.name), set())


def compare_two(
    names: Sequence[str],
    sides: Sequence[pl.DataFrame],
    benchmark: str,
    metric: Metric,
    settings: Settings,
    outcomes: Outcomes,
) -> pl.DataFrame:
    """Return the row of model_pair that compares the second side with the first; p-values are not adjusted."""
    # Each side is rows of problem_counts; rows with the same subject and problem_id are the same problem.
    rows = pl.concat([side.with_columns(_side=pl.lit(i)) for i, side in enumerate(sides)], how="diagonal_relaxed")
    rows = rows.filter(pl.col("n") > 0).with_columns(_problem=pl.struct(PROBLEM).rank("dense").cast(pl.Int64) - 1)
    rows = rows.sort("_problem", "_side")
    problems = rows.unique("_problem", keep="first", maintain_order=True)
    keys, cluster = problem_hashes(*(hash_text(problems[name]) for name in PROBLEM)), settings.columns.cluster
    units = Units.of(keys if cluster not in problems.columns else cluster_keys(problems[cluster], keys))
    side, problem, n = (rows[name].to_numpy() for name in ("_side", "_problem", "n"))
    matrix = BoardMatrix(side, problem, [n, *problem_values(rows, [metric], settings, outcomes)], units, len(names))
    attempted = np.bincount(side, minlength=len(names))
    mean_n = np.bincount(side, n, minlength=len(names)) / np.maximum(attempted, 1)
    sizes = (list(names), problems.height, attempted, np.zeros_like(attempted), mean_n)
    board = ModelBoard(benchmark, None, "", *sizes, units.key, units.clustered)
    sums = LakeSums(map, [SumTask((), (), pl.DataFrame(), loaded=[{0: matrix}])], outcomes)
    results = compare_boards([board], [metric], lambda *_: set(), settings, sums)
    return pair_table(MODEL_PAIR, results, [metric], settings)
