"""The same job with and without a Ray cluster, on the same two cores: wall time, and what the driver remembers.

Starts two nodes of one processor each on this machine, then scores lakes in turn with either engine, each in a new
process. Time counts from the start of that process, with the cluster up; processor time is that of the process and
of everything the cluster runs meanwhile. Workers have the priority of everybody else, which Ray would lower.
Writes its table into docs/cluster.md.
Run it through make: bench-ray.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lake import LAKES, SIZES, Lake, machine
from page import write

LAKE = {"10m": SIZES["10m"][0], "100m": SIZES["100m"][0]}
ENGINES = ("local", "ray")


def one(engine: str, lake: str, address: str) -> dict[str, Any]:
    """One run in this process; its peak memory before scoring and at the end."""
    from scorelake import engines
    from scorelake.settings import load

    peaks: dict[str, float] = {}

    def progress(stage: str, done: int, of: int) -> None:
        peaks.setdefault(stage, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    settings = load()
    with (
        tempfile.TemporaryDirectory(dir=LAKES) as out,
        engines.connect(engine, address if engine == "ray" else None, settings) as where,
    ):
        from scorelake.pipeline import score_lake
        from scorelake.publish.snapshot import Output

        report = score_lake(lake, Output(Path(out)), settings, engine=where, progress=progress)
    end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": report.run["rows_read"], "counted_mb": peaks["scoring"], "peak_mb": end}


def alone(engine: str, lake: Lake, address: str) -> dict[str, Any]:
    began = time.perf_counter()
    command = [sys.executable, __file__, "--one", engine, str(lake.path), address]
    with Busy() as busy:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) | {"seconds": time.perf_counter() - began, "processor": busy.seconds}


class Busy:
    """Seconds of processor of all our processes, the cluster's among them: looked at often, since workers vanish."""

    def __enter__(self) -> Busy:
        self.before, self.last = children(), dict[int, int]()
        self.over = threading.Event()
        self.watch = threading.Thread(target=self._look)
        self.watch.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.1):
            self.last |= children()

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.watch.join()
        ticks = sum(last - self.before.get(pid, 0) for pid, last in self.last.items())
        self.seconds = ticks / os.sysconf("SC_CLK_TCK")


def children() -> dict[int, int]:
    """Ticks of processor of every process below this one."""
    told = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            told[int(path.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    ours, before = {os.getpid()}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {pid for pid, (parent, _) in told.items() if parent in ours}
    return {pid: told[pid][1] for pid in ours - {os.getpid()}}


def table(results: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    lines = [
        "| attempts | local | Ray | Ray / local | processor time | driver, counted and merged | driver, at the end "
        "| every time, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for runs in results.values():
        ours, theirs = (min(runs[engine], key=lambda run: run["seconds"]) for engine in ENGINES)
        busy = [run["processor"] for run in (ours, theirs)]
        every = "; ".join(f"{e} {' '.join(format(run['seconds'], '.1f') for run in runs[e])}" for e in ENGINES)
        lines.append(
            f"| {ours['rows']:,} | {ours['seconds']:.1f} s | {theirs['seconds']:.1f} s "
            f"| {theirs['seconds'] / ours['seconds']:.2f} "
            f"| {busy[0]:.1f} s, {busy[1]:.1f} s: {busy[1] / busy[0]:.2f} "
            f"| {theirs['counted_mb']:.0f} MB | {theirs['peak_mb']:.0f} MB | {every} |"
        )
    return "\n".join(lines)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("sizes", nargs="*", default=list(LAKE))
    ask.add_argument("--repeats", type=int, default=3)
    ask.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = ask.parse_args()
    if given.one:
        print(json.dumps(one(*given.one)))
        return
    from ray.cluster_utils import Cluster

    LAKES.mkdir(exist_ok=True)
    cluster, size = Cluster(), {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster.add_node(**size, include_dashboard=False, _system_config={"worker_niceness": 0})
    cluster.add_node(**size)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    try:
        for attempts in given.sizes:
            LAKE[attempts].make()
            runs = results.setdefault(attempts, {engine: [] for engine in ENGINES})
            for _ in range(given.repeats):
                for engine in ENGINES:
                    runs[engine].append(alone(engine, LAKE[attempts], cluster.address))
                    print(f"{attempts:>5} {engine:6} {runs[engine][-1]}", flush=True)
    finally:
        cluster.shutdown()
    load = os.getloadavg()[1]
    write("overhead", f"{machine()}. Load average at the end: {load:.1f}.\n\n{table(results)}")


if __name__ == "__main__":
    main()
