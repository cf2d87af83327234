"""Incremental equals full, after any history."""

import os
import shutil
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from conftest import UNSHRUNK, attempts, expand, put, run, tables


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
def test_a_damaged_partial_is_counted_again(lake: Path, out: Path) -> None:
    run(expand([("a", 4, 2)], model="m"), out)
    before = tables(out)
    (path,) = (out / "partials").glob("*/counts-00000.parquet")
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    assert run(lake, out, full=False, metrics=["pass@1"]).files_read == 1
    run(lake, out)
    assert tables(out) == before


@pytest.mark.slow
def test_only_settings_that_change_counts_recount(lake: Path, out: Path) -> None:
    put(lake, attempts(model="m", problem_id="a", score=[0.2, 0.7], passed=[True, False]))
    assert run(lake, out).files_read == 1
    assert run(lake, out, "[uncertainty]\nconfidence = 0.5\n").files_read == 0
    assert run(lake, out, "[policy]\nmax_rejected = 3\n").files_read == 0
    assert run(lake, out, '[policy]\nungraded = "fail"\n').files_read == 1
    assert run(lake, out, full=True).files_read == 1


class History(RuleBasedStateMachine):
    """Add, change, remove, duplicate and rename files; now and then publish."""

    @initialize(rule_name=st.sampled_from(["last", "any-pass"]))
    def start(self, rule_name: str) -> None:
        self.rule_name = rule_name
        self.home = Path(tempfile.mkdtemp())
        self.lake, self.out, self.clock = self.home / "lake", self.home / "out", 0
        put(self.lake, self._frame([("a", 0, True)]), "0.parquet")

    def teardown(self) -> None:
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    def _frame(self, rows: list[tuple[str, int, bool | None]]) -> pl.DataFrame:
        problem, attempt, passed = (list(column) for column in zip(*rows, strict=True))
        frame = attempts(model="m", problem_id=problem, attempt=attempt, passed=passed)
        return frame.with_columns(pl.col("passed").cast(pl.Boolean), pl.col("attempt").cast(pl.Int64))

    rows = st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from([0, 1, 2, 63, 64, 300]), st.sampled_from([True, False, None])
        ),
        min_size=1,
        max_size=6,
    )

    @rule(rows=rows, name=st.integers(0, 6))
    def write(self, rows: list[tuple[str, int, bool | None]], name: int) -> None:
        put(self.lake, self._frame(rows), f"{name}.parquet")

    @rule(name=st.integers(1, 6))
    def remove(self, name: int) -> None:
        (self.lake / f"{name}.parquet").unlink(missing_ok=True)

    @rule(name=st.integers(1, 6))
    def duplicate(self, name: int) -> None:
        shutil.copy(self.lake / "0.parquet", self.lake / f"{name}.parquet")

    @rule(name=st.integers(1, 6))
    def rename(self, name: int) -> None:
        if (self.lake / f"{name}.parquet").exists():
            (self.lake / f"{name}.parquet").rename(self.lake / f"{name + 6}.parquet")

    @rule(shard=st.sampled_from([0.001, 256.0]))
    def publish(self, shard: float) -> None:
        run(self.lake, self.out, self._config(shard), allow_empty=True)

    @invariant()
    def incremental_equals_full(self) -> None:
        if not hasattr(self, "home") or not (self.out / "leaderboard.duckdb").exists():
            return
        # a history may well lose all values of maj@2, which no run publishes unless told
        run(self.lake, self.out, self._config(256.0), allow_empty=True)
        run(self.lake, self.home / "full", self._config(256.0), full=True, allow_empty=True)
        mine, theirs = tables(self.out), tables(self.home / "full")
        assert mine == theirs

    def _config(self, shard: float) -> str:
        names = '[metrics]\nnames = ["pass@1", "maj@2"]\n'
        return f'[duplicates]\nrule = "{self.rule_name}"\n{names}[run]\nshard_mb = {shard}\n'


TestHistory = pytest.mark.slow(History.TestCase)
TestHistory.settings = settings(
    max_examples=int(os.environ.get("HISTORIES", "5")),
    stateful_step_count=6,
    derandomize="HISTORIES" not in os.environ,
    phases=UNSHRUNK,
)
