"""The tables of pairs: every two models, with their numbers or with what makes the two incomparable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import polars as pl

from scorelake.comparing.boards import Place
from scorelake.comparing.comparable import REFUSED
from scorelake.comparing.examined import Found, Measured
from scorelake.comparing.order import ordered
from scorelake.metrics import Metric
from scorelake.metrics.significance import benjamini_hochberg, holm
from scorelake.schemas import Table
from scorelake.settings import Settings

_NEAR = ("near_lo", "near_hi")
"""Ends of the narrower interval that a margin is held against; no columns of the table."""


def pairs(
    table: Table, found: Sequence[Found], chosen: Sequence[Metric], keys: tuple[str, ...], settings: Settings
) -> pl.DataFrame:
    """Every pair of every board, and the pairs that share no protocol."""
    schema = table.schema | dict.fromkeys(_NEAR, pl.Float64())
    frames = [
        pl.DataFrame(schema=schema),
        *(_pairs(each, measured).select(*schema) for each in found for measured in each.metrics),
        pl.DataFrame(_strangers([each.place for each in found], chosen, keys, settings.compare.max_pairs), schema),
    ]
    adjusted = _claimed(_adjusted(pl.concat(frames)), settings).drop(_NEAR)
    return table.check(ordered(adjusted, chosen, (*keys, "protocol"), ("model_a", "model_b")))


def _pairs(found: Found, measured: Measured) -> pl.DataFrame:
    """Numbers where a pair is compared, the reason where it is not."""
    place, lifts, models = found.place, measured.lifts, pl.Series(found.place.models, dtype=pl.String)
    numbers = pl.DataFrame(
        {
            "pair": measured.compared,
            "lift": lifts.lift,
            "lo": lifts.lo,
            "hi": lifts.hi,
            "wins_a": lifts.wins_a,
            "wins_b": lifts.wins_b,
            "ties": lifts.problems - lifts.wins_a - lifts.wins_b,
            "p_one_sided": lifts.p_b,
            "p_one_sided_a": lifts.p_a,
            "p_two_sided": lifts.p_two_sided,
            "near_lo": lifts.near_lo,
            "near_hi": lifts.near_hi,
        }
    )
    every = pl.DataFrame(
        {
            "pair": np.arange(measured.a.size),
            "model_a": models.gather(measured.a),
            "model_b": models.gather(measured.b),
            "problems": measured.problems,
            "claim": measured.refused[0],
            "claim_a": measured.refused[1],
        }
    )
    return every.join(numbers, on="pair", how="left", maintain_order="left").with_columns(
        pl.lit(place.benchmark).alias("benchmark"),
        pl.lit(place.subject, pl.String).alias("subject"),
        pl.lit(place.protocol).alias("protocol"),
        pl.lit(measured.metric.name).alias("metric"),
        pl.when(pl.col("lift").is_not_null()).then(pl.lit(measured.resamples, pl.Int64)).alias("resamples"),
        pl.lit(None, pl.Float64).alias("p_holm"),
        pl.lit(None, pl.Float64).alias("q"),
    )


def _adjusted(told: pl.DataFrame) -> pl.DataFrame:
    """p-values adjusted over the pairs tested of a benchmark, protocol and metric (of all its subjects)."""
    raw = told["p_two_sided"].to_numpy()
    family = told.select(pl.struct("benchmark", "protocol", "metric").rank("dense")).to_series().to_numpy()
    tested = np.flatnonzero(~np.isnan(raw))
    tested = tested[np.argsort(family[tested], kind="stable")]
    by_holm, q = np.full(raw.size, np.nan), np.full(raw.size, np.nan)
    for some in np.split(tested, np.flatnonzero(np.diff(family[tested])) + 1):
        by_holm[some], q[some] = holm(raw[some]), benjamini_hochberg(raw[some])
    return told.with_columns(
        pl.Series("p_holm", by_holm).fill_nan(None),
        pl.Series("q", q).fill_nan(None),
    )


def _claimed(told: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """What the numbers of a pair allow to say of B over A, and of A over B."""
    margin = settings.compare.margin
    lo, hi, near_lo, near_hi = (pl.col(name) for name in ("lo", "hi", *_NEAR))
    sure = pl.col("q") <= 1 - settings.uncertainty.confidence + 1e-12
    columns = []
    for name, low, high, near_low, near_high in (
        ("claim", lo, hi, near_lo, near_hi),
        ("claim_a", -hi, -lo, -near_hi, -near_lo),
    ):
        refused = pl.when(pl.col("lift").is_null()).then(pl.col(name))
        claim = refused.when(sure & (low > 0)).then(pl.lit("improvement"))
        claim = claim.when(sure & (high < 0)).then(pl.lit("regression"))
        if margin is not None:
            claim = claim.when((near_low > -margin) & (near_high < margin)).then(pl.lit("equivalent"))
            claim = claim.when(near_low > -margin).then(pl.lit("not worse"))
        columns.append(claim.otherwise(pl.lit("inconclusive")).alias(name))
    return told.with_columns(columns)


def _strangers(
    places: Sequence[Place], chosen: Sequence[Metric], keys: tuple[str, ...], most: int
) -> list[dict[str, Any]]:
    """Rows for two models of a benchmark that never ran under the same protocol; none where there are too many."""
    protocols: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}
    for place in places:
        ran = protocols.setdefault(tuple(getattr(place, key) for key in keys), {})
        ran.update({model: ran.get(model, frozenset()) | {place.protocol} for model in place.models})
    pairs = [(group, *pair) for group, ran in protocols.items() for pair in _apart(ran, most)]
    if len(chosen) * len(pairs) > most:
        return []
    return [
        dict(zip(keys, group, strict=True))
        | {"metric": metric.name, "model_a": a, "model_b": b}
        | {"claim": protocol_gap(protocols[group][a], protocols[group][b])}
        | {"claim_a": protocol_gap(protocols[group][b], protocols[group][a])}
        for group, a, b in pairs
        for metric in chosen
    ]


def _apart(ran: dict[str, frozenset[str]], most: int) -> Iterator[tuple[str, str]]:
    """Pairs of models without a common protocol, the first by name first; a few more than so many at most."""
    alike: dict[frozenset[str], list[str]] = {}
    for model in sorted(ran):
        alike.setdefault(ran[model], []).append(model)
    apart = [(alike[one], alike[two]) for one, two in combinations(alike, 2) if not one & two]
    every = ((min(pair), max(pair)) for ours, theirs in apart for pair in product(ours, theirs))
    return islice(every, most + 1)


@lru_cache
def protocol_gap(a: frozenset[str], b: frozenset[str]) -> str:
    """Which protocol columns have no value in common."""
    ours, theirs = ([json.loads(text or "{}") for text in sorted(some)] for some in (a, b))
    gaps = []
    for column in dict.fromkeys(name for told in (*ours, *theirs) for name in told):
        mine, other = ([json.dumps(told.get(column)) for told in some] for some in (ours, theirs))
        if not set(mine) & set(other):
            gaps.append(f"{column} {' or '.join(dict.fromkeys(mine))} and {' or '.join(dict.fromkeys(other))}")
    return f"{REFUSED}protocol differs ({'; '.join(gaps) or 'in combination'})"
