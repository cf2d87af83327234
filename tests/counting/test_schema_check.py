"""Does a lake fit its settings? What no file has is the settings' fault, what some lack is theirs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ask, attempts, expand, put, run
from scorelake.errors import DataError, ScorelakeError, UsageError
from scorelake.lake.description import mapped
from scorelake.pipeline import count_part
from scorelake.publish.snapshot import Output
from scorelake.read import check
from scorelake.settings import Settings, load
from scorelake.text import toml_text

GOOD = expand([("a", 4, 2), ("b", 4, 4)], model="m")
FOREIGN = GOOD.rename({"model": "Model", "problem_id": "task_id", "passed": "correct"})


def refused(home: Path, kind: type[ScorelakeError], config: str | None = None, **options: Any) -> ScorelakeError:
    with pytest.raises(kind) as error:
        run(home / "lake", home / "out", config, **options)
    assert not (home / "out" / "leaderboard.duckdb").exists()
    assert type(error.value) is kind
    return error.value


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"dry_run": True}, {"allow_quarantine": True}])
def test_everything_at_once_and_the_lines_that_mend_it(tmp_path: Path, options: dict[str, bool]) -> None:
    for i in range(12):
        put(tmp_path / "lake", FOREIGN, f"{i}.parquet")
    error = refused(tmp_path, UsageError, **options)
    assert error.where == str(tmp_path / "lake")
    assert error.what.splitlines() == [
        "required columns are missing or have the wrong type in all 12 files:",
        "  no column model (closest: Model)",
        "  no column problem_id (closest: task_id)",
        "  no column passed and no score (closest: correct)",
        "  there are: task_id, correct, Model",
    ]
    assert error.hint is not None
    lines = error.hint.splitlines()
    assert (
        lines[-2] == "  or in the command: --column model=Model --column problem_id=task_id --column passed=correct"
    )
    put(tmp_path / "lake", FOREIGN, "0.parquet")
    run(tmp_path / "lake", tmp_path / "out", "\n".join(lines[1:-2]))
    assert ask(tmp_path / "out", "SELECT problem_id, n, c FROM problem_counts ORDER BY ALL") == [
        ("a", 48, 24),
        ("b", 48, 48),
    ]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('[columns]\npassed = "corect"', "no column corect (closest: correct)"),
        ('[columns]\nattempt = "sampleid"', "no column sampleid (closest: sample_id)"),
        ('[columns]\nscore = "reward"', "no column reward"),
        ('[columns]\nanswer = "anser"', "no column anser (closest: answer)"),
        ('[columns]\nsubject = "topics"', "no column topics (closest: topic)"),
        ('[columns]\nbenchmark = "set"', "no column set"),
        ('[columns]\ncluster = "books"', "no column books (closest: book)"),
        ('[columns]\ncarry = ["levle"]', "no column levle (closest: level)"),
        ('[protocol]\ncolumns = ["temprature"]', "no column temprature (closest: temperature)"),
    ],
)
def test_a_typo_is_never_silent(tmp_path: Path, config: str, says: str) -> None:
    more = {"sample_id": 1, "answer": "x", "topic": "t", "book": "b", "level": 1, "temperature": 0.5}
    frame = GOOD.with_columns(pl.lit(value).alias(name) for name, value in more.items())
    put(tmp_path / "lake", frame.with_columns(correct="passed"), "0.parquet")
    put(tmp_path / "lake", frame.with_columns(correct="passed"), "1.parquet")
    assert says in refused(tmp_path, UsageError, config).what


def test_a_slice_that_is_not_there(tmp_path: Path) -> None:
    put(tmp_path / "lake", GOOD.with_columns(level=1))
    error = refused(tmp_path, UsageError, by=("levels",))
    assert error.hint is not None
    assert error.hint.startswith("say in the command: --by level\n")


def test_what_some_files_lack_is_their_fault(tmp_path: Path) -> None:
    put(tmp_path / "lake", FOREIGN, "0.parquet")
    put(tmp_path / "lake", GOOD, "1.parquet")
    for options in ({}, {"dry_run": True}):
        error = refused(tmp_path, DataError, **options)
        assert "0.parquet: no column model (closest: Model); " in error.what
        assert "1.parquet" not in error.what
    assert run(tmp_path / "lake", tmp_path / "out", allow_quarantine=True).run["quarantined"] == 1
    (tmp_path / "lake" / "2").mkdir()
    put(tmp_path / "lake", FOREIGN, "2/0.parquet")
    with pytest.raises(DataError, match=r"2/0.parquet: no column model"):
        run(tmp_path / "lake", tmp_path / "out")  # the only new file, but others are known to fit


def test_a_broken_file_does_not_hide_the_mistake(tmp_path: Path) -> None:
    put(tmp_path / "lake", FOREIGN, "1.parquet")
    (tmp_path / "lake" / "0.parquet").write_bytes(b"PAR1")
    put(tmp_path / "lake", FOREIGN.with_columns(problem_id=pl.lit(1.0)), "2.parquet")
    what = refused(tmp_path, UsageError).what
    assert (
        "required columns are missing or have the wrong type in all 2 files:\n  no column model (closest: Model)\n"
        in what
    )
    assert "\n  and 3 files have faults of their own:\n  0.parquet: not a readable Parquet file" in what
    assert "\n  1.parquet: no column model (closest: Model); no column problem_id (closest: task_id); no " in what
    assert "\n  2.parquet: no column model (closest: Model); column problem_id is Float64; it must" in what


def test_types_are_the_data(tmp_path: Path) -> None:
    frame = GOOD.with_columns(problem_id=pl.Series([1.0, 2.0] * 4), passed=pl.lit("C"))
    put(tmp_path / "lake", frame, "0.parquet")
    put(tmp_path / "lake", frame, "1.parquet")
    what = refused(tmp_path, DataError).what
    assert what.count("if its numbers are whole, write them as integers") == 1
    assert what.count("or a text with [columns] pass_values") == 1


def test_parts_say_so_too(tmp_path: Path) -> None:
    put(tmp_path / "lake", FOREIGN)
    with pytest.raises(UsageError, match="no column model"):
        count_part(tmp_path / "lake", Output(tmp_path / "out"), Settings(), 1, 2)


def columns(*pairs: str) -> dict[str, str]:
    return {f"columns.{key}": name for key, name in mapped(pairs).items()}


def test_columns_by_the_command(tmp_path: Path) -> None:
    put(tmp_path / "lake", FOREIGN.rename({"correct": "a=b"}))
    settings = load(**columns("model=Model", "problem_id=task_id", "passed=a=b"))
    assert settings.columns.passed == "a=b"
    (tmp_path / "c.toml").write_text('[columns]\nmodel = "x"\nsubject = "y"')
    over = load(tmp_path / "c.toml", **columns("model=Model", "answer=")).columns
    assert (over.model, over.subject, over.answer) == ("Model", "y", "")
    for wrong in (["model"], ["models=x"], ["carry=x"], ["attempt=x", "attempt=y"]):
        with pytest.raises(UsageError, match="--column"):
            mapped(wrong)


def test_names_that_toml_must_escape() -> None:
    for name in ('a"b', "a\\b", "a\nb", "\x7f", "\u2028", "\U0001f600", "é", ""):
        assert tomllib.loads(f"x = {toml_text(name)}") == {"x": name}


# --- verdicts in words, through the whole job -----------------------------------------------------------------


@pytest.mark.slow
def test_verdicts_in_words(tmp_path: Path) -> None:
    """Counted, and recounted in SQL."""
    rows, words = 80, ["C", "I", None, "pass", "n/a", "C", "", "P"]
    frame = attempts(
        model="m", problem_id=[f"p{i % 7}" for i in range(rows)], verdict=[words[i % 8] for i in range(rows)]
    )
    put(tmp_path / "lake", frame)
    config = '[columns]\npassed = "verdict"\npass_values = ["C", "pass"]\n'
    known = (
        frame.filter(pl.col("verdict") != "")  # an empty cell is ungraded, and so is null
        .group_by("problem_id")
        .agg(n=pl.len(), c=pl.col("verdict").is_in(["C", "pass"]).sum())
    )
    report = run(tmp_path / "lake", tmp_path / "out", config)
    assert set(report.ways) == {"kernel"}
    sql = "SELECT problem_id, n, c FROM problem_counts WHERE n > 0"
    assert sorted(ask(tmp_path / "out", sql)) == sorted(known.rows())
    assert [f.detail for f in check.check(Output(tmp_path / "out")) if not f.ok] == []

    strict = config + 'fail_values = ["I", ""]\n[policy]\nmax_rejected = 1000000\n'
    report = run(tmp_path / "lake", tmp_path / "strict", strict)
    assert report.run["rejected"] == rows // 4, "n/a and P"
    assert report.run["graded"] == rows // 8 * 5
    assert [f.detail for f in check.check(Output(tmp_path / "strict")) if not f.ok] == []


@pytest.mark.parametrize(
    "columns", [{"pass_values": ["C"], "fail_values": ["C"]}, {"fail_values": ["I"]}, {"pass_values": "C"}]
)
def test_values_that_contradict_themselves(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"pass_values|pass and a fail"):
        Settings.model_validate({"columns": columns})


def test_a_column_that_is_used_is_not_proposed_for_another(tmp_path: Path) -> None:
    frame = GOOD.rename({"problem_id": "id"}).with_columns(task_id=pl.lit("x"))
    put(tmp_path / "lake", frame)
    hint = refused(tmp_path, UsageError, '[columns]\nattempt = "task_id"\n').hint or ""
    assert 'problem_id = "id"' in hint
