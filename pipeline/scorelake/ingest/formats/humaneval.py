"""HumanEval-style JSON Lines: one row per sample with task_id and passed."""

from __future__ import annotations

from collections.abc import Iterator

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.probe import FileProbe, records_with
from scorelake.ingest.values import to_verdict

BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp", "MBPP": "mbpp"}
TEXTS = ("completion", "solution", "generation")


def explain(probe: FileProbe) -> str | None:
    is_sample = probe.has_records and probe.has("task_id") and any(probe.has(key) for key in TEXTS)
    return "not graded: rows have task_id but not passed" if is_sample else None


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.run_id = source.tag
    for line, record in source.lines():
        missing = [key for key in ("task_id", "passed") if key not in record]
        if missing:
            raise refusal(f"line {line:,} has no {missing[0]}: not graded", source.file)
        if run.benchmark is None:
            run.benchmark = BENCHMARKS.get(str(record["task_id"]).partition("/")[0])
        value = to_verdict(record["passed"], f"line {line:,}: passed", options.true)
        yield AttemptRow(record["task_id"], f"{source.tag}:{line}", value)


DETECT, ABOUT = records_with("task_id", "passed"), "HumanEval-style JSON Lines: task_id and passed"
FORMAT = LogFormat("humaneval", ABOUT, "passed", "ungraded", DETECT, read, explain=explain)
