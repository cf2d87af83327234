"""What an engine does with the parts of the problems: score them, look at them, and compare models on them.

A part is a file of problem_counts, with all models of its problems. What is told of parts adds up: whoever asks holds
numbers of groups, of models and of pairs, however many problems there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from scorelake.comparing.boards import Benchmark
from scorelake.comparing.evidence import comparable
from scorelake.comparing.graders import Noise, noise
from scorelake.comparing.looks import Answer, Ask, At, Glance, Look
from scorelake.engines import Engine
from scorelake.metrics.distributions import Ints
from scorelake.problems import Part, Recent
from scorelake.schemas import PROBLEM_SCORE
from scorelake.scoring import traced
from scorelake.scoring.choose import Outcomes, choose, choose_compared
from scorelake.scoring.sheets import Sheet, sheets
from scorelake.scoring.values import Scored
from scorelake.settings import Settings
from scorelake.storage.disk import storage_errors
from scorelake.threads import parallel_map

if TYPE_CHECKING:
    from scorelake.storage.mirror import Mirror

Key = TypeVar("Key")
Sum = TypeVar("Sum", Look, Answer)


@dataclass(frozen=True)
class Work:
    """One part, and what it is scored by."""

    path: str
    problems: int
    settings: Settings
    outcomes: Outcomes
    mirror: Mirror | None = None
    """Set where other machines made the part, or will use what comes of it."""

    def here(self) -> Part:
        """The part on this machine."""
        path = Path(self.path)
        if self.mirror is not None:
            path = Path(self.mirror.here(self.path))
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self.mirror.bring_files([path])
        return Part.read(path)

    def __str__(self) -> str:
        return Path(self.path).stem


@dataclass(frozen=True)
class Told:
    """What the problems of one part come to, where that does not follow from n and c."""

    sheets: list[Sheet]
    noise: Noise | None


@dataclass(frozen=True)
class Asked:
    """Some parts, and what is asked of them: boards to look at, or pairs to compare."""

    works: tuple[Work, ...]
    benchmarks: Sequence[Benchmark]
    pairs: tuple[Ints, Ints]
    """The distinct (n, c) of all parts."""
    wanted: Sequence[At] = ()
    asks: Sequence[Ask] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.works))


def score_all(works: Sequence[Work]) -> list[Told]:
    """Score parts; values of problems that were asked for are written beside their counts."""
    return [_score(work) for work in works]


def _score(work: Work) -> Told:
    scored = Scored(work.here(), work.settings, work.outcomes)
    told = Told(sheets(scored, choose(work.settings, work.outcomes)), noise(scored.part))
    values = traced.by_problem(scored)
    if values is not None:
        _write(values, scored.part.path, work.mirror)
    return told


def _write(values: pl.DataFrame, counts: Path, mirror: Mirror | None) -> None:
    path = counts.parent.with_name(PROBLEM_SCORE.name) / counts.name
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        values.write_parquet(path)
    if mirror is not None:
        mirror.send_file(path)


def look_all(task: Asked) -> dict[At, Look]:
    """What the models of boards come to on these parts."""
    at_once = pl.thread_pool_size()
    return _added(parallel_map(lambda work: _glance(work, task).look(task.wanted), task.works, at_once))


def answer_all(task: Asked) -> dict[int, Answer]:
    """What pairs of models come to on these parts."""
    at_once = pl.thread_pool_size()
    return _added(parallel_map(lambda work: _glance(work, task).answer(task.asks), task.works, at_once))


_LINED_UP: Recent[str, Glance] = Recent()
"""The parts that this process lined up last: it may be asked about them again."""


def forget() -> None:
    """A run is over: nobody will ask about its parts again."""
    _LINED_UP.clear()
    Part.forget()


def _glance(work: Work, task: Asked) -> Glance:
    """A part, lined up; the path of a part names its run."""
    known = _LINED_UP.get(work.path)
    if known is None:
        scored = Scored(work.here(), work.settings, work.outcomes)
        cells = scored.cells(comparable(choose_compared(work.settings, work.outcomes)), task.pairs)
        known = Glance.at(scored.part, cells, task.benchmarks, work.settings.columns.cluster)
        _LINED_UP.keep(work.path, known, work.problems)
    return known


class Spread:
    """All parts, wherever an engine looks at them; see compare.examined.Parts."""

    def __init__(
        self,
        engine: Engine,
        batches: Sequence[tuple[Work, ...]],
        benchmarks: Sequence[Benchmark],
        pairs: tuple[Ints, Ints],
    ) -> None:
        self.engine, self.batches, self.benchmarks, self.pairs = engine, batches, benchmarks, pairs

    def look(self, wanted: Sequence[At]) -> dict[At, Look]:
        tasks = [Asked(batch, self.benchmarks, self.pairs, wanted=wanted) for batch in self.batches]
        return _added(self.engine.map(look_all, tasks))

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        tasks = [Asked(batch, self.benchmarks, self.pairs, asks=asks) for batch in self.batches]
        found = _added(self.engine.map(answer_all, tasks))
        return [found[i] for i in range(len(asks))]


def _added(parts: Iterable[dict[Key, Sum]]) -> dict[Key, Sum]:
    """What is told of the same thing, added up."""
    out: dict[Key, Sum] = {}
    for part in parts:
        for key, told in part.items():
            out[key] = out[key] + told if key in out else told
    return out
