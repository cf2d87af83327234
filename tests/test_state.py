"""Any history of nights, kills, clocks and hands: the board is what its run row says, or nothing changed.

After every step the board equals a fresh run of the lake that its run counted, with the settings it names; or the
step ended with the right exit code and changed nothing. `STATES` is how many histories are tried.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conftest import put, tables
from scorelake import pipeline as module
from scorelake import stages
from scorelake.errors import LockedError, ScorelakeError
from scorelake.pipeline import RunReport, score_lake
from scorelake.publish.publication import collect_garbage, rollback
from scorelake.publish.runs import find_current_run
from scorelake.publish.snapshot import Output
from scorelake.read.session import query, reading
from scorelake.settings import load

SETTINGS = (
    load(**{"metrics.names": ("pass@1",), "duplicates.rule": "last"}),
    load(**{"metrics.names": ("pass@1", "maj@2"), "duplicates.rule": "any-pass", "run.shard_mb": 0.001}),
)
SCORES = "SELECT model, metric, value, problems, attempts FROM model_summary ORDER BY ALL"
NAMES = "SELECT value FROM setting JOIN run USING (settings) WHERE shown AND key = 'metrics.names'"
ATTEMPTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 63, 64, 300]), st.sampled_from([True, False, None])),
    min_size=1,
    max_size=6,
)
"""Problem, attempt and verdict of the rows of a file; other files may have the same attempts."""


PARTS = (
    *("leaderboard.duckdb", "history.parquet", "runs.parquet", "published.json", "scorelake-output.json"),
    *(
        "snapshots/*/manifest.json",
        "snapshots/*/model_summary.parquet",
        "partials/*/shard.json",
        "partials/*/counts*",
    ),
)
"""Files of an output that hands may spoil."""


class Killed(BaseException):
    """The process is gone."""


class State(RuleBasedStateMachine):
    """One output, whatever happens to it."""

    @initialize()
    def start(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.lake, self.out, self.days = self.home / "lake", self.home / "out", 0
        self.counted: dict[str, list[tuple[Any, ...]]] = {}
        """What a fresh run gave, by the run that published the same lake with the same settings."""
        self.ids: list[str] = []
        self.write(0, [("a", 0, True), ("b", 0, False)])

    def teardown(self) -> None:
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    def _score(self, which: int = 0) -> RunReport:
        """The job, by a clock of its own; what a fresh run gives is noted under its name."""
        machine = self

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return datetime.now(tz) + timedelta(days=machine.days)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "datetime", Clock)
            report = score_lake(self.lake, Output(self.out), SETTINGS[which], allow_empty=True)
        if report.status == "published":
            self._note(report.run["run_id"], which)
        return report

    def _note(self, run_id: str, which: int) -> None:
        self.counted[run_id] = self._fresh(which)
        self.ids.append(run_id)

    def _fresh(self, which: int) -> list[tuple[Any, ...]]:
        shutil.rmtree(self.home / "fresh", ignore_errors=True)
        score_lake(self.lake, Output(self.home / "fresh"), SETTINGS[which])
        return self._seen(self.home / "fresh")

    def _seen(self, out: Path) -> list[tuple[Any, ...]]:
        with reading(str(out)) as copy:
            return query(copy, SCORES)[1]

    def _is_shown(self) -> bool:
        return hasattr(self, "home") and bool(find_current_run(Output(self.out)).run_id)

    # --- what happens to the lake, and nights ---------------------------------------------------------------------

    @rule(name=st.integers(0, 3), rows=ATTEMPTS)
    def write(self, name: int, rows: list[tuple[str, int, bool | None]]) -> None:
        kinds = {"problem_id": pl.String, "attempt": pl.Int64, "passed": pl.Boolean}
        frame = pl.DataFrame(rows, kinds, orient="row").with_columns(model=pl.lit("m"))
        put(self.lake, frame, f"{name}.parquet")

    @rule(name=st.integers(1, 3), how=st.sampled_from(["remove", "copy", "rename"]))
    def change_a_file(self, name: int, how: str) -> None:
        path = self.lake / f"{name}.parquet"
        if how == "copy":
            shutil.copy(self.lake / "0.parquet", path)
        elif how == "rename" and path.exists():
            path.rename(self.lake / f"{name % 3 + 1}.parquet")
        elif how == "remove":
            path.unlink(missing_ok=True)

    @rule(days=st.sampled_from([-400, -30, 0, 30]))
    def step_the_clock(self, days: int) -> None:
        self.days = days

    @rule(which=st.integers(0, 1))
    def score(self, which: int) -> None:
        report = self._score(which)
        self._fresh(which)
        assert tables(self.out) == tables(self.home / "fresh"), "a run shows the lake as it is"
        assert find_current_run(Output(self.out)).run_id == report.run["run_id"]
        assert self._score(which).status == "unchanged"

    @rule()
    def slow_score(self) -> None:
        """While one run has listed the lake, another tries to publish."""
        real, tried = stages.listing, list[str]()

        def slow(*arguments: Any, **options: Any) -> Any:
            listed = real(*arguments, **options)
            if not tried:
                tried.append("")
                with pytest.raises(LockedError):
                    score_lake(self.lake, Output(self.out), SETTINGS[1])
            return listed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stages, "listing", slow)
            self._score()

    @rule(
        step=st.sampled_from(["build", "atomic_replace", "write_history", "record_board", "checksum"]),
        after=st.booleans(),
    )
    def killed_score(self, step: str, after: bool) -> None:
        """The process ends before or after a step of the publication."""
        home = "scorelake.publish.leaderboard" if step == "build" else "scorelake.publish.publication"
        before = find_current_run(Output(self.out)).run_id
        with pytest.MonkeyPatch.context() as patch:
            real = getattr(__import__(home, fromlist=[step]), step)

            def deadly(*arguments: Any, **options: Any) -> None:
                if after:
                    real(*arguments, **options)
                raise Killed

            patch.setattr(f"{home}.{step}", deadly)
            patch.setattr("scorelake.publish.publication.remove", lambda *_: None)
            patch.setattr(module, "remove", lambda *_: None)
            with suppress(Killed):
                self._score()
        now = find_current_run(Output(self.out)).run_id
        if now and now != before and now not in self.counted:
            self._note(now, 0)

    @rule(keep=st.integers(1, 2))
    def gc(self, keep: int) -> None:
        if self._is_shown():
            with Output(self.out).held() as out:
                collect_garbage(out, keep)

    @rule(which=st.integers(0, 9))
    def roll_back(self, which: int) -> None:
        if not self.ids or not (self.out / "leaderboard.duckdb").exists():
            return
        run_id = self.ids[which % len(self.ids)]
        before = find_current_run(Output(self.out)).run_id
        code = 0
        try:
            with Output(self.out).held() as out:
                rollback(out, run_id)
        except ScorelakeError as error:
            code = error.exit_code
        assert code in (0, 2, 3)
        assert find_current_run(Output(self.out)).run_id == (before if code else run_id)

    # --- hands ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._is_shown())
    @rule(
        sql=st.sampled_from(["UPDATE model_summary SET value = 0.99", "DELETE FROM history", "DROP VIEW leaderboard"])
    )
    def edit(self, sql: str) -> None:
        with duckdb.connect(str(self.out / "leaderboard.duckdb")) as db:
            db.execute(sql)
        assert find_current_run(Output(self.out)).defect
        self._score()

    @precondition(lambda self: self._is_shown())
    @rule(
        what=st.sampled_from(PARTS),
        how=st.sampled_from(["delete", "empty", "garbage"]),
    )
    def spoil(self, what: str, how: str) -> None:
        for path in self.out.glob(what):
            path.unlink()
            if how != "delete":
                path.write_bytes(b"" if how == "empty" else b"\xff[no")
        self._score()

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def the_board_is_what_its_run_says(self) -> None:
        if not hasattr(self, "home") or not (self.out / "leaderboard.duckdb").is_file():
            return
        shown = find_current_run(Output(self.out))
        if shown.defect:
            return
        assert self._seen(self.out) == self.counted[shown.run_id]
        with reading(str(self.out)) as copy:
            told = query(copy, "SELECT run_id, number, shown FROM run ORDER BY number")[1]
            ((text,),) = query(copy, NAMES)[1]
            names = {row[0] for row in query(copy, "SELECT DISTINCT metric FROM model_summary")[1]}
        assert [row[0] for row in told if row[2]] == [shown.run_id]
        assert len({row[1] for row in told}) == len(told), "no number twice"
        assert set(json.loads(text)) == names


TestState = pytest.mark.slow(State.TestCase)
TestState.settings = settings(
    max_examples=int(os.environ.get("STATES", "6")),
    stateful_step_count=6,
    derandomize="STATES" not in os.environ,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a failure takes minutes of runs
)
