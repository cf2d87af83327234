"""Random lakes, counted by scorelake and again by a dictionary; test_differential runs a few, `make torture` many.

A lake is made from a seed: rows in memory, then files of several writers, encodings and types. The right counts
follow from the rows in memory alone, so reading is tested too. Every lake is counted by the kernel and by the query,
cut into shards at random, and published by the job itself, which reuses these counts. `mutate` damages files of such
lakes instead: each must be refused with a reason, or come to the same counts both ways.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import math
import multiprocessing
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cache
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
from scorelake.read.check import check
from scorelake.settings import Settings
from scorelake.storage.disk import mark
from scorelake.storage.files import Shard

Row = dict[str, Any]
Key = tuple[str, ...]
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


# --- a lake in memory -------------------------------------------------------------------------------------------


@dataclass
class Column:
    kind: pa.DataType
    values: list[Any]


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

    def write(self, home: Path) -> Path:
        path = home / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({name: pa.array(column.values, column.kind) for name, column in self.columns.items()})
        WRITERS[self.writer](table, path, **self.options)
        return path


@dataclass
class Lake:
    files: list[Source]
    settings: dict[str, Any]
    choices: dict[str, Any] = field(default_factory=dict)
    """For the reader of a failure."""
    taken: Counter[str] = field(default_factory=Counter)
    """Methods that counted, shards of several chunks, and writers."""


# --- what must come out, from the rows in memory ------------------------------------------------------------------


@dataclass
class Expected:
    problems: dict[Key, Row]
    run: dict[str, int]
    error: str | None
    """A part of the message with which the lake must be refused."""


def text_value(value: Any) -> str | None:
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
        if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
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
    return min(len(raw), 125), int.from_bytes(raw, "little") if len(raw) < 8 else int(text_ids(pl.Series([text]))[0])


def in_precision(value: float, kind: pa.DataType) -> float:
    """A number of the settings in the precision of a column."""
    return float(pa.scalar(value, kind).as_py()) if pa.types.is_floating(kind) else value


def without_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


class Recount:
    """A plain dictionary count of a lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.settings = lake, Settings.model_validate(lake.settings)
        self.rejected = 0
        self.rows: dict[Key, list[Row]] = defaultdict(list)
        for source in sorted(lake.files, key=lambda each: each.path):
            self._file(source)
        self.kinds, self.unlike = self._kinds()
        for key, rows in self.rows.items():
            for row in rows:
                self._grade(row, self.kinds[key[0]])

    def _file(self, source: Source) -> None:
        settings, names = self.settings, self.settings.columns
        kinds = {name: column.kind for name, column in source.columns.items()}
        threshold = names.score in kinds and settings.policy.pass_threshold is not None
        flags = {"passed": threshold or names.passed in kinds, "score": names.score in kinds}
        flags["answer"] = flags["passed"] and names.answer in kinds
        has = {name for name, flag in flags.items() if flag}
        for i in range(source.rows):
            raw: Row = source.folders | {name: column.values[i] for name, column in source.columns.items()}
            key, outcome = self._key(raw, source), self._outcome(raw, kinds)
            if key is None or outcome is None:
                self.rejected += 1
                continue
            attempt = text_value(raw.get(names.attempt)) if settings.duplicates.policy != "off" else None
            carried = {name: (raw[name], str(kinds.get(name, "string"))) for name in settings.carried}
            answer = answer_value(raw.get(names.answer))
            self.rows[key].append({"has": has, "attempt": attempt, "carried": carried, "answer": answer} | outcome)

    def _kinds(self) -> tuple[dict[str, set[str]], bool]:
        """What attempts of each benchmark have, and whether those of one differ."""
        kinds, unlike = dict[str, set[str]](), False
        by_benchmark: dict[str, list[Row]] = defaultdict(list)
        for key, rows in self.rows.items():
            by_benchmark[key[0]] += rows
        for benchmark, rows in by_benchmark.items():
            columns = [row["has"] for row in rows]
            both = {"passed", "score"}
            present = [
                {n for n in both if row[n] is not None} if both <= row["has"] else row["has"] & both for row in rows
            ]
            present = [each for each in present if each]
            wanted = both if both in present else (present or [columns[0] & both])[0]
            if "passed" in wanted and self.settings.answers and any("answer" in each for each in columns):
                wanted = wanted | {"answer"}
            unlike |= not all(wanted <= each for each in columns)
            unlike |= both not in present and any(each != present[0] for each in present)
            kinds[benchmark] = wanted
        return kinds, unlike

    def _grade(self, row: Row, kind: set[str]) -> None:
        """Decide whether a row is graded, now that the kind of its benchmark is clear."""
        fails = self.settings.policy.ungraded == "fail"
        needed = kind - {"answer"}
        row["graded"] = fails or all(row[name] is not None for name in needed)
        row["passed"] = bool(row["passed"]) and "passed" in kind and row["graded"]
        if row["score"] is None and fails and "score" in kind:
            row["score"] = min(self.settings.rubric.levels, default=0.0)
        if not row["graded"] or "answer" not in kind:
            row["answer"] = None

    def _key(self, raw: Row, source: Source) -> Key | None:
        names, folders, out = self.settings.columns, source.folders, list[str]()
        for key, default in (("benchmark", "default"), ("subject", "all"), ("model", None), ("problem_id", None)):
            (name,) = names.parts(key)
            text = text_value(raw.get(name, default))
            if text is None or folders.get(name, text) != text:
                return None
            out.append(text)
        protocol = {n: protocol_value(raw[n]) for n in self.settings.protocol.columns}
        return (*out, json.dumps(protocol))

    def _outcome(self, raw: Row, kinds: dict[str, pa.DataType]) -> Row | None:
        """passed and score of a row, None where it has none; no row if it is rejected."""
        names, policy, levels = self.settings.columns, self.settings.policy, self.settings.rubric.levels
        passed = score = None
        value, kind = raw.get(names.score), kinds.get(names.score)
        if value is not None:
            if levels:
                score = next((level for level in levels if in_precision(level, kind) == float(value)), None)
            elif math.isfinite(value):
                score = float(value) + 0.0
            if score is None:
                return None
            if policy.pass_threshold is not None:
                passed = float(value) >= in_precision(policy.pass_threshold, kind)
        if names.passed in raw:
            value, passed = raw[names.passed], None
            text = text_value(value) if isinstance(value, str | bytes) else protocol_value(value)
            is_spelled = isinstance(value, str | bytes) or (names.pass_values and not isinstance(value, bool))
            if text == "" and "" not in (*names.pass_values, *names.fail_values):
                value = None  # an empty cell is no verdict
            if value is not None and is_spelled:
                if text not in names.pass_values and text not in (names.fail_values or (text,)):
                    return None
                passed = text in names.pass_values
            elif value in (0, 1):
                passed = bool(value)
            elif value is not None:
                return None
        return {"passed": passed, "score": score}

    def _verdict(self, rows: list[Row]) -> tuple[Row, bool]:
        """The row that counts of those of one attempt, and whether they are in conflict."""
        rule, graded = self.settings.duplicates.rule, [row for row in rows if row["graded"]]
        if not graded:
            return rows[0], False
        answers = {row["answer"] for row in graded} - {None}
        conflict = max(len(answers), *(len({row[name] for row in graded}) for name in ("passed", "score"))) > 1
        if rule in ("first", "last"):
            return graded[0 if rule == "first" else -1], conflict
        passed = (all if rule == "all-pass" else any)(row["passed"] for row in graded)
        scores = [row["score"] for row in graded if row["score"] is not None]
        score = (min if rule == "all-pass" else max)(scores) if scores else None
        answers = {row["answer"] for row in graded if row["passed"] == passed} - {None}
        answer = min(answers, key=answer_rank, default=None)
        return {**graded[0], "passed": passed, "score": score, "answer": answer}, conflict

    def expected(self) -> Expected:
        conflicts = duplicates = 0
        problems = {}
        for key, rows in self.rows.items():
            attempts: dict[Any, list[Row]] = defaultdict(list)
            for i, row in enumerate(rows):
                attempts[i if row["attempt"] is None else row["attempt"]].append(row)
            verdicts = [self._verdict(same) for same in attempts.values()]
            conflicts += sum(conflict for _, conflict in verdicts)
            duplicates += len(rows) - len(verdicts)
            problems[key] = self._problem([row for row, _ in verdicts], rows, self.kinds[key[0]])
        run = {
            "rows_read": sum(source.rows for source in self.lake.files),
            "graded": sum(problem["n"] for problem in problems.values()),
            "ungraded": sum(problem["ungraded"] for problem in problems.values()),
            "duplicates": duplicates,
            "rejected": self.rejected,
        }
        return Expected(problems, run, self._error(conflicts, run["ungraded"]))

    def _error(self, conflicts: int, ungraded: int) -> str | None:
        """The reason for which the lake must be refused, by the first gate that it meets."""
        policy, duplicates, attempt = self.settings.policy, self.settings.duplicates, self.settings.columns.attempt
        nameless = [s for s in self.lake.files if attempt not in s.columns and attempt not in s.folders]
        if duplicates.policy == "exact" and nameless:
            everywhere = len(nameless) == len(self.lake.files)
            return f"no column {attempt}" if everywhere else f"{len(nameless):,} of the lake's files cannot be read"
        reasons = {
            f"{self.rejected:,} rows rejected": self.rejected > policy.max_rejected,
            "no attempt in any file": not self.rows,
            "attempts of one benchmark have different outcomes": self.unlike,
            f"{ungraded:,} attempts are ungraded": ungraded and policy.ungraded == "error",
            f"{conflicts:,} attempts have conflicting": conflicts and duplicates.rule == "error",
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _problem(self, verdicts: list[Row], rows: list[Row], kind: set[str]) -> Row:
        graded = [row for row in verdicts if row["graded"]]
        votes: dict[str, list[bool]] = defaultdict(list)
        for row in graded:
            if row["answer"] is not None:
                votes[row["answer"]].append(row["passed"])
        out = {
            "n": len(graded),
            "c": sum(row["passed"] for row in graded) if "passed" in kind else None,
            "ungraded": len(verdicts) - len(graded),
            "rewards": Counter(row["score"] for row in graded if row["score"] is not None),
            "answers": Counter((len(passed), sum(passed)) for passed in votes.values()),
        }
        for name in self.settings.carried:
            out[name] = self._smallest(name, rows)
        return out

    def _smallest(self, name: str, rows: list[Row]) -> Any:
        """The smallest carried value; if files have several sorts, the text of the smallest of the first sort."""
        kinds = {each["carried"][name][1] for group in self.rows.values() for each in group} - {"null"}
        sorts: dict[str, list[Any]] = defaultdict(list)
        for value, kind in (row["carried"][name] for row in rows):
            if without_nan(value) is not None:
                short = kind in FLOATS and not kinds <= FLOATS
                exact = sort_of(kind) != "Number" or not kinds & (FLOATS | {"double"})
                sorts[sort_of(kind)].append(
                    float(str(np.float32(value))) if short else value if exact else float(value)
                )
        value = min(sorts[min(sorts, key=lambda sort: (sort != "Number", sort))]) if sorts else None
        return protocol_value(value) if len({sort_of(each) for each in kinds}) > 1 else value


FLOATS = {"float", "halffloat"}


def sort_of(kind: str) -> str:
    """The sort of carried values: those of one are compared by size; numbers go first, the others by these names."""
    if re.match("u?int|float|double|halffloat|decimal", kind):
        return "Number"
    for start, name in (("bool", "Boolean"), ("date", "Date"), ("timestamp", "Datetime")):
        if kind.startswith(start):
            return name
    return "String" if "string" in kind or "binary" in kind else kind


# --- what did come out --------------------------------------------------------------------------------------------


def published(out: Path, settings: Settings) -> dict[Key, Row]:
    """problem_counts of the published run."""
    manifest = Output(out).current()
    assert manifest is not None
    found: dict[Key, Row] = {}
    for path in sorted((out / "snapshots" / manifest["run"]["run_id"] / "problem_counts").glob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            protocol = {name: protocol_value(value) for name, value in json.loads(row["protocol"] or "{}").items()}
            key = (*(row[name] for name in ("benchmark", "subject", "model", "problem_id")), json.dumps(protocol))
            assert key not in found, f"{key} is there twice"
            rewards = zip(row.get("rewards") or [], row.get("reward_counts") or [], strict=True)
            votes = zip(row.get("answer_counts") or [], row.get("answer_passes") or [], strict=True)
            found[key] = {name: without_nan(row[name]) for name in ("n", "c", "ungraded", *settings.carried)}
            found[key] |= {"rewards": Counter(dict(rewards)), "answers": Counter(votes)}
    return found


def differences(expected: Expected, found: dict[Key, Row], run: dict[str, Any]) -> Iterator[str]:
    for name, value in expected.run.items():
        if run[name] != value:
            yield f"{name}: {run[name]} published, {value} right"
    for key in expected.problems.keys() | found.keys():
        right, theirs = expected.problems.get(key, {}), found.get(key, {})
        for name in right.keys() | theirs.keys():
            if right.get(name) != theirs.get(name):
                short = tuple(part if len(part) < 40 else part[:30] + f"...({len(part)})" for part in key)
                yield f"{short} {name}: {theirs.get(name)!r} published, {right.get(name)!r} right"


# --- counting a lake ----------------------------------------------------------------------------------------------

Cut = list[tuple[tuple[int, ...], str]]
"""Shards: numbers of files in the listing, and the method that counts them."""


def count(lake: Path, out: Path, settings: Settings, cut: Cut, taken: Counter[str]) -> RunReport:
    """Count shards, then run the job, which reuses them: so it takes this cut and these methods unpatched."""
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
    counted = sum(len(numbers) for numbers, _ in cut)
    assert report.files_read == len(listed.files) - counted, "the job has counted again"
    return report


def cuts(rng: random.Random, files: int) -> Iterator[tuple[str, Cut]]:
    """All in one shard, each file alone, or any cut: with the kernel where it fits, by the query, and mixed."""
    for name, methods, share in (("auto", ["auto"], 1), ("query", ["query"], 1), ("mixed", ["auto", "query"], 0.25)):
        shards = rng.choice((1, files if files < 12 else 1, rng.randint(1, min(files, 4))))
        groups: dict[int, list[int]] = defaultdict(list)
        for i in range(files):
            groups[i if shards == files else rng.randrange(shards)].append(i)
        if rng.random() < share:
            yield name, [(tuple(group), rng.choice(methods)) for group in groups.values()]
    if rng.random() < 0.1:
        yield "as the job cuts it", []


def verify(lake: Lake, home: Path, rng: random.Random) -> tuple[str, list[str]]:
    """Write a lake and count it several ways: (equal or refused, nothing), or (WRONG, what is wrong)."""
    for source in lake.files:
        path = source.write(home / "lake")
        lake.taken[source.writer] += 1
        if rng.random() < 0.05:  # a file of another place is read, one of the lake once
            path.rename(elsewhere := home / f"{rng.random()}.parquet")
            path.symlink_to(elsewhere)
        elif rng.random() < 0.05:
            (home / "lake" / "latest.parquet").unlink(missing_ok=True)
            (home / "lake" / "latest.parquet").symlink_to(path)
    expected, wrong = Recount(lake).expected(), list[str]()
    settings, rows = Settings.model_validate(lake.settings), expected.run["rows_read"]
    for i, (name, cut) in enumerate(cuts(rng, len(lake.files))):
        machine = {
            "memory_gb": rng.choice((None, 0.0001, 0.001)),
            "threads": rng.choice((None, 1, 2)),
            "bucket_rows": rng.choice((None, None, 3, 30, 100) if rows < 300 else (None, rows // 10, rows // 3)),
            "shard_mb": rng.choice((None, 0.001, 0.01)),
        }
        mine = settings.model_copy(update={"run": settings.run.model_copy(update=machine)})
        error, faults = None, list[str]()
        try:
            report = count(home / "lake", home / f"out{i}", mine, cut, lake.taken)
            faults = list(differences(expected, published(home / f"out{i}", settings), report.run))
            if not i:
                findings = check(Output(home / "out0"), str(home / "lake"))
                faults += [str(each) for each in findings if each.ok is False]
        except (DataError, UsageError) as refused:
            error = str(refused)
        except (Exception, pl.exceptions.PanicException) as crash:
            faults = [crash_text(crash)]
        if (error is None) != (expected.error is None) or (expected.error or "") not in (error or ""):
            faults = [f"error: {(error or 'none')[:600]}; right: {expected.error}", *faults]
        wrong += [f"[{name}; {machine}] {fault} (of {len(faults)})" for fault in faults[:5]]
    return ("WRONG" if wrong else "refused" if expected.error else "equal"), wrong


# --- writers ------------------------------------------------------------------------------------------------------


def write_arrow(table: pa.Table, path: Path, *, row_group_size: int, empty_groups: bool, **options: Any) -> None:
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for part in [table[:0], table, table[:0]] if empty_groups else [table]:
            if part.num_rows or empty_groups:
                writer.write_table(part, row_group_size=row_group_size)


def write_polars(table: pa.Table, path: Path, **options: Any) -> None:
    pl.DataFrame(table).write_parquet(path, **options)


def write_duckdb(table: pa.Table, path: Path, **options: Any) -> None:
    chosen = ", ".join(f"{key} {value}" for key, value in options.items())
    target = str(path).replace("'", "''")
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        db.register("rows", table)
        db.execute(f"COPY rows TO '{target}' (FORMAT parquet, {chosen})")


WRITERS: dict[str, Callable[..., None]] = {"arrow": write_arrow, "polars": write_polars, "duckdb": write_duckdb}


def writer_options(rng: random.Random, writer: str, columns: dict[str, Column]) -> dict[str, Any]:
    tiny = all(len(column.values) < 100 for column in columns.values())  # a row group or page for each row
    if writer == "duckdb":
        return {
            "COMPRESSION": rng.choice(("uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli")),
            "PARQUET_VERSION": rng.choice(("V1", "V2")),
            "ROW_GROUP_SIZE": rng.choice((2048, 122880)),
            "STRING_DICTIONARY_PAGE_SIZE_LIMIT": rng.choice((1, 1 << 20)),
        }
    if writer == "polars":
        return {
            "compression": rng.choice(("uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli")),
            "row_group_size": rng.choice((2, 10, 100, None) if tiny else (1000, None)),
            "data_page_size": rng.choice((16, None)),
            "statistics": rng.random() < 0.7,
        }
    out: dict[str, Any] = {
        "compression": rng.choice(("none", "none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        "data_page_version": rng.choice(("1.0", "2.0")),
        "write_page_checksum": rng.random() < 0.5,
        "row_group_size": rng.choice((1, 3, 10, 100, *[1 << 20] * 4) if tiny else (100, 1000, 10_000, 1 << 20)),
        "empty_groups": rng.random() < 0.15,
        "store_schema": rng.random() < 0.7,
        "write_statistics": rng.random() < 0.7,
        "version": rng.choice(("1.0", "2.4", "2.6")),
        "data_page_size": rng.choice((1 if tiny else 512, 64, 1 << 20)),
        "write_batch_size": rng.choice((1 if tiny else 100, 7, 1024)),
        "use_dictionary": [name for name in columns if rng.random() < 0.4],
        "dictionary_pagesize_limit": rng.choice((1, 50, 1 << 20)),
    }
    if out["version"] == "1.0":
        out["coerce_timestamps"] = "us"
    return out


# --- random lakes -------------------------------------------------------------------------------------------------


def names(rng: random.Random, many: int) -> list[Any]:
    """Names of one kind, most of them hard."""
    hard = ["007", "7", "07", "", " ", "a b", "a", "b", "'", '"', "\n", "a\nb", "\x00", "a\x00", "é", "e\u0301"]
    hard += ["日本", "🙂", "a/b", "x=y", "%41", "null", "None", "NaN", "true", "'; DROP TABLE x; --", "</script>"]
    hard += ["\\", "\t", "0", "-0"]
    kinds: list[Callable[[], list[Any]]] = [
        lambda: [f"p{i}" for i in range(many)],
        lambda: [f"p{i}" for i in range(many)],
        lambda: rng.sample(range(-5, 10 * many), many),
        lambda: [rng.choice((1, -1)) * rng.getrandbits(rng.choice((3, 30, 62))) for _ in range(many)],
        lambda: hard,
        lambda: [" ".join(rng.choice("ab") for _ in range(rng.randint(1, 4))) for _ in range(many)],
        lambda: ["x" * (8 * rng.randint(0, 4)) + "y" * rng.randint(0, 9) for _ in range(many)],
        lambda: ["z" * rng.choice((255, 256, 257, 3000)) + str(i) for i in range(many)],
        lambda: ["0" * rng.randint(0, 3) + str(rng.randint(0, 9)) for _ in range(many)],
        lambda: colliding(min(many, 200)),
    ]
    chosen = rng.choice(kinds)()
    return (chosen * many)[:many] if len(set(chosen)) > 1 or isinstance(chosen[0], int) else [*chosen, "other"]


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


def text_column(rng: random.Random, values: list[Any]) -> Column:
    """A column that holds the names as they are: texts, or where all are numbers one of several integers."""
    numbers = [value for value in values if value is not None]
    if numbers and all(isinstance(value, int) for value in numbers):
        low, high = min(numbers), max(numbers)
        limits = {"int64": (-(2**63), 2**63), "int32": (-(2**31), 2**31), "int8": (-128, 128)}
        limits |= {"uint64": (0, 2**64), "uint32": (0, 2**32)}
        fits = [pa.type_for_alias(name) for name, (least, end) in limits.items() if least <= low and high < end]
        fits += [pa.dictionary(pa.int16(), pa.int64())] if len(set(numbers)) < 1000 else []
        return Column(rng.choice(fits), values)
    kinds = [pa.string(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
    kinds += [pa.dictionary(pa.int32(), inner) for inner in (pa.string(), pa.large_string(), pa.binary())]
    kind = rng.choice([*kinds, pa.binary_view()])
    texts = [text_value(value) for value in values]
    if (kind.value_type if isinstance(kind, pa.DictionaryType) else kind) in BINARY:
        return Column(kind, [None if text is None else text.encode() for text in texts])
    return Column(kind, texts)


BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())
VERDICTS: list[tuple[pa.DataType, Callable[[Any], Any], tuple[Any, ...]]] = [
    (pa.bool_(), bool, (True,)),
    (pa.bool_(), bool, (True,)),
    *((kind, int, (2, 3)) for kind in (pa.int8(), pa.uint8(), pa.int32(), pa.int64())),
    (pa.float32(), float, (0.5, math.nan, math.inf, 2.0)),
    (pa.float64(), float, (0.5, math.nan, math.inf, 2.0)),
    (pa.decimal128(3, 1), Decimal, (Decimal("0.5"),)),
    (pa.dictionary(pa.int8(), pa.int64()), int, (2, 3)),
]
"""Types of verdicts, how they are written, and values that are none."""
WORDS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
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

_UUIDS = [UUID(int=random.Random(i).getrandbits(128)) for i in range(800)]
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
    "uuid texts": lambda i: str(_UUIDS[i]),
    "uuids": lambda i: _UUIDS[i],
}

TEXTS, NUMBERS = ["hard", "easy", "", "10", "9", "Easy"], ["0", "1", None, "0.5", "null", ""]
PROTOCOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, None, 2, -1, 10**15]),
    "float": (pa.float64(), [0.0, 1.0, None, 0.5, math.nan, math.inf]),
    "zeros": (pa.float64(), [-0.0, 0.0, None, 0.1, 1e300, -math.inf]),
    "float32": (pa.float32(), [0.0, 1.0, None, 0.5, math.nan, -math.inf]),
    "text": (pa.string(), NUMBERS),
    "none": (pa.null(), [None] * 6),
    "words": (pa.string(), ["true", "false", None, "x y", 'a"b', "0.50"]),
    "bool": (pa.bool_(), [True, False, None, True, False, None]),
    "list": (pa.list_(pa.int64()), [[1, 2], [1], None, [], [2, 1], [12]]),
    "decimal": (pa.decimal128(9, 3), [Decimal(0), Decimal(1), None, Decimal("0.500"), Decimal(-1), Decimal("0.125")]),
}

CARRIED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [5, 4, 3, -2, 10**16 + 1, 10**16]),
    "float": (pa.float64(), [0.5, 0.25, -1.0, 1e300, math.nan, 0.1]),
    "text": (pa.string(), TEXTS),
    "bool": (pa.bool_(), [True, False, True, False, True, False]),
    "int8": (pa.int8(), [5, 10, 3, -2, 1, 0]),
    "float32": (pa.float32(), [5.0, float(np.float32(0.1)), -1.0, 2.0, math.nan, 8.0]),
    "tenths": (pa.float64(), [5.0, 0.1, -1.0, -0.0, math.nan, 10.5]),
    "date": (pa.date32(), [date(2024, 1, d) for d in range(1, 7)]),
    "time": (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, d) for d in range(1, 7)]),
    "words": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "decimal": (pa.decimal128(9, 3), [Decimal(i) / 8 for i in range(-2, 4)]),
    "nulls": (pa.null(), [None] * 6),
}

