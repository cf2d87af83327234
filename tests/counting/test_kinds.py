"""A lake may mix kinds of outcome: each benchmark is scored by what its attempts have."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ask, attempts, failed_checks, put, run
from scorelake import reporting, tasks
from scorelake.errors import DataError, UsageError
from scorelake.lake.listing import listing
from scorelake.read.claim import PairRequest, compare_models
from scorelake.read.session import reading
from scorelake.settings import load
from scorelake.storage.disk import mark
from scorelake.storage.files import Shard

MODELS, IDS = ["a"] * 12 + ["b"] * 12, [f"p{i % 6}" for i in range(24)]
KEYS = {"model": MODELS, "problem_id": IDS, "attempt": [i // 6 % 2 for i in range(24)]}
PASSED = [i % 3 == 0 for i in range(24)]
SCORES = [i / 24 for i in range(24)]
LAKES: dict[str, dict[str, Any]] = {
    "code": {"passed": PASSED},
    "quiz": {"passed": PASSED, "answer": [str(i % 4) for i in range(24)]},
    "poems": {"score": SCORES},
    "proofs": {"passed": PASSED, "score": SCORES},
}
COMPARED = {
    "model_summary": "SELECT * FROM model_summary",
    "model_rank": "SELECT * FROM source.model_rank",
    "model_pair": "SELECT * FROM source.model_pair",
    "problem_histogram": "SELECT * FROM problem_histogram",
    "curve": "SELECT * FROM curve",
    "scores": "SELECT benchmark, model, problem_id, metric, value FROM problem_scores WHERE value IS NOT NULL",
}


def frame(benchmark: str) -> pl.DataFrame:
    return attempts(benchmark=benchmark, **KEYS, **LAKES[benchmark])


def rows(out: Path, sql: str, benchmark: str) -> list[tuple[Any, ...]]:
    return sorted(ask(out, f"SELECT * FROM ({sql}) WHERE benchmark = '{benchmark}'"), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("metrics", [(), ("pass@2", "avg@N", "max@2")])
def test_a_benchmark_is_scored_as_if_it_were_alone(
    lake: Path, out: Path, tmp_path: Path, metrics: tuple[str]
) -> None:
    for name in LAKES:
        put(lake, frame(name), f"{name}.parquet")
    report = run(lake, out, metrics=metrics)
    for name in LAKES:
        here = [metric for metric in metrics if not (name == "poems" and metric.startswith("pass"))]
        own = tmp_path / name
        run(put(own / "lake", frame(name)).parent, own / "out", metrics=here)
        for table, sql in COMPARED.items():
            assert rows(out, sql, name) == rows(own / "out", sql, name), (name, table)
    assert report.kinds == {
        "code": "verdict", "poems": "reward", "proofs": "verdict and reward", "quiz": "verdict",
    }  # fmt: skip
    averaged = {
        name: rest for name, *rest in ask(out, "SELECT metric, benchmarks, missing FROM overall WHERE model = 'a'")
    }
    assert averaged["pass@2"] == [3, None], "poems has no verdicts, and is no part of the average"
    assert averaged["avg@N"] == [2, None], "other scales are not averaged with shares"
    assert failed_checks(out) == []


@pytest.mark.slow
def test_the_summary_names_the_kinds(lake: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(lake, frame("code"), "0.parquet")
    reporting.run_summary(run(lake, out))
    put(lake, frame("poems"), "1.parquet")
    reporting.run_summary(run(lake, out))
    assert "outcomes: code verdict; poems reward" in capsys.readouterr().err.partition("published")[2]


@pytest.mark.slow
def test_a_later_run_is_paired_by_kind_and_any_metric_is_compared(lake: Path, out: Path) -> None:
    for name in LAKES:
        put(lake, frame(name), f"{name}.parquet")
    run(lake, out, "[compare]\nmin_problems = 2\n")
    run(lake, out, "[compare]\nmin_problems = 2\n", full=True)
    assert ask(out, "SELECT DISTINCT problems_both, change FROM change WHERE metric IN ('pass@1', 'max@2')") == [
        (6, 0)
    ]
    found = compare_models_of(out, "pass@1"), compare_models_of(out, "max@2")
    assert found == (["code", "proofs", "quiz"], ["poems", "proofs"])


def compare_models_of(out: Path, metric: str) -> list[str]:
    """The benchmarks on which two models can be compared by a metric."""
    with reading(out) as folder:
        return [result.benchmark for result in compare_models(folder, str(out), PairRequest("a", "b", metric=metric))]


UNION = {
    "benchmark": ["v"] * 3 + ["s"] * 3 + ["both"] * 4,
    "passed": [True, False, None, None, None, None, True, True, None, None],
    "score": [None, None, None, 0.25, 0.75, None, 1.0, None, 0.5, None],
}


@pytest.mark.parametrize(
    ("ungraded", "counts"),
    [
        ("exclude", [("both", 1, 1, 3, 1.0), ("s", 2, None, 1, 0.5), ("v", 2, 1, 1, None)]),
        ("fail", [("both", 4, 2, 0, 0.375), ("s", 3, None, 0, 1 / 3), ("v", 3, 1, 0, None)]),
    ],
)
def test_files_with_both_columns_and_nulls(lake: Path, out: Path, ungraded: str, counts: list[Any]) -> None:
    """With verdicts and scores in one benchmark, an attempt that lacks one of them is ungraded."""
    put(lake, attempts(model="m", problem_id="p", attempt=list(range(10)), **UNION))
    run(lake, out, f'[policy]\nungraded = "{ungraded}"\n')
    found = ask(out, "SELECT benchmark, n, c, ungraded, reward_mean FROM problem_counts ORDER BY 1")
    assert [row[:4] for row in found] == [row[:4] for row in counts]
    assert [row[4] for row in found] == [pytest.approx(row[4]) if row[4] else None for row in counts]
    assert failed_checks(out) == []


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ({"passed": [True]}, {"score": [0.5]}, "b: passed in 0.parquet, score in 1.parquet"),
        ({"passed": [True]}, {"passed": [True], "score": [0.5]}, "b: passed in 0.parquet, passed and score in 1"),
        ({"passed": [True], "answer": ["x"]}, {"passed": [True]}, "b: passed in 1.parquet, passed and answer in 0"),
        (
            {"passed": [True, None], "score": [None, 0.5]},
            {"passed": [True]},
            "b: passed in 0.parquet, score in 0.parquet",
        ),
    ],
)
def test_attempts_of_one_benchmark_that_differ(lake: Path, out: Path, one: Any, two: Any, message: str) -> None:
    put(lake, frame("poems"), "poems.parquet")
    for i, columns in enumerate((one, two)):
        put(
            lake,
            attempts(
                model="m",
                benchmark="b",
                problem_id="p",
                attempt=[1, 2][: len(columns["passed"])] if "passed" in columns else [1],
                **columns,
            ),
            f"{i}.parquet",
        )
    with pytest.raises(DataError, match=message):
        run(lake, out)


def test_settings_concern_the_benchmarks_that_they_are_about(lake: Path, out: Path) -> None:
    """A renamed column is missing in the files of the other kind, a rubric is of scores, a prior of verdicts."""
    put(lake, frame("code").rename({"passed": "ok"}), "0.parquet")
    put(lake, frame("poems").with_columns(reward=pl.lit(0.5)).drop("score"), "1.parquet")
    config = (
        '[columns]\npassed = "ok"\nscore = "reward"\n[rubric]\nlevels = [0, 0.5, 1]\n[uncertainty]\nprior = [2, 2]\n'
    )
    report = run(lake, out, config)
    assert report.kinds == {"code": "verdict", "poems": "rubric"}
    assert {name for name, in ask(out, "SELECT DISTINCT benchmark FROM model_summary WHERE metric = 'bayes@N'")} == {
        "code", "poems",
    }  # fmt: skip
    with pytest.raises(DataError, match=r"no column okay \(closest: ok\)"):
        run(lake, out, config.replace('"ok"', '"okay"'))
    with pytest.raises(UsageError, match="vote@2: this lake has no column answer"):
        run(lake, out, config, metrics=["vote@2"])


NULL_OR_SCORE = {"problem_id": ["x", "y"], "passed": pl.Series([None, None], dtype=pl.Boolean), "score": [0.5, None]}


@pytest.mark.parametrize("chunk_rows", [None, 1])
def test_the_kind_does_not_depend_on_how_rows_are_cut(lake: Path, out: Path, chunk_rows: int | None) -> None:
    """An attempt without verdict and score says nothing about its benchmark, in a chunk of its own too."""
    put(lake, attempts(model="m", **NULL_OR_SCORE), row_group_size=1)
    shard = Shard(str(lake), listing(lake).files)
    out.mkdir()
    mark(out)
    tasks.count(tasks.Count(shard, load(None), str(out / "partials"), chunk_rows=chunk_rows))
    run(lake, out)
    assert ask(out, "SELECT problem_id, n, c, ungraded FROM problem_counts ORDER BY 1") == [
        ("x", 1, None, 0), ("y", 0, None, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "slices"),
    [
        ([pl.Series([1, 2]), pl.Series([1, 2], dtype=pl.UInt64)], ["1", "2"]),
        ([pl.Series([1, 2]), pl.Series([1.0, 2.0])], ["1.0", "2.0"]),
        ([pl.Series([0.1, 2.0], dtype=pl.Float32), pl.Series([0.1, 2.0])], ["0.1", "2.0"]),
        ([pl.Series([1, 2]), pl.Series(["1", "2"]), pl.Series([1.0, 2.0], dtype=pl.Float32)], ["1", "2"]),
        ([pl.Series([True, False]), pl.Series(["true", "false"])], ["false", "true"]),
        ([pl.Series([None, None]), pl.Series(["a", "b"])], ["a", "b"]),
    ],
)
@pytest.mark.parametrize("shard_mb", [1, 1e-6])
def test_carried_values_are_one_across_types_and_files(
    lake: Path, out: Path, files: list[pl.Series], slices: list[str], shard_mb: float
) -> None:
    for i, tier in enumerate(files):
        put(lake, attempts(model="m", problem_id=["a", "b"], attempt=i, passed=True, tier=tier), f"{i}.parquet")
    run(lake, out, f"[run]\nshard_mb = {shard_mb}\n", by=("tier",))
    assert ask(out, "SELECT DISTINCT slice_value, problems FROM slice_summary ORDER BY 1") == [(s, 1) for s in slices]
    assert failed_checks(out) == []


def test_of_a_number_and_a_text_the_number_is_kept(lake: Path, out: Path) -> None:
    for i, tier in enumerate((pl.Series([10, 9]), pl.Series(["1", "1"]))):
        put(lake, attempts(model="m", problem_id="p", passed=True, tier=tier), f"{i}.parquet", row_group_size=1)
    report = run(lake, out, by=("tier",))
    assert ask(out, "SELECT tier FROM problem_counts") == [("9",)]
    assert report.warnings[-1] == "1 problems have differing values of tier; the smallest is kept"
