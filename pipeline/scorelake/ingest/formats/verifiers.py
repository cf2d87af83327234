"""verifiers: results.jsonl with metadata.json beside it; also the rollouts of hosted training runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import lines, parsed, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, name, number

IDS = ("example_id", "problem_id", "id")
ASKED = ("prompt", "answer", "info")
"""What makes two rows the same problem."""


def detect(sight: Sight) -> bool:
    return sight.records and sight.has("reward", "prompt", "completion") and any(key in sight.first for key in IDS)


def beside(path: Path) -> Iterable[Path]:
    return [path.with_name("metadata.json")]


def read(source: Source, options: Options) -> Log:
    log = Log([], "score", "fail", run=source.file.resolve().parent.name, tool="verifiers")
    about = mapping(small(source.beside[0]), "metadata") if source.beside else {}
    hosted = mapping(about.get("run"), "run")
    log.model = about.get("model") or hosted.get("base_model")
    log.benchmark = about.get("env_id") or about.get("env")
    sampling = dict(mapping(about.get("sampling_args"), "sampling_args"))
    log.protocol = {
        "temperature": sampling.pop("temperature", about.get("temperature")),
        "sampling_args": {key: value for key, value in sampling.items() if value not in (None, {})} or None,
        "env_args": about.get("env_args") or None,
        "env_version": about.get("env_version"),
        "max_tokens": about.get("max_tokens") or hosted.get("max_tokens"),
        "grader": options.metric or "reward",
    }
    log.rows = _rows(source, options, log, about)
    return log


def _rows(source: Source, options: Options, log: Log, about: Any) -> Iterator[Attempt]:
    key, trusted, rows = _ids(source.file, log)
    problems = set()
    for line, record in lines(source.file):
        problem = name(record[key], f"line {line:,}: {key}") if trusted else f"content-{_asked(record)}"
        problems.add(problem)
        value = number(_reward(record, options, line, source.file), f"line {line:,}: {options.metric or 'reward'}")
        lost = bool(record.get("error")) or record.get("is_completed") is False
        step = record.get("step")
        yield Attempt(
            problem,
            f"{source.tag}:{line}",
            value,
            error=lost or value is None,
            benchmark=record.get("env_name") if log.benchmark is None else None,
            model=f"{log.model}@step {step}" if step is not None and log.model else None,
        )
    average = about.get("avg_reward")
    if isinstance(average, int | float) and options.metric is None:
        log.claims.append(Claim("avg_reward", float(average)))
    examples, each = about.get("num_examples"), about.get("rollouts_per_example")
    if isinstance(examples, int) and isinstance(each, int) and (len(problems), rows) != (examples, examples * each):
        log.notes.append(
            f"metadata tells of {examples} examples x {each} rollouts; "
            f"here are {len(problems):,} problems in {rows:,} rows"
        )


def _ids(path: Path, log: Log) -> tuple[str, bool, int]:
    """Which key is the id, and whether it can be trusted: all rows of one id must ask the same."""
    asked: dict[Any, int] = {}
    key, trusted, rows = "", True, 0
    for line, record in lines(path):
        rows += 1
        key = key or next((each for each in IDS if each in record), "")
        if key not in record or "reward" not in record:
            raise refuse(f"line {line:,} has no {key if key not in record else 'reward'}", path)
        if trusted:
            told = int(_asked(record), 16)
            if asked.setdefault(name(record[key], f"line {line:,}: {key}"), told) != told:
                trusted = False
                log.notes.append(
                    f"rows of {key} {record[key]} ask different things (line {line:,}); "
                    "problems are told by prompt and answer"
                )
    return key, trusted, rows


def _asked(record: dict[str, Any]) -> str:
    told = json.dumps([record.get(key) for key in ASKED], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:15]


def _reward(record: dict[str, Any], options: Options, line: int, path: Path) -> Any:
    """The reward, or the metric that was asked for: a key of the row, or one of its metrics."""
    if options.metric is None:
        return record["reward"]
    if options.metric in record:
        return record[options.metric]
    told = record.get("metrics")
    told = mapping(parsed(told, f"{path}: line {line:,}: metrics") if isinstance(told, str) else told, "metrics")
    if options.metric not in told:
        known = sorted({*told, *(key for key, value in record.items() if isinstance(value, int | float))})
        raise refuse(f"no metric {options.metric} in line {line:,}", path, f"there are: {', '.join(known)[:200]}")
    return told[options.metric]


FORMAT = Format("verifiers", "verifiers results.jsonl", detect, read, beside=beside)
