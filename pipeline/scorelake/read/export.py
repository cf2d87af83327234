"""The published tables as files for other programs: CSV that no spreadsheet takes for formulas, Parquet, XLSX.

Numbers keep their full precision. Protocol columns become columns of their own.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.session import to_csv
from scorelake.storage.disk import replace_text

Rows = list[tuple[Any, ...]]

TABLES = {
    "leaderboard": """
        SELECT b.benchmark, b.protocol, b.metric, s.family, s.k, b.model, b.rank, b.rank_lo, b.rank_hi,
            b.could_be_best, b.p_best, b.value, b.lo, b.hi, s.se, b.problems, b.problems_of_benchmark,
            b.problems_scored AS scored, b.attempts, s.ungraded, b.reason, $run AS run_id, $time AS run_time
        FROM leaderboard AS b JOIN model_summary AS s USING (benchmark, protocol, metric, model)
        ORDER BY b.benchmark, b.protocol, b.metric, b.rank NULLS LAST, b.model
    """,
    "subjects": "FROM subject_summary ORDER BY benchmark, subject, protocol, metric, model",
    "slices": "FROM slice_summary ORDER BY benchmark, slice, slice_value, protocol, metric, model",
    "curves": "FROM curve ORDER BY benchmark, protocol, family, model, k",
    "pairs": "FROM pair ORDER BY benchmark, protocol, metric, model_a, model_b",
    "problems": "FROM problem_stats ORDER BY benchmark, subject, protocol, problem_id",
    "problem_by_model": "FROM problem_counts ORDER BY benchmark, subject, problem_id, model, protocol",
    "history": "FROM history ORDER BY number, benchmark, protocol, metric, model",
}
"""What is exported, and from where."""


def table(read: Reader, known: Facts, name: str) -> tuple[list[str], Rows]:
    """One table: its columns and rows, the protocol split into its keys."""
    sql = TABLES[name]
    given = {"run": known.run["run_id"], "time": known.run["started"]} if "$run" in sql else {}
    columns, rows = read.table(sql, given)
    if "protocol" not in columns:
        return columns, rows
    at = columns.index("protocol")
    told = [json.loads(row[at]) if row[at] else {} for row in rows]
    keys = sorted({key for protocol in told for key in protocol})
    split = [tuple(protocol.get(key) for key in keys) for protocol in told]
    new = [(*row[:at], *more, *row[at + 1 :]) for row, more in zip(rows, split, strict=True)]
    return [*columns[:at], *(_apart(key, columns) for key in keys), *columns[at + 1 :]], new


def _apart(key: str, columns: list[str]) -> str:
    return f"protocol_{key}" if key in columns else key


def write(folder: Path, out: Path, kind: str) -> list[Path]:
    """Export everything; the names of the files written."""
    with opened(folder) as read:
        known = facts(read)
        tables = {name: table(read, known, name) for name in TABLES}
        runs = read.table("FROM run ORDER BY number", {})
    if kind == "xlsx":
        from scorelake.read.workbook import workbook  # noqa: PLC0415  (only where it is asked for)

        return [workbook(out / "leaderboard.xlsx", known, tables, runs)]
    paths = [_file(out / f"{name}.{kind}", *tables[name]) for name in tables]
    run = {key: str(value) if isinstance(value, datetime) else value for key, value in known.run.items()}
    run["settings"] = known.settings
    replace_text(out / "run.json", json.dumps(run, indent=2, ensure_ascii=False, default=str) + "\n")
    return [*paths, out / "run.json"]


def _file(path: Path, columns: list[str], rows: Rows) -> Path:
    if path.suffix == ".csv":
        replace_text(path, to_csv(columns, rows, spreadsheet=True) + "\n")
        return path
    import polars as pl  # noqa: PLC0415  (only Parquet needs it)

    from scorelake.storage.disk import atomic_replace, temp_path  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    aside = temp_path(path)
    pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None).write_parquet(aside)
    atomic_replace(aside, path)
    return path
