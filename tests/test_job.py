"""The whole job on known answers, odd names, and every way of cutting the work."""

import csv
import math
from pathlib import Path

import polars as pl
import pytest

from conftest import FIXTURES, ask, attempts, expand, put, run, snapshot, tables
from scorelake import metrics
from scorelake.errors import DataError, UsageError
from scorelake.schemas import SUMMARIES


def test_the_two_problem_example(lake: Path, out: Path) -> None:
    run(expand([("one", 5, 3), ("two", 5, 4)], model="m"), out, metrics=("all",))
    got = {name: row for name, *row in ask(out, "SELECT metric, value, mu, sigma, mu_lo, mu_hi FROM model_summary")}
    assert got["pass@1"] == pytest.approx([0.7, 0.642857, 0.118451, 0.4107, 0.8750], abs=5e-5)
    assert got["geom-ds@2"] == pytest.approx([0.653835, 0.612112, 0.132755, 0.3519, 0.8723], abs=5e-5)
    assert got["avg@N"] == pytest.approx([0.7, 0.7, 0.165831, 0.3750, 1.0], abs=5e-5)
    for name, row in got.items():
        want = metrics.summarize(name, [5, 5], [3, 4])
        assert row == [want.value, want.mu, want.sigma, want.mu_lo, want.mu_hi], name


@pytest.mark.slow
def test_a_lake_of_the_exact_reference_counts(lake: Path, out: Path) -> None:
    """Each (n, c) of the table is a subject of one problem: its summary is the exact value."""
    with (FIXTURES / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["n"]) <= 1000]
    pairs = sorted({(int(row["n"]), int(row["c"])) for row in rows})
    frames = [expand([("p", n, c)], subject=f"{n}/{c}", model="m") for n, c in pairs]
    put(lake, pl.concat(frames))
    names = {"pass": "pass@{k}", "pass_hat": "pass^{k}", "g_pass": "g-pass@{k}_{tau}", "mg_pass": "mg-pass@{k}"}
    names |= {"maj": "maj@{k}", "auc": "auc@{k}"}
    wanted = {(names[r["metric"]].format(**r), f"{r['n']}/{r['c']}"): r for r in rows}
    run(lake, out, metrics=sorted({name for name, _ in wanted}))
    sql = "SELECT metric, subject, value, mu, sigma FROM subject_summary"
    got = {(m, s): numbers for m, s, *numbers in ask(out, sql)}
    for key, row in wanted.items():
        value, mu, sigma = got[key]
        assert value == pytest.approx(float(row["finite"]), rel=1e-12, abs=1e-15)
        assert mu == pytest.approx(float(row["posterior_mean"]), rel=1e-12, abs=1e-15)
        assert sigma == pytest.approx(math.sqrt(float(row["posterior_var"])), rel=1e-9, abs=1e-12)
    assert len(wanted) > 800


@pytest.mark.slow
def test_golden_tables(out: Path) -> None:
    """Text and whole numbers to the letter, floats to 1e-10 (the last digits may differ between processors)."""
    import make

    make.score(out)
    for name, rows in make.tables(out).items():
        golden = list(csv.reader((FIXTURES / "golden" / f"{name}.csv").read_text().splitlines()))
        assert rows[0] == golden[0]
        assert len(rows) == len(golden)
        for got, want in zip(rows[1:], golden[1:], strict=True):
            for a, b in zip(got, want, strict=True):
                assert a == b or float(a) == pytest.approx(float(b), rel=1e-10, abs=1e-12), (name, got, want)


def test_columns_can_be_renamed(lake: Path, out: Path) -> None:
    put(lake, attempts(who="m", task=["a", "b"], ok=[True, False], set="math", topic="x"))
    config = '[columns]\nmodel="who"\nproblem_id="task"\npassed="ok"\nbenchmark="set"\nsubject="topic"\n'
    run(lake, out, config)
    assert ask(out, "SELECT DISTINCT benchmark, subject, model FROM problem_counts") == [("math", "x", "m")]


