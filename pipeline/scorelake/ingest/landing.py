"""Attempts into the lake: one Parquet file per source and benchmark, named by its content, aside and then renamed.

Beside the data, where `score` does not look, the lake keeps a description of its columns (`_scorelake.json`) and the
receipt of every source (`_ingest/`). The receipt says what a source was when it was read: the same source with the
same options is not read again, and one that has changed replaces what was read from it before.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from scorelake.errors import DataError, UsageError
from scorelake.ingest.reading import NAMES, Reading, staged_rows
from scorelake.ingest.values import shown
from scorelake.storage import disk
from scorelake.storage.files import HIVE_NULL

pc: Any = pyarrow.compute
"""Whose own hints know neither texts nor numbers as arguments."""
DESCRIPTION, RECEIPTS = "_scorelake.json", "_ingest"
PROTOCOL = ("temperature", "grader", "setup")
"""Columns that every file has, so that any two files fit into one lake."""
_MOST = 1000
"""Benchmarks in one source beyond which the column is none."""
_LONGEST = 240
"""Bytes of a folder's name."""


@dataclass(frozen=True)
class Lake:
    """A folder that ingest writes to, as it was found."""

    root: Path
    described: dict[str, Any]
    """Empty for a new one."""

    @classmethod
    def at(cls, root: Path) -> Lake:
        """Refuses a folder with Parquet files that are not ours: they would lack our columns."""
        if root.exists() and not root.is_dir():
            raise UsageError("is a file", where=str(root), hint="--lake is a folder")
        try:
            described = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))
        except FileNotFoundError:
            described = {}
        except ValueError as error:
            raise DataError(f"cannot be read: {error}", where=str(root / DESCRIPTION)) from None
        if not isinstance(described, dict) or (described and described.get("version") != 1):
            raise DataError("is of another version", where=str(root / DESCRIPTION), hint="give a new folder")
        if not described and any(root.rglob("*.parquet")):
            raise UsageError(
                "holds Parquet files that ingest did not write",
                where=str(root),
                hint="give --lake a folder of its own",
            )
        return cls(root, described)

    @property
    def kind(self) -> str | None:
        """passed or score, whichever its files have."""
        columns = self.described.get("columns", {})
        return next((kind for kind in ("passed", "score") if kind in columns), None)

    def receipt(self, place: str) -> dict[str, Any]:
        """What was noted when the source at that place was read; empty if it was not, or its files are gone."""
        try:
            noted = json.loads((self.root / RECEIPTS / f"{place}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return noted if all((self.root / name).is_file() for name in noted["receipt"]["files"]) else {}


def place_of(path: Path) -> str:
    """Names a place on this machine without telling where it is."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def write(reading: Reading, kind: str, digest: str, home: Path) -> dict[str, Path]:
    """Parquet files aside: their names in the lake, and where they lie. Rows keep their order."""
    if len(reading.benchmarks) > _MOST:
        raise DataError(
            f"{len(reading.benchmarks):,} benchmarks", where=str(reading.source.path), hint="map another column"
        )
    out: dict[str, Path] = {}
    with ExitStack() as open_files:
        writers: dict[str, RowGroups] = {}
        for batch in staged_rows(reading):
            for benchmark, mine in _benchmarks(batch, reading):
                if benchmark not in writers:
                    name = f"benchmark={folder(benchmark)}/{_name(reading, digest, benchmark)}.parquet"
                    out[name] = home / f"{len(out)}.parquet"
                    writers[benchmark] = open_files.enter_context(closing(RowGroups(out[name])))
                writers[benchmark].add(_table(mine, reading, kind))
    return out


class RowGroups:
    """A Parquet file in the making, with row groups that are worth reading at once and fit into memory."""

    ROWS, BYTES = 1 << 17, 1 << 24

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer: pq.ParquetWriter | None = None
        self.waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self.waiting.append(table)
        if sum(map(len, self.waiting)) >= self.ROWS or sum(each.nbytes for each in self.waiting) >= self.BYTES:
            self._flush()

    def _flush(self) -> None:
        whole = pa.concat_tables(self.waiting)
        self.waiting = []
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, whole.schema, compression="zstd", write_page_checksum=True)
        self.writer.write_table(whole)

    def close(self) -> None:
        if self.waiting:
            self._flush()
        if self.writer is not None:
            self.writer.close()


def _benchmarks(batch: Any, reading: Reading) -> Iterator[tuple[str, Any]]:
    """The rows of each benchmark."""
    column = batch.column("benchmark")
    if reading.benchmark is not None:
        column = pc.fill_null(column, reading.benchmark)
    for name in column.unique().to_pylist():
        yield name, batch.filter(pc.equal(column, name))


def _name(reading: Reading, digest: str, benchmark: str) -> str:
    """By content, and by what is known of it from elsewhere: two models may have the same verdicts."""
    told = [digest, reading.format, reading.source.digest, benchmark, reading.run, *map(str, reading.salt)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def folder(benchmark: str) -> str:
    """A benchmark as the value of a Hive folder, so that every name survives."""
    out = quote(benchmark, safe="")
    if out == HIVE_NULL:
        out = f"%5F{out[1:]}"
    if len(out) > _LONGEST:
        raise DataError(f"benchmark {shown(benchmark)} is too long for a folder", hint="name it with --benchmark")
    return out


def _table(batch: Any, reading: Reading, kind: str) -> pa.Table:
    """Attempts in our columns."""
    many = len(batch)

    def text(value: str | None) -> Any:
        return pa.repeat(pa.scalar(value, pa.string()), many)

    def filled(name: str, default: str | None) -> Any:
        column = batch.column(name)
        return column if default is None else pc.fill_null(column, default)

    columns: dict[str, Any] = {}
    for name in NAMES:
        if name == "subject" and (reading.subjects or reading.subject):
            columns[name] = filled(name, reading.subject or "all")
        elif name == "model":
            columns[name] = filled(name, reading.model)
    columns |= {name: batch.column(name) for name in ("problem_id", "attempt")}
    value = batch.column("value")
    columns[kind] = value if kind == "score" else pc.equal(value, 1.0)
    if reading.answers:
        columns["answer"] = batch.column("answer")
    columns |= _protocol(batch, reading)
    columns |= {name: batch.column(name) for name in reading.carried}
    columns |= {name: text(value) for name, value in _facts(reading)}
    return pa.table(columns)


def _facts(reading: Reading) -> list[tuple[str, str | None]]:
    return [
        ("source", reading.source.path.name.encode("utf-8", "backslashreplace").decode()),
        ("run", reading.run or None),
        ("format", reading.format),
        ("tool", reading.tool),
    ]


def _protocol(batch: Any, reading: Reading) -> dict[str, Any]:
    """temperature and grader as they are, the rest as one text in the order of its keys."""
    told = batch.column("protocol").dictionary_encode()
    labels = [_labels(reading.protocol | json.loads(some or "{}")) for some in [*told.dictionary.to_pylist(), None]]
    codes = pc.fill_null(told.indices, len(labels) - 1)
    kinds = {"temperature": pa.float64()}
    return {
        name: pa.array([each[i] for each in labels], kinds.get(name, pa.string())).take(codes)
        for i, name in enumerate(PROTOCOL)
    }


def _labels(protocol: dict[str, Any]) -> tuple[float | None, str | None, str | None]:
    rest = dict(protocol)
    temperature: Any = rest.get("temperature")
    number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if number:
        rest.pop("temperature")
    grader = rest.pop("grader", None)
    setup = "; ".join(f"{key}={_spelled(rest[key])}" for key in sorted(rest) if rest[key] is not None)
    return float(temperature) if number else None, None if grader is None else str(grader), setup or None


def _spelled(value: Any) -> str:
    """Equal values alike: 1 is 1.0. A text that could be taken for more than one setting is quoted."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and not set(value) & set(';="'):
        return value
    return json.dumps(value, ensure_ascii=False)


# --- into place ---------------------------------------------------------------------------------------------------


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """One at a time into a lake."""
    home = root / RECEIPTS
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def land(lake: Lake, files: dict[str, Path], notes: dict[str, dict[str, Any]], shape: dict[str, Any]) -> None:
    """The description first, then the data, then the receipts: whatever is interrupted can be done again."""
    with disk.storage_errors(lake.root), locked(lake.root):
        _describe(lake.root, shape)
        for name, aside in files.items():
            final = lake.root / name
            final.parent.mkdir(parents=True, exist_ok=True)
            if not final.exists():
                disk.atomic_replace(aside, final)
        for place, note in notes.items():
            path = lake.root / RECEIPTS / f"{place}.json"
            _forget(lake.root, path, note["receipt"]["files"])
            disk.replace_text(path, json.dumps(note, indent=1, sort_keys=True) + "\n")


def _forget(root: Path, path: Path, kept: Sequence[str]) -> None:
    """Remove what was read from the same place before, unless it was read from elsewhere too."""
    try:
        old = json.loads(path.read_text(encoding="utf-8"))["receipt"]["files"]
    except (FileNotFoundError, ValueError, KeyError):
        return
    gone = set(old) - set(kept)
    if not gone:
        return
    others = [other for other in path.parent.glob("*.json") if other != path]
    gone -= {name for other in others for name in json.loads(other.read_text(encoding="utf-8"))["receipt"]["files"]}
    for name in gone:
        disk.remove(root / name)


def _describe(root: Path, shape: dict[str, Any]) -> None:
    """Merge what the new files have with what is described already: only what every file has can be relied on."""
    path = root / DESCRIPTION
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = {}
    columns = {name: name for name in ("model", "benchmark", "subject", "problem_id", "attempt", shape["kind"])}
    answers = shape["answers"] and there.get("columns", {}).get("answer", "answer") == "answer"
    carry = [name for name in shape["carried"] if name in there.get("carry", shape["carried"])]
    told = {
        "version": 1,
        "protocol": list(PROTOCOL),
        "carry": carry,
        "columns": columns | {"answer": "answer" if answers else ""},
    }
    if there != told:
        disk.replace_text(path, json.dumps(told, indent=1) + "\n")
