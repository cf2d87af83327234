"""Aggregate staged attempts: rows, verdicts, repeats, contradictions, problems by number of attempts.

Staged files have 64-bit hashes of problem and attempt, so one group_by per level is enough. The hashes also divide the
work: problems in several passes, and where a pass has too many attempts, these in several parts. So memory does not
depend on the number of attempts, be they of many problems or of one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pyarrow.parquet as pq

LIMIT = 1 << 18
"""Attempts that are aggregated at once: 262,144 take about 60 MB."""
MAX_CONFLICTS = 3
COLUMNS = ("problem_hash", "attempt_hash", "value", "error", "content_hash", "benchmark_code")
ATTEMPT = ("problem_hash", "attempt_hash")
CELL = ("benchmark_code", "n", "passed")
RowId: TypeAlias = tuple[int, int]
"""Index of the source, and of the row within it."""
StagedFiles: TypeAlias = Sequence[tuple[Path, object]]
"""Staged files, each with a value that distinguishes its problems from those of other files."""


def _no_cells() -> pl.DataFrame:
    schema = {"benchmark_code": pl.UInt32, "n": pl.Int64, "passed": pl.Float64}
    return pl.DataFrame(schema=schema | {"problems": pl.Int64, "total": pl.Float64, "means": pl.Float64})


@dataclass
class AttemptStats:
    """rows = graded + ungraded + duplicate. Of an attempt that occurs twice, one row counts."""

    rows: int = 0
    graded: int = 0
    ungraded: int = 0
    duplicate: int = 0
    errors: int = 0
    """Attempts without a verdict, or with one that the tool made up for an error."""
    total: float = 0.0
    """Sum of all values; the number of passes where values are verdicts."""
    n_verdicts: int = 0
    """Attempts with a verdict of their own."""
    verdict_total: float = 0.0
    """Sum of their values."""
    minimum: float = math.inf
    maximum: float = -math.inf
    non_binary: int = 0
    """Values other than 0 and 1."""
    cells: pl.DataFrame = field(default_factory=_no_cells)
    """Per benchmark, n and c: the number of problems, the sum of their values and of their means."""
    conflicts: list[tuple[RowId, RowId]] = field(default_factory=list)
    """Pairs of rows with different values for one attempt; at most MAX_CONFLICTS."""
    conflicting_sources: set[int] = field(default_factory=set)
    first_repeat: RowId | None = None
    """The first row whose attempt occurred before."""
    mixed_problem: int | None = None
    """Hash of a problem whose rows have different contents."""

    @property
    def histogram(self) -> dict[int, int]:
        """Problems by number of graded attempts."""
        return dict(self.cells.group_by("n").agg(pl.col("problems").sum()).sort("n").iter_rows())

    def metric(self, name: str, benchmark_code: int) -> float | None:
        """Compute a metric of a Claim; None where it is undefined."""
        cells = self.cells.filter(pl.col("benchmark_code") == benchmark_code, pl.col("n") > 0)
        problems = int(cells["problems"].sum())
        if not problems:
            return None
        if name == "mean":
            return float(cells["total"].sum() / (cells["n"] * cells["problems"]).sum())
        if name == "problems":
            return float(cells["means"].sum() / problems)
        k = int(name[5:])
        if (cells["n"] < k).any():
            return None
        estimate = _pass_at_k if name[4] == "@" else _pass_hat_k
        rows = cells.select("problems", "n", "passed").iter_rows()
        return math.fsum(count * estimate(n, int(c), k) for count, n, c in rows) / problems

    def add_attempts(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add attempts whose rows are all here; return their sums per problem."""
        value, error = pl.col("value"), pl.col("error")
        attempts = rows.group_by(ATTEMPT, maintain_order=True).agg(
            low=value.min(),
            high=value.max(),
            has_verdict=(value.is_not_null() & ~error).any(),
            is_error=error.all(),
            benchmark_code=pl.col("benchmark_code").first(),
            content_low=pl.col("content_hash").min(),
            content_high=pl.col("content_hash").max(),
        )
        high = attempts["high"].drop_nulls()
        verdicts = attempts.filter("has_verdict")["high"]
        self.rows += rows.height
        self.graded += len(high)
        self.ungraded += attempts.height - len(high)
        self.duplicate += rows.height - attempts.height
        self.errors += int(attempts["is_error"].sum())
        self.total += math.fsum(high)
        self.n_verdicts += len(verdicts)
        self.verdict_total += math.fsum(verdicts)
        self.minimum = min([self.minimum, *attempts.select(pl.col("low").min().fill_null(math.inf)).row(0)])
        self.maximum = max([self.maximum, *attempts.select(pl.col("high").max().fill_null(-math.inf)).row(0)])
        self.non_binary += int((~high.is_in([0.0, 1.0])).sum())
        self._find_repeats(rows, attempts)
        return attempts.group_by("problem_hash", maintain_order=True).agg(
            pl.col("benchmark_code").first(),
            n=pl.col("high").count().cast(pl.Int64),
            total=pl.col("high").sum(),
            content_low=pl.col("content_low").min(),
            content_high=pl.col("content_high").max(),
        )

    def _find_repeats(self, rows: pl.DataFrame, attempts: pl.DataFrame) -> None:
        if rows.height > attempts.height:
            repeats = rows.filter(~pl.struct(ATTEMPT).is_first_distinct()).select("source", "row")
            self.first_repeat = min([repeats.row(0), *([self.first_repeat] if self.first_repeat else [])])
        differing = attempts.filter(pl.col("low") != pl.col("high")).select(ATTEMPT)
        if differing.is_empty():
            return
        graded = rows.filter(pl.col("value").is_not_null())
        self.conflicting_sources |= {*graded.join(differing, on=ATTEMPT, how="semi")["source"]}
        for problem, attempt in differing.head(MAX_CONFLICTS - len(self.conflicts)).iter_rows():
            same = graded.filter(pl.col("problem_hash") == problem, pl.col("attempt_hash") == attempt).sort(
                "value", maintain_order=True
            )
            low, high = same.row(0, named=True), same.row(same["value"].arg_max() or 0, named=True)
            self.conflicts.append(((low["source"], low["row"]), (high["source"], high["row"])))

    def add_problems(self, parts: pl.DataFrame) -> None:
        """Add problems whose attempts are all here, in any number of parts."""
        problems = parts.group_by("problem_hash", maintain_order=True).agg(
            pl.col("benchmark_code").first(),
            pl.col("n", "total").sum(),
            pl.col("content_low").min(),
            pl.col("content_high").max(),
        )
        mixed = problems.filter(pl.col("content_low") != pl.col("content_high"))
        if self.mixed_problem is None and not mixed.is_empty():
            self.mixed_problem = int(mixed["problem_hash"][0])
        n, total = pl.col("n"), pl.col("total")
        cells = problems.with_columns(passed=total.floor()).group_by(CELL, maintain_order=True)
        sums = cells.agg(
            problems=pl.len().cast(pl.Int64),
            total=total.sum(),
            means=pl.when(n > 0).then(total / n).otherwise(0.0).sum(),
        )
        merged = pl.concat([self.cells, sums]).group_by(CELL, maintain_order=True)
        self.cells = merged.agg(pl.col("problems", "total", "means").sum())


