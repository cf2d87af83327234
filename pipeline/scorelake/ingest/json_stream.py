"""Read JSON of any size one record at a time, packed or not, and inspect files to recognise their format by content.

Python's own parser does the parsing, so that NaN and Infinity, which several tools write, are accepted. A key that
occurs twice in an object is refused, since the verdict would be ambiguous. Lines end with \\n only: tools write
U+2028 and similar characters inside of texts.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest.archives import (
    CHUNK,
    GZIP,
    SMALL_RECORD,
    ZIP,
    ZSTD,
    Reading,
    ZipFile,
    archive_errors,
    file_names,
    open_unpacked,
    too_long,
)
from scorelake.ingest.values import quote

TRUNCATED = "the file is truncated or was edited"
LARGE = 1 << 22
"""Characters above which a list or object is read in parts, where parts of it are enough."""
OUTLINE, MAX_OUTLINED, MAX_KEY = 32, 100_000, 256
"""Elements of a list, and keys of an object and their length, that an outline keeps."""
MAX_KEYS = 1_000_000
"""Keys of one streamed object that are remembered to find repeats; repeated attempts are detected anyway."""
_EDGE = 16
"""Characters before the end of the buffer within which an error may come from reading in chunks."""
_SPACE = re.compile(r"[ \t\r\n]*")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r:.80} occurs twice in one object")
    return out


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def load(path: Path) -> Any:
    """Load a small document: a header, a report, a config."""
    with open_unpacked(path) as file:
        return JsonReader(file, str(path)).document()


def load_object(path: Path) -> dict[str, Any]:
    """Load a small document that must be an object."""
    value = load(path)
    if not isinstance(value, dict):
        raise DataError(f"is {quote(value)}, not an object", where=str(path))
    return value


def lines(
    path: Path, torn: list[int] | None = None, reading: Reading | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) of JSON Lines, or of indented objects. A broken record is refused, not skipped.

    If `torn` is given, an incomplete last line ends the file and its number is appended there.
    """
    reading = reading or Reading()
    with open_unpacked(path, reading) as file:
        reader = JsonReader(file, str(path), max_record=reading.max_record)
        last, is_indented = 0, False
        while reader.peek():
            number, _ = reader.line_and_column()
            is_indented |= last == 0 and reader.text[reader.at : reader.at + 80].split("\n")[0].strip() == "{"
            if number == last:
                raise reader.broken("text after the record")
            try:
                record = reader.value()
            except DataError as error:
                cause = error.__context__
                if not isinstance(cause, json.JSONDecodeError):
                    raise
                if torn is None or "\n" in reader.text[reader.at :]:
                    raise reader.broken(cause, number) from None
                torn.append(number)
                return
            if not isinstance(record, dict):
                raise DataError(f"line {number:,} is not an object but {quote(record)}", where=str(path))
            last, _ = reader.line_and_column()
            if last > number and not is_indented:
                raise reader.broken("the record goes on in the next line", number)
            yield number, record


