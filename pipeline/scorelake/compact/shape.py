"""Which files can be counted by codes, and where their columns are. Knows no compiled code: asking is cheap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from scorelake.footer import BOOLEAN, BYTE_ARRAY, INT32, INT64, Footer
from scorelake.settings import Settings
from scorelake.tables import NAMED

CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""Parquet's numbers of the ways to compress pages that can be unpacked here."""
LARGEST_GROUP = 1 << 24
"""Rows of a row group above which its decoded columns would take too much memory."""


class OtherShapeError(Exception):
    """Sound, but stored in a way, or of a variety, that is not counted by codes."""


@dataclass(frozen=True)
class Source:
    """One file, and where its canonical columns come from."""

    path: str
    footer: Footer
    keys: dict[str, str]
    """Canonical name -> name of a column of texts or integers."""
    constants: dict[str, str | None]
    """Canonical name -> the one value it has throughout."""
    passed: str
    number: str | None


def source(
    path: str,
    footer: Footer,
    schema: Mapping[str, pl.DataType],
    hive: Mapping[str, str | None],
    constants: Mapping[str, str],
    settings: Settings,
    words: int,
) -> Source | None:
    """A file with text or integer keys, a boolean verdict and no reward; None if it is not like that."""
    names = settings.columns
    if names.score in schema or schema.get(names.passed) != pl.Boolean:
        return None
    wanted: list[tuple[str, str, str | None]] = [
        ("benchmark", names.benchmark, "default"),
        ("subject", names.subject, "all"),
        ("model", names.model, None),
        ("problem_id", names.problem_id, None),
        *((f"protocol {name}", name, None) for name in settings.protocol.columns),
        *((f"carry:{name}", name, None) for name in settings.carried),
    ]
    keys: dict[str, str] = {}
    fixed: dict[str, str | None] = {}
    for key, name, default in wanted:
        if name not in schema:
            fixed[key] = hive.get(name, default)
        elif name in hive or not (schema[name] == pl.String or (schema[name].is_signed_integer() and key in NAMED)):
            return None
        elif name in constants:
            fixed[key] = constants[name]
        else:
            keys[key] = name
    found = Source(path, footer, keys, fixed, names.passed, names.attempt if words else None)
    return found if _stored_well(found) else None


def _stored_well(source: Source) -> bool:
    """Whether every column is stored in a way that is read here."""
    kinds: dict[str, tuple[int, ...]] = dict.fromkeys(source.keys.values(), (BYTE_ARRAY, INT32, INT64))
    kinds[source.passed] = (BOOLEAN,)
    if source.number is not None:
        kinds[source.number] = (INT32, INT64)
    chunks = [chunk for name in kinds for chunk in source.footer.of(name)]
    return len(chunks) == len(kinds) * source.footer.groups and all(
        chunk.kind in kinds[chunk.name]
        and chunk.optional is not None
        and chunk.codec in CODECS
        and 0 <= chunk.rows <= LARGEST_GROUP
        and min(chunk.start, chunk.size) >= 0
        for chunk in chunks
    )
