"""Read JSON of any size one record at a time, packed or not, and inspect files to recognise their format by content.

Python's own parser does the parsing, so that NaN and Infinity, which several tools write, are accepted. A key that
occurs twice in an object is refused, since the verdict would be ambiguous. Lines end with \\n only: tools write
U+2028 and similar characters inside of texts.
"""

from __future__ import annotations

import codecs
import gzip
import itertools
import json
import lzma
import re
import struct
import sys
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.values import quote
from scorelake.storage.parquet import MACHINE

# Inspect compresses the members of its archives with zstd, which Python's own zipfile reads from 3.14 on.
if sys.version_info >= (3, 14):
    from zipfile import BadZipFile, ZipFile

    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile
    from backports.zstd.zipfile import BadZipFile, ZipFile

__all__ = ["ZipFile"]

CHUNK = 1 << 20
MAX_RECORD = 1 << 27
"""Maximum length of one record, in characters: a packed file of 1 MB may have records of 1 GB."""
MAX_KEYS = 1_000_000
"""Keys of one streamed object that are remembered to find repeats; repeated attempts are detected anyway."""
_EDGE = 16
"""Characters before the end of the buffer within which an error may come from reading in chunks."""
_SPACE = re.compile(r"[ \t\r\n]*")
GZIP, ZIP, ZSTD = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_DAMAGED = (BadZipFile, ZstdError, zlib.error, lzma.LZMAError, EOFError, struct.error, RuntimeError, ValueError)
"""Errors of unpacking what is truncated, damaged (a negative offset is a ValueError), encrypted, or not UTF-8."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r:.80} occurs twice in one object")
    return out


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


@contextmanager
def archive_errors(path: object) -> Iterator[None]:
    """Turn errors caused by the content of a file into refusals; errors of the machine pass."""
    try:
        yield
    except (OSError, *_DAMAGED) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise
        reason = str(error) or type(error).__name__
        if isinstance(error, UnicodeDecodeError):
            reason = f"not UTF-8: {error.reason} {error.object[error.start : error.start + 4]!r}"
        what = f"cannot be read to its end ({reason})"
        raise DataError(what, where=str(path), hint="copy the complete file again") from None


@contextmanager
def open_unpacked(path: Path, opened: list[IO[bytes]] | None = None) -> Iterator[IO[bytes]]:
    """Open a file; gzip, zstd, and a zip of one file, are unpacked. Damaged archives are refused.

    `archive.zip/folder/a.json` is a file in a zip of several.
    """
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    with ExitStack() as files, archive_errors(path):
        plain = files.enter_context((archive or path).open("rb"))
        if opened is not None:
            opened[:] = [plain]
        if archive is not None:
            file = files.enter_context(ZipFile(plain))
            yield files.enter_context(file.open(path.relative_to(archive).as_posix()))
            return
        magic = plain.read(4)
        plain.seek(0)
        if magic[:2] == GZIP:
            yield cast(IO[bytes], files.enter_context(gzip.open(plain)))
        elif magic == ZSTD:
            yield cast(IO[bytes], files.enter_context(ZstdFile(plain)))
        elif magic == ZIP:
            file = files.enter_context(ZipFile(plain))
            names = [name for name in file.namelist() if not name.endswith("/")]
            if len(names) != 1:
                raise DataError(f"a zip of {len(names)} files", where=str(path), hint="unpack it first")
            yield files.enter_context(file.open(names[0]))
        else:
            yield plain


def decode(text: str, where: str, line: int | None = None) -> Any:
    """Decode one JSON value. Errors name the line: the given one, or that within the text."""
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _broken(error, where, line or int(getattr(error, "lineno", 1)), getattr(error, "colno", 1)) from None


def _broken(error: Exception | str, where: str, line: int, column: int) -> DataError:
    what = "nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", error)
    hint = "the file is truncated or was edited"
    return DataError(f"broken JSON at line {line:,}, column {column:,}: {what}", where=where, hint=hint)


def load(path: Path) -> Any:
    """Load a small document: a header, a report, a config."""
    with open_unpacked(path) as file:
        return JsonReader(file, str(path)).document()


def load_object(path: Path) -> dict[str, Any]:
    """Load a small document that must be an object."""
    value = load(path)
    if not isinstance(value, dict):
        raise DataError(f"{path.name} is {quote(value)}, not an object")
    return value


def text_lines(path: Path, opened: list[IO[bytes]] | None = None) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, including the line end."""
    with open_unpacked(path, opened) as file:
        number = 0
        while raw := file.readline(MAX_RECORD):
            number += 1
            if len(raw) >= MAX_RECORD and not raw.endswith(b"\n"):
                raise DataError(f"line {number:,} is longer than {MAX_RECORD:,} bytes", where=str(path))
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                what = f"line {number:,} is not UTF-8: {error.reason}"
                raise DataError(what, where=str(path), hint="save it as UTF-8") from None
            yield number, text


