"""Inspect the beginning of a file to recognise its format by content. Names decide nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from scorelake.ingest.json_stream import (
    DECODER,
    ZIP,
    JsonReader,
    ZipFile,
    archive_errors,
    member_names,
    open_unpacked,
)

HEAD = 1 << 18
"""Bytes that are read; of a longer document, the complete values within them are used."""
OUTLINE = 16
"""Elements of a list or object that are kept of a longer document."""
POINTER = b"version https://git-lfs"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


@dataclass(frozen=True)
class FileProbe:
    """What the beginning of a file shows."""

    path: Path
    shape: str
    """empty, pointer, zip, parquet, object, list, lines or text."""
    first: dict[str, Any] = field(default_factory=dict)
    """The document, its first element or its first line, as far as it was read."""
    members: tuple[str, ...] = ()
    """Names inside a zip."""
    is_broken: bool = False
    """The complete document was read and is not JSON."""
    is_cut: bool = False
    """The document, or its first record, is longer than what was read."""

    def has(self, *keys: str) -> bool:
        """Check that the first record has all keys."""
        return all(key in self.first for key in keys)

    @property
    def has_records(self) -> bool:
        """JSON Lines; a file of one line is also a document."""
        return self.shape in ("lines", "object")

    @property
    def keys(self) -> str:
        """The first keys, for messages."""
        names = self.members or tuple(self.first)
        listed = ", ".join(f"{name:.40}" for name in names[:8])
        return f"{listed}, ..." if len(names) > 8 else listed or "none"


def records_with(*keys: str) -> Callable[[FileProbe], bool]:
    """Detect JSON Lines by the keys of the first record."""
    return lambda probe: probe.has_records and probe.has(*keys)


def list_with(*keys: str) -> Callable[[FileProbe], bool]:
    """Detect a JSON list by the keys of its first element."""
    return lambda probe: probe.shape == "list" and probe.has(*keys)


def probe_all(path: Path) -> FileProbe:
    """Inspect a whole document, where its beginning does not show the format. DataError says where it is broken.

    Long values are outlined: of a list or object below the first level, the first elements are kept.
    """
    with open_unpacked(path) as file:
        reader = JsonReader(file, str(path))
        if reader.peek() == "[":
            items = (reader.value() for _ in reader.items())
            first = next(items, None)
            return FileProbe(path, "list", first if isinstance(first, dict) else {})
        first = {name: _outline(reader) for name in reader.items()}
        return FileProbe(path, "lines" if reader.peek() == "{" else "object", first)


def _outline(reader: JsonReader) -> Any:
    opening = reader.peek()
    if opening not in ("[", "{"):
        return reader.value()
    kept: dict[Any, Any] = {}
    for name in reader.items():
        value = reader.value()
        if len(kept) < OUTLINE:
            kept[name] = value
    return list(kept.values()) if opening == "[" else kept


def probe(path: Path) -> FileProbe:  # noqa: PLR0911
    """Inspect the beginning of a file. Raises DataError for an archive that cannot be unpacked."""
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(POINTER):
        return FileProbe(path, "pointer")
    if start.startswith(b"PAR1"):
        return FileProbe(path, "parquet")
    if start.startswith(ZIP):
        with archive_errors(path), ZipFile(path) as archive:
            names = member_names(archive)
        if len(names) != 1:
            return FileProbe(path, "zip", members=names)
    with open_unpacked(path) as file:
        head = file.read(HEAD)
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").lstrip()
    if not text:
        return FileProbe(path, "empty")
    if text[0] not in "{[":
        return FileProbe(path, "text")
    if text[0] == "{":
        line, _, rest = text.partition("\n")
        if rest.lstrip()[:1] == "{":
            try:
                return FileProbe(path, "lines", DECODER.decode(line))
            except (ValueError, RecursionError):
                pass
    value, is_complete = _decode_prefix(text)
    if isinstance(value, list):
        value = value[0] if value else None
    first = value if isinstance(value, dict) else {}
    is_broken = len(head) < HEAD and not is_complete
    shape = "object" if text[0] == "{" else "list"
    return FileProbe(path, shape, first, is_broken=is_broken, is_cut=len(head) == HEAD and not is_complete)


def _decode_prefix(text: str) -> tuple[Any, bool]:
    """Decode the beginning of a document, and return whether it is all of it.

    '{"a": 1, "b": [2, {"c"' -> {"a": 1, "b": [2, {}]}, False
    """
    try:
        value, stop = json.JSONDecoder().raw_decode(text)
        return value, not text[stop:].strip()
    except (ValueError, RecursionError):
        pass
    try:
        # Unlike Python's parser this one refuses half of a surrogate pair, which tools write into texts.
        return from_json(_SURROGATE.sub(r"\\n", text), allow_partial=True), False
    except ValueError:
        return None, False
