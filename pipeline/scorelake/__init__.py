"""Turn LLM evaluation logs into leaderboards with confidence intervals.

In a notebook:

    import scorelake as sl

    board = sl.score(frame)                  # a data frame, a matrix of attempts, or a lake of Parquet files
    board                                    # shows the leader of each benchmark
    board.leaderboard("pass@8")              # any table as a Polars data frame
    board.compare("model-a", "model-b")      # a paired comparison with its interval
    board.plot.curve(["model-a", "model-b"]) # a chart of pass@k over k, with bands
    sl.open("out")                           # the board that `scorelake score --out out` published
    sl.gate("out", "model-a", "model-b")     # is model-b not worse? pass, fail or undecided
    sl.metrics.pass_at_k(n=10, c=3, k=5)     # every metric as a function of counts, or of a matrix of attempts

`score` and `open` return a `Board`, its `compare` a `Comparison`, and each chart is a `Drawing`. `gate` returns a
verdict, `plan` the problems and attempts that a question needs. `metrics` has functions only, `errors` has all that
is raised, and `__version__` is the version.

`score` counts attempts as the command line does: the same columns, policies, row accounting and errors. Nothing is
kept unless `out` is given, and nothing in the calling process is changed: no environment variables, thread counts or
warning filters. All errors are a `scorelake.errors.ScorelakeError` that states the problem, its location and a hint.

Examples
--------
>>> import numpy as np
>>> import polars as pl
>>> import scorelake as sl
>>> frame = pl.DataFrame({"llm": ["a", "a", "b", "b"], "task": [1, 2, 1, 2], "correct": [1, 0, 1, 1]})
>>> small = sl.score(frame, columns={"model": "llm", "problem_id": "task", "passed": "correct"})
>>> small.leaderboard("pass@1").select("model", "value", "problems").sort("model").rows()
[('a', 0.5, 2), ('b', 1.0, 2)]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scorelake import errors
from scorelake.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Unpack

    from scorelake import metrics
    from scorelake.lake.description import Columns, Config
    from scorelake.notebook.board import Board, Comparison
    from scorelake.notebook.plots import Drawing
    from scorelake.notebook.scoring import EntryKind, Frame, Matrices, Options
    from scorelake.read.gate import Gate
    from scorelake.read.plan import Need

__all__ = ["Board", "Comparison", "Drawing", "__version__", "errors", "gate", "metrics", "open", "plan", "score"]

# Loaded on first use: the libraries behind them take most of a second.
_LAZY = {
    "Board": "scorelake.notebook.board",
    "Comparison": "scorelake.notebook.board",
    "Drawing": "scorelake.notebook.plots",
}


def score(
    attempts: str | PathLike[str] | Frame | Matrices,
    *,
    metrics: str | Sequence[str] = (),
    columns: Columns | None = None,
    by: str | Sequence[str] = (),
    config: Config | None = None,
    out: str | PathLike[str] | None = None,
    entries: EntryKind | None = None,
    **options: Unpack[Options],
) -> Board:
    """Count and score attempts.

    Parameters
    ----------
    attempts : path, data frame, matrix or dict of matrices
        A lake (a folder of Parquet files, a Delta or Iceberg table, also at s3://, gs:// or az://); a Polars, pandas,
        PyArrow or other Arrow table with a row per attempt; or a matrix with a row per problem, an entry per attempt
        (1 passed, 0 failed, None ungraded, NaN not made; rows may differ in length), or matrices by model, which may
        differ in width.
    metrics : str or sequence of str
        E.g. ["pass@1", "pass@8"]; by default all that the attempts allow, at k = 1, 2, 4, ...
    columns : dict, optional
        Mapping from scorelake's column names to yours: {"model": "model_name", "passed": "correct"}. If a frame lacks
        a required column, columns are inferred as by `scorelake init`, and one line of the log, or `warn`, has them.
    by : str or sequence of str
        Columns to score slices by.
    config : path or dict, optional
        A scorelake.toml, or its content: {"policy": {"ungraded": "fail"}}.
    out : path, optional
        Publish there, as the command line does; the next run reads only new files. By default nothing is kept.
    entries : {"passed", "score"}, optional
        Whether the entries of a matrix are verdicts (default) or rewards.
    **options
        memory, engine, address, full, allow_quarantine, allow_empty, progress(stage, done, total), warn(message).

    Raises
    ------
    ScorelakeError
        UsageError for arguments, DataError for rows or files, LakeError if the lake is missing or empty.

    Examples
    --------
    >>> verdicts = sl.score({"a": [[0, 1, 1], [1, None, 0]], "b": [[1, 1, 1], [1, 1]]}, metrics=["pass@1", "pass@2"])
    """
    from scorelake.notebook.scoring import score_attempts  # noqa: PLC0415 - see _LAZY

    return score_attempts(attempts, out, entries, options, config=config, metrics=metrics, columns=columns, by=by)


def open(out: str | PathLike[str]) -> Board:  # noqa: A001 - sl.open(...) reads well
    """Open a published leaderboard.

    Parameters
    ----------
    out : path
        An output folder, a leaderboard.duckdb, or an output at s3://, gs:// or az://.

    Raises
    ------
    LakeError
        If there is no leaderboard.

    Examples
    --------
    >>> sl.score("fixtures/lake", metrics=["pass@1"], out="out").close()
    >>> with sl.open("out") as published:
    ...     print(published.leaderboard("pass@1")["model"][0])
    model-00
    """
    from scorelake.notebook.board import Board  # noqa: PLC0415 - see _LAZY
    from scorelake.storage.disk import check_location  # noqa: PLC0415

    board = Board(check_location(out))
    assert board.folder  # raises at once if there is none
    return board


def plan(
    out: str | PathLike[str],
    question: str = "top 1",
    benchmark: str | None = None,
    lift: float | None = None,
    cost_per_problem: float | None = None,
) -> list[Need]:
    """Plan the problems and attempts that answer a question about pass@1, with the output as a pilot.

    Parameters
    ----------
    out : path
        An output, as for `open`.
    question : str
        "A vs B" (two models), "top 1" (the leaders and their rivals), or "half-width 0.02" (of every interval).
    benchmark : str, optional
        By default all benchmarks.
    lift : float, optional
        The lift to find; by default the one seen so far.
    cost_per_problem : float, optional
        The cost of a new problem, as a multiple of an attempt's: asks for the cheapest number of attempts.

    Returns
    -------
    list of Need
        `text()` is the answer as a sentence.

    Examples
    --------
    >>> sl.plan("out", "model-02 vs model-03")[0].dominated_by
    'attempts'
    """
    from scorelake.read.plan import plan as plan_needs  # noqa: PLC0415 - see _LAZY
    from scorelake.read.session import reading  # noqa: PLC0415

    with reading(str(out)) as folder:
        return plan_needs(folder, str(out), question, benchmark, lift, cost_per_problem)


def gate(
    out: str | PathLike[str],
    base: str,
    candidate: str,
    metric: str | None = None,
    margin: float = 0.02,
    benchmark: str | Sequence[str] = (),
    *,
    protocol: Sequence[str] = (),
    run: Sequence[str] = (),
    calibration: bool = True,
) -> Gate:
    """Decide whether a candidate is not worse than a base by more than a margin, per benchmark and jointly.

    Parameters
    ----------
    out : path
        An output, as for `open`.
    base, candidate : str
        Two models; or one model twice, with two protocols or runs.
    metric : str, optional
        Any metric that has a value per problem; by default pass@1, without pass/fail avg@N.
    margin : float
        The fall that is still accepted; with 0 the candidate must be better.
    benchmark : str or sequence of str
        By default all benchmarks.
    protocol, run : sequence of str
        One for the base, or two: for the base and for the candidate. One protocol is for both.
    calibration : bool
        Measure error rates on random halves of the attempts.

    Returns
    -------
    Gate
        `verdict` is pass, fail or undecided; `text()`, `markdown()`, `junit()` and `document()` have the evidence.

    Examples
    --------
    >>> sl.gate("out", base="model-00", candidate="model-01").verdict
    'fail'
    """
    from scorelake.read.claim import PairRequest  # noqa: PLC0415 - see _LAZY
    from scorelake.read.gate import decide  # noqa: PLC0415

    request = PairRequest(base, candidate, metric, None, tuple(protocol), tuple(run))
    benchmarks = (benchmark,) if isinstance(benchmark, str) else benchmark
    with open(out) as board:
        return decide(board.folder, board.out, request, margin, benchmarks, calibration)


def __getattr__(name: str) -> Any:
    """Load a name on first use."""
    if name == "metrics":
        return import_module("scorelake.metrics")
    if name not in _LAZY:
        raise AttributeError(f"module 'scorelake' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
