"""The whole job against one bare GROUP BY, on the same files, in the same run.

Makes lakes with `scorelake synth` under benchmarks/lakes, then for each lake, several times in turn: scorelake
end to end (new process, lake to leaderboard.duckdb), DuckDB's GROUP BY and Polars' group_by of the same keys.
Prints times, ratios of the best times, rows per second and core, peak memory and the share of every stage, and
writes RESULTS.md beside this file. Run it through make: bench, bench-100m, bench-1b.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAKES = HERE / "lakes"
STAGES = ("counting", "merging", "scoring", "publishing")
COUNTERS = ("scorelake", "duckdb", "polars")


@dataclass(frozen=True)
class Lake:
    """What synth makes. n is ragged between half of `attempts` and all of it, so three quarters on average."""

    layout: str
    models: int
    problems: int
    attempts: int

    @property
    def path(self) -> Path:
        return LAKES / f"{self.layout}-{self.models}x{self.problems}x{self.attempts}"

    @property
    def keys(self) -> int:
        return self.models * self.problems

    def make(self) -> None:
        if (self.path / "_made").exists():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        flags = {"models": self.models, "problems": self.problems, "attempts": self.attempts, "layout": self.layout}
        options = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        subprocess.run([Path(sys.executable).with_name("scorelake"), "synth", self.path, *options], check=True)
        (self.path / "_made").touch()  # not part of a lake, since it starts with _


SIZES = {
    "10m": [Lake("shuffled", 20, 50_000, 13), Lake("clustered", 20, 50_000, 13)],
    "100m": [
        Lake("shuffled", 20, 50_000, 133),
        Lake("shuffled", 20, 312_500, 21),
        Lake("clustered", 20, 50_000, 133),
    ],
    "1b": [Lake("shuffled", 20, 1_000_000, 66), Lake("clustered", 20, 1_000_000, 66)],
}


# --- one measurement, in a process of its own -----------------------------------------------------------------


def scorelake(lake: Path, out: Path) -> None:
    """The command itself, to its very end; when its work is done, it tells at what time every stage began."""
    from scorelake import cli, pipeline

    work = pipeline.score_lake

    def job(*args: Any, progress: Any, **options: Any) -> Any:
        marks = [("start", time.perf_counter())]

        def noted(stage: str, done: int, of: int) -> None:
            if stage != marks[-1][0]:
                marks.append((stage, time.perf_counter()))
            progress(stage, done, of)

        report = work(*args, progress=noted, **options)
        marks.append(("end", time.perf_counter()))
        stages = {a: round(after - at, 3) for (a, at), (_, after) in pairwise(marks)}
        tell({"keys": report.problems, "rows": report.run["rows_read"], "stages": stages})
        return report

    pipeline.score_lake = job
    sys.argv = ["scorelake", "score", str(lake), "--out", str(out)]
    cli.main()


def duckdb(lake: Path, _: Path) -> None:
    """The query a user would write; its result is counted, not fetched or stored."""
    import duckdb as engine

    query = f"""
        SELECT count(*), sum(n + ungraded) FROM (
            SELECT benchmark, subject, model, problem_id, count(passed) AS n, count(*) FILTER (passed) AS c,
                count(*) - count(passed) AS ungraded
            FROM read_parquet('{lake}/**/*.parquet', hive_partitioning = true)
            GROUP BY ALL)"""
    keys, rows = engine.connect().execute(query).fetchall()[0]
    tell({"keys": keys, "rows": int(rows)})


def polars(lake: Path, _: Path) -> None:
    """The same in Polars, streaming."""
    import polars as pl

    passed = pl.col("passed")
    counts = (
        pl.scan_parquet(f"{lake}/**/*.parquet", hive_partitioning=True)
        .group_by("benchmark", "subject", "model", "problem_id")
        .agg(passed.count().alias("n"), passed.sum().alias("c"), passed.null_count().alias("ungraded"))
        .select(pl.len(), (pl.col("n") + pl.col("ungraded")).cast(pl.Int64).sum())
        .collect(engine="streaming")
    )
    keys, rows = counts.row(0)
    tell({"keys": keys, "rows": rows})


def tell(found: dict[str, Any]) -> None:
    """What was found, and the memory it took, to whoever measures."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found | {"peak_mb": peak}), flush=True)


def alone(who: str, lake: Path) -> dict[str, Any]:
    """Measure in a new process, from its start to its end: imports count."""
    with tempfile.TemporaryDirectory(dir=LAKES) as out:
        command = [sys.executable, __file__, "--one", who, str(lake), out]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
    if done.returncode:
        return {"seconds": None, "failed": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout) | {"seconds": seconds}


# --- all of them ----------------------------------------------------------------------------------------------


