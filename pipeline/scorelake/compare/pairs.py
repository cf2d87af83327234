"""The comparison table: every pair of models, with its numbers or with what makes the two incomparable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from scorelake.compare.boards import Place
from scorelake.compare.order import ordered
from scorelake.compare.resampled import REFUSED, Found
from scorelake.metrics import Metric
from scorelake.metrics.significance import holm, sign_test
from scorelake.tables import Table


def comparison(table: Table, found: Sequence[Found], chosen: Sequence[Metric], keys: tuple[str, ...]) -> pl.DataFrame:
    """Every pair of every board, and the pairs that share no protocol; p-values adjusted per benchmark."""
    pairs = pl.concat(
        [
            pl.DataFrame(schema=table.schema),
            *(_pairs(each, chosen).select(*table.columns) for each in found),
            pl.DataFrame(_strangers([each.place for each in found], chosen, keys), table.schema),
        ]
    )
    family = pairs.select(pl.struct("benchmark", "metric").rank("dense")).to_series().to_numpy()
    raw = pairs["p_two_sided"].to_numpy()
    adjusted = np.full(raw.size, np.nan)
    for each in np.unique(family):
        tested = (family == each) & ~np.isnan(raw)
        adjusted[tested] = holm(raw[tested])
    pairs = pairs.with_columns(pl.Series("p_holm", adjusted).fill_nan(None))
    return table.check(ordered(pairs, chosen, (*keys, "protocol"), ("model_a", "model_b")))


def _pairs(found: Found, chosen: Sequence[Metric]) -> pl.DataFrame:
    """Numbers where the pair is comparable, the reason where not."""
    place, lifts, pairs = found.place, found.lifts, found.a.size
    one_sided, two_sided = sign_test(lifts.wins_a, lifts.wins_b)
    models = pl.Series(place.models, dtype=pl.String)
    claim = np.select([lifts.lo > 0, lifts.hi < 0], ["improvement", "regression"], "inconclusive")
    refused = pl.Series(found.refusals, dtype=pl.String)
    numbers = {
        "lift": lifts.lift,
        "lo": lifts.lo,
        "hi": lifts.hi,
        "wins_a": lifts.wins_a,
        "wins_b": lifts.wins_b,
        "ties": lifts.problems - lifts.wins_a - lifts.wins_b,
        "p_one_sided": one_sided,
        "p_two_sided": two_sided,
    }
    return pl.DataFrame(
        {
            "metric": np.repeat([metric.name for metric in chosen], pairs).tolist(),
            "model_a": models.gather(np.tile(found.a, len(chosen))),
            "model_b": models.gather(np.tile(found.b, len(chosen))),
            "problems": lifts.problems,
            **numbers,
            "claim": claim.tolist(),
        },
        schema_overrides={"metric": pl.String, "claim": pl.String},
    ).with_columns(
        *(pl.when(refused.is_null()).then(pl.col(name)).alias(name) for name in numbers),
        pl.lit(place.benchmark).alias("benchmark"),
        pl.lit(place.subject).alias("subject"),
        pl.lit(place.protocol).alias("protocol"),
        pl.lit(None, pl.Float64).alias("p_holm"),
        pl.coalesce(refused, "claim").alias("claim"),
    )


def _strangers(places: Sequence[Place], chosen: Sequence[Metric], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows for two models of a benchmark that never ran under the same protocol."""
    protocols: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for place in places:
        group = tuple(getattr(place, key) for key in keys)
        for model in place.models:
            protocols.setdefault(group, {}).setdefault(model, set()).add(place.protocol)
    return [
        dict(zip(keys, group, strict=True))
        | {"metric": metric.name, "model_a": a, "model_b": b, "claim": f"{REFUSED}{_protocol_gap(ran[a], ran[b])}"}
        for group, ran in protocols.items()
        for a, b in combinations(sorted(ran), 2)
        if not ran[a] & ran[b]
        for metric in chosen
    ]


def _protocol_gap(a: set[str], b: set[str]) -> str:
    """Which protocol columns have no value in common."""
    ours, theirs = ([json.loads(text or "{}") for text in sorted(some)] for some in (a, b))
    gaps = []
    for column in dict.fromkeys(name for told in (*ours, *theirs) for name in told):
        mine, other = ([json.dumps(told.get(column)) for told in some] for some in (ours, theirs))
        if not set(mine) & set(other):
            gaps.append(f"{column} {' or '.join(dict.fromkeys(mine))} and {' or '.join(dict.fromkeys(other))}")
    return f"protocol differs ({'; '.join(gaps) or 'in combination'})"
