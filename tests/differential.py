# ruff: noqa: T201
"""Random lakes, counted by scorelake and again by a dictionary: `python tests/differential.py --lakes 300 --seed 0`.

A lake is made from a seed: rows in memory, then files of several writers, encodings and types. What must be published
follows from the rows in memory alone, so reading is tested too. Every lake is counted the plain way and by the tally,
cut into shards at random, and published by the job itself, which finds these counts made already.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from scorelake import tasks
from scorelake.counting.merge import merge, plan_buckets
from scorelake.errors import DataError, ScorelakeError, UsageError
from scorelake.hashing import text_ids
from scorelake.lake.listing import listing
from scorelake.pipeline import RunReport, score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings
from scorelake.storage.disk import mark
from scorelake.storage.files import Shard

Row = dict[str, Any]
Key = tuple[str, ...]
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
PATIENCE_S = 60


# --- a lake in memory -------------------------------------------------------------------------------------------


@dataclass
class Column:
    kind: pa.DataType
    values: list[Any]

    def array(self) -> pa.Array[Any]:
        if isinstance(self.kind, pa.UuidType):
            storage = pa.array([None if v is None else v.bytes for v in self.values], pa.binary(16))
            return pa.ExtensionArray.from_storage(self.kind, storage)
        if pa.types.is_float16(self.kind):
            return pa.array([None if v is None else np.float16(v) for v in self.values], self.kind)
        return pa.array(self.values, self.kind)


@dataclass
class Source:
    """One file: its path with Hive folders, its columns, and how it is written."""

    path: str
    folders: dict[str, str | None]
    columns: dict[str, Column]
    writer: str
    options: dict[str, Any]

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())).values)

    def table(self) -> pa.Table:
        return pa.table({name: column.array() for name, column in self.columns.items()})


@dataclass
class Lake:
    files: list[Source]
    settings: dict[str, Any]
    told: dict[str, Any] = field(default_factory=dict)
    """What was chosen, for the reader of a failure."""
    taken: Counter[str] = field(default_factory=Counter)
    """Ways that were taken, pieces that were handed over early, and writers."""


# --- what must come out, from the rows in memory ------------------------------------------------------------------


@dataclass
class Problem:
    n: int = 0
    c: int | None = 0
    ungraded: int = 0
    rewards: Counter[float] = field(default_factory=Counter)
    answers: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many answers were given so often and passed so often."""
    carried: dict[str, Any] = field(default_factory=dict)


@dataclass
class Expected:
    problems: dict[Key, Problem]
    run: dict[str, int]
    error: str | None = None
    """A part of the message with which the lake must be refused."""


def spelled(value: Any) -> str | None:
    """A key or an attempt as a text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def protocol_value(value: Any) -> Any:
    """Equal values of whatever type are one: 0, 0.0 and the text 0."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, list | Decimal):
        return json.dumps(value) if isinstance(value, list) else f"{value.normalize():f}"
    return None if value is None else str(value)


def answer_value(value: Any) -> str | None:
    """What an attempt answered: numbers by what they are, and no answer where there is no number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value + 0.0)
    return None if value is None else str(value)


def answer_rank(text: str) -> tuple[int, int]:
    """The order in which the smallest of several answers is taken: whole numbers, then by length, then by bytes or,
    where there are more than 7 of them, by the hash."""
    if text.removeprefix("-").isdigit() and str(int(text)) == text and len(text.removeprefix("-")) < 17:
        return 0, int(text) % (1 << 56)
    raw = text.encode()
    return len(raw), int.from_bytes(raw, "little") if len(raw) < 8 else int(text_ids(pl.Series([text]))[0])


def own(value: float, kind: pa.DataType) -> float:
    """A number of the settings in the precision of a column."""
    if pa.types.is_float32(kind):
        return float(np.float32(value))
    return float(np.float16(value)) if pa.types.is_float16(kind) else value


class Recount:
    """A plain dictionary count of a lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.settings = lake, Settings.model_validate(lake.settings)
        self.rejected = self.read = 0
        self.rows: dict[Key, list[Row]] = defaultdict(list)
        for source in sorted(lake.files, key=lambda each: each.path):
            self._file(source)

    def _file(self, source: Source) -> None:
        settings, names = self.settings, self.settings.columns
        cells = {name: column.values for name, column in source.columns.items()}
        kinds = {name: column.kind for name, column in source.columns.items()}
        told = settings.duplicates.policy != "off" and names.attempt in cells
        for i in range(source.rows):
            self.read += 1
            raw = {name: values[i] for name, values in cells.items()}
            key = self._key(raw, source.folders)
            outcome = self._outcome(raw, kinds)
            if key is None or outcome is None:
                self.rejected += 1
                continue
            graded, passed, score = outcome
            carried = {name: raw.get(name, source.folders.get(name)) for name in settings.carried}
            answer = answer_value(raw.get(names.answer)) if graded else None
            attempt = spelled(raw[names.attempt]) if told else None
            self.rows[key].append(
                {
                    "attempt": attempt,
                    "graded": graded,
                    "passed": passed,
                    "score": score,
                    "answer": answer,
                    "carried": carried,
                }
            )

    def _key(self, raw: Row, folders: dict[str, str | None]) -> Key | None:
        names, out = self.settings.columns, list[str]()
        for key, default in (("benchmark", "default"), ("subject", "all"), ("model", None), ("problem_id", None)):
            parts = list[str]()
            for name in names.parts(key):
                text = spelled(raw[name]) if name in raw else folders.get(name, default)
                if text is None or (name in raw and name in folders and folders[name] != text):
                    return None
                if parts and "@" in text:
                    return None
                parts.append(text)
            out.append("@".join(parts))
        protocol = {n: protocol_value(raw[n] if n in raw else folders[n]) for n in self.settings.protocol.columns}
        return (*out[:3], json.dumps(protocol) if protocol else "", out[3])

    def _outcome(self, raw: Row, kinds: dict[str, pa.DataType]) -> tuple[bool, bool, float | None] | None:
        """graded, passed and reward of a row; None if it is rejected."""
        names, policy, levels = self.settings.columns, self.settings.policy, self.settings.rubric.levels
        graded, passed, score = True, False, None
        lowest = min(levels, default=0.0)
        if names.score in raw:
            value, kind = raw[names.score], kinds[names.score]
            if value is None:
                graded, score = graded and policy.ungraded == "fail", lowest
            elif levels:
                same = [level for level in levels if own(level, kind) == float(value)]
                if not same:
                    return None
                score = same[0]
            elif not math.isfinite(value):
                return None
            else:
                score = float(value) + 0.0
            if policy.pass_threshold is not None and value is not None:
                passed = float(value) >= own(policy.pass_threshold, kind)
        if names.passed in raw:
            value = raw[names.passed]
            if value is None:
                graded, passed = graded and policy.ungraded == "fail", False
            else:
                judged = self._judged(value)
                if judged is None:
                    return None
                passed = judged
        return graded, passed, score

    def _judged(self, value: Any) -> bool | None:
        """What a verdict says; None if it says nothing."""
        if not isinstance(value, str | bytes):
            return bool(value) if value in (0, 1) else None
        text, names = spelled(value), self.settings.columns
        known = text in names.pass_values or text in names.fail_values or not names.fail_values
        return text in names.pass_values if known else None

    # each attempt once

    def _verdict(self, rows: list[Row]) -> tuple[Row, bool]:
        """The row that counts of those of one attempt, and whether they are in conflict."""
        rule, known = self.settings.duplicates.rule, [row for row in rows if row["graded"]]
        if not known:
            return rows[0], False
        given = {row["answer"] for row in known} - {None} if self.answered else set()
        conflict = max(len({row["passed"] for row in known}), len({row["score"] for row in known}), len(given)) > 1
        if rule in ("first", "last"):
            return known[0 if rule == "first" else -1], conflict
        every = rule == "all-pass"
        right = (all if every else any)(row["passed"] for row in known)
        scores = [row["score"] for row in known if row["score"] is not None]
        score = (min if every else max)(scores) if scores else None
        said = {row["answer"] for row in known if row["passed"] == right} - {None}
        answer = next(iter(said)) if len(said) == 1 else min(said, key=answer_rank, default=None)
        return {**known[0], "passed": right, "score": score, "answer": answer}, conflict

    @property
    def binary(self) -> bool:
        return any(self.settings.columns.passed in s.columns for s in self.lake.files) or (
            self.settings.policy.pass_threshold is not None
        )

    @property
    def answered(self) -> bool:
        has = any(self.settings.columns.answer in source.columns for source in self.lake.files)
        return has and self.binary and self.settings.answers

    def expected(self) -> Expected:
        conflicts = duplicates = 0
        problems = {}
        for key, rows in self.rows.items():
            apart: dict[Any, list[Row]] = defaultdict(list)
            for i, row in enumerate(rows):
                apart[i if row["attempt"] is None else row["attempt"]].append(row)
            kept = []
            for same in apart.values():
                row, conflict = self._verdict(same)
                conflicts += conflict
                duplicates += len(same) - 1
                kept.append(row)
            problems[key] = self._problem(kept, rows)
        run = {
            "rows_read": self.read,
            "graded": sum(p.n for p in problems.values()),
            "ungraded": sum(p.ungraded for p in problems.values()),
            "duplicates": duplicates,
            "rejected": self.rejected,
        }
        return Expected(problems, run, self._error(conflicts, run["ungraded"]))

    def _error(self, conflicts: int, ungraded: int) -> str | None:
        """The reason for which the lake must be refused, by the first gate that it meets."""
        policy, rows = self.settings.policy, [row for some in self.rows.values() for row in some]
        attempt = self.settings.columns.attempt
        nameless = [s for s in self.lake.files if attempt not in s.columns]
        if self.settings.duplicates.policy == "exact" and nameless:
            everywhere = len(nameless) == len(self.lake.files)
            return f"no column {attempt}" if everywhere else f"{len(nameless):,} of the lake's files cannot be read"
        if self.rejected > policy.max_rejected:
            return f"{self.rejected:,} rows rejected"
        if not rows:
            return "no attempt in any file"
        if ungraded and policy.ungraded == "error":
            return f"{ungraded:,} attempts are ungraded"
        if conflicts and self.settings.duplicates.rule == "error":
            return f"{conflicts:,} attempts have conflicting"
        return None

    def _problem(self, kept: list[Row], rows: list[Row]) -> Problem:
        graded = [row for row in kept if row["graded"]]
        out = Problem(n=len(graded), ungraded=len(kept) - len(graded))
        out.c = sum(row["passed"] for row in graded) if self.binary else None
        if any(row["score"] is not None for row in graded):
            out.rewards = Counter(row["score"] for row in graded)
        if self.answered:
            votes: dict[str, list[bool]] = defaultdict(list)
            for row in graded:
                if row["answer"] is not None:
                    votes[row["answer"]].append(row["passed"])
            out.answers = Counter((len(some), sum(some)) for some in votes.values())
        for name in self.settings.carried:
            values = [row["carried"][name] for row in rows]
            there = [v for v in values if v is not None and not _nan(v)]
            out.carried[name] = min(there) if there else next((v for v in values if v is not None), None)
        return out


