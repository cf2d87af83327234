"""Graders that contradict themselves or each other, against counting by hand."""

from collections import defaultdict
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from counted import rows, scored


@pytest.mark.slow
def test_the_same_answer_with_two_verdicts(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    attempts = [
        {
            "model": f"m{m}",
            "subject": "xy"[p % 2],
            "problem_id": p // 2,
            "grader": "gh"[m % 2],
            "answer": None if rng.random() < 0.1 else str(rng.integers(0, 3)),
            "passed": None if rng.random() < 0.05 else bool(rng.random() < 0.5),
        }
        for m in range(3)
        for p in range(20)
        for _ in range(6)
    ]
    got = rows(
        scored(tmp_path, pl.DataFrame(attempts), protocol={"columns": ["grader"]}), "FROM grader_noise ORDER BY model"
    )
    assert [(r["model"], r["grader"]) for r in got] == [("m0", "g"), ("m1", "h"), ("m2", "g")]
    for row in got:
        said: dict[tuple[Any, ...], list[bool]] = defaultdict(list)
        for a in attempts:
            if a["model"] == row["model"] and a["passed"] is not None and a["answer"] is not None:
                said[a["subject"], a["problem_id"], a["answer"]].append(a["passed"])
        repeated = [v for v in said.values() if len(v) > 1]
        assert row["problems"] == len({key[:2] for key in said})
        assert (row["answers"], row["answers_repeated"]) == (len(said), len(repeated))
        assert row["answers_mixed"] == sum(0 < sum(v) < len(v) for v in repeated)
        assert row["share_mixed"] == pytest.approx(row["answers_mixed"] / len(repeated))
        assert row["attempts_repeated"] == sum(len(v) for v in repeated)
        assert row["attempts_odd"] == sum(min(sum(v), len(v) - sum(v)) for v in repeated)
        torn, pairs = sum(sum(v) * (len(v) - sum(v)) for v in repeated), sum(comb(len(v), 2) for v in repeated)
        assert row["disagreement"] == pytest.approx(torn / pairs, rel=1e-14)
        by_problem: dict[tuple[Any, ...], int] = defaultdict(int)
        for key, v in said.items():
            by_problem[key[:2]] += sum(v) * (len(v) - sum(v))
        worst = sorted((-x, *key) for key, x in by_problem.items() if x)[:3]
        assert row["examples"] == [str(problem) for *_, problem in worst]


@pytest.mark.slow
def test_a_sure_grader_and_a_lake_without_answers(tmp_path: Path) -> None:
    five = [(p, i) for p in range(5) for i in range(4)]
    sure = [{"model": "m", "problem_id": p, "answer": str(i % 2), "passed": i % 2 == 0} for p, i in five]
    (row,) = rows(scored(tmp_path / "one", pl.DataFrame(sure)), "FROM grader_noise")
    assert (row["grader"], row["answers_repeated"], row["answers_mixed"]) == (None, 10, 0)
    assert (row["disagreement"], row["share_mixed"], row["examples"]) == (0, 0, None)
    assert rows(scored(tmp_path / "two", pl.DataFrame(sure).drop("answer")), "FROM grader_noise") == []


def test_two_graders_on_the_same_attempts(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    attempts = []
    verdicts: dict[str, list[list[bool]]] = {"g": [], "h": []}
    for p in range(30):
        truth = rng.random(5) < 0.5
        for grader, error in (("g", 0.1), ("h", 0.3)):
            passed = [bool(x != (rng.random() < error)) for x in truth]
            verdicts[grader].append(passed)
            attempts += [
                {"model": "m", "problem_id": p, "temperature": 0.5, "grader": grader, "passed": x} for x in passed
            ]
    attempts.append({"model": "m", "problem_id": 0, "temperature": 0.5, "grader": "h", "passed": True})  # n differs
    out = scored(tmp_path, pl.DataFrame(attempts), protocol={"columns": ["temperature", "grader"]})
    (row,) = rows(out, "FROM grader_disagreement")
    assert (row["otherwise"], row["grader_a"], row["grader_b"]) == ("0.5", "g", "h")
    assert (row["problems"], row["problems_matched"]) == (30, 29)
    g, h = (np.array(verdicts[name])[1:] for name in ("g", "h"))
    assert row["least_disagreement"] == pytest.approx(np.abs(g.sum(axis=1) - h.sum(axis=1)).sum() / g.size)
    room = np.minimum(g.sum(axis=1) + h.sum(axis=1), 10 - g.sum(axis=1) - h.sum(axis=1))
    assert row["most_disagreement"] == pytest.approx(room.sum() / g.size)
    assert row["least_disagreement"] <= (g != h).mean() <= row["most_disagreement"]
    assert len(row["examples"]) == 3
    silent = "SELECT column_name FROM duckdb_columns() WHERE comment IS NULL AND table_name LIKE 'grader_%'"
    assert rows(out, silent) == []