def members(
    path: Path,
    keys: Collection[str] = (),
    chunk: int = CHUNK,
    reading: Reading | None = None,
    skip: Collection[str] = (),
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, name, value) of a document. Elements below `keys` come one by one, named by their index or key.

    With keys=("rows",): {"a": 1, "rows": [5, 6]} -> ("a", None, 1), ("rows", 0, 5), ("rows", 1, 6). Keys may be
    dotted. The elements of a list have the key "". A truncated document and text after its end are refused. A large
    element may lack the keys in `skip`, such as transcripts.
    """
    reading = reading or Reading()
    with open_unpacked(path, reading) as file:
        yield from JsonReader(file, str(path), chunk, reading.max_record).members(keys, skip)


class JsonReader:
    """A buffer that moves over a document and decodes one value at a time."""

    def __init__(self, file: IO[bytes], where: str, chunk: int = CHUNK, max_record: int = SMALL_RECORD) -> None:
        self.file, self.where, self.chunk, self.max_record = file, where, chunk, max_record
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.passed = "", 0, 0
        self.line, self.column, self.counted = 1, 0, 0
        """Line and column of the position up to which they were counted."""
        self.is_complete = False

    def members(self, keys: Collection[str] = (), skip: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
        """Yield (key, name, value); see the function `members`."""
        opening, element = self.peek(), partial(self.value, partial(self.record, skip) if skip else None)
        if opening not in ("[", "{"):
            raise self.broken("neither an object nor a list")
        if opening == "[":
            yield from (("", index, element()) for index in self.items())
        else:
            yield from self.object_members(keys, "", element)
        self.end()

    def object_members(
        self, keys: Collection[str], above: str, element: Callable[[], Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield the members of the object that begins here, whose keys are below the dotted key `above`."""
        for name in self.items():
            key = f"{above}{name}"
            if key in keys and self.peek() in ("[", "{"):
                yield from ((key, inner, element()) for inner in self.items())
            elif self.peek() == "{" and any(other.startswith(f"{key}.") for other in keys):
                yield from self.object_members(keys, f"{key}.", element)
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
        seen: set[int] = set()
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

    def key(self, seen: set[int]) -> str:
        """Read a key and the colon after it."""
        if self.peek() != '"':
            raise self.broken("a key is missing")
        key: str = self.value()
        if hash(key) in seen:
            raise self.broken(f"key {key!r:.80} occurs twice in one object")
        if len(seen) < MAX_KEYS:
            seen.add(hash(key))
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

    def outline(self, left: int = 2 * LARGE) -> Any:
        """Read a list or object of any size: keep its keys or first elements, with values that are not too long."""
        kept: dict[Any, Any] = {}
        opening = self.peek()
        for name in self.items():
            value = self.value(partial(self.outline, left // 2))
            size = len(json.dumps(value)) if left else 1
            if len(kept) < (OUTLINE if opening == "[" else MAX_OUTLINED) and len(str(name)) <= MAX_KEY:
                kept[name] = value if size <= left // 2 else None
            left -= size if size <= left // 2 else 0
        return list(kept.values()) if opening == "[" else kept

    def record(self, skip: Collection[str]) -> dict[Any, Any]:
        """Read a large object one value at a time, without the values of some keys."""
        kept: dict[Any, Any] = {}
        end = self.passed + self.at + self.max_record
        for name in self.items():
            if name in skip:
                start = self.passed + self.at
                self.value(partial(self.outline, 0))
                end += self.passed + self.at - start
            else:
                kept[name] = self.value()
            if self.passed + self.at > end:
                raise too_long("one record", self.max_record, self.where)
        return kept

    def value(self, read_large: Callable[[], Any] | None = None) -> Any:
        """Decode the value that begins here, reading on until it is complete; `read_large` reads a large one."""
        opening = self.peek()
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
            if read_large and opening in ("[", "{") and len(self.text) - self.at > min(LARGE, self.max_record // 2):
                return read_large()
            self.read_more()

    def read_more(self) -> None:
        """Read as much again as is waiting, so that a large value is decoded only a few times."""
        waiting = len(self.text) - self.at
        if waiting > self.max_record:
            raise too_long("one record", self.max_record, self.where)
        raw = self.file.read(min(max(self.chunk, waiting), self.max_record + 1 - waiting))
        self.is_complete = not raw
        self.line_and_column()
        try:
            self.text = self.text[self.at :] + self.decoder.decode(raw, final=self.is_complete)
        except UnicodeDecodeError as error:
            line = self.line + self.text.count("\n", self.at) + error.object.count(b"\n", 0, error.start)
            what = f"line {line:,} is not UTF-8: {error.reason}"
            raise DataError(what, where=self.where, hint="save it as UTF-8") from None
        self.passed += self.at
        self.at = self.counted = 0

    def line_and_column(self) -> tuple[int, int]:
        """Return the line from 1 and the column from 0 of the current position."""
        breaks = self.text.count("\n", self.counted, self.at)
        start = self.text.rfind("\n", self.counted, self.at) + 1 if breaks else self.counted
        self.line, self.column = self.line + breaks, self.at - start + (0 if breaks else self.column)
        self.counted = self.at
        return self.line, self.column

    def broken(self, error: Exception | str, first_line: int = 0) -> DataError:
        """Build the error for the current position, or for the first line of a record that goes on below it."""
        line, column = self.line_and_column()
        line, column = (first_line, 0) if 0 < first_line < line else (line, column)
        what = "nested too deeply" if isinstance(error, RecursionError) else getattr(error, "msg", error)
        at = f"line {line:,}, column {column + 1:,}"
        return DataError(f"broken JSON at {at}: {what}", where=self.where, hint=TRUNCATED)


@dataclass(frozen=True)
class FileProbe:
    """The layout of a file. Names decide nothing."""

    path: Path
    shape: str
    """empty, pointer, zip, parquet, object, list, lines or text."""
    first: dict[str, Any] = field(default_factory=dict)
    """The outline of the document, its first element or its first line; of Parquet and CSV, the names of columns."""
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


def parquet_with(*columns: str) -> Callable[[FileProbe], bool]:
    """Detect a Parquet file by its columns."""
    return lambda probe: probe.shape == "parquet" and probe.has(*columns)


def probe(path: Path) -> FileProbe:
    """Inspect a file. Raises DataError for an archive that cannot be unpacked, and for broken JSON.

    A document is read to its end, since the keys that show its format may follow a long transcript.
    """
    if path.is_file() and (seen := _probe_binary(path)) is not None:  # else a file of a zip
        return seen
    with open_unpacked(path) as file:
        reader, start = JsonReader(file, str(path)), cast(Any, file).peek(16)
        try:
            opening = reader.peek()
        except DataError:
            if start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{"):
                raise
            return FileProbe(path, "text")
        if opening == "[":
            first = next((reader.value(reader.outline) for _ in reader.items()), None)
            return FileProbe(path, "list", first if isinstance(first, dict) else {})
        if opening != "{":
            header = (
                {} if opening == '"' else dict.fromkeys(re.split("[,;\t]", reader.text[:4096].split("\n")[0].strip()))
            )
            return FileProbe(path, "text", header) if opening else FileProbe(path, "empty")
        first = reader.outline()
        return FileProbe(path, "lines" if reader.peek() == "{" else "object", first)


def _probe_binary(path: Path) -> FileProbe | None:
    """Inspect a file that is not packed JSON or text."""
    with path.open("rb") as plain:
        start = plain.read(64)
    if start and any(magic != start and magic.startswith(start) for magic in (GZIP, ZIP, ZSTD, b"PAR1")):
        raise DataError(f"has {len(start)} bytes, the beginning of an archive", where=str(path), hint=TRUNCATED)
    if start.startswith(b"PAR1"):
        with archive_errors(path):
            return FileProbe(path, "parquet", dict.fromkeys(pq.read_schema(path).names))
    if start.startswith(ZIP):
        with archive_errors(path), ZipFile(path) as archive:
            names = tuple(file_names(archive))
        return None if len(names) == 1 else FileProbe(path, "zip", members=names)
    return FileProbe(path, "pointer") if start.startswith(b"version https://git-lfs") else None
