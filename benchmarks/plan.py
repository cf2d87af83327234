"""How far the design goes: measure the pieces of the job on lakes of 10M attempts, and compute a lake of 1e12.

Everything is measured on one core in new processes; the rest is arithmetic, written out below. Writes figures
and the plan into docs/cluster.md. Run it through make: bench-plan.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lake import LAKES, SIZES, machine
from page import write

ATTEMPTS = 1e12
PARTS = 1 << 12
"""Largest number of buckets: see scorelake.counting.merge."""
LAKES_10M = {lake.layout: lake for lake in SIZES["10m"]}
GB = 2.0**30


# --- measured, each in a process of its own ---------------------------------------------------------------------


def sizes(lake: Path) -> dict[str, float]:
    """What the driver handles per file and per partial, and how long it takes to list a file."""
    from scorelake.lake import listing as lakes

    (task,) = tasks(lake, "/shared/scores/partials", 1)
    bare = replace(task, shard=replace(task.shard, files=()))
    with tempfile.TemporaryDirectory(dir=LAKES) as folder:
        for i in range(2000):
            (Path(folder) / f"part-{i:06d}.parquet").touch()
        listing = _timed(lambda: lakes.listing(folder)) / 2000
    per_file = (len(pickle.dumps(task)) - len(pickle.dumps(bare))) / len(task.shard.files)
    return {"task_bytes_per_file": per_file, "listing_s_per_file": listing}


def counting(lake: Path) -> dict[str, float]:
    """One shard of the whole lake."""
    from scorelake import tasks as count

    with tempfile.TemporaryDirectory(dir=LAKES) as folder:
        (task,) = tasks(lake, folder, 1)
        before = _peak()
        count.count(replace(task, shard=replace(task.shard, files=task.shard.files[:1])))  # to warm up
        seconds = _timed(lambda: count.count(task))
        after = _peak()
        home = Path(folder) / task.name
        partial = count.finished(home)
        assert partial is not None
        size = sum(path.stat().st_size for path in home.glob("*.parquet"))
        return {
            "bytes_per_attempt": task.shard.size / partial.read,
            "attempts_per_s": partial.read / seconds,
            "counting_bytes_per_problem": (after - before) / partial.problems,
            "bytes_per_partial_row": size / partial.problems,
            "verified_bytes_per_s": size / _timed(lambda: count.is_sound(str(home))),
        }


def merging(lake: Path) -> dict[str, float]:
    """Four partials into one bucket; then buckets with next to nothing in them, which is the cost of opening them."""
    from scorelake import tasks as count
    from scorelake.counting.merge import merge, plan_buckets

    with tempfile.TemporaryDirectory(dir=LAKES) as folder, Apart() as apart:
        partials = list(apart.map(count.count, tasks(lake, folder, 4)))
        rows, out = sum(partial.counted for partial in partials), Path(folder) / "run" / "problem_counts"
        out.mkdir(parents=True)
        slices = plan_buckets(Path(folder), partials, out, "error", rows_per_bucket=rows // 4096)[:20]
        opening = _timed(lambda: [merge(bucket) for bucket in slices]) / len(slices) / len(partials)
        (whole,) = plan_buckets(Path(folder), partials, out, "error", rows_per_bucket=10**12)
        (bare,) = plan_buckets(Path(folder), [], out, "error")
        before = _peak()
        seconds = _timed(lambda: merge(whole))
        return {
            "merged_rows_per_s": rows / seconds,
            "merging_bytes_per_row": (_peak() - before) / rows,
            "opening_s_per_partial": opening,
            "bucket_bytes_per_partial": (len(pickle.dumps(whole)) - len(pickle.dumps(bare))) / len(partials),
        }


def scoring(lake: Path) -> dict[str, float]:
    """The rest of the job: what workers do with the parts of the problems, and what the driver does with what they
    tell. Tables per problem stay in files, as those of a large lake do."""
    from scorelake.pipeline import score_lake
    from scorelake.publish.snapshot import Output
    from scorelake.settings import load

    marks: dict[str, float] = {}

    def progress(stage: str, done: int, of: int) -> None:
        marks.setdefault(stage, time.process_time())

    with tempfile.TemporaryDirectory(dir=LAKES) as out, Apart() as apart:
        settings = load(**{"publish.max_problems": 0})
        report = score_lake(str(lake), Output(Path(out)), settings, engine=apart, progress=progress)
        size = sum(path.stat().st_size for path in Path(out).glob("snapshots/*/problem_counts/*"))
    looked = sum(seconds for name, seconds in apart.took.items() if name not in ("count_all", "merge_all"))
    return {
        "looking_s_per_problem": looked / report.problems,
        "snapshot_bytes_per_problem": size / report.problems,
        "driver_s": time.process_time() - marks["scoring"],
        "driver_bytes": _peak(),
    }


def tasks(lake: Path, folder: str, parts: int) -> list[Any]:
    """The lake as so many shards."""
    from scorelake.lake.listing import listing
    from scorelake.settings import Settings
    from scorelake.storage.files import Shard
    from scorelake.tasks import Count

    listed = listing(lake)
    shards = [Shard(listed.root, listed.files[i::parts]) for i in range(parts)]
    return [Count(shard, Settings(), folder) for shard in shards]


class Apart:
    """An engine whose tasks run in another process, so that this one's memory is its own."""

    at_once, memory_gb = 1, None

    def __enter__(self) -> Apart:
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self.took: Counter[str] = Counter()
        """Seconds that each task took, the way there and back included."""
        return self

    def map(self, task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        began = time.perf_counter()
        yield from self.pool.map(task, items)
        self.took[task.__name__] += time.perf_counter() - began

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown()


def _timed(work: Callable[[], object]) -> float:
    """Seconds of processor, all threads together: what others do on the machine does not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


MEASURES = {"sizes": sizes, "counting": counting, "merging": merging, "scoring": scoring}


def measured(layout: str) -> dict[str, float]:
    """Every figure of one layout, on one core."""
    env = os.environ | {"POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    told: dict[str, float] = {}
    for name in MEASURES:
        command = ["taskset", "-c", "0", sys.executable, __file__, name, str(LAKES_10M[layout].path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
        told |= json.loads(done.stdout)
        print(f"  {layout} {name}: {done.stdout.strip()}", file=sys.stderr, flush=True)
    return told


# --- computed -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    cores: int = 1024
    gb_per_core: float = 4.0
    driver_gb: float = 256.0
    hours: float = 24.0
    """A night and a day: what takes longer is broken."""


@dataclass(frozen=True)
class Shape:
    """A lake of 1e12 attempts; problems counts (model, problem) pairs."""

    layout: str
    problems: float

    @property
    def title(self) -> str:
        return f"{self.layout}, {self.problems:.0e} problems x {ATTEMPTS / self.problems:,.0f} attempts"

    def distinct(self, attempts: float) -> float:
        """Problems in a shard of so many attempts."""
        if self.layout == "clustered":
            return max(1.0, attempts * self.problems / ATTEMPTS)
        return self.problems * -math.expm1(-attempts / self.problems)  # hit at least once by draws from all


def plan(shape: Shape, m: dict[str, float], cluster: Cluster, threads: int) -> dict[str, float]:
    """The arithmetic of the design, for tasks of so many cores and their share of memory.

    A shard is 64 MB per GB of that memory, or smaller until what it holds fits; a bucket has a row per kilobyte,
    unless there would be too many of them.
    """
    memory = threads * cluster.gb_per_core
    attempts = 64 * 2**20 * memory / m["bytes_per_attempt"]
    while shape.distinct(attempts) * m["counting_bytes_per_problem"] > memory * GB:
        attempts *= 0.9
    shards, rows = ATTEMPTS / attempts, shape.distinct(attempts)
    total = rows * shards
    buckets = min(PARTS, max(cluster.cores / threads * 2.0, total / (memory * 1e6)))
    opened = shards * buckets
    p = {
        "threads": threads,
        "lake_tb": ATTEMPTS * m["bytes_per_attempt"] / 1e12,
        "shard_mb": attempts * m["bytes_per_attempt"] / 2**20,
        "partials": shards,
        "partial_mb": rows * m["bytes_per_partial_row"] / 1e6,
        "partials_tb": total * m["bytes_per_partial_row"] / 1e12,
        "counting_gb": rows * m["counting_bytes_per_problem"] / GB,
        "counting_h": ATTEMPTS / m["attempts_per_s"] / cluster.cores / 3600,
        "verifying_h": total * m["bytes_per_partial_row"] / m["verified_bytes_per_s"] / cluster.cores / 3600,
        "buckets": buckets,
        "rows_per_bucket": total / buckets,
        "merging_gb": total / buckets * m["merging_bytes_per_row"] / GB,
        "merging_h": total / m["merged_rows_per_s"] / cluster.cores / 3600,
        "opening_h": opened * m["opening_s_per_partial"] / (cluster.cores / threads) / 3600,
        "sent_gb": opened * m["bucket_bytes_per_partial"] / GB,
        "listing_h": shards * m["listing_s_per_file"] / 3600,
        "looking_h": shape.problems * m["looking_s_per_problem"] / cluster.cores / 3600,
        "driver_h": m["driver_s"] / 3600,
        "publishing_h": shape.problems * m["snapshot_bytes_per_problem"] / m["verified_bytes_per_s"] / 3600,
        "driver_gb": m["driver_bytes"] / GB,
    }
    return p | {"hours": sum(p[key] for key in p if key.endswith("_h") and key != "verifying_h")}


def quickest(shape: Shape, m: dict[str, float], cluster: Cluster) -> dict[str, float]:
    """The plan with the smallest tasks that are about as quick as any: threads of one task do not add up for ever."""
    every = [plan(shape, m, cluster, threads) for threads in (1, 2, 4, 8, 16)]
    plans = [p for p in every if p["merging_gb"] <= p["threads"] * cluster.gb_per_core] or every[-1:]
    enough = 1.25 * min(p["hours"] for p in plans)
    return next(p for p in plans if p["hours"] <= enough)


def breaks(p: dict[str, float], cluster: Cluster) -> str:
    """What exceeds the cluster, worst first; or what will, and by how much more it may grow."""
    limits = {
        "memory of the driver while scoring": p["driver_gb"] / cluster.driver_gb,
        "time of the driver": (p["driver_h"] + p["publishing_h"]) / cluster.hours,
        "memory of a merging task": p["merging_gb"] / cluster.gb_per_core / p["threads"],
        "time of counting": p["counting_h"] / cluster.hours,
        "time of merging": p["merging_h"] / cluster.hours,
        "opening every partial for every bucket": p["opening_h"] / cluster.hours,
        "task descriptions sent by the driver (1 GB/s)": p["sent_gb"] / 3600 / cluster.hours,
    }
    order = sorted(((ratio, name) for name, ratio in limits.items()), reverse=True)
    over = [f"{name} ({ratio:,.1f} times too much)" for ratio, name in order if ratio > 1]
    return "; ".join(over) or f"nothing; first would be {order[0][1]} ({order[0][0]:.0%} of what there is)"


SHAPES = [Shape(layout, problems) for layout in ("clustered", "shuffled") for problems in (1e7, 1e9)]
ROWS = {
    "lake_tb": "lake, TB",
    "threads": "cores of a task, with 4 GB each",
    "shard_mb": "one shard, MB",
    "partials": "partials (shards)",
    "partial_mb": "one partial, MB",
    "partials_tb": "all partials, TB",
    "counting_gb": "memory of a counting task, GB",
    "counting_h": "counting, h",
    "verifying_h": "verifying partials of an earlier run, h",
    "buckets": "buckets",
    "rows_per_bucket": "rows of a bucket",
    "merging_gb": "memory of a merging task, GB",
    "merging_h": "merging, h",
    "opening_h": "opening partials x buckets, h",
    "sent_gb": "task descriptions through the driver, GB",
    "listing_h": "listing files on the driver, h",
    "looking_h": "looking at problems for comparisons, h",
    "driver_h": "scoring and comparing on the driver, h",
    "publishing_h": "checksums of the snapshot on the driver, h",
    "driver_gb": "memory of the driver, GB",
    "hours": "all together, h",
}
FIGURES = {
    "bytes_per_attempt": ("lake, bytes per attempt", 1.0),
    "attempts_per_s": ("counting, million attempts per second and core", 1e-6),
    "counting_bytes_per_problem": ("memory of counting, bytes per problem of the shard", 1.0),
    "bytes_per_partial_row": ("partial, bytes per problem", 1.0),
    "verified_bytes_per_s": ("verifying a partial, MB per second and core", 1e-6),
    "merged_rows_per_s": ("merging, million partial rows per second and core", 1e-6),
    "merging_bytes_per_row": ("memory of a bucket, bytes per partial row", 1.0),
    "opening_s_per_partial": ("opening one partial for one bucket, ms", 1e3),
    "bucket_bytes_per_partial": ("description of a bucket, bytes per partial", 1.0),
    "task_bytes_per_file": ("description of a shard, bytes per file", 1.0),
    "listing_s_per_file": ("listing, ms per file", 1e3),
    "looking_s_per_problem": ("looking at problems, microseconds per problem, one core", 1e6),
    "snapshot_bytes_per_problem": ("snapshot, bytes per problem", 1.0),
    "driver_s": ("scoring, comparing and publishing on the driver, seconds, whatever the problems", 1.0),
    "driver_bytes": ("memory of the driver at its peak, MB, whatever the problems", 1e-6),
}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "< 0.001"


def tables(m: dict[str, dict[str, float]], cluster: Cluster) -> tuple[str, str]:
    lines = [f"| measured | {' | '.join(m)} |", "|---|" + "---|" * len(m)]
    for key, (title, scale) in FIGURES.items():
        lines.append(f"| {title} | {' | '.join(number(told[key] * scale) for told in m.values())} |")
    measured_table = "\n".join(lines)
    plans = {shape: quickest(shape, m[shape.layout], cluster) for shape in SHAPES}
    lines = [f"| 1e12 attempts | {' | '.join(shape.title for shape in plans)} |", "|---|" + "---|" * len(plans)]
    for key, title in ROWS.items():
        lines.append(f"| {title} | {' | '.join(number(p[key]) for p in plans.values())} |")
    lines.append(f"| breaks | {' | '.join(breaks(p, cluster) for p in plans.values())} |")
    return measured_table, "\n".join(lines)


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(MEASURES[sys.argv[1]](Path(sys.argv[2]))))
        return
    LAKES.mkdir(exist_ok=True)
    for lake in LAKES_10M.values():
        lake.make()
    cluster = Cluster()
    sized, planned = tables({layout: measured(layout) for layout in LAKES_10M}, cluster)
    load = os.getloadavg()[1]
    write("sizes", f"{machine()}. Lakes of 10M attempts and 1M problems; load average {load:.1f}.\n\n{sized}")
    head = (
        f"A cluster of {cluster.cores:,} cores with {cluster.gb_per_core:g} GB each and a driver with "
        f"{cluster.driver_gb:g} GB. More memory than\nthat, or more than {cluster.hours:g} h, counts as broken. "
        "A task has as many cores, up to 16, as\nmake the whole about as quick as it gets, taken to be that much "
        "faster, which is optimistic."
    )
    write("plan", f"{head}\n\n{planned}")


if __name__ == "__main__":
    main()
