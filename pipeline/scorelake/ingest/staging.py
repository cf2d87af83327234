"""Read one source into a staged Parquet file and its statistics.

Attempts are staged because some facts (columns, verdicts or rewards, conflicts) are clear only when all sources have
been read. Beside the values, the staged file has hashes of problem and attempt for `attempt_stats`. Memory grows with
the number of distinct problems (their sums and ids), not with that of attempts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest import values
from scorelake.ingest.attempt_stats import AttemptStats, compute_stats
from scorelake.ingest.contract import MEASURES, AttemptRow, IngestOptions, LogFormat, LogRun, refusal

BATCH = 1 << 12
"""Attempts that are held in memory, of up to 20 kB each: names, an answer and settings have maximum lengths."""
NAMES = ("subject", "benchmark", "model")
PROBLEM = (*NAMES, "protocol", "problem_id")
_COLUMNS: dict[str, Any] = dict.fromkeys((*PROBLEM, "attempt", "answer"), pa.string())
_COLUMNS |= dict.fromkeys((*MEASURES, "value"), pa.float64()) | {"step": pa.int64()}
_COLUMNS |= {"error": pa.bool_(), "content_hash": pa.uint32()}
_MAX_MEASURE = 1e8
"""The largest that `score` accepts."""
MALFORMED = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""Errors that adapters raise on a record of an unexpected layout."""


