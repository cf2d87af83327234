"""Exact de-duplication: across rows, files and shards, by sums where they prove it and spelled out where not."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scorelake.counts import DOUBT, HASH, OUTCOMES, PROBLEM, TOLD, Counts
from scorelake.merge.duplicates import ANSWER, ATTEMPT, INTEGER, in_doubt, resolve, spelled_out

from conftest import ask, attempts, put, run
from scorelake.errors import DataError
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.schemas import KEYS

SQL = "SELECT model, problem_id, n, c, ungraded FROM problem_counts ORDER BY ALL"
Row = tuple[str, object, bool | None]


def lake(home: Path, files: list[list[Row]], kind: pl.DataType | None = None) -> Path:
    for i, rows in enumerate(files):
        frame = attempts(
            model="m", problem_id=[r[0] for r in rows], attempt=[r[1] for r in rows], passed=[r[2] for r in rows]
        ).with_columns(pl.col("passed").cast(pl.Boolean))
        put(home / "lake", frame.with_columns(pl.col("attempt").cast(kind or pl.Int32)), f"{i}.parquet")
    return home / "lake"


def test_agreeing_duplicates_are_counted_and_dropped(tmp_path: Path) -> None:
    files: list[list[Row]] = [[("a", 0, True), ("a", 1, False), ("a", 0, True)], [("a", 1, False), ("b", 0, None)]]
    report = run(lake(tmp_path, files), tmp_path / "out")
    assert ask(tmp_path / "out", SQL) == [("m", "a", 2, 1, 0), ("m", "b", 0, 0, 1)]
    balance = [report.run[key] for key in ("rows_read", "graded", "ungraded", "duplicates", "rejected")]
    assert balance == [5, 2, 1, 2, 0]
    assert all(finding.ok for finding in check.check(Output(tmp_path / "out")))


def test_off_counts_every_row(tmp_path: Path) -> None:
    files: list[list[Row]] = [[("a", 0, True), ("a", 0, False)]]
    run(lake(tmp_path, files), tmp_path / "out", '[duplicates]\npolicy = "off"\n')
    assert ask(tmp_path / "out", SQL) == [("m", "a", 2, 1, 0)]


@pytest.mark.parametrize("apart", [True, False], ids=["two files", "one file"])
@pytest.mark.parametrize(("rule", "c"), [("first", 1), ("last", 0), ("any-pass", 1), ("all-pass", 0)])
def test_conflicts_need_a_rule(tmp_path: Path, rule: str, c: int, apart: bool) -> None:
    rows: list[Row] = [("a", 7, True), ("a", 7, False), ("a", 7, None)]
    home = lake(tmp_path, [[row] for row in rows] if apart else [rows])
    with pytest.raises(DataError, match=r"1 attempts have conflicting verdicts:\n  m, problem a: attempt 7"):
        run(home, tmp_path / "out")
    assert not (tmp_path / "out" / "leaderboard.duckdb").exists()
    report = run(home, tmp_path / "out", f'[duplicates]\nrule = "{rule}"\n')
    assert ask(tmp_path / "out", SQL) == [("m", "a", 1, c, 0)]
    assert report.run["duplicates"] == 2
    assert report.warnings == (f"1 attempts had conflicting verdicts; rule {rule} decided",)
    assert all(finding.ok for finding in check.check(Output(tmp_path / "out")))


def test_duplicates_that_arrive_later(tmp_path: Path) -> None:
    run(lake(tmp_path, [[("a", 0, True), ("a", 1, False)]]), tmp_path / "out")
    report = run(
        lake(tmp_path, [[("a", 0, True), ("a", 1, False)], [("a", 1, False), ("a", 2, True)]]), tmp_path / "out"
    )
    assert ask(tmp_path / "out", SQL) == [("m", "a", 3, 2, 0)]
    assert report.run["duplicates"] == 1


@pytest.mark.parametrize("kind", [pl.String(), pl.Int64()])
def test_attempts_of_any_name(tmp_path: Path, kind: pl.DataType) -> None:
    names = ["1", "-5", "99999999999"] if kind == pl.String() else [1, -5, 99999999999]
    files: list[list[Row]] = [
        [("a", name, True) for name in names] * 2,
        [("a", names[0], True), ("a", None, True)] * 2,
    ]
    report = run(lake(tmp_path, files, kind), tmp_path / "out")
    assert ask(tmp_path / "out", SQL) == [("m", "a", 5, 5, 0)], "three names, and two attempts without any"
    assert report.run["duplicates"] == 5


def test_rewards(tmp_path: Path) -> None:
    same = attempts(model="m", problem_id="a", attempt=[0, 1, 0], score=[0.5, 1.0, 0.5])
    put(tmp_path / "lake", same, "0.parquet")
    run(tmp_path / "lake", tmp_path / "out")
    assert ask(tmp_path / "out", "SELECT value, attempts FROM model_summary WHERE metric = 'avg@N'") == [(0.75, 2)]
    put(tmp_path / "lake", attempts(model="m", problem_id="a", attempt=[1], score=[0.0]), "1.parquet")
    with pytest.raises(DataError, match="1 attempts have conflicting verdicts"):
        run(tmp_path / "lake", tmp_path / "out")
    for rule, value in (("first", 0.75), ("last", 0.25), ("any-pass", 0.75), ("all-pass", 0.25)):
        run(tmp_path / "lake", tmp_path / rule, f'[duplicates]\nrule = "{rule}"\n')
        assert ask(tmp_path / rule, "SELECT value FROM model_summary WHERE metric = 'avg@N'") == [(value,)]


rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3) | st.sampled_from([63, 64, 200, 255, 256, -1, None]),
              st.sampled_from([True, False, None])),
    min_size=1, max_size=8,
)  # fmt: skip


@given(
    st.lists(rows, min_size=1, max_size=3), st.sampled_from(["first", "last", "any-pass", "all-pass"]), st.booleans()
)
@example([[("a", 0, None), ("a", 0, True)], [("a", 0, False)]], "last", False)
@settings(max_examples=9, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_against_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], rule: str, small: bool
) -> None:
    home = tmp_path_factory.mktemp("dup")
    config = f'[duplicates]\nrule = "{rule}"\n' + ("[run]\nbucket_rows = 1\n" if small else "")
    report = run(lake(home, files), home / "out", config)
    seen: dict[object, list[bool | None]] = {}
    for i, row in enumerate(row for file in files for row in file):
        problem, attempt, passed = row
        seen.setdefault((problem, attempt if attempt is not None else f"alone {i}"), []).append(passed)
    want: dict[str, list[int]] = {}
    decide = {"first": lambda v: v[0], "last": lambda v: v[-1], "any-pass": any, "all-pass": all}[rule]
    for (problem, _), verdicts in seen.items():  # type: ignore[misc]
        tally = want.setdefault(problem, [0, 0, 0])
        graded = [v for v in verdicts if v is not None]
        tally[0] += bool(graded)
        tally[1] += bool(graded and decide(graded))
        tally[2] += not graded
    assert ask(home / "out", SQL) == [("m", problem, *tally) for problem, tally in sorted(want.items())]
    assert report.run["duplicates"] == sum(len(v) - 1 for v in seen.values())
    assert [f.detail for f in check.check(Output(home / "out")) if not f.ok] == []


# --- one verdict per attempt ----------------------------------------------------------------------------------

Told = tuple[int, int, bool | None, float, int]
"""Problem, attempt (0 is none), verdict, score and answer (0 is none)."""


def frame(told: list[Told], together: bool) -> pl.DataFrame:
    """Rows as partials tell of them: each with its place, or equal ones together without any."""
    rows = [
        {
            PROBLEM: problem,
            ATTEMPT[0]: INTEGER if attempt else 0,
            ATTEMPT[1]: attempt,
            "score": score if passed is not None else None,
            ANSWER[0]: INTEGER if answer and passed is not None else 0,
            ANSWER[1]: answer if passed is not None else 0,
            "at": 0 if together else i,
            "passed": int(passed is True),
            "failed": int(passed is False),
            "ungraded": int(passed is None),
        }
        for i, (problem, attempt, passed, score, answer) in enumerate(told)
    ]
    kinds: Any = {PROBLEM: pl.UInt32, **dict.fromkeys((*ATTEMPT, *ANSWER, "at"), pl.UInt64)}
    made = pl.DataFrame(rows, schema_overrides={**kinds, "score": pl.Float64})
    if not together:
        return made.sample(fraction=1, shuffle=True, seed=1)
    return made.group_by(pl.exclude(OUTCOMES)).agg(pl.col(OUTCOMES).sum())


def verdict(rows: list[Told], rule: str) -> tuple[bool, float, int]:
    """What counts of the graded rows of one attempt."""
    if rule in ("first", "last"):
        _, _, passed, score, answer = rows[0 if rule == "first" else -1]
        return bool(passed), score, answer
    right = all(row[2] for row in rows) if rule == "all-pass" else any(row[2] for row in rows)
    end = min if rule == "all-pass" else max
    said = [row[4] for row in rows if row[2] == right and row[4]]
    return right, end(row[3] for row in rows), min(said, default=0)


class ByHand:
    """The same in plain Python."""

    def __init__(self, told: list[Told], rule: str, answered: bool) -> None:
        self.counts = {row[0]: [0, 0, 0, 0] for row in told}
        self.rewards, self.answers = Counter[Any](), Counter[Any]()
        self.conflicts = set[Any]()
        seen: dict[tuple[int, Any], list[Told]] = {}
        for i, row in enumerate(told):
            seen.setdefault((row[0], row[1] or f"alone {i}"), []).append(row)
        for (problem, attempt), rows in seen.items():
            graded = [row for row in rows if row[2] is not None]
            mine = self.counts[problem]
            mine[0 if graded else 2] += 1
            mine[3] += len(rows) - 1
            if graded:
                right, score, answer = verdict(graded, rule)
                mine[1] += right
                self.rewards[problem, score] += 1
                self.answers[problem, answer, "n"] += 1
                self.answers[problem, answer, "c"] += right
                said = {row[4] for row in graded if row[4]} if answered else set()
                if any(len(values) > 1 for values in ({r[2] for r in graded}, {r[3] for r in graded}, said)):
                    self.conflicts.add((problem, attempt))


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("rule", ["first", "last", "any-pass", "all-pass", "error"])
def test_one_verdict_per_attempt(rule: str, answered: bool) -> None:
    """Counts, rewards, answers and conflicts, however the rows are told; `error` counts like any-pass."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        told: list[Told] = [
            (p, a, [True, False, None][v], s / 2, w)
            for p, a, v, s, w in rng.integers(0, [3, 5, 3, 3, 4], (60, 5)).tolist()
        ]
        want = ByHand(told, rule, answered)
        for together in (False, True) if rule not in ("first", "last") else (False,):
            got = resolve(frame(told, together), rule, answered)
            names = ("n", "c", "ungraded", "duplicates")
            assert {row[PROBLEM]: [row[n] for n in names] for row in got.counts.rows(named=True)} == want.counts
            rewards, answers = Counter[Any](), Counter[Any]()
            for row in got.rewards.rows(named=True):
                rewards[row[PROBLEM], row["score"]] += row["n"]
            for row in got.answers.rows(named=True):
                answers[row[PROBLEM], row[ANSWER[1]], "n"] += row["n"]
                answers[row[PROBLEM], row[ANSWER[1]], "c"] += row["c"]
            assert rewards == want.rewards
            assert +answers == +want.answers
            assert {(row[PROBLEM], row[ATTEMPT[1]]) for row in got.conflicts.rows(named=True)} == want.conflicts


