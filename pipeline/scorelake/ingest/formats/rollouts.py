"""verifiers: results.jsonl next to metadata.json, also of hosted training runs. v1 and prime-rl: traces.jsonl.

Rollouts of verl, slime and TRL have no ids: problems are identified by prompt and expected answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from scorelake.ingest.archives import read_parquet
from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal, siblings
from scorelake.ingest.json_stream import DECODER, FileProbe, parquet_with, probe, records_with
from scorelake.ingest.values import get_object, to_name, to_number

STEP = re.compile(r"step_(\d+)")
TOKENS = ("input_tokens", "output_tokens")
IDS = ("example_id", "problem_id", "id")


def detect(probe: FileProbe) -> bool:
    return probe.has_records and probe.has("reward", "prompt", "completion") and any(probe.has(key) for key in IDS)


def read(run: LogRun) -> Iterator[AttemptRow]:
    metadata = run.companion()
    hosted, sampling = get_object(metadata, "run"), get_object(metadata, "sampling_args")
    run.tool, run.run_id = "verifiers", run.folder.name
    run.model = metadata.get("model") or hosted.get("base_model")
    run.benchmark = metadata.get("env_id") or metadata.get("env")
    run.protocol = {
        "temperature": sampling.pop("temperature", metadata.get("temperature")),
        "sampling_args": {key: value for key, value in sampling.items() if value not in (None, {})} or None,
        "env_args": metadata.get("env_args") or None,
        "env_version": metadata.get("env_version"),
        "max_tokens": metadata.get("max_tokens") or hosted.get("max_tokens"),
        "grader": run.options.choice("metric", str(run.benchmark or ""))[1] or "reward",
    }
    key, is_reliable, rows = _check_ids(run)
    problems = set()
    for line, record in run.lines():
        problem = to_name(record[key], f"line {line:,}: {key}") if is_reliable else f"content-{_digest(record)}"
        problems.add(problem)
        values = _list_values(record)
        metric = _choose(run, str(run.benchmark or ""), values, "reward")
        value = to_number(values[metric], f"line {line:,}: {metric}")
        yield AttemptRow(
            problem,
            f"{run.tag}:{line}",
            value,
            error=value is None or bool(record.get("error")) or record.get("is_completed") is False,
            benchmark=record.get("env_name") if run.benchmark is None else None,
            # Hosted runs write 0 where the number of tokens is not known.
            measures={key: record.get(f"num_{key}") or get_object(record, "token_usage").get(key) for key in TOKENS}
            | {"step": record.get("step")},
        )
    if run.protocol["grader"] == "reward":
        run.add_claim("avg_reward", metadata.get("avg_reward"))
    plan: list[Any] = [metadata.get(key) for key in ("num_examples", "rollouts_per_example")]
    if all(isinstance(count, int) for count in plan) and [len(problems), rows] != [plan[0], math.prod(plan)]:
        expected = f"metadata reports {plan[0]} examples x {plan[1]} rollouts"
        run.notes.append(f"{expected}; the file has {len(problems):,} problems in {rows:,} rows")


def _check_ids(run: LogRun) -> tuple[str, bool, int]:
    """Return the key of the id, whether all rows of one id have the same content, and the number of rows.

    In real files of verifiers (issue 459), each id covers three different prompts.
    """
    contents: dict[str, int] = {}
    key, is_reliable, rows = "", True, 0
    for line, record in run.lines():
        rows += 1
        key = key or next((name for name in IDS if name in record), "")
        missing = [name for name in (key, "reward") if name not in record]
        if missing:
            raise refusal(f"line {line:,} has no {missing[0]}", run.file)
        if is_reliable:
            content = int(_digest(record), 16)
            if contents.setdefault(to_name(record[key], f"line {line:,}: {key}"), content) != content:
                is_reliable = False
                what = f"rows of {key} {record[key]} have different prompts (line {line:,})"
                run.notes.append(f"{what}; problems are identified by prompt and answer")
    return key, is_reliable, rows


def _digest(record: dict[str, Any], keys: tuple[str, ...] = ("prompt", "answer", "info")) -> str:
    content = json.dumps([record.get(key) for key in keys], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:15]


def _choose(run: LogRun, task: str, values: dict[str, Any], reward: str) -> str:
    """Return the number that counts: the reward, or the one that --metric names."""
    return run.choose("metric", task, values) if run.options.choice("metric", task)[1] else reward


def _list_values(record: dict[str, Any]) -> dict[str, Any]:
    """Return the reward and the metrics of a rollout."""
    metrics = record.get("metrics")
    if isinstance(metrics, str):  # hosted runs store JSON as text
        metrics = DECODER.decode(metrics)
    numbers = {key: value for key, value in record.items() if isinstance(value, int | float)}
    return get_object({"metrics": metrics}, "metrics") | numbers | {"reward": record["reward"]}


def detect_traces(probe: FileProbe) -> bool:
    """Accept episodes, but not the folder `effective`: it is a subset of the folder `all` next to it."""
    folder = probe.path.parent
    is_subset = folder.name == "effective" and (folder.parent / "all" / probe.path.name).is_file()
    return probe.has_records and probe.has("id", "env", "task", "traces") and not is_subset


def read_traces(run: LogRun) -> Iterator[AttemptRow]:
    steps = [match[1] for part in run.file.resolve().parts if (match := STEP.fullmatch(part))]
    run.tool, run.run_id = "verifiers v1", steps[-1] if steps else run.folder.name
    torn: list[int] = []
    for line, episode in run.lines(torn=torn):
        where = f"line {line:,}"
        task, benchmark = get_object({"task": episode["task"]}, "task"), get_object(episode, "env").get("id")
        agent, trace = _select_trace(episode, str(benchmark or ""), run, where)
        metric, value = ("reward", None) if trace is None else _trace_reward(trace, str(benchmark or ""), run, where)
        step = get_object(episode, "run", "work").get("step", steps[-1] if steps else None)
        model, sampling = _get_model([trace] if trace else episode["traces"])
        yield AttemptRow(
            task.get("key") or task.get("hash"),
            str(episode["id"]),
            value,
            error=value is None
            or episode.get("ok") is False
            or bool(episode.get("errors") and not episode.get("ok")),
            benchmark=benchmark,
            model=model,
            measures={"step": None if step is None else int(step)},
            protocol={"temperature": sampling.get("temperature"), "grader": metric, "agent": agent},
        )
    if torn:
        run.excluded_rows += 1
        run.notes.append(f"skipped line {torn[0]:,}, which is incomplete; the tool writes the episode again")


def _select_trace(episode: Any, task: str, run: LogRun, where: str) -> tuple[str | None, Any]:
    """Return the trace whose rewards count, and its agent where several have rewards: by default the first."""
    traces = {get_object(trace, "agent").get("name", "agent"): trace for trace in episode["traces"]}
    if len(traces) != len(episode["traces"]):
        raise refusal(f"{where}: several traces of one agent", run.path)
    rewarded = {name: trace for name, trace in traces.items() if trace.get("rewards")} or traces
    if not rewarded:
        return None, None
    agent = run.choose("scorer", task, rewarded, "agent", "the traces of an episode")
    return agent if len(rewarded) > 1 else None, rewarded[agent]


def _trace_reward(trace: Any, task: str, run: LogRun, where: str) -> tuple[str, float | None]:
    """Return the weighted sum of all rewards, or the reward or metric that --metric names, and its name."""
    rewards, metrics = get_object(trace, "rewards"), get_object(trace, "metrics")
    metric = _choose(run, task, metrics | rewards, "")
    if metric:
        value = rewards.get(metric, metrics.get(metric))
        return metric, to_number(value["score"] if isinstance(value, dict) else value, f"{where}: {metric}")
    scores = [None if reward is None else to_number(reward["score"], where) for reward in rewards.values()]
    if not rewards or None in scores:
        return "reward", None
    weights = [to_number(reward.get("weight", 1.0), where) or 0.0 for reward in rewards.values()]
    return "reward", sum(score * weight for score, weight in zip(scores, weights, strict=True) if score is not None)


def _get_model(traces: list[Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the model and the sampling settings of the first call, or the model of the agent's config."""
    for trace in traces:
        for call in trace.get("calls") or []:
            if call.get("model"):
                return str(call["model"]), get_object(call, "sampling")
        config = get_object(trace, "agent", "config")
        if isinstance(config.get("model"), str):
            return config["model"], {}
    return None, {}


