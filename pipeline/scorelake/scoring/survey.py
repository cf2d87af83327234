"""Bucket files of problem_counts, and the integer sums over them that are added up before anything is scored.

A bucket has all models of its problems, sorted by KEYS, so that numbers of distinct problems add up as well. The size
of a survey follows groups and distinct (n, c), not problems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from scorelake.hashing import Hashes, hash_text, problem_hashes
from scorelake.metrics.bootstrap import MAX_UNITS
from scorelake.metrics.distributions import Ints
from scorelake.schemas import COUNTS, GROUP, KEYS, Table
from scorelake.scoring.choose import Outcomes
from scorelake.settings import Settings
from scorelake.storage.disk import storage_errors

if TYPE_CHECKING:
    from scorelake.storage.mirror import Mirror

FOLDER = "problem_counts"
BOARD = ("benchmark", "protocol")


def bucket_paths(folder: Path) -> list[Path]:
    """Return the bucket files of a folder in their order."""
    return sorted(folder.glob("*.parquet"))


@dataclass(frozen=True)
class BucketTask:
    """One bucket file to score or to compare models on."""

    path: str
    problems: int
    settings: Settings
    outcomes: Outcomes
    mirror: Mirror | None = None  # set where another machine may have written the bucket, or will read the results
    benchmarks: tuple[str, ...] = ()  # the benchmarks to score; all if empty

    def local_path(self) -> Path:
        """Return the path of the bucket on this machine; fetch it if necessary."""
        if self.mirror is None:
            return Path(self.path)
        path = Path(self.mirror.here(self.path))
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.mirror.bring_files([path])
        return path

    def read(self, columns: Iterable[str]) -> pl.DataFrame:
        """Read columns of the bucket."""
        rows = pl.read_parquet(self.local_path(), columns=list(columns), glob=False)
        return rows.filter(pl.col("benchmark").is_in(self.benchmarks)) if self.benchmarks else rows

    def scores_name(self) -> str:
        """Return the name of the file with the values of single problems."""
        kind = f".{self.outcomes.binary:d}{self.outcomes.rewards:d}{self.outcomes.answers:d}" * bool(self.benchmarks)
        return f"{Path(self.path).stem}{kind}.parquet"

    def __str__(self) -> str:
        return Path(self.path).stem


def attempted_problems(rows: pl.DataFrame, cluster: str | None) -> pl.DataFrame:
    """Return the problems with an attempt, by BOARD, subject and problem_id, and the keys to resample them by."""
    # The key is a hash of the problem (`own`), or of its cluster. Models may disagree on the cluster of a problem:
    # the first by name decides.
    keys = [*BOARD, "subject", "problem_id"]
    grouped = rows.filter(pl.col("n") > 0).group_by(keys, maintain_order=True)
    problems = grouped.agg(_cluster=pl.col(cluster or "subject").first().cast(pl.String)).sort(keys)
    subjects = problems.select(pl.col("subject").unique())
    subjects = subjects.with_columns(pl.Series("hash", hash_text(subjects["subject"]), dtype=pl.UInt64))
    subject = problems.join(subjects, on="subject", how="left", maintain_order="left")["hash"].to_numpy()
    own = problem_hashes(subject, hash_text(problems["problem_id"]))
    key = own if cluster is None else cluster_keys(problems["_cluster"], own)
    return problems.select(*keys, pl.Series("key", key, pl.UInt64), pl.Series("own", own, pl.UInt64))


def cluster_keys(clusters: pl.Series, own: Hashes) -> Hashes:
    """Return the hash of each problem's cluster; a problem without one keeps its own."""
    names = clusters.cast(pl.String)
    return np.where(names.is_null().to_numpy(), own, hash_text(names))


CLUSTER, SLICE_VALUE = "_cluster", "slice_value"
ALL = ""  # the key of histograms that are not sliced


@dataclass(frozen=True)
class Survey:
    """Histograms of (n, c), and what else is known of the problems before any is scored."""

    distinct: int  # problems, counted once however many models attempted them
    rewards: tuple[float, float] | None  # smallest and largest score
    histograms: dict[str, pl.DataFrame]
    """Problems and ungraded attempts by group, (n, c) and, if configured, cluster: for ALL, and with slice_value for
    each column to slice by."""
    coverage: dict[str, pl.DataFrame]
    """Distinct problems, and attempted ones, by benchmark, subject, protocol and, for slices, slice_value."""
    units: dict[tuple[str, str], Hashes | None]
    """Distinct keys of the problems of each board; None if they are too many to be resampled one by one."""

    @property
    def problems(self) -> int:
        """Problems, summed over models."""
        return int(self.histograms[ALL]["problems"].sum())

    @property
    def graded(self) -> int:
        """Graded attempts."""
        return int(self.histograms[ALL].select((pl.col("n") * pl.col("problems")).sum()).item())

    @property
    def ungraded(self) -> int:
        """Attempts without a verdict."""
        return int(self.histograms[ALL]["ungraded"].sum())

    def of(self, benchmarks: Collection[str]) -> Survey:
        """Return the histograms, coverage and units of some benchmarks."""
        parts = [
            {name: frame.filter(pl.col("benchmark").is_in(benchmarks)) for name, frame in frames.items()}
            for frames in (self.histograms, self.coverage)
        ]
        units = {board: keys for board, keys in self.units.items() if board[0] in benchmarks}
        return replace(self, histograms=parts[0], coverage=parts[1], units=units)


