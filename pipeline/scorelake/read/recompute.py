"""Compare from the counts of a snapshot what no table has: any metric, two protocols, or two runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from scorelake.comparing.pairs import protocol_difference
from scorelake.comparing.tables import comparable_metrics
from scorelake.comparing.two import Scorer, compare_two
from scorelake.errors import UsageError
from scorelake.metrics import Metric
from scorelake.publish.snapshot import Output, locked
from scorelake.read.names import matches_protocol
from scorelake.schemas import PROBLEM_HISTOGRAM, protocol_label
from scorelake.scoring.buckets import FOLDER, bucket_paths
from scorelake.scoring.choose import Outcomes, choose_compared
from scorelake.scoring.values import problem_values
from scorelake.settings import Settings


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a model, as it was in a run."""

    model: str
    run: str
    """Its id."""
    protocol: str | None = None
    """A filter of the protocol, such as temperature=0.2; None for any."""


@dataclass(frozen=True)
class StoredComparison:
    """One comparison: benchmark, sides, labels of their protocols, and the columns of its row."""

    benchmark: str
    sides: tuple[Side, Side]
    labels: tuple[str, str]
    """Of their protocols."""
    row: dict[str, Any]


class Counted:
    """The problem counts of a snapshot, scanned lazily, and their histogram."""

    def __init__(self, snapshot: Path) -> None:
        self.files = pl.scan_parquet(bucket_paths(snapshot / FOLDER), glob=False)
        self.histogram = pl.read_parquet(snapshot / f"{PROBLEM_HISTOGRAM.name}.parquet", glob=False)

    def outcomes(self, settings: Settings) -> Outcomes:
        """Return the outcomes that the counts of a snapshot have."""
        columns = self.files.collect_schema().names()
        return Outcomes(
            binary=not self.histogram["c"].null_count(),
            rewards="rewards" in columns,
            top_n=int(self.histogram["n"].max() or 0),  # type: ignore[arg-type]
            answers=settings.answers and "answer_counts" in columns,
            earlier=settings.uncertainty.prior_lake is not None,
        )


class Kept:
    """The snapshots of an output that are kept, read when they are asked for."""

    def __init__(self, out: Output) -> None:
        with locked(out) if out.mirror else nullcontext():
            self.out = out.fresh()
        self.manifests: dict[str, Any] = {each["run"]["run_id"]: each for each in self.out.manifests()}
        self._read: dict[str, Counted] = {}

    def shown(self, run: str) -> str:
        """The id of the run that a leaderboard shows, if its counts are still here."""
        if run not in self.manifests:
            raise UsageError(
                f"the counts of run {run}, which this leaderboard shows, are not kept any more, and no table has"
                " what is asked",
                where=self.out.name,
                hint="a later run may have been published and this one removed by `scorelake gc`: open the output "
                "again, or run `scorelake score` again",
            )
        return run

    def run(self, name: str) -> str:
        """The id of the run that a beginning of its id means."""
        matching = [run for run in self.manifests if run == name] or [r for r in self.manifests if r.startswith(name)]
        if len(matching) != 1:
            many = "no run" if not matching else f"{len(matching)} runs"
            raise UsageError(f"{many} {name} here", where="--run", hint=f"kept runs: {', '.join(self.manifests)}")
        return matching[0]

    def counts(self, run: str) -> Counted:
        if run not in self._read:
            if self.out.mirror:
                with locked(self.out):
                    self.out.mirror.complete(run)
            self._read[run] = Counted(self.out.snapshots / run)
        return self._read[run]

    def settings(self, run: str) -> Settings:
        try:
            return Settings.model_validate(json.loads(self.manifests[run]["run"]["settings"]))
        except ValidationError:
            raise UsageError("was made with settings that this version does not know", where=f"run {run}") from None


def compared(kept: Kept, sides: tuple[Side, Side], metric: str, benchmark: str | None) -> list[StoredComparison]:
    """One comparison per benchmark, and per protocol that both sides ran under, or of the two protocols asked for."""
    settings = kept.settings(sides[1].run)
    settings = settings.model_copy(update={"compare": settings.compare.model_copy(update={"metrics": (metric,)})})
    counted = [kept.counts(side.run) for side in sides]
    outcomes = counted[1].outcomes(settings)
    (chosen,) = comparable_metrics(choose_compared(settings, outcomes))
    groups = [_groups(each, side.model, benchmark) for each, side in zip(counted, sides, strict=True)]
    out = []
    for name in sorted(set(groups[0]) & set(groups[1])):
        for a, b in _protocols(sides, groups[0][name], groups[1][name]):
            if a is None or b is None:
                difference = protocol_difference(frozenset(groups[0][name]), frozenset(groups[1][name]))
                out.append(StoredComparison(name, sides, ("", ""), {"lift": None, "claim": difference}))
                continue
            rows = [_rows(*of) for of in zip(counted, sides, (name, name), (a, b), strict=True)]
            labels = [f"{side.model}\0{i}" for i, side in enumerate(sides)]
            scorer = _scorer(chosen, settings, outcomes)
            row = compare_two(labels, rows, name, chosen, scorer, settings).row(0, named=True)
            out.append(StoredComparison(name, sides, (protocol_label(a), protocol_label(b)), row))
    return out


def _scorer(chosen: Metric, settings: Settings, outcomes: Outcomes) -> Scorer:
    return lambda rows: problem_values(rows, [chosen], settings, outcomes)[0]


def _groups(counted: Counted, model: str, benchmark: str | None) -> dict[str, list[str]]:
    """Benchmarks of a model, and its protocols there."""
    mine = counted.histogram.filter(pl.col("model") == model)
    if benchmark is not None:
        mine = mine.filter(pl.col("benchmark") == benchmark)
    protocols = mine.group_by("benchmark").agg(pl.col("protocol").unique().sort())
    return dict(protocols.iter_rows())


def _rows(counted: Counted, side: Side, benchmark: str, protocol: str) -> pl.DataFrame:
    mine = (pl.col("benchmark") == benchmark) & (pl.col("model") == side.model) & (pl.col("protocol") == protocol)
    return counted.files.filter(mine).collect()


def _protocols(
    sides: tuple[Side, Side], ours: Sequence[str], theirs: Sequence[str]
) -> list[tuple[str, str] | tuple[None, None]]:
    """Which protocols of either side to compare: shared ones, or of one model in one run two different ones."""
    mine, other = (
        [
            protocol
            for protocol in side_protocols
            if side.protocol is None or matches_protocol(protocol, protocol_label(protocol), side.protocol)
        ]
        for side, side_protocols in zip(sides, (ours, theirs), strict=True)
    )
    if (sides[0].model, sides[0].run) == (sides[1].model, sides[1].run):
        if sides[0].protocol is None and len(mine) == 2:
            mine, other = mine[:1], mine[1:]
        if len(mine) != 1 or len(other) != 1 or mine == other:
            raise UsageError(
                "a model is compared with itself under two protocols, or in two runs",
                where=sides[0].model,
                hint=f"give --protocol twice, or --run; protocols: {' | '.join(map(protocol_label, ours)) or 'none'}",
            )
        return [(mine[0], other[0])]
    shared: list[tuple[str, str] | tuple[None, None]] = [(each, each) for each in mine if each in other]
    return shared or [(None, None)]
