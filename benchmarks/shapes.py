"""Every shape of lake that users have, not only synth's: what each costs beside the boolean one, and against DuckDB.

Takes the shuffled lake of a size (see lake.py), writes it again in every shape under benchmarks/lakes, and measures
the whole command in a new process, beside DuckDB's GROUP BY that yields the same counts (by problem and score where
the lake has scores). CPU is user and system time of counting and merging, per row. Run it through make: bench-shapes,
bench-shapes-100m.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lake as whole

Change = Callable[[pa.Table, np.random.Generator], pa.Table]
SIZES = {"10m": whole.SIZES["10m"][0], "100m": whole.SIZES["100m"][0]}
PERCENT_OF_CONTINUOUS = {"10m": 100, "100m": 30}
"""Continuous scores are measured on part of the files: thirty million of them are what the largest lakes have."""


def _column(name: str, make: Callable[[pa.Table, np.random.Generator], Any]) -> Change:
    def change(table: pa.Table, rng: np.random.Generator) -> pa.Table:
        made = make(table, rng)
        if name in table.column_names:
            return table.set_column(table.column_names.index(name), name, made)
        return table.append_column(name, made)

    return change


def _uuids(table: pa.Table, rng: np.random.Generator) -> Any:
    digits = rng.bytes(16 * table.num_rows).hex()
    text = np.frombuffer(digits.encode(), np.uint8).reshape(-1, 32)
    dash = np.full((table.num_rows, 1), ord("-"), np.uint8)
    cuts = [text[:, :8], dash, text[:, 8:12], dash, text[:, 12:16], dash, text[:, 16:20], dash, text[:, 20:]]
    flat = np.ascontiguousarray(np.concatenate(cuts, axis=1))
    offsets = np.arange(table.num_rows + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(table.num_rows, pa.py_buffer(offsets), pa.py_buffer(flat))


def _answer(table: pa.Table, rng: np.random.Generator) -> Any:
    right = pc.fill_null(table["passed"], False).to_numpy()
    other = rng.integers(1, 6, table.num_rows)
    return pa.array(np.char.add("answer ", np.where(right, 0, other).astype("U1")))


def _scores(digits: int | None) -> Callable[[pa.Table, np.random.Generator], Any]:
    def make(table: pa.Table, rng: np.random.Generator) -> Any:
        values = rng.random(table.num_rows)
        return pa.array(values if digits is None else np.round(values, digits))

    return make


def _levels(table: pa.Table, rng: np.random.Generator) -> Any:
    return pa.array(rng.choice([0.0, 0.5, 1.0], table.num_rows))


@dataclass(frozen=True)
class Shape:
    changes: tuple[Change, ...] = ()
    without: tuple[str, ...] = ()
    config: str = ""
    options: tuple[str, ...] = ()
    scored: bool = False


RUBRIC = "[rubric]\nlevels = [0.0, 0.5, 1.0]\n"
SHAPES = {
    "boolean": Shape(),
    "int8": Shape((_column("passed", lambda t, _: t["passed"].cast(pa.int8())),)),
    "float": Shape((_column("passed", lambda t, _: t["passed"].cast(pa.int8()).cast(pa.float64())),)),
    "no attempt": Shape(without=("attempt",)),
    "attempts from 1,000": Shape((_column("attempt", lambda t, _: pc.add(t["attempt"], 1000)),)),
    "text attempts": Shape(
        (_column("attempt", lambda t, _: pc.binary_join_element_wise("sample", t["attempt"].cast(pa.string()), "-")),)
    ),
    "uuid attempts": Shape((_column("attempt", _uuids),)),
    "threshold": Shape((_column("score", _scores(2)),), ("passed",), "[policy]\npass_threshold = 0.5\n", scored=True),
    "rubric": Shape((_column("score", _levels),), ("passed",), RUBRIC, scored=True),
    "score, 3 digits": Shape((_column("score", _scores(3)),), scored=True),
    "continuous score": Shape((_column("score", _scores(None)),), ("passed",), scored=True),
    "answers": Shape((_column("answer", _answer),)),
    "protocol": Shape(
        (_column("temperature", lambda t, _: pa.array(np.full(t.num_rows, 0.7))),),
        (),
        '[protocol]\ncolumns = ["temperature"]\n',
    ),
    "carried": Shape(options=("--by", "difficulty")),
}


def path_of(size: str, name: str) -> Path:
    base = SIZES[size].path
    return (
        base
        if not SHAPES[name].changes and not SHAPES[name].without
        else base.with_name(f"{base.name}-{name.replace(' ', '_')}")
    )


def make(size: str, name: str) -> Path:
    """The lake of a size in a shape, as other tools would write it."""
    SIZES[size].make()
    target, shape = path_of(size, name), SHAPES[name]
    if target == SIZES[size].path or (target / "_made").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    files = sorted(SIZES[size].path.rglob("*.parquet"))
    share = PERCENT_OF_CONTINUOUS[size] if name == "continuous score" else 100
    for number, file in enumerate(files[: max(1, len(files) * share // 100)]):
        there = target / file.relative_to(SIZES[size].path)
        there.parent.mkdir(parents=True, exist_ok=True)
        source, writer, rng = pq.ParquetFile(file), None, np.random.default_rng([number, len(name)])
        for group in range(source.metadata.num_row_groups):
            table = source.read_row_group(group)
            for change in shape.changes:
                table = change(table, rng)
            table = table.drop_columns(list(shape.without)) if shape.without else table
            writer = writer or pq.ParquetWriter(there, table.schema, compression="zstd", write_page_checksum=True)
            writer.write_table(table)
        if writer:
            writer.close()
    (target / "_made").touch()
    return target


def scorelake(name: str, lake: Path, out: Path, more: list[str]) -> None:
    """The command itself; when its work is done, it tells the time and the processor time of every stage."""
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
        whole.tell({"rows": report.run["rows_read"], "keys": report.problems, "stages": stages})
        return report

    pipeline.score_lake = job
    shape = SHAPES[name]
    config = out.parent / f"{out.name}.toml"
    config.write_text(shape.config)
    sys.argv = ["scorelake", "score", str(lake), "--out", str(out), "--config", str(config), *shape.options, *more]
    cli.main()


def duckdb(name: str, lake: Path) -> None:
    """The query a user would write for the same counts; its result is counted, not fetched or stored."""
    import duckdb as engine

    shape = SHAPES[name]
    keys = ["benchmark", "subject", "model", "problem_id"] + ["temperature"] * (name == "protocol")
    outcome = "passed" if "passed" not in shape.without else "score"
    right = {"threshold": "score >= 0.5", "rubric": "score = 1", "continuous score": "false"}.get(name, "passed = 1")
    right = "passed" if outcome == "passed" and name not in ("int8", "float") else right
    if name == "answers":
        keys.append("answer")
    if shape.scored:
        keys.append("score")
    extra = ", min(difficulty), max(difficulty)" if name == "carried" else ""
    query = f"""
        SELECT count(*), sum(n + ungraded) FROM (
            SELECT {", ".join(keys)}, count({outcome}) AS n, count(*) FILTER ({right}) AS c,
                count(*) - count({outcome}) AS ungraded {extra}
            FROM read_parquet('{lake}/**/*.parquet', hive_partitioning = true) GROUP BY {", ".join(keys)})"""
    _, rows = engine.connect().execute(query).fetchall()[0]
    whole.tell({"rows": int(rows)})


def alone(who: str, name: str, lake: Path, more: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=whole.LAKES) as out:
        began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "--one", who, name, str(lake), f"{out}/out", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        partials = sum(f.stat().st_size for f in Path(out).rglob("partials/**/*") if f.is_file())
    if done.returncode:
        return {"seconds": float("nan"), "failed": done.stderr.strip().splitlines()[-1:]}
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return json.loads(done.stdout) | {"seconds": seconds, "cpu": cpu, "partials": partials}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("size", nargs="?", choices=SIZES, default="10m")
    ask.add_argument("--only", nargs="*", choices=SHAPES, default=list(SHAPES))
    ask.add_argument("--repeats", type=int, default=2)
    ask.add_argument("--memory", type=float, help="passed on to scorelake")
    ask.add_argument("--keep", action="store_true", help="keep the lakes that were made")
    ask.add_argument("--one", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = ask.parse_args()
    if given.one:
        who, name, lake, out, *more = given.one
        scorelake(name, Path(lake), Path(out), more) if who == "scorelake" else duckdb(name, Path(lake))
        return
    whole.LAKES.mkdir(exist_ok=True)
    more = ["--memory", str(given.memory)] if given.memory else []
    lines = [
        "| shape | rows | whole run | count + merge | its CPU, ns a row | to boolean | peak | partials / lake "
        "| DuckDB | DuckDB / count + merge | DuckDB / whole run |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    boolean = 0.0
    for name in given.only:
        lake = make(given.size, name)
        runs = [(alone("scorelake", name, lake, more), alone("duckdb", name, lake, [])) for _ in range(given.repeats)]
        ours, theirs = (min((run[i] for run in runs), key=lambda one: one["seconds"]) for i in range(2))
        if "failed" in ours or "failed" in theirs:
            print(f"| {name} | failed: {ours.get('failed')} {theirs.get('failed')} |", flush=True)
            continue
        assert ours["rows"] == theirs["rows"], (name, ours, theirs)
        wall, cpu = (sum(ours["stages"][stage][i] for stage in ("counting", "merging")) for i in range(2))
        each = cpu / ours["rows"] * 1e9
        boolean = boolean or each
        size = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
        lines.append(
            f"| {name} | {ours['rows']:,} | {ours['seconds']:.1f} s | {wall:.1f} s | {each:.0f} "
            f"| {each / boolean:.1f} "
            f"| {ours['peak_mb'] / 1024:.1f} GB | {ours['partials'] / size:.2f} | {theirs['seconds']:.1f} s, "
            f"{theirs['peak_mb'] / 1024:.1f} GB | {theirs['seconds'] / wall:.2f} "
            f"| {theirs['seconds'] / ours['seconds']:.2f} |"
        )
        print(lines[-1], flush=True)
        if not given.keep and lake != SIZES[given.size].path and given.size != "10m":
            shutil.rmtree(lake)
    memory = f", --memory {given.memory:g}" if given.memory else ""
    title = f"shapes {given.size}{memory}"
    head = f"## {title}\n\n{whole.machine()}. Load average at the end: {os.getloadavg()[1]:.1f}.\n\n"
    text = head + "\n".join(lines) + "\n"
    whole.write(title, text)


if __name__ == "__main__":
    main()
