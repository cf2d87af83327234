"""Attempts that are made until they pass are found by their order, where they are numbered."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from conftest import ask, run
from scorelake import metrics
from scorelake.counting.attempt_order import add_sums, order_sums
from scorelake.errors import DataError
from scorelake.metrics.sampling import deviates
from scorelake.publish.snapshot import Output
from scorelake.read.check import check
from scorelake.schemas import KEYS


def problems_of(verdicts: NDArray[np.int64], words: int) -> pl.DataFrame:
    """Problems of one model, from verdicts by problem and attempt number: 1 passed, 0 failed, -1 not made."""
    bits = {}
    for name, verdict in (("passed", 1), ("failed", 0), ("ungraded", -2)):
        padded = np.zeros((len(verdicts), 64 * words), np.uint8)
        padded[:, : verdicts.shape[1]] = verdicts == verdict
        packed = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
        bits |= {f"{name}_bits_{i}": np.ascontiguousarray(packed[:, i]) for i in range(words)}
    keys = {key: "x" for key in KEYS if key != "problem_id"} | {"problem_id": [str(i) for i in range(len(verdicts))]}
    return pl.DataFrame({**keys, **bits}).with_columns(pl.col(KEYS).cast(pl.Categorical))


@pytest.mark.parametrize("words", [1, 3])
def test_sums_are_those_of_the_verdicts_in_order(words: int) -> None:
    rng = np.random.default_rng(words)
    verdicts = rng.integers(0, 2, (200, 64 * words))
    verdicts[rng.random(verdicts.shape) < rng.random((200, 1))] = -1  # numbers may have gaps
    verdicts[0] = -1
    verdicts[1] = 1
    frame = problems_of(verdicts, words)
    made = [row[row >= 0] for row in verdicts if (row >= 0).any()]
    n, c, last = ([f(row) for row in made] for f in (len, sum, lambda row: row[-1]))
    first = [row[: min(n)].sum() for row in made]
    halves = [order_sums(part, frame.columns[len(KEYS) :], "error") for part in (frame, frame[:0])]
    (sums,) = add_sums(halves).values()
    assert deviates(*sums) == pytest.approx(metrics.order_statistics(n, c, min(n), first, last))


def test_retries_are_named_by_the_job(tmp_path: Path, out: Path) -> None:
    """Up to three more attempts where the first four failed: counts alone do not show it."""
    rng, rows = np.random.default_rng(3), []
    for model in ("retried", "ragged", "passes first"):
        for problem, rate in enumerate(rng.beta(1, 3, 80)):
            verdicts = (rng.random(12) < rate).tolist()
            more = next((i + 1 for i in range(4, 12) if verdicts[i]), 12)
            n = (4 if sum(verdicts[:4]) > 1 else more) if model == "retried" else int(rng.integers(4, 13))
            made = sorted(verdicts[:n], reverse=True) if model == "passes first" else verdicts[:n]
            rows += [(model, f"p{problem}", i, passed) for i, passed in enumerate(made)]
    frame = pl.DataFrame(rows, schema=["model", "problem_id", "attempt", "passed"], orient="row")
    report = run(frame, out, metrics=["pass@1"])
    labels = dict(ask(out, "SELECT DISTINCT model, sampling FROM model_summary"))
    assert labels == {"retried": "adaptive", "ragged": "unknown", "passes first": "unknown"}
    assert any("attempts of retried seem to stop" in text for text in report.warnings)


def test_only_the_first_attempts_count_where_more_were_made_until_one_passed(tmp_path: Path, out: Path) -> None:
    """More attempts where the first two failed bias pass@1; the first two, which all problems have, do not."""
    rng, rows = np.random.default_rng(5), []
    for problem in range(300):
        verdicts = (rng.random(16) < rng.beta(0.5, 2)).tolist()
        until = next((i + 1 for i in range(2, 16) if verdicts[i]), 16)
        n = 2 if any(verdicts[:2]) else until
        rows += [("retried", f"p{problem}", i, verdicts[i]) for i in reversed(range(n))]
        rows += [("fixed", f"p{problem}", i, verdicts[i]) for i in range(5)]
    frame = pl.DataFrame(rows, schema=["model", "problem_id", "attempt", "passed"], orient="row")
    report = run(frame, out, metrics=["pass@1", "pass@2"], config='policy.sampling = "first"')
    first = {model: frame.filter(pl.col("model") == model, pl.col("attempt") < m)["passed"].mean()
             for model, m in (("retried", 2), ("fixed", 5))}  # fmt: skip
    assert dict(ask(out, "SELECT model, value FROM model_summary WHERE metric = 'pass@1'")) == pytest.approx(first)
    assert set(ask(out, "SELECT model, n FROM problem_counts")) == {("retried", 2), ("fixed", 5)}
    left_out = frame.height - 300 * 7
    assert ask(out, "SELECT graded, duplicates FROM run") == [(300 * 7, left_out)]
    assert (
        f'{left_out:,} attempts are left out by [policy] sampling = "first", and count as duplicates'
        in report.warnings
    )
    (recount,) = [each for each in check(Output(out)) if each.what == "recount in SQL"]
    assert recount.ok is None
    with pytest.raises(DataError, match="numbered 0 to 255"):
        run(frame.drop("attempt"), out, metrics=["pass@1"], config='policy.sampling = "first"')
