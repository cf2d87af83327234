"""Keys of several columns: counted as a dictionary counts them, by the query, by the kernel and by `check`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import scorelake as sl
from conftest import ask, attempts, put, run
from scorelake import tasks
from scorelake.errors import DataError, UsageError
from scorelake.lake.description import mapped
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.settings import Settings, load
from scorelake.storage.files import Shard

CONFIG = """
[columns]
model = ["model_name", "checkpoint"]
problem_id = ["task", "variant"]
subject = ["area", "hard"]
[policy]
max_rejected = 1000000
"""
PUBLISHED = "SELECT model, subject, problem_id, n, c FROM problem_counts"


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def joined(*parts: Any) -> str | None:
    """The key of a row; None if the row must be rejected."""
    is_ambiguous = any("@" in text(part) for part in parts[1:])
    return None if None in parts or is_ambiguous else "@".join(map(text, parts))


def random_lake(home: Path, seed: int, with_scores: bool) -> list[dict[str, Any]]:
    """Write files in which a part is a number, a text, a boolean or a folder; return their rows."""
    rng, rows = np.random.default_rng(seed), list[dict[str, Any]]()
    choices: dict[str, list[Any]] = {
        "model_name": ["a", "a@b", "x y", None],
        "checkpoint": [[1, 300, 20], ["1", "300", "b@c", None], ["c", "b"]][seed % 3],
        "task": [["t1", "t2"], [1, 2]][seed % 2],
        "variant": [True, False, None] if seed % 2 else [0, 1],
        "area": ["bio", "@"],
        "hard": [True, False],
    }
    for i in range(4):
        size = int(rng.integers(1, 200))
        columns = {name: [values[k] for k in rng.integers(0, len(values), size)] for name, values in choices.items()}
        folder = "checkpoint=300/area=bio" if i == 3 else "."
        if i == 3:
            columns |= {"checkpoint": ["300"] * size, "area": ["bio"] * size}
        outcome = {"passed": [bool(k) for k in rng.integers(0, 2, size)]}
        if with_scores:
            outcome["score"] = [float(k) for k in rng.integers(0, 3, size)]
        written = {name: column for name, column in columns.items() if f"{name}=" not in folder}
        put(home, pl.DataFrame(written | outcome), f"{folder}/{i}.parquet", row_group_size=50)
        rows += [
            dict(zip(columns | outcome, row, strict=True)) for row in zip(*(columns | outcome).values(), strict=True)
        ]
    return rows


def counted(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What must be published, by a plain dictionary."""
    n, c = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for row in rows:
        key = (
            joined(row["model_name"], row["checkpoint"]),
            joined(row["area"], row["hard"]),
            joined(row["task"], row["variant"]),
        )
        if None not in key:
            n[key] += 1  # type: ignore[index]
            c[key] += row["passed"]  # type: ignore[index]
    return sorted((*key, n[key], c[key]) for key in n)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "with_scores"), [(0, False), (1, True), (5, False)])
def test_random_lakes_are_counted_as_by_a_dictionary(tmp_path: Path, seed: int, with_scores: bool) -> None:
    rows = random_lake(tmp_path / "lake", seed, with_scores)
    report = run(tmp_path / "lake", tmp_path / "out", CONFIG)
    expected = counted(rows)
    assert sorted(ask(tmp_path / "out", PUBLISHED)) == expected
    assert report.run["rejected"] == len(rows) - sum(n for *_, n, _ in expected)
    assert [finding.what for finding in check.check(Output(tmp_path / "out")) if not finding.ok] == []


def test_different_pairs_are_different_keys(tmp_path: Path) -> None:
    """('a@b', 'c') is a@b@c; ('a', 'b@c') would be the same text, and is rejected."""
    both = attempts(name=["a@b", "a"], step=["c", "b@c"], problem_id="p", passed=True)
    put(tmp_path / "lake", both)
    config = '[columns]\nmodel = ["name", "step"]\n'
    with pytest.raises(DataError, match="@ in a column of model that is not its first"):
        run(tmp_path / "lake", tmp_path / "out", config)
    run(tmp_path / "lake", tmp_path / "out", f"{config}[policy]\nmax_rejected = 1\n")
    assert ask(tmp_path / "out", "SELECT model, n FROM problem_counts") == [("a@b@c", 1)]


