"""A first look at a lake that nobody has described yet: its columns and folders, and some rows of some files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa

from scorelake.errors import DataError
from scorelake.lake.download import at_hand
from scorelake.lake.listing import Lake
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import is_remote
from scorelake.storage.files import File, Shard

FILES, GROUPS, ROWS = 8, 3, 3000
"""How many files are looked at, how many row groups of each, and how many rows of each of those."""
_SHOWN = 4
_LONG = 30


class Everything:
    """Every column of a copy."""

    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True)
class Column:
    """One column, or one key of the folders' names, and what some of its values are."""

    name: str
    type: str
    values: pl.Series
    folder: bool = False

    @cached_property
    def known(self) -> pl.Series:
        """The different values that occur, null left out."""
        return self.values.drop_nulls().unique().sort()

    @property
    def kind(self) -> str:
        """boolean, whole, number, text, empty, or other for what is none of these."""
        kind = self.values.dtype
        if not len(self.known):
            return "empty"
        if kind == pl.Boolean:
            return "boolean"
        if kind.is_integer():
            return "whole"
        if kind.is_numeric():
            return "number"
        return "text" if kind == pl.String else "other"

    @property
    def told(self) -> str:
        """What it is, for a person: its type and some of its values."""
        some = [_short(str(value)) for value in self.known.head(_SHOWN).to_list()]
        more = ", ..." if len(self.known) > _SHOWN else ""
        kinds = {"boolean": "booleans", "whole": "whole numbers", "number": "numbers", "text": "texts"}
        what = "folders" if self.folder else kinds.get(self.kind, self.type)
        return f"{what}: {', '.join(some)}{more}" if some else f"{what} with nothing but nulls"


@dataclass(frozen=True)
class Seen:
    """What a look at a lake has shown."""

    files: int
    looked_at: int
    rows: pl.DataFrame
    """Rows side by side, folders as columns, to see which columns tell rows apart."""
    columns: dict[str, Column]


def look(lake: Lake, settings: Settings) -> Seen:
    """Some rows of some files; one that cannot be read is passed over, unless none can."""
    shard = Shard(lake.root, tuple(_some(lake)))
    types: dict[str, str] = {}
    frames, first = list[pl.DataFrame](), "no rows"
    with TemporaryDirectory() as aside, at_hand(shard, Path(aside) / "lake", settings, Everything()) as here:
        for file in here.files:
            try:
                frames += list(_frames(Path(here.root) / file.path, file, types))
            except (pa.ArrowException, pl.exceptions.PolarsError, parquet.DamagedError, UnicodeError, OSError) as why:
                trouble = parquet.machine_trouble(why)
                if trouble is not None:
                    raise trouble from why
                first = f"{file.path}: {(str(why).strip() or type(why).__name__).splitlines()[0]}"
    if not frames:
        raise DataError(f"none of {len(shard.files):,} files has rows that can be read ({first})", where=lake.root)
    rows = _together(frames)
    columns = {name: Column(name, types.get(name, "text"), rows[name], name not in types) for name in rows.columns}
    return Seen(len(lake.files), len(shard.files), rows, columns)


def _some(lake: Lake) -> Sequence[File]:
    """A few files from everywhere in the lake; of object storage the smallest, since they are brought here whole."""
    if is_remote(lake.root):
        return sorted(lake.files, key=lambda file: (file.size, file.path))[:FILES]
    step = max(1, len(lake.files) // FILES)
    return lake.files[::step][:FILES]


def _frames(path: Path, file: File, types: dict[str, str]) -> Iterator[pl.DataFrame]:
    told = parquet.footer(str(path))
    schema = told.schema.to_arrow_schema()
    types |= {field.name: str(field.type) for field in schema if field.name not in types}
    names = [field.name for field in schema if not pa.types.is_nested(field.type)]
    full = [i for i in range(told.num_row_groups) if told.row_group(i).num_rows]
    for group in full[:: max(1, len(full) // GROUPS)][:GROUPS]:
        batch = next(parquet.batches(str(path), told, [group], names, ROWS))
        frame = pl.DataFrame({name: _series(batch.column(name)) for name in names})
        beside = file.beside(parquet.field_ids(schema)).items()
        folders = {key: value for key, value in beside if key not in types}
        yield frame.with_columns(pl.lit(value, pl.String).alias(key) for key, value in folders.items())


def _series(column: Any) -> pl.Series:
    """Values as Polars has them, texts of any sort as texts."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    column.validate(full=True)
    values = pl.Series(values=column)
    return values.cast(pl.String) if values.dtype in (pl.Categorical, pl.Enum, pl.Binary) else values


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames one below the other; a column of several types is one of texts."""
    kinds: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            kinds.setdefault(name, set()).add(kind)
    mixed = [name for name, some in kinds.items() if len(some - {pl.Null()}) > 1]
    even = [frame.with_columns(pl.col(set(mixed) & set(frame.columns)).cast(pl.String)) for frame in frames]
    return pl.concat(even, how="diagonal_relaxed")


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain if len(plain) <= _LONG else f"{plain[: _LONG - 3]}..."
