"""Which column is which: inferred by names, types and values, and the config that comes of them."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloud import upload
from conftest import ask, attempts, failed_checks, put, run
from scorelake.errors import DataError
from scorelake.lake.infer import InferredConfig, config_text, infer_config
from scorelake.lake.listing import listing
from scorelake.lake.sample import sample_lake
from scorelake.settings import Settings

MODELS, TASKS, SAMPLES = 2, 6, 3
ROWS = [(m, t, s) for m in range(MODELS) for t in range(TASKS) for s in range(SAMPLES)]


def foreign(**columns: Any) -> pl.DataFrame:
    """Attempts under names of other tools; None drops a column."""
    defaults: dict[str, Any] = {
        "model_name": [f"gpt-{m}" for m, _, _ in ROWS],
        "task_id": [f"t{t}" for _, t, _ in ROWS],
        "sample_id": [s for _, _, s in ROWS],
        "correct": [(m + t + s) % 2 == 0 for m, t, s in ROWS],
    }
    return attempts(**{name: column for name, column in (defaults | columns).items() if column is not None})


def infer(lake: Path | str) -> InferredConfig:
    return infer_config(sample_lake(listing(lake), Settings()))


def chosen(inferred: InferredConfig) -> dict[str, str]:
    return {key: each.column for key, each in inferred.columns.items() if each.column}


def usual(**more: str) -> dict[str, str]:
    return {"model": "model_name", "passed": "correct", "problem_id": "task_id", "attempt": "sample_id"} | more


def test_from_foreign_names_to_a_leaderboard(tmp_path: Path) -> None:
    put(tmp_path, foreign(category=["a", "b"] * 18, dataset="d", temperature=0.7, response="x"), "x.parquet")
    inferred = infer(tmp_path / "x.parquet")
    assert chosen(inferred) == usual(subject="category", benchmark="dataset")
    assert [column.name for column in inferred.protocol] == ["temperature"]
    assert inferred.columns["model"].why == "by its name; texts: gpt-0, gpt-1"
    run(tmp_path / "x.parquet", tmp_path / "out", config_text(inferred, "x.parquet"))
    sql = "SELECT benchmark, model, sum(n), sum(c) FROM problem_counts GROUP BY ALL ORDER BY ALL"
    assert ask(tmp_path / "out", sql) == [("d", "gpt-0", 18, 9), ("d", "gpt-1", 18, 9)]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, {}),
        ({"model_name": None, "Model": [f"m{m}" for m, _, _ in ROWS]}, {"model": "Model"}),
        ({"model_name": None, "who": [("claude-3", "qwen/qwen2")[m] for m, _, _ in ROWS]}, {"model": "who"}),
        ({"correct": None, "is-correct": [0.0, 1.0] * 18}, {"passed": "is-correct"}),
        ({"correct": None, "score": [0, 1] * 18}, {"passed": "score"}),
        ({"correct": None, "judged": [True, False] * 18}, {"passed": "judged"}),
        ({"correct": [0.5, 0.25] * 18, "judged": [True, False] * 18}, {"passed": "judged"}),
        ({"reward": [0.5, 0.25] * 18}, {"score": "reward"}),
        ({"id": list(range(36))}, {}),
        ({"task_id": None, "id": [f"t{t}" for _, t, _ in ROWS]}, {"problem_id": "id"}),
        ({"extracted_answer": "x"}, {"answer": "extracted_answer"}),
    ],
)
def test_what_is_taken_for_what(tmp_path: Path, columns: dict[str, Any], expected: dict[str, str]) -> None:
    put(tmp_path, foreign(**columns))
    assert chosen(infer(tmp_path)) == usual(**expected)


def test_verdicts_in_words(tmp_path: Path) -> None:
    put(tmp_path, foreign(correct=["C", "Incorrect", "maybe", ""] * 9))
    inferred = infer(tmp_path)
    assert (inferred.pass_values, inferred.fail_values, inferred.unknown) == (("C",), ("Incorrect",), ("maybe",))
    text = config_text(inferred, "lake")
    columns = Settings.model_validate(tomllib.loads(text)).columns
    assert (columns.pass_values, columns.fail_values) == (("C",), ("Incorrect",))
    assert "# Pass or fail? maybe\n" in text


@pytest.mark.parametrize(
    ("name", "values", "passes", "is_inverted"),
    [
        ("failed", [True, False, False, False], ("false",), True),
        ("isIncorrect", [1.0, 0.0, 0.0, 0.0], ("0",), True),
        ("error", ["yes", "no", "No", "no"], ("No", "no"), True),
        ("not_solved", [True, False, False, None], ("false",), True),
        ("failed", ["fail", "pass", "pass", "pass"], ("pass",), True),
        ("no_error", [False, True, True, True], (), False),
    ],
)
def test_names_that_mean_failure_are_inverted(
    tmp_path: Path, name: str, values: list[Any], passes: tuple[str, ...], is_inverted: bool
) -> None:
    put(tmp_path / "lake", foreign(**({"correct": None} | {name: values * 9})))
    inferred = infer(tmp_path / "lake")
    assert (chosen(inferred)["passed"], inferred.pass_values) == (name, passes)
    assert ("it is inverted" in inferred.columns["passed"].why) == is_inverted
    share = 0.6667 if None in values else 0.75
    expected = "2 models, 6 problems, 3 rows per model and problem, pass rate"
    if is_inverted or name == "correct":
        expected += f" {1.0 if name == 'not_solved' and None not in values else share:.4f}"
    assert inferred.numbers.startswith(expected)
    run(tmp_path / "lake", tmp_path / "out", config_text(inferred, "lake"), metrics=["pass@1"])
    graded, passed = ask(tmp_path / "out", "SELECT sum(n), sum(c) FROM problem_counts")[0]
    assert passed / graded == pytest.approx(share, abs=1e-4)
    assert failed_checks(tmp_path / "out") == []


def test_a_failure_flag_beside_a_score_or_verdict_is_no_verdict(tmp_path: Path) -> None:
    put(tmp_path / "a", foreign(error=[True, False] * 18))
    assert chosen(infer(tmp_path / "a")) == usual()
    put(tmp_path / "b", foreign(correct=None, error=[True, False] * 18, reward=[0.5, 0.25] * 18))
    inferred = infer(tmp_path / "b")
    assert (inferred.columns["passed"].column, inferred.columns["score"].column) == (None, "reward")


@pytest.mark.parametrize(
    ("columns", "problem", "attempt", "problems"),
    [
        ({"task": "ab", "sample_id": range(200)}, ("task", "sample_id"), None, 400),
        ({"task": "ab", "id": range(200), "epoch": range(2)}, ("task", "id"), "epoch", 400),
        ({"question_id": range(50), "split": "ab"}, ("question_id", "split"), None, 100),
        ({"question_id": range(50), "config": "ab", "run": range(3)}, ("question_id", "config"), "run", 100),
        ({"task": range(30), "sample_id": range(8)}, ("task",), "sample_id", 30),
        ({"task_id": range(10), "sample_id": range(100)}, ("task_id",), "sample_id", 10),
    ],
)
def test_ids_that_repeat_in_several_sets_are_composite(
    tmp_path: Path, columns: dict[str, Any], problem: tuple[str, ...], attempt: str | None, problems: int
) -> None:
    """400 samples of two tasks were two problems."""
    values = list(product(["gpt-1", "gpt-2"], *columns.values()))
    frame = pl.DataFrame(values, schema=["model", *columns], orient="row")
    put(tmp_path / "lake", frame.with_columns(correct=pl.int_range(pl.len()) % 3 == 0))
    inferred = infer(tmp_path / "lake")
    assert (inferred.columns["problem_id"].names, inferred.columns["attempt"].column) == (problem, attempt)
    assert f"2 models, {problems} problems" in inferred.numbers


def test_settings_are_the_protocol_and_provenance_is_not(tmp_path: Path) -> None:
    rows = pl.concat(
        foreign(correct=[(m + t + s + t * i) % 2 == 0 for m, t, s in ROWS]).with_columns(
            **{name: pl.lit(f"{name} {i}") for name in ("commit", "hostname", "package_version", "started_at")},
            **{name: pl.lit(i) for name in ("max_connections", "sampling.top_p", "n_shots")},
            filter=pl.lit(("strict", "flexible")[i]),
            prompt=pl.format("prompt of {}", "task_id"),
        )
        for i in range(2)
    )
    put(tmp_path, rows)
    assert sorted(column.name for column in infer(tmp_path).protocol) == ["filter", "n_shots", "sampling.top_p"]


@pytest.mark.parametrize("folders", [False, True])
def test_rows_that_differ_in_a_setting_are_not_pooled_silently(tmp_path: Path, folders: bool) -> None:
    """Also where files of one setting recur at equal distances, so that a sample of every second misses the other."""
    for i in range(40):
        t = (0.0, 0.7)[i % 2]
        rows = attempts(model=f"gpt-{i // 2}", problem_id=["a", "b"], passed=True, prompt=["of a", "of b"])
        put(
            tmp_path / "lake",
            rows if folders else rows.with_columns(temperature=t),
            f"{i:02d}/temperature={t}/x.parquet",
        )
    config = '[protocol]\ncolumns = ["temperature"]\n'
    assert not any(
        "pooled" in text for text in run(tmp_path / "lake", tmp_path / "a", config, metrics=["pass@1"]).warnings
    )
    (warning,) = (
        text for text in run(tmp_path / "lake", tmp_path / "b", "", metrics=["pass@1"]).warnings if "pooled" in text
    )
    assert warning.startswith("rows that differ in temperature are pooled: 0.0 (40 rows), 0.7 (40 rows)")


@pytest.mark.parametrize(
    ("columns", "missing", "message"),
    [
        ({"model_name": None}, ["model"], "or put files into folders model=NAME"),
        (
            {"task_id": [float(t) for _, t, _ in ROWS]},
            ["problem_id"],
            "its numbers are whole, write them as integers",
        ),
        ({"correct": ["long", "words"] * 18}, ["passed"], "correct is texts: long, words, which is no verdict"),
        ({"correct": None}, ["passed"], "no column with a verdict"),
    ],
)
def test_what_is_missing(tmp_path: Path, columns: dict[str, Any], missing: list[str], message: str) -> None:
    put(tmp_path, foreign(**columns))
    inferred = infer(tmp_path)
    assert inferred.missing == missing
    assert message in inferred.columns[missing[0]].why
    line = next(line for line in config_text(inferred, "lake").splitlines() if line.startswith(f"# {missing[0]} = "))
    assert "# MISSING: " in line


def test_a_column_that_is_no_attempt(tmp_path: Path) -> None:
    """Numbers that repeat with two verdicts: taken for attempts, they would stop every run."""
    put(tmp_path, foreign(sample_id=None, attempt=[0] * 36))
    inferred = infer(tmp_path)
    assert "attempt" not in chosen(inferred)
    assert inferred.columns["attempt"].why == (
        "not attempt: 12 values have conflicting verdicts; is a run or checkpoint column missing?"
    )
    run(tmp_path, tmp_path / "out", config_text(inferred, "lake"))
    assert ask(tmp_path / "out", "SELECT sum(n) FROM problem_counts") == [(36,)]


def test_an_attempt_column_of_another_type_is_not_read(tmp_path: Path) -> None:
    """`init` proposed a config that `score` refused: numbers with a fraction cannot name attempts."""
    put(tmp_path, foreign(sample_id=None, attempt=[0.5 + i for i in range(36)]))
    run(tmp_path, tmp_path / "out", config_text(infer(tmp_path), "lake"), metrics=["pass@1"])
    assert ask(tmp_path / "out", "SELECT sum(n) FROM problem_counts") == [(36,)]


def variants(**columns: Any) -> pl.DataFrame:
    """The same attempts three times, with other verdicts; a list has one value per time."""
    times = [
        foreign(correct=[(m + t + s + t * i) % 2 == 0 for m, t, s in ROWS]).with_columns(
            **{name: pl.lit(values[i]) for name, values in columns.items()}
        )
        for i in range(3)
    ]
    return pl.concat(times, how="vertical_relaxed")


@pytest.mark.parametrize(
    ("name", "values", "models"),
    [
        ("checkpoint", ["a", "b", "c"], 6),
        ("Revision", ["main", "v1", "v2"], 6),
        ("is_final_checkpoint", [True, False, None], 0),
        ("version", ["a@1", "a@2", "a@3"], 0),
        ("temperature", [0.0, 0.5, 1.0], 0),
        ("mode", [None, "fast", "slow"], 0),
    ],
)
def test_a_column_that_separates_conflicting_attempts(
    tmp_path: Path, name: str, values: list[Any], models: int
) -> None:
    """Part of the model if it is named like a checkpoint and every row has a value, else of the protocol."""
    put(tmp_path / "lake", variants(**{name: values}))
    inferred = infer(tmp_path / "lake")
    assert chosen(inferred) == usual()
    assert inferred.columns["model"].names == (("model_name", name) if models else ("model_name",))
    assert [column.name for column in inferred.protocol] == ([] if models else [name])
    text = config_text(inferred, "lake")
    assert f"without {name}, 18 attempts have conflicting verdicts" in text or name in ("temperature", "checkpoint")
    run(tmp_path / "lake", tmp_path / "out", text)
    sql = "SELECT count(DISTINCT (model, protocol)), count(DISTINCT model), sum(n) FROM problem_counts"
    assert ask(tmp_path / "out", sql) == [(6, models or 2, 3 * len(ROWS))]


@pytest.mark.parametrize("repeats", ["sample_id", None])
@pytest.mark.parametrize("name", ["global_step", "checkpoint"])
def test_training_steps_are_points_of_a_series(tmp_path: Path, name: str, repeats: str | None) -> None:
    """Also without ids of attempts, where no conflict shows that they would be pooled; `steps` of agents are none."""
    rows = variants(**{name: [0, 100, 200]}).with_columns(steps=pl.int_range(pl.len()) % 7)
    put(tmp_path / "lake", rows if repeats else rows.drop("sample_id"))
    inferred = infer(tmp_path / "lake")
    assert inferred.columns["step"].names == (name,)
    assert "3 steps" in inferred.numbers
    run(tmp_path / "lake", tmp_path / "out", config_text(inferred, "lake"), metrics=["pass@1"])
    assert ask(tmp_path / "out", "SELECT count(*) FROM series") == [(6,)]
    mapping = '[columns]\nmodel = "model_name"\nproblem_id = "task_id"\npassed = "correct"\n'
    pooled = run(tmp_path / "lake", tmp_path / "pooled", mapping, metrics=["pass@1"]).warnings
    assert f'[columns] step = "{name}" keeps them apart' in pooled[0]
    assert len(pooled) == 1
    if repeats:
        with pytest.raises(DataError, match=f'hint: rows that differ in {name} .*step = "{name}" keeps them apart'):
            run(tmp_path / "lake", tmp_path / "new", f'{mapping}attempt = "sample_id"\n')


def test_training_steps_in_folder_names(tmp_path: Path) -> None:
    """No column of the files but the names of folders had to be read: nothing was said of what they pool."""
    for step in (0, 100):
        put(
            tmp_path / "lake",
            foreign(correct=[(m + t + step) % 3 == 0 for m, t, _ in ROWS]),
            f"step={step}/a.parquet",
        )
    assert infer(tmp_path / "lake").columns["step"].names == ("step",)
    mapping = '[columns]\nmodel = "model_name"\nproblem_id = "task_id"\npassed = "correct"\n'
    (warning,) = run(tmp_path / "lake", tmp_path / "out", mapping, metrics=["pass@1"]).warnings
    assert warning.startswith("rows that differ in step are pooled: 0 (36 rows), 100 (36 rows)")


def test_columns_that_follow_from_the_verdict_separate_nothing(tmp_path: Path) -> None:
    """An answer, a length, a text or a time differs between conflicting rows, but tells no variants apart."""
    frame = variants().with_row_index("line")
    frame = frame.with_columns(
        pl.when("correct").then(pl.lit("A")).otherwise(pl.lit("B")).alias("letter"),
        pl.format("text {}", "line").alias("response"),
        (pl.col("line") * 7919 % 100).alias("tokens"),
        (pl.col("line") * 0.37).alias("latency"),
        (pl.col("line") // len(ROWS)).alias("seed"),
    )
    put(tmp_path, frame)
    inferred = infer(tmp_path)
    assert "attempt" not in chosen(inferred)
    assert (inferred.columns["model"].names, inferred.protocol) == (("model_name",), ())
    assert "not sample_id: 18 values have conflicting verdicts" in inferred.columns["attempt"].why


def test_a_graded_row_beside_an_ungraded_one_is_no_conflict(tmp_path: Path) -> None:
    put(tmp_path, pl.concat([foreign(), foreign(correct=[None] * 36)], how="vertical_relaxed"))
    assert chosen(infer(tmp_path)) == usual()


def test_folders(tmp_path: Path) -> None:
    for model in ("a", "b"):
        put(tmp_path, foreign(model_name=None).head(18), f"model_name={model}/topic=x/0.parquet")
    inferred = infer(tmp_path)
    assert chosen(inferred) == usual(subject="topic")
    assert inferred.columns["model"].why == "by its name; folders: a, b"


def test_carried_columns_have_one_value_per_problem(tmp_path: Path) -> None:
    level, year = [t % 3 for _, t, _ in ROWS], [s for _, _, s in ROWS]
    put(tmp_path, foreign(difficulty=level, year=year))
    assert [column.name for column in infer(tmp_path).carry] == ["difficulty"]


def test_names_and_values_do_nothing(tmp_path: Path) -> None:
    """Whatever a lake's names hold, the config is the config that was meant."""
    hostile = 'model"\n[policy]\nmax_rejected = 99 # \x00'
    frame = foreign(model_name=None).with_columns(pl.lit('gpt "\n[gates]\n').alias(hostile))
    put(tmp_path, frame)
    inferred = infer(tmp_path)
    assert chosen(inferred)["model"] == hostile
    tree = tomllib.loads(config_text(inferred, "lake\n[gates]\nmin_problems = 9"))
    assert set(tree) == {"columns"}
    assert tree["columns"]["model"] == hostile


