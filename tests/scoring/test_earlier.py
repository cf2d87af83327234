"""A lake of earlier attempts: prior outcomes of every problem, counted like the lake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from conftest import ask, attempts, expand, put, run, tables
from scorelake import metrics
from scorelake.errors import DataError, ScorelakeError, UsageError
from scorelake.metrics.estimate import evaluate
from scorelake.metrics.summary import aggregate
from scorelake.read.claim import PairRequest
from scorelake.read.recompute import compare_stored

NAMES = ["pass@1", "pass@2", "maj@3", "geom-ds@2", "bayes@N", "avg@N", "max@2"]
NOW = {("a", "one"): (5, 3), ("a", "two"): (5, 4), ("a", "new"): (2, 0), ("b", "one"): (3, 1)}
THEN = {("a", "one"): (4, 1), ("a", "two"): (2, 2), ("b", "one"): (6, 0), ("gone", "one"): (3, 3)}

VALUE = "SELECT value FROM model_summary WHERE model = ? AND metric = ?"


def lake(home: Path, counts: dict[tuple[str, str], tuple[int, int]]) -> Path:
    put(home, pl.concat([expand([(problem, n, c)], model=model) for (model, problem), (n, c) in counts.items()]))
    return home


def config(path: Path, more: str = "") -> str:
    return f'[uncertainty]\nmin_coverage = 0\nprior_lake = "{path}"\n{more}'


@pytest.mark.slow
def test_every_problem_has_its_own_prior(out: Path, tmp_path: Path) -> None:
    then = lake(tmp_path / "then", THEN)
    run(lake(tmp_path / "now", NOW), out, config(then, "prior = [2.0, 0.5]"), metrics=NAMES)
    run(tmp_path / "now", tmp_path / "plain", "[uncertainty]\nmin_coverage = 0", metrics=NAMES)
    for model in "ab":
        mine = [(n, c, *THEN.get(key, (0, 0))) for key, (n, c) in NOW.items() if key[0] == model]
        n, c, n0, c0 = np.array(mine).T
        prior = (2.0 + c0, 0.5 + n0 - c0)
        histogram = csr_array(np.ones((1, n.size)))
        for name in NAMES:
            (estimate,) = evaluate([metrics.parse(name)], n, c, prior)
            want = aggregate([estimate], histogram, min_coverage=0)[0].first()
            sql = "SELECT value, mu, sigma, lo, hi FROM model_summary WHERE model = ? AND metric = ?"
            (got,) = ask(out, sql, model, name)
            numbers = (want.value, want.mu, want.sigma, want.lo, want.hi)
            assert got == tuple(None if np.isnan(x) else pytest.approx(x, rel=1e-12) for x in numbers), (model, name)
            if name != "bayes@N":
                ((value,),) = ask(tmp_path / "plain", VALUE, model, name)
                assert value == got[0], "earlier attempts are no attempts"
    told = ask(out, "SELECT model, problem_id, n, c, prior_n, prior_c FROM problem_counts ORDER BY ALL")
    assert told == sorted((*key, *NOW[key], *THEN.get(key, (0, 0))) for key in NOW)
    about = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE comment = 'carried from the lake'"
    assert ask(out, about) == []
    ((read,),) = ask(out, "SELECT rows_read FROM run")
    assert read == sum(n for n, _ in NOW.values()), "rows of the lake only"


def test_the_same_numbers_traced(out: Path, tmp_path: Path) -> None:
    then = lake(tmp_path / "then", THEN)
    run(lake(tmp_path / "now", NOW), out, config(then), metrics=["bayes@N", "maj@1"])
    sql = "SELECT s.value, avg(p.value) FROM model_summary AS s JOIN problem_scores AS p USING (model, metric)"
    rows = ask(out, f"{sql} GROUP BY s.model, s.metric, s.value")
    assert len(rows) == 4
    for value, mean in rows:
        assert value == pytest.approx(mean, rel=1e-12)


def test_comparing_on_demand_uses_the_prior_too(out: Path, tmp_path: Path) -> None:
    counts = {(model, f"p{i}"): (4, (i + shift) % 5) for shift, model in enumerate("ab") for i in range(25)}
    then = lake(tmp_path / "then", {key: (3, i % 4) for i, key in enumerate(counts)})
    run(lake(tmp_path / "now", counts), out, config(then), metrics=["pass@1", "bayes@N"])
    stored = ask(out, "SELECT model_a, model_b, lift, wins_a FROM comparison WHERE metric = 'bayes@N'")
    for a, b, *numbers in stored:
        ((run_id,),) = ask(out, "SELECT run_id FROM run")
        request = PairRequest(a, b, "bayes@N")
        (again,) = compare_stored(str(out), run_id, request, "bayes@N", {})
        assert [again.row[name] for name in ("lift", "wins_a")] == pytest.approx(numbers, rel=1e-12)
    assert stored


def test_a_rubric(out: Path, tmp_path: Path) -> None:
    """METRICS section 5: prior outcomes [[0, 2], [1, 2]] give 0.575 and 0.084275."""
    for name, outcomes in (("now", [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]), ("then", [[0, 2], [1, 2]])):
        rows = [attempts(model="m", problem_id=str(i), score=row) for i, row in enumerate(outcomes)]
        put(tmp_path / name, pl.concat(rows))
    rubric = "[rubric]\nlevels = [0, 1, 2]\nweights = [0.0, 0.5, 1.0]\n"
    run(tmp_path / "now", out, rubric + config(tmp_path / "then"), metrics=["bayes@N", "avg@N"])
    got = {name: row for name, *row in ask(out, "SELECT metric, mu, sigma FROM model_summary")}
    assert got["bayes@N"] == pytest.approx([0.575, 0.084275], abs=5e-7)
    assert got["avg@N"] == pytest.approx([0.6, 0.147196], abs=5e-7)


@pytest.mark.slow
def test_incremental_is_full(out: Path, tmp_path: Path) -> None:
    now, then = lake(tmp_path / "now", NOW), lake(tmp_path / "then", THEN)
    run(now, out, config(then), metrics=NAMES)
    assert run(now, out, config(then), metrics=NAMES).status == "unchanged"
    put(then, expand([("new", 3, 3)], model="a"), "more.parquet")
    assert run(now, out, config(then), metrics=NAMES).status == "published"
    run(now, tmp_path / "full", config(then), metrics=NAMES)
    ours, full = tables(out), tables(tmp_path / "full")
    same = [name for name in full if name != "change.parquet"]
    assert [ours[name] for name in same] == [full[name] for name in same]


def test_what_is_refused(out: Path, tmp_path: Path) -> None:
    now = lake(tmp_path / "now", NOW)
    put(tmp_path / "scores", attempts(model="a", problem_id=["one"], score=[0.5]))
    with pytest.raises(DataError, match="outcome columns are not those of the lake"):
        run(now, out, config(tmp_path / "scores"))
    with pytest.raises(ScorelakeError, match="nowhere"):
        run(now, out, config(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="exclude each other"):
        run(now, out, config(lake(tmp_path / "then", THEN), 'prior = "empirical"'))
    with pytest.raises(UsageError, match="only where a rubric"):
        run(tmp_path / "scores", out, config(tmp_path / "scores"))
    assert not (out / "leaderboard.duckdb").exists()
