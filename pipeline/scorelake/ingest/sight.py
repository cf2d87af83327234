"""A first look at a file: what it is by its content, and what the beginning of it says. Names decide nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scorelake.ingest import zips
from scorelake.ingest.documents import DECODER, ZIP, opened

HEAD = 1 << 18
"""Bytes that are looked at; a document is longer, and then its beginning is taken as far as it goes."""
POINTER = b"version https://git-lfs"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)


@dataclass(frozen=True)
class Sight:
    """What was seen of a file."""

    path: Path
    shape: str
    """empty, pointer, zip, parquet, object, list, lines or text."""
    first: dict[str, Any] = field(default_factory=dict)
    """The document itself, its first element, or its first line, as far as the first look goes."""
    members: tuple[str, ...] = ()
    """Names inside a zip."""
    broken: bool = False
    """A document that was looked at as a whole and is none."""

    def has(self, *keys: str) -> bool:
        return all(key in self.first for key in keys)

    @property
    def records(self) -> bool:
        """JSON Lines; one line alone is a document too."""
        return self.shape in ("lines", "object")

    @property
    def keys(self) -> str:
        """For people: the first keys that are there."""
        names = self.members or tuple(self.first)
        shown = ", ".join(f"{name:.40}" for name in names[:8])
        return f"{shown}, ..." if len(names) > 8 else shown or "none"


def look(path: Path) -> Sight:
    """Raises DataError for what is packed and cannot be unpacked."""
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return Sight(path, "empty")
    if start.startswith(POINTER):
        return Sight(path, "pointer")
    if start.startswith(b"PAR1"):
        return Sight(path, "parquet")
    if start.startswith(ZIP):
        names = _names(path)
        if len(names) != 1:
            return Sight(path, "zip", members=names)
    with opened(path) as file:
        head = file.read(HEAD)
    if not head:
        return Sight(path, "empty")
    return _text(path, head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"), len(head) < HEAD)


def _names(path: Path) -> tuple[str, ...]:
    with zips.unpacking(path):
        try:
            with zips.ZipFile(path) as archive:
                return tuple(name for name in archive.namelist() if not name.endswith("/"))
        except ValueError as error:  # a place in the file that is none
            raise EOFError(str(error)) from None


def _text(path: Path, head: str, whole: bool) -> Sight:
    text = head.lstrip()
    if not text:
        return Sight(path, "empty")
    if text[0] == "{":
        line, _, rest = text.partition("\n")
        if rest.lstrip()[:1] == "{":
            try:
                return Sight(path, "lines", DECODER.decode(line))
            except (ValueError, RecursionError):
                pass
        return Sight(path, "object", _object(_prefix(text)), broken=whole and not _parses(text))
    if text[0] == "[":
        items = _prefix(text)
        first = _object(items[0]) if isinstance(items, list) and items else {}
        return Sight(path, "list", first, broken=whole and not _parses(text))
    return Sight(path, "text")


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _prefix(text: str) -> Any:
    """As much of a document as its beginning tells: what is still open is closed after the last whole value."""
    stack: list[str] = []
    cut, closers = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == '"':  # a text that goes on beyond what was read
            break
        if sign in "[{":
            stack.append("]" if sign == "[" else "}")
            cut, closers = token.end(), "".join(reversed(stack))
        elif sign in "]}":
            if not stack or stack.pop() != sign:
                break
            cut, closers = token.end(), "".join(reversed(stack))
            if not stack:
                break
        elif sign == ",":
            cut, closers = token.start(), "".join(reversed(stack))
    try:
        return json.loads(text[:cut] + closers)
    except (ValueError, RecursionError):
        return None
