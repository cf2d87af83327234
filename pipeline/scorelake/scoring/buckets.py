"""Bucket files of problem_counts: each has all models of its problems, sorted by KEYS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from scorelake.hashing import Hashes, hash_text, problem_hashes
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
    """Return the problems with an attempt, by BOARD, subject and problem_id, and the key that they are resampled by.

    The key is a hash of the problem (`own`), or of its cluster. Models may disagree on the cluster of a problem: the
    first by name decides.
    """
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
