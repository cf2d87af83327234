"""quick: any source in, a leaderboard and a page out; and the settings that are found or remembered."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from conftest import FIXTURES, ask, call
from layouts import LAYOUTS, TABLE

VALUES = "SELECT model, round(value, 4) FROM leaderboard WHERE metric = 'pass@1' ORDER BY rank"
pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("lake", "logs", "lm_eval"):
        shutil.copytree(FIXTURES / name, tmp_path / name)
    rows = pl.read_parquet(FIXTURES / "results.parquet")
    rows.write_parquet(tmp_path / "table.parquet")
    rows.write_csv(tmp_path / "table.csv")
    rows.write_csv(tmp_path / "table.tsv", separator="\t")
    rows.write_ndjson(tmp_path / "table.jsonl")
    rows.write_json(tmp_path / "table.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("source", ["lake", "table.parquet", "table.csv", "table.tsv", "table.json", "table.jsonl"])
def test_a_table_and_a_lake_give_the_same_board(source: str, home: Path) -> None:
    done = call("quick", source)
    assert done.returncode == 0, done.stderr
    assert [value for _, value in ask(home / "scorelake-out", VALUES)] == [0.5744, 0.4814, 0.2668, 0.2276]
    assert "model-00" in done.stdout
    assert "<!doctype html>" in (home / "scorelake-out" / "leaderboard.html").read_text()
    lake = source if source in ("lake", "table.parquet") else "scorelake-out-lake"
    again = call("score", lake, "--out", "scorelake-out")
    assert "No changes" in again.stderr, "the output remembers the columns"


def test_names_in_a_csv_survive(home: Path) -> None:
    """007 and 7 are two problems; a table from a spreadsheet has semicolons."""
    (home / "t.csv").write_text("\ufeffmodel;problem_id;passed;note\nm;007;TRUE;1.5\nm;7;FALSE;\n")
    assert call("quick", "t.csv").returncode == 0
    assert ask(home / "scorelake-out", "SELECT problem_id, c FROM problem_counts ORDER BY 1") == [
        ("007", 1),
        ("7", 0),
    ]
    assert call("quick", "t.csv").returncode == 0


def test_a_parquet_file_that_is_a_log_and_names_that_it_lacks(home: Path) -> None:
    LAYOUTS["trl"].write(home / "trl", TABLE)
    assert "no model in the file (give --model)" in call("quick", "trl").stderr
    assert call("quick", "trl", "--model", "m", "--metric", "correct").returncode == 0
    assert ask(home / "scorelake-out", VALUES) == [("m@step 7", 0.5)]
    done = call("quick", "table.parquet", "--model", "m")
    assert (done.returncode, "these options are for logs" in done.stderr) == (2, True)


def test_an_edited_config_is_kept(home: Path) -> None:
    assert call("quick", "table.parquet").returncode == 0
    config = home / "scorelake-out.toml"
    config.write_text(config.read_text() + '\n[metrics]\nnames = ["pass@1"]\n')
    assert "using scorelake-out.toml" in call("quick", "table.parquet").stderr
    assert ask(home / "scorelake-out", "SELECT DISTINCT metric FROM leaderboard") == [("pass@1",)]
    assert "wrote scorelake-out.toml" in call("quick", "lake").stdout, "inferred from another lake"


def test_logs_of_several_tasks_open_with_all_benchmarks(home: Path) -> None:
    done = call("quick", "lm_eval", "--out", "lm")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("All benchmarks · pass@1")
    assert "gsm8k: filter strict-match, chosen because it is the first" in done.stderr
    overall = ask(
        home / "lm", "SELECT model, rank, round(value, 3) FROM overall WHERE metric = 'pass@1' ORDER BY rank"
    )
    assert overall == [("org/large", 1, 0.8), ("org/small", 2, 0.575)]


def test_logs_in_two_folders_are_one_board(home: Path) -> None:
    done = call("quick", "logs/model-00.json", "logs/model-01.json")
    assert done.returncode == 0, done.stderr
    assert [model for model, _ in ask(home / "scorelake-out", VALUES)] == ["model-00", "model-01"]


def test_sources_that_cannot_be_read_leave_nothing(home: Path) -> None:
    (home / "odd.csv").write_text('a,b\n"1"')
    for sources, code, message in (
        (("nowhere",), 5, "no such file"),
        (("lake", "logs"), 2, "one lake or Parquet file"),
        (("odd.csv",), 3, "no column was found for model, problem_id"),
    ):
        done = call("quick", *sources)
        assert (done.returncode, message in done.stderr) == (code, True)
    assert not (home / "scorelake-out" / "leaderboard.duckdb").exists()


def test_a_config_beside_the_lake_is_found_and_changes_are_listed(home: Path) -> None:
    (home / "scorelake.toml").write_text('[metrics]\nnames = ["pass@1"]\n')
    assert "using scorelake.toml" in call("score", "lake", "--out", "out").stderr
    assert ask(home / "out", "SELECT DISTINCT metric FROM leaderboard") == [("pass@1",)]
    assert "using scorelake.toml" in call("quick", "lake", "--out", "out").stderr
    (home / "scorelake.toml").unlink()
    assert "using the settings of the last run of out" in call("score", "lake", "--out", "out").stderr
    changed = call("score", "lake", "--out", "out", "--metrics", "pass@2").stderr
    assert 'settings changed since the last run of out, which had metrics.names = ["pass@1"]' in changed