# --- what did come out --------------------------------------------------------------------------------------------


def shown_protocol(label: str) -> str:
    if not label:
        return ""
    return json.dumps({name: protocol_value(value) for name, value in json.loads(label).items()})


def published(out: Path, settings: Settings) -> dict[Key, Problem]:
    """problem_counts of the published run."""
    manifest = Output(out).current()
    assert manifest is not None
    home = out / "snapshots" / manifest["run"]["run_id"] / "problem_counts"
    found: dict[Key, Problem] = {}
    for path in sorted(home.glob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            key = (row["benchmark"], row["subject"], row["model"], shown_protocol(row["protocol"]), row["problem_id"])
            assert key not in found, f"{key} is there twice"
            pairs = zip(row.get("rewards") or [], row.get("reward_counts") or [], strict=True)
            votes = zip(row.get("answer_counts") or [], row.get("answer_passes") or [], strict=True)
            found[key] = Problem(
                row["n"],
                row["c"],
                row["ungraded"],
                Counter(dict(pairs)),
                Counter(votes),
                {name: row[name] for name in settings.carried},
            )
    return found


def differences(expected: Expected, found: dict[Key, Problem], run: dict[str, Any]) -> Iterator[str]:
    for name, value in expected.run.items():
        if run[name] != value:
            yield f"{name}: {run[name]} published, {value} right"
    for key in expected.problems.keys() - found.keys():
        yield f"{_short(key)} is missing"
    for key in found.keys() - expected.problems.keys():
        yield f"{_short(key)} is not in the lake"
    for key in expected.problems.keys() & found.keys():
        mine, theirs = expected.problems[key], found[key]
        for name in ("n", "c", "ungraded", "rewards", "answers"):
            if getattr(mine, name) != getattr(theirs, name):
                yield f"{_short(key)} {name}: {getattr(theirs, name)} published, {getattr(mine, name)} right"
        for name, value in mine.carried.items():
            other = theirs.carried[name]
            same = value == other or (_nan(value) and (other is None or _nan(other)))
            if not same:
                yield f"{_short(key)} {name}: {other!r} published, {value!r} right"


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _short(key: Key) -> str:
    return repr(tuple(part if len(part) < 40 else part[:30] + f"...({len(part)})" for part in key))


# --- counting a lake ----------------------------------------------------------------------------------------------


def count(
    lake: Path, out: Path, settings: Settings, cut: list[tuple[tuple[int, ...], str]], taken: Counter[str]
) -> RunReport:
    """Count shards, each of some files (by their numbers in the listing) with its own method, then run the job.

    The job finds the shards counted already, so it takes this cut and these ways: nothing of it is patched.
    """
    listed = listing(lake)
    out.mkdir(parents=True)
    mark(out)
    for numbers, method in cut:
        shard = Shard(str(lake.absolute()), tuple(listed.files[i] for i in numbers))
        rows = sum(file.size for file in shard.files) % 97 + 1
        task = tasks.Count(shard, settings, str((out / "partials").absolute()), method=method, chunk_rows=rows)
        partial = tasks.count(task)
        assert method != "query" or partial.method == "query" or partial.quarantine
        taken[partial.method] += 1
        taken["chunks"] += len(partial.chunks) > 1
    report = score_lake(lake, Output(out), settings)
    covered = {i for numbers, _ in cut for i in numbers}
    assert report.files_read == len(listed.files) - len(covered), "the job has counted again"
    return report


def cuts(rng: random.Random, files: int) -> Iterator[tuple[str, list[tuple[tuple[int, ...], str]]]]:
    """All in one shard, each file alone, and any cut: with the kernel where it fits, by the query, and mixed."""
    for way, ways in (("auto", ("auto",)), ("query", ("query",)), ("mixed", ("auto", "query"))):
        style = rng.choice(("one", "alone" if files < 12 else "one", "any"))
        order = list(range(files))
        if style == "one":
            groups = [order]
        elif style == "alone":
            groups = [[i] for i in order]
        else:
            many = rng.randint(1, min(files, 4))
            dealt: dict[int, list[int]] = defaultdict(list)
            for i in order:
                dealt[rng.randrange(many)].append(i)
            groups = list(dealt.values())
        if way != "mixed" or (len(groups) > 1 and rng.random() < 0.25):
            yield f"{way}, {style}", [(tuple(group), rng.choice(ways)) for group in groups]
    if rng.random() < 0.1:
        yield "as the job cuts it", []


class SlowError(Exception):
    pass


def limited(seconds: float, task: Callable[[], Any]) -> Any:
    """The task's result; SlowError if it takes longer than that."""

    def stop(*_: Any) -> None:
        raise SlowError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return task()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def verify(lake: Lake, home: Path, rng: random.Random) -> tuple[str, list[str]]:
    """Write a lake, count it in several ways: (equal or refused, nothing), or (WRONG, what is wrong)."""
    folder = home / "lake"
    for source in lake.files:
        write(source, folder / source.path)
        lake.taken[source.writer] += 1
    expected, rows = Recount(lake).expected(), sum(source.rows for source in lake.files)
    settings = Settings.model_validate(lake.settings)
    wrong = []
    for i, (name, cut) in enumerate(cuts(rng, len(lake.files))):
        out = home / f"out{i}"
        memory = {"memory_gb": rng.choice((None, 0.0001, 0.001)), "threads": rng.choice((None, 1, 2))}
        memory |= {
            "bucket_rows": rng.choice((None, None, 3, 30, 100) if rows < 300 else (None, rows // 10, rows // 3)),
            "shard_mb": rng.choice((None, 0.001, 0.01)),
        }
        mine = settings.model_copy(update={"run": settings.run.model_copy(update=memory)})
        title = f"[{name}; {memory}]"
        try:
            report = limited(PATIENCE_S, lambda: count(folder, out, mine, cut, lake.taken))  # noqa: B023 - called at once
        except (DataError, UsageError) as error:
            if expected.error is None or expected.error not in str(error):
                wrong.append(f"{title} refused: {str(error)[:600]}; right: {expected.error}")
            continue
        except (Exception, pl.exceptions.PanicException) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(
                f"{title} {type(error).__name__}: {str(error)[:400]} ({Path(last.filename).name}:{last.lineno})"
            )
            continue
        if expected.error is not None:
            wrong.append(f"{title} published; right: refused, {expected.error}")
            continue
        told = list(differences(expected, published(out, settings), report.run))
        wrong += [f"{title} {line}" for line in told[:5]] + ([f"{title} {len(told)} differences"] if told else [])
    if wrong:
        return "WRONG", wrong
    return ("refused" if expected.error else "equal"), []


# --- writers ------------------------------------------------------------------------------------------------------


def write(source: Source, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[source.writer](source, path)


def _write_arrow(source: Source, path: Path) -> None:
    options, table = dict(source.options), source.table()
    size, empty = options.pop("row_group_size"), options.pop("empty_groups")
    required = options.pop("required")
    fields = [
        pa.field(f.name, f.type, nullable=f.type == pa.null() or table[f.name].null_count > 0) for f in table.schema
    ]
    table = table.cast(pa.schema(fields)) if required else table
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        if empty:
            writer.write_table(table.slice(0, 0))
        if table.num_rows:
            writer.write_table(table, row_group_size=size)
        if empty:
            writer.write_table(table.slice(0, 0))


def _write_polars(source: Source, path: Path) -> None:
    pl.DataFrame(_storable(source.table())).write_parquet(path, **source.options)


def _write_duckdb(source: Source, path: Path) -> None:
    table = _storable(source.table())  # noqa: F841 - DuckDB finds it by its name
    uuids = [name for name, column in source.columns.items() if isinstance(column.kind, pa.UuidType)]
    what = ", ".join(f'"{n}"::UUID AS "{n}"' if n in uuids else f'"{n}"' for n in source.columns)
    options = ", ".join(f"{key} {value}" for key, value in source.options.items())
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        target = str(path).replace("'", "''")
        db.execute(
            f"COPY (SELECT {what} FROM table) TO '{target}' (FORMAT parquet, {options})".replace(
                " table)", ' "table")'
            )
        )


def _storable(table: pa.Table) -> pa.Table:
    """Without types that only Arrow knows."""
    columns = []
    for column in table.columns:
        kind = column.type
        if isinstance(kind, pa.UuidType):
            texts = [None if v is None else str(v) for v in column.to_pylist()]
            columns.append(pa.array(texts, pa.string()))
        elif isinstance(kind, pa.DictionaryType):
            columns.append(column.cast(kind.value_type))
        elif kind in (pa.string_view(), pa.binary_view()):
            columns.append(column.cast(pa.string() if kind == pa.string_view() else pa.binary()))
        elif pa.types.is_float16(kind):
            columns.append(column.cast(pa.float32()))
        else:
            columns.append(column)
    return pa.table(columns, names=table.column_names)


WRITERS: dict[str, Callable[[Source, Path], None]] = {
    "arrow": _write_arrow,
    "polars": _write_polars,
    "duckdb": _write_duckdb,
}


def _encodings(kind: pa.DataType) -> list[str]:
    if pa.types.is_boolean(kind):
        return ["PLAIN", "RLE"]
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]
    if pa.types.is_floating(kind):
        return ["PLAIN", "BYTE_STREAM_SPLIT"]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
    return []


def tiny(columns: dict[str, Column]) -> bool:
    """So few rows that a row group or page for each of them takes no time."""
    return all(len(column.values) < 100 for column in columns.values())


def arrow_options(rng: random.Random, columns: dict[str, Column]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "compression": rng.choice(("none", "none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        "data_page_version": rng.choice(("1.0", "2.0")),
        "write_page_checksum": rng.random() < 0.5,
        "row_group_size": rng.choice((1, 3, 10, 100) if tiny(columns) else (100, 1000, 10_000))
        if rng.random() < 0.5
        else 1 << 20,
        "empty_groups": rng.random() < 0.15,
        "required": rng.random() < 0.2,
        "store_schema": rng.random() < 0.7,
        "write_statistics": rng.random() < 0.7,
        "version": rng.choice(("1.0", "2.4", "2.6")),
        "data_page_size": rng.choice((1 if tiny(columns) else 512, 64, 1 << 20)),
        "write_batch_size": rng.choice((1 if tiny(columns) else 100, 7, 1024)),
        "use_dictionary": False,
    }
    if rng.random() < 0.5:
        some = [name for name in columns if rng.random() < 0.7]
        out["use_dictionary"] = some or False
        out["dictionary_pagesize_limit"] = rng.choice((1, 50, 1 << 20))
    else:
        plain = {name: _encodings(column.kind) for name, column in columns.items()}
        out["column_encoding"] = {
            name: rng.choice(some) for name, some in plain.items() if some and rng.random() < 0.8
        }
    if out["version"] == "1.0":
        out["coerce_timestamps"] = "us"
    return out


def polars_options(rng: random.Random, columns: dict[str, Column]) -> dict[str, Any]:
    return {
        "compression": rng.choice(("uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli")),
        "row_group_size": rng.choice((2, 10, 100, None) if tiny(columns) else (1000, None)),
        "data_page_size": rng.choice((16, None)),
        "statistics": rng.random() < 0.7,
    }


def duckdb_options(rng: random.Random, _: dict[str, Column]) -> dict[str, Any]:
    return {
        "COMPRESSION": rng.choice(("uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli")),
        "PARQUET_VERSION": rng.choice(("V1", "V2")),
        "ROW_GROUP_SIZE": rng.choice((2048, 122880)),
        "STRING_DICTIONARY_PAGE_SIZE_LIMIT": rng.choice((1, 1 << 20)),
    }


OPTIONS = {
    "arrow": arrow_options,
    "polars": polars_options,
    "duckdb": duckdb_options,
}


# --- random lakes -------------------------------------------------------------------------------------------------


def names(rng: random.Random, many: int) -> list[Any]:
    """Names of one kind, most of them hard."""
    kind = rng.choice(
        ("plain", "plain", "ints", "hard", "spaces", "prefixes", "long", "same hash", "digits", "mixed ints")
    )
    if kind == "ints":
        return rng.sample(range(-5, 10 * many), many)
    if kind == "mixed ints":
        return [rng.choice((1, -1)) * rng.getrandbits(rng.choice((3, 30, 62))) for _ in range(many)]
    hard = ["007", "7", "07", "", " ", "a b", "a", "b", "'", '"', "\n", "a\nb", "\x00", "a\x00", "é", "e\u0301"]
    hard += ["日本", "🙂", "a/b", "x=y", "%41", "null", "None", "NaN", "true", "'; DROP TABLE x; --", "</script>"]
    hard += ["\\", "\t", "0", "-0"]
    some = {
        "hard": hard,
        "spaces": [" ".join(rng.choice("ab") for _ in range(rng.randint(1, 4))) for _ in range(many)],
        "prefixes": ["x" * (8 * rng.randint(0, 4)) + "y" * rng.randint(0, 9) for _ in range(many)],
        "long": ["z" * rng.choice((255, 256, 257, 3000)) + str(i) for i in range(many)],
        "digits": ["0" * rng.randint(0, 3) + str(rng.randint(0, 9)) for _ in range(many)],
        "same hash": colliding(min(many, 200)) if kind == "same hash" else [],
    }.get(kind, [f"p{i}" for i in range(many)])
    return (some * many)[:many] if len(set(some)) > 1 else [*some, "other"]


def colliding(many: int) -> list[str]:
    """Texts of 16 bytes with one and the same hash of ours, found by running it backwards."""
    from scorelake.hashing import MULTIPLIER, SEED_LOW

    def mixed(v: int) -> int:
        v = (v ^ (v >> 32)) * MULTIPLIER & (1 << 64) - 1
        return v ^ (v >> 32)

    rng, out, begin = random.Random(many), ["begin-0:end-0000"], SEED_LOW ^ 16
    word = [int.from_bytes(out[0].encode()[i : i + 8], "little") for i in (0, 8)]
    goal = mixed(begin ^ word[0]) ^ word[1]
    while len(out) < many + 1:
        first = bytes(rng.choice(b"abcdefghijklmnop") for _ in range(8))
        second = (mixed(begin ^ int.from_bytes(first, "little")) ^ goal).to_bytes(8, "little")
        if all(byte < 128 for byte in second):
            out.append((first + second).decode())
    return out


def text_kind(rng: random.Random, values: list[Any]) -> pa.DataType:
    """A type that holds the names as they are: texts, or where all are numbers one of several integers."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, int) for value in there):
        low, high = min(there), max(there)
        fits = [pa.int64()]
        fits += [pa.int32()] if low >= -(2**31) and high < 2**31 else []
        fits += [pa.int8()] if low >= -128 and high < 128 else []
        fits += [pa.uint64(), pa.uint32() if high < 2**32 else pa.uint64()] if low >= 0 else []
        fits += [pa.dictionary(pa.int16(), pa.int64())] if len(set(there)) < 1000 else []
        return rng.choice(fits)
    kinds = [pa.string(), pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    kinds += [pa.dictionary(pa.int32(), pa.large_string()), pa.dictionary(pa.int32(), pa.binary())]
    return rng.choice([*kinds, pa.binary(), pa.large_binary(), pa.binary_view()])


def text_column(rng: random.Random, values: list[Any]) -> Column:
    kind = text_kind(rng, values)
    inner = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if not pa.types.is_integer(inner):
        values = [spelled(value) for value in values]
        if inner in (pa.binary(), pa.large_binary(), pa.binary_view()):
            values = [None if value is None else value.encode() for value in values]
    return Column(kind, values)


VERDICTS: list[tuple[pa.DataType, type]] = [
    (pa.bool_(), bool),
    (pa.bool_(), bool),
    (pa.int8(), int),
    (pa.uint8(), int),
    (pa.int32(), int),
    (pa.int64(), int),
    (pa.float32(), float),
    (pa.float64(), float),
    (pa.decimal128(3, 1), Decimal),
    (pa.dictionary(pa.int8(), pa.int64()), int),
]
WORDS: list[tuple[pa.DataType, Callable[[str], Any]]] = [
    (pa.string(), str),
    (pa.large_string(), str),
    (pa.string_view(), str),
    (pa.binary(), str.encode),
    (pa.dictionary(pa.int8(), pa.string()), str),
]
PASSES, FAILS = ("C", "pass", "1", "a longer word for passed", "\u00e9"), ("I", "", "c", "0", "fail ")
LEVELS = (0.0, 0.25, 0.7, 1.0)
SCORES: list[tuple[pa.DataType, Callable[[float], Any]]] = [
    (pa.float64(), float),
    (pa.float64(), float),
    (pa.float32(), lambda v: float(np.float32(v))),
    (pa.float16(), lambda v: float(np.float16(v))),
    (pa.decimal128(9, 4), lambda v: Decimal(f"{v:.4f}")),
    (pa.decimal128(30, 4), lambda v: Decimal(f"{v:.4f}")),
    (pa.int8(), int),
    (pa.uint32(), int),
]

_UUIDS = [UUID(int=random.Random(i).getrandbits(128)) for i in range(400)]
ATTEMPTS: dict[str, Callable[[int], Any]] = {
    "small": lambda i: i,
    "from one": lambda i: i + 1,
    "past 256": lambda i: i * 37,
    "large": lambda i: 1000 + i,
    "negative": lambda i: i - 3,
    "64 bits": lambda i: (-1) ** i * (10**18 - 3 + i) if i % 3 else (2**63 - 1 - i) * (-1) ** (i % 2),
    "texts": lambda i: f"sample-{i}",
    "long texts": lambda i: f"a long name of an attempt, sample-{i}",
    "digits": lambda i: str(i) if i % 3 else f"0{i}",
    "uuid texts": lambda i: str(_UUIDS[i % 400]),
    "uuids": lambda i: _UUIDS[i % 400],
}

PROTOCOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, None, 2, -1, 10**15]),
    "int8": (pa.int8(), [0, 1, None, 2, -1, 5]),
    "float": (pa.float64(), [0.0, 1.0, None, 0.5, math.nan, math.inf]),
    "zeros": (pa.float64(), [-0.0, 0.0, None, 0.1, 1e300, -math.inf]),
    "float32": (pa.float32(), [0.0, 1.0, None, 0.5, math.nan, -math.inf]),
    "text": (pa.string(), ["0", "1", None, "0.5", "null", ""]),
    "words": (pa.string(), ["true", "false", None, "x y", 'a"b', "0.50"]),
    "bool": (pa.bool_(), [True, False, None, True, False, None]),
    "list": (pa.list_(pa.int64()), [[1, 2], [1], None, [], [2, 1], [12]]),
    "texts": (pa.list_(pa.string()), [["a", "b"], ["a, b"], None, [], [""], ["b", "a"]]),
    "decimal": (pa.decimal128(9, 3), [Decimal(0), Decimal(1), None, Decimal("0.500"), Decimal(-1), Decimal("0.125")]),
    "large text": (pa.large_string(), ["0", "1", None, "0.5", "null", ""]),
    "view": (pa.string_view(), ["0", "1", None, "0.5", "null", ""]),
    "none": (pa.null(), [None] * 6),
}

PARTS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, -7]),
    "uint": (pa.uint64(), [0, 2**64 - 1]),
    "bool": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["a", "b", "", "1"]),
    "nulls": (pa.int8(), [1, 2, None]),
    "words": (pa.dictionary(pa.int8(), pa.string()), ["x", "x@y", "y", "@", None]),
    "bytes": (pa.binary(), [b"x", b"y"]),
}
"""The second column of a composite key."""

CARRIED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [5, 4, 3, -2, 10**16 + 1, 10**16]),
    "float": (pa.float64(), [0.5, 0.25, -1.0, 1e300, math.nan, 0.1]),
    "float32": (pa.float32(), [0.5, 0.25, -1.0, 2.0, math.nan, 8.0]),
    "text": (pa.string(), ["hard", "easy", "", "10", "9", "Easy"]),
    "bool": (pa.bool_(), [True, False, True, False, True, False]),
    "date": (pa.date32(), [date(2024, 1, d) for d in range(1, 7)]),
    "time": (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, d) for d in range(1, 7)]),
    "large text": (pa.large_string(), ["hard", "easy", "", "10", "9", "Easy"]),
    "view": (pa.string_view(), ["hard", "easy", "", "10", "9", "Easy"]),
    "words": (pa.dictionary(pa.int32(), pa.string()), ["hard", "easy", "", "10", "9", "Easy"]),
    "decimal": (pa.decimal128(9, 3), [Decimal(i) / 8 for i in range(-2, 4)]),
    "nulls": (pa.null(), [None] * 6),
}

ANSWERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "a ", "", "007", "7", "7.0", "a longer answer"]),
    "int": (pa.int64(), [7, 8, -1, 0, 10**15, 70, 71, 72]),
    "int8": (pa.int8(), [7, 8, -1, 0, 1, 70, 71, 72]),
    "float": (pa.float64(), [0.5, -0.0, 0.0, math.nan, 1.5, math.inf, -1.0, 1e20]),
    "float32": (pa.float32(), [0.5, -0.0, 0.0, math.nan, 1.5, math.inf, -1.0, 2.5]),
    "bool": (pa.bool_(), [True, False, True, False, True, False, True, False]),
}


class Maker:
    """One lake from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.told: dict[str, Any] = {"seed": seed}
        self.shape = self.pick(
            "shape", ("passed", "passed", "passed", "score", "threshold", "rubric", "both", "rubric and passed")
        )
        self.nulls = self.pick("nulls", (0.0, 0.0, 0.1, 0.9))
        self.bad = self.pick("bad", (0.0, 0.0, 0.0, 0.05))
        self.attempt = self.pick("attempt", (None, *ATTEMPTS))
        self.no_attempt = self.pick("attempt missing", (0.0, 0.0, 0.1))
        self.some_files = self.attempt is not None and self.pick("attempt in some files", (False, False, False, True))
        self.again = self.pick("duplicates", (0.0, 0.0, 0.1, 0.5))
        self.differ = self.pick("conflicting", (0.0, 0.0, 0.3))
        self.rule = self.pick("rule", ("error", "first", "last", "any-pass", "all-pass"))
        self.answer = (
            self.pick("answer", (None, None, "text", "int", "float", "bool")) if self.shape != "score" else None
        )
        self.protocol = self.pick("protocol", (0, 0, 1, 2))
        self.carry = self.pick("carry", (0, 0, 1, 2))
        self.size = self.pick("size", ("small",) * 48 + ("wide", "deep", "empty") * 3 + ("tall",))
        self.writers = self.pick("writers", ("arrow", "arrow", "arrow", "any"))
        self.clustered = rng.random() < 0.5
        apart = random.Random(f"words of {seed}")  # its own, so that lakes of known seeds stay what they were
        self.words = self.shape in ("passed", "both", "rubric and passed") and apart.random() < 0.25
        self.strict = apart.random() < 0.5
        self.told["words"] = self.words and ("strict" if self.strict else "lax")
        self.carried = [rng.choice(list(CARRIED)) for _ in range(self.carry)]
        self.protocols = [
            rng.choice((("int", "float", "text", "int8", "float32", "zeros", "none"), tuple(PROTOCOLS)))
            for _ in range(self.protocol)
        ]

    def pick(self, name: str, choices: tuple[Any, ...]) -> Any:
        chosen = self.rng.choice(choices)
        self.told[name] = chosen
        return chosen

    def rows(self) -> list[Row]:
        """Attempts, before they have types."""
        rng = self.rng
        problems, most = {
            "small": (30, 8),
            "wide": (3000, 2),
            "deep": (2, 700),
            "empty": (1, 0),
            "tall": (70_000, 2),
        }[self.size]
        problems, out = problems if self.size == "tall" else rng.randint(1, problems), list[Row]()
        keys = {key: names(rng, rng.randint(1, 4)) for key in ("model", "benchmark", "subject")}
        ids = [f"problem-{i:09}" for i in range(problems)] if self.size == "tall" else names(rng, problems)
        for i in range(problems):
            key = {name: rng.choice(values) for name, values in keys.items()}
            protocol, carried = rng.randrange(6), rng.randrange(6)
            numbers = rng.sample(range(most + 2), rng.randint(int(self.size == "tall"), most))
            for number in numbers:
                out.append(
                    {
                        **key,
                        "problem_id": ids[i],
                        "number": number,
                        "protocol": protocol,
                        "carried": carried,
                        **self.verdict(),
                    }
                )
        for row in out:
            if rng.random() < 0.02:
                row["carried"] = rng.randrange(6)
            row["named"] = rng.random() >= self.no_attempt
            row["nowhere"] = rng.random() < self.bad
        again = [dict(rng.choice(out)) for _ in range(int(self.again * len(out)))]
        for row in again:
            if rng.random() < self.differ:
                row.update(self.verdict())
            if rng.random() < 0.1:
                row["carried"] = rng.randrange(6)
        out += again
        if not self.clustered:
            rng.shuffle(out)
        return out

    def verdict(self) -> Row:
        rng = self.rng
        level = (
            rng.choice(LEVELS)
            if self.shape.startswith(("rubric", "threshold")) or rng.random() < 0.5
            else rng.random()
        )
        return {
            "right": rng.random() < 0.4,
            "level": level,
            "no verdict": rng.random() < self.nulls,
            "no score": rng.random() < self.nulls,
            "bad": rng.random() < self.bad,
            "answer": rng.randrange(9),
        }

    def lake(self) -> Lake:
        rng, rows = self.rng, self.rows()
        folders = [key for key in ("benchmark", "subject", "model") if rng.random() < 0.3]
        self.absent = [key for key in ("benchmark", "subject") if key not in folders and rng.random() < 0.3]
        self.both = [key for key in folders if rng.random() < 0.2]
        groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows:
            groups[tuple(None if row["nowhere"] else spelled(row[key]) for key in folders)].append(row)
        many = rng.choice((1, 2, 3, 8)) if self.size != "tall" else 1
        files = []
        for named, some in groups.items() or [((), [])]:
            parts = [some[i::many] for i in range(many)] if rng.random() < 0.5 else _split(rng, some, many)
            values = named or tuple("x" for _ in folders)
            if max((len(value or "") for value in values), default=0) > 200:
                return self._again()
            home = "/".join(
                f"{key}={HIVE_NULL if value is None else quote(value, safe=rng.choice(('', ' ')))}"
                for key, value in zip(folders, values, strict=True)
            )
            for i, part in enumerate(parts):
                if part or rng.random() < 0.1 or (len(groups) <= 1 and i == 0):
                    hive = dict(zip(folders, values, strict=True))
                    files.append(self.source(f"{home}/part-{i}.parquet".lstrip("/"), hive, part))
        if not files:
            return self._again()
        return self.composite(self.renamed(Lake(files, self.settings(), self.told)))

    def renamed(self, lake: Lake) -> Lake:
        """Some columns under other names, which the settings tell; where they were, others may stand."""
        rng = self.rng
        if rng.random() < 0.75:
            return lake
        everywhere = set.intersection(*({*s.columns, *s.folders} for s in lake.files))
        keys = [
            key for key in ("model", "problem_id", "benchmark", "subject", "passed", "score") if key in everywhere
        ]
        keys += [key for key in ("attempt", "answer") if all(key in s.columns for s in lake.files)]
        other = {key: rng.choice((f"their {key}", f"{key}2", key.upper())) for key in keys if rng.random() < 0.5}
        for source in lake.files:
            source.columns = {other.get(name, name): column for name, column in source.columns.items()}
            source.folders = {other.get(name, name): value for name, value in source.folders.items()}
            *folders, file = source.path.split("/")
            split = [folder.split("=", 1) for folder in folders]
            source.path = "/".join([*(f"{quote(other.get(name, name))}={value}" for name, value in split), file])
            for name in ("use_dictionary", "column_encoding"):
                told = source.options.get(name)
                if isinstance(told, list):
                    source.options[name] = [other.get(each, each) for each in told]
                elif isinstance(told, dict):
                    source.options[name] = {other.get(each, each): kind for each, kind in told.items()}
            for name in other:
                if rng.random() < 0.3 and name not in ("passed", "score") and source.writer == "arrow":
                    source.columns[name] = Column(pa.string(), ["wrong"] * source.rows)
        lake.settings["columns"] |= other
        self.told["renamed"] = other
        return lake

    def composite(self, lake: Lake) -> Lake:
        """Some keys of two columns, the second of which is a column in one file and a folder in another."""
        rng = random.Random(
            f"composite {self.told['seed']}"
        )  # its own, so that lakes of known seeds stay what they were
        if rng.random() < 0.6:
            return lake
        for key in ("model", "problem_id", "benchmark", "subject"):
            name, part = lake.settings["columns"].get(key, key), f"part of {key}"
            if rng.random() < 0.5 or not all(name in {*s.columns, *s.folders} for s in lake.files):
                continue
            lake.settings["columns"][key] = [name, part]
            self.told[part] = rng.choice(list(PARTS))
            for source in lake.files:
                kind, values = PARTS[self.told[part]]
                if rng.random() < 0.2:
                    value = spelled(rng.choice(values))
                    source.folders[part] = value
                    source.path = f"{quote(part)}={HIVE_NULL if value is None else quote(value)}/{source.path}"
                else:
                    source.columns[part] = Column(kind, [rng.choice(values) for _ in range(source.rows)])
        return lake

    def _again(self) -> Lake:
        return Maker(self.told["seed"] + 1_000_003).lake()

    def settings(self) -> dict[str, Any]:
        rng = self.rng
        policy: dict[str, Any] = {"ungraded": rng.choice(("exclude", "exclude", "fail"))}
        if rng.random() < 0.05:
            policy["ungraded"] = "error"
        policy["max_rejected"] = 0 if rng.random() < 0.1 else 1 << 30
        if self.shape in ("threshold", "both") and (self.shape == "threshold" or rng.random() < 0.3):
            policy["pass_threshold"] = 0.7
        duplicates = {"rule": self.rule, "policy": rng.choice(("off", "exact", *["auto"] * 6))}
        names = ["pass@1"] if self.shape not in ("score", "rubric") or "pass_threshold" in policy else ["avg@N"]
        if self.answer and rng.random() < 0.9 and names == ["pass@1"]:
            names.append("vote@1")
        out = {
            "columns": {"carry": [f"carry {i}" for i in range(self.carry)]},
            "protocol": {"columns": [f"protocol {i}" for i in range(self.protocol)]},
            "policy": policy,
            "duplicates": duplicates,
            "metrics": {"names": names},
            "compare": {"resamples": 100},
        }
        if self.words:
            out["columns"] |= {"pass_values": PASSES, "fail_values": FAILS if self.strict else ()}
        if self.shape.startswith("rubric"):
            out["rubric"] = {"levels": list(LEVELS)}
        self.told |= {"policy": policy, "duplicates": duplicates}
        return out

    def source(self, path: str, folders: dict[str, str | None], rows: list[Row]) -> Source:
        rng = self.rng
        columns: dict[str, Column] = {}
        for key in ("model", "problem_id", "benchmark", "subject"):
            if key not in self.absent and (key not in folders or key in self.both):
                values = [row[key] if rng.random() >= self.bad / 3 else None for row in rows]
                columns[key] = text_column(rng, values)
        self._outcomes(columns, rows)
        self._attempts(columns, rows)
        if self.answer:
            family = {"int": ("int", "int8"), "float": ("float", "float32")}.get(self.answer, (self.answer,))
            kind, pool = ANSWERS[rng.choice(family)]
            columns["answer"] = Column(kind, [None if row["answer"] == 8 else pool[row["answer"]] for row in rows])
        for i, family in enumerate(self.protocols):
            kind, pool = PROTOCOLS[rng.choice(family)]
            columns[f"protocol {i}"] = Column(kind, [pool[(row["protocol"] * (i + 1)) % 6] for row in rows])
        for i, name in enumerate(self.carried):
            kind, pool = CARRIED[name]
            values = [None if rng.random() < 0.1 else pool[(row["carried"] + i) % 6] for row in rows]
            columns[f"carry {i}"] = Column(kind, values)
        items = list(columns.items())
        rng.shuffle(items)
        columns = dict(items)
        if rng.random() < 0.3:
            columns["other"] = Column(pa.struct({"a": pa.int64()}), [{"a": 1}] * len(rows))
        writer = "arrow" if self.writers == "arrow" else rng.choice(list(WRITERS))
        if writer != "arrow" and any(not _portable(column, writer) for column in columns.values()):
            writer = "arrow"
        return Source(path, folders, columns, writer, OPTIONS[writer](rng, columns))

    def _spoken(self, rows: list[Row]) -> Column:
        """Verdicts in words."""
        apart = random.Random(f"{len(rows)} of {self.told['seed']}")
        kind, cast = apart.choice(WORDS)
        texts = [apart.choice(PASSES if row["right"] else FAILS) if not row["bad"] else "n/a" for row in rows]
        return Column(kind, [None if row["no verdict"] else cast(t) for row, t in zip(rows, texts, strict=True)])

    def _outcomes(self, columns: dict[str, Column], rows: list[Row]) -> None:
        rng = self.rng
        if self.shape in ("passed", "both", "rubric and passed"):
            kind, cast = rng.choice(VERDICTS)
            bad = {bool: (True,), int: (2, 3), float: (0.5, math.nan, math.inf, 2.0), Decimal: (Decimal("0.5"),)}[
                cast
            ]
            values = [cast(row["right"]) if not row["bad"] else rng.choice(bad) for row in rows]
            values = [None if row["no verdict"] else value for row, value in zip(rows, values, strict=True)]
            columns["passed"] = self._spoken(rows) if self.words else Column(kind, values)
        if self.shape != "passed":
            kind, cast_score = rng.choice(SCORES)
            floats = pa.types.is_floating(kind) and kind != pa.float16()
            values = [cast_score(row["level"]) for row in rows]
            values = [
                rng.choice((math.nan, math.inf, -math.inf)) if row["bad"] and floats else v
                for row, v in zip(rows, values, strict=True)
            ]
            columns["score"] = Column(
                kind, [None if row["no score"] else v for row, v in zip(rows, values, strict=True)]
            )

    def _attempts(self, columns: dict[str, Column], rows: list[Row]) -> None:
        rng = self.rng
        if self.attempt is None or (self.some_files and rng.random() < 0.5):
            return
        values = [ATTEMPTS[self.attempt](row["number"]) if row["named"] else None for row in rows]
        if self.attempt == "uuids" and rng.random() < 0.7:
            columns["attempt"] = Column(pa.uuid(), values)
        else:
            if all(isinstance(v, int) for v in values if v is not None) and rng.random() < 0.2:
                values = [spelled(value) for value in values]
            columns["attempt"] = text_column(rng, values)


def _portable(column: Column, writer: str) -> bool:
    """Whether a writer that is not Arrow's writes this column as what it is."""
    kind = column.kind
    if pa.types.is_float16(kind) or pa.types.is_null(kind):
        return False
    return not (isinstance(kind, pa.UuidType) if writer == "polars" else pa.types.is_nested(kind))


def _split(rng: random.Random, rows: list[Row], many: int) -> list[list[Row]]:
    ends = sorted(rng.randint(0, len(rows)) for _ in range(many - 1))
    return [rows[low:high] for low, high in zip([0, *ends], [*ends, len(rows)], strict=True)]


# --- damaged files ------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A small file that is to be damaged, and what it comes to as it is."""

    shape: str
    how: str
    data: bytes
    settings: Settings
    parts: dict[str, list[tuple[int, int]]]
    """Where the bodies of pages are, their headers, and the footer."""
    checked: bool
    want: str = ""


SHAPES = (
    *("boolean", "numbers", "score", "rubric", "threshold", "answers", "text attempts", "uuid attempts"),
    *("protocol", "carried", "several", "types"),
)
VARIANTS = 16
"""Files of each shape."""
PATIENCE_ONE_S = 30
MOST_MEMORY, MOST_ADDRESSES = 2 << 30, 8 << 30
FORBIDDEN = ("EXCEPTION", "MACHINE", "WAYS DIFFER", "WRONG", "MEMORY", "DIED", "HUNG")
ENDS = ("quarantined", "refused", "same", "ended, named", "other: page", "other: header", "other: footer", *FORBIDDEN)


def small(shape: str, variant: int) -> tuple[Source, dict[str, Any]]:  # noqa: PLR0912, PLR0915
    """A file of a shape, and its settings."""
    rng = random.Random(f"{shape} {variant}")
    rows = rng.randint(20, 90)
    problem = [rng.randrange(8) for _ in range(rows)]
    number = [problem[:i].count(p) for i, p in enumerate(problem)]
    right = [rng.random() < 0.4 for _ in range(rows)]
    columns = {
        "model": Column(pa.string(), [f"model-{p % 2}" for p in problem]),
        "problem_id": Column(pa.string(), [f"problem {p}" for p in problem]),
        "benchmark": Column(pa.string(), ["b"] * rows),
    }
    settings: dict[str, Any] = {"run": {"threads": 1, "memory_gb": 0.05}, "policy": {"max_rejected": 1 << 30}}
    kinds = {name: (kind, pool) for name, (kind, pool) in PROTOCOLS.items() if name != "none"}
    kinds |= {name: CARRIED[name] for name in ("date", "time")}
    kinds["ns"] = pa.timestamp("ns", "UTC"), [10**18 + i for i in range(6)]
    kinds["decimal"] = pa.decimal128(9, 2), [Decimal(f"{i}.50") for i in range(6)]

    def several(values: dict[str, tuple[pa.DataType, list[Any]]], name: str) -> list[str]:
        names = [f"{name} {i}" for i in range(2)]
        for each in names:
            kind, pool = values[rng.choice(list(values))]
            columns[each] = Column(kind, [pool[p % 6] for p in problem])
        return names

    if shape in ("score", "rubric", "threshold", "several"):
        kind, cast = rng.choice(SCORES[:5])
        columns["score"] = Column(kind, [cast(rng.choice(LEVELS)) for _ in range(rows)])
    if shape not in ("score", "rubric", "threshold"):
        kind, cast_verdict = rng.choice(VERDICTS[2:]) if shape == "numbers" else VERDICTS[0]
        columns["passed"] = Column(kind, [None if rng.random() < 0.05 else cast_verdict(v) for v in right])
    if shape in ("answers", "several"):
        kind, pool = ANSWERS[rng.choice(list(ANSWERS))]
        columns["answer"] = Column(kind, [rng.choice(pool) for _ in range(rows)])
    if shape == "text attempts":
        values = [f"{'a long name of ' * (variant % 2)}{n}-sample" for n in number]
        columns["attempt"] = Column(pa.string(), values)
    elif shape == "uuid attempts":
        columns["attempt"] = Column(pa.uuid(), [_UUIDS[n] for n in number])
    elif shape == "types":
        columns = {name: text_column(rng, column.values) for name, column in columns.items() if name != "passed"}
        columns["passed"] = Column(pa.bool_(), right)
        columns["attempt"] = text_column(rng, number)
    elif rng.random() < 0.7:
        columns["attempt"] = Column(rng.choice((pa.int64(), pa.int32(), pa.uint8())), number)
    if shape in ("protocol", "several"):
        settings["protocol"] = {"columns": several(kinds, "protocol")}
    if shape in ("carried", "several"):
        settings["columns"] = {"carry": several({**CARRIED, "ns": kinds["ns"], "dec": kinds["decimal"]}, "carry")}
    if shape == "rubric":
        settings["rubric"] = {"levels": list(LEVELS)}
    if shape == "threshold":
        settings["policy"]["pass_threshold"] = 0.7
    if rng.random() < 0.3:
        settings["duplicates"] = {"rule": rng.choice(("first", "any-pass"))}
        for column in columns.values():
            column.values += column.values[:5]
    writer = rng.choice(("arrow", "arrow", "polars", "duckdb"))
    if any(not _portable(column, writer) for column in columns.values()) and writer != "arrow":
        writer = "arrow"
    options = OPTIONS[writer](rng, columns)
    known = ("none", "snappy", "zstd") if writer == "arrow" else ("uncompressed", "snappy", "zstd")
    options["COMPRESSION" if writer == "duckdb" else "compression"] = rng.choice(known)
    if writer == "arrow":
        options |= {"row_group_size": rng.choice((30, 1 << 20)), "data_page_size": rng.choice((64, 1 << 20))}
        options |= {"version": "2.6", "coerce_timestamps": None}
    if writer == "polars":
        options |= {"row_group_size": rng.choice((30, None))}
    return Source("f.parquet", {}, columns, writer, options), settings


def made(shape: str, variant: int, home: Path) -> Made:
    source, settings = small(shape, variant)
    write(source, home / "made.parquet")
    data = (home / "made.parquet").read_bytes()
    parts, checked = pages(data)
    how = f"{source.writer} { ({k: v for k, v in source.options.items() if k != 'column_encoding'}) }"
    out = Made(shape, how, data, Settings.model_validate(settings), parts, checked)
    (end, out.want), *others = {one_way(data, out.settings, method, home) for method in ("auto", "query")}
    assert (end, others) == ("counts", []), f"{shape} {variant}, undamaged: {end} {out.want}, {others}"
    return out


def pages(data: bytes) -> tuple[dict[str, list[tuple[int, int]]], bool]:
    """Where the headers and bodies of pages are, and the footer; and whether every page has a checksum."""
    told = pq.read_metadata(pa.BufferReader(data))
    out: dict[str, list[tuple[int, int]]] = {"header": [], "page": []}
    checked, first = True, len(data)
    for i in range(told.num_row_groups):
        for j in range(told.num_columns):
            chunk = told.row_group(i).column(j)
            at = min((o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o), default=len(data))
            end, first = at + chunk.total_compressed_size, min(first, at)
            while at < end:
                fields, body = thrift(data, at)
                out["header"].append((at, body))
                at = body + fields[3]
                out["page"].append((body, at))
                checked &= 4 in fields
    out["page"] = [(low, high) for low, high in out["page"] if low < high]
    size = int.from_bytes(data[-8:-4], "little")
    out["footer"] = [(len(data) - 8 - size, len(data))]
    return out, checked


def thrift(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """The numbers among the fields of a struct, and where it ends: as much of Thrift as a page header needs."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at

    fields: dict[int, int] = {}
    field_id = 0
    while data[at]:
        kind, step = data[at] & 15, data[at] >> 4
        assert step, "fields of a page header are numbered by steps"
        at, field_id = at + 1, field_id + step
        if kind in (3,):
            at += 1
        elif kind in (4, 5, 6):
            value, at = number(at)
            fields[field_id] = value >> 1 ^ -(value & 1)
        elif kind == 8:
            size, at = number(at)
            at += size
        elif kind == 12:
            _, at = thrift(data, at)
        else:
            assert kind in (1, 2), f"a field of kind {kind} in a page header"
    return fields, at + 1


def damaged(made: Made, rng: random.Random) -> tuple[bytes, str]:
    """The file with one to three bytes changed, cut or lengthened; and where: page, header or footer."""
    data, kind = bytearray(made.data), rng.random()
    if kind < 0.06:
        return bytes(data[: rng.randrange(len(data))]), "footer"
    at = rng.choice((0, 4, rng.randrange(len(data)), len(data) - 8, len(data)))
    if kind < 0.12:
        return bytes(data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at:]), "footer"
    if kind < 0.18:  # a hole, or bytes of another place
        length, source = rng.randint(1, 400), rng.randrange(len(data))
        patch = rng.choice((bytes(length), data[source : source + length], b""))
        return bytes(data[:at] + patch + data[at + length :]), "footer"
    where = rng.choice(("page", "header", "header", "footer", "any"))
    low, high = rng.choice(made.parts[where]) if where != "any" else (0, len(data))
    touched = set()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(low, high)
        change = rng.choice((1 << rng.randrange(8), rng.randrange(1, 256), data[at] or 1, data[at] ^ 255 or 1))
        data[at] ^= change
        touched.add(next((n for n, some in made.parts.items() for a, b in some if a <= at < b), "footer"))
    return bytes(data), next(name for name in ("footer", "header", "page") if name in touched)


def one_way(data: bytes, settings: Settings, method: str, home: Path) -> tuple[str, str]:
    """What counting one file one way ends in (counts, quarantined, refused, or forbidden), and what exactly."""
    folder = home / "one"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "f.parquet").write_bytes(data)
    try:
        listed = listing(folder)
        (folder / ".out").mkdir()
        shard = Shard(str(folder), listed.files)
        partial = tasks.count(tasks.Count(shard, settings, str(folder / ".out" / "partials"), method=method))
        if partial.quarantine:
            ((_, reason),) = partial.quarantine
            return "quarantined", reason
        rule = settings.duplicates.rule
        (bucket,) = plan_buckets(
            folder / ".out" / "partials", [partial], folder / ".out", rule, settings.answers, rows_per_bucket=10**9
        )
        merged = merge(bucket)
        told: dict[str, Any] = {}
        if merged.problems:
            table = pq.read_table(bucket.path)
            told = {name: _plain(table[name]).to_pylist() for name in table.column_names}
        for name in settings.carried:
            told[name] = [None if _nan(value) else value for value in told.get(name, [])]
        sums = (partial.read, partial.rejected, partial.rejects, merged.duplicates, merged.conflicts)
        return "counts", repr((sums, sorted(told.items())))
    except DataError as error:
        return "refused", str(error)
    except ScorelakeError as error:
        return "MACHINE", f"{type(error).__name__}: {error}; {error.__cause__!r}"[:400]
    except (Exception, pl.exceptions.PanicException) as error:
        steps = traceback.extract_tb(error.__traceback__)[-3:]
        told_at = " < ".join(f"{Path(step.filename).name}:{step.lineno}" for step in reversed(steps))
        return "EXCEPTION", f"{type(error).__name__}: {str(error)[:300]} ({told_at})"


def _plain(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Times as numbers: Python has no nanoseconds, and no year 12,000."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def judged(made: Made, data: bytes, where: str, home: Path) -> tuple[str, str]:  # noqa: PLR0911
    """How a damaged file ended, one of ENDS, and the details."""
    plain, kernel = (one_way(data, made.settings, method, home) for method in ("query", "auto"))
    for each in (plain, kernel):
        if each[0] in FORBIDDEN:
            return each
    if plain[0] != kernel[0] or (plain[0] == "counts" and plain[1] != kernel[1]):
        return "WAYS DIFFER", f"query: {plain[0]} {plain[1][:700]}; kernel: {kernel[0]} {kernel[1][:700]}"
    if plain[0] != "counts":
        if not (9 < len(plain[1]) < 1000) or plain[1].endswith("Error"):
            return "WRONG", f"no reason given: {plain[1]!r}"
        return plain
    if plain[1] == made.want:
        return "same", ""
    if made.checked and where == "page":
        return "WRONG", f"a page that has a checksum: {plain[1][:400]}; right: {made.want[:400]}"
    return f"other: {where}", "with checksums" if made.checked else "without checksums"


def peak() -> int:
    """The most memory held since the last time that this was asked."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return int(told[1]) << 10 if told else 0


def chosen(seed: int, number: int) -> tuple[random.Random, str, int]:
    rng = random.Random(f"{seed} {number}")
    return rng, SHAPES[number % len(SHAPES)], rng.randrange(VARIANTS)


def serve(seed: int, first: int, last: int) -> None:
    """The child: damage and count files one after the other, telling each before it is begun and after it is done."""
    faulthandler.enable()
    known: dict[tuple[str, int], Made] = {}
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        home, limited_yet = Path(folder), False
        for number in range(first, last):
            rng, shape, variant = chosen(seed, number)
            if (shape, variant) not in known:
                known[shape, variant] = made(shape, variant, home)
            if not limited_yet:  # when compiled code has been loaded
                resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
                limited_yet = True
            mine = known[shape, variant]
            data, where = damaged(mine, rng)
            print(json.dumps([number]), flush=True)
            peak()
            end, why = judged(mine, data, where, home)
            most = peak()
            if most > MOST_MEMORY and end not in FORBIDDEN:
                end, why = "MEMORY", f"{most >> 20} MB; then {end} {why}"
            print(json.dumps([number, end, why, mine.how]), flush=True)


def mutate(many: int, seed: int, log: Callable[[str], None] = print) -> Counter[tuple[str, str]]:
    """Damage so many files: how many of each shape ended in what. A child that dies or hangs is replaced."""
    ends: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    at = 0
    while at < many:
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(seed), str(at), str(many)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "RUST_BACKTRACE": "0"},
            )
            begun, how = None, "DIED"
            for line in _lines(child):
                if line is None:
                    how = "HUNG"
                    break
                number, *told = json.loads(line)
                begun = number
                if told:
                    at, begun, (end, why, writer) = number + 1, None, told
                    ends[chosen(seed, number)[1], end] += 1
                    if at % 2_000 == 0 and at < many:
                        log(_table(ends))
                    if end in ("quarantined", "refused"):
                        reasons[f"{end}: {re.sub(r'[0-9,]+', '#', why)[:90]}"] += 1
                    if end in FORBIDDEN or (end.startswith("other") and why == "with checksums"):
                        log(f"seed {seed}, file {number}, {chosen(seed, number)[1]}: {end}: {why}\n    {writer}")
            child.kill()
            code = child.wait()
            assert child.stdout is not None
            child.stdout.close()
            if at < many:
                errors.seek(0)
                told_last = errors.read().decode(errors="replace")[-1500:]
                assert begun is not None, f"the child itself failed ({code}): {told_last}"
                if how == "DIED" and named(seed, begun):
                    how = "ended, named"
                ends[chosen(seed, begun)[1], how] += 1
                log(f"seed {seed}, file {begun}, {chosen(seed, begun)[1]}: {how} ({code}): {told_last}")
                at = begun + 1
    log("\n".join(f"{n:6} {reason}" for reason, n in reasons.most_common(60)))
    log(_table(ends))
    return ends


def named(seed: int, number: int) -> bool:
    """Whether the command, whose job runs in a child, survives a file that ends the process, and names it."""
    rng, shape, variant = chosen(seed, number)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        home = Path(folder)
        data, _ = damaged(made(shape, variant, home), rng)
        (home / "lake").mkdir()
        (home / "lake" / "damaged.parquet").write_bytes(data)
        command = [sys.executable, "-m", "scorelake", "score", home / "lake", "--out", home / "out", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        told = json.loads(done.stdout)
    return done.returncode == 3 and "damaged.parquet: reading it ends the process" in told["error"]


def _lines(child: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """What a child says, line by line; None if it says nothing for too long."""
    assert child.stdout is not None
    held = b""
    while True:
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE_ONE_S)
        if not ready:
            yield None
            return
        new = os.read(child.stdout.fileno(), 1 << 16)
        if not new:
            return
        *lines, held = (held + new).split(b"\n")
        yield from lines


def _table(ends: Counter[tuple[str, str]]) -> str:
    there = [end for end in ENDS if any(ends[shape, end] for shape in SHAPES)]
    lines = ["shape".ljust(14) + "".join(end.rjust(16) for end in there)]
    lines += [shape.ljust(14) + "".join(f"{ends[shape, end]:16,}" for end in there) for shape in SHAPES]
    sums = [sum(ends[shape, end] for shape in SHAPES) for end in there]
    return "\n".join([*lines, "all".ljust(14) + "".join(f"{n:16,}" for n in sums)])


# --- to be run --------------------------------------------------------------------------------------------------


def differential(lakes: int, seed: int, keep: Path | None = None) -> Counter[str]:
    """Try so many lakes from a seed on; prints one line per failure."""
    ends: Counter[str] = Counter()
    for number in range(seed, seed + lakes):
        home = Path(tempfile.mkdtemp(prefix="differential-"))
        try:
            lake = Maker(number).lake()
            end, wrong = verify(lake, home, random.Random(number))
            ends[end] += 1
            if wrong:
                print(f"seed {number}: {lake.told}")
                for line in wrong:
                    print(f"    {line}"[:1500], flush=True)
        except Exception:
            print(f"seed {number}: the test itself failed")
            traceback.print_exc()
            ends["no test"] += 1
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lakes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutate", type=int, help="damage so many files instead")
    parser.add_argument("--serve", type=int, nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return 0
    if given.mutate:
        damage = mutate(given.mutate, given.seed, lambda line: print(line, flush=True))
        return 1 if any(end in FORBIDDEN for _, end in damage) else 0
    faulthandler.enable()
    ends = differential(given.lakes, given.seed)
    print(", ".join(f"{many} {end}" for end, many in sorted(ends.items())))
    return 1 if ends["WRONG"] or ends["no test"] else 0


if __name__ == "__main__":
    sys.exit(main())
