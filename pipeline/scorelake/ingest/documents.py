"""JSON of any size, one record at a time: lines of JSON Lines, or the elements of one large document.

Python's own parser does the parsing, so that NaN and Infinity, which several tools write, are read; what is new here
is only that it never sees more than one record. A key that stands twice in an object is refused: nobody can say which
of two verdicts was meant. Lines end with \\n alone: tools write U+2028 and its like inside of texts.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from scorelake.errors import DataError
from scorelake.ingest import zips

CHUNK = 1 << 20
LARGEST = 1 << 29
"""Characters of one record beyond which it is no record."""
MANY = 1_000_000
"""Keys of one object that are remembered to find one that stands twice; attempts are compared elsewhere anyway."""
_NEAR = 16
"""Characters from the end of what was read within which an error may be a cut of ours."""
_SPACE = re.compile(r"[ \t\r\n]*")
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"key {next(name for name in names if names.count(name) > 1)!r:.80} stands twice in one object"
        )
    return out


DECODER = json.JSONDecoder(object_pairs_hook=_once)


_OPEN: list[IO[bytes]] = []
"""Files that are being read, for whoever wants to know how far."""


@contextmanager
def _watched(file: IO[bytes]) -> Iterator[None]:
    _OPEN.append(file)
    try:
        yield
    finally:
        _OPEN.remove(file)


def position() -> int:
    """How far the file that is being read has been read, in its own bytes."""
    return _OPEN[-1].tell() if _OPEN else 0


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where it is gzip, or a zip of one file. What cannot be unpacked is refused."""
    with zips.unpacking(path), path.open("rb") as plain, _watched(plain):
        magic = plain.read(4)
        plain.seek(0)
        if magic[:2] == GZIP:
            with gzip.open(plain) as file:
                yield cast(IO[bytes], file)
        elif magic == ZIP:
            with zips.ZipFile(plain) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                if len(names) != 1:
                    raise DataError(f"a zip of {len(names)} files", where=str(path), hint="unpack it first")
                with archive.open(names[0]) as file:
                    yield file
        else:
            yield plain


def parsed(text: str, where: str) -> Any:
    """One JSON value and nothing else."""
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise DataError(f"broken JSON: {error.msg}, column {error.colno}", where=where) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON: {_short(error)}", where=where) from None


def _short(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def small(path: Path) -> Any:
    """A document that is read as a whole: a header, a report, a config."""
    with opened(path) as file:
        text = file.read(LARGEST + 1).decode("utf-8-sig")
    if len(text) > LARGEST:
        raise DataError(f"larger than {LARGEST:,} bytes", where=str(path))
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _broken(error.msg, str(path), error.lineno, error.colno) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON: {_short(error)}", where=str(path)) from None


def _broken(what: str, path: str, line: int, column: int) -> DataError:
    return DataError(
        f"broken JSON at line {line:,}, column {column:,}: {what}", where=path, hint="the file is cut or was edited"
    )


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, each with its end where it has one."""
    with opened(path) as file:
        decode = codecs.getdecoder("utf-8")
        number = 0
        while raw := file.readline(LARGEST):
            number += 1
            if len(raw) >= LARGEST and not raw.endswith(b"\n"):
                raise DataError(f"line {number:,} is longer than {LARGEST:,} bytes", where=str(path))
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = decode(raw)[0]
            except UnicodeDecodeError as error:
                what = f"line {number:,} is not UTF-8: {error.reason}"
                raise DataError(what, where=str(path), hint="save it as UTF-8") from None
            yield number, text


def lines(path: Path, torn: list[int] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records of JSON Lines with the number of their line. A broken line is refused, not skipped.

    Where a tool writes a torn last line again (`torn` is given), its number is noted there instead.
    """
    for number, text in texts(path):
        if text.isspace() or not text:
            continue
        try:
            record = DECODER.decode(text)
        except json.JSONDecodeError as error:
            if torn is not None and not text.endswith("\n"):
                torn.append(number)
                return
            raise _broken(error.msg, str(path), number, error.colno) from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"broken JSON at line {number:,}: {_short(error)}", where=str(path)) from None
        if not isinstance(record, dict):
            raise DataError(f"line {number:,} is no object but {_shown(record)}", where=str(path))
        yield number, record


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {json.dumps(value, default=str):.60}"


