"""The whole job against DuckDB and Polars, on lakes of every shape, in one run.

Four systems read the same files, in turn, each in a new process from its start to its end:

- scorelake: `scorelake score`, from the lake to leaderboard.duckdb
- duckdb_job: SQL that does the same job: remove duplicate attempts, count, store the counts, pass@k (same_job.sql)
- duckdb: a bare GROUP BY, whose result is counted and thrown away
- polars: the same as a lazy group_by, streaming

    python benchmarks/lake.py 10m             # or shapes, 100m, 1b
    python benchmarks/lake.py 100m --only uuid --repeats 3

Lakes are made with `scorelake synth` under benchmarks/lakes. A section of RESULTS.md is written: the best wall time
of each, CPU time, peak memory, and the ratios of the best times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(__file__).parent
LAKES = HERE / "lakes"
STAGES = ("counting", "merging", "scoring", "publishing")
KS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Base:
    """A lake as synth makes it; the number of attempts varies between half of `attempts` and all of it."""

    layout: str
    models: int
    problems: int
    attempts: int

    @property
    def path(self) -> Path:
        return LAKES / f"{self.layout}-{self.models}x{self.problems}x{self.attempts}"

    def make(self) -> None:
        if (self.path / "_made").exists():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        flags = {"models": self.models, "problems": self.problems, "attempts": self.attempts, "layout": self.layout}
        options = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "scorelake", "synth", self.path, *options], check=True)
        (self.path / "_made").touch()  # not part of the lake, since it starts with _


Column = Callable[[pa.Table, np.random.Generator], Any]


@dataclass(frozen=True)
class Shape:
    """How a lake differs from that of synth: columns that are replaced, added or left out, and options of score."""

    columns: dict[str, Column]
    without: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    config: str = ""
    passed: str = "passed"
    """The verdict as SQL."""
    keys: tuple[str, ...] = ()
    """What attempts are counted by, besides the problem."""
    share: float = 1.0
    """Which part of the files it has."""


def _uuids(table: pa.Table, rng: np.random.Generator) -> Any:
    text = np.frombuffer(rng.bytes(16 * table.num_rows).hex().encode(), np.uint8).reshape(-1, 32)
    dash = np.full((table.num_rows, 1), ord("-"), np.uint8)
    cuts = [text[:, :8], dash, text[:, 8:12], dash, text[:, 12:16], dash, text[:, 16:20], dash, text[:, 20:]]
    flat = np.ascontiguousarray(np.concatenate(cuts, axis=1))
    offsets = np.arange(table.num_rows + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(table.num_rows, pa.py_buffer(offsets), pa.py_buffer(flat))


def _answer(table: pa.Table, rng: np.random.Generator) -> Any:
    right = pc.fill_null(table["passed"], False).to_numpy()
    return pa.array(np.char.add("answer ", np.where(right, 0, rng.integers(1, 6, right.size)).astype("U1")))


def _score(digits: int | None) -> Column:
    def make(table: pa.Table, rng: np.random.Generator) -> Any:
        values = rng.random(table.num_rows)
        return pa.array(values if digits is None else np.round(values, digits))

    return make


def _cost(table: pa.Table, rng: np.random.Generator) -> Any:
    return pa.array(rng.lognormal(-3, 1, table.num_rows))


SCORES = ("score",)
COSTS = ("cost_usd", "seconds", "usd_judge")
SHAPES = {
    "boolean": Shape({}),
    "float verdicts": Shape(
        {"passed": lambda t, _: t["passed"].cast(pa.int8()).cast(pa.float64())}, passed="passed = 1"
    ),
    "no attempt": Shape({}, ("attempt",)),
    "attempts from 1,000": Shape({"attempt": lambda t, _: pc.add(t["attempt"], 1000)}),
    "uuid": Shape({"attempt": _uuids}),
    "threshold": Shape(
        {"score": _score(2)}, ("passed",), (), "[policy]\npass_threshold = 0.5\n", "score >= 0.5", SCORES
    ),
    "rubric": Shape(
        {"score": lambda t, rng: pa.array(rng.choice([0.0, 0.5, 1.0], t.num_rows))},
        *(("passed",), (), "[rubric]\nlevels = [0.0, 0.5, 1.0]\n", "score = 1", SCORES),
    ),
    "score, 3 digits": Shape({"score": _score(3)}, keys=SCORES),
    "continuous": Shape({"score": _score(None)}, ("passed",), (), "", "false", SCORES, share=0.3),
    "answers": Shape({"answer": _answer}, keys=("answer",)),
    "protocol": Shape(
        {"temperature": lambda t, _: pa.array(np.full(t.num_rows, 0.7))},
        *((), (), '[protocol]\ncolumns = ["temperature"]\n', "passed", ("temperature",)),
    ),
    "slices": Shape({}, options=("--by", "difficulty")),
    "three measures": Shape(
        dict.fromkeys(COSTS, _cost), options=tuple(word for name in COSTS for word in ("--measure", f"{name}=cost"))
    ),
}
MILLION = Base("shuffled", 20, 50_000, 13)
SIZES: dict[str, dict[str, tuple[Base, str]]] = {
    "10m": {"shuffled": (MILLION, "boolean"), "clustered": (Base("clustered", 20, 50_000, 13), "boolean")},
    "100m": {
        "shuffled": (Base("shuffled", 20, 50_000, 133), "boolean"),
        "6.25M keys": (Base("shuffled", 20, 312_500, 21), "boolean"),
        "clustered": (Base("clustered", 20, 50_000, 133), "boolean"),
        "uuid": (Base("shuffled", 20, 50_000, 133), "uuid"),
        "continuous": (Base("shuffled", 20, 50_000, 133), "continuous"),
    },
    "1b": {
        "shuffled": (Base("shuffled", 20, 1_000_000, 66), "boolean"),
        "clustered": (Base("clustered", 20, 1_000_000, 66), "boolean"),
    },
    "shapes": {name: (MILLION, name) for name in SHAPES},
}


def make(base: Base, name: str) -> Path:
    """Write the lake in a shape, as other tools would write it."""
    base.make()
    shape = SHAPES[name]
    if not shape.columns and not shape.without:
        return base.path
    target = base.path.with_name(f"{base.path.name}-{name.replace(' ', '_').replace(',', '')}")
    if (target / "_made").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    files = sorted(base.path.rglob("*.parquet"))
    share = shape.share if len(files) > 1 and base.attempts > 100 else 1.0
    for number, file in enumerate(files[: max(1, round(len(files) * share))]):
        there = target / file.relative_to(base.path)
        there.parent.mkdir(parents=True, exist_ok=True)
        source, writer, rng = pq.ParquetFile(file), None, np.random.default_rng([number, len(name)])
        for group in range(source.metadata.num_row_groups):
            table = source.read_row_group(group)
            for column, values in shape.columns.items():
                made = values(table, rng)
                if column in table.column_names:
                    table = table.set_column(table.column_names.index(column), column, made)
                else:
                    table = table.append_column(column, made)
            table = table.drop_columns(list(shape.without))
            writer = writer or pq.ParquetWriter(there, table.schema, compression="zstd", write_page_checksum=True)
            writer.write_table(table)
        if writer:
            writer.close()
    (target / "_made").touch()
    return target


# --- the four systems, each in a process of its own -------------------------------------------------------------


def scorelake(name: str, lake: Path, out: Path, more: list[str]) -> None:
    """Run the command; print the time and CPU time of every stage when it is done."""
    from scorelake import cli, pipeline

    work = pipeline.score_lake

    def job(*args: Any, progress: Any, **options: Any) -> Any:
        marks = [("start", time.perf_counter(), time.process_time())]

        def noted(stage: str, done: int, of: int) -> None:
            if stage != marks[-1][0]:
                marks.append((stage, time.perf_counter(), time.process_time()))
            progress(stage, done, of)

        report = work(*args, progress=noted, **options)
        marks.append(("end", time.perf_counter(), time.process_time()))
        stages = {a: (round(to - at, 3), round(up - cpu, 3)) for (a, at, cpu), (_, to, up) in pairwise(marks)}
        finish({"rows": report.run["rows_read"], "stages": stages})
        return report

    pipeline.score_lake = job
    config = out.with_suffix(".toml")
    config.write_text(SHAPES[name].config)
    sys.argv = ["scorelake", "score", str(lake), "--out", str(out), "--config", str(config)]
    sys.argv += [*SHAPES[name].options, *more]
    cli.main()


def _sql(name: str, lake: Path) -> dict[str, str]:
    shape = SHAPES[name]
    keys = ["benchmark", "subject", "model", "problem_id", *shape.keys]
    lake_sql, outcome = f"read_parquet('{lake}/**/*.parquet', hive_partitioning = true)", "passed"
    if "passed" in shape.without:
        outcome = "score"
    columns = ", ".join(dict.fromkeys([*keys, outcome, "attempt"]))
    distinct = lake_sql if "attempt" in shape.without else f"(SELECT DISTINCT {columns} FROM {lake_sql})"
    return {
        **{"lake": lake_sql, "distinct_attempts": distinct, "keys": ", ".join(keys)},
        **{"outcome": outcome, "passed": shape.passed},
    }


def duckdb(name: str, lake: Path, out: Path, more: list[str]) -> None:
    """The bare query: what is read and grouped, and nothing kept."""
    import duckdb as engine

    query = """
        SELECT sum(n + ungraded) FROM (
            SELECT {keys}, count({outcome}) AS n, count(*) FILTER ({passed}) AS c,
                count(*) - count({outcome}) AS ungraded
            FROM {lake} GROUP BY ALL)"""
    ((rows,),) = _session(engine, out, more).execute(query.format(**_sql(name, lake))).fetchall()
    finish({"rows": int(rows)})


def duckdb_job(name: str, lake: Path, out: Path, more: list[str]) -> None:
    """The same job as a script that a user would write."""
    import duckdb as engine

    db = _session(engine, out, more)
    script = (HERE / "same_job.sql").read_text().format(**_sql(name, lake), ks=", ".join(map(str, KS)))
    for statement in script.split(";\n"):
        rows = db.execute(statement).fetchall()
    finish({"rows": int(rows[0][0])})


def _session(engine: Any, out: Path, more: list[str]) -> Any:
    db = engine.connect(str(out.with_suffix(".duckdb")))
    if more:  # --memory GB
        db.execute(f"SET memory_limit = '{more[1]}GB'")
    return db


def polars(name: str, lake: Path, out: Path, more: list[str]) -> None:
    """The bare query in Polars, streaming."""
    import polars as pl

    sql = _sql(name, lake)
    outcome = pl.col(sql["outcome"])
    counts = (
        pl.scan_parquet(f"{lake}/**/*.parquet", hive_partitioning=True)
        .group_by(sql["keys"].split(", "))
        .agg(outcome.count().alias("n"), pl.sql_expr(sql["passed"]).sum().alias("c"), outcome.null_count().alias("u"))
        .select((pl.col("n") + pl.col("u")).cast(pl.Int64).sum())
        .collect(engine="streaming")
    )
    finish({"rows": counts.item()})


SYSTEMS = {"scorelake": scorelake, "duckdb_job": duckdb_job, "duckdb": duckdb, "polars": polars}


def finish(document: dict[str, Any]) -> None:
    """Print what a system found, and its peak memory."""
    print(json.dumps(document | {"peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}), flush=True)


def measure(system: str, name: str, lake: Path, more: list[str]) -> dict[str, Any]:
    """Run a system in a new process: wall time from start to end, and CPU time."""
    with tempfile.TemporaryDirectory(dir=LAKES) as home:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        command = [sys.executable, __file__, "--one", system, name, str(lake), f"{home}/out", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:80]}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"seconds": seconds, "cpu": cpu}


def compare(title: str, base: Base, name: str, systems: list[str], repeats: int, more: list[str]) -> list[str]:
    """Measure all systems in turn, several times; return two rows: the comparison, and our stages."""
    lake = make(base, name)
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for _ in range(repeats):
        for system in systems:
            runs[system].append(measure(system, name, lake, more if system != "polars" else []))
            last = runs[system][-1]
            print(f"  {title:20} {system:10} {last.get('failed') or round(last['seconds'], 2)}", flush=True)
    best = {
        system: min(done, key=lambda run: run["seconds"])
        for system, some in runs.items()
        if (done := [run for run in some if "seconds" in run])
    }
    ours = best["scorelake"]
    assert all(run["rows"] == ours["rows"] for run in best.values()), f"{title}: the systems disagree on the rows"

    def cell(system: str) -> str:
        run = best.get(system)
        return f"{run['seconds']:.1f} s, {run['cpu']:.1f} s CPU, {run['peak_gb']:.1f} GB" if run else "not run"

    def ratio(system: str) -> str:
        return f"{best[system]['seconds'] / ours['seconds']:.2f}" if system in best else "-"

    for system, some in runs.items():
        if system not in best:
            print(f"  {system} failed: {some[0]['failed']}")
    cells = " | ".join(map(cell, SYSTEMS))
    per_row = sum(ours["stages"].get(stage, (0, 0))[1] for stage in STAGES[:2]) / ours["rows"] * 1e9
    stages = " | ".join(f"{ours['stages'].get(stage, (0, 0))[0]:.2f} s" for stage in STAGES)
    rest = ours["seconds"] - sum(ours["stages"].get(stage, (0, 0))[0] for stage in STAGES)
    return [
        f"| {title} | {ours['rows'] / 1e6:,.1f} M | {ratio('duckdb_job')} | {ratio('duckdb')} | {cells} |",
        f"| {title} | {per_row:.0f} | {stages} | {rest:.2f} s |",
    ]


def machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "polars", "pyarrow", "numpy"))
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cpu}, {cores} cores, {memory:.0f} GB, Python {platform.python_version()}; {libraries}"


def write(title: str, text: str) -> None:
    """Replace one section of RESULTS.md, and leave the others."""
    path = HERE / "RESULTS.md"
    head, *sections = path.read_text().split("\n## ")
    parts = {section.split("\n", 1)[0]: section.strip() for section in sections}
    parts[title] = f"{title}\n\n{machine()}. Load average at the end: {os.getloadavg()[1]:.1f}.\n\n{text.strip()}"
    path.write_text("\n\n## ".join([head.strip(), *parts.values()]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", choices=SIZES, default="10m")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--memory", help="gigabytes, for scorelake and DuckDB")
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--one", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        system, name, lake, out, *more = given.one
        SYSTEMS[system](name, Path(lake), Path(out), more)
        return
    LAKES.mkdir(exist_ok=True)
    more = ["--memory", given.memory] if given.memory else []
    rows = [
        compare(title, base, name, given.systems, given.repeats, more)
        for title, (base, name) in SIZES[given.size].items()
        if not given.only or title in given.only
    ]
    columns = " | ".join(("scorelake", "DuckDB, same job", "DuckDB, bare", "Polars, bare"))
    text = [
        "Ratio: their wall time divided by ours.\n",
        f"| lake | rows | same job / ours | bare / ours | {columns} |",
        "|---|---|---|---|---|---|---|---|",
        *(comparison for comparison, _ in rows),
        f"\n| lake | CPU of counting and merging, ns a row | {' | '.join(STAGES)} | start and end |",
        "|---|---|---|---|---|---|---|",
        *(stages for _, stages in rows),
    ]
    print("\n".join(text))
    write(f"{given.size}{f', --memory {given.memory}' * bool(given.memory)}", "\n".join(text))


if __name__ == "__main__":
    main()
