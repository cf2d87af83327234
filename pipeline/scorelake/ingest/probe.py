"""Inspect the beginning of a file to recognise its format by content. Names decide nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scorelake.ingest import zips
from scorelake.ingest.json_stream import DECODER, ZIP, open_unpacked

HEAD = 1 << 18
"""Bytes that are read; of a longer document, the complete values within them are used."""
POINTER = b"version https://git-lfs"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)


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


def probe(path: Path) -> FileProbe:  # noqa: PLR0911
    """Inspect a file. Raises DataError for an archive that cannot be unpacked."""
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(POINTER):
        return FileProbe(path, "pointer")
    if start.startswith(b"PAR1"):
        return FileProbe(path, "parquet")
    if start.startswith(ZIP):
        names = _member_names(path)
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
    is_broken = len(head) < HEAD and _decode(text) is None
    value = _decode_prefix(text)
    if isinstance(value, list):
        value = value[0] if value else None
    first = value if isinstance(value, dict) else {}
    return FileProbe(path, "object" if text[0] == "{" else "list", first, is_broken=is_broken)


def _member_names(path: Path) -> tuple[str, ...]:
    with zips.archive_errors(path):
        try:
            with zips.ZipFile(path) as archive:
                return tuple(name for name in archive.namelist() if not name.endswith("/"))
        except ValueError as error:  # a negative offset
            raise EOFError(str(error)) from None


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _decode_prefix(text: str) -> Any:
    """Decode the beginning of a document: cut it after the last complete value and close what is open.

    '{"a": 1, "b": [2, {"c"' -> {"a": 1, "b": [2, {}]}
    """
    stack: list[str] = []
    cut, closers = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == '"':  # a text that goes on beyond what was read
            break
        if sign in "[{":
            stack.append("]" if sign == "[" else "}")
            cut = token.end()
        elif sign in "]}":
            if not stack or stack.pop() != sign:
                break
            cut = token.end()
        elif sign == ",":
            cut = token.start()
        else:
            continue
        closers = "".join(reversed(stack))
        if not stack:
            break
    return _decode(text[:cut] + closers)
