"""verifiers: results.jsonl next to metadata.json; also the rollouts of hosted training runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal, siblings
from scorelake.ingest.json_stream import decode
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import get_object, to_name, to_number

IDS = ("example_id", "problem_id", "id")


def detect(probe: FileProbe) -> bool:
    return probe.has_records and probe.has("reward", "prompt", "completion") and any(probe.has(key) for key in IDS)


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    metadata = source.companion()
    hosted, sampling = get_object(metadata, "run"), get_object(metadata, "sampling_args")
    run.tool, run.run_id = "verifiers", source.folder.name
    run.model = metadata.get("model") or hosted.get("base_model")
    run.benchmark = metadata.get("env_id") or metadata.get("env")
    metric = options.choice("metric", str(run.benchmark or ""))[1]
    run.protocol = {
        "temperature": sampling.pop("temperature", metadata.get("temperature")),
        "sampling_args": {key: value for key, value in sampling.items() if value not in (None, {})} or None,
        "env_args": metadata.get("env_args") or None,
        "env_version": metadata.get("env_version"),
        "max_tokens": metadata.get("max_tokens") or hosted.get("max_tokens"),
        "grader": metric or "reward",
    }
    key, is_reliable, rows = _check_ids(source, run)
    problems = set()
    for line, record in source.lines():
        problem = to_name(record[key], f"line {line:,}: {key}") if is_reliable else f"content-{_digest(record)}"
        problems.add(problem)
        reward = _get_reward(record, metric, line, source.file)
        value = to_number(reward, f"line {line:,}: {metric or 'reward'}")
        step = record.get("step")
        yield AttemptRow(
            problem,
            f"{source.tag}:{line}",
            value,
            error=value is None or bool(record.get("error")) or record.get("is_completed") is False,
            benchmark=record.get("env_name") if run.benchmark is None else None,
            model=f"{run.model}@step {step}" if step is not None and run.model else None,
            # Hosted runs write 0 where the number of tokens is not known.
            measures={
                "input_tokens": record.get("num_input_tokens")
                or get_object(record, "token_usage").get("input_tokens"),
                "output_tokens": record.get("num_output_tokens")
                or get_object(record, "token_usage").get("output_tokens"),
                "step": step,
            },
        )
    if not metric:
        run.add_claim("avg_reward", metadata.get("avg_reward"))
    plan: list[Any] = [metadata.get(key) for key in ("num_examples", "rollouts_per_example")]
    if all(isinstance(count, int) for count in plan) and [len(problems), rows] != [plan[0], math.prod(plan)]:
        expected = f"metadata reports {plan[0]} examples x {plan[1]} rollouts"
        run.notes.append(f"{expected}; the file has {len(problems):,} problems in {rows:,} rows")


def _check_ids(source: LogSource, run: RunInfo) -> tuple[str, bool, int]:
    """Return the key of the id, whether all rows of one id have the same content, and the number of rows.

    In real files of verifiers (issue 459), each id covers three different prompts.
    """
    contents: dict[str, int] = {}
    key, is_reliable, rows = "", True, 0
    for line, record in source.lines():
        rows += 1
        key = key or next((name for name in IDS if name in record), "")
        missing = [name for name in (key, "reward") if name not in record]
        if missing:
            raise refusal(f"line {line:,} has no {missing[0]}", source.file)
        if is_reliable:
            content = int(_digest(record), 16)
            if contents.setdefault(to_name(record[key], f"line {line:,}: {key}"), content) != content:
                is_reliable = False
                what = f"rows of {key} {record[key]} have different prompts (line {line:,})"
                run.notes.append(f"{what}; problems are identified by prompt and answer")
    return key, is_reliable, rows


def _digest(record: dict[str, Any]) -> str:
    content = json.dumps([record.get(key) for key in ("prompt", "answer", "info")], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:15]


def _get_reward(record: dict[str, Any], metric: str, line: int, path: Path) -> Any:
    """Return the reward, or the metric of --metric: a key of the row, or one of its metrics."""
    if not metric or metric in record:
        return record[metric or "reward"]
    metrics = record.get("metrics")
    if isinstance(metrics, str):  # hosted runs store JSON as text
        metrics = decode(metrics, f"{path}: line {line:,}: metrics")
    metrics = get_object({"metrics": metrics}, "metrics")
    if metric not in metrics:
        names = sorted({*metrics, *(key for key, value in record.items() if isinstance(value, int | float))})
        raise refusal(f"no metric {metric} in line {line:,}", path, f"available: {', '.join(names)[:200]}")
    return metrics[metric]


FORMAT = LogFormat("verifiers", "score", "fail", detect, read, companions=siblings("metadata.json"))