def members(path: Path, into: Collection[str] = (), chunk: int = CHUNK) -> Iterator[tuple[str, Any, Any]]:
    """(key, name, value) of a document. Values below the keys of `into` come singly, their index or key as name.

    A list as the document has the key "". Anything but whitespace after the document is refused, and so is its end
    before it is complete.
    """
    with opened(path) as file:
        document = Document(file, str(path), chunk)
        yield from document.members(into)
        document.finish()


class Document:
    """A window on a text that moves on as values are taken from it."""

    def __init__(self, file: IO[bytes], where: str, chunk: int = CHUNK) -> None:
        self.file, self.where, self.chunk = file, where, chunk
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.line, self.column = "", 0, 1, 0
        self.end = False

    def members(self, into: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
        opening = self.next()
        if opening == "[":
            yield from (("", i, value) for i, value in self.elements())
        elif opening == "{":
            for key in self.keys():
                first = self.next()
                if key in into and first == "[":
                    yield from ((key, i, value) for i, value in self.elements())
                elif key in into and first == "{":
                    yield from ((key, name, self.value()) for name in self.keys())
                else:
                    yield key, None, self.value()
        else:
            raise self.broken("no object and no list")

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Of a list, from its opening bracket to its closing one."""
        self.take()
        index = 0
        if self.next() == "]":
            self.take()
            return
        while True:
            yield index, self.value()
            index += 1
            if self.separator("]"):
                return

    def keys(self) -> Iterator[str]:
        """Of an object; after each, its value must be taken."""
        seen: set[str] = set()
        self.take()
        if self.next() == "}":
            self.take()
            return
        while True:
            if self.next() != '"':
                raise self.broken("a key is missing")
            key = self.value()
            if key in seen:
                raise self.broken(f"key {key!r:.80} stands twice in one object")
            if len(seen) < MANY:
                seen.add(key)
            if self.next() != ":":
                raise self.broken("':' is missing")
            self.take()
            yield key
            if self.separator("}"):
                return

    def separator(self, closing: str) -> bool:
        """Past a comma, or past the end of what is open (then True)."""
        found = self.next()
        if found not in (",", closing):
            raise self.broken(f"',' or '{closing}' is missing")
        self.take()
        return found == closing

    def finish(self) -> None:
        if self.next():
            raise self.broken("something follows the end of the document")

    def next(self) -> str:
        """The next character that is no whitespace, not taken; "" at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self) -> None:
        self.at += 1

    def value(self) -> Any:
        """The value that begins here; more is read until it is complete."""
        self.next()
        while True:
            try:
                value, stop = DECODER.raw_decode(self.text, self.at)
                left = len(self.text) - stop  # a number near the edge may go on: 1.5e-7 begins with 1
                if self.end or left > _NEAR or (left and not isinstance(value, int | float)):
                    self.at = stop
                    return value
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self.text) - _NEAR or error.msg.startswith("Unterminated")
                if self.end or not cut:
                    self.at = error.pos
                    raise self.broken(error.msg) from None
            except (ValueError, RecursionError) as error:
                raise self.broken(_short(error)) from None
            self.more()

    def more(self) -> bool:
        """Read on, as much again as is waiting, so that a large value is tried only a few times."""
        if self.end:
            return False
        waiting = len(self.text) - self.at
        if waiting > LARGEST:
            raise DataError(f"one record is longer than {LARGEST:,} characters", where=self.where)
        raw = self.file.read(max(self.chunk, waiting))
        self.end = not raw
        past = self.text[: self.at]
        broken = past.count("\n")
        self.line += broken
        self.column = len(past) - past.rfind("\n") - 1 if broken else self.column + len(past)
        self.text = self.text[self.at :] + self.decoder.decode(raw, final=self.end)
        self.at = 0
        return not self.end

    def broken(self, what: str) -> DataError:
        past = self.text[: self.at]
        line = self.line + past.count("\n")
        column = len(past) - past.rfind("\n") if "\n" in past else self.column + len(past) + 1
        return _broken(what, self.where, line, column)
