"""Surveys of buckets add up to the survey of all problems, and are what Polars counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scorelake.hashing import hash_text, problem_hashes
from scorelake.schemas import GROUP, KEYS
from scorelake.scoring.buckets import attempted_problems, cluster_keys
from scorelake.scoring.survey import ALL, Survey, add_surveys, coarsen, survey_bucket
from scorelake.settings import Settings


def problem_counts(rows: int = 2000, seed: int = 3) -> pl.DataFrame:
    """Names that need care, groups of different sizes, protocols with and without text, sorted by key."""
    rng = np.random.default_rng(seed)
    names = pl.Series(["10", "9", "é", "z" * 40, "a/b=c", "", *(f"p{i}" for i in range(300))])
    texts = {key: pl.Series([f"{key}{i}" for i in rng.integers(0, 3, rows)]) for key in GROUP}
    out = pl.DataFrame(texts).with_columns(problem_id=names.gather(rng.integers(0, names.len(), rows)))
    out = out.with_columns(protocol=pl.col("protocol").replace("protocol0", "")).unique(maintain_order=True)
    n = rng.integers(0, 9, out.height)
    counts = {"n": n, "c": rng.integers(0, n + 1), "ungraded": rng.integers(0, 2, out.height)}
    passage = pl.Series([None if i > 3 else f"passage {i}" for i in rng.integers(0, 6, out.height)])
    return out.with_columns(**counts, passage=passage).sort(KEYS)


def surveys(home: Path, counts: pl.DataFrame, buckets: int, settings: Settings) -> list[Survey]:
    """Surveys of buckets, cut by a hash of the problem."""
    number = problem_hashes(hash_text(counts["subject"]), hash_text(counts["problem_id"])) % np.uint64(buckets)
    out = []
    for i in range(buckets):
        path = home / f"part-{buckets}-{i}.parquet"
        counts.filter(pl.Series(number == i)).write_parquet(path)
        out.append(survey_bucket(path, settings))
    return out


def assert_same(one: Survey, other: Survey) -> None:
    for name in ("problems", "distinct", "graded", "ungraded", "binary", "rewards", "columns", "top_n"):
        assert getattr(one, name) == getattr(other, name), name
    for column in one.histograms:
        assert one.histograms[column].equals(other.histograms[column])
        assert one.coverage[column].equals(other.coverage[column])
    assert one.units.keys() == other.units.keys()
    for board, keys in one.units.items():
        assert np.array_equal(keys, other.units[board])


@pytest.mark.slow
@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("by", [[], ["passage"]])
@pytest.mark.parametrize("cluster", [None, "passage"])
def test_surveys_add_up(cluster: str | None, by: list[str], rewards: bool, tmp_path: Path) -> None:
    counts, settings = problem_counts(), Settings.model_validate({"columns": {"cluster": cluster}, "by": by})
    if rewards:
        scores = [[float(i % 7), 7.5] if i % 3 else [] for i in range(counts.height)]
        counts = counts.with_columns(rewards=pl.Series(scores, dtype=pl.List(pl.Float64)))
    (total,) = surveys(tmp_path, counts, 1, settings)
    for buckets in (2, 7):
        parts = surveys(tmp_path, counts, buckets, settings)
        assert_same(add_surveys(parts), total)
        assert_same(add_surveys(reversed(parts)), total)


def test_a_survey_is_what_polars_counts(tmp_path: Path) -> None:
    counts = problem_counts()
    survey = add_surveys(surveys(tmp_path, counts, 3, Settings(by=("passage",))))
    for keys in (GROUP, ("benchmark", "model", "protocol")):
        sums = {"problems": pl.len().cast(pl.Int64), "ungraded": pl.col("ungraded").sum()}
        want = counts.group_by(*keys, "n", "c").agg(**sums).sort(*keys, "n", "c")
        assert coarsen(survey.histograms[ALL], keys).equals(want)
    keys = ["benchmark", "subject", "protocol", "passage"]
    coverage = counts.group_by(keys).agg(
        problems=pl.col("problem_id").n_unique().cast(pl.Int64),
        attempted=pl.col("problem_id").filter(pl.col("n") > 0).n_unique().cast(pl.Int64),
    )
    assert survey.coverage["passage"].rename({"slice_value": "passage"}).equals(coverage.sort(keys))
    assert survey.distinct == counts.select("benchmark", "subject", "problem_id").n_unique()
    assert (survey.graded, survey.ungraded) == (counts["n"].sum(), counts["ungraded"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [None, "passage"])
def test_problems_are_resampled_by_their_hash_or_that_of_their_cluster(cluster: str | None) -> None:
    """One row per problem that any model attempted; the first model by name decides the cluster."""
    counts = problem_counts()
    problems = attempted_problems(counts, cluster)
    keys = ["benchmark", "protocol", "subject", "problem_id"]
    attempted = counts.filter(pl.col("n") > 0).sort(*keys, "model").unique(keys, keep="first", maintain_order=True)
    assert problems.select(keys).equals(attempted.select(keys))
    for (*_, subject, name, key), passage in zip(problems.iter_rows(), attempted["passage"], strict=True):
        own = problem_hashes(hash_text(pl.Series([subject])), hash_text(pl.Series([name])))
        want = hash_text(pl.Series([passage])) if cluster and passage is not None else own
        assert key == want[0]


def test_problems_without_a_cluster_keep_their_own_hash() -> None:
    x, _, y, _, again = cluster_keys(pl.Series(["x", None, "y", None, "x"]), np.arange(5, dtype=np.uint64)).tolist()
    assert x == again != y
    assert cluster_keys(pl.Series(["x", None]), np.arange(5, 7, dtype=np.uint64))[1] == 6
