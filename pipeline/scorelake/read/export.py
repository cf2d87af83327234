"""Export: CSV that no spreadsheet takes for formulas, Parquet, an XLSX workbook, or Every Eval Ever records.

Numbers keep their full precision. Protocol keys become columns.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from scorelake.errors import UsageError
from scorelake.metrics import families
from scorelake.read.board import BoardRows, Facts, Line, Reader, facts, opened
from scorelake.read.format import labels
from scorelake.read.sentences import title, verdict
from scorelake.read.session import Rows, to_csv
from scorelake.schemas import MEASURE_TABLES
from scorelake.storage.disk import atomic_replace, replace_text, temp_path
from scorelake.text import escape_controls

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
SHEETS = ("leaderboard", "curves", "subjects", "pairs", "problems", "history")  # the tables in the workbook
PERCENT = {"value", "lo", "hi", "se", "lift", "coverage", "p_best", "mu", "mu_lo", "mu_hi", "rerun_lo", "rerun_hi"}
WIDE = {"model", "model_a", "model_b", "problem_id", "run_id", "reason", "claim"}
MAX_TEXT, MAX_ROWS = 32_767, 1_048_575
"""Limits of the XLSX format."""
MAX_CURVES = 8
_COMMENTS = """
SELECT column_name, mode(comment) FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY ALL
"""
_EEE_VERSION = "0.2.2"
_EEE_ARGUMENTS = ("temperature", "top_p", "top_k", "max_tokens")
_EEE_PROBLEMS = """
SELECT benchmark, subject, problem_id, n, c, ungraded FROM problem_counts
WHERE c IS NOT NULL AND model = ? AND protocol = ? ORDER BY ALL
"""
Sheet = tuple[list[str], Rows]


class PreciseFloat(float):
    """A float that always formats with 17 digits. xlsxwriter formats numbers with 16, which loses the last bit."""

    def __format__(self, spec: str) -> str:
        return format(float(self), ".17G")


def write(folder: Path, out: Path, kind: str) -> list[Path]:
    """Export everything, and return the files written."""
    out.mkdir(parents=True, exist_ok=True)
    with opened(folder) as read:
        published = facts(read)
        if kind == "eee":
            return _write_every_eval_ever(read, published, out)
        present = read.names("table_name", "information_schema.tables")
        queries = TABLES | {t.name: f"FROM {t.name} ORDER BY ALL" for t in MEASURE_TABLES if t.name in present}
        if kind == "parquet":
            return _write_parquet(read, published, out, queries)
        tables = {name: _table(read, published, sql) for name, sql in queries.items()}
        runs = read.table("FROM run ORDER BY number")
    if kind == "xlsx":
        _write_workbook(out / "leaderboard.xlsx", published, tables, runs)
        return [out / "leaderboard.xlsx"]
    for name, (columns, rows) in tables.items():
        replace_text(out / f"{name}.csv", to_csv(columns, rows, spreadsheet=True) + "\n")
    return [*(out / f"{name}.csv" for name in tables), _write_run(published, out)]


def _write_run(published: Facts, out: Path) -> Path:
    _write_json(out / "run.json", published.run | {"settings": published.settings})
    return out / "run.json"


def _write_json(path: Path, value: Any) -> None:
    replace_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def _write_parquet(read: Reader, published: Facts, out: Path, queries: dict[str, str]) -> list[Path]:
    """Write every table with the same columns and types whatever the lake is, and schema.json, which describes them.

    Only measures, carried columns and, in protocols.parquet, protocol keys depend on the lake.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  (only Parquet needs it)

    comments = dict(read.rows(_COMMENTS))
    described = dict[str, dict[str, Any]]()
    for name, sql in (queries | {"protocols": "FROM protocol ORDER BY protocol"}).items():
        table = read.arrow(sql, _parameters(sql, published))
        temporary = temp_path(out / f"{name}.parquet")
        pq.write_table(table, temporary)
        atomic_replace(temporary, out / f"{name}.parquet")
        columns = [{"name": f.name, "type": str(f.type), "description": comments.get(f.name)} for f in table.schema]
        described[name] = {"file": f"{name}.parquet", "rows": table.num_rows, "columns": columns}
    ((version,),) = read.rows("SELECT schema_version FROM source.board")
    head = {"schema_version": version, "run_id": published.run["run_id"]}
    _write_json(out / "schema.json", head | {"tables": described})
    return [*(out / each["file"] for each in described.values()), out / "schema.json", _write_run(published, out)]


