"""Export the published tables: CSV that no spreadsheet takes for formulas, Parquet, or XLSX.

Numbers keep their full precision. Protocol keys become columns.
"""

from __future__ import annotations

import json
from pathlib import Path

from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.session import Rows, to_csv
from scorelake.storage.disk import atomic_replace, replace_text, temp_path

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
"""The exported tables and their queries."""


def write(folder: Path, out: Path, kind: str) -> list[Path]:
    """Export everything, and return the files written."""
    with opened(folder) as read:
        published = facts(read)
        tables = {name: _table(read, published, name) for name in TABLES}
        runs = read.table("FROM run ORDER BY number")
    if kind == "xlsx":
        from scorelake.read.workbook import write_workbook  # noqa: PLC0415  (an optional, slow import)

        return [write_workbook(out / "leaderboard.xlsx", published, tables, runs)]
    paths = [_write_table(out / f"{name}.{kind}", *table) for name, table in tables.items()]
    run = published.run | {"settings": published.settings}
    replace_text(out / "run.json", json.dumps(run, indent=2, ensure_ascii=False, default=str) + "\n")
    return [*paths, out / "run.json"]


def _table(read: Reader, published: Facts, name: str) -> tuple[list[str], Rows]:
    """Return columns and rows of a table, with one column per protocol key."""
    sql, run = TABLES[name], published.run
    columns, rows = read.table(sql, {"run": run["run_id"], "time": run["started"]} if "$run" in sql else {})
    if "protocol" not in columns:
        return columns, rows
    i = columns.index("protocol")
    protocols = [json.loads(row[i]) if row[i] else {} for row in rows]
    keys = sorted({key for protocol in protocols for key in protocol})
    names = [f"protocol_{key}" if key in columns else key for key in keys]
    values = [tuple(protocol.get(key) for key in keys) for protocol in protocols]
    split = [(*row[:i], *value, *row[i + 1 :]) for row, value in zip(rows, values, strict=True)]
    return [*columns[:i], *names, *columns[i + 1 :]], split


def _write_table(path: Path, columns: list[str], rows: Rows) -> Path:
    if path.suffix == ".csv":
        replace_text(path, to_csv(columns, rows, spreadsheet=True) + "\n")
        return path
    import polars as pl  # noqa: PLC0415  (only Parquet needs it)

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temp_path(path)
    pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None).write_parquet(temporary)
    atomic_replace(temporary, path)
    return path
