"""Macro averages over benchmarks, against the formula of METRICS section 9 number by number."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import ask, attempts, expand, put, run
from scorelake import metrics
from scorelake.errors import UsageError
from scorelake.read.report import report
from scorelake.read.session import reading

RNG = np.random.default_rng(3)
SIZES = {"code": 40, "math": 12, "law": 7}


def lake(tmp_path: Path) -> Path:
    """Three benchmarks; model b has not tried one of them, and c one with too few attempts."""
    frames = []
    for model in "abc":
        for benchmark, size in SIZES.items():
            if (model, benchmark) == ("b", "law"):
                continue
            n = 1 if (model, benchmark) == ("c", "math") else 4
            counts = [(f"p{i}", n, int(RNG.integers(0, n + 1))) for i in range(size)]
            frames.append(expand(counts, model=model, benchmark=benchmark))
    put(tmp_path / "lake", pl.concat(frames))
    return tmp_path / "lake"


@pytest.mark.slow
@pytest.mark.parametrize("weights", [{}, {"law": 3.0, "code": 0.5}])
def test_it_is_the_formula(out: Path, tmp_path: Path, weights: dict[str, float]) -> None:
    given = "\n".join(f"{name} = {weight}" for name, weight in weights.items())
    run(lake(tmp_path), out, f"[overall.weights]\n{given}", metrics=["pass@1", "pass@2", "geom-ds@2"])
    for metric in ("pass@1", "pass@2", "geom-ds@2"):
        sql = "SELECT benchmark, value, se, problems_scored FROM model_summary WHERE model = 'a' AND metric = ?"
        parts = ask(out, sql, metric)
        total = sum(weights.get(part[0], 1.0) for part in parts)
        share = [weights.get(part[0], 1.0) / total for part in parts]
        value = sum(w * part[1] for w, part in zip(share, parts, strict=True))
        squares = [(w * part[2]) ** 2 for w, part in zip(share, parts, strict=True)]
        se = math.sqrt(sum(squares))
        units = 1 + se**4 / sum(x**2 / (part[3] - 1) for x, part in zip(squares, parts, strict=True))
        lo, hi = metrics.interval(np.array([value]), np.array([se]), np.array([units]))
        sql = "SELECT value, se, lo, hi, benchmarks, missing FROM overall WHERE model = 'a' AND metric = ?"
        (got,) = ask(out, sql, metric)
        assert got[:4] == pytest.approx((value, se, lo[0], hi[0]), rel=1e-12)
        assert got[4:] == (3, None)


@pytest.mark.slow
def test_a_missing_part_is_named(out: Path, tmp_path: Path) -> None:
    run(lake(tmp_path), out, metrics=["pass@1", "pass@2"])
    sql = "SELECT metric, model, rank, value IS NULL, lo IS NULL, benchmarks, missing FROM overall ORDER BY 1, 2"
    got = ask(out, sql)
    assert [row[3:] for row in got] == [
        (False, False, 3, None),
        (True, True, 3, "law"),
        (False, False, 3, None),
        (False, False, 3, None),
        (True, True, 3, "law"),
        (True, True, 3, "math"),
    ]
    assert sorted(row[2] for row in got[:3] if row[2]) == [1, 2]
    assert [row[2] for row in got[3:]] == [1, None, None]
    run(tmp_path / "lake", tmp_path / "some", "[overall.weights]\nlaw = 0\nmath = 0", metrics=["pass@1"])
    sql = "SELECT o.value = s.value, o.lo - s.lo, benchmarks FROM overall AS o JOIN model_summary AS s USING (model)"
    for same, apart, benchmarks in ask(tmp_path / "some", f"{sql} WHERE s.benchmark = 'code'"):
        assert (same, benchmarks) == (True, 1)
        assert apart == pytest.approx(0, abs=1e-12)


def test_a_model_that_is_not_ranked_on_a_part_has_no_rank(out: Path, tmp_path: Path) -> None:
    """The easiest third of a benchmark must not lead all benchmarks."""
    for benchmark, tried in (("code", 4), ("math", 12)):
        for model, many in (("whole", 12), ("easy", tried)):
            rows = expand([(f"p{i}", 4, 4 - i // 3) for i in range(many)], model=model, benchmark=benchmark)
            put(tmp_path / "lake", rows, f"{benchmark}-{model}.parquet")
    run(tmp_path / "lake", out, metrics=["pass@1"])
    assert ask(out, "SELECT model, rank FROM overall ORDER BY value DESC") == [("easy", None), ("whole", 1)]
    with reading(str(out)) as folder:
        assert "easy is not ranked: no rank on code" in report(folder)


PASSED = [("m", 0.416666667, 1, 2, None), ("only", None, None, 2, "math"), ("other", 0.1, 2, 2, None)]


def test_rewards_are_not_averaged_with_verdicts(out: Path) -> None:
    """Averages are over benchmarks of one kind and scale; a missing one is named, and ranks have ranges."""
    problems = [f"p{i}" for i in range(30)]
    verdicts = [
        attempts(model=model, benchmark=benchmark, problem_id=problems, passed=[i % every == 0 for i in range(30)])
        for model, benchmark, every in (("m", "math", 2), ("m", "code", 3), ("other", "math", 5), ("only", "code", 1))
    ]
    verdicts.append(attempts(model="other", benchmark="code", problem_id=problems, passed=[False] * 30))
    rewards = attempts(model="m", benchmark="games", problem_id=problems, score=[10.5 * i for i in range(30)])
    run(pl.concat([*verdicts, rewards], how="diagonal"), out, metrics=())
    sql = "SELECT metric, model, round(value, 9), rank_lo, benchmarks, missing FROM overall ORDER BY 1, 2"
    assert [row for row in ask(out, sql) if row[0] in ("avg@N", "max@1", "pass@1")] == [
        *[("avg@N", *row) for row in PASSED],
        ("max@1", "m", 152.25, None, 1, None),
        ("max@1", "only", None, None, 1, "games"),
        ("max@1", "other", None, None, 1, "games"),
        *[("pass@1", *row) for row in PASSED],
    ]


def test_protocols_are_never_mixed(out: Path, tmp_path: Path) -> None:
    counts = [(f"p{i}", 2, i % 3) for i in range(6)]
    frames = [
        expand(counts, model="a", benchmark=benchmark, temperature=heat)
        for benchmark, heat in (("x", 0.0), ("y", 0.0), ("x", 1.0))
    ]
    put(tmp_path / "lake", pl.concat(frames))
    run(tmp_path / "lake", out, '[protocol]\ncolumns = ["temperature"]', metrics=["pass@1"])
    assert ask(out, "SELECT benchmarks, missing FROM overall ORDER BY protocol") == [(2, None), (1, None)]


@pytest.mark.slow
def test_parts_without_spread(out: Path, tmp_path: Path) -> None:
    """All failed, 30 problems each: as if all 60 were one sample. One problem only: no better than one problem."""
    counts = [(f"p{i}", 2, 0) for i in range(30)]
    put(tmp_path / "lake", pl.concat([expand(counts, model="a", benchmark=b) for b in "xy"]))
    put(tmp_path / "one", pl.concat([expand(counts[: 1 if b == "x" else 30], model="a", benchmark=b) for b in "xy"]))
    run(tmp_path / "lake", out, metrics=["pass@1"])
    run(tmp_path / "one", tmp_path / "alone", metrics=["pass@1"])
    zero, none = np.zeros(1), np.full(1, np.nan)
    want = metrics.interval(zero, zero, np.array([59]))[1][0]
    assert ask(out, "SELECT lo, hi FROM overall") == [(0.0, pytest.approx(want, rel=1e-12))]
    want = metrics.interval(zero, none, np.array([1]))[1][0]
    assert ask(tmp_path / "alone", "SELECT lo, hi, se FROM overall") == [(0.0, pytest.approx(want, rel=1e-12), None)]


def test_weights_of_no_benchmark(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no benchmark 'maths'"):
        run(lake(tmp_path), out, "[overall.weights]\nmaths = 2")
    with pytest.raises(UsageError, match="greater than or equal to 0"):
        run(lake(tmp_path), out, "[overall.weights]\nmath = -2")