def _write_every_eval_ever(read: Reader, published: Facts, out: Path) -> list[Path]:
    """Write an aggregate per model and protocol, and a record per attempt where attempts passed or failed."""
    paths, run = [], published.run
    for model, protocol in read.rows("SELECT DISTINCT model, protocol FROM model_summary ORDER BY ALL"):
        number = str(uuid5(NAMESPACE_URL, f"{model}\0{protocol}"))  # the next run replaces the files of this one
        head = {"schema_version": _EEE_VERSION, "evaluation_id": f"{run['run_id']}/{number}"}
        lines = []
        for benchmark, subject, problem, n, c, ungraded in read.rows(_EEE_PROBLEMS, model, protocol):
            record = head | {
                **{"model_id": model, "evaluation_name": benchmark, "evaluation_result_id": benchmark},
                **{"sample_id": problem, "interaction_type": "single_turn", "metadata": {"subject": subject}},
                **{"input": {"raw": "", "reference": []}, "output": {"raw": []}, "answer_attribution": []},
            }
            for is_correct, error, count in ((True, None, c), (False, None, n - c), (False, "no verdict", ungraded)):
                verdict = {"score": float(is_correct), "is_correct": is_correct}
                lines += [json.dumps(record | {"evaluation": verdict, "error": error}, ensure_ascii=False)] * count
        values = json.loads(protocol or "{}")
        numbers = {key: values[key] for key in _EEE_ARGUMENTS if isinstance(values.get(key), int | float)}
        others = {key: str(value) for key, value in values.items() if key not in numbers and value is not None}
        config = {"generation_args": numbers, "additional_details": others}
        aggregate = head | {
            "retrieved_timestamp": f"{run['finished'].replace(tzinfo=UTC).timestamp():.0f}",
            "source_metadata": {
                **{"source_name": "scorelake", "source_type": "evaluation_run"},
                **{"source_organization_name": "unknown", "evaluator_relationship": "other"},
            },
            "eval_library": {"name": "scorelake", "version": run["version"]},
            "model_info": {"name": model, "id": model},
            "evaluation_results": [
                _eee_result(published, board, line, config)
                for board in published.boards
                for line in board.lines[board.headline("pass@1")]
                if (line.model, board.protocol) == (model, protocol) and line.value is not None
            ],
        }
        if lines:
            paths.append(out / f"{number}_samples.jsonl")
            detailed = {"format": "jsonl", "file_path": paths[-1].name, "total_rows": len(lines)}
            aggregate["detailed_evaluation_results"] = detailed
            replace_text(paths[-1], "\n".join(lines) + "\n")
        paths.append(out / f"{number}.json")
        _write_json(paths[-1], aggregate)
    return paths