def test_nothing_to_resolve() -> None:
    got = resolve(frame([(0, 1, True, 1.0, 1)], together=False).head(0), "error", answered=True)
    assert [part.height for part in (got.counts, got.rewards, got.answers, got.conflicts)] == [0, 0, 0, 0]


def test_who_is_in_doubt() -> None:
    """An attempt of two rows, or of one row that came twice; a missing name is no name."""
    told: list[Told] = [(0, 1, True, 0, 0), (0, 2, True, 0, 0), (1, 1, True, 0, 0), (1, 1, None, 0, 0)]
    told += [(2, 0, True, 0, 0), (2, 0, True, 0, 0), (4, 3, False, 0, 0), (4, 3, False, 0, 0)]
    for together in (False, True):
        assert in_doubt(frame(told, together), 6).tolist() == [False, True, False, False, True, False]


# --- what partials tell, spelled out --------------------------------------------------------------------------


def problems(**columns: list[int]) -> pl.DataFrame:
    many = len(next(iter(columns.values())))
    zero = {HASH: [7] * many, **{key: [0] * many for key in KEYS}, **{name: [0] * many for name in (*OUTCOMES, TOLD)}}
    words = [name for name in columns if name.startswith(("seen", "graded", "right"))]
    kinds: Any = {HASH: pl.UInt64, **dict.fromkeys(KEYS, pl.UInt32), **dict.fromkeys(words, pl.UInt64)}
    return pl.DataFrame({**zero, DOUBT: [False] * many, **columns}, schema_overrides=kinds)


