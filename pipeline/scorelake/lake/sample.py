"""Read some rows of some files of a lake: to infer its columns, and to warn of settings that would be pooled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa

from scorelake.errors import DataError
from scorelake.lake.download import local_copy
from scorelake.lake.listing import LakeListing
from scorelake.lake.names import POINTS, names_setting, words_of
from scorelake.settings import COMPOSITE, Settings
from scorelake.storage import parquet
from scorelake.storage.disk import first_line, is_remote
from scorelake.storage.files import File, Shard
from scorelake.text import toml_text

FILES, GROUPS, ROWS = 8, 3, 3000
"""Files, row groups per file, and rows per row group."""
MAX_FILES, MAX_ROWS = 64, 1 << 14
"""Files and rows per row group where only the columns of settings are read."""
_UNREADABLE = (pa.ArrowException, pl.exceptions.PolarsError, parquet.DamagedError, UnicodeError, OSError)
MAX_SETTINGS = 50
"""A column with more values is no setting, whatever its name."""
_EXAMPLES, _LENGTH = 4, 30
_KINDS = {"boolean": "booleans", "integer": "whole numbers", "number": "numbers", "text": "texts"}


@dataclass(frozen=True)
class Column:
    """A column, or a key in folder names, with a sample of its values."""

    name: str
    type: str
    values: pl.Series
    is_folder: bool = False

    @cached_property
    def distinct(self) -> pl.Series:
        """Distinct values except null, sorted."""
        return self.values.drop_nulls().unique().sort()

    @property
    def kind(self) -> str:
        """boolean, integer, number, text, empty, or other."""
        dtype = self.values.dtype
        if not len(self.distinct):
            return "empty"
        if dtype == pl.Boolean:
            return "boolean"
        if dtype.is_numeric():
            return "integer" if dtype.is_integer() else "number"
        return "text" if dtype == pl.String else "other"

    @property
    def is_setting(self) -> bool:
        """Whether it is named like a setting that changes what is measured, and has few values."""
        return names_setting(self.name) and self.kind not in ("empty", "other") and len(self.distinct) <= MAX_SETTINGS

    @property
    def summary(self) -> str:
        """The kind and some values, for example `texts: easy, hard`."""
        lines = [one_line(str(value)) for value in self.distinct.head(_EXAMPLES).to_list()]
        examples = [line if len(line) <= _LENGTH else f"{line[: _LENGTH - 3]}..." for line in lines]
        more = ", ..." if len(self.distinct) > _EXAMPLES else ""
        kind = "folders" if self.is_folder else _KINDS.get(self.kind, self.type)
        return f"{kind}: {', '.join(examples)}{more}" if examples else f"{kind} with nothing but nulls"


@dataclass(frozen=True)
class LakeSample:
    """Rows and columns of some files of a lake."""

    files: int
    sampled_files: int
    rows: pl.DataFrame
    """All sampled rows, with folder keys as columns."""
    columns: dict[str, Column]


def sample_lake(
    lake: LakeListing,
    settings: Settings,
    is_wanted: Callable[[str], bool] = lambda _: True,
    files: int = FILES,
    rows: int = ROWS,
) -> LakeSample:
    """Read some rows and the wanted columns of some files; skip files that cannot be read, unless none can."""
    shard = Shard(lake.root, tuple(_choose_files(lake, files)))
    types: dict[str, str] = {}
    frames, reason = list[pl.DataFrame](), "no rows"
    with TemporaryDirectory() as folder, local_copy(shard, Path(folder) / "lake", settings, is_wanted) as copy:
        for file in copy.files:
            try:
                frames += list(_read(Path(copy.root) / file.path, file, types, is_wanted, rows))
            except _UNREADABLE as error:
                trouble = parquet.machine_trouble(error)
                if trouble is not None:
                    raise trouble from error
                reason = f"{file.path}: {first_line(error)}"
    if not frames:
        raise DataError(f"none of {len(shard.files):,} files has rows that can be read ({reason})", where=lake.root)
    joined = _without_empty_texts(_concat(frames))
    columns = {
        each.name: Column(each.name, types.get(each.name, "text"), each, each.name not in types) for each in joined
    }
    return LakeSample(len(lake.files), len(shard.files), joined, columns)


def sample_frame(rows: pl.DataFrame) -> LakeSample:
    """Return the rows of a data frame as a sample."""
    texts = rows.with_columns((cs.categorical() | cs.enum()).cast(pl.String))
    flat = _without_empty_texts(texts.select(~(cs.nested() | cs.object() | cs.binary())))
    return LakeSample(1, 1, flat, {name: Column(name, str(flat[name].dtype), flat[name]) for name in flat.columns})


def _choose_files(lake: LakeListing, number: int) -> Sequence[File]:
    """Return files from all over the lake, not at equal distances, at which one setting may always recur.

    Of object storage the smallest, since they are downloaded completely.
    """
    if is_remote(lake.root):
        return sorted(lake.files, key=lambda file: (file.size, file.path))[:number]
    return sorted(random.Random(0).sample(lake.files, min(number, len(lake.files))))


def _read(
    path: Path, file: File, types: dict[str, str], is_wanted: Callable[[str], bool], rows: int
) -> Iterator[pl.DataFrame]:
    """Yield rows of some row groups, and add the types of new columns."""
    metadata = parquet.footer(str(path))
    schema = metadata.schema.to_arrow_schema()
    stored = file.stored_names(schema)
    schema = parquet.renamed(schema, stored)
    types |= {field.name: str(field.type) for field in schema if field.name not in types}
    names = [field.name for field in schema if is_wanted(field.name) and not pa.types.is_nested(field.type)]
    groups = [i for i in range(metadata.num_row_groups) if metadata.row_group(i).num_rows]
    for group in groups[:: max(1, len(groups) // GROUPS)][:GROUPS]:
        batch = next(parquet.batches(str(path), metadata, [group], names, stored, rows))
        first = sum(metadata.row_group(i).num_rows for i in range(group))
        is_kept = ~np.isin(np.arange(first, first + batch.num_rows), file.deleted)
        columns = [_series(batch.column(name)).alias(name).filter(is_kept) for name in names]
        constants = {k: v for k, v in file.constant_columns(stored).items() if k not in types}
        texts = [pl.Series(key, [text], dtype=pl.String) for key, text in constants.items()]
        yield pl.DataFrame([*columns, *(each.new_from_index(0, int(is_kept.sum())) for each in texts)])


def _series(column: Any) -> pl.Series:
    """Convert to Polars; all kinds of texts become strings."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    column.validate(full=True)
    values = pl.Series(values=column)
    return values.cast(pl.String) if values.dtype in (pl.Categorical, pl.Enum, pl.Binary) else values


