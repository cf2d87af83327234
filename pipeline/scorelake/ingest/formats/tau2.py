"""tau2-bench: results.json with all simulations, or with a folder of them next to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.formats.tau_bench import to_value
from scorelake.ingest.json_stream import load
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import get_object, to_number


def detect(probe: FileProbe) -> bool:
    info = probe.first.get("info")
    return probe.shape == "object" and isinstance(info, dict) and {"agent_info", "environment_info"} <= info.keys()


def companions(path: Path) -> Iterable[Path]:
    return sorted((path.parent / "simulations").glob("*.json"))


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.benchmark = run.tool = "tau2"
    run.outcome = "passed" if options.threshold is None else "score"
    document: dict[str, Any] = {}
    index: list[Any] = []
    has_simulations = False
    for key, name, value in source.members("simulations", "simulation_index"):
        if key == "simulations" and isinstance(name, int):
            has_simulations = True
            yield _to_row(value, options, source.tag)
        elif key == "simulation_index" and isinstance(name, int):
            index.append(value)
        else:
            document[key] = value
    if not has_simulations:
        # An index has all that is needed; without one, every simulation is a file of its own.
        simulations = index or (load(path) for path in source.companions)
        yield from (_to_row(simulation, options, source.tag) for simulation in simulations)
        has_folder = (source.file.parent / "simulations").is_dir()
        if not index and not has_folder and document.get("simulations", "none") == "none":
            what = "has no simulations, and there is no folder simulations next to it"
            raise refusal(what, source.path, "copy the folder as well")
    info = get_object(document, "info")
    agent, user = get_object(info, "agent_info"), get_object(info, "user_info")
    run.model = agent.get("llm")
    run.subject = get_object(info, "environment_info").get("domain_name")
    run.run_id = str(document.get("timestamp") or "")
    args = get_object(agent, "llm_args")
    run.protocol = {
        "temperature": args.pop("temperature", None),
        "llm_args": args or None,
        "agent": agent.get("implementation"),
        "user": user.get("llm"),
        "user_args": user.get("llm_args"),
        "user_implementation": user.get("implementation"),
        "max_steps": info.get("max_steps"),
        "git_commit": info.get("git_commit"),
    }


def _to_row(simulation: Any, options: IngestOptions, tag: str) -> AttemptRow:
    reward = get_object(simulation, "reward_info").get("reward", simulation.get("reward"))
    value = to_value(to_number(reward, f"task {simulation['task_id']}: reward"), options)
    is_error = value is None or str(simulation.get("termination_reason")) == "infrastructure_error"
    attempt = str(simulation.get("id") or f"{tag}:{simulation.get('trial', 0)}")
    return AttemptRow(simulation["task_id"], attempt, value, error=is_error)


FORMAT = LogFormat("tau2", "tau2-bench results.json", "passed", "ungraded", detect, read, companions=companions)