TEXTS: dict[str, Any] = {key: pa.array(["x"], pa.large_string()) for key in KEYS}


def spelled(whole: Counts, owner: list[int], which: list[bool]) -> list[tuple[Any, ...]]:
    every = spelled_out(whole, np.array(owner, np.uint32), np.array(which))
    return sorted(every.select(PROBLEM, *ATTEMPT, *OUTCOMES).rows())


def test_bits_are_spelled_out_one_by_one() -> None:
    """Attempts 0 (passed), 1 (failed), 63 (ungraded), and 64 and 255 of other words."""
    top = 1 << 63
    bits = {"seen0": [0b11 | top, 0b1], "graded0": [0b11, 0b1], "right0": [0b01, 0]}
    for word, seen in ((1, 1), (2, 0), (3, top)):
        bits |= {f"seen{word}": [seen, 0], f"graded{word}": [seen, 0], f"right{word}": [seen if word == 3 else 0, 0]}
    whole = Counts(TEXTS, problems(**bits, passed=[2, 0], failed=[2, 1], ungraded=[1, 0]))
    first = [
        (0, INTEGER, 0, 1, 0, 0),
        (0, INTEGER, 1, 0, 1, 0),
        (0, INTEGER, 63, 0, 0, 1),
        (0, INTEGER, 64, 0, 1, 0),
        (0, INTEGER, 255, 1, 0, 0),
    ]
    assert spelled(whole, [0, 1], [True, False]) == first
    assert spelled(whole, [0, 1], [True, True]) == [*first, (1, INTEGER, 0, 0, 1, 0)]
    assert spelled(whole, [0, 0], [True]) == sorted([*first, (0, INTEGER, 0, 0, 1, 0)]), "two rows of one problem"


