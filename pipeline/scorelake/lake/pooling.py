"""Find columns that look like settings but are not kept apart: rows of two temperatures are not one experiment."""

from __future__ import annotations

import polars as pl

from scorelake.errors import DataError
from scorelake.lake.listing import LakeListing
from scorelake.lake.names import names_setting
from scorelake.lake.sample import FILES, Column, Names, sample_lake
from scorelake.settings import COMPOSITE, Settings
from scorelake.storage.disk import is_remote
from scorelake.text import toml_text

MAX_FILES, MAX_ROWS = 64, 1 << 14
"""Number of files and of rows per row group that are looked at: few columns are read."""


def pooled_in_lake(lake: LakeListing, settings: Settings) -> list[str]:
    """Return the warnings of `pooled_settings` for a lake, by some rows of some files."""

    def is_unused(name: str) -> bool:
        return names_setting(name) and name not in settings.used

    files = FILES if is_remote(lake.root) else MAX_FILES
    try:
        rows = sample_lake(lake, settings, Names(is_unused), files, MAX_ROWS).rows
        names = {name for name in rows.columns if is_unused(name) and rows[name].n_unique() > 1}
        if not names:
            return []
        names |= {part for key in COMPOSITE for part in settings.columns.parts(key)}
        return pooled_settings(sample_lake(lake, settings, names, files, MAX_ROWS).rows, settings)
    except DataError:  # counting reports what is wrong with the files
        return []


def pooled_settings(rows: pl.DataFrame, settings: Settings) -> list[str]:
    """Return a warning for each column that looks like a setting and differs within a model and benchmark.

    A text that differs between problems only, such as the prompt of each, is no setting.
    """
    parts = {key: [part for part in settings.columns.parts(key) if part in rows.columns] for key in COMPOSITE}
    warnings = []
    for name in rows.columns:
        column = Column(name, "", rows[name])
        if name in settings.used or not column.is_setting:
            continue
        problem = parts["subject"] + parts["problem_id"] if column.kind == "text" else []
        if (
            rows.group_by(*parts["benchmark"], *parts["model"], *problem).agg(pl.col(name).n_unique())[name].max()
            == 1
        ):
            continue
        counts = rows[name].value_counts().sort("count", name, descending=[True, False], nulls_last=True).rows()
        values = ", ".join(f"{value} ({number:,} rows)" for value, number in counts[:5])
        more = f", and {len(counts) - 5:,} more values" if len(counts) > 5 else ""
        columns = f"columns = [{toml_text(name)}] keeps them apart, [columns] carry = [{toml_text(name)}] accepts it"
        what = f"{values}{more}, of {rows.height:,} rows looked at"
        warnings.append(f"rows that differ in {name} are pooled: {what}; [protocol] {columns}")
    return warnings
