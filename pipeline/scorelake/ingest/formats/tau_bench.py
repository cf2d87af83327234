"""tau-bench 1: a JSON list of runs with task_id, reward, trial and info."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scorelake.ingest.contract import Attempt, Format, Log, Options, Source
from scorelake.ingest.documents import members
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, number

NAME = re.compile(
    r"(?P<strategy>act|react|tool-calling|few-shot)-(?P<model>.+)-(?P<temperature>\d+(?:\.\d+)?)_range_.+_"
    r"user-(?P<user>.+)-(?P<user_strategy>[a-z_]+)_\d+\.json"
)


def detect(sight: Sight) -> bool:
    return sight.shape == "list" and sight.has("task_id", "reward", "info", "traj")


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed" if options.threshold is None else "score", "fail", run=source.tag, benchmark="tau-bench")
    name = NAME.fullmatch(source.file.name)
    if name:
        log.model = name["model"]
        log.protocol = {key: name[key] for key in ("strategy", "user", "user_strategy")}
        log.protocol["temperature"] = float(name["temperature"])
    log.rows = _rows(source, options)
    return log


def solved(reward: float | None, options: Options) -> float | None:
    """The tool's own rule: a reward of 1, give or take a millionth."""
    return reward if reward is None or options.threshold is not None else float(abs(reward - 1) <= 1e-6)


def _rows(source: Source, options: Options) -> Iterator[Attempt]:
    for _, i, run in members(source.file):
        reward = number(run["reward"], f"run {i}: reward")
        failed = "error" in mapping(run.get("info"), "info")
        yield Attempt(
            run["task_id"],
            f"{source.tag}:{run.get('trial', 0)}",
            solved(reward, options),
            error=failed or reward is None,
        )


FORMAT = Format("tau-bench", "tau-bench 1 result lists", detect, read)
