"""Likely mistakes, each answered with the fix in one line."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from conftest import FIXTURES, call, run

MISTAKES = {
    "a metric under another name": ("show out --metric acc", "did you mean pass@1?"),
    "a misspelled metric": ("show out --metric pas@1", "did you mean pass@1"),
    "a metric as in Python": ("score lake --out new --metrics pass_at_8", "did you mean pass@8"),
    "a k that is no number": ("score lake --out new --metrics pass@k", "k must be a whole number >= 1, got 'k'"),
    "a misspelled lake": ("score lak --out new", "lak: no such file or folder"),
    "logs instead of a lake": ("score logs --out new", "scorelake ingest auto logs --lake LAKE, then score LAKE"),
    "columns of another name": ("score results.parquet --out new", "no column model (closest: model_name)"),
    "a misspelled column": (
        "score results.parquet --out new --column model=model_nam",
        "no column model_nam (closest: model_name)",
    ),
    "a misspelled key": ("score lake --out new --column modle=model", "did you mean model?"),
    "a misspelled slice": ("score lake --out new --by dificulty", "say in the command: --by difficulty"),
    "a window without a length": ("score lake --out new --window date", "such as date=7d, date=2026-11-01 or run=3"),
    "a misspelled window": ("score lake --out new --window nite=3", "no file has a value in the column of [window]"),
    "a slice that was not scored": ("show out --by difficulty", "score with --by difficulty first"),
    "no output": ("show nowhere", "run `scorelake score LAKE --out OUT` first"),
    "a misspelled benchmark": ("show out --benchmark synht", "did you mean: synth?"),
    "a misspelled model": ("compare out model-0 model-01", "did you mean: model-00, model-01, model-02?"),
    "a run that is not there": ("rollback out 7", "available runs: 1 ("),
    "a column under another name": ("sql out SELECT~ci_low~FROM~leaderboard", "ci_low is called lo here"),
    "a misspelled table": ("sql out FROM~leaderbord", 'Did you mean "leaderboard"?'),
    "a folder for a page": ("page out --html .", "give the file to write, such as page.html"),
    "a verdict that is none": ("score verdicts.parquet --out new", "not a valid outcome (passed = 7)"),
    "attempts in conflict": ("score twice.parquet --out new", 'rule = "first", "last", "any-pass" or "all-pass"'),
    "all mappings missing": (
        "ingest generic rows.csv --lake fresh",
        "give --map passed=... or --map score=..., --map problem_id=..., --benchmark, --model",
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mistakes")
    for name in ("lake", "logs", "results.parquet"):
        source = FIXTURES / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, home / name)
    rows = {"model": ["m"] * 4, "problem_id": ["p"] * 4}
    pl.DataFrame({**rows, "passed": [0, 1, 7, 1]}).write_parquet(home / "verdicts.parquet")
    pl.DataFrame({**rows, "attempt": [0, 0, 1, 2], "passed": [0, 1, 1, 1]}).write_parquet(home / "twice.parquet")
    (home / "rows.csv").write_text("who,what,right\nm,p,1\n")
    run(home / "lake", home / "out")
    return home


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_the_fix(mistake: str, home: Path) -> None:
    command, fix = MISTAKES[mistake]
    done = call(*(word.replace("~", " ") for word in command.split()), cwd=home)
    assert done.returncode in (2, 3, 5), done.stderr
    assert any(fix in line for line in done.stderr.splitlines()), done.stderr
    assert "Traceback" not in done.stderr
