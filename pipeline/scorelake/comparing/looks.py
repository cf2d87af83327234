"""One part of the problems, looked at: what its scores come to on every board, and for every pair. It all adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scorelake.comparing.boards import Benchmark, Board
from scorelake.metrics.chance import Units
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.gaps import Apart, Sums, Table, Wins
from scorelake.metrics.matrix import Matrix, Places, common, places
from scorelake.problems import Cells, Part, lines
from scorelake.survey import boards

At = tuple[int, int]
"""A board: the number of its benchmark, and 0 for the whole of it or the number of its subject, from 1 on."""


@dataclass(frozen=True)
class Look:
    """What a board's models come to."""

    shared: Ints
    """Problems that two models both attempted, models x models; one number where that is all of them."""
    usable: list[Ints]
    """Problems on which both have the metric, for each metric."""
    sums: list[Sums]
    """For each metric."""

    def __add__(self, other: Look) -> Look:
        return Look(
            self.shared + other.shared,
            [mine + theirs for mine, theirs in zip(self.usable, other.usable, strict=True)],
            [mine + theirs for mine, theirs in zip(self.sums, other.sums, strict=True)],
        )


@dataclass(frozen=True)
class Ask:
    """Pairs of models, by their numbers on a board, to be compared by one metric."""

    at: At
    metric: int
    a: Ints
    b: Ints
    apart: bool
    """They are scored on different problems, and need sums of their own."""


@dataclass(frozen=True)
class Answer:
    wins: Wins
    apart: Apart | None

    def __add__(self, other: Answer) -> Answer:
        both = None if self.apart is None or other.apart is None else self.apart + other.apart
        return Answer(self.wins + other.wins, both)


@dataclass(frozen=True)
class Lined:
    """What the models of a benchmark did on problems, models x problems."""

    attempted: Places
    """The place of the cell, from 1 on; 0 for nothing."""
    units: Units
    spans: dict[str, tuple[int, int]]
    """Where the columns of each subject begin, and where they end."""


class Glance:
    """One part, lined up for every benchmark that it has problems of."""

    def __init__(self, cells: Cells, asked: Sequence[Benchmark], lined: dict[int, Lined]) -> None:
        """`lined` is by the number of the benchmark."""
        self.cells, self.asked, self.lined = cells, asked, lined

    @classmethod
    def at(cls, part: Part, cells: Cells, asked: Sequence[Benchmark], cluster: str | None) -> Glance:
        """The problems of a part."""
        number = {(each.whole.place.benchmark, each.whole.place.protocol): i for i, each in enumerate(asked)}
        lined = {}
        for board, groups in boards(part.groups):
            found = lines(part, groups, cluster) if board in number else None
            if found is None:
                continue
            benchmark = asked[number[board]]
            models = {text: i for i, text in enumerate(benchmark.whole.place.models)}
            row = np.zeros(part.groups.height, dtype=np.int64)
            row[groups] = [models.get(text, -1) for text in part.groups["model"].gather(groups)]
            attempted = np.zeros((len(models), found.key.size), dtype=places(cells.n.size))
            attempted[row[found.group], found.problem] = cells.cell(found.rows) + 1
            units = Units.among(found.key, benchmark.known, benchmark.clustered)
            lined[number[board]] = Lined(attempted, units, found.spans)
        return cls(cells, asked, lined)

    def look(self, wanted: Sequence[At]) -> dict[At, Look]:
        """The boards that have a problem here."""
        return {at: look for at in wanted if (look := self._look(at)) is not None}

    def answer(self, asks: Sequence[Ask]) -> dict[int, Answer]:
        """What is asked, by its number, where there is a problem here."""
        out = {}
        for i, ask in enumerate(asks):
            table = self._table(ask.at, ask.metric)
            if table is not None:
                apart = table.apart(ask.a, ask.b) if ask.apart else None
                out[i] = Answer(table.wins(ask.a, ask.b), apart)
        return out

    def _cut(self, at: At) -> tuple[Places, Ints, Board] | None:
        """What the models of a board did, and the units of its problems."""
        benchmark, here = self.asked[at[0]], self.lined.get(at[0])
        if here is None or at[1] == 0:
            return None if here is None else (here.attempted, here.units.of_problem, benchmark.whole)
        board = benchmark.subjects[at[1] - 1]
        low, high = here.spans.get(board.place.subject or "", (0, 0))
        if low == high:
            return None
        mine = here.attempted[:, low:high]
        if len(board.place.models) < len(benchmark.whole.place.models):
            where = {text: i for i, text in enumerate(benchmark.whole.place.models)}
            mine = mine[[where[text] for text in board.place.models]]
        return mine, here.units.of_problem[low:high], board

    def _table(self, at: At, metric: int) -> Table | None:
        cut = self._cut(at)
        if cut is None:
            return None
        attempted, unit, board = cut
        return Table(Matrix(attempted, self._values(metric)), unit, board.steps[metric], self.cells.place is not None)

    def _values(self, metric: int) -> Floats:
        return np.concatenate([[np.nan], self.cells.values[metric]])

    def _look(self, at: At) -> Look | None:
        cut = self._cut(at)
        if cut is None:
            return None
        shared = common(cut[0], np.concatenate([[False], self.cells.n > 0]))
        usable, sums = [], []
        for metric in range(len(self.cells.values)):
            table = self._table(at, metric)
            assert table is not None
            usable.append(common(cut[0], table.scored))
            sums.append(table.sums())
        return Look(shared, usable, sums)


class Alone:
    """A single part, as all parts together."""

    def __init__(self, glance: Glance) -> None:
        self.glance = glance

    def look(self, wanted: Sequence[At]) -> dict[At, Look]:
        return self.glance.look(wanted)

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        found = self.glance.answer(asks)
        return [found[i] for i in range(len(asks))]
