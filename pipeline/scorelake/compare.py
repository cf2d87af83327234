"""Stage 5. Scores per problem -> paired comparisons of all models, and how far their ranks are settled.

Only problems that both models attempted under one protocol are compared. Where two models have too little in
common the row says what differs, and gives no number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.metrics.draws import Floats, Ints, blocks
from scorelake.metrics.resample import Lifts, Plan, Ranks, Sample, bootstrap_all
from scorelake.metrics.significance import holm, sign_test
from scorelake.problems import Codes, Problems
from scorelake.settings import Settings
from scorelake.tables import COMPARISON, MODEL_RANK, SUBJECT_COMPARISON, SUBJECT_RANK, Table
from scorelake.threads import side_by_side

Values = Callable[[slice], Floats]
"""Some of the rows -> their finite values, NaN where undefined."""
Scorer = Callable[[pl.DataFrame], Sequence[Values]]
"""Rows of problem_counts in, without keys; for each metric their values out."""

REFUSED = "not comparable: "
"""How a claim begins that gives a reason instead of a number."""


def comparable(chosen: Sequence[Metric]) -> list[Metric]:
    """The metrics, each once; a blend of two group means has no score per problem and is an error."""
    pooled = [metric.name for metric in chosen if metric.family.pooled]
    if pooled:
        raise UsageError(
            f"{', '.join(pooled)}: a blend of group means has no score per problem to pair",
            hint="leave it out of [compare] metrics",
        )
    return list(dict.fromkeys(chosen))


def compare(
    problems: Problems, chosen: Sequence[Metric], scorer: Scorer, settings: Settings
) -> dict[str, pl.DataFrame]:
    """The comparison and rank tables, for whole benchmarks and for each subject."""
    wholes: list[_Found] = []
    parts: list[_Found] = []
    for board in _boards(problems, scorer, settings):
        subjects = list(board.split())
        alone = len(subjects) == 1  # a benchmark of one subject: the same evidence
        whole, *found = _found([board, *([] if alone else subjects)], chosen, settings)
        wholes.append(whole)
        parts += [whole.of(subjects[0].place)] if alone else found
    return {
        COMPARISON.name: _comparison(COMPARISON, wholes, chosen, ("benchmark",)),
        SUBJECT_COMPARISON.name: _comparison(SUBJECT_COMPARISON, parts, chosen, ("benchmark", "subject")),
        MODEL_RANK.name: _rank(MODEL_RANK, wholes, chosen),
        SUBJECT_RANK.name: _rank(SUBJECT_RANK, parts, chosen),
    }


# --- models x problems ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Which board: the models of a benchmark, or of one subject of it, under one protocol."""

    benchmark: str
    subject: str
    protocol: str
    models: list[str]


@dataclass(frozen=True)
class _Board:
    """What its models did on the same problems."""

    place: _Place
    spans: list[tuple[str, int, int]]
    """(name, first column, end) of each subject."""
    attempts: Ints
    """n, models x problems; 0 where a model did not attempt the problem."""
    scores: Floats
    """metrics x models x problems, NaN where not scored."""
    cluster: Ints | None
    """Which problems belong together, by number."""

    def split(self) -> Iterator[_Board]:
        """One board per subject, with the models that attempted any of it."""
        return (self._part(span, slice(*span[1:])) for span in self.spans)

    def _part(self, span: tuple[str, int, int], columns: slice) -> _Board:
        here = np.flatnonzero(self.attempts[:, columns].any(axis=1))
        models = [self.place.models[i] for i in here]
        cluster = None if self.cluster is None else np.unique(self.cluster[columns], return_inverse=True)[1]
        attempts, scores = self.attempts[:, columns], self.scores[:, :, columns]
        if here.size < len(attempts):
            attempts, scores = attempts[here], scores[:, here]
        place = _Place(self.place.benchmark, span[0], self.place.protocol, models)
        return _Board(place, [span], attempts, scores, cluster)


def _boards(problems: Problems, scorer: Scorer, settings: Settings) -> Iterator[_Board]:
    """One board at a time, in the order of benchmark and protocol."""
    groups = problems.groups.with_row_index("group")
    cluster = settings.columns.cluster
    also = [name for name in problems.more if name == cluster or name not in settings.carried]
    rows = pl.concat([problems.counts, problems.others(also)], how="horizontal")
    attempted = rows["n"].to_numpy() > 0
    for board in groups.sort("benchmark", "protocol").partition_by("benchmark", "protocol", maintain_order=True):
        inside = attempted
        if board.height < groups.height:
            mine = np.zeros(groups.height, dtype=bool)
            mine[board["group"].to_numpy()] = True
            inside = attempted & mine[problems.group]
        group, name, some = problems.group, problems.name, rows
        if not inside.all():
            here = np.flatnonzero(inside)
            group, name, some = group[here], name[here], rows[here]
        if some.height:
            yield _board(board, group, name, some, scorer(some), cluster)


