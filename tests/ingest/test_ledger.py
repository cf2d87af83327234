"""Adding up attempts: the same in one pass and in many, and against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb, nan
from pathlib import Path

import numpy as np
import pytest

from scorelake.ingest.ledger import ENTRY, Board, example, tally


def entries(path: Path, rows: list[tuple[int, int, float, bool]]) -> Path:
    book = np.zeros(len(rows), ENTRY)
    for i, (problem, attempt, value, error) in enumerate(rows):
        book[i] = (problem, problem * 1000 + attempt, value, 0, 0, error)
    path.write_bytes(book.tobytes())
    return path


def test_rows_add_up(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    rows = [(int(p), int(a), float(v), False) for p, a, v in draw.integers(0, (40, 30, 2), (500, 3))]
    first = {(p, a): v for p, a, v, _ in reversed(rows)}
    rows = [(p, a, first[p, a], False) for p, a, _, _ in rows] + [(99, 1, nan, True), (98, 1, 0.0, True)]
    path = entries(tmp_path / "ledger", rows)
    one = tally([(path, 0)])
    many = tally([(path, 0)], most=7)
    assert one.boards[0].means == pytest.approx(many.boards[0].means)
    many.boards[0].means = one.boards[0].means
    assert one == many
    assert one.rows == one.graded + one.ungraded + one.duplicate == 502
    assert (one.graded, one.ungraded, one.errors) == (len(first) + 1, 1, 2)
    assert one.total == one.earned == sum(first.values())
    assert one.verdicts == len(first)
    assert one.duplicate == 500 - len(first)
    by: dict[int, list[float]] = {}
    for (p, _), v in first.items():
        by.setdefault(p, []).append(v)
    by |= {98: [0.0], 99: []}
    assert sum(one.histogram.values()) == len(by)
    assert one.histogram[0] == 1
    scored = [values for values in by.values() if values]
    k = min(map(len, scored))
    exact = sum(1 - Fraction(comb(v.count(0.0), k), comb(len(v), k)) for v in scored) / len(scored)
    assert one.boards[0].value(f"pass@{k}") == pytest.approx(float(exact))
    assert one.boards[0].value("problems") == pytest.approx(sum(sum(v) / len(v) for v in scored) / len(scored))
    assert one.boards[0].value("mean") == pytest.approx(one.total / one.graded)
    assert one.boards[0].value(f"pass@{k + 1}") is None
    assert Board().value("mean") is None


def test_two_sources(tmp_path: Path) -> None:
    """What one source says of an attempt can be held against what another says, if they are about the same."""
    one, two = entries(tmp_path / "1", [(1, 1, 1.0, False)]), entries(tmp_path / "2", [(1, 1, 0.0, False)])
    apart = tally([(one, "a"), (two, "b")])
    assert (apart.graded, apart.conflicts) == (2, [])
    same = tally([(one, "a"), (two, "a")])
    assert same.conflicts == [((1, 0), (0, 0))]
    assert same.conflicting == {0, 1}
    assert tally([(one, "a"), (one, "a")]).duplicate == 1
    assert tally([]).rows == 0


def test_one_problem_with_many_attempts(tmp_path: Path) -> None:
    """Attempts of one problem are taken in parts, and what they add up to is the same."""
    rows = [(1, i % 900, float(i % 900 % 3 == 0), False) for i in range(1000)] + [(2, 0, nan, False)]
    path = entries(tmp_path / "ledger", rows)
    one, many = tally([(path, 0)]), tally([(path, 0)], most=10)
    assert one == many
    assert (one.graded, one.duplicate, one.total, one.histogram[900]) == (900, 100, 300, 1)
    assert one.repeated is not None


def test_one_id_two_problems(tmp_path: Path) -> None:
    book = np.zeros(30, ENTRY)
    book["problem"], book["attempt"], book["asked"] = 7, np.arange(30), [5] * 29 + [0]
    path = tmp_path / "ledger"
    path.write_bytes(book.tobytes())
    assert tally([(path, 0)], most=3).mixed is None
    book["asked"][20] = 6
    path.write_bytes(book.tobytes())
    for most in (3, 1000):
        told = tally([(path, 0)], most=most)
        assert told.mixed is not None
        assert example([(path, 0)], told.mixed) == ((0, 0), (0, 20))
