"""tau-bench 1: a JSON list of runs with task_id, reward, trial and info."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo
from scorelake.ingest.probe import list_with
from scorelake.ingest.values import get_object, to_number

NAME = re.compile(
    r"(?P<strategy>act|react|tool-calling|few-shot)-(?P<model>.+)-(?P<temperature>\d+(?:\.\d+)?)_range_.+_"
    r"user-(?P<user>.+)-(?P<user_strategy>[a-z_]+)_\d+\.json"
)


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.run_id, run.benchmark = source.tag, "tau-bench"
    run.outcome = "passed" if options.threshold is None else "score"
    name = NAME.fullmatch(source.file.name)
    if name:
        run.model = name["model"]
        run.protocol = {key: name[key] for key in ("strategy", "user", "user_strategy")}
        run.protocol["temperature"] = float(name["temperature"])
    for _, i, record in source.members():
        reward = to_number(record["reward"], f"run {i}: reward")
        is_error = reward is None or "error" in get_object(record, "info")
        attempt = f"{source.tag}:{record.get('trial', 0)}"
        yield AttemptRow(record["task_id"], attempt, to_value(reward, options), error=is_error)


def to_value(reward: float | None, options: IngestOptions) -> float | None:
    """Apply the rule of tau-bench and tau2: an attempt passes with a reward of 1, give or take a millionth."""
    return reward if reward is None or options.threshold is not None else float(abs(reward - 1) <= 1e-6)


DETECT = list_with("task_id", "reward", "info", "traj")
FORMAT = LogFormat("tau-bench", "tau-bench 1 result lists", "passed", "fail", DETECT, read)
