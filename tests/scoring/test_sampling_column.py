"""Whether the number of attempts depends on their outcomes: the column `sampling` and a warning."""

from pathlib import Path

import numpy as np
import polars as pl

from conftest import ask, expand, run
from scorelake.read.report import report as markdown


def _stopped(rng: np.random.Generator, problems: int, cap: int) -> list[tuple[str, int, int]]:
    """Problems that are attempted until the first pass, at most `cap` times."""
    first = rng.geometric(rng.beta(0.3, 0.7, problems).clip(1e-9))
    return [(f"p{i}", int(min(n, cap)), int(n <= cap)) for i, n in enumerate(first)]


def test_sampling_that_stops_at_a_pass_is_found(out: Path) -> None:
    rng = np.random.default_rng(2)
    n = rng.integers(4, 9, 60).tolist()
    frames = [
        expand(_stopped(rng, 60, 16), model="retried"),
        expand([(f"p{i}", 8, int(rng.binomial(8, 0.4))) for i in range(60)], model="even"),
        expand([(f"p{i}", each, int(rng.binomial(each, 0.4))) for i, each in enumerate(n)], model="ragged"),
    ]
    report = run(pl.concat(frames), out, metrics=["pass@1", "pass@2", "stopped@1"])
    labels = dict(ask(out, "SELECT DISTINCT model, sampling FROM model_summary"))
    assert labels == {"retried": "adaptive", "even": "fixed", "ragged": "unknown"}
    (warning,) = [text for text in report.warnings if "stop after a pass" in text]
    assert warning.startswith("default: attempts of retried seem to stop")
    corrected = dict(ask(out, "SELECT model, value FROM model_summary WHERE metric = 'stopped@1'"))
    assert abs(corrected["retried"] - 0.3) < 0.1
    assert corrected["even"] is None, "problems with two passes do not follow the rule"


def test_no_headline_names_a_leader_whose_attempts_stop_after_a_pass(out: Path) -> None:
    """Its score is biased upwards: .40 where the success rate is .30."""
    rng = np.random.default_rng(1)
    fixed = [(f"p{i}", 4, int(rng.binomial(4, rng.beta(0.3, 0.9)))) for i in range(60)]
    frames = [expand(_stopped(rng, 60, 16), model="retried"), expand(fixed, model="fixed")]
    run(pl.concat(frames), out, metrics=["pass@1"])
    text = markdown(out, None, None)
    assert "retried has the highest score" in text
    assert "no leader is named" in text
    assert "leads" not in text


def test_ungraded_problems_are_not_counted_as_attempts(out: Path) -> None:
    graded = expand([(f"p{i}", 4, i % 5) for i in range(30)], model="m")
    ungraded = expand([("q", 4, 0)], model="m").with_columns(passed=pl.lit(None, pl.Boolean))
    assert run(pl.concat([graded, ungraded]), out, metrics=["pass@1"]).warnings == ()
    assert ask(out, "SELECT sampling FROM model_summary") == [("fixed",)]