def lines(
    path: Path, torn: list[int] | None = None, opened: list[IO[bytes]] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) of JSON Lines. A broken line is refused; a last one may be appended to `torn`."""
    for number, text in text_lines(path, opened):
        if not text.strip():
            continue
        if number == 1 and text.strip() == "{":  # one indented document
            yield number, load_object(path)
            return
        try:
            record = decode(text, str(path), number)
        except DataError as error:
            if torn is not None and isinstance(error.__context__, json.JSONDecodeError) and not text.endswith("\n"):
                torn.append(number)
                return
            raise
        if not isinstance(record, dict):
            raise DataError(f"line {number:,} is not an object but {quote(record)}", where=str(path))
        yield number, record


def members(
    path: Path, keys: Collection[str] = (), chunk: int = CHUNK, opened: list[IO[bytes]] | None = None
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, name, value) of a document. Elements below `keys` come one by one, named by their index or key.

    With keys=("rows",): {"a": 1, "rows": [5, 6]} -> ("a", None, 1), ("rows", 0, 5), ("rows", 1, 6). Keys may be
    dotted. The elements of a list have the key "". A truncated document and text after its end are refused.
    """
    with open_unpacked(path, opened) as file:
        yield from JsonReader(file, str(path), chunk).members(keys)


class JsonReader:
    """A buffer that moves over a document and decodes one value at a time."""

    def __init__(self, file: IO[bytes], where: str, chunk: int = CHUNK) -> None:
        self.file, self.where, self.chunk = file, where, chunk
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.line, self.column = "", 0, 1, 0
        self.is_complete = False

    def members(self, keys: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
        """Yield (key, name, value); see the function `members`."""
        opening = self.peek()
        if opening not in ("[", "{"):
            raise self.broken("neither an object nor a list")
        if opening == "[":
            yield from (("", index, self.value()) for index in self.items())
        else:
            yield from self.object_members(keys, "")
        self.end()

    def object_members(self, keys: Collection[str], above: str) -> Iterator[tuple[str, Any, Any]]:
        """Yield the members of the object that begins here, whose keys are below the dotted key `above`."""
        for name in self.items():
            key = f"{above}{name}"
            if key in keys and self.peek() in ("[", "{"):
                yield from ((key, inner, self.value()) for inner in self.items())
            elif self.peek() == "{" and any(other.startswith(f"{key}.") for other in keys):
                yield from self.object_members(keys, f"{key}.")
            else:
                yield key, None, self.value()

    def document(self) -> Any:
        """Decode all of it."""
        value = self.value()
        self.end()
        return value

    def end(self) -> None:
        """Refuse text after the end of the document."""
        if self.peek():
            raise self.broken("text after the end of the document")

    def items(self) -> Iterator[Any]:
        """Yield every index of the list, or key of the object, that begins here; the caller takes each value."""
        closing = "]" if self.peek() == "[" else "}"
        seen: set[str] = set()
        self.at += 1
        for index in itertools.count():
            following = self.peek()
            if following == closing:
                self.at += 1
                return
            if index and following != ",":
                raise self.broken(f"',' or '{closing}' is missing")
            self.at += index > 0
            yield index if closing == "]" else self.key(seen)

    def key(self, seen: set[str]) -> str:
        """Read a key and the colon after it."""
        if self.peek() != '"':
            raise self.broken("a key is missing")
        key: str = self.value()
        if key in seen:
            raise self.broken(f"key {key!r:.80} occurs twice in one object")
        if len(seen) < MAX_KEYS:
            seen.add(key)
        if self.peek() != ":":
            raise self.broken("':' is missing")
        self.at += 1
        return key

    def peek(self) -> str:
        """Return the next character that is not whitespace; "" at the end."""
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.text) or self.is_complete:
                return self.text[self.at : self.at + 1]
            self.read_more()

    def value(self) -> Any:
        """Decode the value that begins here; read on until it is complete."""
        self.peek()
        while True:
            try:
                value, stop = DECODER.raw_decode(self.text, self.at)
                left = len(self.text) - stop  # a number near the edge may go on: 1.5e-7 begins with 1
                if self.is_complete or left > _EDGE or (left and not isinstance(value, int | float)):
                    self.at = stop
                    return value
            except (ValueError, RecursionError) as error:
                at = error.pos if isinstance(error, json.JSONDecodeError) else -1
                may_be_cut = at >= len(self.text) - _EDGE or str(error).startswith("Unterminated")
                if self.is_complete or not may_be_cut:
                    self.at = max(at, self.at)
                    raise self.broken(error) from None
            self.read_more()

    def read_more(self) -> None:
        """Read as much again as is waiting, so that a large value is decoded only a few times."""
        waiting = len(self.text) - self.at
        if waiting > MAX_RECORD:
            raise DataError(f"one record is longer than {MAX_RECORD:,} characters", where=self.where)
        raw = self.file.read(min(max(self.chunk, waiting), MAX_RECORD + 1 - waiting))
        self.is_complete = not raw
        self.line, self.column = self.line_and_column()
        self.text = self.text[self.at :] + self.decoder.decode(raw, final=self.is_complete)
        self.at = 0

    def line_and_column(self) -> tuple[int, int]:
        """Return the line from 1 and the column from 0 of the current position."""
        past = self.text[: self.at]
        breaks = past.count("\n")
        return self.line + breaks, len(past) - past.rfind("\n") - 1 if breaks else self.column + len(past)

    def broken(self, error: Exception | str) -> DataError:
        """Build the error for the current position."""
        line, column = self.line_and_column()
        return _broken(error, self.where, line, column + 1)


