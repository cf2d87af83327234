"""Terminal-Bench 1: results.json of a run, next to run_metadata.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, siblings
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import get_object, to_duration, to_verdict

TIME = re.compile(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d")
SETTINGS = ("agent_kwargs", "global_agent_timeout_sec", "global_test_timeout_sec")


def detect(probe: FileProbe) -> bool:
    results = probe.first.get("results")
    first = results[0] if probe.shape == "object" and isinstance(results, list) and results else None
    return isinstance(first, dict) and {"task_id", "trial_name", "is_resolved"} <= first.keys()


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    metadata = source.companion()
    folders = [parent.name for parent in source.file.resolve().parents]
    run.tool = "terminal-bench"
    run.identity = str(metadata.get("run_id") or "")
    run.run_id = run.identity or (folders[0] if TIME.fullmatch(folders[0]) else source.tag)
    # Model and agent are null in many real files; then the folder names them.
    names = [str(metadata[key]) for key in ("agent_name", "model_name") if metadata.get(key)]
    run.model = " ".join(names) if len(names) == 2 else next(name for name in folders if not TIME.fullmatch(name))
    if metadata.get("dataset_name"):
        dataset = [metadata[key] for key in ("dataset_name", "dataset_version") if metadata.get(key)]
        run.benchmark = "@".join(map(str, dataset))
    run.protocol = {key: metadata.get(key) for key in SETTINGS}
    run.provenance = {"commit_hash": metadata.get("commit_hash")}
    document: dict[str, Any] = {}
    for _, trial in source.records("results", document):
        value = to_verdict(trial["is_resolved"], f"{trial['trial_name']}: is_resolved")
        measures = {f"{name}_tokens": trial.get(f"total_{name}_tokens") for name in ("input", "output")}
        measures["seconds"] = to_duration(trial, "agent_started_at", "agent_ended_at")
        yield AttemptRow(trial["task_id"], f"{run.run_id}:{trial['trial_name']}", value, measures=measures)
    run.add_claim("accuracy", document.get("accuracy"))
    for k, value in get_object(document, "pass_at_k").items():
        if k.isdecimal():
            run.add_claim(f"pass@{k}", value, f"pass@{k}")


FORMAT = LogFormat("terminal-bench", "passed", "fail", detect, read, companions=siblings("run_metadata.json"))
