"""What a night costs after the first: nothing new, one file in a hundred new, a new model, against the whole lake.

A lake of 1,000 files. Every figure is the time of a new `scorelake score` process, best of the repeats; also how long
the commands that only read take to start. Writes its part of RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake import LAKES, write

COMMAND = Path(sys.executable).with_name("scorelake")
FILES, NEW = 1_000, 10


def seconds(*words: str | Path) -> float:
    began = time.perf_counter()
    subprocess.run([COMMAND, *map(str, words)], check=True, capture_output=True)
    return time.perf_counter() - began


def best(repeats: int, *words: str | Path) -> float:
    return min(seconds(*words) for _ in range(repeats))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--repeats", type=int, default=2)
    repeats = ask.parse_args().repeats
    whole = LAKES / "nightly"
    if not (whole / "_made").exists():
        shutil.rmtree(whole, ignore_errors=True)
        shape = ["--models", "20", "--problems", "50000", "--attempts", "133", "--layout", "shuffled", "--files"]
        subprocess.run([COMMAND, "synth", whole, *shape, str(FILES)], check=True)
        (whole / "_made").touch()
    files = sorted(whole.rglob("*.parquet"))
    lines = ["| what | seconds | of the full run |", "|---|---|---|"]
    with tempfile.TemporaryDirectory(dir=LAKES) as home:
        lake, out = Path(home, "lake"), Path(home, "out")

        def add(some: list[Path]) -> None:
            for file in some:
                target = lake / file.relative_to(whole)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)

        add(files)
        full = best(repeats, "score", lake, "--out", out, "--full")
        told = {f"all of {len(files):,} files": full, "nothing new": best(repeats, "score", lake, "--out", out)}
        shutil.rmtree(out)
        shutil.rmtree(lake)
        add(files[:-NEW])
        seconds("score", lake, "--out", out)
        add(files[-NEW:])
        told[f"{NEW} of them new"] = seconds("score", lake, "--out", out)
        (lake / "date=2099-01-01").mkdir()
        for i, file in enumerate(files[-NEW:]):
            table = pq.read_table(file, partitioning=None)
            table = table.filter(pc.equal(table["model"].cast(pa.string()), "model-00"))  # one verdict per attempt
            named = pa.array(["a new model"] * table.num_rows)
            pq.write_table(
                table.set_column(0, "model", named),
                lake / "date=2099-01-01" / f"part-{i}.parquet",
                compression="zstd",
            )
        told[f"{NEW} more, of a new model"] = seconds("score", lake, "--out", out)
        told["--help"] = best(3, "--help")
        told["show"] = best(3, "show", out)
        told["sql"] = best(3, "sql", out, "SELECT count(*) FROM model_summary")
        lines += [f"| {what} | {took:.2f} | {took / full:.0%} |" for what, took in told.items()]
    print("\n".join(lines))
    write("nightly", "\n".join(lines))


if __name__ == "__main__":
    main()
