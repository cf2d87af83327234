"""Measures are summed over attempts, each paid once, whatever the order and the cut of the files."""

import tomllib
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from conftest import ask, attempts, put, run, snapshot
from scorelake.errors import ScorelakeError, UsageError
from scorelake.lake.infer import config_text, infer_config
from scorelake.lake.listing import listing
from scorelake.lake.sample import sample_lake
from scorelake.metrics.costs import BINS, FIRST_EDGE, budget_edges
from scorelake.settings import MEASURE_COLUMNS, Settings

CONFIG = """
[measures]
cost_usd = {kind = "cost"}
out = {kind = "tokens", column = "tokens"}
"""


def lake(seed: int) -> pl.DataFrame:
    """Attempts of two models, a third of them repeated; some ungraded, some without a cost."""
    rng = np.random.default_rng(seed)
    ids = pl.DataFrame({"model": ["a", "b"]}).join(pl.DataFrame({"problem_id": range(25)}), how="cross")
    ids = ids.join(pl.DataFrame({"attempt": range(8)}), how="cross")
    draw = rng.random((3, ids.height))
    once = ids.with_columns(
        passed=pl.when(pl.Series(draw[0] > 0.1)).then(pl.Series(draw[2] < 0.5)),
        cost_usd=pl.when(pl.Series(draw[1] > 0.1)).then(pl.Series(rng.lognormal(-3, 2, ids.height).round(9))),
        tokens=rng.integers(0, 10**8, ids.height),
    )
    return pl.concat([once, once.sample(fraction=0.5, seed=seed)]).sample(fraction=1, shuffle=True, seed=seed)


def counted(folder: Path, frames: list[pl.DataFrame], config: str = CONFIG) -> pl.DataFrame:
    for i, frame in enumerate(frames):
        put(folder / "lake", frame, f"part-{i}.parquet")
    run(folder / "lake", folder / "out", config)
    return pl.read_parquet(snapshot(folder / "out") / "problem_counts", glob=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sums_are_those_of_a_database(tmp_path: Path, seed: int) -> None:
    frame = lake(seed)
    counts = counted(tmp_path, [frame[:300], frame[300:]])
    aggregates = []
    for name, column in (("cost_usd", "cost_usd"), ("out", "tokens")):
        for which, condition in (("", "passed IS NOT NULL"), ("passed_", "passed"), ("ungraded_", "passed IS NULL")):
            exact = f"sum({column}::DECIMAL(28, 9)) FILTER ({condition})"
            aggregates.append(f"coalesce({exact}, 0)::DOUBLE AS {name}_{which}sum")
            aggregates.append(f"count({column}) FILTER ({condition}) AS {name}_{which}count")
            if not which.startswith("un"):
                squares = f"sum(({column}::DOUBLE)**2) FILTER ({condition})"
                aggregates.append(f"coalesce({squares}, 0) AS {name}_{which}squares")
    with duckdb.connect() as db:
        db.register("lake", frame.unique())
        sql = f"SELECT model, problem_id::VARCHAR AS problem_id, {', '.join(aggregates)} FROM lake GROUP BY ALL"
        expected = pl.DataFrame(db.sql(sql).to_arrow_table()).sort("model", "problem_id")
    assert counts.height == expected.height == 50
    counts = counts.sort("model", "problem_id")
    for name in expected.columns[2:]:
        rel = 1e-12 if name.endswith("squares") else 1e-15
        assert counts[name].to_list() == pytest.approx(expected[name].to_list(), rel=rel, abs=1e-18), name


def test_sums_beyond_64_bits_are_exact(tmp_path: Path) -> None:
    cost = [10.0**8 - i for i in range(2000)]
    frame = pl.DataFrame({"model": "m", "problem_id": "p", "passed": True, "cost_usd": cost, "tokens": 1})
    counts = counted(tmp_path, [frame])
    exact = [sum(cost), float(sum(int(each) ** 2 for each in cost))]
    assert list(counts.select("cost_usd_sum", "cost_usd_squares").row(0)) == pytest.approx(exact, rel=1e-15)


def test_passed_attempts_are_binned(tmp_path: Path) -> None:
    frame = lake(4)
    bins = counted(tmp_path, [frame]).sort("model", "problem_id")["cost_usd_passed_bins"]
    passed = frame.unique().filter(pl.col("passed") & pl.col("cost_usd").is_not_null())
    edges = budget_edges(FIRST_EDGE["cost"])
    code = np.searchsorted(edges, passed["cost_usd"].to_numpy())
    assert code.max() < BINS
    expected = np.bincount(code, minlength=BINS)
    assert np.bincount(bins.explode().drop_nulls().to_numpy(), minlength=BINS).tolist() == expected.tolist()


def test_order_and_cut_do_not_change_a_byte(tmp_path: Path) -> None:
    frame = lake(5)
    shuffled = frame.sample(fraction=1, shuffle=True, seed=1)
    first = counted(tmp_path / "one", [frame])
    second = counted(tmp_path / "two", [shuffled[:100], shuffled[100:550], shuffled[550:]])
    columns = [f"{name}_{end}" for name in ("cost_usd", "out") for end in MEASURE_COLUMNS]
    assert first.select(columns).equals(second.select(columns))


def test_an_attempt_is_paid_once_at_its_largest_cost(tmp_path: Path) -> None:
    frame = attempts(
        model="m", problem_id=["p"] * 4, attempt=[0, 0, 1, 1], passed=True, cost_usd=[1.0, 3.0, None, 2.0]
    )
    counts = counted(tmp_path, [frame.with_columns(tokens=5)])
    assert counts.select("cost_usd_sum", "cost_usd_count", "out_sum", "n").row(0) == (5.0, 2, 10.0, 2)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e9])
