"""Read one source into a staged Parquet file and its statistics.

Attempts are staged because some facts (columns, verdicts or rewards, conflicts) are clear only when all sources have
been read. Beside the values, the staged file has hashes of problem and attempt for `attempt_stats`. Memory grows with
the number of distinct problems (their sums and ids), not with that of attempts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.ingest import values
from scorelake.ingest.attempt_stats import AttemptStats, compute_stats, find_mixed_rows
from scorelake.ingest.contract import MEASURES, AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal

BATCH = 1 << 14
"""Attempts that are held in memory."""
NAMES = ("subject", "benchmark", "model")
PROBLEM = (*NAMES, "protocol", "problem_id")
_TYPES = {"value": pa.float64(), "error": pa.bool_(), "content_hash": pa.uint32()}
_TYPES |= dict.fromkeys(MEASURES, pa.float64()) | {"step": pa.int64()}
_MAX_MEASURE = 1e8
"""The largest that `score` accepts."""
MALFORMED = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""Errors that adapters raise on a record of an unexpected layout."""


@dataclass
class StagedSource:
    """The attempts of one source in a staged file, with their metadata and statistics."""

    source: LogSource
    format: str
    path: Path
    run: RunInfo
    benchmarks: list[str]
    """Benchmarks that rows name, in the order of their codes; "" for rows that name none."""
    carried: tuple[str, ...]
    has_answers: bool
    has_subjects: bool
    measures: tuple[str, ...]
    """Those of MEASURES that any attempt has."""
    stats: AttemptStats

    @property
    def kinds(self) -> dict[str, str]:
        """Whether the values of each benchmark are verdicts (passed), rewards (score), or may be either."""
        kind = "passed" if self.run.outcome == "passed" else "either"
        names = [name or self.run.benchmark or "" for name in self.benchmarks]
        rewards = {names[code] for code in self.stats.non_binary} if kind == "either" else set()
        return {name: "score" if name in rewards else kind for name in names}

    @property
    def run_key(self) -> str:
        """Identify the run across files: the tool's own id, with its names, since ids may be as short as "test"."""
        names = [self.format, self.run.identity, self.run.model, self.run.benchmark, self.run.subject]
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


def stage(
    format: LogFormat,  # noqa: A002
    source: LogSource,
    options: IngestOptions,
    folder: Path,
    tick: Callable[[int], None] = lambda position: None,
) -> StagedSource:
    """Read and check every attempt of a source. DataError names the source and the record that is wrong."""
    count = 0
    run = RunInfo(source.path, options, format.outcome, options.errors or format.errors)
    if format.passes and options.threshold is not None:
        run.outcome = "score"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "attempts.parquet"
    carried: tuple[str, ...] = ()
    codes: dict[str, int] = {}
    try:
        rows = format.read(source, options, run)
        with ExitStack() as files:
            writer: pq.ParquetWriter | None = None
            while (batch := list(islice(rows, BATCH))) or writer is None:
                count += len(batch)
                carried = carried if writer else tuple({name: 0 for row in batch for name in row.carried or ()})
                table = _to_table(batch, run, format.passes, carried, codes)
                if writer is None:
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4", use_dictionary=False)
                    files.enter_context(writer)
                writer.write_table(table)
                if len(batch) == BATCH:
                    tick(sum(file.tell() for file in source.opened if not file.closed))
        frame = pl.scan_parquet(path, glob=False).select(pl.col(*NAMES, *MEASURES, "answer").count()).collect()
        named = frame.row(0, named=True)
        _resolve(run, [name for name in ("benchmark", "model") if named[name] < count])
        has = named["answer"] > 0, named["subject"] > 0, tuple(name for name in MEASURES if named[name])
        out = StagedSource(source, format.name, path, run, list(codes), carried, *has, compute_stats([(path, None)]))
        _check(out)
        return out
    except DataError as error:
        if error.where is not None:
            raise
        raise refusal(f"{error.what}{_after(count)}", source.path, error.hint) from None
    except MALFORMED as error:
        reason = str(error) if isinstance(error, ValueError) else "a value has an unexpected type"
        if isinstance(error, KeyError):
            reason = f"{values.quote(error.args[0])} is missing or unknown"
        raise refusal(f"not in the layout of {format.name} ({reason:.120}){_after(count)}", source.path) from None
    finally:
        source.opened.clear()  # an open file cannot be sent from a worker process


def _after(count: int) -> str:
    return f", after {count:,} attempts" if count else ""


def _resolve(run: RunInfo, unnamed: list[str]) -> None:
    """Complete the metadata with the options, and refuse a source without model or benchmark."""
    options = run.options
    for column in NAMES:
        given, own = options.fixed_name(column), getattr(run, column)
        if column == "model" and given and own and given != own:
            run.notes.append(f"the file names the model {own}; --model makes it {given}")
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


