"""Statistics of attempts: the same in one pass and in many, and equal to exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from scorelake.ingest.attempt_stats import compute_stats


def stage(
    path: Path, rows: list[tuple[int, int, float | None, bool]], contents: list[int | None] | None = None
) -> Path:
    """Write (problem, attempt, value, error) as a staged file."""
    types: dict[str, Any] = {"problem_hash": pl.UInt64, "attempt_hash": pl.UInt64, "value": pl.Float64}
    types |= {"error": pl.Boolean, "content_hash": pl.UInt32, "benchmark": pl.String}
    records = [(p, p * 1000 + a, value, error, None, None) for p, a, value, error in rows]
    frame = pl.DataFrame(records, types, orient="row")
    if contents:
        frame = frame.with_columns(content_hash=pl.Series(contents, dtype=pl.UInt32))
    frame.write_parquet(path)
    return path


def test_counts_and_metrics_equal_exact_fractions_in_any_number_of_passes(tmp_path: Path) -> None:
    verdicts = {(p, a): float((p * 7 + a * a) % 3 == 0) for p in range(40) for a in range(5 + p % 9)}
    rows = [(*key, value, False) for key, value in verdicts.items()]
    rows += [*rows[::5], (99, 1, None, True), (98, 1, 0.0, True)]
    path = stage(tmp_path / "staged", rows)
    stats, again = compute_stats([(path, None)]), compute_stats([(path, None)], limit=7)
    order = ("benchmark", "n", "c")
    assert again.cells.sort(order).equals(stats.cells.sort(order))
    assert stats.first_repeat == again.first_repeat == (0, len(verdicts))
    counts = {"rows": len(rows), "graded": len(verdicts) + 1, "ungraded": 1, "errors": 2}
    assert stats.counts == counts | {"duplicate": len(rows) - len(verdicts) - 2}
    totals = [stats.total(name) for name in ("verdicts", "total", "verdict_total")]
    assert totals == [len(verdicts), *[sum(verdicts.values())] * 2]
    problems = [[value for (p, _), value in verdicts.items() if p == problem] for problem in range(40)] + [[0.0]]
    assert stats.histogram == {0: 1, **{n: sum(len(v) == n for v in problems) for n in (1, *range(5, 14))}}
    for name in ("problems", "pass@1", "pass^1"):
        assert stats.metric(name, "") == pytest.approx(sum(sum(v) / len(v) for v in problems) / len(problems))
    assert stats.metric("mean", "") == sum(verdicts.values()) / counts["graded"]
    assert (stats.metric("pass@2", ""), stats.metric("mean", "other")) == (None, None)
    stats = compute_stats([(stage(tmp_path / "staged", rows[: len(verdicts)]), None)])
    for k in (2, 5):
        pass_at = [1 - Fraction(comb(v.count(0.0), k), comb(len(v), k)) for v in problems[:-1]]
        pass_hat = [Fraction(comb(v.count(1.0), k), comb(len(v), k)) for v in problems[:-1]]
        assert stats.metric(f"pass@{k}", "") == pytest.approx(float(sum(pass_at) / 40))
        assert stats.metric(f"pass^{k}", "") == pytest.approx(float(sum(pass_hat) / 40))


def test_sources_conflict_only_if_they_have_the_same_identity(tmp_path: Path) -> None:
    one, two = stage(tmp_path / "1", [(1, 1, 1.0, False)]), stage(tmp_path / "2", [(1, 1, 0.0, False)])
    different = compute_stats([(one, "a"), (two, "b")])
    assert (different.counts["graded"], different.conflicts) == (2, [])
    same = compute_stats([(one, "a"), (two, "a")])
    assert (same.conflicts, same.conflicting_sources) == ([((1, 0), (0, 0))], {0, 1})
    assert compute_stats([(one, "a"), (one, "a")]).counts["duplicate"] == 1
    assert set(compute_stats([]).counts.values()) == {0}


@pytest.mark.parametrize("limit", [3, 1000])
def test_problem_with_different_contents_is_detected_in_any_number_of_passes(limit: int, tmp_path: Path) -> None:
    rows = [(7, i, 0.0, False) for i in range(30)]
    contents: list[int | None] = [5] * 29 + [None]
    assert compute_stats([(stage(tmp_path / "same", rows, contents), None)], limit).conflicts == []
    contents[20] = 6
    files = [(stage(tmp_path / "mixed", rows, contents), None)]
    assert compute_stats(files, limit).conflicts == [((0, 0), (0, 20))]


def test_rewards_have_a_range_and_no_pass_at_k(tmp_path: Path) -> None:
    rows = [(1, 1, -2.5, False), (1, 2, 1e308, False), (2, 1, 1e308, False), (2, 2, 1.0, False)]
    stats = compute_stats([(stage(tmp_path / "staged", rows), None)])
    assert (stats.extent, stats.total("non_binary"), stats.metric("pass@1", "")) == ("from -2.5 to 1e+308", 3, None)