def survey_bucket(path: Path, settings: Settings) -> Survey:
    """Survey one bucket file."""
    cluster = settings.columns.cluster
    carried = [*settings.by, *([cluster] if cluster else [])]
    scores = ["rewards"] if "rewards" in pq.read_schema(path).names else []
    rows = pl.read_parquet(path, columns=list(dict.fromkeys([*KEYS, *COUNTS, *carried, *scores])), glob=False)
    rows = rows.with_columns(pl.col("c").fill_null(0))
    groups = [pl.col(GROUP), *([cluster_name(cluster)] if cluster else [])]
    slices = {column: slice_value(column) for column in (ALL, *settings.by)}
    by_board = attempted_problems(rows, cluster).group_by(BOARD).agg(pl.col("key").unique().sort())
    rewards = (
        rows.select(low=pl.col(name).list.first().min(), high=pl.col(name).list.last().max()).row(0)
        for name in scores
    )
    return Survey(
        distinct=rows.select("benchmark", "subject", "problem_id").n_unique(),
        rewards=next((ends for ends in rewards if ends[0] is not None), None),
        histograms={name: _histogram(rows, [*groups, *value]) for name, value in slices.items()},
        coverage={name: _coverage(rows, value) for name, value in slices.items()},
        units={
            (benchmark, protocol): keys.to_numpy() if cluster is not None or keys.len() <= MAX_UNITS else None
            for benchmark, protocol, keys in zip(*by_board.get_columns(), strict=True)
        },
    )


def add_surveys(surveys: Iterable[Survey]) -> Survey:
    """Add the surveys of disjoint buckets."""
    parts = list(surveys)
    if len(parts) == 1:
        return parts[0]
    first, rewards = parts[0], [part.rewards for part in parts if part.rewards is not None]
    units: dict[tuple[str, str], Hashes | None] = {}
    for part in parts:
        for board, keys in part.units.items():
            before = units.get(board, keys)
            units[board] = None if before is None or keys is None else np.union1d(before, keys)
    return Survey(
        distinct=sum(part.distinct for part in parts),
        rewards=(min(low for low, _ in rewards), max(high for _, high in rewards)) if rewards else None,
        histograms={name: _add([part.histograms[name] for part in parts]) for name in first.histograms},
        coverage={name: _add([part.coverage[name] for part in parts]) for name in first.coverage},
        units=units,
    )


def cluster_name(column: str) -> pl.Expr:
    """Return the cluster of each problem; a problem without one is a cluster of its own."""
    size = pl.col("subject").str.len_bytes().cast(pl.String)  # so that ("A", "1 p") is not ("A 1", "p")
    own = pl.concat_str(pl.lit("problem "), size, pl.lit(" "), "subject", "problem_id")
    named = pl.concat_str(pl.lit("cluster "), pl.col(column).cast(pl.String))
    return pl.coalesce(named, own).alias(CLUSTER)


def slice_value(column: str) -> list[pl.Expr]:
    """Return the value of the column that problems are sliced by, if they are."""
    return [] if column == ALL else [pl.col(column).cast(pl.String).alias(SLICE_VALUE)]


def coarsen(histogram: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sum a histogram over all other group columns."""
    return _add([histogram.select(*keys, "n", "c", "problems", "ungraded")])


def distinct_rows(rows: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """Return the distinct rows, sorted, and the number of each row among them."""
    distinct = rows.unique().sort(rows.columns)
    numbered = distinct.with_row_index("_number")
    joined = rows.join(numbered, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")
    return distinct, joined["_number"].cast(pl.Int64).to_numpy()


def stack(table: Table, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Return a table of rows; numbers that are not finite are null."""
    numbers = pl.col(pl.Float64)
    frame = pl.DataFrame(rows, schema=table.schema, orient="row")
    return table.check(frame.with_columns(pl.when(numbers.is_finite()).then(numbers)))


def _add(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add the last two columns of frames by all other columns, and sort by these."""
    *keys, one, two = frames[0].columns
    return pl.concat(frames).group_by(keys).agg(pl.col(one, two).sum()).sort(keys)


def _histogram(rows: pl.DataFrame, keys: Sequence[pl.Expr]) -> pl.DataFrame:
    counts = rows.group_by(*keys, "n", "c").agg(problems=pl.len().cast(pl.Int64), ungraded=pl.col("ungraded").sum())
    return counts.sort(counts.columns[:-2])


def _coverage(rows: pl.DataFrame, value: Sequence[pl.Expr]) -> pl.DataFrame:
    problems = rows.group_by("benchmark", "subject", "protocol", *value, "problem_id").agg((pl.col("n") > 0).any())
    keys = problems.columns[:-2]
    return problems.group_by(keys).agg(
        problems=pl.len().cast(pl.Int64), attempted=pl.col("n").sum().cast(pl.Int64)
    ).sort(keys)  # fmt: skip
