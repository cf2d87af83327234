"""A leaderboard to ask: tables as frames, comparisons in words, drawings, all of one published run."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from scorelake.errors import UsageError
from scorelake.notebook import arguments, scoring
from scorelake.read import session
from scorelake.read.board import facts, opened
from scorelake.read.claim import PairRequest, current_run_id
from scorelake.read.names import check_names
from scorelake.read.verdict import verdict
from scorelake.text import escape_control_lines, plural

if TYPE_CHECKING:
    import polars as pl

    from scorelake.notebook.comparison import Comparison
    from scorelake.notebook.frames import Entries, Frame, Matrices
    from scorelake.notebook.plots import Plots
    from scorelake.notebook.scoring import Columns, Config, Options
    from scorelake.run import Report

_TABLES = """
SELECT table_name AS name, comment AS about FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal
UNION ALL
SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
ORDER BY name
"""
_ROWS = """
SELECT * FROM {view} WHERE metric = $metric AND ($benchmark IS NULL OR benchmark = $benchmark) {more}
ORDER BY {order}
"""
_CURVE = """
SELECT * FROM curve WHERE model = $model AND ($benchmark IS NULL OR benchmark = $benchmark)
ORDER BY benchmark, protocol, family, k
"""


class Board:
    """The published tables of one run, as `scorelake.scoring` and `scorelake.open` give them.

    A board stays with its run, whatever is published meanwhile; open it again to see a later one. (That of
    `score(..., out=...)` is opened with its first question; if another run has been published by then, it says so.)
    It reads a copy of its own, so it locks nothing and is locked by nothing. That copy, and everything that was
    scored without `out`, is removed when the board is closed (`close()`, or `with`), or when nobody holds it any
    more.

    In a notebook a board shows who leads, and its leaderboard drawn.

    >>> board = sl.score("fixtures/lake", metrics=["pass@1", "pass@4", "pass^4"])
    >>> board
    Board: 4 models, 60 problems, 3 metrics
      2,858 attempts = 2,804 graded + 54 ungraded + 0 duplicate + 0 rejected
      model-00 leads synth at pass@1: 57.4% (49.0 to 65.5). The other three models are behind.
    """

    def __init__(self, out: str, report: Report | None = None, held: ExitStack | None = None) -> None:
        """Over the output at `out`; `held` keeps an output that is this board's alone."""
        self.out = out
        """Where the output is."""
        self.report = report
        """What the run did, if this board comes from `score`: rows, files, warnings."""
        self._alone = held is not None
        self._held = held or ExitStack()
        self._copy: Path | None = None
        self._end = weakref.finalize(self, self._held.close)

    # --- tables

    def leaderboard(
        self, metric: str | None = None, benchmark: str | None = None, by: str | None = None
    ) -> pl.DataFrame:
        """Models ranked by a metric, with intervals, ranges of ranks, and a reason where there is no rank.

        metric: any of its names; by default pass@1, or avg@N where there is no pass/fail.
        benchmark: only this one. by: `subject`, or a column that was scored with `by`: rows per value of it.

        >>> board.leaderboard("pass@4").select("rank", "model", "value", "lo", "hi")
        shape: (4, 5)
        ┌──────┬──────────┬──────────┬──────────┬──────────┐
        │ rank ┆ model    ┆ value    ┆ lo       ┆ hi       │
        │ ---  ┆ ---      ┆ ---      ┆ ---      ┆ ---      │
        │ i64  ┆ str      ┆ f64      ┆ f64      ┆ f64      │
        ╞══════╪══════════╪══════════╪══════════╪══════════╡
        │ 1    ┆ model-00 ┆ 0.843348 ┆ 0.75767  ┆ 0.908021 │
        │ 2    ┆ model-01 ┆ 0.739269 ┆ 0.637499 ┆ 0.825753 │
        │ 3    ┆ model-02 ┆ 0.554108 ┆ 0.451475 ┆ 0.653518 │
        │ 4    ┆ model-03 ┆ 0.480386 ┆ 0.373574 ┆ 0.588454 │
        └──────┴──────────┴──────────┴──────────┴──────────┘
        """
        order = "benchmark, protocol, rank NULLS LAST, value DESC NULLS LAST, model"
        parts = {"view": "leaderboard", "more": "", "order": order}
        with opened(self.folder) as read:
            known = facts(read)
            asked: dict[str, Any] = {"metric": known.metric(metric), "benchmark": benchmark}
            check_names("benchmark", [board.benchmark for board in known.boards], [benchmark] if benchmark else [])
            if by == "subject":
                parts |= {"view": "subject_leaderboard", "order": f"subject, {order}"}
            elif by is not None:
                slices = [name for (name,) in read.rows("SELECT DISTINCT slice FROM slice_summary ORDER BY ALL")]
                check_names("slice", ["subject", *slices], [by])
                asked["slice"] = by
                parts |= {"view": "slice_summary", "more": "AND slice = $slice"}
                parts["order"] = "benchmark, protocol, slice_value, value DESC NULLS LAST, model"
        return session.frame(self.folder, _ROWS.format(**parts), asked)

    def curve(self, model: str, benchmark: str | None = None) -> pl.DataFrame:
        """pass@k and pass^k of a model for k = 1, 2, 3, ... up to its attempts, with intervals and coverage.

        >>> board.curve("model-00").filter(k=8).select("family", "k", "value", "coverage")
        shape: (2, 4)
        ┌────────┬─────┬──────────┬──────────┐
        │ family ┆ k   ┆ value    ┆ coverage │
        │ ---    ┆ --- ┆ ---      ┆ ---      │
        │ str    ┆ i64 ┆ f64      ┆ f64      │
        ╞════════╪═════╪══════════╪══════════╡
        │ pass@k ┆ 8   ┆ 0.911672 ┆ 0.983333 │
        │ pass^k ┆ 8   ┆ 0.125538 ┆ 0.983333 │
        └────────┴─────┴──────────┴──────────┘
        """
        names = self.sql("SELECT DISTINCT model, benchmark FROM model_summary ORDER BY ALL")
        check_names("model", names["model"].unique(maintain_order=True).to_list(), [model])
        check_names("benchmark", names["benchmark"].unique().sort().to_list(), [benchmark] if benchmark else [])
        return session.frame(self.folder, _CURVE, {"model": model, "benchmark": benchmark})

    def table(self, name: str) -> pl.DataFrame:
        """Any table or view of the output by its name; `tables` lists them.

        >>> board.table("problem_counts").select("model", "problem_id", "n", "c").head(2).rows()
        [('model-00', 'problem-000000', 12, 7), ('model-00', 'problem-000001', 14, 11)]
        """
        check_names("table", self.tables["name"].to_list(), [name])
        return session.frame(self.folder, f'SELECT * FROM "{name}"', problems=True)

    @property
    def tables(self) -> pl.DataFrame:
        """Names of all tables and views, and what is in each.

        >>> board.tables["name"].to_list()[:3]
        ['budget', 'change', 'comparison']
        """
        return session.frame(self.folder, _TABLES)

    def sql(self, query: str, *parameters: Any) -> pl.DataFrame:
        """The rows of one SELECT over the tables, in a read-only session that reaches nothing else.

        Parameters stand for ? in the query. The macros `pass_at_k(n, c, k)` and `pass_hat_k(n, c, k)` are there.

        >>> board.sql("SELECT model, count(*) FROM problem_counts WHERE c > ? GROUP BY ALL ORDER BY ALL", 0).rows()
        [('model-00', 56), ('model-01', 52), ('model-02', 44), ('model-03', 38)]
        """
        return session.frame(self.folder, query, parameters)

    def rows(self, query: str, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The same as plain Python: names of columns, and rows, or the first of them.

        >>> board.rows("SELECT DISTINCT metric FROM model_summary ORDER BY ALL", limit=2)
        (['metric'], [('pass@1',), ('pass@4',)])
        """
        return session.query(self.folder, query, limit=limit)

    # --- comparisons and drawings

    def compare(
        self,
        model_a: str,
        model_b: str,
        metric: str = "pass@1",
        benchmark: str | None = None,
        protocol: str | Sequence[str] = (),
        run: str | Sequence[str] = (),
    ) -> Comparison:
        """What the problems that both models attempted show: the lift of B over A, and whether it may be claimed.

        Any metric that the attempts allow, also one that no table has. protocol: only this one, or two, of A and of
        B. run: A as it was in this run, or two, of A and of B; only for an output that is kept. A run that is not
        named is that of this board.

        >>> board.compare("model-02", "model-01", metric="pass@4")
        model-01 against model-02 (synth, pass@4): improvement
          problems       60, attempted by both under the same protocol
          lift           +0.1852, 95% interval +0.1189 to +0.2576 (paired bootstrap over problems, 10,000 resamples)
          wins           model-01 ahead on 40, model-02 on 4, equal on 16
          flip test      p = 1.35e-05 one-sided, 2.71e-05 two-sided (signs of the differences of problems flipped)
          q              4.06e-05 (Benjamini-Hochberg), 8.12e-05 by Holm, over all 6 pairs of synth, pass@4
          shows          model-01 scores higher on problems like these
          does not show  how either does on other kinds of problems, or under another protocol
          detectable     a true lift of 0.0991 is found 80% of the time with 60 such problems
        """
        from scorelake.notebook.comparison import compare  # noqa: PLC0415

        of, was = ((given,) if isinstance(given, str) else tuple(given) for given in (protocol, run))
        asked = PairRequest(model_a, model_b, metric, benchmark, of, was)
        return compare(self.folder, self.out, asked)

    @property
    def plot(self) -> Plots:
        """Drawings, the same as on the page: `plot.leaderboard()`, `plot.curve(model)`, `plot.matrix()`."""
        from scorelake.notebook.plots import Plots  # noqa: PLC0415

        return Plots(self.folder)

    # --- what it is, and its end

    @property
    def folder(self) -> Path:
        """Where its tables are read: a copy, or the output itself where nobody else has it."""
        if not self._end.alive:
            raise UsageError("this board is closed", hint="open it again with scorelake.open(...)")
        if self._copy is None:
            self._copy = Path(self.out) if self._alone else self._own()
        return self._copy

    def _own(self) -> Path:
        """A copy of the output, which shows the run of this board, or none is made."""
        with ExitStack() as held:
            copy = held.enter_context(session.reading(self.out))
            mine = self.report.run["run_id"] if self.report else None
            if mine and mine != (shown := current_run_id(copy)):
                raise UsageError(
                    f"another run has been published here meanwhile: {shown}; this board is of run {mine}",
                    where=self.out,
                    hint="scorelake.open(...) shows what is published now",
                )
            self._held.push(held.pop_all())
        return copy

    def close(self) -> None:
        """Remove the copy, and what was scored without `out`. An output that was asked for stays."""
        self._end()

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._end.alive:
            return "Board: closed"
        return "\n  ".join(self._told())

    def _repr_html_(self) -> str:
        head, *lines = self._told()
        told = Markup("<br>").join(lines)
        drawn = Markup(self.plot.leaderboard(top=20).svg)
        return str(Markup("<div><strong>{}</strong><br>{}{}</div>").format(head, told, drawn))

    def _told(self) -> list[str]:
        """Size, rows, warnings, and who leads each benchmark."""
        with opened(self.folder) as read:
            known = facts(read)
            distinct = "SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)"
            ((problems,),) = read.rows(distinct)
        run = known.run
        parts = [(run[key], word) for key, word in _ACCOUNT.items()]
        size = [plural(len(known.label), "model"), plural(problems, "problem"), plural(len(known.families), "metric")]
        said = [
            f"warning: {escape_control_lines(warning)}" for warning in (self.report.warnings if self.report else ())
        ]
        name = known.metric(None)
        leads = [
            verdict(known, board, name if name in board.lines else next(iter(board.lines)))
            for board in known.boards[:_FEW]
        ]
        more = len(known.boards) - _FEW
        return [
            f"Board: {', '.join(size)}",
            f"{run['rows_read']:,} attempts = {' + '.join(f'{number:,} {word}' for number, word in parts)}",
            *said,
            *leads,
            *([f"and {more:,} more benchmarks"] if more > 0 else []),
        ]


def scored(
    attempts: str | PathLike[str] | Frame | Matrices,
    metrics: str | Sequence[str],
    columns: Columns | None,
    by: str | Sequence[str],
    config: Config | None,
    out: str | PathLike[str] | None,
    entries: Entries | None,
    options: Options,
) -> Board:
    """The board of a job; without `out` it holds the only output, in a folder that goes with it."""
    more: dict[str, Any] = dict(options)
    arguments.options(more, scoring.Options.__annotations__, _ARGUMENTS)
    lake = fspath(attempts) if isinstance(attempts, str | PathLike) else None
    to = None if out is None else arguments.place(out)
    memory, engine = more.pop("memory", None), more.get("engine", "local")
    settings = scoring.settings_for(lake, config, metrics, columns, by, memory, engine)
    with ExitStack() as held:
        where = to or str(Path(held.enter_context(TemporaryDirectory(prefix="scorelake-"))) / "out")
        report = scoring.scored(attempts, where, settings, entries, **more)
        return Board(where, report, held.pop_all() if to is None else None)


def published(out: str | PathLike[str]) -> Board:
    """The board at an output; that there is none is told now."""
    board = Board(arguments.place(out))
    assert board.folder
    return board


_ACCOUNT = {"graded": "graded", "ungraded": "ungraded", "duplicates": "duplicate", "rejected": "rejected"}
_ARGUMENTS = ("metrics", "columns", "by", "config", "out", "entries")
"""Of score(), beside its options."""
_FEW = 5
"""Benchmarks whose leader is told."""
