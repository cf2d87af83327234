"""scorelake: from attempts of language models at problems to a leaderboard that says what the attempts show.

In a notebook:

    import scorelake as sl

    board = sl.score(frame)                  # a data frame, a matrix of attempts, or a lake of Parquet files
    board                                    # shows who leads
    board.leaderboard("pass@8")              # any table as a Polars frame
    board.compare("model-a", "model-b")      # a claim with its interval, and what it does not show
    board.plot.curve("model-a")              # a drawing
    sl.open("out")                           # the same over what `scorelake score --out out` published
    sl.metrics.pass_at_k(n=10, c=3, k=5)     # every metric as a function of counts, or of a matrix of attempts

`score` counts attempts the way the command line does: the same columns, policies, row accounting and errors.
Nothing is written unless `out` is given. Errors are in `scorelake.errors`; all of them are a `ScorelakeError` and say
what is wrong, where, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scorelake.scoring  # noqa: F401 - the room of that name: loaded now, it cannot take the function's place later
from scorelake import errors
from scorelake.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Unpack

    from scorelake import metrics
    from scorelake.notebook.board import Board
    from scorelake.notebook.comparison import Comparison
    from scorelake.notebook.drawing import Drawing
    from scorelake.notebook.frames import Entries, Frame, Matrices
    from scorelake.notebook.scoring import Columns, Config, Options

__all__ = ["Board", "Comparison", "Drawing", "__version__", "errors", "metrics", "open", "score"]

_LATER = {
    "Board": "scorelake.notebook.board",
    "Comparison": "scorelake.notebook.comparison",
    "Drawing": "scorelake.notebook.drawing",
    "metrics": "scorelake.metrics",
}
"""Names that are loaded when they are used: the libraries below them take most of a second."""


def score(
    attempts: str | PathLike[str] | Frame | Matrices,
    *,
    metrics: str | Sequence[str] = (),
    columns: Columns | None = None,
    by: str | Sequence[str] = (),
    config: Config | None = None,
    out: str | PathLike[str] | None = None,
    entries: Entries | None = None,
    **options: Unpack[Options],
) -> Board:
    """Count attempts, score them, and give back the board.

    attempts: one row per attempt: a Polars frame (eager or lazy), a pandas or PyArrow table, or anything that speaks
        Arrow; or a lake: a folder of Parquet files, a Delta or Iceberg table, also s3://, gs://, az://; or a matrix
        with a row per problem and an entry per attempt (1 passed, 0 failed, None not graded; rows may differ in
        length), or a dictionary of such matrices by model, whose rows are the same problems (an empty row: this
        model did not attempt it).
    metrics: such as ["pass@1", "pass@8"]; by default every one that the attempts allow, at k = 1, 2, 4, ...
    columns: which column is what, where it is not called so: {"model": "model_name", "passed": "correct"}; any key
        of [columns] in the config.
    by: also score slices by these columns.
    config: a scorelake.toml, or the same as a dictionary: {"policy": {"ungraded": "fail"}}.
    out: publish there, as the command line does, and read only what is new next time. Without it nothing is kept.
    entries: what the entries of a matrix are: verdicts (`passed`, as by default), or rewards (`score`).
    options: memory, engine, address, full, allow_quarantine, allow_empty as on the command line (docs/running.md);
        progress, a function that is called with a stage, how much is done, and of how much.

    >>> import polars as pl
    >>> import scorelake as sl
    >>> frame = pl.DataFrame({"llm": ["a", "a", "b", "b"], "task": [1, 2, 1, 2], "correct": [1, 0, 1, 1]})
    >>> small = sl.score(frame, columns={"model": "llm", "problem_id": "task", "passed": "correct"})
    >>> small.leaderboard("pass@1").select("model", "value", "problems").sort("model").rows()
    [('a', 0.5, 2), ('b', 1.0, 2)]
    >>> matrices = {"a": [[0, 1, 1], [1, None, 0]], "b": [[1, 1, 1], [1, 1]]}
    >>> sl.score(matrices).leaderboard("pass@2").select("model", "value").sort("model").rows()
    [('a', 1.0), ('b', 1.0)]
    """
    from scorelake.notebook.board import scored  # noqa: PLC0415  (loaded when it is used)

    return scored(attempts, metrics, columns, by, config, out, entries, options)


def open(out: str | PathLike[str]) -> Board:  # noqa: A001 - what a reader of sl.open(...) expects
    """The board that was published at `out`: a folder, a leaderboard.duckdb, or s3://, gs://, az://.

    >>> sl.score("fixtures/lake", metrics=["pass@1"], out="out").close()
    >>> with sl.open("out") as published:
    ...     print(published.leaderboard("pass@1")["model"][0])
    model-00
    """
    from scorelake.notebook.board import published  # noqa: PLC0415  (loaded when it is used)

    return published(out)


def __getattr__(name: str) -> Any:
    """What is loaded when it is used."""
    from importlib import import_module  # noqa: PLC0415

    if name not in _LATER:
        raise AttributeError(f"module 'scorelake' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if name == "metrics" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
