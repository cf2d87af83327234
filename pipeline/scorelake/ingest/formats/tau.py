"""tau-bench 1: a JSON list of runs. tau2-bench: results.json with all simulations, or with a folder of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.json_stream import FileProbe, list_with, load
from scorelake.ingest.values import get_object, to_number

NAME = re.compile(
    r"(?P<strategy>act|react|tool-calling|few-shot)-(?P<model>.+)-(?P<temperature>\d+(?:\.\d+)?)_range_.+_"
    r"user-(?P<user>.+)-(?P<user_strategy>[a-z_]+)_\d+\.json"
)


def read_tau1(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.run_id, run.benchmark = source.tag, "tau-bench"
    name = NAME.fullmatch(source.file.name)
    if name:
        run.model = name["model"]
        run.protocol = {key: name[key] for key in ("strategy", "user", "user_strategy")}
        run.protocol["temperature"] = float(name["temperature"])
    for _, i, record in source.members():
        reward = to_number(record["reward"], f"run {i}: reward")
        is_error = reward is None or "error" in get_object(record, "info")
        attempt = f"{source.tag}:{record.get('trial', 0)}"
        yield AttemptRow(record["task_id"], attempt, reward, error=is_error)


def passes(reward: float) -> bool:
    """Apply the rule of both tools: an attempt passes with a reward of 1, give or take a millionth."""
    return abs(reward - 1) <= 1e-6


def detect_tau2(probe: FileProbe) -> bool:
    info = probe.first.get("info")
    return probe.shape == "object" and isinstance(info, dict) and {"agent_info", "environment_info"} <= info.keys()


def list_simulations(path: Path) -> Iterable[Path]:
    return sorted((path.parent / "simulations").glob("*.json"))


def read_tau2(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.benchmark = run.tool = "tau2"
    document: dict[str, Any] = {}
    index: list[Any] = []
    has_simulations = False
    for key, name, value in source.members("simulations", "simulation_index"):
        if key == "simulations" and isinstance(name, int):
            has_simulations = True
            yield _to_row(value, source.tag)
        elif key == "simulation_index" and isinstance(name, int):
            index.append(value)
        else:
            document[key] = value
    if not has_simulations:
        # An index has all that is needed; without one, every simulation is a file of its own.
        simulations = index or (load(path) for path in source.companions)
        yield from (_to_row(simulation, source.tag) for simulation in simulations)
        has_folder = (source.file.parent / "simulations").is_dir()
        if not index and not has_folder and document.get("simulations", "none") == "none":
            what = "has no simulations, and there is no folder simulations next to it"
            raise refusal(what, source.path, "copy the folder as well")
    info = get_object(document, "info")
    agent, user = get_object(info, "agent_info"), get_object(info, "user_info")
    run.model = agent.get("llm")
    run.subject = get_object(info, "environment_info").get("domain_name")
    run.run_id = run.identity = str(document.get("timestamp") or "")
    args = get_object(agent, "llm_args")
    run.protocol = {
        "temperature": args.pop("temperature", None),
        "llm_args": args or None,
        "agent": agent.get("implementation"),
        "user": user.get("llm"),
        "user_args": user.get("llm_args"),
        "user_implementation": user.get("implementation"),
        "max_steps": info.get("max_steps"),
    }
    run.provenance = {"git_commit": info.get("git_commit")}


def _to_row(simulation: Any, tag: str) -> AttemptRow:
    reward = get_object(simulation, "reward_info").get("reward", simulation.get("reward"))
    value = to_number(reward, f"task {simulation['task_id']}: reward")
    is_error = value is None or str(simulation.get("termination_reason")) == "infrastructure_error"
    attempt = str(simulation.get("id") or f"{tag}:{simulation.get('trial', 0)}")
    measures = {"cost_usd": simulation.get("agent_cost"), "seconds": simulation.get("duration")}
    return AttemptRow(simulation["task_id"], attempt, value, error=is_error, measures=measures)


IS_TAU1 = list_with("task_id", "reward", "info", "traj")
TAU1 = LogFormat("tau-bench", "passed", "fail", IS_TAU1, read_tau1, passes=passes)
TAU2 = LogFormat("tau2", "passed", "ungraded", detect_tau2, read_tau2, companions=list_simulations, passes=passes)
