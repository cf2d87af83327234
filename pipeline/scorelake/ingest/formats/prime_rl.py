"""verifiers v1 and prime-rl: traces.jsonl with one episode per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scorelake.ingest.contract import Attempt, Format, Log, Options, Source, choose, refuse
from scorelake.ingest.documents import lines
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, number

STEP = re.compile(r"step_(\d+)")


def detect(sight: Sight) -> bool:
    """Episodes. What prime-rl calls effective is a part of what lies beside it under the name all."""
    home = sight.path.parent
    part = home.name == "effective" and (home.parent / "all" / sight.path.name).is_file()
    return sight.records and sight.has("id", "env", "task", "traces") and not part


def read(source: Source, options: Options) -> Log:
    log = Log([], "score", "fail", tool="verifiers v1")
    steps = [found[1] for part in source.file.resolve().parts if (found := STEP.fullmatch(part))]
    log.run = steps[-1] if steps else source.file.resolve().parent.name
    log.rows = _rows(source, options, log, steps[-1] if steps else None)
    return log


def _rows(source: Source, options: Options, log: Log, folder: str | None) -> Iterator[Attempt]:
    torn: list[int] = []
    for line, episode in lines(source.file, torn):
        where = f"line {line:,}"
        task = mapping(episode["task"], f"{where}: task")
        trace = _scored(episode, options, where, source)
        value = None if trace is None else _reward(trace, options, where, source)
        run = mapping(episode.get("run"), f"{where}: run")
        step = mapping(run.get("work"), f"{where}: work").get("step", folder)
        model, sampling = _model(trace, episode)
        yield Attempt(
            task.get("key") or task.get("hash"),
            str(episode["id"]),
            value,
            error=value is None
            or episode.get("ok") is False
            or bool(episode.get("errors") and not episode.get("ok")),
            benchmark=mapping(episode["env"], f"{where}: env").get("id"),
            model=None if model is None else model if step is None else f"{model}@step {step}",
            protocol={"temperature": sampling.get("temperature"), "grader": options.metric or "reward"},
        )
    if torn:
        log.left_out += 1
        log.notes.append(f"line {torn[0]:,} is torn and left out; the episode is written again")


def _scored(episode: Any, options: Options, where: str, source: Source) -> Any:
    """The trace whose rewards count. An episode of several agents has several, and then one must be named."""
    traces = {mapping(each.get("agent"), "agent").get("name", "agent"): each for each in episode["traces"]}
    if len(traces) != len(episode["traces"]):
        raise refuse(f"{where}: several traces of one agent", source.path)
    rewarded = {name: trace for name, trace in traces.items() if trace.get("rewards")} or traces
    if not rewarded:
        return None
    return rewarded[choose(rewarded, options.scorer, "agent", "--scorer", source.path)]


def _reward(trace: Any, options: Options, where: str, source: Source) -> float | None:
    """The weighted sum of all rewards, or one reward or metric by its name."""
    rewards, metrics = mapping(trace.get("rewards"), "rewards"), mapping(trace.get("metrics"), "metrics")
    if options.metric is not None:
        if options.metric not in {*rewards, *metrics}:
            raise refuse(
                f"{where}: no metric {options.metric}", source.path, f"there: {', '.join([*rewards, *metrics])}"
            )
        told = rewards.get(options.metric, metrics.get(options.metric))
        return number(told["score"] if isinstance(told, dict) else told, f"{where}: {options.metric}")
    worth = [number(told["score"], where) for told in rewards.values() if told is not None]
    if not rewards or len(worth) != len(rewards) or any(each is None for each in worth):
        return None
    weights = [number(told.get("weight", 1.0), where) or 0.0 for told in rewards.values()]
    return sum(each * weight for each, weight in zip(worth, weights, strict=True) if each is not None)


def _model(trace: Any, episode: Any) -> tuple[str | None, Any]:
    every = [trace] if trace else episode["traces"]
    for each in every:
        for call in each.get("calls") or []:
            if call.get("model"):
                return str(call["model"]), mapping(call.get("sampling"), "sampling")
        config = mapping(mapping(each.get("agent"), "agent").get("config"), "config")
        if isinstance(config.get("model"), str):
            return config["model"], {}
    return None, {}


FORMAT = Format("prime-rl", "verifiers v1 and prime-rl traces.jsonl", detect, read)