def _board(
    groups: pl.DataFrame, group: Codes, name: Codes, rows: pl.DataFrame, values: Sequence[Values], cluster: str | None
) -> _Board:
    """The groups of a board, the group and name of each of its rows, and the rows with their scores."""
    there = np.zeros(int(group.max()) + 1, dtype=bool)
    there[group] = True
    present = groups.filter(pl.col("group").is_in(np.flatnonzero(there)))
    models, subjects = (present[key].unique().sort() for key in ("model", "subject"))
    of_group = np.zeros((2, there.size), dtype=np.int32)
    for number, key, texts in zip(of_group, ("model", "subject"), (models, subjects), strict=True):
        number[present["group"].to_numpy()] = present[key].replace_strict(texts, np.arange(texts.len())).to_numpy()
    of_model, of_subject = of_group
    ends, problem = _line_up(of_subject, group, name, subjects.len())
    shape = (models.len(), int(ends[-1]))
    attempts, n = np.zeros(shape, dtype=np.int64), rows["n"].to_numpy()
    scores = np.empty((len(values), *shape))
    if rows.height < attempts.size:  # a model did not try every problem
        scores[:] = np.nan

    def place(some: slice) -> None:
        cell = of_model[group[some]].astype(np.int64) * shape[1] + problem[some]
        attempts.ravel()[cell] = n[some]
        for matrix, value in zip(scores, values, strict=True):
            matrix.ravel()[cell] = value(some)

    side_by_side(place, blocks(rows.height, 4))
    spans = list(zip(subjects.to_list(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    together = (
        None if cluster is None else cluster_codes(rows[cluster].gather(_first_model(of_model[group], problem)))
    )
    here = _Place(groups["benchmark"][0], "", groups["protocol"][0], models.to_list())
    return _Board(here, spans, attempts, scores, together)


def _line_up(of_group: NDArray[np.int32], group: Codes, name: Codes, subjects: int) -> tuple[Ints, NDArray[np.int32]]:
    """Number the distinct (subject, name) in their order: where each subject ends, and the number of each row."""
    names = int(name.max()) + 1
    parts = list(blocks(name.size, 4))

    def key(some: slice) -> Ints:
        return of_group[group[some]].astype(np.int64) * names + name[some]

    number = np.empty(name.size, dtype=np.int32)
    if subjects * names <= 4 * name.size:  # a table of flags is faster than a sort
        seen = np.zeros(subjects * names, dtype=bool)

        def look(some: slice) -> None:
            seen[key(some)] = True

        def tell(some: slice) -> None:
            number[some] = numbers[key(some)]

        side_by_side(look, parts)
        known, numbers = np.flatnonzero(seen), np.cumsum(seen, dtype=np.int32) - 1
        side_by_side(tell, parts)
    else:
        known, number[:] = np.unique(key(slice(None)), return_inverse=True)
    return np.searchsorted(known, names * np.arange(1, subjects + 1)), number


def _first_model(model: NDArray[np.int32], problem: NDArray[np.int32]) -> Ints:
    """For each problem the row of the first model that attempted it."""
    order = np.lexsort((model, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def cluster_codes(values: pl.Series) -> Ints:
    """Numbers for the clusters of problems; a problem without one is a cluster of its own."""
    names = values.cast(pl.String)
    known = names.fill_null("").rank("dense").cast(pl.Int64).to_numpy() - 1
    alone = names.is_null().to_numpy()
    code = np.where(alone, known.max(initial=0) + 1 + np.arange(known.size), known)
    return np.unique(code, return_inverse=True)[1].astype(np.int64)


# --- evidence -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A board's pairs (the same a and b for every metric, metric by metric), its ranks, and its refusals."""

    place: _Place
    a: Ints
    b: Ints
    lifts: Lifts
    ranks: Ranks
    refusals: list[str | None]

    def of(self, place: _Place) -> _Found:
        """The same findings on a board that has the same models and problems."""
        return _Found(place, self.a, self.b, self.lifts, self.ranks, self.refusals)


def _found(boards: Sequence[_Board], chosen: Sequence[Metric], settings: Settings) -> list[_Found]:
    """Compare every pair and rank every model; all metrics and boards share the resamples."""
    plan = Plan(settings.compare.resamples, settings.compare.seed, settings.uncertainty.confidence)
    samples, pairs = [], []
    for board in boards:
        many = len(board.place.models)
        a, b = np.triu_indices(many, 1)
        shift = many * np.arange(len(chosen))[:, None]
        pairs.append((a, b))
        samples.append(
            Sample(
                board.scores.reshape(-1, board.scores.shape[2]),
                (a + shift).ravel(),
                (b + shift).ravel(),
                list(np.arange(many) + shift),
                board.cluster,
            )
        )
    return [
        _Found(board.place, a, b, lifts, ranks, _refusals(board, a, b, chosen, lifts.problems, settings))
        for board, (a, b), (lifts, ranks) in zip(boards, pairs, bootstrap_all(samples, plan), strict=True)
    ]


def _refusals(
    board: _Board, a: Ints, b: Ints, chosen: Sequence[Metric], scored: Ints, settings: Settings
) -> list[str | None]:
    """For every metric and pair: what makes the two incomparable, or nothing."""
    asked = settings.compare
    tried = board.attempts > 0
    many = tried.sum(axis=1)
    shared = np.array([np.count_nonzero(tried[i] & tried[j]) for i, j in zip(a, b, strict=True)], dtype=np.int64)
    least = np.where(tried, board.attempts, np.iinfo(np.int64).max).min(axis=1)
    most = board.attempts.max(axis=1)
    out: list[str | None] = []
    for metric, both_scored in zip(chosen, scored.reshape(len(chosen), -1), strict=True):
        for i, j, common, usable in zip(a, b, shared, both_scored, strict=True):
            why = None
            if common < asked.min_problems and common == many[i] == many[j]:
                why = f"too few problems ({common} in common, {asked.min_problems} needed)"
            elif common < asked.min_problems:
                why = f"problem sets differ ({common} of {many[i]} and {many[j]} problems in common, "
                why += f"{asked.min_problems} needed)"
            elif not asked.allow_different_n and (most[i] < least[j] or most[j] < least[i]):
                why = f"n differs ({_span(least[i], most[i])} and {_span(least[j], most[j])} attempts per problem)"
            elif usable < asked.min_problems:
                why = f"n is below k = {metric.draws} (both models have enough attempts on {usable} problems, "
                why += f"{asked.min_problems} needed)"
            out.append(why and REFUSED + why)
    return out


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


# --- tables ---------------------------------------------------------------------------------------------------


def _comparison(
    table: Table, found: Sequence[_Found], chosen: Sequence[Metric], keys: tuple[str, ...]
) -> pl.DataFrame:
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
    return table.check(_sorted(pairs, chosen, (*keys, "protocol"), ("model_a", "model_b")))


def _pairs(found: _Found, chosen: Sequence[Metric]) -> pl.DataFrame:
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


def _strangers(places: Sequence[_Place], chosen: Sequence[Metric], keys: tuple[str, ...]) -> list[dict[str, Any]]:
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


def _rank(table: Table, found: Sequence[_Found], chosen: Sequence[Metric]) -> pl.DataFrame:
    """Every model of every board; a model without any score of a metric has no rank."""
    frames = [pl.DataFrame(schema=table.schema)]
    for each in found:
        place, ranks = each.place, each.ranks
        frame = pl.DataFrame(
            {
                "metric": [metric.name for metric in chosen for _ in place.models],
                "model": place.models * len(chosen),
                "rank_lo": ranks.lo,
                "rank_hi": ranks.hi,
                "p_best": ranks.best,
            },
            schema_overrides={"metric": pl.String},
        ).with_columns(
            benchmark=pl.lit(place.benchmark), subject=pl.lit(place.subject), protocol=pl.lit(place.protocol)
        )
        frames.append(frame.filter(pl.col("p_best").is_not_nan()).select(*table.columns))
    keys = [key for key in ("benchmark", "subject", "protocol") if key in table.columns]
    return table.check(_sorted(pl.concat(frames), chosen, keys, ("model",)))


def _sorted(
    rows: pl.DataFrame, chosen: Sequence[Metric], before: Sequence[str], after: Sequence[str]
) -> pl.DataFrame:
    """By the keys, then metrics in the order they were asked for, then models."""
    order = {metric.name: i for i, metric in enumerate(chosen)}
    place = pl.col("metric").replace_strict(order, return_dtype=pl.Int64).alias("_place")
    return rows.with_columns(place).sort(*before, "_place", *after, nulls_last=True).drop("_place")