def test_impossible_costs_are_rejected_by_name(tmp_path: Path, value: float) -> None:
    frame = attempts(model="m", problem_id=["p", "q"], passed=True, cost_usd=[1.0, value], tokens=1)
    with pytest.raises(ScorelakeError, match="cost_usd is negative, infinite, NaN or above 100000000"):
        counted(tmp_path, [frame])
    counts = counted(tmp_path / "allowed", [frame], CONFIG + "[policy]\nmax_rejected = 1\n")
    assert counts.select("problem_id", "cost_usd_sum").rows() == [("p", 1.0)]


def test_a_measure_must_be_a_number_that_is_there(tmp_path: Path) -> None:
    frame = attempts(model="m", problem_id=["p"], passed=True, cost_usd=["cheap"])
    with pytest.raises(
        ScorelakeError, match=r"column cost_usd is String; it must be a number[\s\S]*no column tokens"
    ):
        counted(tmp_path, [frame])


def test_without_measures_nothing_depends_on_them() -> None:
    settings = Settings()
    assert "measures" not in {**settings.counting(), **settings.scoring(), **settings.model_dump(mode="json")}


def test_init_guesses_measures(tmp_path: Path) -> None:
    frame = attempts(
        model="m", problem_id=["p", "q"], passed=True, cost_usd=[0.1, 0.2], output_tokens=[5, 6], note="x"
    )
    sample = sample_lake(listing(str(put(tmp_path / "lake", frame).parent)), Settings())
    config = tomllib.loads(config_text(infer_config(sample), "lake"))
    assert config["measures"] == {"cost_usd": {"kind": "cost"}, "output_tokens": {"kind": "tokens"}}
    assert set(Settings.model_validate(config).measures) == {"cost_usd", "output_tokens"}


def test_a_file_without_the_column_has_null_measures(tmp_path: Path) -> None:
    """Logs from before the cost was recorded; a column that no file has is an error with the closest name."""
    old = pl.DataFrame({"model": "m", "problem_id": ["p", "p"], "attempt": [0, 1], "passed": [True, False]})
    new = old.with_columns(attempt=pl.col("attempt") + 2, cost_usd=pl.lit(0.5))
    put(tmp_path / "lake", old, "old.parquet")
    put(tmp_path / "lake", new, "new.parquet")
    run(tmp_path / "lake", tmp_path / "out", '[measures]\ncost_usd = {kind = "cost"}\n')
    columns = "total, attempts, missing"
    assert ask(tmp_path / "out", f"SELECT {columns} FROM measure_summary") == [(1.0, 2, 2)]
    with pytest.raises(UsageError, match=r"no column cost_us \(closest: cost_usd\)"):
        run(tmp_path / "lake", tmp_path / "other", '[measures]\ncost_us = {kind = "cost"}\n')
