"""Which metrics: at which k those end that nobody named."""

from pathlib import Path

import pytest

from conftest import ask, attempts, run
from scorelake import metrics
from scorelake.errors import MetricError
from scorelake.scoring.choose import MAX_DEFAULT_K, MAX_DEFAULT_VOTE_K


@pytest.mark.slow
def test_default_metrics_stop_at_a_k_that_the_run_names(lake: Path, out: Path, tmp_path: Path) -> None:
    n = 2 * MAX_DEFAULT_K
    big = attempts(
        model="m", problem_id="big", passed=[i % 3 == 0 for i in range(n)], answer=(["a", "b", "c"] * n)[:n]
    )
    told = run(big, out).warnings
    assert told == (
        "metrics stop at k = 1,024, though a problem has 2,048 attempts; --metrics names a larger k",
        "votes stop at k = 256, though a problem has 2,048 attempts; --metrics names a larger k",
    )
    largest = "SELECT max(k) FROM model_summary WHERE (family = 'vote@k') = ?"
    assert ask(out, largest, False) == [(MAX_DEFAULT_K,)]
    assert ask(out, largest, True) == [(MAX_DEFAULT_VOTE_K,)]
    named = run(lake, tmp_path / "named", metrics=["pass@2048"])
    assert named.warnings == ()
    assert ask(tmp_path / "named", "SELECT value FROM model_summary") == [(1.0,)]


@pytest.mark.parametrize("name", ["g-pass@1048577_0.5", "vote@2000000", "pass@4611686018427387905"])
def test_k_beyond_all_lakes(name: str) -> None:
    with pytest.raises(MetricError, match="k must be at most"):
        metrics.parse(name)
    assert metrics.parse("max@1000000000000").k == 10**12