def test_protocols_are_never_pooled(lake: Path, out: Path) -> None:
    frame = attempts(
        model="m", problem_id="a", temperature=[0.0, 0.7, 0.7, None], grader="v1", passed=[True, False, False, True]
    )
    run(frame, out, '[protocol]\ncolumns=["temperature", "grader"]\n', metrics=["pass@1"])
    assert ask(out, "SELECT protocol, value FROM model_summary ORDER BY 1") == [
        ('{"temperature":0,"grader":"v1"}', 1.0),
        ('{"temperature":0.7,"grader":"v1"}', 0.0),
        ('{"temperature":null,"grader":"v1"}', 1.0),
    ]


@pytest.mark.slow
def test_ungraded_policies(lake: Path, tmp_path: Path) -> None:
    put(lake, attempts(model="m", problem_id=["a", "a", "b"], passed=[True, None, None]))
    run(lake, tmp_path / "exclude", metrics=["pass@1"])
    out = tmp_path / "exclude"
    assert ask(out, "SELECT value, problems, problems_scored FROM model_summary") == [(None, 2, 1)], (
        "not papered over"
    )
    assert ask(out, "SELECT problem_id, n, c, value FROM problem_scores ORDER BY 1") == [
        ("a", 1, 1, 1.0),
        ("b", 0, 0, None),
    ]
    run(lake, tmp_path / "fail", '[policy]\nungraded="fail"\n', metrics=["pass@1"])
    assert ask(tmp_path / "fail", "SELECT value, attempts, ungraded FROM model_summary") == [(0.25, 3, 0)]
    with pytest.raises(DataError, match="2 attempts are ungraded"):
        run(lake, tmp_path / "error", '[policy]\nungraded="error"\n')
    assert not (tmp_path / "error" / "leaderboard.duckdb").exists()


def test_real_rewards(lake: Path, out: Path) -> None:
    rewards = {"a": [0.25, -1.0, 0.25, 3.5], "b": [2.0, 2.0], "c": [0.0, -0.0, 1.5]}
    for i, part in enumerate([(0, 2), (2, 4)]):  # over two files: counts per reward add up
        rows = [(p, r) for p, rs in rewards.items() for r in rs[slice(*part)]]
        put(lake, attempts(model="m", problem_id=[p for p, _ in rows], score=[r for _, r in rows]), f"{i}.parquet")
    run(lake, out, "[run]\nshard_mb=0.0001\n")
    got = dict(ask(out, "SELECT metric, value FROM model_summary"))
    assert set(got) == {"avg@N", "max@1", "max@2", "max@4"}
    assert got["avg@N"] == pytest.approx((3.0 / 4 + 2.0 + 0.5) / 3)
    pairs = [0.25, 0.25, 3.5, 0.25, 3.5, 3.5]
    assert got["max@2"] == pytest.approx((sum(pairs) / 6 + 2.0 + 1.0) / 3)
    assert got["max@4"] is None, "only one problem has four attempts"
    with pytest.raises(UsageError, match="no pass/fail outcome"):
        run(lake, out, metrics=["pass@1"])


def test_rubrics(lake: Path, out: Path) -> None:
    outcomes = {"one": [0, 1, 2, 2, 1], "two": [1, 1, 0, 2, 2]}
    rows = [(p, o) for p, os in outcomes.items() for o in os]
    put(lake, attempts(model="m", problem_id=[p for p, _ in rows], score=[o for _, o in rows]))
    config = "[rubric]\nlevels=[0, 1, 2]\nweights=[0.0, 0.5, 1.0]\n"
    run(lake, out, config)
    got = {m: row for m, *row in ask(out, "SELECT metric, value, mu, sigma FROM model_summary")}
    assert got["bayes@N"] == pytest.approx([0.5625, 0.5625, 0.091998], abs=5e-7)
    assert got["avg@N"] == pytest.approx([0.6, 0.6, 0.147196], abs=5e-7)
    assert got["max@2"] == pytest.approx([0.85, 0.75, 0.08812], abs=5e-7)
    put(lake, attempts(model="m", problem_id=["one"], score=[3]), "odd.parquet")
    with pytest.raises(DataError, match=r"1 rows rejected, 0 allowed:\n  odd.parquet: 1 rows: not a valid outcome"):
        run(lake, out, config)


