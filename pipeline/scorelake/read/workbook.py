"""The tables as one XLSX workbook: percent formats, frozen heads, filters, a native chart; texts stay texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from scorelake.errors import UsageError
from scorelake.metrics import families
from scorelake.read.board import Facts
from scorelake.read.labels import labels
from scorelake.read.verdict import title, verdict
from scorelake.storage.disk import atomic_replace, temp_path
from scorelake.text import escape_controls

Table = tuple[list[str], list[tuple[Any, ...]]]

SHEETS = {
    "Leaderboard": "leaderboard",
    "Curves": "curves",
    "Subjects": "subjects",
    "Pairs": "pairs",
    "Problems": "problems",
    "History": "history",
}
PERCENT = {"value", "lo", "hi", "se", "lift", "coverage", "p_best", "mu", "mu_lo", "mu_hi", "rerun_lo", "rerun_hi"}
WIDE = {"model", "model_a", "model_b", "problem_id", "run_id", "reason", "claim"}
LONGEST_TEXT, MOST_ROWS, CHARTED = 32_767, 1_048_575, 8
"""What a sheet can hold, and the curves that are drawn."""


class Precise(Worksheet):  # type: ignore[misc]
    """A sheet whose numbers keep all their digits; the library's own cuts the seventeenth."""

    def _xml_number_element(self, number: float, attributes: Any = None) -> None:
        told = "".join(f' {key}="{value}"' for key, value in attributes or ())
        self.fh.write(f"<c{told}><v>{number:.17G}</v></c>")


def workbook(path: Path, known: Facts, tables: Mapping[str, Table], runs: Table) -> Path:
    """Write the workbook; complete or not there. Its time is the run's, so that the same run gives the same file."""
    for name, (_, rows) in tables.items():
        if name in SHEETS.values() and len(rows) > MOST_ROWS:
            raise UsageError(
                f"{name} has {len(rows):,} rows, a sheet holds {MOST_ROWS:,}", hint="--format csv or parquet has all"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = temp_path(path).with_suffix(".xlsx")
    options = {"strings_to_numbers": False, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(str(aside), {**options, "remove_timezone": True}) as book:
        book.set_properties({"title": "scorelake leaderboard", "created": known.run["started"]})
        _readme(book, known)
        for sheet, name in SHEETS.items():
            _sheet(book, sheet, *tables[name])
        _sheet(book, "Run", *runs)
        _chart(book, known, tables["curves"])
    atomic_replace(aside, path)
    return path


def _readme(book: Any, known: Facts) -> None:
    """What every number is: n, c, k, and the formula of each metric."""
    sheet = book.add_worksheet("Read me")
    bold, wrap = book.add_format({"bold": True}), book.add_format({"text_wrap": True, "valign": "top"})
    sheet.set_column(0, 0, 24)
    sheet.set_column(1, 1, 110)
    metric = known.metric(None)
    lines = [(title(board), verdict(known, board, metric)) for board in known.boards if metric in board.lines]
    lines += [
        (
            "run",
            f"{known.run['run_id']}, {known.run['started']:%Y-%m-%d %H:%M} UTC, scorelake {known.run['version']}",
        ),
        ("n", "graded attempts at a problem"),
        ("c", "correct ones among them"),
        ("k", "attempts drawn without replacement; j of them are correct"),
        ("value", "mean over problems of the credit below; problems with fewer than k attempts have none"),
        (
            "lo, hi",
            f"{known.confidence:.0%} interval of value: what the model would score on other problems like these",
        ),
        ("rank_lo, rank_hi", "the places that the problems leave open"),
        ("lift", "mean of B's score minus A's, on the problems both attempted"),
        ("q", "false discovery rate (Benjamini-Hochberg) over all pairs of a benchmark, protocol and metric"),
    ]
    used = {family for family, _ in known.families.values()}
    lines += [(f.name, f"{f.formula} ({f.reference})") for f in families() if f.name in used]
    for i, (name, text) in enumerate(lines):
        sheet.write_string(i, 0, escape_controls(name)[:LONGEST_TEXT], bold)
        sheet.write_string(i, 1, text[:LONGEST_TEXT], wrap)


def _sheet(book: Any, name: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    sheet = book.add_worksheet(name, worksheet_class=Precise)
    bold = book.add_format({"bold": True, "bottom": 1})
    percent, when = book.add_format({"num_format": "0.0%"}), book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
    at = [columns.index(c) for c in ("value", "lo", "hi") if c in columns]
    share = all(row[i] is None or 0 <= row[i] <= 1 for row in rows for i in at)
    for j, column in enumerate(columns):
        sheet.write_string(0, j, column, bold)
    for i, row in enumerate(rows, start=1):
        for j, cell in enumerate(row):
            if isinstance(cell, bool):
                sheet.write_boolean(i, j, cell)
            elif isinstance(cell, int | float):
                sheet.write_number(i, j, cell, percent if share and columns[j] in PERCENT else None)
            elif isinstance(cell, datetime):
                sheet.write_datetime(i, j, cell, when)
            elif cell is not None:
                sheet.write_string(i, j, escape_controls(str(cell))[:LONGEST_TEXT])
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(len(rows), 1), len(columns) - 1)
    for j, column in enumerate(columns):
        sheet.set_column(j, j, 30 if column in WIDE else 14)
    if name == "Subjects" and rows and "value" in columns:
        j = columns.index("value")
        scale = {"type": "2_color_scale", "min_color": "#FFFFFF", "max_color": "#7FB2D3"}
        sheet.conditional_format(1, j, len(rows), j, scale)


def _chart(book: Any, known: Facts, curves: Table) -> None:
    """pass@k over k for the first models of the first board, from the rows of the sheet."""
    columns, rows = curves
    board = known.boards[0]
    metric = known.metric(None)
    first = [line.model for line in board.lines.get(metric, [])][:CHARTED]
    chart = book.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
    k, value, model, family = (columns.index(c) for c in ("k", "value", "model", "family"))
    here = {columns.index("benchmark"): board.benchmark, family: "pass@k"}
    for key, is_ in json.loads(board.protocol or "{}").items():
        here[columns.index(f"protocol_{key}" if f"protocol_{key}" in columns else key)] = is_
    drawn = [
        (i, row)
        for i, row in enumerate(rows, start=1)
        if row[value] is not None and all(row[j] == is_ for j, is_ in here.items())
    ]
    name = labels(first, 60)
    for one in first:
        mine = [i for i, row in drawn if row[model] == one]
        if mine and mine == list(range(mine[0], mine[-1] + 1)):
            ends = mine[0], mine[-1]
            where = {
                "categories": ["Curves", ends[0], k, ends[1], k],
                "values": ["Curves", ends[0], value, ends[1], value],
            }
            chart.add_series({"name": name[one], **where})
    if not chart.series:
        return
    chart.set_title({"name": "pass@k: what sampling can find"})
    chart.set_x_axis({"name": "k", "log_base": 2})
    chart.set_y_axis({"name": "pass@k", "num_format": "0%", "min": 0, "max": 1})
    book.get_worksheet_by_name("Curves").insert_chart(1, len(columns) + 1, chart, {"x_scale": 1.6, "y_scale": 1.6})
