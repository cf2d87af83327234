"""verifiers v1 and prime-rl: traces.jsonl with one episode per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import get_object, to_number

STEP = re.compile(r"step_(\d+)")


def detect(probe: FileProbe) -> bool:
    """Accept episodes, but not the folder `effective`: it is a subset of the folder `all` next to it."""
    folder = probe.path.parent
    is_subset = folder.name == "effective" and (folder.parent / "all" / probe.path.name).is_file()
    return probe.has_records and probe.has("id", "env", "task", "traces") and not is_subset


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    steps = [match[1] for part in source.file.resolve().parts if (match := STEP.fullmatch(part))]
    run.tool, run.run_id = "verifiers v1", steps[-1] if steps else source.folder.name
    torn: list[int] = []
    for line, episode in source.lines(torn=torn):
        where = f"line {line:,}"
        task, benchmark = get_object({"task": episode["task"]}, "task"), get_object(episode, "env").get("id")
        agent, trace = _select_trace(episode, str(benchmark or ""), run, where)
        metric = options.choice("metric", str(benchmark or ""))[1]
        value = None if trace is None else _get_reward(trace, metric, where, source.path)
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
            model=model if model is None or step is None else f"{model}@step {step}",
            measures={"step": None if step is None else float(step)},
            protocol={"temperature": sampling.get("temperature"), "grader": metric or "reward", "agent": agent},
        )
    if torn:
        run.excluded_rows += 1
        run.notes.append(f"skipped line {torn[0]:,}, which is incomplete; the tool writes the episode again")


def _select_trace(episode: Any, task: str, run: RunInfo, where: str) -> tuple[str | None, Any]:
    """Return the trace whose rewards count, and its agent where several have rewards: by default the first."""
    traces = {get_object(trace, "agent").get("name", "agent"): trace for trace in episode["traces"]}
    if len(traces) != len(episode["traces"]):
        raise refusal(f"{where}: several traces of one agent", run.path)
    rewarded = {name: trace for name, trace in traces.items() if trace.get("rewards")} or traces
    if not rewarded:
        return None, None
    agent = run.choose("scorer", task, rewarded, "agent", "the traces of an episode")
    return agent if len(rewarded) > 1 else None, rewarded[agent]


def _get_reward(trace: Any, metric: str, where: str, path: Path) -> float | None:
    """Return the weighted sum of all rewards, or the reward or metric that --metric names."""
    rewards, metrics = get_object(trace, "rewards"), get_object(trace, "metrics")
    if metric:
        if metric not in {*rewards, *metrics}:
            hint = f"available: {', '.join([*rewards, *metrics])}"
            raise refusal(f"{where}: no metric {metric}", path, hint)
        value = rewards.get(metric, metrics.get(metric))
        return to_number(value["score"] if isinstance(value, dict) else value, f"{where}: {metric}")
    scores = [None if reward is None else to_number(reward["score"], where) for reward in rewards.values()]
    if not rewards or None in scores:
        return None
    weights = [to_number(reward.get("weight", 1.0), where) or 0.0 for reward in rewards.values()]
    return sum(score * weight for score, weight in zip(scores, weights, strict=True) if score is not None)


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


FORMAT = LogFormat("prime-rl", "score", "fail", detect, read)