CONTENT = {"verl": ("input", "gts"), "slime": ("prompt", "label"), "trl": ("prompt",)}
"""What identifies a problem."""
REWARD = {"verl": "score", "slime": "reward", "trl": ""}
NOT_REWARDS = ("step", "advantage", "prompt")
NUMBERS = ("double", "float", "int64")
NOT_FINISHED = ("pending", "aborted")


def detect_slime(probe: FileProbe) -> bool:
    is_dump = probe.shape == "object" and probe.has("rollout_id") and isinstance(probe.first.get("samples"), list)
    return is_dump or (probe.has_records and probe.has("prompt", "response", "reward", "status", "group_index"))


def explain_slime(probe: FileProbe) -> str | None:
    is_torch = probe.shape == "zip" and any(name.endswith("/data.pkl") for name in probe.members)
    return "a PyTorch file, which is not loaded since it may run code: save the samples as JSON" * is_torch or None


def read_training(tool: str, run: LogRun) -> Iterator[AttemptRow]:
    run.benchmark = run.tool = tool
    run.run_id, document = run.folder.name, probe(run.file).first
    for line, record in _list_rollouts(tool, run, document):
        values, reward = {key: each for key, each in record.items() if key not in NOT_REWARDS}, REWARD[tool]
        values |= values[reward] if tool == "slime" and isinstance(values[reward], dict) else {}
        metric = _choose(run, tool, values, reward) if reward else run.choose("metric", tool, values, "reward")
        value = to_number(values.get(metric), f"line {line:,}: {metric}")
        step = record.get("step", record.get("rollout_id", document.get("rollout_id")))
        yield AttemptRow(
            f"content-{_digest(record, CONTENT[tool])}",
            f"{run.tag}:{line}",
            value,
            error=value is None or record.get("status") in NOT_FINISHED,
            benchmark=record.get("data_source"),
            protocol={"grader": metric or None},
            measures={"step": step, "output_tokens": record.get("response_length")},
        )


def _list_rollouts(tool: str, run: LogRun, document: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    if tool == "trl":
        names = [each.name for each in pq.read_schema(run.file) if str(each.type) in NUMBERS]
        yield from enumerate(read_parquet(run.file, [*names, "prompt"]), 1)
    elif "samples" in document:
        yield from ((i + 1, sample) for i, sample in run.records("samples"))
    else:
        yield from run.lines()


IS_TRL = parquet_with("step", "prompt", "completion")
IS_VERL = records_with("input", "output", "score", "step")
VERL = LogFormat("verl", "score", "ungraded", IS_VERL, partial(read_training, "verl"))
SLIME = LogFormat("slime", "score", "ungraded", detect_slime, partial(read_training, "slime"), explain=explain_slime)
TRL = LogFormat("trl", "score", "ungraded", IS_TRL, partial(read_training, "trl"))
VERIFIERS = LogFormat("verifiers", "score", "fail", detect, read, companions=siblings("metadata.json"))
PRIME_RL = LogFormat("prime-rl", "score", "fail", detect_traces, read_traces)