def _check(staged: StagedSource) -> None:
    """Refuse one id for two problems, and repeated attempts where there can be none."""
    stats, where = staged.stats, staged.source.path
    if stats.mixed_problem is not None:
        (_, row), (_, other) = find_mixed_rows([(staged.path, None)], stats.mixed_problem)
        raise refusal(describe_mixed(staged, row, other), where)
    if staged.run.unique_attempts and stats.first_repeat is not None:
        row = stats.first_repeat[1]
        what = f"problem_id {staged.row(row)['problem_id']} occurs twice in one run (attempt {row + 1:,})"
        raise refusal(what, where, "rows of several filters or graders cannot be distinguished")


def describe_mixed(staged: StagedSource, row: int, other: int, elsewhere: StagedSource | None = None) -> str:
    """Describe a problem_id that stands for two problems."""
    there = f" of {elsewhere.source.path}" if elsewhere else ""
    name = staged.row(row)["problem_id"]
    return f"problem_id {name} has conflicting contents (attempt {row + 1:,} and attempt {other + 1:,}{there})"


def _to_table(
    rows: list[AttemptRow],
    run: RunInfo,
    passes: Callable[[float], bool] | None,
    carried: Sequence[str],
    codes: dict[str, int],
) -> pa.Table:
    """Check and convert a batch of attempts. New benchmarks are added to the codes."""
    options = run.options
    raw = dict(zip(AttemptRow._fields, zip(*rows, strict=True) if rows else repeat(()), strict=bool(rows)))
    errors = [row.value is None if row.error is None else row.error for row in rows]
    on_error = 0.0 if run.errors == "fail" else None
    passes = options.threshold.__le__ if run.outcome == "score" and options.threshold is not None else passes
    columns: dict[str, Any] = {
        "problem_id": _to_names(raw["problem_id"], "problem id"),
        "attempt": _to_names(raw["attempt"], "attempt"),
        "value": [
            on_error if error else value if passes is None or value is None else float(passes(value))
            for value, error in zip(raw["value"], errors, strict=True)
        ],
        "error": errors,
        "answer": [values.to_answer(answer) for answer in raw["answer"]],
        "protocol": [
            json.dumps(_to_settings(each, options), sort_keys=True) if each else None for each in raw["protocol"]
        ],
        "content_hash": [
            None if content is None else zlib.crc32(str(content).encode("utf-8", "backslashreplace"))
            for content in raw["content"]
        ],
    }
    for name in NAMES:
        is_fixed = options.fixed_name(name) is not None and not (name == "benchmark" and run.rows_name_benchmark)
        columns[name] = [None] * len(rows) if is_fixed else _to_names(raw[name], name, is_optional=True)
    for name in MEASURES:
        numbers = [values.to_number((measures or {}).get(name), name) for measures in raw["measures"]]
        # A clock that was set back gives a negative time, which is no measurement.
        columns[name] = [x if x is None or name == "step" or 0 <= x <= _MAX_MEASURE else None for x in numbers]
    columns["model"] = list(map(partial(_at_step, run), columns["model"], columns["step"]))
    for name in carried:
        columns[name] = [values.to_answer((each or {}).get(name)) for each in raw["carried"]]
    table = pa.table({name: pa.array(each, _TYPES.get(name, pa.string())) for name, each in columns.items()})
    frame = pl.DataFrame(pl.from_arrow(table))
    benchmarks = frame["benchmark"].fill_null("")
    for benchmark in benchmarks.unique().sort():
        codes.setdefault(benchmark, len(codes))
    # Hashes are stable within one version of Polars, which is enough for files that the same run reads.
    table = table.append_column("problem_hash", frame.select(PROBLEM).hash_rows(seed=1).to_arrow())
    table = table.append_column("attempt_hash", frame.select(*PROBLEM, "attempt").hash_rows(seed=2).to_arrow())
    benchmark_codes = benchmarks.replace_strict(codes, return_dtype=pl.UInt32)
    return table.append_column("benchmark_code", benchmark_codes.to_arrow())


def _at_step(run: RunInfo, model: str | None, step: float | None) -> str | None:
    """Name the model of one training step, also where --model names the run."""
    name = run.options.model or model or run.model
    return model if step is None or name is None else f"{name}@step {step:.0f}"


def _to_settings(protocol: Mapping[str, Any], options: IngestOptions) -> dict[str, Any]:
    return {key: values.to_setting(value) for key, value in protocol.items() if key not in options.ignore}


def _to_names(column: Sequence[Any], what: str, is_optional: bool = False) -> list[str | None]:
    return [None if is_optional and name is None else values.to_name(name, what) for name in column]
