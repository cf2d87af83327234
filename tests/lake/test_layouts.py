"""Parquet files that Inspect Scout and Inspect write are scored without a config."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ask, failed_checks, put
from scorelake.lake.description import described, settings_for
from scorelake.lake.infer import config_text, infer_config
from scorelake.lake.listing import listing
from scorelake.lake.sample import sample_lake
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import PATIENCE, Settings, load

ROWS = list(product(["gpt-5", "claude-4"], ["gsm8k", "swe"], range(5), (1, 2)))
VERDICTS = [(i * 7) % 3 == 0 for i in range(len(ROWS))]
SCOUT: dict[str, Any] = {
    "transcript_id": [f"t{i}" for i in range(len(ROWS))],
    "task_set": [row[1] for row in ROWS],
    "task_id": [str(row[2]) for row in ROWS],
    "task_repeat": [row[3] for row in ROWS],
    "agent": ["react" if row[3] == 1 else "plan" for row in ROWS],
    "model": [row[0] for row in ROWS],
    "score": ["C" if passed else "I" for passed in VERDICTS],
    "success": VERDICTS,
    "total_time": [1.5] * len(ROWS),
    "total_tokens": [100] * len(ROWS),
}
SAMPLES: dict[str, Any] = {
    "sample_id": [f"s{i}" for i in range(len(ROWS))],
    "task_name": [row[1] for row in ROWS],
    "task_version": "0",
    "model": [row[0] for row in ROWS],
    "id": [row[2] for row in ROWS],
    "epoch": [row[3] for row in ROWS],
    "score_match": ["C" if passed else "I" for passed in VERDICTS],
}
FLAGS = SAMPLES | {"score_match": [float(passed) for passed in VERDICTS]}


@pytest.mark.parametrize(("columns", "protocols"), [(SCOUT, 2), (SAMPLES, 1), (FLAGS, 1)])
def test_layouts_that_need_no_config(tmp_path: Path, columns: dict[str, Any], protocols: int) -> None:
    path = put(tmp_path / "lake", pl.DataFrame(columns))
    score_lake(path.parent, Output(tmp_path / "out"), settings_for(str(path.parent)))
    rows = ask(
        tmp_path / "out", "SELECT benchmark, model, sum(n), sum(c) FROM problem_counts GROUP BY ALL ORDER BY ALL"
    )
    expected = {row[:2]: 0 for row in ROWS}
    for row, passed in zip(ROWS, VERDICTS, strict=True):
        expected[row[:2]] += passed
    assert rows == sorted((benchmark, model, 10, c) for (model, benchmark), c in expected.items())
    assert ask(tmp_path / "out", "SELECT count(DISTINCT protocol) FROM problem_counts") == [(protocols,)]
    assert failed_checks(tmp_path / "out") == []
    assert settings_for(str(path), columns={"subject": "agent"}).columns.subject == "agent"


def test_rewards_and_other_files(tmp_path: Path) -> None:
    put(tmp_path, pl.DataFrame(SAMPLES | {"score_match": [i / 7 for i in range(len(ROWS))]}))
    columns = described(str(tmp_path), PATIENCE)["columns"]
    assert (columns["score"], columns["passed"]) == ("score_match", "")
    put(tmp_path / "other", pl.DataFrame({"model": "m", "task_id": "x", "success": [True]}))
    put(tmp_path / "other", pl.DataFrame(SCOUT), "_hidden/a.parquet")
    assert described(str(tmp_path / "other"), PATIENCE) == {}
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert described(str(tmp_path), PATIENCE) == {}


@pytest.mark.parametrize("columns", [SCOUT, SAMPLES])
def test_init_writes_a_config_that_score_takes(tmp_path: Path, columns: dict[str, Any]) -> None:
    """A column called score that is no reward is named as unused; a version that is 0 is no verdict."""
    path = put(tmp_path / "lake", pl.DataFrame(columns))
    (tmp_path / "c.toml").write_text(config_text(infer_config(sample_lake(listing(path), Settings())), "lake"))
    report = score_lake(path, Output(tmp_path / "out"), load(tmp_path / "c.toml"))
    assert (report.models, report.run["graded"]) == (2, len(ROWS))
