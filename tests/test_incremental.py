"""What a later run reads again; test_state compares it with a full run after any history."""

from pathlib import Path

import pytest

from conftest import attempts, expand, put, run


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


@pytest.mark.slow
def test_only_settings_that_change_counts_recount(lake: Path, out: Path) -> None:
    put(lake, attempts(model="m", problem_id="a", score=[0.2, 0.7], passed=[True, False]))
    assert run(lake, out).files_read == 1
    assert run(lake, out, "[uncertainty]\nconfidence = 0.5\n").files_read == 0
    assert run(lake, out, "[policy]\nmax_rejected = 3\n").files_read == 0
    assert run(lake, out, '[policy]\nungraded = "fail"\n').files_read == 1
    assert run(lake, out, full=True).files_read == 1
