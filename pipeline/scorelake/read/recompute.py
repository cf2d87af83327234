"""Compare from the counts of snapshots what no table has: any metric, two protocols, or two runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.comparing.tables import compare_two, protocol_difference
from scorelake.errors import UsageError
from scorelake.metrics.families import Metric
from scorelake.publish.snapshot import Manifest, Output, locked, match_runs, stored_settings
from scorelake.read.claim import PairRequest, PairResult
from scorelake.read.format import check_names, check_protocols, matches_protocol
from scorelake.schemas import PROBLEM_HISTOGRAM
from scorelake.scoring.choose import Outcomes, choose_compared, split_outcomes
from scorelake.scoring.survey import FOLDER, bucket_paths
from scorelake.settings import Settings
from scorelake.text import protocol_label


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a model as it was in a run, and the counts of that run."""

    model: str
    run: str  # its id
    settings: Settings  # of the run
    counts: pl.LazyFrame
    histogram: pl.DataFrame
    parts: dict[str, tuple[Outcomes, Settings]]  # of each benchmark, by what its attempts have
    protocol: str | None = None  # A filter of the protocol, such as temperature=0.2; None for any

    def protocols(self, benchmark: str | None) -> dict[str, list[str]]:
        """Return the protocols of the model by benchmark."""
        rows = self.histogram.filter(model=self.model, **({} if benchmark is None else {"benchmark": benchmark}))
        return dict(rows.group_by("benchmark").agg(pl.col("protocol").unique().sort()).iter_rows())

    def metric(self, name: str, benchmark: str) -> tuple[Metric, Settings, Outcomes] | None:
        """Return a metric with what its values depend on; None if the benchmark's attempts are of another kind."""
        outcomes, settings = self.parts[benchmark]
        compare = settings.compare.model_copy(update={"metrics": (name,)})
        settings = settings.model_copy(update={"compare": compare})
        metrics = choose_compared(settings, outcomes)
        return (metrics[0], settings, outcomes) if metrics else None

    def rows(self, benchmark: str, protocol: str) -> pl.DataFrame:
        return self.counts.filter(benchmark=benchmark, model=self.model, protocol=protocol).collect()

    def selects(self, protocol: str) -> bool:
        return self.protocol is None or matches_protocol(protocol, protocol_label(protocol), self.protocol)


@dataclass(frozen=True)
class StoredPair:
    """Problem counts of both sides on one benchmark; without rows, `claim` is the reason."""

    benchmark: str
    sides: tuple[pl.DataFrame, ...]
    described: dict[str, Any]  # names of both sides, their protocol, and their common problems
    metric: Metric
    settings: Settings
    outcomes: Outcomes
    claim: str = ""


def compare_stored(
    out: str, current: str, request: PairRequest, metric: str, settings: dict[str, Any]
) -> list[PairResult]:
    """Return one comparison per benchmark, and per shared protocol or of the two requested protocols."""
    results = []
    names = [f"{model}\0{i}" for i, model in enumerate((request.model_a, request.model_b))]
    for pair in stored_pairs(out, current, request, metric):
        row: dict[str, Any] = {"lift": None, "claim": pair.claim}
        if pair.sides:
            of = pair.benchmark, pair.metric, pair.settings, pair.outcomes
            row = compare_two(names, pair.sides, *of).row(0, named=True)
        results.append(PairResult(pair.benchmark, metric=metric, row=row, settings=settings, **pair.described))
    return results


def stored_pairs(out: str, current: str, request: PairRequest, metric: str) -> list[StoredPair]:
    """Read both sides of every benchmark of A, by shared protocol or by the two requested protocols."""
    a, b = sides = _sides(out, current, request)
    ours, theirs = (side.protocols(request.benchmark) for side in sides)
    pairs = []
    for benchmark in sorted(ours) if ours.keys() & theirs.keys() else ():
        how = (b if benchmark in theirs else a).metric(metric, benchmark)
        if how is None:
            continue
        if benchmark not in theirs:
            claim = f"not comparable: {b.model} has no graded attempt on it"
            pairs.append(StoredPair(benchmark, (), _describe_sides(a, b, ("", "")), *how, claim))
            continue
        shared = _protocol_pairs(a, b, ours[benchmark], theirs[benchmark])
        for pair in shared:
            rows = tuple(side.rows(benchmark, protocol) for side, protocol in zip(sides, pair, strict=True))
            labels = protocol_label(pair[0]), protocol_label(pair[1])
            pairs.append(StoredPair(benchmark, rows, _describe_sides(a, b, labels), *how))
        if not shared:
            claim = protocol_difference(frozenset(ours[benchmark]), frozenset(theirs[benchmark]))
            pairs.append(StoredPair(benchmark, (), _describe_sides(a, b, ("", "")), *how, claim))
    return pairs