def measure(lake: Lake, repeats: int, counters: list[str]) -> dict[str, Any]:
    """Every counter in turn, several times, so that a busy moment hits all alike; the best time of each."""
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in counters}
    for _ in range(repeats):
        for who in counters:
            runs[who].append(alone(who, lake.path))
            print(f"  {who:10} {runs[who][-1]['seconds'] or runs[who][-1]['failed']} s", flush=True)
    done = {who: [run for run in some if run["seconds"]] for who, some in runs.items()}
    best = {who: min(some, key=lambda run: run["seconds"]) for who, some in done.items() if some}
    told = {(run["rows"], run["keys"]) for run in best.values()}
    assert len(told) == 1, f"the counters disagree: {told}"
    return best | {"all": {who: [round(run["seconds"], 2) for run in some] for who, some in done.items()}}


def table(results: list[tuple[Lake, dict[str, Any]]]) -> str:
    cores = len(os.sched_getaffinity(0))
    lines = [
        "| lake | rows | keys | scorelake | DuckDB | Polars | DuckDB / scorelake | rows/s/core | every time, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for lake, best in results:
        ours, theirs = best["scorelake"], best["duckdb"]
        found = (best.get(who) for who in COUNTERS)
        cells = [f"{r['seconds']:.1f} s, {r['peak_mb'] / 1024:.1f} GB" if r else "not run" for r in found]
        speed = ours["rows"] / ours["seconds"] / cores / 1e6
        every = "; ".join(f"{who} {' '.join(map(str, times))}" for who, times in best["all"].items())
        lines.append(
            f"| {lake.layout} | {ours['rows']:,} | {ours['keys']:,} | {' | '.join(cells)} "
            f"| {theirs['seconds'] / ours['seconds']:.2f} | {speed:.1f} M | {every} |"
        )
    lines += ["", "| lake | rows | " + " | ".join(STAGES) + " | start-up |", "|---|---|" + "---|" * 5]
    for lake, best in results:
        ours = best["scorelake"]
        parts = [ours["stages"].get(name, 0.0) for name in STAGES]
        rest = ours["seconds"] - sum(parts)
        shares = " | ".join(f"{part:.2f} s ({part / ours['seconds']:.0%})" for part in (*parts, rest))
        lines.append(f"| {lake.layout} | {ours['rows']:,} | {shares} |")
    return "\n".join(lines)


def machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "polars", "pyarrow", "numpy"))
    told = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in told if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cpu}, {cores} cores, {memory:.0f} GB, Python {platform.python_version()}; {libraries}"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("size", nargs="?", choices=SIZES, default="10m")
    ask.add_argument("--repeats", type=int, default=2)
    ask.add_argument("--without", nargs="*", choices=COUNTERS[2:], default=[], help="it needs 20 GB for 1B rows")
    ask.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = ask.parse_args()
    if given.one:
        who, lake, out = given.one
        {"scorelake": scorelake, "duckdb": duckdb, "polars": polars}[who](Path(lake), Path(out))
        return
    LAKES.mkdir(exist_ok=True)
    results = []
    for lake in SIZES[given.size]:
        print(f"{lake.path.name}", flush=True)
        lake.make()
        counters = [who for who in COUNTERS if who not in given.without]
        results.append((lake, measure(lake, given.repeats, counters)))
    load = os.getloadavg()[1]
    text = f"## {given.size}\n\n{machine()}. Load average at the end: {load:.1f}.\n\n{table(results)}\n"
    print(text)
    write(given.size, text)


def write(name: str, text: str) -> None:
    """Replace one part of RESULTS.md and leave the others; how cost grows follows from all of them."""
    path = HERE / "RESULTS.md"
    head = (
        "# Measured\n\nMade by `make bench`, `make bench-shapes`, `make bench-100m`, `make bench-1b`, "
        "`make bench-nightly`; best of the repeats. The load\n"
        "average tells how busy the machine was: on a busy one the ratios are not those of a quiet one.\n\n"
    )
    old = path.read_text() if path.exists() else head
    parts = {part.split("\n", 1)[0]: f"## {part}" for part in old.split("\n## ")[1:]}
    parts[name] = text
    sizes = [parts[size].strip() + "\n" for size in SIZES if size in parts]
    grown = growth("\n".join(sizes))
    print(grown)
    others = [part.strip() + "\n" for other, part in parts.items() if other not in (*SIZES, "growth")]
    path.write_text(head + "\n".join([*sizes, grown, *others]))


def growth(text: str) -> str:
    """How time and memory grow with rows and keys, from the tables above it."""
    found = re.findall(r"^\| (\w+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) s, ([\d.]+) GB", text, flags=re.MULTILINE)
    lines = ["| lake | rows | keys | seconds | ns per row | us per key | GB |", "|---|---|---|---|---|---|---|"]
    for layout, many, keys, seconds, memory in sorted(found, key=lambda row: (row[0], *map(_number, row[1:3]))):
        row, key = float(seconds) / _number(many), float(seconds) / _number(keys)
        lines.append(f"| {layout} | {many} | {keys} | {seconds} | {row * 1e9:.0f} | {key * 1e6:.1f} | {memory} |")
    return "## growth\n\nscorelake, end to end.\n\n" + "\n".join(lines) + "\n"


def _number(text: str) -> int:
    return int(text.replace(",", ""))


if __name__ == "__main__":
    main()
