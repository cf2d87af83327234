"""Every row of every summary: its interval contains its value, and what it is a part of is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import ask, attempts, put, run
from scorelake.errors import DataError, UsageError
from scorelake.settings import load

SUMMARIES = ("model_summary", "subject_summary", "slice_summary")
OTHERS = ("leaderboard", "history", "curve", "overall")


def test_problems_of_the_benchmark_are_those_any_model_tried(lake: Path, out: Path) -> None:
    frame = pl.concat(
        [
            attempts(model="a", subject="x", problem_id=["1", "2", "3"], passed=[1, 0, None], hard=["y", "n", "n"]),
            attempts(model="a", subject="z", problem_id=["1"], passed=[1], hard=["y"]),
            attempts(model="b", subject="x", problem_id=["1", "4"], passed=[1, 0], hard=["y", None]),
        ],
        how="vertical_relaxed",
    )
    run(frame, out, metrics=["pass@1"], by=("hard",))
    told = "problems, problems_of_benchmark FROM"
    assert ask(out, f"SELECT model, {told} model_summary") == [("a", 4, 5), ("b", 2, 5)]
    assert ask(out, f"SELECT subject, model, {told} subject_summary") == (
        [("x", "a", 3, 4), ("x", "b", 2, 4), ("z", "a", 1, 1)]
    )
    assert ask(out, f"SELECT slice_value, model, {told} slice_summary ORDER BY ALL") == (
        [("n", "a", 2, 2), ("y", "a", 2, 2), ("y", "b", 1, 2), (None, "b", 1, 1)]
    )


def sound(out: Path) -> None:
    """What must hold in every row of every table that has an interval."""
    for table in SUMMARIES:
        for lo, value, hi, rerun_lo, rerun_hi, se, metric, scored in ask(
            out, f"SELECT lo, value, hi, rerun_lo, rerun_hi, se, metric, problems_scored FROM {table}"
        ):
            assert (lo is None) == (hi is None) == (value is None), (table, metric)
            assert value is None or lo <= value <= hi, (table, metric, lo, value, hi)
            assert (rerun_lo is None) == (rerun_hi is None)
            assert rerun_lo is None or rerun_lo <= value <= rerun_hi, (table, metric)
            assert value is not None or se is None
            assert value is None or scored > 0
    for table in OTHERS:
        for lo, value, hi in ask(out, f"SELECT lo, value, hi FROM {table}"):
            assert (lo is None) == (hi is None) == (value is None), table
            assert value is None or lo <= value <= hi, (table, lo, value, hi)


verdict = st.sampled_from([True, True, False, False, None])
rows = st.lists(
    st.tuples(
        *(st.sampled_from(letters) for letters in ("ab", "xy", "uv")),
        st.integers(0, 3),
        verdict,
        st.sampled_from("rst"),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.booleans(), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_interval_contains_its_value(
    tmp_path_factory: pytest.TempPathFactory, made: list[Any], clustered: bool, coverage: float
) -> None:
    home = tmp_path_factory.mktemp("random")
    columns = {
        "model": [row[0] for row in made],
        "subject": [row[1] for row in made],
        "benchmark": [row[2] for row in made],
        "problem_id": [row[3] for row in made],
        "passed": pl.Series([row[4] for row in made], dtype=pl.Boolean),
        "answer": [row[5] for row in made],
        "half": [row[3] // 2 for row in made],
    }
    put(home / "lake", pl.DataFrame(columns))
    config = f"[uncertainty]\nmin_coverage = {coverage}\n[compare]\nresamples = 100\n"
    config += '[columns]\ncluster = "half"\n' if clustered else ""
    run(home / "lake", home / "out", config, by=("half",))
    sound(home / "out")


REWARDS = attempts(model="m", problem_id=[1, 1, 2, 2, 3, 3], score=[0.1, 0.7, 0.0, 0.4, 0.9, 1.0])


@pytest.mark.slow
def test_bounds_of_rewards(lake: Path, tmp_path: Path) -> None:
    put(lake, REWARDS)
    run(lake, tmp_path / "free", metrics=["avg@N", "max@2"])
    run(lake, tmp_path / "known", "[rubric]\nbounds = [0, 1]", metrics=["avg@N", "max@2"])
    for out in ("free", "known"):
        sound(tmp_path / out)
    sql = "SELECT value, lo, hi, se FROM model_summary WHERE metric = 'avg@N'"
    ((value, lo, hi, se),) = ask(tmp_path / "free", sql)
    assert (lo, hi) == pytest.approx((value - 4.302652729749464 * se, value + 4.302652729749464 * se), rel=1e-12)
    assert lo < 0 < hi - 1, "nothing says that scores end at 0 and 1"
    ((again, lo, hi, _),) = ask(tmp_path / "known", sql)
    assert again == value
    assert 0 < lo < value < hi < 1


def test_scores_outside_the_bounds_are_refused(lake: Path, out: Path) -> None:
    put(lake, REWARDS)
    with pytest.raises(DataError, match=r"score of 1 lies outside \[rubric\] bounds = \[0, 0.5\]"):
        run(lake, out, "[rubric]\nbounds = [0, 0.5]\n[run]\nbucket_rows = 1")
    assert not (out / "leaderboard.duckdb").exists()


@pytest.mark.parametrize(
    "rubric", [{"bounds": (1, 1)}, {"bounds": (0, 1), "levels": (0, 1)}, {"bounds": (0,)}, {"bounds": (0, "nan")}]
)
def test_what_are_no_bounds(rubric: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="bounds"):
        load(None, **{f"rubric.{key}": value for key, value in rubric.items()})


def test_subjects_with_one_count_each_are_not_their_benchmark(lake: Path, out: Path) -> None:
    """The rows of both histograms are equal but for the subject."""
    frame = attempts(model="m", subject=["x", "y", "y"], problem_id=["1", "2", "2"], passed=[True, True, False])
    run(frame, out, metrics=["pass@1"])
    assert ask(out, "SELECT subject, value FROM subject_summary ORDER BY ALL") == [("x", 1.0), ("y", 0.5)]
    assert ask(out, "SELECT value FROM model_summary") == [(0.75,)]
