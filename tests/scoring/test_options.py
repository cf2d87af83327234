"""Options of the papers, from the config file to the tables; test_scorio holds the same numbers against scorio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ask, attempts, expand, put, run
from scorelake import metrics
from scorelake.errors import MetricError, UsageError

OUTCOMES = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]


def rubric_lake(tmp_path: Path, **more: Any) -> Path:
    rows = [attempts(model="m", problem_id=str(i), score=[float(x) for x in row]) for i, row in enumerate(OUTCOMES)]
    put(tmp_path / "lake", pl.concat(rows).with_columns(**more))
    return tmp_path / "lake"


def verdict_lake(tmp_path: Path) -> Path:
    put(tmp_path / "lake", expand([("one", 5, 3), ("two", 5, 4)], model="m"))
    return tmp_path / "lake"


def scores(out: Path) -> dict[str, tuple[Any, ...]]:
    sql = "SELECT metric, value, mu, sigma, mu_lo, mu_hi, lo, hi, rerun_lo FROM model_summary"
    return {name: tuple(row) for name, *row in ask(out, sql)}


@pytest.mark.slow
def test_prior_outcomes_of_a_rubric(lake: Path, tmp_path: Path) -> None:
    """METRICS section 5: with prior outcomes the posterior mean is 0.575 and its deviation 0.084275."""
    levels = "[rubric]\nlevels = [0, 1, 2]\nweights = [0.0, 0.5, 1.0]\n"
    wanted = ["bayes@N", "avg@N", "max@2"]
    run(rubric_lake(tmp_path), tmp_path / "flat", levels, metrics=wanted)
    run(lake, tmp_path / "told", levels + "prior = [0.5, 0.5, 1]", metrics=wanted)
    flat, told = scores(tmp_path / "flat"), scores(tmp_path / "told")
    assert flat["bayes@N"][1:3] == pytest.approx((0.5625, 0.091998), abs=1e-6)
    want = metrics.summarize_levels("bayes@N", [0, 0.5, 1], [[1, 2, 2], [1, 2, 2]], prior_counts=[0.5, 0.5, 1])
    assert told["bayes@N"][:3] == (want.value, want.mu, want.sigma)
    assert told["avg@N"] == flat["avg@N"], "prior outcomes are no attempts"
    assert told["max@2"][0] == flat["max@2"][0]
    assert told["max@2"][1] != flat["max@2"][1]


@pytest.mark.slow
def test_a_prior_of_verdicts_on_a_rubric_is_an_error(out: Path, tmp_path: Path) -> None:
    lake, levels = rubric_lake(tmp_path), "[rubric]\nlevels = [0, 1, 2]\n"
    for prior in ("[2.0, 3.0]", '"jeffreys"', '"empirical"'):
        with pytest.raises(UsageError, match=r"\[rubric\] prior"):
            run(lake, out, f"{levels}[uncertainty]\nprior = {prior}")
    assert not (out / "leaderboard.duckdb").exists()
    both = levels + "prior = [1, 1, 1]\n[policy]\npass_threshold = 2\n[uncertainty]\nprior = [2.0, 3.0]"
    assert run(lake, tmp_path / "both", both, metrics=["pass@1", "bayes@N"]).status == "published"
    want = metrics.summarize("pass@1", [5, 5], [2, 2], prior=(2.0, 3.0))
    assert scores(tmp_path / "both")["pass@1"][1] == want.mu


@pytest.mark.slow
def test_weights_of_verdicts(lake: Path, out: Path, tmp_path: Path) -> None:
    """A wrong answer costs a quarter of a right one."""
    marking = "[rubric]\nlevels = [0, 1]\nweights = [-0.25, 1]\n"
    run(verdict_lake(tmp_path), out, marking, metrics=["avg@N", "bayes@N", "max@2", "pass@1"])
    run(lake, tmp_path / "plain", metrics=["avg@N", "pass@1"])
    got = scores(out)
    assert got["avg@N"][0] == pytest.approx(-0.25 + 1.25 * 0.7, rel=1e-14)
    assert got["max@2"][0] == pytest.approx(-0.25 + 1.25 * 0.95, rel=1e-14)
    assert got["bayes@N"][1] == pytest.approx(-0.25 + 1.25 * 9 / 14, rel=1e-14)
    assert got["pass@1"] == scores(tmp_path / "plain")["pass@1"], "weights are of avg@N, bayes@N and max@k"
    lo, hi, rerun = got["avg@N"][5:]
    assert -0.25 < lo < got["avg@N"][0] < hi < 1
    assert rerun is None, "a rerun is of 0/1"
    run(lake, tmp_path / "told", marking + "prior = [1, 2]", metrics=["bayes@N", "pass@2"])
    told = scores(tmp_path / "told")
    assert told["bayes@N"][1] == pytest.approx(-0.25 + 1.25 * (6 + 7) / 20, rel=1e-14)
    assert told["pass@2"][1] == metrics.summarize("pass@2", [5, 5], [3, 4], prior=(3.0, 2.0)).mu
    ((lift,),) = ask(out, "SELECT count(*) FROM comparison")
    assert lift == 0


def test_levels_without_a_score_must_be_verdicts(lake: Path, out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"levels are of a column score, and this lake has none"):
        run(verdict_lake(tmp_path), out, "[rubric]\nlevels = [0, 1, 2]")
    told = '[rubric]\nlevels = [0, 1]\nprior = [1, 1]\n[uncertainty]\nprior = "empirical"'
    with pytest.raises(UsageError, match="exclude each other"):
        run(lake, out, told)


@pytest.mark.slow
def test_spectra_have_names(lake: Path, out: Path, tmp_path: Path) -> None:
    config = "[spectra]\nsteep = [0.25, 0.75]\nflat = [0.5]\n[metrics]\nspectrum = [0.5, 0.5]\n"
    wanted = ["spectrum-steep@2", "geo-spectrum-steep@2_0.5", "Geo-Spectrum-Flat@1_0.3", "threshold-spectrum@2"]
    run(verdict_lake(tmp_path), out, config, metrics=wanted)
    got = scores(out)
    assert list(got) == ["spectrum-steep@2", "geo-spectrum-steep@2", "geo-spectrum-flat@1_0.3", "spectrum@2"]
    steep = 0.25 * 0.95 + 0.75 * 0.45
    assert got["spectrum-steep@2"][0] == pytest.approx(steep, rel=1e-14)
    assert got["geo-spectrum-steep@2"][0] == pytest.approx((0.95 * steep) ** 0.5, rel=1e-14)
    assert got["geo-spectrum-flat@1_0.3"][0] == pytest.approx(0.7**0.3 * 0.35**0.7, rel=1e-14)
    run(lake, tmp_path / "all", config)
    assert {"spectrum@2", "spectrum-steep@2", "spectrum-flat@1"} <= set(scores(tmp_path / "all"))


@pytest.mark.parametrize(
    ("config", "name", "says"),
    [
        ("[spectra]\nsteep = [0.25, 0.75]", "spectrum-steep@8", "has 2 weights"),
        ("[spectra]\nsteep = [0.25, 0.75]", "spectrum-steeep@2", "unknown metric"),
        ("[spectra]\nsteep = [0.75, 0.75]", "spectrum-steep@2", "sum <= 1"),
        ("[spectra]\nsteep = []", "spectrum-steep@2", "sum <= 1"),
        ("", "spectrum-steep@2", "unknown metric"),
    ],
)
def test_spectra_that_are_none(out: Path, tmp_path: Path, config: str, name: str, says: str) -> None:
    with pytest.raises(MetricError, match=says):
        run(verdict_lake(tmp_path), out, config, metrics=[name])


@pytest.mark.parametrize("name", ["star", "Steep", "a b", "x_1", ""])
def test_names_of_spectra(out: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="spectra"):
        run(verdict_lake(tmp_path), out, f'[spectra]\n"{name}" = [1.0]')


def test_powers_and_aliases(out: Path, tmp_path: Path) -> None:
    wanted = ["geom@2_0.3_0.7", "geom-ds@2_0.5_0.5", "geom-ds@2_-1_1", "mean", "Accuracy", "best@2", "unanimous@2"]
    run(verdict_lake(tmp_path), out, metrics=[*wanted, "geo-spectrum-star@2"])
    got = scores(out)
    assert list(got) == (
        ["geom@2_0.3_0.7", "geom-ds@2", "geom-ds@2_-1.0_1.0", "avg@N", "pass@1", "max@2", "pass^2", "geo-spectrum@2"]
    )
    assert got["geom-ds@2_-1.0_1.0"][0] == pytest.approx(0.45 / 0.95, rel=1e-14)
    assert got["pass@1"][0] == got["avg@N"][0] == pytest.approx(0.7, rel=1e-15)


def test_consensus_is_a_vote(lake: Path, out: Path) -> None:
    frame = attempts(model="m", problem_id="p", passed=[True, True, False], answer=["a", "a", "b"])
    run(frame, out, metrics=["cons@3"])
    assert scores(out)["vote@3"][0] == 1


def test_bounds_of_the_posterior(lake: Path, out: Path, tmp_path: Path) -> None:
    run(verdict_lake(tmp_path), out, "[uncertainty]\nbounds = [0.5, 0.8]", metrics=["pass@1"])
    value, mu, _, mu_lo, mu_hi, lo, hi, _ = scores(out)["pass@1"]
    assert (mu_lo, mu_hi) == (0.5, 0.8)
    assert lo < 0.5 < mu < value < 0.8 < hi, "the interval of the value is another one"
    with pytest.raises(UsageError, match="must not exceed"):
        run(lake, tmp_path / "bad", "[uncertainty]\nbounds = [1, 0]")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("geom@2_0.3", "two powers"),
        ("geom@2_0_0", "at least one power"),
        ("geom@2_a_b", "two powers"),
        ("geom@2_nan_1", "two powers"),
        ("geom@2_1_2_3", "two powers"),
        ("geom@2_1e9_1", "two powers"),
    ],
)
def test_powers_that_are_none(name: str, says: str) -> None:
    with pytest.raises(MetricError, match=says):
        metrics.parse(name)
