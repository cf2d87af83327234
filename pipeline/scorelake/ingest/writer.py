"""The lake that ingest writes: Parquet files per source and benchmark, and one description that names those in force.

What a source contributes is replaced as a whole: new files are added under new names, then `_scorelake.json` is
replaced, which names the files that `score` reads and the columns that they have. An ingest that is killed before
that rename has changed nothing; what it left behind is removed by the next one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import polars.selectors as cs
import pyarrow.parquet as pq

from scorelake.errors import DataError, LockedError, StorageError, UsageError
from scorelake.ingest import values
from scorelake.ingest.contract import KINDS, MEASURES, LogRun, refusal
from scorelake.ingest.staging import StagedRun
from scorelake.storage import disk
from scorelake.storage.files import HIVE_NULL

DESCRIPTION, WORK = "_scorelake.json", "_ingest"
_FILE = re.compile(r"[0-9a-f]{32}\.parquet")
"""Name of a file that ingest writes. No other file is ever removed."""
PROTOCOL = ("temperature", "grader", "setup")
"""Columns that every file has, so that any two files fit into one lake."""
_ATTEMPT = ("subject", "model", "problem_id", "attempt", *PROTOCOL)
"""What identifies an attempt at a benchmark."""
_MAX_BENCHMARKS = 1000
"""A source with more has something else in that column."""
_MAX_FOLDER = 240
_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 1 << 24
"""Size of a row group: large enough to read well, small enough for memory."""


@dataclass(frozen=True)
class TargetLake:
    """A lake as it was before this ingest, which holds its lock."""

    root: Path
    description: dict[str, Any]
    """Empty for a new one."""

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """Records of the sources in force, by key."""
        return dict(self.description.get("sources", {}))

    def unchanged(self, key: str, run: LogRun, options_digest: str) -> dict[str, Any] | None:
        """Return the record of a source that was read with the same content and options, if its files are here."""
        record = self.sources.get(key, {})
        is_same = (record.get("content"), record.get("options")) == (run.digest, options_digest)
        return record if is_same and all((self.root / name).is_file() for name in record["files"]) else None

    def check_conflicts(self, files: Mapping[str, Path], others: Mapping[str, dict[str, Any]]) -> None:
        """Refuse new files with another verdict on an attempt than a file of the lake that stays has."""
        logs = {str(self.root / name): each["report"]["source"] for each in others.values() for name in each["files"]}
        for folder in sorted({name.partition("/")[0] for name in files}):
            new = _scan_attempts([path for name, path in files.items() if name.startswith(f"{folder}/")])
            paths = [self.root / name for each in others.values() for name in each["files"] if name not in files]
            if not (paths := [path for path in paths if path.parent.name == folder]):
                continue
            old = _scan_attempts(paths)
            models = new.select("model").unique()
            pairs = old.join(models, on="model", how="semi").join(new, on=_ATTEMPT, nulls_equal=True)
            for pair in (
                pairs.filter(pl.col("value") != pl.col("value_right")).head(1).collect().iter_rows(named=True)
            ):
                what = f"one attempt, two verdicts: problem {pair['problem_id']}, attempt {pair['attempt']} is"
                what += f" {pair['value_right']:g} in {pair['source_right']} and {pair['value']:g} in the lake"
                raise refusal(
                    what,
                    logs.get(pair["path"], self.root),
                    "ingest both at once to see all, or choose another --lake",
                )

    def commit(self, files: Mapping[str, Path], others: dict[str, Any], written: dict[str, Any]) -> bool:
        """Add new files, make these sources the ones in force, and remove other files. Return whether it changed.

        `others` are records of sources that stay, `written` those of the new files.
        """
        self.check_conflicts(files, others)
        description = _describe(others | written)
        missing = {name: temporary for name, temporary in files.items() if not (self.root / name).exists()}
        if not missing and description["sources"] == self.sources:
            return False
        with disk.storage_errors(self.root):
            if not self.description:
                self._replace(_describe({}))  # from here on `score` reads no file that is not named
            for name, temporary in missing.items():
                final = self.root / name
                final.parent.mkdir(parents=True, exist_ok=True)
                disk.atomic_replace(temporary, final)
            self._replace(description)
            self.remove_others(description["files"])
        return True

    def _replace(self, description: dict[str, Any]) -> None:
        disk.replace_text(self.root / DESCRIPTION, json.dumps(description, indent=1, sort_keys=True) + "\n")

    def remove_others(self, files: Collection[str]) -> None:
        """Remove what ingest wrote and is not in force."""
        for path in self.root.glob("benchmark=*/*.parquet"):
            if _FILE.fullmatch(path.name) and path.relative_to(self.root).as_posix() not in files:
                disk.remove(path)


def _scan_attempts(paths: list[Path]) -> pl.LazyFrame:
    """Read what identifies an attempt, and its value, from files of one benchmark."""
    types = {name: pl.Float64 if name == "temperature" else pl.String for name in (*_ATTEMPT, "source", "path")}
    options: Any = {"glob": False, "hive_partitioning": False, "include_file_paths": "path"}
    value = cs.by_name("passed", "score", require_all=False).cast(pl.Float64)
    frames = [pl.scan_parquet(path, **options).with_columns(value.name.map(lambda name: "value")) for path in paths]
    rows = pl.concat([pl.LazyFrame(schema=types | {"value": pl.Float64}), *frames], how="diagonal")
    return rows.select(*types, "value").with_columns(pl.col("subject").fill_null("all"))


@contextmanager
def open_lake(root: Path) -> Iterator[tuple[TargetLake, Path]]:
    """Lock a lake or create it; return it with a folder for temporary files. One that stays empty is removed.

    A folder with other Parquet files is refused: they would lack our columns.
    """
    if root.exists() and not root.is_dir():
        raise UsageError("is a file", where=str(root), hint="--lake is a folder")
    work, staged = root / WORK, root / WORK / "staged"
    for path in (work, *root.glob("benchmark=*")):
        if path.is_symlink():  # files elsewhere would be replaced or removed
            raise StorageError("is a link to another folder", where=str(path), hint="remove the link")
    with disk.storage_errors(root):
        work.mkdir(parents=True, exist_ok=True)
        lock = disk.open_real(work / "lock")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "wait until it has finished"
            raise LockedError("another ingest is writing here", where=str(root), hint=hint) from None
        try:
            disk.remove(staged)
            target = TargetLake(root, _load_description(root / DESCRIPTION))
            if target.description:
                target.remove_others(target.description["files"])
            elif any(root.rglob("*.parquet")):
                what = "holds Parquet files that ingest did not write"
                raise UsageError(what, where=str(root), hint="give --lake a folder of its own")
            staged.mkdir()
            yield target, staged
        finally:
            disk.remove(staged)
            if not (root / DESCRIPTION).exists():
                disk.remove(work)
                with suppress(OSError):
                    root.rmdir()


def path_key(path: Path) -> str:
    """Return the name of a path in the description."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def source_key(run: LogRun) -> str:
    """Return the name of a source in the description."""
    return f"{path_key(run.path)}-{run.format}"