def _sides(out: str, current: str, request: PairRequest) -> tuple[Side, Side]:
    """Return both sides with the counts of their runs; raise if a run or a model does not exist."""
    output = Output.at(out)
    with locked(output) if output.mirror else nullcontext():
        output = output.fresh()
    manifests = {each["run"]["run_id"]: each for each in output.manifests()}
    numbers, runs = {run_id: manifest["run"]["number"] for run_id, manifest in manifests.items()}, list[str]()
    for name in request.runs:
        matching = match_runs(name, numbers)
        if len(matching) != 1:
            many = "no run" if not matching else f"{len(matching)} runs"
            raise UsageError(f"{many} {name} here", where="--run", hint=f"kept runs: {', '.join(manifests)}")
        runs += matching
    if len(runs) < 2 and current not in manifests:
        what = f"the counts of run {current}, which this leaderboard shows, are not kept any more, and no table has"
        hint = "a later run may have been published and this one removed by `scorelake gc`: open the output again, "
        hint += "or run `scorelake score` again"
        raise UsageError(f"{what} what is asked", where=output.name, hint=hint)
    runs += [current] * (2 - len(runs))
    if output.mirror:
        with locked(output):
            for run in set(runs):
                output.mirror.complete(run)
    protocols = (request.protocols * 2)[:2] or (None, None)
    a, b = zip((request.model_a, request.model_b), runs, protocols, strict=True)
    return _side(output.snapshots, manifests, *a), _side(output.snapshots, manifests, *b)


def _side(snapshots: Path, manifests: dict[str, Manifest], model: str, run: str, protocol: str | None) -> Side:
    histogram = pl.read_parquet(snapshots / run / f"{PROBLEM_HISTOGRAM.name}.parquet", glob=False)
    check_names("model", histogram["model"].unique().sort().to_list(), (model,))
    check_protocols(histogram["protocol"].unique(), (protocol,))
    counts = pl.scan_parquet(bucket_paths(snapshots / run / FOLDER), glob=False)
    settings, columns = stored_settings(manifests[run]), counts.collect_schema().names()
    verdicts = histogram.group_by("benchmark").agg(pl.col("c").is_not_null().all())
    others = ["rewards" in columns, settings.answers and "answer_counts" in columns]
    kinds = manifests[run].get("kinds") or {name: [has, *others] for name, has in verdicts.iter_rows()}  # before 0.2
    split = split_outcomes(kinds, histogram, settings).values()
    parts = {name: (each, each.settings(settings)) for each, names in split for name in names}
    return Side(model, run, settings, counts, histogram, parts, protocol)


def _protocol_pairs(a: Side, b: Side, ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the protocols to compare: shared ones, or of one model in one run two different ones."""
    mine, other = list(filter(a.selects, ours)), list(filter(b.selects, theirs))
    if (a.model, a.run) != (b.model, b.run):
        return [(protocol, protocol) for protocol in mine if protocol in other]
    if a.protocol is None and len(mine) == 2:
        mine, other = mine[:1], mine[1:]
    if len(mine) != 1 or len(other) != 1 or mine == other:
        raise UsageError(
            "a model is compared with itself under two protocols, or in two runs",
            where=a.model,
            hint=f"give --protocol twice, or --run; protocols: {' | '.join(map(protocol_label, ours)) or 'none'}",
        )
    return [(mine[0], other[0])]


def _describe_sides(a: Side, b: Side, labels: tuple[str, str]) -> dict[str, Any]:
    """Name both sides so that they differ, and describe their common problems."""
    names, described = [a.model, b.model], {"protocol": labels[0]}
    if labels[0] != labels[1]:
        names = [f"{name} ({label})" for name, label in zip(names, labels, strict=True)]
        described = {"protocol": "", "common": "attempted under both protocols"}
    if a.run != b.run:
        names = [f"{name} (run {side.run})" for name, side in zip(names, (a, b), strict=True)]
        one, two = a.settings.counting(), b.settings.counting()
        changed = sorted(key for key in one | two if one.get(key) != two.get(key))
        described["common"] = "attempted in both runs, which may share attempts"
        described["common"] += f"; settings differ: {', '.join(changed)}" if changed else ""
    return described | {"a": names[0], "b": names[1]}
