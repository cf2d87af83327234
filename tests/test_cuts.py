"""Every table of a lake with everything in it, however its problems are cut into buckets.

Scores that do not add up exactly, votes, clusters, slices, protocols, models that tried some of the problems. Sums
run in the order of buckets: the same buckets give the same bytes, other buckets the same numbers but for rounding.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from conftest import ask, put, run, tables

SHAPES = {
    "verdicts": '[columns]\ncarry = ["difficulty"]\n',
    "verdicts in clusters": '[columns]\ncarry = ["difficulty"]\ncluster = "passage"\n',
    "scores": "",
    "scores in clusters": '[columns]\ncluster = "passage"\n',
    "a rubric": "[rubric]\nlevels = [0.0, 0.1, 0.2, 0.3]\n",
    "votes": "[metrics]\nnames = ['pass@1', 'pass@2', 'vote@2', 'vote@3']\n",
    "a learnt prior": "[uncertainty]\nprior = 'empirical'\n",
}
CUT = "bucket_rows = 60\nshard_mb = 0.001\n"


def lake(home: Path, shape: str) -> Path:
    """Two benchmarks, three subjects, seven models, one of them on a third of the problems; two protocols."""
    rng = np.random.default_rng(5)
    rows = 5000
    problem, model = rng.integers(0, 120, rows), rng.integers(0, 7, rows)
    frame = pl.DataFrame(
        {
            "benchmark": np.where(problem < 90, "large", "small"),
            "subject": np.char.add("s", (problem % 3).astype(str)),
            "model": np.char.add("m", model.astype(str)),
            "problem_id": np.char.add("p", problem.astype(str)),
            "temperature": np.where((problem >= 90) & (model % 2 == 0), 0.7, 0.1),
            "difficulty": np.where(problem % 4 == 0, "hard", "easy"),
            "passage": pl.Series([None if p % 5 == 0 else f"passage {p // 7}" for p in problem]),
            "passed": rng.random(rows) < (problem % 10 + model) / 16,
            "answer": np.char.add("a", rng.integers(0, 4, rows).astype(str)),
        }
    )
    frame = frame.filter(~(pl.Series(model == 3) & pl.Series(problem % 3 != 0)))
    if shape != "votes":
        frame = frame.drop("answer")
    if "score" in shape or "rubric" in shape:
        more = rng.random(frame.height) if "score" in shape else np.zeros(frame.height)
        score = rng.integers(0, 4, frame.height) / 10 + more
        frame = frame.drop("passed").with_columns(score=pl.Series(score))
    put(home / shape, frame)
    return home / shape


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_buckets_do_not_change_numbers(shape: str, tmp_path: Path) -> None:
    where = lake(tmp_path, shape)
    columns = SHAPES[shape] if "[columns]" in SHAPES[shape] else f'[columns]\ncarry = ["difficulty"]\n{SHAPES[shape]}'
    config = f'by = ["difficulty"]\n{columns}[protocol]\ncolumns = ["temperature"]\n'
    config += "[compare]\nresamples = 100\nmin_problems = 5\n[run]\n"
    run(where, tmp_path / "single", config)
    want = tables(tmp_path / "single")
    assert sum("problem_counts" in name for name in want) == 1
    run(where, tmp_path / "cut", config + CUT)
    got = tables(tmp_path / "cut")
    assert sum("problem_counts" in name for name in got) > 2
    for name in want:
        if "/" not in name and name.endswith(".parquet"):
            one, two = (pl.read_parquet(BytesIO(each[name])) for each in (want, got))
            assert_frame_equal(one, two, rel_tol=1e-12, abs_tol=1e-12)
    for view in ("problem_counts", "problem_scores"):
        sql = f"FROM {view} ORDER BY ALL"
        assert ask(tmp_path / "cut", sql) == ask(tmp_path / "single", sql), view
    if shape.startswith("scores"):  # sums that are rounded
        run(where, tmp_path / "again", config + CUT)
        assert tables(tmp_path / "again") == got
