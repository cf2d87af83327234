"""Write attempts into the lake: one Parquet file per source and benchmark, named by its content.

Files are written to a temporary folder and then renamed. The lake also has a description of its columns
(`_scorelake.json`) and the report of every source (`_ingest/`), which `score` does not read as data. A source with
the same content and options is not read again; a source that has changed replaces what was read from it before.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from scorelake.errors import DataError, UsageError
from scorelake.ingest import values
from scorelake.ingest.staging import StagedSource
from scorelake.storage import disk
from scorelake.storage.files import HIVE_NULL

pc: Any = pyarrow.compute
"""Untyped: its stubs accept neither texts nor numbers as arguments."""
DESCRIPTION, REPORTS = "_scorelake.json", "_ingest"
PROTOCOL = ("temperature", "grader", "setup")
"""Columns that every file has, so that any two files fit into one lake."""
_MAX_BENCHMARKS = 1000
"""A source with more has something else in that column."""
_MAX_FOLDER = 240
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 1 << 24
"""Size of a row group: large enough to read well, small enough for memory."""


@dataclass(frozen=True)
class TargetLake:
    """A folder that ingest writes to, as it was before."""

    root: Path
    description: dict[str, Any]
    """Empty for a new one."""

    @classmethod
    def open(cls, root: Path) -> TargetLake:
        """Open or plan a lake. A folder with other Parquet files is refused: they would lack our columns."""
        if root.exists() and not root.is_dir():
            raise UsageError("is a file", where=str(root), hint="--lake is a folder")
        description = _load_description(root)
        if not description and any(root.rglob("*.parquet")):
            what = "holds Parquet files that ingest did not write"
            raise UsageError(what, where=str(root), hint="give --lake a folder of its own")
        return cls(root, description)

    @property
    def outcome(self) -> str | None:
        """passed or score, whichever its files have."""
        columns = self.description.get("columns", {})
        return next((name for name in ("passed", "score") if name in columns), None)

    def report_path(self, source: Path) -> Path:
        """Return where the report of a source is kept; the name does not reveal the source's path."""
        return self.root / REPORTS / f"{hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:32]}.json"

    def previous(self, source: Path) -> dict[str, Any]:
        """Return the stored report of a source; {} if there is none, or its files are gone."""
        stored: dict[str, Any] = disk.read_json(self.report_path(source)) or {}
        is_complete = stored and all((self.root / name).is_file() for name in stored["receipt"]["files"])
        return stored if is_complete else {}

    def commit(
        self,
        files: dict[str, Path],
        reports: dict[Path, dict[str, Any]],
        outcome: str,
        has_answers: bool,
        carried: Sequence[str],
    ) -> None:
        """Write the description, then the data, then the reports: an interrupted commit can be repeated."""
        with disk.storage_errors(self.root):
            (self.root / REPORTS).mkdir(parents=True, exist_ok=True)
            with (self.root / REPORTS / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # one commit at a time
                _describe(self.root, outcome, has_answers, carried)
                for name, temporary in files.items():
                    final = self.root / name
                    final.parent.mkdir(parents=True, exist_ok=True)
                    if not final.exists():
                        disk.atomic_replace(temporary, final)
                for source, report in reports.items():
                    path = self.report_path(source)
                    _remove_replaced(self.root, path, report["receipt"]["files"])
                    disk.replace_text(path, json.dumps(report, indent=1, sort_keys=True) + "\n")


def _load_description(root: Path) -> dict[str, Any]:
    path = root / DESCRIPTION
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from None
    if not isinstance(description, dict) or description.get("version") != 1:
        raise DataError("has an unknown version", where=str(path), hint="give a new folder")
    return description


def _remove_replaced(root: Path, path: Path, kept: Sequence[str]) -> None:
    """Remove files that were read from the same source before, unless another source has them too."""
    old = disk.read_json(path) or {"receipt": {"files": []}}
    replaced = set(old["receipt"]["files"]) - set(kept)
    for other in path.parent.glob("*.json") if replaced else ():
        if other != path:
            replaced -= set(json.loads(other.read_text(encoding="utf-8"))["receipt"]["files"])
    for name in replaced:
        disk.remove(root / name)


def _describe(root: Path, outcome: str, has_answers: bool, carried: Sequence[str]) -> None:
    """Merge the columns of new files with the description: only what every file has can be relied on."""
    old = _load_description(root)
    columns = {name: name for name in ("model", "benchmark", "subject", "problem_id", "attempt", outcome)}
    has_answers = has_answers and old.get("columns", {}).get("answer", "answer") == "answer"
    new = {
        "version": 1,
        "protocol": list(PROTOCOL),
        "carry": [name for name in carried if name in old.get("carry", carried)],
        "columns": columns | {"answer": "answer" if has_answers else ""},
    }
    if old != new:
        disk.replace_text(root / DESCRIPTION, json.dumps(new, indent=1) + "\n")


def write_files(staged: StagedSource, outcome: str, options_digest: str, folder: Path) -> dict[str, Path]:
    """Write the Parquet files of a source to a folder; return their names in the lake and their paths."""
    if len(staged.benchmarks) > _MAX_BENCHMARKS:
        what = f"{len(staged.benchmarks):,} benchmarks"
        raise DataError(what, where=str(staged.source.path), hint="map another column")
    folder.mkdir()
    out: dict[str, Path] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    with ExitStack() as open_files:
        for batch in staged.batches(_GROUP_ROWS, _GROUP_BYTES):
            column = pc.fill_null(batch.column("benchmark"), staged.run.benchmark or "")
            for benchmark in column.unique().to_pylist():
                table = _to_table(batch.filter(pc.equal(column, benchmark)), staged, outcome)
                if benchmark not in writers:
                    file_name = f"{_file_digest(staged, options_digest, benchmark)}.parquet"
                    path = out[f"benchmark={folder_name(benchmark)}/{file_name}"] = folder / file_name
                    # Page checksums let `score` detect a damaged file instead of counting wrong values.
                    writer = pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)
                    writers[benchmark] = open_files.enter_context(writer)
                writers[benchmark].write_table(table)
    return out