@dataclass
class StagedRun:
    """The attempts of one run in a staged file, with their statistics."""

    run: LogRun
    path: Path
    carried: tuple[str, ...]
    filled: tuple[str, ...]
    """Optional columns that any attempt has: MEASURES, answer, subject."""
    stats: AttemptStats

    @property
    def benchmarks(self) -> list[str]:
        """List the benchmarks that rows name; "" for rows that name none."""
        return sorted({*self.stats.cells["benchmark"]})

    @property
    def kinds(self) -> dict[str, str]:
        """Whether the values of each benchmark are verdicts (passed), rewards (score), or may be either."""
        kind = "passed" if self.run.outcome == "passed" else "either"
        rewards = self.stats.cells.filter(pl.col("non_binary") > 0)["benchmark"] if kind == "either" else ()
        own = self.run.benchmark or ""
        return {name or own: kind for name in self.benchmarks} | {name or own: "score" for name in rewards}

    @property
    def run_key(self) -> str:
        """Identify the run across files: the tool's own id, with its names, since ids may be as short as "test"."""
        names = [self.run.format, self.run.identity, self.run.model, self.run.benchmark, self.run.subject]
        return json.dumps(names) if self.run.identity else ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """Distinguishes the problems of this source from equally named ones of another."""
        protocol = json.dumps(self.run.protocol, sort_keys=True, default=str)
        return self.run.benchmark, self.run.subject, self.run.model, protocol

    def batches(self, rows: int, n_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the staged attempts in batches of about this size, whichever is smaller."""
        with pq.ParquetFile(self.path) as file:
            sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
            bytes_per_row = max(1, sum(sizes) // max(1, file.metadata.num_rows))
            yield from file.iter_batches(min(rows, max(1, n_bytes // bytes_per_row)))

    def row(self, index: int) -> dict[str, Any]:
        """Return one staged attempt, for messages."""
        return pl.scan_parquet(self.path, glob=False).slice(index, 1).collect().row(0, named=True)


def stage(run: LogRun, adapter: LogFormat, path: Path, tick: Callable[[int], None]) -> StagedRun:
    """Read and check every attempt of a run. DataError names the file and the record that is wrong."""
    count = 0
    run.outcome, run.errors = adapter.outcome, run.options.errors or adapter.errors
    if adapter.passes and run.options.threshold is not None:
        run.outcome = "score"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Converted one by one: a batch of rows as they are in the log may hold gigabytes of text.
        rows = (_to_record(row, run, adapter.passes) for row in adapter.read(run))
        carried: tuple[str, ...] = ()
        with ExitStack() as files:
            writer: pq.ParquetWriter | None = None
            while (batch := list(islice(rows, BATCH))) or writer is None:
                count += len(batch)
                carried = carried if writer else tuple({name: 0 for record in batch for name in record["carried"]})
                table = _to_table(batch, carried)
                if writer is None:
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False)
                    files.enter_context(writer)
                writer.write_table(table)
                if len(batch) == BATCH:
                    tick(run.reading.position)
        optional = (*NAMES, *MEASURES, "answer")
        n_filled = pl.scan_parquet(path, glob=False).select(pl.col(optional).count()).collect().row(0, named=True)
        _resolve(run, [name for name in ("benchmark", "model") if n_filled[name] < count])
        filled = tuple(name for name in optional if n_filled[name])
        out = StagedRun(run, path, carried, filled, compute_stats([(path, None)]))
        _check(out)
        return out
    except DataError as error:
        if error.where is not None:
            raise
        what, hint = error.what, error.hint
    except MALFORMED as error:
        reason = str(error) if isinstance(error, ValueError) else "a value has an unexpected type"
        if isinstance(error, KeyError):
            reason = f"{values.quote(error.args[0])} is missing or unknown"
        what, hint = f"not in the layout of {run.format} ({reason:.120})", None
    finally:
        run.reading.file, run.document = None, {}  # an open file cannot be sent, and headers take memory
    raise refusal(f"{what}, after {count:,} attempts" if count else what, run.path, hint)


def _resolve(run: LogRun, unnamed: list[str]) -> None:
    """Complete the metadata with the options, and refuse a source without model or benchmark."""
    options = run.options
    for column in NAMES:
        given, own = options.fixed_name(column), getattr(run, column)
        if column == "model" and given and (others := {*run.named_models, own or given} - {given}):
            run.notes.append(f"the file names the model {', '.join(sorted(others))}; --model makes it {given}")
        name = None if column == "benchmark" and run.rows_name_benchmark else given or own or None
        setattr(run, column, None if name is None else values.to_name(name, column))
    if missing := [column for column in unnamed if getattr(run, column) is None]:
        hint = f"give {' and '.join(f'--{column}' for column in missing)}"
        raise refusal(f"no {' and no '.join(missing)} in the file", run.path, hint)
    run.protocol, run.provenance = (
        {key: value for key, value in _to_settings(settings, options).items() if value is not None}
        for settings in (run.protocol, run.provenance)
    )
    if run.outcome == "score" and options.threshold is not None:
        run.outcome, run.claims = "passed", []  # the tool's numbers are means of rewards


def _check(staged: StagedRun) -> None:
    """Refuse one id for two problems, an attempt with two verdicts, and repeated attempts where there can be none."""
    stats, where, is_unique = staged.stats, staged.run.path, staged.run.unique_attempts
    hint = "rows of several filters or graders cannot be distinguished" if is_unique else None
    if stats.conflicts:
        (_, row), (_, other) = stats.conflicts[0]
        raise refusal(describe_conflict(staged, row, staged, other), where, hint)
    if is_unique and stats.first_repeat is not None:
        row = stats.first_repeat[1]
        what = f"problem_id {staged.row(row)['problem_id']} occurs twice in one run (attempt {row + 1:,})"
        raise refusal(what, where, hint)


def describe_conflict(staged: StagedRun, row: int, elsewhere: StagedRun, other_row: int) -> str:
    """Describe two rows that contradict each other."""
    one, two, where = staged.row(row), elsewhere.row(other_row), elsewhere.run.path
    if one["content_hash"] is None or one["content_hash"] == (two["content_hash"] or one["content_hash"]):
        what = f"one attempt, two verdicts: problem {one['problem_id']}, attempt {one['attempt']}"
        return f"{what} is {one['value']:g} here and {two['value']:g} in {where}"
    there = f" of {where}" if elsewhere is not staged else ""
    rows = f"(attempt {row + 1:,} and attempt {other_row + 1:,}{there})"
    return f"problem_id {one['problem_id']} has conflicting contents {rows}"


def _to_record(row: AttemptRow, run: LogRun, passes: Callable[[float], bool] | None) -> dict[str, Any]:
    """Check and convert one attempt to the columns of a staged file, with its carried columns."""
    options, measures = run.options, row.measures or {}
    error, value = row.value is None if row.error is None else row.error, row.value
    if run.outcome == "score" and options.threshold is not None:
        passes = options.threshold.__le__
    if error:
        value = 0.0 if run.errors == "fail" else None
    elif passes is not None and value is not None:
        value = float(passes(value))
    record: dict[str, Any] = {
        "problem_id": values.to_name(row.problem_id, "problem id"),
        "attempt": values.to_name(row.attempt, "attempt"),
        "value": value,
        "error": error,
        "answer": values.to_answer(row.answer),
        "protocol": json.dumps(_to_settings(row.protocol, options), sort_keys=True) if row.protocol else None,
        "content_hash": None if row.content is None else zlib.crc32(values.to_text(str(row.content)).encode()),
        "carried": {name: values.to_answer(each) for name, each in (row.carried or {}).items()},
    }
    for name in NAMES:
        own = getattr(row, name)
        is_fixed = options.fixed_name(name) is not None and not (name == "benchmark" and run.rows_name_benchmark)
        if is_fixed and name == "model" and own is not None and len(run.named_models) < 4:
            run.named_models.add(str(own))
        record[name] = None if is_fixed or own is None else values.to_name(own, name)
    for name in measures:
        if name not in MEASURES:
            continue
        number = values.to_number(measures[name], name)
        # A clock that was set back gives a negative time, which is no measurement.
        is_valid = number is None or name == "step" or 0 <= number <= _MAX_MEASURE
        record[name] = number if is_valid else None
    model, step = options.model or record["model"] or run.model, record.get("step")
    if step is not None and model is not None:
        record["model"] = f"{model}@step {step:.0f}"  # also where --model names the run
    return record


def _to_table(records: list[dict[str, Any]], carried: tuple[str, ...]) -> pa.Table:
    """Build the table of a batch, with hashes of problem and attempt."""
    columns = {name: pa.array([record.get(name) for record in records], type_) for name, type_ in _COLUMNS.items()}
    columns |= {name: pa.array([record["carried"].get(name) for record in records], pa.string()) for name in carried}
    table = pa.table(columns)
    frame = pl.DataFrame(pl.from_arrow(table))
    # Hashes are stable within one version of Polars, which is enough for files that the same run reads.
    table = table.append_column("problem_hash", frame.select(PROBLEM).hash_rows(seed=1).to_arrow())
    return table.append_column("attempt_hash", frame.select(*PROBLEM, "attempt").hash_rows(seed=2).to_arrow())


def _to_settings(protocol: Mapping[str, Any], options: IngestOptions) -> dict[str, Any]:
    return {key: values.to_setting(value) for key, value in protocol.items() if key not in options.ignore}
