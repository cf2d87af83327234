"""The plain way is the specification: whatever the lake looks like, the tally comes to the same sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from made import said, same_hash
from scorelake import tasks
from scorelake.counts import DOUBT, HASH, OUTCOMES, PROBLEM, Counts, add
from scorelake.lake.listing import listing
from scorelake.merge.buckets import buckets, merge
from scorelake.partials import Partial, read
from scorelake.settings import Settings
from scorelake.storage.files import Shard

ALL = (1 << 64) - 1
WAYS = {"plain": 1 << 40, "tally": 1}

Frames = dict[str, pl.DataFrame]


def count(home: Path, way: str, settings: Settings) -> Partial:
    """A lake as one shard, counted that way."""
    listed = listing(home / "lake")
    shard = Shard(listed.root, listed.files)
    folder = home / f"{way} {settings.run.memory_gb} {settings.run.threads}"
    partial = tasks.count(tasks.Count(shard, settings, str(folder), least=WAYS[way]))
    assert partial.way.startswith(f"{way}: {partial.read:,} rows, ")
    return partial


def sums(home: Path, way: str, partial: Partial, settings: Settings) -> dict[Any, Any]:
    """The counts of every problem; proofs are each way's own, so they are not part of it."""
    folder = home / f"{way} {settings.run.memory_gb} {settings.run.threads}" / partial.name
    parts = [read(folder, piece, 0, ALL, details=True) for piece in partial.pieces]
    for part in parts:
        assert part is not None
        assert _all_or_nothing(part)
        assert len(said(part)[0]) == part.problems.height, "once each in a piece"
    whole = add([part for part in parts if part])
    assert whole.rows == partial.graded + partial.ungraded == sum(piece.rows for piece in partial.pieces)
    mine = [HASH, *OUTCOMES, *(name for name in whole.problems.columns if name.startswith(("min:", "max:")))]
    return {key: {name: row[name] for name in mine} for key, row in said(whole)[0].items()}


def _all_or_nothing(part: Counts) -> bool:
    """Details tell of all rows of a problem, or of none."""
    if part.details is None:
        return True
    rows = part.problems.select(pl.sum_horizontal(OUTCOMES)).to_series().to_numpy()
    told = np.zeros_like(rows)
    details = part.details.select(pl.sum_horizontal(OUTCOMES)).to_series().to_numpy()
    np.add.at(told, part.details[PROBLEM].to_numpy(), details)
    return bool(((told == 0) | (told == rows)).all())


def published(home: Path, way: str, partial: Partial, settings: Settings) -> tuple[Any, pl.DataFrame]:
    """What a merge makes of it: one verdict per attempt, rewards and answers."""
    folder = home / f"{way} {settings.run.memory_gb} {settings.run.threads}"
    out = home / "merged" / "counts"
    out.mkdir(parents=True, exist_ok=True)
    (bucket,) = buckets(folder, [partial], 10**9, out, settings.duplicates.rule, settings.answers)
    merged = merge(bucket)
    return replace(merged, examples=tuple(sorted(merged.examples))), pl.read_parquet(bucket.path)


