"""[uncertainty] prior, from settings to the summary tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counted import Row, rows, scored
from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.metrics.forecast import fit_beta_mixture
from scorelake.settings import load

SQL = "SELECT * FROM {} WHERE metric IN ('pass@4', 'bayes@N', 'geom-ds@4') ORDER BY ALL"


def _counts() -> list[Row]:
    rng = np.random.default_rng(3)
    return [
        {"model": model, "subject": "xy"[i % 2], "problem_id": i, "n": 8, "c": int(rng.binomial(8, rng.beta(*shape)))}
        for model, shape in (("a", (0.4, 2)), ("b", (2, 2)))
        for i in range(50)
    ]


def _tables(home: Path, prior: Any = None) -> list[list[Row]]:
    out = scored(home, _counts(), **({} if prior is None else {"uncertainty": {"prior": prior}}))
    return [rows(out, SQL.format(table)) for table in ("model_summary", "subject_summary")]


@pytest.mark.slow
def test_names_are_pseudo_counts(tmp_path: Path) -> None:
    default = _tables(tmp_path / "default")
    assert default == _tables(tmp_path / "uniform", "uniform") == _tables(tmp_path / "ones", [1, 1])
    jeffreys = _tables(tmp_path / "jeffreys", "jeffreys")
    assert jeffreys == _tables(tmp_path / "halves", [0.5, 0.5]) != default


@pytest.mark.slow
def test_empirical_is_fitted_per_model_and_mixed(tmp_path: Path) -> None:
    models, subjects = _tables(tmp_path, "empirical")
    everything = _counts()
    for row in [*models, *subjects]:
        mine = [r for r in everything if r["model"] == row["model"]]
        n, c = (np.array([r[key] for r in mine]) for key in ("n", "c"))
        alpha, beta, weight = fit_beta_mixture(n, c, np.ones(n.size, dtype=np.int64))
        here = np.array([row.get("subject", r["subject"]) == r["subject"] for r in mine])
        parts = [
            metrics.summarize(row["metric"], n[here], c[here], prior=(a, b)) for a, b in zip(alpha, beta, strict=True)
        ]
        if row["metric"] == "geom-ds@4":  # blends mix their parts before blending; the mean is near
            assert row["mu"] == pytest.approx(np.dot(weight, [p.mu for p in parts]), abs=2e-3)
            continue
        mu = np.dot(weight, [p.mu for p in parts])
        spread = np.dot(weight, [p.sigma**2 + (p.mu - mu) ** 2 for p in parts])
        assert row["mu"] == pytest.approx(mu, rel=1e-5)
        assert row["sigma"] == pytest.approx(spread**0.5, rel=1e-4)
        if row["metric"] == "bayes@N":
            assert row["value"] == pytest.approx(parts[0].mu, rel=1e-5), "the posterior mean under the best prior"
        else:
            assert row["value"] == pytest.approx(metrics.finite("pass@4", n[here], c[here]).mean(), rel=1e-12)


@pytest.mark.slow
def test_the_empirical_interval_covers_where_the_uniform_one_does_not(tmp_path: Path) -> None:
    """200 models on 50 hard problems each; `make coverage` measures every kind of lake."""
    rng = np.random.default_rng(12)
    p = rng.beta(0.5, 3, (200, 50))
    counts = [
        {"benchmark": f"{i:03d}", "model": "a", "problem_id": j, "n": 8, "c": int(rng.binomial(8, p[i, j]))}
        for i in range(200)
        for j in range(50)
    ]
    covered = {}
    for prior in ("uniform", "empirical"):
        settings = {"uncertainty": {"prior": prior}, "metrics": {"names": ["pass@8"]}, "compare": {"resamples": 100}}
        got = rows(
            scored(tmp_path / prior, counts, **settings),
            "SELECT mu_lo AS lo, mu_hi AS hi FROM model_summary ORDER BY benchmark",
        )
        truth = (1 - (1 - p) ** 8).mean(axis=1)
        covered[prior] = np.mean([row["lo"] <= t <= row["hi"] for row, t in zip(got, truth, strict=True)])
    assert covered["empirical"] == pytest.approx(0.95, abs=0.04)
    assert covered["uniform"] < 0.05


@pytest.mark.parametrize("prior", ["flat", [0.0, 1.0], [1.0]])
def test_what_is_not_a_prior(prior: Any) -> None:
    with pytest.raises(UsageError, match="prior"):
        load(None, **{"uncertainty.prior": prior})
