"""se when problems come in clusters: against the jackknife, in counts and in rewards."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from counted import Row, rows, scored
from scorelake import metrics
from scorelake.metrics.distributions import Floats
from scorelake.scoring.summaries import subject_warnings
from scorelake.settings import Settings


def _counts() -> list[Row]:
    rng = np.random.default_rng(6)
    passages = [None, *rng.permutation(12).tolist()]
    return [
        {
            "model": "a",
            "subject": "xy"[i % 2],
            "problem_id": i,
            "passage": passages[i % 13],
            "n": 6,
            "c": int(rng.binomial(6, (i % 13) / 13)),
        }
        for i in range(80)
    ]


def _robust(values: Floats, cluster: list[object]) -> float:
    """Leave out one cluster at a time."""
    kept = [np.array([mine != each for mine in cluster]) for each in dict.fromkeys(cluster)]
    means = np.array([values[at].mean() for at in kept])
    return float(means.std() * (len(means) - 1) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["pass@1", "pass@4", "avg@N"])
@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_se_counts_clusters(tmp_path: Path, metric: str, prior: str) -> None:
    counts = _counts()
    both = [
        scored(tmp_path / name, counts, columns=columns, uncertainty={"prior": prior})
        for name, columns in (("plain", {}), ("together", {"cluster": "passage"}))
    ]
    for table in ("model_summary", "subject_summary"):
        plain, together = (rows(out, f"FROM {table} WHERE metric = '{metric}' ORDER BY ALL") for out in both)
        for before, row in zip(plain, together, strict=True):
            mine = [r for r in counts if row.get("subject", r["subject"]) == r["subject"]]
            values = metrics.finite(metric, 6, np.array([r["c"] for r in mine]))
            cluster = [("own", i) if r["passage"] is None else r["passage"] for i, r in enumerate(mine)]
            assert row["se"] == pytest.approx(_robust(values, cluster), rel=1e-10)
            for column in ("value", "mu", "sigma", "mu_lo", "mu_hi"):
                assert row[column] == pytest.approx(before[column], rel=1e-9), "clusters change se, lo and hi alone"
            for column in ("rerun_lo", "rerun_hi"):
                assert row[column] == (before[column] and pytest.approx(before[column], rel=1e-9))


@pytest.mark.slow
def test_one_problem_per_cluster_is_the_plain_se(tmp_path: Path) -> None:
    counts = [row | {"passage": row["problem_id"]} for row in _counts()]
    plain, alone = (
        rows(scored(tmp_path / str(i), counts, columns=columns), "SELECT se FROM model_summary ORDER BY metric")
        for i, columns in enumerate(({}, {"cluster": "passage"}))
    )
    assert [r["se"] for r in alone] == pytest.approx([r["se"] for r in plain], rel=1e-9)


def test_subjects_as_clusters(tmp_path: Path) -> None:
    """As a column that repeats the subject; within a subject, problems are the units."""
    rng = np.random.default_rng(4)
    counts: list[Row] = [
        {"model": model, "subject": f"s{i % 6}", "topic": f"s{i % 6}", "problem_id": i, "n": 4, "c": int(c)}
        for model, rate in (("a", 0.3), ("b", 0.7))
        for i, c in enumerate(rng.binomial(4, rate, 150))
    ]
    named, same, plain = (
        scored(tmp_path / name, counts, columns=columns, metrics={"names": ["pass@1", "pass@2"]})
        for name, columns in (("n", {"cluster": "subject"}), ("s", {"cluster": "topic"}), ("p", {}))
    )
    for table in ("model_summary", "comparison"):
        assert rows(named, f"FROM {table} ORDER BY ALL") == rows(same, f"FROM {table} ORDER BY ALL")
    assert rows(named, "FROM model_summary ORDER BY ALL") != rows(plain, "FROM model_summary ORDER BY ALL")
    sql = "FROM subject_summary ORDER BY ALL"
    assert rows(named, sql) == rows(plain, sql)
    assert {row["claim"] for row in rows(named, "FROM subject_comparison")} == {"improvement"}


def test_subjects_that_are_alike_should_be_clusters() -> None:
    """Against the ratio of both standard errors by hand; nothing is said of subjects that say little."""
    rng = np.random.default_rng(0)

    def table(rates: np.ndarray) -> pl.DataFrame:
        passed = rng.random((rates.size, 20)) < rates[:, None]
        keys = {"benchmark": "b", "protocol": "", "metric": "pass@1", "model": "m"}
        scores = {"value": passed.mean(axis=1), "se": passed.std(axis=1, ddof=1) / 20**0.5, "problems_scored": 20}
        every, by_subject = passed.std(ddof=1) / passed.size**0.5, passed.mean(axis=1).std(ddof=1) / rates.size**0.5
        ratios.append(by_subject / every)
        return pl.DataFrame(scores).with_columns(**{name: pl.lit(text) for name, text in keys.items()})

    ratios: list[float] = []
    (warning,) = subject_warnings(table(rng.beta(1, 1, 15)), Settings())
    assert f"{ratios[0]:.1f} times as wide" in warning
    assert subject_warnings(table(np.full(15, 0.5)), Settings()) == []
    assert subject_warnings(table(rng.beta(1, 1, 5)), Settings()) == [], "too few to tell"
    clustered = Settings.model_validate({"columns": {"cluster": "subject"}})
    assert subject_warnings(table(rng.beta(1, 1, 15)), clustered) == []
