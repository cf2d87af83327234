"""tau2-bench: one results.json with all simulations, or results.json beside a folder of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import members, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, number

INFRASTRUCTURE = "infrastructure_error"


def detect(sight: Sight) -> bool:
    info = sight.first.get("info")
    return sight.shape == "object" and isinstance(info, dict) and {"agent_info", "environment_info"} <= info.keys()


def beside(path: Path) -> Iterable[Path]:
    return sorted((path.parent / "simulations").glob("*.json"))


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed" if options.threshold is None else "score", "ungraded", benchmark="tau2", tool="tau2")
    log.rows = _rows(source, options, log)
    return log


def _rows(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    told: dict[str, Any] = {}
    index: list[Any] = []
    whole = False
    for key, name, value in members(source.file, ("simulations", "simulation_index")):
        if key == "simulations" and isinstance(name, int):
            whole = True
            yield _attempt(value, options, source.tag)
        elif key == "simulation_index" and isinstance(name, int):
            index.append(value)
        else:
            told[key] = value
    if not whole and index:
        yield from (_attempt(one, options, source.tag) for one in index)
    elif not whole and source.beside:
        yield from (_attempt(small(path), options, source.tag) for path in source.beside)
    elif (
        not whole and told.get("simulations", "none") == "none" and not (source.file.parent / "simulations").is_dir()
    ):
        raise refuse(
            "no simulations in it, and no folder simulations beside it", source.path, "copy the folder as well"
        )
    _facts(told, log)


def _attempt(one: Any, options: Options, tag: str) -> Attempt:
    info = mapping(one.get("reward_info"), "reward_info")
    reward = number(info.get("reward", one.get("reward")), f"task {one['task_id']}: reward")
    value = reward if reward is None or options.threshold is not None else float(abs(reward - 1) <= 1e-6)
    lost = reward is None or str(one.get("termination_reason")) == INFRASTRUCTURE
    name = str(one.get("id") or f"{tag}:{one.get('trial', 0)}")
    return Attempt(one["task_id"], name, value, error=lost)


def _facts(told: dict[str, Any], log: Log) -> None:
    info = mapping(told.get("info"), "info")
    agent, user = mapping(info.get("agent_info"), "agent_info"), mapping(info.get("user_info"), "user_info")
    log.model = agent.get("llm")
    log.subject = mapping(info.get("environment_info"), "environment_info").get("domain_name")
    log.run = str(told.get("timestamp") or "")
    args = dict(mapping(agent.get("llm_args"), "llm_args"))
    log.protocol = {
        "temperature": args.pop("temperature", None),
        "llm_args": args or None,
        "agent": agent.get("implementation"),
        "user": user.get("llm"),
        "user_args": user.get("llm_args"),
        "user_implementation": user.get("implementation"),
        "max_steps": info.get("max_steps"),
        "git_commit": info.get("git_commit"),
    }


FORMAT = Format("tau2", "tau2-bench results.json", detect, read, beside=beside)
