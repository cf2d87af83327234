"""Quality gates: each fails alone, with its numbers, and leaves what is published."""

from pathlib import Path

import polars as pl
import pytest

from conftest import ask, attempts, expand, put, run
from scorelake.errors import DataError, UsageError
from scorelake.read.report import report
from scorelake.read.session import reading


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ("max_ungraded_share = 0.1", "max_ungraded_share: 2 of 10 is 0.2, allowed 0.1"),
        ("max_rejected_share = 0.05", "max_rejected_share: 1 of 10 is 0.1, allowed 0.05"),
        ("max_quarantined_share = 0.3", "max_quarantined_share: 1 of 2 is 0.5, allowed 0.3"),
        ("min_model_problems = 3", "min_model_problems: default / m has 2, needed 3"),
        ("min_model_attempts = 8", "min_model_attempts: default / m has 7, needed 8"),
    ],
)
def test_each_gate(lake: Path, out: Path, gate: str, says: str) -> None:
    passed = [1, 0, 1, None, None, 1, 1, 1, 1, 7]
    put(lake, attempts(model="m", problem_id=["a"] * 5 + ["b"] * 5, passed=passed))
    (lake / "broken.parquet").write_text("no")
    config = f"[policy]\nmax_rejected = 5\n[gates]\n{gate}\n"
    with pytest.raises(DataError) as error:
        run(lake, out, config, allow_quarantine=True)
    assert says in str(error.value)
    assert not (out / "leaderboard.duckdb").exists()
    run(lake, out, "[policy]\nmax_rejected = 5\n", allow_quarantine=True)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["pass@1", " PASS@1 "])
def test_a_fall(lake: Path, out: Path, metric: str) -> None:
    config = f'[gates]\nmax_fall = 0.1\nmetric = "{metric}"\n'
    put(lake, expand([("a", 100, 90), ("b", 100, 90), ("c", 100, 90)], model="m"))
    put(lake, expand([("a", 1000, 500)], model="n"), "n.parquet")
    run(lake, out, config)
    put(lake, expand([("a", 100, 70), ("b", 100, 71), ("c", 100, 69)], model="m"))
    said = r"max_fall: default / m fell from 0.9000 to 0.7000 \(-0.2000, -0.\d+ to -0.1\d+\) in pass@1, allowed 0.1"
    with pytest.raises(DataError, match=said):
        run(lake, out, config)
    assert ask(out, "SELECT value FROM model_summary WHERE metric = 'pass@1' AND model = 'm'") == [(0.9,)]
    (lake / "part-0.parquet").unlink()
    with pytest.raises(DataError, match=r"default / m fell from 0\.9000 to nothing"):
        run(lake, out, config)
    put(lake, expand([("a", 100, 84), ("b", 100, 76), ("c", 100, 80)], model="m"))
    assert run(lake, out, config).status == "published"
    history = ask(out, "SELECT round(value, 9) FROM history WHERE (metric, model) = ('pass@1', 'm') ORDER BY started")
    assert history == [(0.9,), (0.8,)]


def test_rules_name_the_models_and_the_evidence(lake: Path, out: Path) -> None:
    for model, c in (("base", 3), ("new-1", 3), ("new-2", 2)):
        put(lake, expand([(f"p{i}", 4, c) for i in range(60)], model=model), f"{model}.parquet")
    rule = '[[gates.rule]]\ncandidate = "{}"\nbase = "{}"\nmargin = {}\nmetric = "PASS@1"\n'
    said = (
        r"rule 1 \(candidate new-\*\): default / new-2 is worse than base: lift \(-0.2500, .* in pass@1, allowed 0.1"
    )
    with pytest.raises(DataError, match=said):
        run(lake, out, rule.format("new-*", "base", 0.1))
    with pytest.raises(UsageError, match="no comparison with bse in pass@1"):
        run(lake, out, rule.format("*", "bse", 0.1))
    run(lake, out, rule.format("new-*", "base", 0.3) + rule.format("new-1", "base", 0.1))
    put(lake, expand([(f"p{i}", 4, 0) for i in range(60)], model="new-1"), "new-1.parquet")
    with pytest.raises(
        DataError, match=r"rule 1 \(candidate \*\): default / new-1 fell from 0.7500 to 0.0000 \(-0.75"
    ):
        run(lake, out, rule.format("*", "previous", 0.02))
    with pytest.raises(UsageError, match=r"rule 1: no model is called nwe-\*"):
        run(lake, out, rule.format("nwe-*", "previous", 0.1))
    both = rule.format("b*", "previous", 0.02) + rule.format("new-2", "base", 0.251)
    assert run(lake, out, both).status == "published"
    verdicts = ask(out, "SELECT rule, model, base, margin, verdict, lift, lo <= lift, lift <= hi, reason FROM gate")
    assert verdicts == [
        ("rule 1", "base", "previous", 0.02, "pass", 0.0, True, True, None),
        ("rule 2", "new-2", "base", 0.251, "pass", -0.25, True, True, None),
    ]
    with reading(str(out)) as folder:
        text = report(folder)
    assert "| rule 2 | default | new-2 | base | pass@1 | pass | -0.2500 | -0.2500 | -0.2510 |" in text


@pytest.mark.parametrize("name", ["pass@7", "pass@4", "avg@N"])
def test_a_fall_of_what_is_not_computed(lake: Path, out: Path, name: str) -> None:
    put(lake, expand([("a", 2, 1)], model="m"))
    config = f'[metrics]\nnames = ["pass@1", "pass@4"]\n[gates]\nmax_fall = 0.1\nmetric = "{name}"\n'
    with pytest.raises(UsageError, match=rf"{name} is not computed") as told:
        run(lake, out, config)
    assert "computed are: pass@1" in str(told.value)
    assert not (out / "leaderboard.duckdb").exists()


def test_a_fall_of_a_metric_that_means_nothing_is_refused_at_the_start(lake: Path, out: Path) -> None:
    with pytest.raises(UsageError, match="zz"):  # before it is seen that there is no lake
        run(lake, out, '[gates]\nmetric = "zz"\nmax_fall = 0.1\n')
    with pytest.raises(UsageError, match="no score per problem"):
        run(lake, out, '[gates]\nmetric = "geom-ds@2"\nmax_fall = 0.1\n')


def test_ids_that_collide_ask_for_the_missing_column_first(lake: Path, out: Path) -> None:
    """Problem 1 of algebra and problem 1 of logic: no rule about duplicates mends that."""
    frame = attempts(
        model="m", problem_id=[1, 1], attempt=[0, 0], passed=[True, False], category=["algebra", "logic"]
    )
    put(lake, frame)
    with pytest.raises(DataError) as error:
        run(lake, out)
    first = (
        "problem ids that are only unique within a benchmark or subject need that column first: [columns] subject ="
    )
    assert (error.value.hint or "").startswith(first)
    run(lake, out, '[columns]\nsubject = "category"')
    put(lake, frame.with_columns(category=pl.lit("algebra"), benchmark=pl.lit("b")))
    with pytest.raises(DataError) as error:
        run(lake, out, '[columns]\nsubject = "category"')
    assert (error.value.hint or "").startswith("choose which one counts: ")
