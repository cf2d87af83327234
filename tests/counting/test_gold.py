"""Trusted grades are counted per problem beside the judged ones, over duplicates, shards and files without them."""

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from conftest import attempts, put, run, snapshot
from scorelake.errors import ScorelakeError, UsageError
from scorelake.settings import GOLD_COLUMNS

CONFIG = '[columns]\ngold = "truth"\n'


def counted(folder: Path, frames: list[pl.DataFrame], config: str = CONFIG) -> pl.DataFrame:
    for i, frame in enumerate(frames):
        put(folder / "lake", frame, f"part-{i}.parquet")
    run(folder / "lake", folder / "out", config)
    counts = pl.read_parquet(snapshot(folder / "out") / "problem_counts", glob=True)
    return counts.select("model", "problem_id", "n", "c", *GOLD_COLUMNS).sort("model", "problem_id")


@pytest.mark.parametrize("text_ids", [False, True])
def test_labelled_attempts_are_counted_once(tmp_path: Path, text_ids: bool) -> None:
    rng = np.random.default_rng(1)
    ids = [(m, p, a) for m in "ab" for p in range(12) for a in range(9)]
    draw = rng.integers(0, 3, (2, len(ids))).tolist()
    verdicts = [(None, False, True)[k] for k in draw[0]]
    labels = [(None, 0, 1)[k] for k in draw[1]]
    columns = dict(zip(("model", "problem_id", "attempt"), zip(*ids, strict=True), strict=True))
    once = pl.DataFrame({**columns, "passed": verdicts, "truth": pl.Series(labels, dtype=pl.Int8)})
    once = once.with_columns(pl.format("run {}", "attempt").alias("attempt")) if text_ids else once
    unlabelled = once.sample(fraction=0.3, seed=1).drop("truth")
    counts = counted(tmp_path, [once[:100], once[100:], once.sample(fraction=0.5, seed=2), unlabelled])
    right: Counter[tuple[str, int, str]] = Counter()
    for (model, problem, _), passed, label in zip(ids, verdicts, labels, strict=True):
        if passed is not None and label is not None:
            held = zip(GOLD_COLUMNS, (1, label, passed, label and passed), strict=True)
            right.update({(model, problem, name): int(value) for name, value in held})
    for model, problem, *rest in counts.rows():
        assert rest[2:] == [right[model, int(problem), name] for name in GOLD_COLUMNS], (model, problem)
    assert counts["gold_n"].sum() > 50


def test_the_largest_of_several_grades_counts(tmp_path: Path) -> None:
    frame = attempts(model="m", problem_id=["p"] * 4, attempt=[0, 0, 0, 1], passed=False, truth=[0, 1, None, None])
    assert counted(tmp_path, [frame]).rows() == [("m", "p", 2, 0, 1, 1, 0, 0)]


def test_grades_may_be_texts_and_must_be_valid(tmp_path: Path) -> None:
    texts = attempts(model="m", problem_id=["p", "q"], passed=["C", "I"], truth=["I", "I"])
    spelled = CONFIG + 'pass_values = ["C"]\nfail_values = ["I"]\n'
    assert counted(tmp_path / "texts", [texts], spelled).row(0)[4:] == (1, 0, 1, 0)
    wrong = attempts(model="m", problem_id=["p", "q"], passed=True, truth=[1, 2])
    with pytest.raises(ScorelakeError, match="not a valid outcome"):
        counted(tmp_path / "wrong", [wrong])
    with pytest.raises(UsageError, match=r"no column truth"):
        counted(tmp_path / "none", [wrong.drop("truth")])
