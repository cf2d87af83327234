"""A published leaderboard in Python: tables as data frames, comparisons and charts, all of one run."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from scorelake.errors import UsageError
from scorelake.notebook.plots import Plots, as_tuple, open_facts
from scorelake.read import session
from scorelake.read.board import current_run_id
from scorelake.read.claim import PairRequest, PairResult, compare_models
from scorelake.read.format import check_names
from scorelake.read.sentences import verdict
from scorelake.text import escape_control_lines, plural

if TYPE_CHECKING:
    import polars as pl

    from scorelake.pipeline import RunReport

BENCHMARKS = 5
"""A board prints the verdict of this many benchmarks."""
_TABLES = """
SELECT table_name AS name, table_comment AS about FROM information_schema.tables
WHERE table_schema = 'main' ORDER BY name
"""
_ROWS = """
SELECT {first}, * EXCLUDE ({first}) FROM {view}
WHERE metric = $metric AND ($benchmark IS NULL OR benchmark = $benchmark) ORDER BY {order}
"""
_ORDER = "benchmark, protocol, rank NULLS LAST, value DESC NULLS LAST, model"
_CURVE = """
SELECT * FROM curve WHERE list_contains($models, model) AND ($benchmark IS NULL OR benchmark = $benchmark)
ORDER BY benchmark, protocol, list_position($models, model), family, k
"""
_PROBLEMS = "SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)"
_PAIR = {
    **dict.fromkeys(("benchmark", "protocol", "metric", "model_a", "model_b"), str),
    **{"problems": int, "lift": float, "lo": float, "hi": float, "wins_a": int, "wins_b": int, "ties": int},
    **dict.fromkeys(("p_one_sided", "p_two_sided", "p_holm", "q"), float),
    "claim": str,
}
"""Columns of `Comparison.frame`."""
_STYLE = "border-left: 3px solid #0b5a94; padding-left: .8em; margin: .5em 0"
_ROW = Markup('<tr><th style="text-align: left">{}</th><td style="text-align: left">{}</td></tr>')


class Board(AbstractContextManager["Board"]):
    """The published tables of one run, returned by `scorelake.score` and `scorelake.open`.

    A Board is a snapshot of one run; later runs do not change it. It reads its own copy and takes no locks. The copy,
    and an output scored without `out`, are removed by `close()`, at the end of a `with` block, or when the board is
    garbage collected. A notebook displays the verdict and a chart of the leaderboard. Methods raise `UsageError` with
    the closest names if a model, metric, benchmark or table does not exist, and if a query fails.

    Attributes
    ----------
    out : str
        Location of the output.
    report : RunReport or None
        Rows, files and warnings of the run, if the board comes from `score`.

    Examples
    --------
    >>> board = sl.score("fixtures/lake", metrics=["pass@1", "pass@4", "pass^4"])
    >>> board
    Board: 4 models, 60 problems, 3 metrics
      2,858 attempts = 2,804 graded + 54 ungraded + 0 duplicate + 0 rejected
      model-00 leads synth at pass@1: 57.4% (49.0 to 65.5). The other three models are behind.
    """

    def __init__(self, out: str, report: RunReport | None = None, temporary: ExitStack | None = None) -> None:
        """Create a board of the output at `out`; with `temporary` the output belongs to this board."""
        self.out = out
        self.report = report
        self._resources = temporary or ExitStack()
        self._folder = Path(out) if temporary else None
        self._finalizer = weakref.finalize(self, self._resources.close)

    def leaderboard(
        self, metric: str | None = None, benchmark: str | None = None, by: str | None = None
    ) -> pl.DataFrame:
        """Return models ranked by a metric; the first columns are model, value, interval (lo, hi) and rank.

        Parameters
        ----------
        metric : str, optional
            By default pass@1, or avg@N without pass/fail.
        benchmark : str, optional
            By default all benchmarks.
        by : str, optional
            `subject`, or a column that was scored with `by`: rows per value of it.

        Examples
        --------
        >>> board.leaderboard("pass@4").select("model", pl.col("value", "lo", "hi").round(3), "rank").rows()[:2]
        [('model-00', 0.843, 0.758, 0.908, 1), ('model-01', 0.739, 0.637, 0.826, 2)]
        """
        view, first, order = "leaderboard", "model, value, lo, hi, rank", _ORDER
        with open_facts(self.folder, metric, benchmark) as (reader, _, name):
            parameters = {"metric": name, "benchmark": benchmark}
            if by == "subject":
                view, first, order = "subject_leaderboard", f"subject, {first}", f"subject, {order}"
            elif by is not None:
                check_names("slice", ["subject", *reader.names("slice", "slice_summary")], [by])
                parameters["slice"] = by
                view, first = "(FROM slice_summary WHERE slice = $slice)", "slice_value, model, value, lo, hi"
                order = order.replace("rank NULLS LAST", "slice_value")
        return session.frame(self.folder, _ROWS.format(view=view, first=first, order=order), parameters)

    def curve(self, models: str | Sequence[str], benchmark: str | None = None) -> pl.DataFrame:
        """Return pass@k and pass^k of one or several models for k = 1, 2, 3, ..., with interval and share scored.

        Parameters
        ----------
        models : str or sequence of str
            Names of models.
        benchmark : str, optional
            By default all benchmarks.

        Examples
        --------
        >>> board.curve("model-00").filter(k=8).select("family", "k", pl.col("value", "scored").round(3)).rows()
        [('pass@k', 8, 0.912, 0.983), ('pass^k', 8, 0.126, 0.983)]
        """
        names = list(as_tuple(models))
        with open_facts(self.folder, benchmark=benchmark) as (_, output, _):
            check_names("model", list(output.label), names)
        return session.frame(self.folder, _CURVE, {"models": names, "benchmark": benchmark})

    def table(self, name: str) -> pl.DataFrame:
        """Return a table or view of the output.

        Parameters
        ----------
        name : str
            One of the names in `tables`.

        Examples
        --------
        >>> board.table("problem_counts").select("model", "problem_id", "n", "c").head(2).rows()
        [('model-00', 'problem-000000', 12, 7), ('model-00', 'problem-000001', 14, 11)]
        """
        check_names("table", self.tables["name"].to_list(), [name])
        return session.frame(self.folder, f'SELECT * FROM "{name}"', problems=True)

    @property
    def tables(self) -> pl.DataFrame:
        """List all tables and views in the columns name and about.

        Examples
        --------
        >>> board.tables["name"].to_list()[:3]
        ['adjusted', 'best_step', 'budget']
        """
        return session.frame(self.folder, _TABLES)

    def sql(self, query: str, *parameters: Any) -> pl.DataFrame:
        """Run one SELECT over the tables in a read-only session without access to files or the network.

        Parameters
        ----------
        query : str
            A single statement; the macros `pass_at_k(n, c, k)` and `pass_hat_k(n, c, k)` are defined.
        *parameters
            Values for ? in the query.

        Examples
        --------
        >>> board.sql("SELECT model, count(*) FROM problem_counts WHERE c > ? GROUP BY ALL ORDER BY ALL", 0).rows()
        [('model-00', 56), ('model-01', 52), ('model-02', 44), ('model-03', 38)]
        """
        return session.frame(self.folder, query, parameters)

    def compare(
        self,
        model_a: str,
        model_b: str,
        metric: str | None = None,
        benchmark: str | None = None,
        protocol: str | Sequence[str] = (),
        run: str | Sequence[str] = (),
    ) -> Comparison:
        """Compare two models on the problems both attempted.

        Parameters
        ----------
        model_a, model_b : str
            The lift is that of B over A.
        metric : str, optional
            Any metric that the attempts allow, published or not; by default pass@1, without pass/fail avg@N.
        benchmark : str, optional
            By default all benchmarks.
        protocol : str or sequence of str
            The protocol of both models, or one for A and one for B.
        run : str or sequence of str
            The run of A, or one for A and one for B; by default the run of this board.

        Examples
        --------
        >>> board.compare("model-02", "model-01", metric="pass@4")
        model-01 against model-02 (synth, pass@4): improvement
          problems       60, attempted by both under the same protocol
          lift           +0.1852, 95% interval +0.1189 to +0.2576 (paired bootstrap over problems, 10,000 resamples)
          ...
        """
        pair = PairRequest(model_a, model_b, metric, benchmark, as_tuple(protocol), as_tuple(run))
        return Comparison(tuple(compare_models(self.folder, self.out, pair)))

    def series(self, run: str) -> pl.DataFrame:
        """Return the scores of a run at each of its steps, with interval, band and trend.

        Parameters
        ----------
        run : str
            The name of its points without the step.

        Examples
        --------
        >>> rollouts = {"model": "rl", "step": [0, 0, 10, 10], "problem_id": ["a", "b"] * 2, "passed": [0, 0, 1, 0]}
        >>> steps = sl.score(pl.DataFrame(rollouts), columns={"step": "step"}, metrics="pass@1")
        >>> steps.series("rl").select("step", "value").rows()
        [(0, 0.0), (10, 0.5)]
        """
        points = self.table("series")
        check_names("series", points["model"].unique().sort(), [run])
        return points.filter(model=run)

    def costs(self, measure: str | None = None) -> pl.DataFrame:
        """Return what attempts cost, by benchmark, model and measure: per attempt, per pass, and in total.

        Parameters
        ----------
        measure : str, optional
            By default all measures.

        Examples
        --------
        >>> attempts = {"model": ["a", "a", "b", "b"], "problem_id": [1, 2] * 2, "passed": [1, 0, 1, 1]}
        >>> priced = pl.DataFrame(attempts | {"usd": [0.25, 0.75, 1.0, 3.0]})
        >>> paid = sl.score(priced, config={"measures": {"usd": {"kind": "cost"}}}, metrics="pass@1")
        >>> paid.costs("usd").select("model", "value", "per_pass", "total").rows()
        [('a', 0.5, 1.0, 1.0), ('b', 2.0, 2.0, 4.0)]
        """
        return self._of_measure("measure_summary", measure)

    def frontier(self, measure: str | None = None) -> pl.DataFrame:
        """Return score and cost of each model, and whether it is on the frontier of both.

        Parameters
        ----------
        measure : str, optional
            By default all measures.

        Examples
        --------
        >>> paid.frontier().select("model", "score", "cost", "on_front").rows()
        [('a', 0.5, 0.5, True), ('b', 1.0, 2.0, True)]
        """
        return self._of_measure("frontier", measure)

    def _of_measure(self, table: str, measure: str | None) -> pl.DataFrame:
        rows = self.table(table)
        check_names("measure", rows["measure"].unique().sort(), [measure])
        for part in {"subject", "slice"}.intersection(rows.columns):  # of all problems only
            rows = rows.remove(rows[part].is_not_null())
        return rows if measure is None else rows.filter(measure=measure)

    @property
    def plot(self) -> Plots:
        """Return the charts: leaderboard, curve, matrix, series and frontier."""
        return Plots(self.folder)

    @property
    def folder(self) -> Path:
        """Return the folder that the tables are read from: a copy, or the output itself if it is temporary."""
        if not self._finalizer.alive:
            raise UsageError("this board is closed", hint="open it again with scorelake.open(...)")
        if self._folder is None:
            with ExitStack() as copied:
                folder = copied.enter_context(session.reading(self.out))
                run_id = self.report.run["run_id"] if self.report else None
                if run_id and run_id != (current := current_run_id(folder)):
                    what = f"run {current} has been published here since run {run_id}, which this board shows"
                    raise UsageError(what, where=self.out, hint="scorelake.open(...) shows the current run")
                self._resources.push(copied.pop_all())
            self._folder = folder
        return self._folder

    def close(self) -> None:
        """Remove the copy, and an output scored without `out`."""
        self._finalizer()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "\n  ".join(self._summary()) if self._finalizer.alive else "Board: closed"

    def _repr_html_(self) -> str:
        head, *lines = self._summary()
        chart = Markup(self.plot.leaderboard(top=20).svg)
        return str(Markup("<div><strong>{}</strong><br>{}{}</div>").format(head, Markup("<br>").join(lines), chart))

    def _summary(self) -> list[str]:
        """Return size, row accounting, warnings, and the verdict of each benchmark."""
        with open_facts(self.folder) as (reader, output, metric):
            ((problems,),) = reader.rows(_PROBLEMS)
        run = output.run
        size = {"model": len(output.label), "problem": problems, "metric": len(output.families)}
        lines = [
            f"Board: {', '.join(plural(count, noun) for noun, count in size.items())}",
            f"{run['rows_read']:,} attempts = {run['graded']:,} graded + {run['ungraded']:,} ungraded + "
            f"{run['duplicates']:,} duplicate + {run['rejected']:,} rejected",
        ]
        lines += [f"warning: {escape_control_lines(text)}" for text in (self.report.warnings if self.report else ())]
        for board in output.boards[:BENCHMARKS]:
            lines.append(verdict(output, board, metric if metric in board.lines else next(iter(board.lines))))
        if len(output.boards) > BENCHMARKS:
            lines.append(f"and {plural(len(output.boards) - BENCHMARKS, 'more benchmark')}")
        return lines


@dataclass(frozen=True)
class Comparison:
    """Result of a paired comparison (returned by `Board.compare`).

    It prints `claims`, one per benchmark and protocol that both models ran under; `frame` has their numbers.

    Examples
    --------
    >>> comparison = board.compare("model-02", "model-01")
    >>> comparison.frame.select("model_a", "model_b", "problems", "claim").rows()
    [('model-02', 'model-01', 60, 'improvement')]
    """

    _results: tuple[PairResult, ...]

    @property
    def claims(self) -> tuple[str, ...]:
        """Return the claims as text."""
        return tuple(escape_control_lines(result.text()) for result in self._results)

    @property
    def frame(self) -> pl.DataFrame:
        """Return one row per claim: the lift with its interval, wins, p-values, q, and the claim as a word."""
        import polars as pl  # noqa: PLC0415 - loads slowly, and text does not need it

        rows = [
            each.row | {"benchmark": each.benchmark, "protocol": each.protocol, "model_a": each.a, "model_b": each.b}
            for each in self._results
        ]
        return pl.DataFrame(rows, schema=_PAIR)

    def __repr__(self) -> str:
        return "\n\n".join(self.claims)

    def _repr_html_(self) -> str:
        out = Markup("")
        for claim in self.claims:
            head, *lines = claim.split("\n")
            rows = Markup("").join(_ROW.format(line[2:17].strip(), line[17:]) for line in lines)
            out += Markup('<div style="{}"><strong>{}</strong><table>{}</table></div>').format(_STYLE, head, rows)
        return str(out)