def _load_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise refusal(f"cannot be read: {error}", path) from None
    is_ours = isinstance(description, dict) and description.get("version") == 1 and "sources" in description
    if not is_ours or not all("outcomes" in record for record in description["sources"].values()):
        hint = "ingest all of its logs again, into a new folder, then remove this one; `score` may still read it"
        raise refusal("was written by another version, so no log can be added or replaced", path, hint)
    return description  # type: ignore[no-any-return]


def _describe(sources: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Describe the files in force: the columns that all of them have."""
    records = [sources[key] for key in sorted(sources)]
    columns = {name: name for name in ("model", "benchmark", "subject", "problem_id", "attempt")}
    columns |= {outcome: outcome for record in records for outcome in record["outcomes"].values()}
    answers: dict[str, set[bool]] = {}
    for record in records:
        for benchmark in (name for name, outcome in record["outcomes"].items() if outcome == "passed"):
            answers.setdefault(benchmark, set()).add(record["has_answers"])
    has_answers = {True} in answers.values() and all(len(each) == 1 for each in answers.values())
    columns["answer"] = "answer" if has_answers else ""
    carried = [record["carried"] for record in records]
    filled = {name for record in records for name in record["measures"]}
    return {
        "version": 1,
        "protocol": list(PROTOCOL),
        "carry": [name for name in (carried or [[]])[0] if all(name in names for names in carried)],
        "columns": columns,
        "measures": {name: {"kind": kind} for name, kind in KINDS.items() if name in filled},
        "files": sorted({name for record in records for name in record["files"]}),
        "sources": dict(sources),
    }


def write_files(staged: StagedRun, outcomes: Mapping[str, str], options_digest: str, folder: Path) -> dict[str, Path]:
    """Write the Parquet files of a source to a folder; return their names in the lake and their paths."""
    run = staged.run
    if len(staged.benchmarks) > _MAX_BENCHMARKS:
        raise refusal(f"{len(staged.benchmarks):,} benchmarks", run.path, "map another column")
    folder.mkdir()
    out: dict[str, Path] = {}
    writers: dict[Any, pq.ParquetWriter] = {}
    with ExitStack() as open_files:
        for batch in staged.batches(_GROUP_ROWS, _GROUP_BYTES):
            benchmark = pl.col("benchmark").fill_null(run.benchmark or "")
            attempts = pl.DataFrame(pl.from_arrow(batch)).with_columns(benchmark)
            for (name,), rows in attempts.partition_by("benchmark", maintain_order=True, as_dict=True).items():
                table = _to_lake_columns(rows, staged, outcomes[name]).to_arrow()
                if name not in writers:
                    # Content and metadata: two models may have the same verdicts.
                    parts = [options_digest, outcomes[name], run.format, run.digest, name]
                    parts += [run.run_id, *map(str, staged.identity)]
                    path = folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.parquet"
                    out[f"benchmark={folder_name(name)}/{path.name}"] = path
                    # Page checksums let `score` detect a damaged file instead of counting wrong values.
                    options: Any = {"compression": "zstd", "write_page_checksum": True, "store_schema": False}
                    writers[name] = open_files.enter_context(pq.ParquetWriter(path, table.schema, **options))
                writers[name].write_table(table)
    return out


def folder_name(benchmark: str) -> str:
    """Encode a benchmark as the value of a Hive folder, so that every name survives."""
    out = quote(benchmark, safe="")
    if out == HIVE_NULL:
        out = f"%5F{out[1:]}"
    if len(out) > _MAX_FOLDER:
        what = f"benchmark {values.quote(benchmark)} is too long for a folder"
        raise DataError(what, hint="name it with --benchmark")
    return out


def _to_lake_columns(rows: pl.DataFrame, staged: StagedRun, outcome: str) -> pl.DataFrame:
    """Convert staged attempts to the columns of the lake.

    PROTOCOL is temperature, where it is a number, grader, and the other settings of source and row as one text.
    """
    run, optional = staged.run, []
    if "subject" in staged.filled or run.subject:
        optional.append(pl.col("subject").fill_null(run.subject or "all"))
    labels = []
    for text in rows["protocol"].unique():
        both = run.protocol | json.loads(text or "{}")
        settings = {key: value for key, value in both.items() if value is not None}
        is_number = type(settings.get("temperature")) in (int, float)
        temperature = float(settings.pop("temperature")) if is_number else None
        grader = settings.pop("grader", None)
        labels.append((text, temperature, None if grader is None else str(grader), format_settings(settings)))
    types = {"protocol": pl.String, "temperature": pl.Float64, "grader": pl.String, "setup": pl.String}
    constants = {
        "source": run.path.name.encode("utf-8", "backslashreplace").decode(),
        "run": run.run_id or None,
        "format": run.format,
        "tool": run.tool,
        "provenance": format_settings(run.provenance),
    }
    protocols = pl.DataFrame(labels, types, orient="row")
    return rows.join(protocols, on="protocol", how="left", nulls_equal=True, maintain_order="left").select(
        *optional,
        pl.col("model").fill_null(pl.lit(run.model, pl.String)),
        *("problem_id", "attempt"),
        (pl.col("value") if outcome == "score" else pl.col("value") == 1.0).alias(outcome),
        *(["answer"] if "answer" in staged.filled else []),
        *(*PROTOCOL, *MEASURES, *staged.carried),
        *(pl.lit(text, pl.String).alias(name) for name, text in constants.items()),
    )


def format_settings(settings: dict[str, Any]) -> str | None:
    """Format settings as one text, ordered by key: a=1; b=x."""
    texts = []
    for key, each in sorted(settings.items()):
        value = int(each) if isinstance(each, float) and each.is_integer() else each  # 1 and 1.0 are equal
        is_plain = isinstance(value, str) and not set(value) & set(';="')  # else it could be read as several settings
        texts.append(f"{key}={value if is_plain else json.dumps(value, ensure_ascii=False)}")
    return "; ".join(texts) or None