def both(home: Path, frames: Frames, **options: Any) -> tuple[Partial, dict[Any, Any]]:
    """A lake counted both ways, and by the tally with little memory and several threads."""
    for name, frame in frames.items():
        path = home / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(path, row_group_size=max(1, frame.height // 3))
    settings = Settings.model_validate(options)
    plain = count(home, "plain", settings)
    want, made = sums(home, "plain", plain, settings), published(home, "plain", plain, settings)
    small = Settings.model_validate({**options, "run": {"memory_gb": 0.001, "threads": 3}})
    for mine in (settings, small):
        tally = count(home, "tally", mine)
        told = ("read", "graded", "ungraded", "rejected", "rejects", "quarantine", "binary", "rewards", "answers")
        assert {key: getattr(tally, key) for key in told} == {key: getattr(plain, key) for key in told}
        assert sums(home, "tally", tally, mine) == want
        other = published(home, "tally", tally, mine)
        assert other[0] == made[0]
        assert_frame_equal(other[1], made[1])
    return plain, want


def column(rng: np.random.Generator, kind: str, rows: int) -> pl.Series:
    numbers = rng.integers(0, 6, rows).tolist()
    return {
        "small": lambda: pl.Series(numbers, dtype=pl.Int32),
        "wide": lambda: pl.Series([n * 50 for n in numbers], dtype=pl.UInt16),
        "large": lambda: pl.Series([10**15 + n for n in numbers], dtype=pl.Int64),
        "mixed": lambda: pl.Series([[0, -1, 63, 255, 256, None][n] for n in numbers], dtype=pl.Int64),
        "unsigned": lambda: pl.Series([(1 << 64) - 1 - n for n in numbers], dtype=pl.UInt64),
        "text": lambda: pl.Series([["0", "a", "x" * 15, "x" * 16, "", None][n] for n in numbers], dtype=pl.String),
        "long": lambda: pl.Series(["y" * 40 + str(n) for n in numbers], dtype=pl.String),
        "boolean": lambda: pl.Series([[True, False, None][n % 3] for n in numbers], dtype=pl.Boolean),
        "int": lambda: pl.Series([[1, 0, None][n % 3] for n in numbers], dtype=pl.Int8),
        "float": lambda: pl.Series([[1.0, 0.0, -0.0, None, 0.0, 1.0][n] for n in numbers], dtype=pl.Float64),
        "bad": lambda: pl.Series([[1.0, 0.0, None, 0.5, float("nan"), 0.0][n] for n in numbers], dtype=pl.Float32),
        "level": lambda: pl.Series([[0.0, 0.1, 0.7, None, -0.0, 0.7][n] for n in numbers], dtype=pl.Float32),
        "none": lambda: pl.Series([None] * rows, dtype=pl.Null),
    }[kind]()


ATTEMPTS = ["", "small", "wide", "large", "mixed", "unsigned", "text", "long", "none"]
VERDICTS = ["boolean", "int", "float", "bad", "none"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"policy": {"ungraded": "fail"}},
    {"duplicates": {"policy": "off"}},
    *({"duplicates": {"rule": rule}} for rule in ("first", "last", "any-pass", "all-pass")),
]


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_come_to_the_same(seed: int, tmp_path: Path) -> None:
    """Random columns, types, policies and files."""
    rng = np.random.default_rng(seed)
    shape = ["passed", "score", "threshold", "rubric", "both"][seed % 5]
    attempt = ATTEMPTS[seed % len(ATTEMPTS)]
    options = {**OPTIONS[rng.integers(0, len(OPTIONS))]}
    if shape == "threshold":
        options["policy"] = {**options.get("policy", {}), "pass_threshold": 0.7}
    if shape == "rubric":
        options["rubric"] = {"levels": [0, 0.1, 0.7]}
    protocol, carry, answer = (rng.random(3) < 0.4).tolist()
    options |= {"protocol": {"columns": ["temperature"]}} if protocol else {}
    options |= {"columns": {"carry": ["tier"]}} if carry else {}
    frames: Frames = {}
    for i in range(int(rng.integers(1, 4))):
        rows = int(rng.integers(1, 200))
        names = [f"p{n}" if n else ("" if i else None) for n in rng.integers(0, 5, rows)]
        columns: dict[str, Any] = {"model": ["m"] * rows, "problem_id": names}
        if shape in ("passed", "both"):
            columns["passed"] = column(rng, VERDICTS[rng.integers(0, len(VERDICTS))], rows)
        if shape != "passed":
            columns["score"] = column(rng, "level", rows)
        if attempt:
            columns["attempt"] = column(rng, attempt, rows)
        if protocol:
            columns["temperature"] = column(
                rng, ["float", "int", "text", "none", "boolean"][rng.integers(0, 5)], rows
            )
        if carry:
            columns["tier"] = column(rng, "mixed", rows)
        if answer:
            columns["answer"] = column(rng, ["text", "long", "level", "boolean"][rng.integers(0, 4)], rows)
        frames[f"subject=s{i % 2}/{i}.parquet"] = pl.DataFrame(columns)
    both(tmp_path, frames, **options)


def test_against_a_dictionary(tmp_path: Path) -> None:
    """So that both cannot be wrong together."""
    rng = np.random.default_rng(7)
    rows = [(f"m{a}", f"p{b}", [True, False, None][c]) for a, b, c in rng.integers(0, 3, (500, 3)).tolist()]
    frame = pl.DataFrame(
        rows, schema={"model": pl.String, "problem_id": pl.String, "passed": pl.Boolean}, orient="row"
    )
    _, got = both(tmp_path, {"0.parquet": frame[:200], "1.parquet": frame[200:]})
    seen = Counter(rows)
    want = {
        ("default", "all", model, "", problem): tuple(seen[model, problem, v] for v in (True, False, None))
        for model, problem, _ in rows
    }
    assert {key: tuple(row[name] for name in OUTCOMES) for key, row in got.items()} == want


@pytest.mark.parametrize("told", ["attempt", "score", None])
def test_problems_that_share_a_hash(tmp_path: Path, told: str | None) -> None:
    """Names that were chosen to be taken for one another are not, in however many rows each is told."""
    names = same_hash(20)
    columns = {"model": ["m"] * 120, "problem_id": names * 6, "passed": [i // 20 % 2 == 0 for i in range(120)]}
    frame = pl.DataFrame(columns).with_columns(*([pl.Series(told, [i // 20 for i in range(120)])] if told else []))
    _, got = both(tmp_path, {"0.parquet": frame})
    assert len(got) == 20
    assert len({row[HASH] for row in got.values()}) == 1
    assert {tuple(row[name] for name in OUTCOMES) for row in got.values()} == {(3, 3, 0)}


def test_an_attempt_seen_twice_is_in_doubt_both_ways(tmp_path: Path) -> None:
    frame = pl.DataFrame({"model": "m", "problem_id": ["a", "a", "b", "b"], "attempt": [3, 3, 3, 4], "passed": True})
    both(tmp_path, {"0.parquet": frame})
    for way in WAYS:
        folder = tmp_path / f"{way} None None"
        (home,) = folder.iterdir()
        partial = count(tmp_path, way, Settings())
        parts = [part for piece in partial.pieces if (part := read(home, piece, 0, ALL, details=True))]
        rows = {key[-1]: row[DOUBT] for key, row in said(add(parts))[0].items()}
        assert rows == {"a": True, "b": False}


def test_there_is_one_zero(tmp_path: Path) -> None:
    """A reward of -0.0 is one of 0.0, down to the bytes."""
    frame = pl.DataFrame({"model": "m", "problem_id": "a", "attempt": range(9), "score": [-0.0, 0.0, -0.0] * 3})
    both(tmp_path, {"0.parquet": frame})
    for way in WAYS:
        partial = count(tmp_path, way, Settings())
        _, made = published(tmp_path, way, partial, Settings())
        assert str(made["rewards"].to_list()) == "[[0.0]]"


def test_an_answer_that_passed_and_failed(tmp_path: Path) -> None:
    """Under all-pass the attempt failed, and its answer still has its vote."""
    frame = pl.DataFrame({"model": "m", "problem_id": "a", "attempt": [0, 0], "passed": [True, False], "answer": "A"})
    settings = {"duplicates": {"rule": "all-pass"}}
    both(tmp_path, {"0.parquet": frame}, **settings)
    partial = count(tmp_path, "plain", Settings.model_validate(settings))
    _, made = published(tmp_path, "plain", partial, Settings.model_validate(settings))
    assert made.select("n", "c", "answer_counts", "answer_passes").rows() == [(1, 0, [1], [0])]


def test_an_empty_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"model": ["m"], "problem_id": ["a"], "passed": [True]})
    partial, got = both(tmp_path, {"0.parquet": frame.head(0), "1.parquet": frame})
    assert partial.read == 1
    assert len(got) == 1


@pytest.mark.parametrize(("rows", "way"), [(9, "plain: 9 rows, fewer than 10"), (10, "tally: 10 rows, 10 or more")])
def test_which_way_and_why(tmp_path: Path, rows: int, way: str) -> None:
    (tmp_path / "lake").mkdir()
    pl.DataFrame({"model": "m", "problem_id": [str(i) for i in range(rows)], "passed": True}).write_parquet(
        tmp_path / "lake" / "0.parquet"
    )
    listed = listing(tmp_path / "lake")
    shard = Shard(listed.root, listed.files)
    assert tasks.count(tasks.Count(shard, Settings(), str(tmp_path / "p"), least=10)).way == way
