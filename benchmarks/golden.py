"""Score lakes of many shapes with this code and with an earlier revision, and compare every table.

    python benchmarks/golden.py 6fc99a1

Numbers must be equal to 1e-12 (relative; 1e-9 for variances). Columns that only one of the two has are listed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

REPO = Path(__file__).parents[1]
IGNORED = {"run_id", "started", "finished", "version", "settings", "settings_json", "lake"}
"""Columns that differ between two runs of the same code."""
TEXTS = {"claim", "claim_a", "reason"}
"""Columns whose wording may change; reported, but no difference of numbers."""
TOLERANCE = 1e-12


def attempts(seed: int, models: int = 6, problems: int = 40, n: int = 8, ragged: bool = False) -> pl.DataFrame:
    """Rows of attempts with every column that some shape needs."""
    draw = np.random.default_rng(seed)
    skill, hard = draw.normal(0.3, 1, models), draw.normal(0, 1.5, problems)
    rows = []
    for model in range(models):
        for problem in range(problems):
            count = int(draw.integers(1, n + 1)) if ragged else n
            p = 1 / (1 + np.exp(hard[problem] - skill[model]))
            for attempt in range(count):
                passed = bool(draw.random() < p)
                rows.append(
                    {
                        "model": f"m{model:02d}",
                        "benchmark": "code" if problem % 3 else "math",
                        "subject": f"s{problem % 4}",
                        "problem_id": f"p{problem:04d}",
                        "attempt": attempt,
                        "passed": passed,
                        "score": float(np.clip(p + draw.normal(0, 0.2), 0, 1)),
                        "rubric": float(draw.integers(0, 3)) / 2,
                        "answer": "right" if passed else f"wrong{int(draw.integers(0, 3))}",
                        "uuid": f"{draw.integers(1 << 60):016x}",
                        "temperature": 0.2 if model % 2 else 1.0,
                        "level": int(problem % 5),
                        "cost": float(draw.lognormal(-3, 1)),
                        "tokens": int(draw.integers(10, 5000)),
                    }
                )
    return pl.DataFrame(rows)


def _write(folder: Path, rows: pl.DataFrame, columns: str, files: int = 3) -> None:
    folder.mkdir(parents=True)
    base = ["model", "benchmark", "subject", "problem_id", *columns.split()]
    names = {"uuid": "attempt"} if "uuid" in base else {}
    for part in range(files):
        rows[part::files].select(base).rename(names).write_parquet(folder / f"part-{part}.parquet")


def shapes() -> dict[str, tuple[Callable[[Path], None], list[str]]]:
    """A function that writes the lake, and options of `score`, by name."""
    made: dict[str, tuple[Callable[[Path], None], list[str]]] = {}

    def shape(
        name: str,
        columns: str,
        *options: str,
        change: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        **keys: int | bool,
    ) -> None:
        def write(folder: Path) -> None:
            rows = attempts(len(name), **keys)  # type: ignore[arg-type]
            _write(folder, change(rows) if change else rows, columns)

        made[name] = write, list(options)

    config = "\n".join
    shape("plain", "attempt passed")
    shape("ragged", "attempt passed", ragged=True)
    shape("no-attempt", "passed", ragged=True)
    shape("n1", "attempt passed", n=1)
    shape("uuid", "uuid passed")
    shape("answers", "attempt passed answer", "--metrics", "pass@1,pass@4,maj@3,vote@3,vote@5,avg@N,bayes@N", n=6)
    shape("score", "attempt score", ragged=True)
    shape("score-threshold", "attempt score", "CONFIG", "[policy]\npass_threshold = 0.5")
    shape(
        "rubric",
        "attempt rubric",
        "CONFIG",
        config(["[columns]", 'score = "rubric"', "[rubric]", "levels = [0, 0.5, 1]"]),
        n=5,
    )
    shape("both", "attempt passed score")
    shape("protocol", "attempt passed temperature", "CONFIG", '[protocol]\ncolumns = ["temperature"]')
    shape("slices", "attempt passed level", "--by", "level")
    shape("cluster", "attempt passed level", "CONFIG", '[columns]\ncluster = "level"')
    shape("all-metrics", "attempt passed", "--metrics", "all", models=4, problems=30, n=6)
    shape("one-model", "attempt passed", models=1)
    shape("one-problem", "attempt passed", problems=1)
    shape("many-models", "attempt passed", models=40, problems=25, n=2)
    shape("measures", "attempt passed cost tokens", "--measure", "cost=cost", "--measure", "tokens=tokens")
    shape("duplicates", "attempt passed", change=lambda rows: pl.concat([rows, rows[::7]]))
    shape(
        "conflicts",
        "attempt passed",
        "CONFIG",
        '[duplicates]\nrule = "any-pass"',
        change=lambda rows: pl.concat([rows, rows[::7].with_columns(~pl.col("passed"))]),
    )
    shape(
        "ungraded",
        "attempt passed",
        change=lambda rows: rows.with_columns(passed=pl.when(pl.int_range(pl.len()) % 9 > 0).then("passed")),
    )
    shape(
        "unequal",
        "attempt passed",
        change=lambda rows: rows.filter((pl.col("model") != "m01") | (pl.col("attempt") < 2)),
    )
    shape(
        "partial",
        "attempt passed",
        change=lambda rows: rows.filter((pl.col("model") != "m01") | (pl.col("problem_id") < "p0015")),
    )
    shape(
        "series",
        "attempt passed level",
        "CONFIG",
        config(["[columns]", 'step = "level"', "[protocol]", "columns = []"]),
        change=lambda rows: rows.with_columns(level=pl.col("attempt") // 2 * 10),
    )
    made["bundled"] = (lambda folder: folder.symlink_to(REPO / "fixtures" / "lake"), [])
    return made


def score(source: Path, lake: Path, out: Path, options: list[str]) -> str:
    """Score a lake with the code in a folder; return the error, if there is one."""
    options = list(options)
    if "CONFIG" in options:
        at = options.index("CONFIG")
        path = out.with_suffix(".toml")
        path.write_text(options[at + 1])
        options[at : at + 2] = ["--config", str(path)]
    command = [sys.executable, "-m", "scorelake", "score", str(lake), "--out", str(out), *options]
    env = {**os.environ, "PYTHONPATH": str(source / "pipeline")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=out.parent, check=False)
    return done.stderr if done.returncode else ""


def tables(out: Path) -> dict[str, pl.DataFrame]:
    """Read every table of the published snapshot, and the counts per problem."""
    (snapshot,) = (path for path in (out / "snapshots").iterdir() if not path.name.startswith("."))
    found = {path.stem: pl.read_parquet(path, glob=False) for path in snapshot.glob("*.parquet")}
    for folder in ("problem_counts", "problem_score"):
        parts = sorted((snapshot / folder).glob("*.parquet")) if (snapshot / folder).is_dir() else []
        if parts:
            found[folder] = pl.concat([pl.read_parquet(part, glob=False) for part in parts], how="diagonal_relaxed")
    return found


def differences(old: dict[str, pl.DataFrame], new: dict[str, pl.DataFrame]) -> list[str]:
    """Describe where shared columns of shared tables differ."""
    lines = [f"table {name} only {'before' if name in old else 'now'}" for name in sorted(set(old) ^ set(new))]
    for name in sorted(set(old) & set(new)):
        a, b = old[name], new[name]
        shared = [column for column in a.columns if column in b.columns and column not in IGNORED]
        lines += [f"{name}: column {each} is gone" for each in a.columns if each not in b.columns]
        if a.height != b.height:
            lines.append(f"{name}: {a.height} rows, now {b.height}")
            continue
        order = [each for each in shared if not a[each].dtype.is_float() and not a[each].dtype.is_nested()]
        order = [each for each in order if each not in TEXTS]
        a, b = (frame.select(shared).sort(order, nulls_last=True) for frame in (a, b))
        for column in shared:
            x, y = a[column], b[column]
            if x.dtype.is_float() and y.dtype.is_float():
                near = np.isclose(x.to_numpy(), y.to_numpy(), rtol=TOLERANCE, atol=1e-14, equal_nan=True)
                wrong = int((~near | (x.is_null() != y.is_null()).to_numpy()).sum())
                worst = float(np.nanmax(np.abs(x.to_numpy() - y.to_numpy()), initial=0)) if wrong else 0.0
                if wrong:
                    lines.append(f"{name}.{column}: {wrong} of {a.height} differ, by up to {worst:.1e}")
            elif not x.eq_missing(y.cast(x.dtype, strict=False)).all():
                lines.append(f"{name}.{column}: {int((~x.eq_missing(y.cast(x.dtype, strict=False))).sum())} differ")
    return lines


def main(revision: str, only: str = "") -> int:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        base = home / "base"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", base, revision], cwd=REPO, check=True)
        try:
            wrong = 0
            for name, (write, options) in shapes().items():
                if only not in name:
                    continue
                lake, outs = home / f"{name}-lake", (home / f"{name}-old", home / f"{name}-new")
                write(lake)
                errors = [score(source, lake, out, options) for source, out in zip((base, REPO), outs, strict=True)]
                lines = [error for error in errors if error] or differences(*map(tables, outs))
                wrong += bool(lines)
                print(f"{name}: {'equal' if not lines else ''}", *lines, sep="\n    " if lines else "")
            return wrong
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=REPO, check=True)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