def test_rejected_rows_carry_nothing(lake: Path, out: Path) -> None:
    rows = pl.DataFrame(
        {"model": "m", "problem_id": "p", "passed": [1, 0, 7], "attempt": [0, 1, 2], "level": [3, 2, 1]}
    )
    put(lake, rows)
    config = '[columns]\ncarry = ["level"]\n[policy]\nmax_rejected = 1\n'
    run(lake, out, config, metrics=["pass@1"])
    assert ask(out, "SELECT n, c, level FROM problem_counts") == [(2, 1, 2)]


def test_carried_columns_and_slices(lake: Path, out: Path) -> None:
    frame = attempts(
        model="m",
        problem_id=["a", "a", "b", "c"],
        passed=[True, False, True, False],
        title=["T2", "T1", None, None],
        difficulty=[3, 3, 10, None],
    )
    put(lake, frame)
    report = run(lake, out, '[columns]\ncarry=["title"]\n', by=("difficulty",), metrics=["pass@1"])
    assert report.warnings == ("1 problems have differing values of title; the smallest is kept",)
    assert ask(out, "SELECT problem_id, title, difficulty, k, value FROM problem_scores ORDER BY 1") == [
        ("a", "T1", 3, 1, 0.5),
        ("b", None, 10, 1, 1.0),
        ("c", None, None, 1, 0.0),
    ]
    sliced = ask(out, "SELECT slice, slice_value, value, problems FROM slice_summary ORDER BY slice_value NULLS LAST")
    assert sliced == [("difficulty", "10", 1.0, 1), ("difficulty", "3", 0.5, 1), ("difficulty", None, 0.0, 1)]


@pytest.mark.slow
def test_same_bytes_however_the_work_is_cut(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    frame = pl.concat(
        pl.read_parquet(p).with_columns(model=pl.lit(p.parent.name))
        for p in sorted((FIXTURES / "lake").rglob("*.parquet"))
    )
    put(whole, frame)
    for i, part in enumerate(frame.sample(fraction=1, shuffle=True, seed=1).iter_slices(97)):
        put(parts, part, f"{(i * 37) % 101:03d}.parquet", row_group_size=13)
    run(whole, tmp_path / "a")
    for i, config in enumerate(["[run]\nshard_mb=0.02\nbucket_rows=50\n"]):
        run(parts, tmp_path / f"b{i}", config)
        for table in (*SUMMARIES, "problem_histogram"):
            name = f"{getattr(table, 'name', table)}.parquet"
            assert tables(tmp_path / f"b{i}")[name] == tables(tmp_path / "a")[name], (config, name)


def test_same_bytes_with_one_thread(tmp_path: Path, cli) -> None:  # type: ignore[no-untyped-def]
    import os

    run(FIXTURES / "lake", tmp_path / "many")
    env = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    assert cli("score", FIXTURES / "lake", "--out", tmp_path / "one", env=env).returncode == 0
    assert tables(tmp_path / "one") == tables(tmp_path / "many")


@pytest.mark.slow
def test_the_folder_can_be_moved(out: Path, tmp_path: Path) -> None:
    run(FIXTURES / "lake", out)
    before = ask(out, "SELECT count(*), round(sum(value), 6) FROM problem_scores")
    (tmp_path / "elsewhere").mkdir()
    (out / "leaderboard.duckdb").rename(tmp_path / "elsewhere" / "leaderboard.duckdb")
    assert ask(tmp_path / "elsewhere", "SELECT count(*), round(sum(value), 6) FROM problem_scores") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [["all"], ["maj@2", "avg@N", "bayes@N", "geom@2", "g-pass@4_0.5", "pass@3", "geom-ds@2"]]
)
def test_every_number_can_be_traced(out: Path, names: list[str]) -> None:
    run(FIXTURES / "lake", out, metrics=names)
    sql = """
        SELECT s.metric, s.value, avg(p.value), count(p.value), s.problems_scored
        FROM problem_scores AS p
        JOIN model_summary AS s ON s.model = p.model AND s.metric = p.metric
        WHERE s.value IS NOT NULL GROUP BY ALL
    """
    rows = ask(out, sql)
    drawn = {f"pass{sign}{k}" for sign in "@^" for k in (1, 2, 4, 8)}
    assert {row[0] for row in rows} == (drawn if names == ["all"] else set(names) - {"geom-ds@2"})
    for _, value, mean, told, scored in rows:
        assert value == pytest.approx(mean, rel=1e-12, abs=1e-15)
        assert told == scored
    assert snapshot(out).exists()