@pytest.mark.slow
def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "0.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="none of 1 files has rows that can be read"):
        infer(tmp_path)
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "1.parquet")
    with pytest.raises(DataError, match="none of 2 files has rows"):
        infer(tmp_path)
    put(tmp_path, foreign().with_columns(pl.struct("task_id").alias("nested")), "2.parquet")
    put(tmp_path, foreign(task_id=list(range(36))), "3.parquet")
    assert chosen(infer(tmp_path)) == usual(), "numbers and texts in one column are names all the same"


def test_many_files_and_groups(tmp_path: Path) -> None:
    """A few from everywhere, so that a lake in order of models does not look like one model."""
    frame = pl.concat([foreign(model_name=f"gpt-{i:03d}") for i in range(20)])
    put(tmp_path, frame, "big.parquet", row_group_size=36)
    sample = sample_lake(listing(tmp_path), Settings())
    assert (sample.files, sample.sampled_files, sample.rows.height) == (1, 1, 3 * 36)
    assert sample.columns["model_name"].distinct.to_list() == ["gpt-000", "gpt-006", "gpt-012"]
    for i in range(20):
        put(tmp_path, foreign(model_name=f"gpt-{i:03d}"), f"{i:03d}.parquet")
    sample = sample_lake(listing(tmp_path), Settings())
    assert (sample.files, sample.sampled_files) == (21, 8)


def test_object_storage(bucket: str, tmp_path: Path) -> None:
    put(tmp_path / "lake", foreign())
    assert chosen(infer(upload(tmp_path / "lake", f"{bucket}/lake"))) == usual()


def test_the_command(tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    put(tmp_path, foreign(), "my lake/0.parquet")
    done = cli("init", "my lake", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    last = done.stdout.splitlines()[-1]
    assert last == "next: scorelake score 'my lake' --out out --config scorelake.toml"
    again = cli("init", "my lake", cwd=tmp_path)
    assert (again.returncode, "scorelake.toml: exists already" in again.stderr) == (2, True)
    put(tmp_path, foreign(model_name=None), "none/0.parquet")
    done = cli("init", "none", "--force", cwd=tmp_path)
    assert (done.returncode, "no column was found for model" in done.stderr) == (3, True)
    put(tmp_path, foreign().drop("sample_id"), "my lake/1.parquet")
    done = cli("init", "my lake", "--force", cwd=tmp_path)
    assert (done.returncode, "my lake: 1 of 2 files cannot be read" in done.stderr) == (3, True)
