"""Models x problems: what the models of a benchmark did on the same problems, under one protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from scorelake.counts import hashed, problem_hashes
from scorelake.metrics.chance import Units, Words
from scorelake.metrics.draws import Floats, Ints, blocks
from scorelake.metrics.matrix import Matrix, Places, places
from scorelake.problems import Cells, Codes, Problems
from scorelake.settings import Settings
from scorelake.threads import side_by_side


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
    attempted: Places
    """What each model did on each problem, models x problems: a place in the lists below; 0 for nothing."""
    n: Ints
    """Attempts, for each place."""
    values: Sequence[Floats]
    """The values of each metric, for each place."""
    units: Units
    """What is drawn and flipped as a whole."""

    def scores(self) -> Iterator[Matrix]:
        """The scores by each metric, NaN where there is none."""
        return (Matrix(self.attempted, numbers) for numbers in self.values)

    def split(self) -> Iterator[Board]:
        """One board per subject, with the models that attempted any of it."""
        return (self._part(span, slice(*span[1:])) for span in self.spans)

    def _part(self, span: tuple[str, int, int], columns: slice) -> Board:
        attempted = self.attempted[:, columns]
        here = np.flatnonzero(attempted.any(axis=1))
        models = [self.place.models[i] for i in here]
        if here.size < len(attempted):
            attempted = attempted[here]
        place = Place(self.place.benchmark, span[0], self.place.protocol, models)
        units = replace(self.units, of_problem=self.units.of_problem[columns])
        part = Board(place, [span], attempted, self.n, self.values, units)
        return part if self.n.size <= attempted.size else part._own()

    def _own(self) -> Board:
        """The same with lists of what these models did on these problems alone."""
        there = np.zeros(self.n.size, dtype=bool)
        there[0] = True
        there[self.attempted] = True
        place = (np.cumsum(there) - 1).astype(places(int(there.sum())))
        values = [numbers[there] for numbers in self.values]
        return replace(self, attempted=place[self.attempted], n=self.n[there], values=values)


def boards(problems: Problems, cells: Cells, settings: Settings) -> Iterator[Board]:
    """One board at a time, in the order of benchmark and protocol."""
    groups, cluster = problems.groups.with_row_index("group"), settings.columns.cluster
    clusters = None if cluster is None else problems.others([cluster]).to_series()
    attempted = cells.of_problems(cells.n > 0)
    for board in groups.sort("benchmark", "protocol").partition_by("benchmark", "protocol", maintain_order=True):
        inside = attempted
        if board.height < groups.height:
            mine = np.zeros(groups.height, dtype=bool)
            mine[board["group"].to_numpy()] = True
            inside = attempted & mine[problems.group]
        rows = None if inside.all() else np.flatnonzero(inside)
        if rows is None or rows.size:
            yield _board(board, problems, cells, rows, clusters)


def _board(
    groups: pl.DataFrame, problems: Problems, cells: Cells, rows: Ints | None, clusters: pl.Series | None
) -> Board:
    """A board of some groups and of the rows that are theirs, or of all rows."""
    group, name = (each if rows is None else each[rows] for each in (problems.group, problems.name))
    there = np.zeros(int(group.max()) + 1, dtype=bool)
    there[group] = True
    present = groups.filter(pl.col("group").is_in(np.flatnonzero(there)))
    models, subjects = (present[key].unique().sort() for key in ("model", "subject"))
    of_group = np.zeros((2, there.size), dtype=np.int32)
    for number, key, texts in zip(of_group, ("model", "subject"), (models, subjects), strict=True):
        number[present["group"].to_numpy()] = present[key].replace_strict(texts, np.arange(texts.len())).to_numpy()
    of_model, of_subject = of_group
    ends, problem, which = _line_up(of_subject, group, name, subjects.len())
    attempted = np.zeros((models.len(), int(ends[-1])), dtype=places(cells.n.size))

    def place(some: slice) -> None:
        at = of_model[group[some]].astype(np.int64) * attempted.shape[1] + problem[some]
        attempted.ravel()[at] = cells.cell(some if rows is None else rows[some]) + 1

    side_by_side(place, blocks(group.size, 4))
    spans = list(zip(subjects.to_list(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True))
    own = problem_hashes(hashed(subjects)[which[0]], hashed(problems.names.gather(which[1])))
    if clusters is not None:
        first = _first_model(of_model[group], problem)
        own = cluster_keys(clusters.gather(first if rows is None else rows[first]), own)
    here = Place(groups["benchmark"][0], None, groups["protocol"][0], models.to_list())
    values = [np.concatenate([[np.nan], each]) for each in cells.values]
    board = Board(here, spans, attempted, np.concatenate([[0], cells.n]), values, Units.of(own))
    return board if rows is None else board._own()  # what others did on other problems is nothing to this one


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
