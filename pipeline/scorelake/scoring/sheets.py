"""What the problems of a part come to in every summary table, where that does not follow from n and c alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from scorelake.hashing import hash_text, problem_hashes, subject_hashes
from scorelake.metrics import Metric
from scorelake.metrics.distributions import Ints
from scorelake.metrics.finish import Kind
from scorelake.metrics.moments import LEAF_BITS, Moments, Tree
from scorelake.problems import Part
from scorelake.scoring.groups import tables
from scorelake.scoring.values import Scored
from scorelake.settings import Settings
from scorelake.survey import ALL, CLUSTER, SLICE_VALUE, clustered
from scorelake.threads import parallel_map

Powers = tuple[float, float] | None


@dataclass(frozen=True)
class Sheet:
    """The groups of one summary table, and what each metric comes to there."""

    groups: pl.DataFrame
    """The keys of each group, in their order."""
    moments: dict[str, Moments]
    """By the name of the metric."""
    kinds: dict[str, tuple[Kind, Powers]]
    """What is the same for all problems, and how parts are blended."""

    def beside(self, other: Sheet) -> Sheet:
        """The same of two branches of the tree, of which this is the first."""
        keys = self.groups.columns
        groups = pl.concat([self.groups, other.groups]).unique().sort(keys)
        numbers = groups.with_row_index("code")
        code = [
            each.groups.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left")["code"]
            for each in (self, other)
        ]
        branch = np.repeat([0, 1], [self.groups.height, other.groups.height])
        tree = Tree(pl.concat(code).cast(pl.Int64).to_numpy(), branch, bits=1)
        moments = {name: Moments.joined([mine, other.moments[name]], tree) for name, mine in self.moments.items()}
        return Sheet(groups, moments, self.kinds)


def joined(parts: Iterable[list[Sheet] | None]) -> list[Sheet]:
    """The sheets of all parts, which come in their order and are one branch of the tree each; None for one without
    problems. Two branches of one size are put together as soon as both are there: few are held at a time."""
    waiting: list[tuple[int, list[Sheet] | None]] = []
    for part in parts:
        size, mine = 1, part
        while waiting and waiting[-1][0] == size:
            first = waiting.pop()[1]
            if first is not None and mine is not None:
                mine = [one.beside(other) for one, other in zip(first, mine, strict=True)]
            size, mine = 2 * size, first if mine is None else mine
        waiting.append((size, mine))
    ((_, whole),) = waiting
    assert whole is not None
    return whole


def sheets(scored: Scored, chosen: Sequence[Metric]) -> list[Sheet]:
    """One sheet per summary table; with clusters, after each of them one by cluster too."""
    part, settings = scored.part, scored.settings
    leaf = _leaf(part)
    grouped = [(groups, Tree(code, leaf)) for groups, code in _codes(part, settings)]
    moments: list[dict[str, Moments]] = [{} for _ in grouped]
    kinds: dict[str, tuple[Kind, Powers]] = {}
    for some, made, place in scored.estimates(chosen):
        names = [metric.name for metric in some]
        kinds |= {name: (Kind.of(each), each.powers) for name, each in zip(names, made, strict=True)}
        for mine, (_, tree) in zip(moments, grouped, strict=True):
            mine.update(zip(names, parallel_map(partial(Moments.of, tree=tree, place=place), made), strict=True))
    return [Sheet(groups, mine, kinds) for (groups, _), mine in zip(grouped, moments, strict=True)]


def _leaf(part: Part) -> Ints:
    """The leaf of each problem: the upper bits of its hash, by which parts are cut."""
    place = subject_hashes(hash_text(part.groups["benchmark"]), hash_text(part.groups["subject"]))
    whole = problem_hashes(place[part.group], part.places[part.name])
    return (whole >> np.uint64(64 - LEAF_BITS)).astype(np.int64)


def _codes(part: Part, settings: Settings) -> Iterator[tuple[pl.DataFrame, Ints]]:
    """For each sheet its groups, in their order, and the group of each problem."""
    cluster = settings.columns.cluster
    for keys, column in tables(settings):
        more = [] if column == ALL else [pl.col(column).cast(pl.String).alias(SLICE_VALUE)]
        together = [] if cluster is None else [clustered(cluster)]
        yield _numbered(part, keys, column, more)
        if cluster is not None:
            yield _numbered(part, (*keys, CLUSTER), column, [*more, *together])


def _numbered(part: Part, keys: Sequence[str], column: str, more: Sequence[pl.Expr]) -> tuple[pl.DataFrame, Ints]:
    fixed = [key for key in keys if key in part.groups.columns]
    if not more:
        label = part.label(fixed)
        first = np.unique(label, return_index=True)[1]
        return part.groups.select(fixed)[first], label[part.group]
    needed = dict.fromkeys([*fixed, *(name for each in more for name in each.meta.root_names())])
    rows = part.others(list(needed)).select(*more, *fixed, slice=pl.lit(column)).select(keys)
    groups = rows.unique().sort(keys)
    code = rows.join(
        groups.with_row_index("code"), on=list(keys), how="left", nulls_equal=True, maintain_order="left"
    )
    return groups, code["code"].cast(pl.Int64).to_numpy()
