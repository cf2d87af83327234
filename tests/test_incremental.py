"""What a later run reads again; test_state compares it with a full run after any history."""

from pathlib import Path

import pytest

from conftest import ask, attempts, expand, put, run
from scorelake import metrics


@pytest.mark.slow
def test_only_new_and_changed_files_are_read(lake: Path, out: Path) -> None:
    for i in range(5):
        put(lake, expand([(f"p{i}", 4, i % 5)], model="m"), f"{i}.parquet")
    assert run(lake, out).files_read == 5
    put(lake, expand([("p9", 4, 1)], model="m"), "9.parquet")
    assert run(lake, out).files_read == 1
    put(lake, expand([("p3", 8, 1)], model="m"), "3.parquet")
    (lake / "1.parquet").unlink()
    report = run(lake, out)
    assert (report.files_read, report.files_reused, report.problems) == (1, 4, 5)


def test_nothing_new_changes_nothing(lake: Path, out: Path) -> None:
    first = run(expand([("a", 4, 2)], model="m"), out)
    before = (out / "leaderboard.duckdb").stat()
    second = run(lake, out)
    after = (out / "leaderboard.duckdb").stat()
    assert (first.status, second.status) == ("published", "unchanged")
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert len(list((out / "snapshots").iterdir())) == 1


@pytest.mark.slow
def test_only_settings_that_change_counts_recount(lake: Path, out: Path) -> None:
    put(lake, attempts(model="m", problem_id="a", score=[0.2, 0.7] * 10, passed=[True] * 7 + [False] * 13))
    assert run(lake, out, metrics=["pass@1"]).files_read == 1
    assert run(lake, out, metrics=["pass@13"]).files_read == 0, "any k follows from the counts"
    assert ask(out, "SELECT metric, value FROM model_summary") == [
        ("pass@13", metrics.summarize("pass@13", 20, [7]).value)
    ]
    assert run(lake, out, "[uncertainty]\nconfidence = 0.5\n").files_read == 0
    assert run(lake, out, "[policy]\nmax_rejected = 3\n").files_read == 0
    assert run(lake, out, '[policy]\nungraded = "fail"\n').files_read == 1
    assert run(lake, out, full=True).files_read == 1