MIXED = ("int8", "float32", "tenths", "text", "bool", "nulls")
"""Carried columns that differ between files."""
ANSWERS: dict[str, list[tuple[pa.DataType, list[Any]]]] = {
    "text": [(pa.string(), ["a", "b", "a ", "", "007", "7", "7.0", "a longer answer"])],
    "int": [(pa.int64(), [7, 8, -1, 0, 10**15, 70, 71, 72]), (pa.int8(), [7, 8, -1, 0, 1, 70, 71, 72])],
    "float": [
        (pa.float64(), [0.5, -0.0, 0.0, math.nan, 1.5, math.inf, -1.0, 1e20]),
        (pa.float32(), [0.5, -0.0, 0.0, math.nan, 1.5, math.inf, -1.0, 2.5]),
    ],
    "bool": [(pa.bool_(), [True, False] * 4)],
}


PLAIN: dict[str, tuple[Any, ...]] = {"shape": ("passed",), "attempt": (None, "small"), "rule": ("error", "any-pass")}
PLAIN |= {"answer": (None,), "carry": (0,)}
"""Choices for every third lake, so that the kernel counts some."""


class Maker:
    """One lake from one seed."""

    def __init__(
        self, seed: int, size: tuple[str, ...] = ("small",) * 48 + ("wide", "deep", "empty") * 3 + ("tall",)
    ):
        self.rng = rng = random.Random(seed)
        self.choices: dict[str, Any] = {"seed": seed}
        self.is_plain = seed % 3 == 0
        shapes = ("passed", "passed", "passed", "score", "threshold", "rubric", "both", "rubric and passed", "mixed")
        self.shape = self.pick("shape", (*shapes, "mixed", "mixed"))
        self.has_passed = "passed" in self.shape or self.shape in ("both", "mixed")
        self.has_score, self.kinds = self.shape != "passed", dict[Any, set[str]]()
        self.apart = self.shape == "mixed" and self.pick("kinds in files of their own", (True, True, False))
        self.words = self.has_passed and self.pick("words", (None, None, None, None, None, None, "strict", "lax"))
        self.nulls = self.pick("nulls", (0.0, 0.0, 0.1, 0.9))
        self.bad = self.pick("bad", (0.0, 0.0, 0.0, 0.05))
        self.attempt = self.pick("attempt", (None, None, None, "small", "small", *ATTEMPTS))
        self.no_attempt = self.pick("attempt missing", (0.0, 0.0, 0.1))
        self.some_files = self.pick("attempt in some files", (False, False, False, True))
        self.again = self.pick("duplicates", (0.0, 0.0, 0.1, 0.5))
        self.differ = self.pick("conflicting", (0.0, 0.0, 0.3))
        self.rule = self.pick("rule", ("error", "first", "last", "any-pass", "all-pass"))
        self.answer = self.pick("answer", (None, None, None, None, None, *ANSWERS)) if self.shape != "score" else None
        self.size = self.pick("size", size)
        self.writers = self.pick("writers", (["arrow"], ["arrow"], ["arrow"], list(WRITERS)))
        self.carried = [rng.choice(list(CARRIED)) for _ in range(self.pick("carry", (0, 0, 1, 2)))]
        self.several = self.pick("several types", (0.0, 0.0, 0.5))
        kinds = list(PROTOCOLS)  # each file has one of them
        self.protocols = [rng.choice((kinds[:6], kinds)) for _ in range(self.pick("protocol", (0, 0, 1, 2)))]

    def pick(self, name: str, choices: tuple[Any, ...]) -> Any:
        self.choices[name] = self.rng.choice(PLAIN.get(name, choices) if self.is_plain else choices)
        return self.choices[name]

    def rows(self) -> list[Row]:
        """Attempts, before they have types."""
        rng, out, tall = self.rng, list[Row](), self.size == "tall"
        sizes = {"small": (30, 8), "wide": (3000, 2), "deep": (2, 700), "empty": (1, 0), "tall": (70_000, 2)}
        problems, attempts = sizes[self.size]
        problems = problems if tall else rng.randint(1, problems)
        keys = {key: names(rng, rng.randint(1, 4)) for key in ("model", "benchmark", "subject")}
        ids = [f"problem-{i:09}" for i in range(problems)] if tall else names(rng, problems)
        for i in range(problems):
            problem = {name: rng.choice(values) for name, values in keys.items()} | {"problem_id": ids[i]}
            problem |= {"protocol": rng.randrange(6), "carried": rng.randrange(6)}
            for number in rng.sample(range(attempts + 2), rng.randint(int(tall), attempts)):
                out.append(problem | {"number": number} | self.verdict())
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
        if rng.random() < 0.5:
            rng.shuffle(out)
        return out

    def verdict(self) -> Row:
        rng = self.rng
        whole = self.shape.startswith(("rubric", "threshold")) or rng.random() < 0.5
        return {
            "right": rng.random() < 0.4,
            "level": rng.choice(LEVELS) if whole else rng.random(),
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
            values = tuple(None if row["nowhere"] else text_value(row[key]) for key in folders)
            row["has"] = self.kind_of(row)
            groups[values, "+".join(sorted(row["has"])) * self.apart].append(row)
        many = rng.choice((1, 2, 3, 8)) if self.size != "tall" else 1
        files = []
        for (values, apart), group in groups.items() or [((("x",) * len(folders), ""), [])]:
            ends = [0, *sorted(rng.randint(0, len(group)) for _ in range(many - 1)), len(group)]
            parts = [group[low:high] for low, high in itertools.pairwise(ends)]
            parts = [group[i::many] for i in range(many)] if rng.random() < 0.5 else parts
            if any(len(value or "") > 200 for value in values):
                return Maker(self.choices["seed"] + 1_000_003, (self.size,)).lake()
            hive = dict(zip(folders, values, strict=True))
            safe = rng.choice(("", " "))
            parents = [f"{quote(k)}={HIVE_NULL if v is None else quote(v, safe=safe)}" for k, v in hive.items()]
            for i, part in enumerate(parts):
                if part or rng.random() < 0.1 or (len(groups) <= 1 and i == 0):
                    more = self.constants(part) if rng.random() < 0.15 else {}
                    inside = [f"{k}={HIVE_NULL if v is None else quote(v)}" for k, v in more.items()]
                    path = "/".join([*parents, *inside, f"part-{i}{apart}.parquet"])
                    files.append(self.source(path, hive | more, part))
        return Lake(files, self.settings(), self.choices)

    def kind_of(self, row: Row) -> set[str]:
        """What the attempts of a benchmark have, with an exception now and then."""
        if self.shape != "mixed":
            return {name for name, flag in (("passed", self.has_passed), ("score", self.has_score)) if flag}
        benchmark = None if "benchmark" in self.absent else text_value(row["benchmark"])
        kind = self.kinds.setdefault(benchmark, self.rng.choice(({"passed"}, {"score"}, {"passed", "score"})))
        return kind if self.rng.random() > 0.0005 else {"passed"}

    def constants(self, rows: list[Row]) -> dict[str, str | None]:
        """Attempts, protocols and carried values that folders have."""
        out = dict[str, str | None]()
        for i in range(len(self.protocols)):
            if len({row["protocol"] for row in rows}) == 1:
                out[f"protocol {i}"] = ("0", "1", None, "0.5")[rows[0]["protocol"] % 4]
        if self.carried and self.several:
            out["carry 0"] = "10"
        if self.attempt == "small" and len({row["number"] for row in rows}) == 1:
            out["attempt"] = str(rows[0]["number"])
        return out

    def settings(self) -> dict[str, Any]:
        rng = self.rng
        policy: dict[str, Any] = {"ungraded": rng.choice((*["exclude"] * 12, *["fail"] * 6, "error"))}
        policy["max_rejected"] = 0 if rng.random() < 0.1 else 1 << 30
        if self.shape == "threshold" or (self.shape == "both" and rng.random() < 0.3):
            policy["pass_threshold"] = 0.7
        metrics = (
            []
            if self.shape == "mixed"
            else ["pass@1"]
            if self.has_passed or "pass_threshold" in policy
            else ["avg@N"]
        )
        if self.answer and rng.random() < 0.9 and metrics == ["pass@1"]:
            metrics.append("vote@1")
        out: dict[str, Any] = {
            "columns": {"carry": [f"carry {i}" for i in range(len(self.carried))]},
            "protocol": {"columns": [f"protocol {i}" for i in range(len(self.protocols))]},
            "policy": policy,
            "duplicates": {"rule": self.rule, "policy": rng.choice(("off", "exact", *["auto"] * 6))},
            "metrics": {"names": metrics},
            "compare": {"resamples": 100},
        }
        if self.words:
            out["columns"] |= {"pass_values": PASSES, "fail_values": FAILS if self.words == "strict" else ()}
        if self.shape.startswith("rubric"):
            out["rubric"] = {"levels": list(LEVELS)}
        self.choices |= {"policy": policy, "duplicates": out["duplicates"]}
        return out

    def source(self, path: str, folders: dict[str, str | None], rows: list[Row]) -> Source:
        rng = self.rng
        columns = self._keys(folders, rows) | self._outcomes(rows) | self._attempts(folders, rows)
        if self.answer:
            kind, pool = rng.choice(ANSWERS[self.answer])
            columns["answer"] = Column(kind, [[*pool, None][row["answer"]] for row in rows])
        for i, family in enumerate(self.protocols):
            kind, pool = PROTOCOLS[rng.choice(family)]
            if f"protocol {i}" not in folders:
                columns[f"protocol {i}"] = Column(kind, [pool[(row["protocol"] * (i + 1)) % 6] for row in rows])
        for i, name in enumerate(self.carried):
            kind, pool = CARRIED[rng.choice(list(MIXED)) if rng.random() < self.several else name]
            if f"carry {i}" in folders:
                continue
            values = [None if rng.random() < 0.1 else pool[(row["carried"] + i) % 6] for row in rows]
            columns[f"carry {i}"] = Column(kind, values)
        if rng.random() < 0.3:
            columns["other"] = Column(pa.struct({"a": pa.int64()}), [{"a": 1}] * len(rows))
        columns = dict(rng.sample(list(columns.items()), len(columns)))
        writer = rng.choice(self.writers)
        if writer != "arrow" and not all(_portable(column.kind, writer) for column in columns.values()):
            writer = "arrow"
        return Source(path, folders, columns, writer, writer_options(rng, writer, columns))

    def _keys(self, folders: dict[str, str | None], rows: list[Row]) -> dict[str, Column]:
        columns = {}
        for key in ("model", "problem_id", "benchmark", "subject"):
            if key not in self.absent and (key not in folders or key in self.both):
                values = [row[key] if self.rng.random() >= self.bad / 3 else None for row in rows]
                columns[key] = text_column(self.rng, values)
        return columns

    def _outcomes(self, rows: list[Row]) -> dict[str, Column]:
        rng, columns = self.rng, dict[str, Column]()
        has = set[str]().union(*(row["has"] for row in rows)) if rows else self.kind_of({"benchmark": None})
        if "passed" in has:
            kind, cast, bad = rng.choice(VERDICTS)
            values = [rng.choice(bad) if row["bad"] else cast(row["right"]) for row in rows]
            if self.words and rng.random() < 0.9:
                kind = rng.choice(WORDS)
                values = ["n/a" if row["bad"] else rng.choice(PASSES if row["right"] else FAILS) for row in rows]
                values = [value.encode() for value in values] if kind in BINARY else values
            columns["passed"] = Column(
                kind,
                [
                    None if r["no verdict"] or "passed" not in r["has"] else v
                    for r, v in zip(rows, values, strict=True)
                ],
            )
        if "score" in has:
            kind, cast = rng.choice(SCORES)
            bad = (math.nan, math.inf, -math.inf) if kind in (pa.float32(), pa.float64()) else ()
            values = [rng.choice(bad) if row["bad"] and bad else cast(row["level"]) for row in rows]
            absent = [row["no score"] or "score" not in row["has"] for row in rows]
            columns["score"] = Column(kind, [None if no else v for no, v in zip(absent, values, strict=True)])
        return columns

    def _attempts(self, folders: dict[str, str | None], rows: list[Row]) -> dict[str, Column]:
        if self.attempt is None or "attempt" in folders or (self.some_files and self.rng.random() < 0.5):
            return {}
        values = [ATTEMPTS[self.attempt](row["number"]) if row["named"] else None for row in rows]
        if self.attempt == "uuids" and self.rng.random() < 0.7:
            return {"attempt": Column(pa.uuid(), values)}
        return {
            "attempt": text_column(self.rng, values if self.rng.random() < 0.8 else list(map(text_value, values)))
        }


def _portable(kind: pa.DataType, writer: str) -> bool:
    """Whether a writer that is not Arrow's writes this type as what it is."""
    if pa.types.is_float16(kind) or pa.types.is_null(kind):
        return False
    return not (isinstance(kind, pa.UuidType) if writer == "polars" else pa.types.is_nested(kind))


# --- damaged files ------------------------------------------------------------------------------------------------

BASES = 192
"""Files that are damaged, each many times."""
PATIENCE_S, MOST_MEMORY, MOST_ADDRESSES = 30, 2 << 30, 8 << 30
FORBIDDEN = ("EXCEPTION", "MACHINE", "WAYS DIFFER", "WRONG", "MEMORY", "DIED", "HUNG")
ENDS = ("quarantined", "refused", "same", "ended, named", "other: page", "other: header", "other: footer", *FORBIDDEN)


@dataclass
class Base:
    """A small file that is to be damaged, and what it comes to undamaged."""

    lake: Lake
    data: bytes
    parts: dict[str, list[tuple[int, int]]]
    """Where the bodies of pages are, their headers, and the footer."""
    checked: bool
    """Whether every page has a checksum."""
    right: str = ""

    def count(self, data: bytes, method: str, home: Path) -> tuple[str, str]:
        """What counting the file with these bytes ends in (counts, quarantined, refused, forbidden), and details."""
        shutil.rmtree(home / "one", ignore_errors=True)
        path, out = home / "one" / self.lake.files[0].path, home / "one" / ".out"
        path.parent.mkdir(parents=True)
        out.mkdir()
        path.write_bytes(data)
        try:
            return counts_of_file(home / "one", out, Settings.model_validate(self.lake.settings), method)
        except DataError as error:
            return "refused", str(error)
        except ScorelakeError as error:
            return "MACHINE", f"{type(error).__name__}: {error}; {error.__cause__!r}"[:400]
        except (Exception, pl.exceptions.PanicException) as error:
            return "EXCEPTION", crash_text(error)


def crash_text(error: BaseException) -> str:
    steps = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{Path(step.filename).name}:{step.lineno}" for step in reversed(steps))
    return f"{type(error).__name__}: {str(error)[:300]} ({where})"


def counts_of_file(folder: Path, out: Path, settings: Settings, method: str) -> tuple[str, str]:
    shard = Shard(str(folder), listing(folder).files)
    partial = tasks.count(tasks.Count(shard, settings, str(out / "partials"), method=method))
    if partial.quarantine:
        return "quarantined", partial.quarantine[0][1]
    rule = settings.duplicates.rule
    (bucket,) = plan_buckets(out / "partials", [partial], out, rule, settings.answers, rows_per_bucket=10**9)
    merged = merge(bucket)
    counts = pl.read_parquet(bucket.path) if merged.problems else pl.DataFrame()
    columns = {
        name: [without_nan(value) for value in column.to_physical().to_list()]  # times: Python has no year 12,000
        for name, column in sorted(counts.to_dict().items())
    }
    return "counts", repr(
        (partial.read, partial.rejected, partial.rejects, merged.duplicates, merged.conflicts, columns)
    )


@cache
def base(number: int, home: Path) -> Base:
    """The first small lake from a seed on whose first file has rows enough, and can be counted."""
    for seed in itertools.count(1000 * number):
        lake = Maker(seed, ("small",)).lake()
        lake.settings["run"] = {"threads": 1, "memory_gb": 0.05}
        if 20 <= lake.files[0].rows <= 200:
            data = lake.files[0].write(home).read_bytes()
            out = Base(lake, data, *pages(data))
            (end, out.right), *others = {out.count(data, method, home) for method in ("auto", "query")}
            assert not others, f"seed {seed}, undamaged: {end} {out.right}, {others}"
            if end == "counts":
                return out
    raise AssertionError


def pages(data: bytes) -> tuple[dict[str, list[tuple[int, int]]], bool]:
    """Where the headers and bodies of pages are, and the footer; and whether every page has a checksum."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    footer = (len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))
    out: dict[str, list[tuple[int, int]]] = {"header": [], "page": [], "footer": [footer]}
    checked = True
    for i, j in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk = metadata.row_group(i).column(j)
        at = min((o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o), default=len(data))
        end = at + chunk.total_compressed_size
        while at < end:
            fields, body = thrift(data, at)
            out["header"].append((at, body))
            at = body + fields[3]
            if body < at:
                out["page"].append((body, at))
            checked &= 4 in fields
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
        if kind == 3:
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


def damaged(file: Base, rng: random.Random) -> tuple[bytes, str]:
    """The file with one to three bytes changed, cut or lengthened; and where: page, header or footer."""
    data, kind = bytearray(file.data), rng.random()
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
    low, high = rng.choice(file.parts[where]) if where != "any" else (0, len(data))
    touched = set()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(low, high)
        data[at] ^= rng.choice((1 << rng.randrange(8), rng.randrange(1, 256), data[at] or 1, data[at] ^ 255 or 1))
        touched.add(next((name for name, spans in file.parts.items() for a, b in spans if a <= at < b), "footer"))
    return bytes(data), next(name for name in ("footer", "header", "page") if name in touched)


def judged(file: Base, data: bytes, where: str, home: Path) -> tuple[str, str]:
    """How a damaged file ended, one of ENDS, and the details."""
    (end, why), (other, kernel) = (file.count(data, method, home) for method in ("query", "auto"))
    if end in FORBIDDEN or other in FORBIDDEN:
        return (end, why) if end in FORBIDDEN else (other, kernel)
    if end != other or (end == "counts" and why != kernel):
        return "WAYS DIFFER", f"query: {end} {why[:700]}; kernel: {other} {kernel[:700]}"
    if end != "counts":
        reasoned = 9 < len(why) < 1000 and not why.endswith("Error")
        return (end, why) if reasoned else ("WRONG", f"no reason given: {why!r}")
    if why == file.right:
        return "same", ""
    if file.checked and where == "page":
        return "WRONG", f"a page that has a checksum: {why[:400]}; right: {file.right[:400]}"
    return f"other: {where}", "with checksums" if file.checked else "without checksums"


def peak() -> int:
    """The most memory held since the last call."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    return int(found[1]) << 10 if found else 0


def chosen(seed: int, number: int, home: Path) -> tuple[Base, bytes, str]:
    """A file and its damaged bytes, and where they are damaged."""
    rng = random.Random(f"{seed} {number}")
    file = base(rng.randrange(BASES), home)
    return file, *damaged(file, rng)


def serve(pipe: Any, seed: int, first: int, last: int) -> None:
    """The child: damage and count files one after the other, and send how each ended."""
    faulthandler.enable()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        for number in range(first, last):
            file, data, where = chosen(seed, number, Path(folder))
            if number == first:  # compiled code has been loaded
                resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
            peak()
            end, why = judged(file, data, where, Path(folder))
            if (most := peak()) > MOST_MEMORY and end not in FORBIDDEN:
                end, why = "MEMORY", f"{most >> 20} MB; then {end} {why}"
            pipe.send((end, why))


def mutate(many: int, seed: int, log: Callable[[str], None] = print) -> Counter[str]:
    """Damage so many files: how many ended in what. A child that dies or hangs is replaced."""
    ends: Counter[str] = Counter()
    context, at = multiprocessing.get_context("spawn"), 0
    while at < many:
        ours, theirs = context.Pipe()
        child = context.Process(target=serve, args=(theirs, seed, at, many))
        child.start()
        theirs.close()
        first, how = at, "DIED"
        with suppress(EOFError):
            while at < many:
                if not ours.poll(PATIENCE_S * (1 + (at == first))):
                    how = "HUNG"
                    break
                end, why = ours.recv()
                ends[end] += 1
                if end in FORBIDDEN or (end.startswith("other") and why == "with checksums"):
                    log(f"seed {seed}, file {at}: {end}: {why}")
                at += 1
        child.kill()
        child.join()
        if at < many:
            assert child.exitcode != 1, "the child itself failed"
            if how == "DIED" and named(seed, at):
                how = "ended, named"
            ends[how] += 1
            log(f"seed {seed}, file {at}: {how} ({child.exitcode})")
            at += 1
    log(", ".join(f"{n} {end}" for end, n in sorted(ends.items())))
    return ends


def named(seed: int, number: int) -> bool:
    """Whether the command, whose job runs in a child, survives a file that ends the process, and names it."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        _, data, _ = chosen(seed, number, Path(folder))
        lake = Path(folder, "lake")
        lake.mkdir()
        (lake / "damaged.parquet").write_bytes(data)
        command = [sys.executable, "-m", "scorelake", "score", lake, "--out", lake.with_name("out"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    error = json.loads(done.stdout)["error"]
    return done.returncode == 3 and "damaged.parquet: reading it ends the process" in error