def test_details_speak_for_their_problem() -> None:
    """A row with details is told by them; one without by its bits, or as it is if it has none."""
    kinds: Any = {PROBLEM: pl.UInt32, **dict.fromkeys((*ATTEMPT, "seen0", "graded0", "right0"), pl.UInt64)}
    details = pl.DataFrame(
        {
            PROBLEM: [0, 0],
            ATTEMPT[0]: [INTEGER, 0],
            ATTEMPT[1]: [999, 0],
            **{"seen0": [0, 0b100], "graded0": [0, 0b100], "right0": [0, 0]},
            **{"passed": [2, 0], "failed": [0, 1], "ungraded": [0, 0]},
        },
        schema_overrides=kinds,
    )
    held = problems(
        seen0=[0b100, 0b10, 0], graded0=[0b100, 0, 0], right0=[0, 0, 0], passed=[2, 0, 5], failed=[1, 0, 1],
        ungraded=[0, 1, 0],
    )  # fmt: skip
    assert spelled(Counts(TEXTS, held, details), [1, 1, 0], [True, True]) == [
        (0, 0, 0, 5, 1, 0),
        (1, INTEGER, 1, 0, 0, 1),
        (1, INTEGER, 2, 0, 1, 0),
        (1, INTEGER, 999, 2, 0, 0),
    ]


def test_no_row_is_lost_when_it_is_spelled_out() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        seen = rng.integers(0, 1 << 62, 30).astype(np.uint64)
        graded = seen & rng.integers(0, 1 << 62, 30).astype(np.uint64)
        right = graded & rng.integers(0, 1 << 62, 30).astype(np.uint64)
        rows = [np.bitwise_count(x).astype(np.int64).tolist() for x in (right, graded & ~right, seen & ~graded)]
        columns = {"seen0": seen.tolist(), "graded0": graded.tolist(), "right0": right.tolist()}
        whole = Counts(TEXTS, problems(**columns, **dict(zip(OUTCOMES, rows, strict=True))))
        every = spelled_out(whole, np.arange(30, dtype=np.uint32), np.ones(30, bool))
        told = every.group_by(PROBLEM).agg(pl.col(OUTCOMES).sum()).sort(PROBLEM)
        assert [told[name].to_list() for name in OUTCOMES] == rows
