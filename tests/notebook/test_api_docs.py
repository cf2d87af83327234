"""The docs of the Python API are current: examples run, types are accepted, the notebook shows what is stored."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import chdir
from doctest import DocTestParser, DocTestRunner
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import polars as pl
import pytest

import api
import scorelake as sl
from conftest import FIXTURES, REPO
from scorelake.metrics.summary import Summary

MIGRATING = (REPO / "docs" / "migrating.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", MIGRATING, flags=re.MULTILINE)
PEER = [(theirs, ours) for theirs, ours in TABLE if ours.startswith("sl.metrics")]


def _failed(tests: list[Any], home: Path) -> int:
    runner = DocTestRunner(optionflags=api.FLAGS)
    with chdir(api.prepared(home)):
        for test in tests:
            runner.run(test, clear_globs=False)
    return runner.failures


def test_the_page_is_made_from_docstrings() -> None:
    """`make docs` writes it."""
    assert api.PAGE.read_text(encoding="utf-8") == api.page()
    headings = re.findall(r"^##+ `(.+)`$", api.page(), flags=re.MULTILINE)
    assert {"scorelake.score", "Board.compare", "Board.plot.matrix", "scorelake.metrics.tailpass"} <= set(headings)


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path) -> None:
    tests = api.examples()
    assert sum(len(test.examples) for test in tests) > 40
    assert _failed(tests, tmp_path) == 0


@pytest.mark.slow
def test_types_are_accepted(tmp_path: Path) -> None:
    """mypy --strict takes every example of the page and of the notebook; a wrong one it does not."""
    cells = [cell.source for cell in nbformat.read(api.NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    (tmp_path / "page.py").write_text(api.source(), encoding="utf-8")
    (tmp_path / "cells.py").write_text("\n\n".join(cells), encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import scorelake as sl\nsl.score([[1]], metrics=3).leaderboard(4)\n")
    files = [str(tmp_path / name) for name in ("page.py", "cells.py", "wrong.py")]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    errors = done.stdout.splitlines()
    assert len(errors) == 2, done.stdout
    assert all("wrong.py:2: error: Argument" in line for line in errors)


@pytest.mark.slow
def test_the_notebook_shows_what_is_stored(tmp_path: Path) -> None:
    """Run from the first cell to the last, in a kernel of its own; `make docs` stores what it shows."""
    stored, shown = nbformat.read(api.NOTEBOOK, as_version=4), api.executed(api.prepared(tmp_path))
    nbformat.validate(stored)
    for old, new in zip(stored.cells, shown.cells, strict=True):
        assert old.get("outputs") == new.get("outputs"), new.source
    kinds = [kind for cell in shown.cells for output in cell.get("outputs", ()) for kind in output.get("data", ())]
    assert kinds.count("text/html") >= 10


def test_every_function_of_scorio_is_in_the_table() -> None:
    peer = pytest.importorskip("scorio.eval", reason="scorio 0.2.3 is not installed")
    assert {theirs.partition("(")[0] for theirs, _ in PEER} == set(peer.__all__)


@pytest.mark.parametrize(("theirs", "ours"), PEER, ids=[theirs for theirs, _ in PEER])
def test_the_table_says_what_is_equal(theirs: str, ours: str) -> None:
    peer = pytest.importorskip("scorio.eval", reason="scorio 0.2.3 is not installed")
    rng = np.random.default_rng(7)
    given = {"R": rng.integers(0, 2, (9, 6)), "R3": rng.integers(0, 3, (9, 5)), "R0": rng.integers(0, 3, (9, 2))}
    given |= {"k": 3, "w": [0.0, 0.5, 1.0], "weights": [0.2, 0.3, 0.5]}
    expected = eval(theirs, vars(peer) | given)
    result = eval(ours, {"sl": sl} | given)
    if isinstance(result, Summary):
        result = (result.mu, result.sigma, result.mu_lo, result.mu_hi)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_aggregators_of_eval_framework(tmp_path: Path) -> None:
    """Per problem, with carried columns: the mean and pass@8 as a plain group_by has them."""
    (block,) = re.findall(r"```pycon\n(.*?)```", MIGRATING, flags=re.DOTALL)
    test = DocTestParser().get_doctest(block, {}, "migrating", None, 0)
    assert _failed([test], tmp_path) == 0
    keys = ["model", "problem_id"]
    frame = pl.read_parquet(FIXTURES / "results.parquet").rename({"model_name": "model", "task_id": "problem_id"})
    plain = frame.group_by(keys).agg(
        pl.col("difficulty").first(), n=pl.len(), c=(pl.col("correct") == "C").sum(), graded=pl.col("correct").count()
    )
    scores = test.globs["board"].table("problem_scores")
    mean = scores.filter(metric="avg@N").join(plain, on=[*keys, "difficulty"])
    assert mean.height == plain.height
    assert (mean["value"] - mean["c_right"] / mean["graded"]).abs().max() < 1e-12  # type: ignore[operator]
    passed = scores.filter(metric="pass@8").join(plain, on=keys).filter(pl.col("graded") >= 8)
    assert passed["value"].null_count() == 0
    chance = [sl.metrics.pass_at_k(n, c, 8) for n, c in passed.select("graded", "c_right").iter_rows()]
    np.testing.assert_allclose(passed["value"], chance, rtol=1e-12)
