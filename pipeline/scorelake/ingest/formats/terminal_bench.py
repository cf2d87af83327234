"""Terminal-Bench 1: results.json of a run, with run_metadata.json beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source
from scorelake.ingest.documents import members, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, verdict

TIME = re.compile(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d")
SETUP = ("agent_kwargs", "global_agent_timeout_sec", "global_test_timeout_sec", "commit_hash")


def detect(sight: Sight) -> bool:
    results = sight.first.get("results")
    first = results[0] if isinstance(results, list) and results else None
    return (
        sight.shape == "object"
        and isinstance(first, dict)
        and {"task_id", "trial_name", "is_resolved"} <= first.keys()
    )


def beside(path: Path) -> Iterable[Path]:
    return [path.with_name("run_metadata.json")]


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "fail", tool="terminal-bench")
    about = mapping(small(source.beside[0]), "run_metadata") if source.beside else {}
    folders = [parent.name for parent in source.file.resolve().parents]
    stamped = [name for name in folders if TIME.fullmatch(name)]
    log.run = str(about.get("run_id") or (folders[0] if folders[0] in stamped else source.tag))
    named = [str(about[key]) for key in ("agent_name", "model_name") if about.get(key)]
    log.model = " ".join(named) if len(named) == 2 else next(name for name in folders if name not in stamped)
    if about.get("dataset_name"):
        log.benchmark = "@".join(str(about[key]) for key in ("dataset_name", "dataset_version") if about.get(key))
    log.protocol = {key: about.get(key) for key in SETUP}
    log.rows = _rows(source, log)
    return log


def _rows(source: Source, log: Log) -> Iterator[Attempt]:
    told: dict[str, Any] = {}
    for key, name, trial in members(source.file, ("results",)):
        if key != "results" or name is None:
            told[key] = trial
            continue
        value = verdict(trial["is_resolved"], f"{trial['trial_name']}: is_resolved")
        yield Attempt(trial["task_id"], f"{log.run}:{trial['trial_name']}", value, error=value is None)
    accuracy = told.get("accuracy")
    if isinstance(accuracy, int | float):
        log.claims.append(Claim("accuracy", float(accuracy)))
    for k, value in mapping(told.get("pass_at_k"), "pass_at_k").items():
        if isinstance(value, int | float) and k.isdecimal():
            log.claims.append(Claim(f"pass@{k}", float(value), f"pass@{k}"))


FORMAT = Format("terminal-bench", "Terminal-Bench 1 results.json", detect, read, beside=beside)
