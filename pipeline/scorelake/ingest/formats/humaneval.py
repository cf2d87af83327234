"""HumanEval-style JSON Lines: one row per sample with task_id and passed."""

from __future__ import annotations

from collections.abc import Iterator

from scorelake.ingest.contract import Attempt, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import lines
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import verdict

BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp", "MBPP": "mbpp"}
TEXTS = ("completion", "solution", "generation")


def detect(sight: Sight) -> bool:
    return sight.records and sight.has("task_id", "passed")


def almost(sight: Sight) -> str | None:
    samples = sight.records and sight.has("task_id") and any(key in sight.first for key in TEXTS)
    return "not graded: rows have task_id and no passed" if samples else None


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "ungraded", run=source.tag)
    log.rows = _rows(source, options, log)
    return log


def _rows(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    for line, record in lines(source.file):
        if "task_id" not in record or "passed" not in record:
            raise refuse(
                f"line {line:,} has no {'passed' if 'task_id' in record else 'task_id'}: not graded", source.file
            )
        if log.benchmark is None:
            log.benchmark = BENCHMARKS.get(str(record["task_id"]).partition("/")[0])
        value = verdict(record["passed"], f"line {line:,}: passed", options.true)
        yield Attempt(record["task_id"], f"{source.tag}:{line}", value, error=value is None)


FORMAT = Format("humaneval", "HumanEval-style JSON Lines: task_id and passed", detect, read, almost=almost)
