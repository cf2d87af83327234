"""Aggregate staged attempts: rows, verdicts, repeats, contradictions, problems by number of attempts.

Staged files have 64-bit hashes of problem and attempt. The attempts are divided by their hash into passes of about
the same size, so memory does not grow with the number of attempts, but with that of distinct problems.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pyarrow.parquet as pq

LIMIT = 1 << 18
"""Attempts that are aggregated at once: 262,144 take about 60 MB."""
MAX_CONFLICTS = 3
HASHES = ("problem_hash", "attempt_hash")
COLUMNS = (*HASHES, "value", "error", "content_hash", "benchmark_code")
RowId: TypeAlias = tuple[int, int]
"""Index of the source, and of the row within it."""
StagedFiles: TypeAlias = Sequence[tuple[Path, object]]
"""Staged files, each with a value that distinguishes its problems from those of other files."""


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
    non_binary: Counter[int] = field(default_factory=Counter)
    """Values other than 0 and 1, by benchmark code."""
    cells: dict[tuple[int, int, float], tuple[int, float]] = field(default_factory=dict)
    """Number and total value of the problems with (benchmark code, n, c); a c of rewards is rounded down."""
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
        counts: Counter[int] = Counter()
        for (_, n, _), (problems, _) in self.cells.items():
            counts[n] += problems
        return dict(sorted(counts.items()))

    def metric(self, name: str, benchmark_code: int) -> float | None:
        """Compute a metric of a Claim; None where it is undefined."""
        cells = [(n, int(c), *both) for (code, n, c), both in self.cells.items() if code == benchmark_code and n > 0]
        if not cells:
            return None
        if name == "mean":
            return sum(total for *_, total in cells) / sum(n * count for n, _, count, _ in cells)
        k = 1 if name == "problems" else int(name[5:])
        if name != "problems" and (self.non_binary[benchmark_code] or min(n for n, *_ in cells) < k):
            return None
        if name == "problems":
            sums = [total / n for n, _, _, total in cells]
        elif name[4] == "@":
            sums = [count * (1 - math.comb(n - c, k) / math.comb(n, k)) for n, c, count, _ in cells]
        else:
            sums = [count * math.comb(c, k) / math.comb(n, k) for n, c, count, _ in cells]
        return sum(sums) / sum(count for _, _, count, _ in cells)

    def add(self, rows: pl.DataFrame, attempts: pl.DataFrame) -> None:
        """Add attempts whose rows are all here."""
        graded = attempts.drop_nulls("high")
        verdicts = attempts.filter("has_verdict")["high"]
        self.rows += rows.height
        self.graded += graded.height
        self.ungraded += attempts.height - graded.height
        self.duplicate += rows.height - attempts.height
        self.errors += int(attempts["is_error"].sum())
        self.total += float(graded["high"].sum())
        self.n_verdicts += len(verdicts)
        self.verdict_total += float(verdicts.sum())
        self.minimum = min([self.minimum, *graded["low"]])
        self.maximum = max([self.maximum, *graded["high"]])
        self.non_binary.update(graded.filter(~pl.col("high").is_in([0.0, 1.0]))["benchmark_code"])
        if rows.height > attempts.height:
            repeats = rows.filter(~pl.struct(HASHES).is_first_distinct()).select("source", "row")
            self.first_repeat = min([repeats.row(0), *([self.first_repeat] if self.first_repeat else [])])
        if (graded["low"] != graded["high"]).any():
            value, row_id = pl.col("value"), pl.struct("source", "row")
            differing = rows.filter(value.min().over(HASHES) != value.max().over(HASHES), value.is_not_null())
            self.conflicting_sources |= {*differing["source"]}
            sides = (row_id.get(value.arg_min()).alias("low"), row_id.get(value.arg_max()).alias("high"))
            pairs = differing.group_by(HASHES, maintain_order=True).agg(sides)
            shown = pairs.head(MAX_CONFLICTS - len(self.conflicts)).select("low", "high").iter_rows()
            self.conflicts += [((one["source"], one["row"]), (two["source"], two["row"])) for one, two in shown]


def compute_stats(files: StagedFiles, limit: int = LIMIT) -> AttemptStats:
    """Aggregate the attempts of all files together, at most about `limit` at a time."""
    out = AttemptStats()
    n_passes = max(1, -(-sum(pq.read_metadata(path).num_rows for path, _ in files) // limit))
    value, error, content = pl.col("value"), pl.col("error"), pl.col("content_hash")
    problems: pl.DataFrame | None = None
    for i in range(n_passes if files else 0):
        rows = _collect(files, pl.col("attempt_hash") % n_passes == i)
        attempts = rows.group_by(HASHES, maintain_order=True).agg(
            pl.col("benchmark_code").first(),
            low=value.min(),
            high=value.max(),
            has_verdict=(value.is_not_null() & ~error).any(),
            is_error=error.all(),
            n=value.is_not_null().any().cast(pl.Int64),
            total=value.max().fill_null(0.0),
            content_low=content.min(),
            content_high=content.max(),
        )
        out.add(rows, attempts)
        sums = attempts if problems is None else pl.concat([problems, attempts.select(problems.columns)])
        problems = sums.group_by("problem_hash", maintain_order=True).agg(
            pl.col("benchmark_code").first(),
            pl.col("n", "total").sum(),
            pl.col("content_low").min(),
            pl.col("content_high").max(),
        )
    if problems is not None:
        mixed = problems.filter(pl.col("content_low") != pl.col("content_high"))
        out.mixed_problem = None if mixed.is_empty() else int(mixed["problem_hash"][0])
        cells = problems.group_by("benchmark_code", "n", pl.col("total").floor().alias("c"), maintain_order=True)
        counts = cells.agg(pl.len(), pl.col("total").sum())
        out.cells = {(code, n, c): (count, total) for code, n, c, count, total in counts.iter_rows()}
    return out


def _collect(files: StagedFiles, condition: pl.Expr) -> pl.DataFrame:
    """Return the matching rows of all files in order, with source and row number.

    XOR with a digest makes equal hashes of different runs different.
    """
    frames = []
    for i, (path, key) in enumerate(files):
        digest = hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).digest()
        salt = pl.lit(int.from_bytes(digest[:8], "little"), pl.UInt64)
        scan = pl.scan_parquet(path, row_index_name="row", glob=False).select("row", *COLUMNS)
        salted = scan.with_columns(pl.lit(i, pl.Int64).alias("source"), *(pl.col(name) ^ salt for name in HASHES))
        frames.append(salted.filter(condition).collect(engine="streaming"))
    return pl.concat(frames).sort("source", "row")


def find_mixed_rows(files: StagedFiles, problem_hash: int) -> tuple[RowId, RowId]:
    """Return two rows of a problem that have different contents."""
    rows = _collect(files, (pl.col("problem_hash") == problem_hash) & pl.col("content_hash").is_not_null())
    first = rows.row(0, named=True)
    other = rows.filter(pl.col("content_hash") != first["content_hash"]).row(0, named=True)
    return (first["source"], first["row"]), (other["source"], other["row"])