OUTLINE = 32
"""Elements of a list or object that a probe keeps."""


@dataclass(frozen=True)
class FileProbe:
    """The layout of a file. Names decide nothing."""

    path: Path
    shape: str
    """empty, pointer, zip, parquet, object, list, lines or text."""
    first: dict[str, Any] = field(default_factory=dict)
    """The outline of the document, its first element or its first line; of Parquet, the names of the columns."""
    members: tuple[str, ...] = ()
    """Names inside a zip."""

    def has(self, *keys: str) -> bool:
        """Check that the first record has all keys."""
        return all(key in self.first for key in keys)

    @property
    def has_records(self) -> bool:
        """JSON Lines; a file of one line is also a document."""
        return self.shape in ("lines", "object")


def records_with(*keys: str) -> Callable[[FileProbe], bool]:
    """Detect JSON Lines by the keys of the first record."""
    return lambda probe: probe.has_records and probe.has(*keys)


def list_with(*keys: str) -> Callable[[FileProbe], bool]:
    """Detect a JSON list by the keys of its first element."""
    return lambda probe: probe.shape == "list" and probe.has(*keys)


def probe(path: Path) -> FileProbe:
    """Inspect a file. Raises DataError for an archive that cannot be unpacked, and for broken JSON.

    A document is read to its end, since the keys that show its format may follow a long transcript.
    """
    if path.is_file() and (seen := _probe_binary(path)) is not None:  # else a file of a zip
        return seen
    with open_unpacked(path) as file:
        reader = JsonReader(file, str(path))
        try:
            opening = reader.peek()
        except UnicodeDecodeError:
            return FileProbe(path, "text")
        if opening == "[":
            first = next((reader.value() for _ in reader.items()), None)
            return FileProbe(path, "list", first if isinstance(first, dict) else {})
        if opening != "{":
            return FileProbe(path, "text" if opening else "empty")
        first = {name: _outline(reader) for name in reader.items()}
        return FileProbe(path, "lines" if reader.peek() == "{" else "object", first)


def _probe_binary(path: Path) -> FileProbe | None:
    """Inspect a file that is not packed JSON or text."""
    with path.open("rb") as plain:
        start = plain.read(64)
    if start.startswith(b"PAR1"):
        with archive_errors(path):
            return FileProbe(path, "parquet", dict.fromkeys(pq.read_schema(path).names))
    if start.startswith(ZIP):
        with archive_errors(path), ZipFile(path) as archive:
            names = tuple(name for name in archive.namelist() if not name.endswith("/"))
        return None if len(names) == 1 else FileProbe(path, "zip", members=names)
    return FileProbe(path, "pointer") if start.startswith(b"version https://git-lfs") else None


def _outline(reader: JsonReader) -> Any:
    """Read a value; of a long list or object, also of one in an object, keep the first elements."""
    opening = reader.peek()
    if opening not in ("[", "{"):
        return reader.value()
    kept: dict[Any, Any] = {}
    for name in reader.items():
        value = _outline(reader) if opening == "{" else reader.value()
        kept |= {name: value} if len(kept) < OUTLINE else {}
    return list(kept.values()) if opening == "[" else kept