def _file_digest(staged: StagedSource, options_digest: str, benchmark: str) -> str:
    """Name a file by its content and metadata, since two models may have the same verdicts."""
    run_id, identity = staged.run.run_id, map(str, staged.identity)
    parts = [options_digest, staged.format, staged.source.digest, benchmark, run_id, *identity]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def folder_name(benchmark: str) -> str:
    """Encode a benchmark as the value of a Hive folder, so that every name survives."""
    out = quote(benchmark, safe="")
    if out == HIVE_NULL:
        out = f"%5F{out[1:]}"
    if len(out) > _MAX_FOLDER:
        what = f"benchmark {values.quote(benchmark)} is too long for a folder"
        raise DataError(what, hint="name it with --benchmark")
    return out


def _to_table(batch: Any, staged: StagedSource, outcome: str) -> pa.Table:
    """Convert staged attempts to the columns of the lake."""
    run = staged.run
    columns: dict[str, Any] = {}
    if staged.has_subjects or run.subject:
        columns["subject"] = pc.fill_null(batch.column("subject"), run.subject or "all")
    columns["model"] = batch.column("model") if run.model is None else pc.fill_null(batch.column("model"), run.model)
    columns |= {name: batch.column(name) for name in ("problem_id", "attempt")}
    value = batch.column("value")
    columns[outcome] = value if outcome == "score" else pc.equal(value, 1.0)
    if staged.has_answers:
        columns["answer"] = batch.column("answer")
    columns |= _protocol_columns(batch.column("protocol"), run.protocol)
    columns |= {name: batch.column(name) for name in staged.carried}
    constants = {
        "source": staged.source.path.name.encode("utf-8", "backslashreplace").decode(),
        "run": run.run_id or None,
        "format": staged.format,
        "tool": run.tool,
        "provenance": format_settings(run.provenance),
    }
    columns |= {name: pa.repeat(pa.scalar(text, pa.string()), len(batch)) for name, text in constants.items()}
    return pa.table(columns)


def _protocol_columns(rows: Any, protocol: dict[str, Any]) -> dict[str, Any]:
    """Combine the settings of the source with those of its rows, once per distinct text."""
    encoded = rows.dictionary_encode()
    labels = [
        _protocol_labels(protocol | json.loads(text or "{}")) for text in [*encoded.dictionary.to_pylist(), None]
    ]
    codes = pc.fill_null(encoded.indices, len(labels) - 1)
    types: list[Any] = [pa.float64(), pa.string(), pa.string()]
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*labels, strict=True), types, strict=True)]
    return {name: column.take(codes) for name, column in zip(PROTOCOL, columns, strict=True)}


def _protocol_labels(protocol: dict[str, Any]) -> tuple[float | None, str | None, str | None]:
    """Return temperature, grader and setup: the other settings as one text, ordered by key."""
    rest = {key: value for key, value in protocol.items() if value is not None}
    temperature = rest.get("temperature")
    is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if is_number:
        del rest["temperature"]
    grader = rest.pop("grader", None)
    setup = format_settings(rest)
    return float(temperature or 0.0) if is_number else None, None if grader is None else str(grader), setup


def format_settings(settings: dict[str, Any]) -> str | None:
    """Format settings as one text, ordered by key: a=1; b=x."""
    return "; ".join(f"{key}={_format_setting(settings[key])}" for key in sorted(settings)) or None


def _format_setting(value: Any) -> str:
    """Format equal values alike (1 and 1.0), and quote a text that could be read as several settings."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and not set(value) & set(';="'):
        return value
    return json.dumps(value, ensure_ascii=False)
