"""Synthetic lakes: seeded, complete, and as described."""

from pathlib import Path

import polars as pl
import pytest

from conftest import ask, run
from scorelake import synth
from scorelake.errors import UsageError


def read(lake: Path) -> pl.DataFrame:
    return pl.concat(
        pl.read_parquet(p, hive_partitioning=False).with_columns(folder=pl.lit(p.parent.name))
        for p in sorted(lake.rglob("*.parquet"))
    )


@pytest.mark.parametrize("layout", ["clustered", "shuffled"])
def test_every_attempt_once(tmp_path: Path, layout: str) -> None:
    plan = synth.Plan(3, 40, 10, seed=5, layout=layout, files=6, rewards=True)  # type: ignore[arg-type]
    total = synth.write(tmp_path / "a", plan)
    frame = read(tmp_path / "a")
    if layout == "clustered":
        frame = frame.with_columns(model=pl.col("folder").str.strip_prefix("model="))
    assert frame.height == total
    assert frame.select("model", "problem_id", "attempt").is_unique().all()
    n = frame.group_by("model", "problem_id").len()["len"]
    assert (n.len(), n.min() >= 5, n.max() <= 10) == (120, True, True)  # type: ignore[operator]
    assert len(list((tmp_path / "a").rglob("*.parquet"))) == 6
    assert frame["score"].is_between(0, 1).sum() + frame["score"].null_count() == total
    rates = frame.group_by("model").agg(pl.col("passed").mean()).sort("model")["passed"].to_list()
    assert rates == sorted(rates, reverse=True), "models are ordered by strength"


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        synth.write(tmp_path / name, synth.Plan(2, 10, 8, seed=seed))
    a, b, c = ([p.read_bytes() for p in sorted((tmp_path / x).rglob("*.parquet"))] for x in "abc")
    assert a == b != c


@pytest.mark.parametrize("layout", ["clustered", "shuffled"])
def test_checkpoints_and_costs(tmp_path: Path, layout: str) -> None:
    """Every run learns; `scorelake score` reads its steps and costs."""
    synth.write(tmp_path / "lake", synth.Plan(2, 60, 8, layout=layout, steps=6, costs=True))
    run(tmp_path / "lake", tmp_path / "out", '[columns]\nstep = "step"\n[measures]\ncost_usd = {kind = "cost"}\n')
    series = ask(tmp_path / "out", "SELECT model, step, value FROM series WHERE metric = 'pass@1' ORDER BY ALL")
    assert [row[:2] for row in series] == [(m, 10 * i) for m in ("model-00", "model-01") for i in range(1, 7)]
    for values in ([row[2] for row in series[:6]], [row[2] for row in series[6:]]):
        assert values[0] < values[2] < max(values[3:])
    (spent,) = ask(tmp_path / "out", "SELECT sum(total + ungraded_total) FROM measure_summary WHERE subject IS NULL")
    assert spent == (pytest.approx(read(tmp_path / "lake")["cost_usd"].sum()),)


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        synth.write(tmp_path, synth.Plan(1, 1, 1))
    with pytest.raises(UsageError, match="at least 1"):
        synth.write(tmp_path / "n", synth.Plan(0, 1, 1))
    with pytest.raises(UsageError, match="subjects"):
        synth.write(tmp_path / "n", synth.Plan(1, 1, 1, subjects=99))
