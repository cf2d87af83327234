"""Models x problems: what the models of a benchmark did on the same problems, under one protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.counts import hashed, problem_hashes
from scorelake.metrics.chance import Units, Words
from scorelake.metrics.draws import Floats, Ints, blocks
from scorelake.problems import Codes, Problems
from scorelake.settings import Settings
from scorelake.threads import side_by_side

Values = Callable[[slice], Floats]
"""Some of the rows -> their finite values, NaN where undefined."""
Scorer = Callable[[pl.DataFrame], Sequence[Values]]
"""Rows of problem_counts in, without keys; for each metric their values out."""


@dataclass(frozen=True)
class Place:
    """Which board: the models of a benchmark, or of one subject of it, under one protocol."""

    benchmark: str
    subject: str | None
    """None for all of them."""
    protocol: str
    models: list[str]


@dataclass(frozen=True)
class Board:
    """What its models did on the same problems."""

    place: Place
    spans: list[tuple[str, int, int]]
    """(name, first column, end) of each subject."""
    attempts: Ints
    """n, models x problems; 0 where a model did not attempt the problem."""
    scores: Floats
    """metrics x models x problems, NaN where not scored."""
    units: Units
    """What is drawn and flipped as a whole."""

    def split(self) -> Iterator[Board]:
        """One board per subject, with the models that attempted any of it."""
        return (self._part(span, slice(*span[1:])) for span in self.spans)

    def _part(self, span: tuple[str, int, int], columns: slice) -> Board:
        here = np.flatnonzero(self.attempts[:, columns].any(axis=1))
        models = [self.place.models[i] for i in here]
        attempts, scores = self.attempts[:, columns], self.scores[:, :, columns]
        if here.size < len(attempts):
            attempts, scores = attempts[here], scores[:, here]
        place = Place(self.place.benchmark, span[0], self.place.protocol, models)
        units = replace(self.units, of_problem=self.units.of_problem[columns])
        return Board(place, [span], attempts, scores, units)


def boards(problems: Problems, scorer: Scorer, settings: Settings) -> Iterator[Board]:
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
            yield _board(board, problems.names, group, name, some, scorer(some), cluster)


def _board(
    groups: pl.DataFrame,
    names: pl.Series,
    group: Codes,
    name: Codes,
    rows: pl.DataFrame,
    values: Sequence[Values],
    cluster: str | None,
) -> Board:
    """The groups of a board, all names, the group and name of each of its rows, and the rows with their scores."""
    there = np.zeros(int(group.max()) + 1, dtype=bool)
    there[group] = True
    present = groups.filter(pl.col("group").is_in(np.flatnonzero(there)))
    models, subjects = (present[key].unique().sort() for key in ("model", "subject"))
    of_group = np.zeros((2, there.size), dtype=np.int32)
    for number, key, texts in zip(of_group, ("model", "subject"), (models, subjects), strict=True):
        number[present["group"].to_numpy()] = present[key].replace_strict(texts, np.arange(texts.len())).to_numpy()
    of_model, of_subject = of_group
    ends, problem, which = _line_up(of_subject, group, name, subjects.len())
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
    own = problem_hashes(hashed(subjects)[which[0]], hashed(names.gather(which[1])))
    if cluster is not None:
        own = cluster_keys(rows[cluster].gather(_first_model(of_model[group], problem)), own)
    here = Place(groups["benchmark"][0], None, groups["protocol"][0], models.to_list())
    return Board(here, spans, attempts, scores, Units.of(own))


def _line_up(
    of_group: NDArray[np.int32], group: Codes, name: Codes, subjects: int
) -> tuple[Ints, NDArray[np.int32], tuple[Ints, Ints]]:
    """Number the distinct (subject, name) in their order: where each subject ends, each row's number, and the two."""
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
    return np.searchsorted(known, names * np.arange(1, subjects + 1)), number, np.divmod(known, names)


def _first_model(model: NDArray[np.int32], problem: NDArray[np.int32]) -> Ints:
    """For each problem the row of the first model that attempted it."""
    order = np.lexsort((model, problem))
    return order[np.flatnonzero(np.diff(problem[order], prepend=-1))]


def cluster_keys(values: pl.Series, alone: Words) -> Words:
    """One number for all problems of a cluster; a problem without one keeps its own."""
    names = values.cast(pl.String)
    return np.where(names.is_null().to_numpy(), alone, hashed(names))
