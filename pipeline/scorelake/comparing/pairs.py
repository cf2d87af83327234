"""Tables of pairs: two models with their numbers, or with the reason why they are not comparable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import polars as pl

from scorelake.comparing.boards import REASONS, REFUSED, ModelBoard
from scorelake.comparing.compare import BoardResult, MetricResult
from scorelake.metrics.distributions import Ints
from scorelake.metrics.families import Metric
from scorelake.metrics.significance import benjamini_hochberg, holm
from scorelake.schemas import Table
from scorelake.settings import Settings

_UNPUBLISHED = {"inner_lo": pl.Float64(), "inner_hi": pl.Float64(), "separated": pl.Boolean()}
"""What claims are made with: ends of the narrower interval that margins are tested with, and Lifts.separated."""
_INSTEAD = {"bayes@N": "avg@N", "geom@k": "geom-ds@k, pass@k or pass^k"}  # what to use where n must be the same
CLAIMED = ("improvement", "regression")


def pair_table(
    table: Table, results: Sequence[BoardResult], chosen: Sequence[Metric], keys: tuple[str, ...], settings: Settings
) -> pl.DataFrame:
    """Return every pair of every board, and the pairs of models without a common protocol."""
    schema = table.schema | _UNPUBLISHED
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
    coverage, metric = board.coverage, result.metric
    fixed = {"needed": settings.compare.min_problems, "metric": metric.name, "k": metric.draws}
    fixed["instead"] = _INSTEAD.get(metric.family.name)

    def text(code: int, shared: int, usable: int, i: int, j: int) -> str | None:
        if code == 0:
            return None
        n, other_n = (f"{mean:,.1f}".removesuffix(".0") for mean in coverage.mean_n[[i, j]])
        problems, other_problems = coverage.problems[[i, j]]
        facts = {"shared": shared, "usable": usable, "problems": problems, "other_problems": other_problems}
        spread = " on average" if n == other_n else ""
        return REFUSED + REASONS[code - 1].format(n=n, other_n=other_n, spread=spread, **facts, **fixed)

    columns = (each.tolist() for each in (result.codes, result.shared, result.problems, one, two))
    return pl.Series(map(text, *columns), dtype=pl.String)


def _adjust(rows: pl.DataFrame) -> pl.DataFrame:
    """Adjust p-values over the tested pairs of a benchmark, protocol and metric (of all its subjects)."""
    p = rows["p_two_sided"].to_numpy()
    family = rows.select(pl.struct("benchmark", "protocol", "metric").rank("dense")).to_series().to_numpy()
    tested = np.flatnonzero(~np.isnan(p))
    tested = tested[np.argsort(family[tested], kind="stable")]
    by_holm, q = np.full((2, p.size), np.nan)
    for at in np.split(tested, np.flatnonzero(np.diff(family[tested])) + 1):
        by_holm[at], q[at] = holm(p[at]), benjamini_hochberg(p[at])
    return rows.with_columns(pl.Series("p_holm", by_holm).fill_nan(None), pl.Series("q", q).fill_nan(None))


def _add_claims(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Add the claim that the numbers of a pair support, of B over A and of A over B.

    Ranges of ranks count these claims, so that no model is called worse than one in whose range it is.
    """
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
    boards: Sequence[ModelBoard], chosen: Sequence[Metric], keys: tuple[str, ...], max_pairs: int
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