def _pass_at_k(n: int, c: int, k: int) -> float:
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def _pass_hat_k(n: int, c: int, k: int) -> float:
    return math.comb(c, k) / math.comb(n, k)


def compute_stats(files: StagedFiles, limit: int = LIMIT) -> AttemptStats:
    """Aggregate the attempts of all files together."""
    out = AttemptStats()
    passes = max(1, -(-sum(pq.read_metadata(path).num_rows for path, _ in files) // limit))
    problem = pl.col("problem_hash") % passes
    sizes = dict.fromkeys(range(passes), 0)
    if passes > 1:
        for scan in _scan(files):
            for number, size in scan.group_by(problem).len().collect(engine="streaming").iter_rows():
                sizes[number] += size
    for number, size in sizes.items():
        # A pass far above the limit has a problem with very many attempts.
        parts = max(1, -(-size // (2 * limit)))
        attempt = pl.col("attempt_hash") % parts
        sums = []
        for part in range(parts):
            rows = _collect(files, (problem == number) & (attempt == part))
            if not rows.is_empty():
                sums.append(out.add_attempts(rows))
        if sums:
            out.add_problems(pl.concat(sums))
    return out


def _scan(files: StagedFiles) -> list[pl.LazyFrame]:
    """Scan the hashes of every file; XOR with a digest makes equal hashes of different runs different."""
    out = []
    for i, (path, key) in enumerate(files):
        digest = hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).digest()
        salt = pl.lit(int.from_bytes(digest[:8], "little"), pl.UInt64)
        scan = pl.scan_parquet(path, row_index_name="row", glob=False).select("row", *COLUMNS)
        out.append(scan.with_columns(pl.lit(i, pl.Int64).alias("source"), *(pl.col(name) ^ salt for name in ATTEMPT)))
    return out


def _collect(files: StagedFiles, condition: pl.Expr) -> pl.DataFrame:
    """Return matching rows in the order of sources and rows."""
    frames = [scan.filter(condition).collect(engine="streaming") for scan in _scan(files)]
    return pl.concat(frames).sort("source", "row") if frames else pl.DataFrame()


def find_mixed_rows(files: StagedFiles, problem_hash: int) -> tuple[RowId, RowId]:
    """Return two rows of a problem that have different contents."""
    rows = _collect(files, (pl.col("problem_hash") == problem_hash) & pl.col("content_hash").is_not_null())
    first = rows.row(0, named=True)
    other = rows.filter(pl.col("content_hash") != first["content_hash"]).row(0, named=True)
    return (first["source"], first["row"]), (other["source"], other["row"])