def test_a_column_that_contradicts_its_folder_is_rejected(tmp_path: Path) -> None:
    put(tmp_path / "lake", attempts(name="a", step=[1, 2], problem_id="p", passed=True), "step=1/0.parquet")
    config = '[columns]\nmodel = ["name", "step"]\n[policy]\nmax_rejected = 1\n'
    run(tmp_path / "lake", tmp_path / "out", config)
    assert ask(tmp_path / "out", "SELECT model, n FROM problem_counts") == [("a@1", 1)]


def test_a_missing_part_is_named_with_the_closest_column(tmp_path: Path) -> None:
    put(tmp_path / "lake", attempts(name="a", check_point=[1], problem_id="p", passed=True))
    with pytest.raises(UsageError, match=r"no column checkpoint \(closest: check_point\)") as caught:
        run(tmp_path / "lake", tmp_path / "out", '[columns]\nmodel = ["name", "checkpoint"]\n')
    assert 'model = ["name", "check_point"]' in str(caught.value.hint)
    assert "--column model=name --column model=check_point" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        sl.score(
            pl.DataFrame({"name": ["a"], "problem_id": ["p"], "passed": [True]}), columns={"model": ["name", "x"]}
        )
    assert 'columns={"model": ["name", "..."]}' in str(caught.value.hint)


def test_a_subject_of_two_columns_has_no_default(tmp_path: Path) -> None:
    put(tmp_path / "lake", attempts(model="a", level=[1], problem_id="p", passed=True))
    with pytest.raises(UsageError, match="no column subject"):
        run(tmp_path / "lake", tmp_path / "out", '[columns]\nsubject = ["subject", "level"]\n')


def test_numbers_that_are_not_whole_are_no_part(tmp_path: Path) -> None:
    put(tmp_path / "lake", attempts(model="a", t=[0.5], problem_id="p", passed=True))
    with pytest.raises(DataError, match="column t is Float64; it must be a string or integer"):
        run(tmp_path / "lake", tmp_path / "out", '[columns]\nmodel = ["model", "t"]\n')


def test_partial_counts_know_their_columns(tmp_path: Path) -> None:
    """One column in a list has the partial counts of that column; other columns, or another order, have others."""
    shard = Shard("lake", ())

    def name(model: Any) -> str:
        settings = Settings.model_validate({"columns": {"model": model}})
        return tasks.Count(shard, settings, "out").name

    assert name("a") == name(["a"])
    assert len({name(model) for model in ("a", "a@b", ["a", "b"], ["b", "a"], ["a", "b", "c"])}) == 5


def test_frames_and_arguments(tmp_path: Path) -> None:
    frame = pl.DataFrame({"m": ["a", "a"], "s": [1, 2], "problem_id": ["p", "p"], "passed": [True, False], "n": 0})
    board = sl.score(frame, columns={"model": ["m", "s"]}, out=tmp_path / "out")
    assert board is not None
    assert sorted(ask(tmp_path / "out", "SELECT model, c FROM problem_counts")) == [("a@1", 1), ("a@2", 0)]


def test_the_command_line_repeats_the_key() -> None:
    """Any separator could be part of the name of a column; a repeated key cannot."""
    assert mapped(["model=m", "model=s", "problem_id=a,b", "model=m"]) == {"model": ("m", "s"), "problem_id": "a,b"}
    with pytest.raises(UsageError, match="attempt is given twice, and differently"):
        mapped(["attempt=a", "attempt=b"])


@pytest.mark.parametrize("model", [[], 3, ["a", 3], {"a": "b"}])
def test_what_is_no_name(model: Any) -> None:
    with pytest.raises(UsageError, match=r"columns\.model: must be the name of a column, or a list of names, got"):
        load(**{"columns.model": model})


def test_a_column_that_is_named_twice() -> None:
    with pytest.raises(UsageError, match=r"columns\.model: a is named twice"):
        load(**{"columns.model": ["a", "a"]})