def _eee_result(published: Facts, board: BoardRows, line: Line, config: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a model on a benchmark; other metrics are details."""
    name = board.headline("pass@1")
    values = [each.value for each in board.lines[name] if each.value is not None]
    ends = {"lower": line.lo, "upper": line.hi, "confidence_level": published.confidence}
    others = {
        metric: repr(other.value)
        for metric, lines in board.lines.items()
        for other in lines
        if other.model == line.model and other.value is not None and metric != name
    }
    uncertainty = {"num_samples": line.problems_scored} | ({} if line.lo is None else {"confidence_interval": ends})
    return {
        "evaluation_result_id": board.benchmark,
        "evaluation_name": board.benchmark,
        "source_data": {"dataset_name": board.benchmark, "source_type": "other"},
        "metric_config": {
            **{"evaluation_description": name, "lower_is_better": False, "score_type": "continuous"},
            **{"min_score": min(0.0, *values), "max_score": max(1.0, *values)},
        },
        "score_details": {"score": line.value, "details": others, "uncertainty": uncertainty},
        "generation_config": config,
    }


def _parameters(sql: str, published: Facts) -> dict[str, Any]:
    return {"run": published.run["run_id"], "time": published.run["started"]} if "$run" in sql else {}


def _table(read: Reader, published: Facts, sql: str) -> Sheet:
    """Return columns and rows of a table, with one column per protocol key."""
    columns, rows = read.table(sql, _parameters(sql, published))
    if "protocol" not in columns:
        return columns, rows
    i = columns.index("protocol")
    protocols = [json.loads(row[i]) if row[i] else {} for row in rows]
    keys = sorted({key for protocol in protocols for key in protocol})
    names = [f"protocol_{key}" if key in columns else key for key in keys]
    values = [tuple(protocol.get(key) for key in keys) for protocol in protocols]
    split = [(*row[:i], *value, *row[i + 1 :]) for row, value in zip(rows, values, strict=True)]
    return [*columns[:i], *names, *columns[i + 1 :]], split


def _write_workbook(path: Path, published: Facts, tables: dict[str, Sheet], runs: Sheet) -> None:
    """Write the workbook: percent formats, frozen heads, filters, a native chart; text stays text.

    Its time is that of the run: the same run gives the same file.
    """
    import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415  (loads slowly)

    sheets = [name for name in (*SHEETS, *(table.name for table in MEASURE_TABLES)) if name in tables]
    for name in sheets:
        if (count := len(tables[name][1])) > MAX_ROWS:
            hint = "--format csv or parquet has all"
            raise UsageError(f"{name} has {count:,} rows, a sheet holds {MAX_ROWS:,}", hint=hint)
    temporary = temp_path(path).with_suffix(".xlsx")
    options = dict.fromkeys(("strings_to_numbers", "strings_to_formulas", "strings_to_urls"), False)
    with xlsxwriter.Workbook(str(temporary), options | {"remove_timezone": True}) as book:
        book.set_properties({"title": "scorelake leaderboard", "created": published.run["started"]})
        _add_readme(book, published)
        for name in sheets:
            _add_sheet(book, name.replace("_", " ").capitalize(), *tables[name])
        _add_sheet(book, "Run", *runs)
        _add_chart(book, published, *tables["curves"])
    atomic_replace(temporary, path)


def _add_readme(book: Any, published: Facts) -> None:
    """Explain the numbers: n, c, k, and the formula of each metric."""
    sheet = book.add_worksheet("Read me")
    bold, wrap = book.add_format({"bold": True}), book.add_format({"text_wrap": True, "valign": "top"})
    sheet.set_column(0, 0, 24)
    sheet.set_column(1, 1, 110)
    metric, run = published.metric(None), published.run
    used = {family for family, _ in published.families.values()}
    lines = [
        *((title(board), verdict(published, board, metric)) for board in published.boards if metric in board.lines),
        ("run", f"{run['run_id']}, {run['started']:%Y-%m-%d %H:%M} UTC, scorelake {run['version']}"),
        ("n", "graded attempts at a problem"),
        ("c", "correct attempts among them"),
        ("k", "attempts drawn without replacement; j of them are correct"),
        ("value", "mean over problems of the credit below; problems with fewer than k attempts have none"),
        ("lo, hi", f"{published.confidence:.0%} confidence interval of value (problems treated as a random sample)"),
        ("rank_lo, rank_hi", "range of ranks compatible with the data"),
        ("lift", "mean of B's score minus A's, on the problems both attempted"),
        ("q", "false discovery rate (Benjamini-Hochberg) over all pairs of a benchmark, protocol and metric"),
        *((f.name, f"{f.formula} ({f.reference})") for f in families() if f.name in used),
    ]
    for i, (name, text) in enumerate(lines):
        sheet.write_string(i, 0, escape_controls(name)[:MAX_TEXT], bold)
        sheet.write_string(i, 1, text[:MAX_TEXT], wrap)


def _add_sheet(book: Any, name: str, columns: list[str], rows: Rows) -> None:
    sheet = book.add_worksheet(name)
    bold = book.add_format({"bold": True, "bottom": 1})
    percent, time = book.add_format({"num_format": "0.0%"}), book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
    values = [columns.index(column) for column in ("value", "lo", "hi") if column in columns]
    is_share = all(row[j] is None or 0 <= row[j] <= 1 for row in rows for j in values)
    for j, column in enumerate(columns):
        sheet.write_string(0, j, column, bold)
        sheet.set_column(j, j, 30 if column in WIDE else 14)
    for i, row in enumerate(rows, start=1):
        for j, cell in enumerate(row):
            if isinstance(cell, bool):
                sheet.write_boolean(i, j, cell)
            elif isinstance(cell, int | float):
                number = PreciseFloat(cell) if isinstance(cell, float) else cell
                sheet.write_number(i, j, number, percent if is_share and columns[j] in PERCENT else None)
            elif isinstance(cell, datetime):
                sheet.write_datetime(i, j, cell, time)
            elif cell is not None:
                sheet.write_string(i, j, escape_controls(str(cell))[:MAX_TEXT])
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(len(rows), 1), len(columns) - 1)
    if name == "Subjects" and rows:
        j = columns.index("value")
        colours = {"type": "2_color_scale", "min_color": "#FFFFFF", "max_color": "#7FB2D3"}
        sheet.conditional_format(1, j, len(rows), j, colours)


def _add_chart(book: Any, published: Facts, columns: list[str], rows: Rows) -> None:
    """Draw pass@k over k for the first models of the first board, from the cells of the sheet Curves."""
    board = published.boards[0]
    k, value, model = (columns.index(name) for name in ("k", "value", "model"))
    wanted = {"benchmark": board.benchmark, "family": "pass@k"}
    for key, text in json.loads(board.protocol or "{}").items():
        wanted[f"protocol_{key}" if f"protocol_{key}" in columns else key] = text
    cells = {columns.index(name): text for name, text in wanted.items()}
    drawn: dict[str, list[int]] = {}
    for i, row in enumerate(rows, start=1):
        if row[value] is not None and all(row[j] == text for j, text in cells.items()):
            drawn.setdefault(row[model], []).append(i)
    first = [line.model for line in board.lines.get(published.metric(None), [])][:MAX_CURVES]
    chart = book.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
    for name, label in labels(first, 60).items():
        numbers = drawn.get(name, [])
        if numbers and numbers == list(range(numbers[0], numbers[-1] + 1)):
            x, y = (["Curves", numbers[0], j, numbers[-1], j] for j in (k, value))
            chart.add_series({"name": label, "categories": x, "values": y})
    if not chart.series:
        return
    chart.set_title({"name": "pass@k"})
    chart.set_x_axis({"name": "k", "log_base": 2})
    chart.set_y_axis({"name": "pass@k", "num_format": "0%", "min": 0, "max": 1})
    book.get_worksheet_by_name("Curves").insert_chart(1, len(columns) + 1, chart, {"x_scale": 1.6, "y_scale": 1.6})
