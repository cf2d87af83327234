"""Write a synthetic lake for demos, tests and benchmarks, in chunks, from a seed.

Models differ in strength, subjects in difficulty, and problems of a subject by a Beta distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import expit, logit

from scorelake.errors import UsageError
from scorelake.metrics.distributions import Floats, Ints
from scorelake.threads import parallel_map

SUBJECTS = ("algebra", "biology", "chemistry", "code", "geometry", "history", "law", "logic", "physics", "statistics")
LEVELS = ("easy", "medium", "hard")
ROWS = 1 << 20
"""Rows generated and written at a time."""


@dataclass(frozen=True)
class Plan:
    """Size and shape of a lake. `attempts` is the largest n; with `ragged` the smallest is half of it."""

    models: int
    problems: int
    attempts: int
    seed: int = 0
    layout: str = "clustered"
    subjects: int = 5
    ragged: bool = True
    ungraded: float = 0.01
    rewards: bool = False
    files: int | None = None
    """Number of files; by default one per model (clustered) or one per two million attempts (shuffled)."""
    steps: int = 0
    """Checkpoints of each model, 10 training steps apart: they learn fast, then slowly, and forget a little."""
    costs: bool = False


def write(lake: Path, plan: Plan) -> int:
    """Write the lake and return its number of attempts; an existing folder must be empty."""
    if min(plan.models, plan.problems, plan.attempts) < 1 or plan.steps < 0:
        raise UsageError("models, problems and attempts must be at least 1, steps at least 0")
    if not (1 <= plan.subjects <= len(SUBJECTS)) or not (0 <= plan.ungraded < 1):
        raise UsageError(f"subjects must be 1 to {len(SUBJECTS)}, ungraded a share below 1")
    if lake.exists() and any(lake.iterdir()):
        raise UsageError("the folder is not empty", where=str(lake), hint="name a new folder")
    generator = _Generator(plan)
    parallel_map(lambda file: _write(lake, generator, *file), generator.files())
    return generator.total


def _write(lake: Path, generator: _Generator, path: str, rows: Iterator[Ints]) -> None:
    target = lake / path
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    for chunk, part in enumerate(rows):
        table = generator.table(part, [generator.plan.seed, *path.encode(), chunk])
        writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd", write_page_checksum=True)
        writer.write_table(table)
    if writer:
        writer.close()


class _Generator:
    """Strength of models, difficulty of problems, and number of attempts of every (model, problem)."""

    def __init__(self, plan: Plan) -> None:
        rng = np.random.default_rng([plan.seed, 1])
        self.plan = plan
        self.subject: Ints = np.arange(plan.problems) * plan.subjects // plan.problems
        easiness = rng.normal(0, 0.7, plan.subjects)[self.subject]
        rate = np.clip(rng.beta(0.9, 0.9, plan.problems), 0.002, 0.998)
        self.problem: Floats = logit(rate) + easiness
        self.level: Ints = np.digitize(-self.problem, np.quantile(-self.problem, [1 / 3, 2 / 3]))
        strength = np.sort(rng.normal(0, 1.0, plan.models))[::-1]
        time = np.arange(1, plan.steps + 1) / max(plan.steps, 1) if plan.steps else np.ones(1)
        learned = 2 * (1 - (1 - time) ** 2) - 3 * np.maximum(time - 0.8, 0) - 1.4 if plan.steps else np.zeros(1)
        self.strength: Floats = (strength[:, None] + learned).ravel()  # of each point: a model, or one of its steps
        self.points = self.strength.size
        low = max(1, plan.attempts // 2) if plan.ragged else plan.attempts
        n = rng.integers(low, plan.attempts + 1, self.points * plan.problems)
        self.start: Ints = np.concatenate([[0], np.cumsum(n)])
        self.total = int(self.start[-1])
        self.names = pa.array([f"problem-{i:06d}" for i in range(plan.problems)])

    def files(self) -> Iterator[tuple[str, Iterator[Ints]]]:
        """Yield the path of each file and the indices of its attempts, in chunks."""
        plan = self.plan
        if plan.layout == "clustered":
            parts = max(1, (plan.files or self.points) // self.points)
            for m in range(self.points):
                edges = np.linspace(m * plan.problems, (m + 1) * plan.problems, parts + 1).astype(int)
                for i in range(parts):
                    low, high = int(self.start[edges[i]]), int(self.start[edges[i + 1]])
                    folder = f"model={self.model(m)}" + (f"/step={self.step(m)}" if plan.steps else "")
                    yield f"{folder}/part-{i}.parquet", _chunks(low, high)
            return
        parts = plan.files or max(1, -(-self.total // (2 * ROWS)))
        step = _stride(self.total, self.plan.seed)
        edges = np.linspace(0, self.total, parts + 1).astype(int)
        for i in range(parts):
            day = np.datetime64("2026-01-01") + i
            shuffled = (chunk * step % self.total for chunk in _chunks(int(edges[i]), int(edges[i + 1])))
            yield f"date={day}/part-0.parquet", shuffled

    def table(self, attempt: Ints, seed: list[int]) -> pa.Table:
        """Return the attempts with the given indices."""
        plan, rng = self.plan, np.random.default_rng(seed)
        if plan.layout == "shuffled":
            attempt = rng.permutation(attempt)
        order = np.argsort(attempt) if plan.layout == "shuffled" else np.arange(attempt.size)
        pair = np.empty(attempt.size, dtype=np.int64)
        pair[order] = np.searchsorted(self.start, attempt[order], side="right") - 1  # in order: many times faster
        m, p = pair // plan.problems, pair % plan.problems
        ability = self.strength[m] + self.problem[p]
        is_ungraded, passed = rng.random(attempt.size) < plan.ungraded, rng.random(attempt.size) < expit(ability)
        columns = {
            "benchmark": _dictionary(np.zeros(attempt.size, dtype=np.int32), ["synth"]),
            "subject": _dictionary(self.subject[p], list(SUBJECTS[: plan.subjects])),
            "problem_id": self.names.take(p),
            "attempt": pa.array((attempt - self.start[pair]).astype(np.int32)),
            "passed": pa.array(passed, mask=is_ungraded),
            "difficulty": _dictionary(self.level[p], list(LEVELS)),
        }
        if plan.rewards:
            score = np.round(expit(ability + rng.normal(0, 1, attempt.size)), 3)
            columns["score"] = pa.array(score, mask=is_ungraded)
        if plan.costs:  # hard problems and failed attempts are dearer
            cost = 0.01 * np.exp(-0.3 * self.problem[p] + rng.normal(0, 0.5, attempt.size)) * (1.5 - passed)
            columns["cost_usd"] = pa.array(np.round(cost, 6))
        if plan.layout == "shuffled":
            named = {"model": _dictionary(m, [self.model(i) for i in range(self.points)])}
            columns = named | ({"step": pa.array(self.step(m))} if plan.steps else {}) | columns
        return pa.table(columns)

    def model(self, point: int) -> str:
        """Return the name of the model of a point; strength falls with its number."""
        return f"model-{point // max(self.plan.steps, 1):02d}"

    def step(self, point: Any) -> Any:
        """Return the training step of points."""
        return 10 * (point % max(self.plan.steps, 1) + 1)


def _dictionary(code: Ints, names: list[str]) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(code.astype(np.int32), pa.array(names)).cast(pa.string())


def _chunks(low: int, high: int) -> Iterator[Ints]:
    return (np.arange(at, min(at + ROWS, high)) for at in range(low, high, ROWS))


def _stride(total: int, seed: int) -> int:
    """Return a step near the golden ratio of the total and coprime to it: its multiples visit every attempt once."""
    step = max(1, int(total * 0.6180339887498949) + seed % 97)
    while gcd(step, total) != 1:
        step += 1
    return step