def _concat(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate; a column of several types becomes text."""
    names = {name for frame in frames for name in frame.columns}
    dtypes = {name: {frame.schema[name] for frame in frames if name in frame.columns} for name in names}
    mixed = {name for name, each in dtypes.items() if len(each - {pl.Null()}) > 1}
    even = [frame.with_columns(pl.col(mixed & set(frame.columns)).cast(pl.String)) for frame in frames]
    return pl.concat(even, how="diagonal_relaxed")


def _without_empty_texts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(cs.string().replace("", None))


def is_point(column: Column, rows: pl.DataFrame, model: Sequence[str], problem: Sequence[str]) -> bool:
    """Return whether values are points of a training run: a name as for them, and most problems tried at most."""
    if POINTS.isdisjoint(words_of(column.name)) or not model or not problem or len(column.distinct) < 2:
        return False
    tried = pl.struct(problem).n_unique()
    points = rows.drop_nulls(column.name).group_by(*model, column.name).agg(tried.alias("tried"))
    shares = points.join(rows.group_by(model).agg(tried.alias("all")), on=model).filter(pl.len().over(model) > 1)
    return 2 * shares.filter(2 * pl.col("tried") >= pl.col("all")).height > shares.height


def one_line(text: str) -> str:
    """Replace control characters, so that the text cannot end the line or comment that it is in."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def pooled_in_lake(lake: LakeListing, settings: Settings, quarantine: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the warnings of `pooled_settings` for a lake, by some rows of some files."""
    broken = {name for name, _ in quarantine}  # reading them may end the process
    lake = replace(lake, files=tuple(file for file in lake.files if file.name not in broken))

    def is_unused(name: str) -> bool:
        return (names_setting(name) or not POINTS.isdisjoint(words_of(name))) and name not in settings.used

    files = FILES if is_remote(lake.root) else MAX_FILES
    try:
        rows = sample_lake(lake, settings, is_unused, files, MAX_ROWS).rows
        names = {name for name in rows.columns if is_unused(name) and rows[name].n_unique() > 1}
        if not names:
            return []
        names |= {part for key in COMPOSITE for part in settings.columns.parts(key)}
        return pooled_settings(sample_lake(lake, settings, names.__contains__, files, MAX_ROWS).rows, settings)
    except DataError:  # counting reports what is wrong with the files
        return []


def pooled_settings(rows: pl.DataFrame, settings: Settings) -> list[str]:
    """Warn of settings that differ within a model and benchmark, but not of texts that only problems differ in."""
    parts = {key: [part for part in settings.columns.parts(key) if part in rows.columns] for key in COMPOSITE}
    warnings = []
    for name in rows.columns:
        column = Column(name, "", rows[name])
        problems = [*parts["benchmark"], *parts["subject"], *parts["problem_id"]]
        point = name not in settings.used and is_point(column, rows, parts["model"], problems)
        if name in settings.used or not (column.is_setting or point):
            continue
        problem = parts["subject"] + parts["problem_id"] if column.kind == "text" else []
        groups = rows.group_by(*parts["benchmark"], *parts["model"], *problem)
        if groups.agg(pl.col(name).n_unique())[name].max() == 1:
            continue
        counts = rows[name].value_counts().sort("count", name, descending=[True, False], nulls_last=True).rows()
        values = ", ".join(f"{value} ({number:,} rows)" for value, number in counts[:5])
        more = f", and {len(counts) - 5:,} more values" if len(counts) > 5 else ""
        apart = f"step = {toml_text(name)}" if point else f"columns = [{toml_text(name)}]"
        fix = f"[{'columns' if point else 'protocol'}] {apart} keeps them apart, "
        fix += f"[columns] carry = [{toml_text(name)}] accepts it"
        what = f"{values}{more}, of {rows.height:,} rows looked at"
        warnings.append(f"rows that differ in {name} are pooled: {what}; {fix}")
    return warnings
