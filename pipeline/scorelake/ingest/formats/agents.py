"""Agents: Harbor, a job folder with one result.json per trial, or the job's own result.json where there are none.

Terminal-Bench 1, from which it came: results.json of a run, next to run_metadata.json. tau-bench: a list of runs.
tau2-bench: results.json with all simulations, or with a folder of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal, siblings
from scorelake.ingest.json_stream import FileProbe, list_with, load, load_object, probe
from scorelake.ingest.values import get_object, join, pick, to_duration, to_number, to_verdict

TRIAL = ("task_name", "trial_name", "verifier_result")
JOB = ("n_total_trials", "stats")
MEASURED = {"cost_usd": "cost_usd", "input_tokens": "n_input_tokens", "output_tokens": "n_output_tokens"}
TOKENS = {"input_tokens": "total_input_tokens", "output_tokens": "total_output_tokens"}
CUT = 32
"""Length to which the name of a trial cuts that of its task."""
TIME = re.compile(r"\d{4}-\d\d-\d\d__\d\d-\d\d-\d\d")
RUN_SETTINGS = ("agent_kwargs", "global_agent_timeout_sec", "global_test_timeout_sec")
SETTINGS = ("timeout_multiplier", "agent_timeout_multiplier", "verifier_timeout_multiplier")


def detect(probe: FileProbe) -> bool:
    return probe.shape == "object" and (probe.has(*TRIAL) or probe.has(*JOB))


def group(path: Path) -> Path:
    """Return the folder of the job. A trial names its task at the beginning."""
    return path.parent if probe(path).has(*JOB) else path.parent.parent


def companions(path: Path) -> Iterable[Path]:
    job = group(path)
    return [job / "config.json", job / "result.json"]


def read(run: LogRun) -> Iterator[AttemptRow]:
    run.tool, run.run_id = "harbor", group(run.file.resolve()).name
    config = run.companion("config.json")
    job: dict[str, Any] = {}
    details: dict[str, set[str]] = {"tasks": set(), "agent_version": set()}
    n_trials = 0
    for path in (path for path in (*run.files, *run.companions) if path.name != "config.json"):
        document = load_object(path)
        if document.keys() >= {*JOB}:
            job = document
            run.identity = str(job.get("id") or "")
            continue
        n_trials += 1
        if document.get("finished_at", "unknown") is None:
            run.excluded_rows += 1
            run.notes.append(f"skipped {document['trial_name']}, which is not finished")
        else:
            yield _to_row(document, path, run, config, details)
    evals = get_object(job, "stats", "evals")
    if not n_trials:
        yield from _read_job(run, config, evals)
    elif isinstance(job.get("n_total_trials"), int) and job["n_total_trials"] != n_trials:
        run.notes.append(f"the job reports {job['n_total_trials']:,} trials, {n_trials:,} are here")
    if n_trials and job and job.get("finished_at") is None:
        run.notes.append("the job is not finished")
    run.protocol = {
        **{key: config.get(key) for key in SETTINGS},
        "environment": get_object(config, "environment").get("type"),
        "agent_kwargs": (config.get("agents") or [{}])[0].get("kwargs") or None,
        "grader": run.options.choice("metric", _benchmark(None, config) or "")[1] or "reward",
        **{key: ", ".join(sorted(values)) or None for key, values in details.items()},
    }
    if len(evals) == 1:
        for metric in next(iter(evals.values())).get("metrics") or []:
            run.add_claim("mean of the job", metric.get("mean"))


def _to_row(
    trial: dict[str, Any], path: Path, run: LogRun, config: dict[str, Any], details: dict[str, set[str]]
) -> AttemptRow:
    agent, task, execution = (
        get_object(trial, "agent_info"),
        trial.get("task_id"),
        get_object(trial, "agent_execution"),
    )
    commit = task.get("git_commit_id") if isinstance(task, dict) else None
    for key, detail in (("tasks", commit), ("agent_version", agent.get("version"))):
        details[key] |= set() if detail is None else {str(detail)}
    info = get_object(agent, "model_info")
    model = join(info, "provider", "name", separator="/")
    # The verifier decides: a trial with an exception may have passed.
    rewards = trial["verifier_result"] and trial["verifier_result"].get("rewards")
    benchmark, result = _benchmark(trial.get("source"), config), get_object(trial, "agent_result")
    key = run.choose("metric", benchmark or "", rewards, "reward", where=path) if rewards else ""
    return AttemptRow(
        trial["task_name"],
        trial["trial_name"],
        to_number(rewards[key], f"{path}: {key}") if rewards else None,
        model=join(agent | {"model": model}, "name", "model") or None,
        benchmark=benchmark,
        carried={"task_checksum": trial.get("task_checksum")},
        measures=pick(result, MEASURED) | {"seconds": to_duration(execution, "started_at", "finished_at")},
        content=trial.get("task_checksum"),
    )


def _benchmark(source: str | None, config: dict[str, Any]) -> str | None:
    versions = {dataset.get("name"): dataset.get("version") for dataset in config.get("datasets") or []}
    name = source or next(iter(versions), None)
    return f"{name}@{versions[name]}" if versions.get(name) else name


def _read_job(run: LogRun, config: dict[str, Any], evals: dict[str, Any]) -> Iterator[AttemptRow]:
    """Read the job's own result, which lists the names of trials per reward and per exception."""
    agents = config.get("agents") or []
    if len(evals) != 1 or len(agents) > 1:
        what = f"{len(evals)} evals and {len(agents)} agents in one job"
        raise refusal(what, run.path, "ingest the trials instead")
    if agents:
        run.model = join(agents[0], "name", "model_name")
    run.benchmark = _benchmark(None, config)
    stats = next(iter(evals.values()))
    rewards = get_object(stats, "reward_stats")
    key = run.choose("metric", run.benchmark or "", rewards, "reward") if rewards else ""
    rewarded = [(name, float(reward)) for reward, names in rewards.get(key, {}).items() for name in names]
    failed = dict.fromkeys(name for names in get_object(stats, "exception_stats").values() for name in names)
    # An exception without a reward: there is no verdict.
    unrewarded = [(name, None) for name in failed if name not in dict(rewarded)]
    tasks = Counter(name.rpartition("__")[0] for name, _ in [*rewarded, *unrewarded])
    if cut := [task for task, count in tasks.items() if count > 1 and len(task) >= CUT]:
        what = (
            f"{tasks[cut[0]]} trials of {cut[0]}, whose name is cut to {CUT} characters: several tasks may share it"
        )
        raise refusal(what, run.path, "ingest the folder of the trials instead")
    for name, reward in [*rewarded, *unrewarded]:
        yield AttemptRow(name.rpartition("__")[0] or name, name, reward)


def detect_terminal_bench(probe: FileProbe) -> bool:
    results = probe.first.get("results")
    first = results[0] if probe.shape == "object" and isinstance(results, list) and results else None
    return isinstance(first, dict) and {"task_id", "trial_name", "is_resolved"} <= first.keys()


def read_terminal_bench(run: LogRun) -> Iterator[AttemptRow]:
    metadata = run.companion()
    folders = [parent.name for parent in run.file.resolve().parents]
    run.tool = "terminal-bench"
    run.identity = str(metadata.get("run_id") or "")
    run.run_id = run.identity or (folders[0] if TIME.fullmatch(folders[0]) else run.tag)
    # Model and agent are null in many real files; then the folder names them.
    names = join(metadata, "agent_name", "model_name")
    run.model = names if metadata.get("model_name") else next(name for name in folders if not TIME.fullmatch(name))
    if metadata.get("dataset_name"):
        run.benchmark = join(metadata, "dataset_name", "dataset_version", separator="@")
    run.protocol = {key: metadata.get(key) for key in RUN_SETTINGS}
    run.provenance = {"commit_hash": metadata.get("commit_hash")}
    for _, trial in run.records("results"):
        value = to_verdict(trial["is_resolved"], f"{trial['trial_name']}: is_resolved")
        measures = pick(trial, TOKENS) | {"seconds": to_duration(trial, "agent_started_at", "agent_ended_at")}
        yield AttemptRow(trial["task_id"], f"{run.run_id}:{trial['trial_name']}", value, measures=measures)
    run.add_claim("accuracy", run.document.get("accuracy"))
    for k, value in get_object(run.document, "pass_at_k").items():
        if k.isdecimal():
            run.add_claim(f"pass@{k}", value, f"pass@{k}")


HARBOR = LogFormat("harbor", "passed", "fail", detect, read, group, companions, lambda reward: reward >= 1)
RUN_METADATA = siblings("run_metadata.json")
TERMINAL_BENCH = LogFormat(
    "terminal-bench", "passed", "fail", detect_terminal_bench, read_terminal_bench, companions=RUN_METADATA
)
TAU1_NAME = re.compile(
    r"(?P<strategy>act|react|tool-calling|few-shot)-(?P<model>.+)-(?P<temperature>\d+(?:\.\d+)?)_range_.+_"
    r"user-(?P<user>.+)-(?P<user_strategy>[a-z_]+)_\d+\.json"
)


def read_tau1(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id, run.benchmark = run.tag, "tau-bench"
    name = TAU1_NAME.fullmatch(run.file.name)
    if name:
        run.protocol = name.groupdict() | {"temperature": float(name["temperature"])}
        run.model = run.protocol.pop("model")
    for _, i, record in run.members():
        reward = to_number(record["reward"], f"run {i}: reward")
        is_error = reward is None or "error" in get_object(record, "info")
        attempt = f"{run.tag}:{record.get('trial', 0)}"
        yield AttemptRow(record["task_id"], attempt, reward, error=is_error)


def passes_tau(reward: float) -> bool:
    """Apply the rule of both tools: an attempt passes with a reward of 1, give or take a millionth."""
    return abs(reward - 1) <= 1e-6


def detect_tau2(probe: FileProbe) -> bool:
    info = probe.first.get("info")
    return probe.shape == "object" and isinstance(info, dict) and {"agent_info", "environment_info"} <= info.keys()


def list_simulations(path: Path) -> Iterable[Path]:
    return sorted((path.parent / "simulations").glob("*.json"))


def read_tau2(run: LogRun) -> Iterator[AttemptRow]:
    run.benchmark = run.tool = "tau2"
    has_simulations = False
    for _, simulation in run.records("simulations"):
        has_simulations = True
        yield _to_tau2_row(simulation, run.tag)
    if not has_simulations:
        # An index has all that is needed; without one, every simulation is a file of its own.
        index = run.document.get("simulation_index")
        for simulation in index or map(load, run.companions):
            yield _to_tau2_row(simulation, run.tag)
        has_folder = (run.file.parent / "simulations").is_dir()
        if not index and not has_folder and run.document.get("simulations", "none") == "none":
            what = "has no simulations, and there is no folder simulations next to it"
            raise refusal(what, run.path, "copy the folder as well")
    info = get_object(run.document, "info")
    agent, user = get_object(info, "agent_info"), get_object(info, "user_info")
    run.model = agent.get("llm")
    run.subject = get_object(info, "environment_info").get("domain_name")
    run.run_id = run.identity = str(run.document.get("timestamp") or "")
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


def _to_tau2_row(simulation: Any, tag: str) -> AttemptRow:
    reward = get_object(simulation, "reward_info").get("reward", simulation.get("reward"))
    value = to_number(reward, f"task {simulation['task_id']}: reward")
    is_error = value is None or str(simulation.get("termination_reason")) == "infrastructure_error"
    attempt = str(simulation.get("id") or f"{tag}:{simulation.get('trial', 0)}")
    measures = {"cost_usd": simulation.get("agent_cost"), "seconds": simulation.get("duration")}
    return AttemptRow(simulation["task_id"], attempt, value, error=is_error, measures=measures)


IS_TAU1 = list_with("task_id", "reward", "info", "traj")
TAU1 = LogFormat("tau-bench", "passed", "fail", IS_TAU1, read_tau1, passes=passes_tau)
TAU2 = LogFormat("tau2", "passed", "ungraded", detect_tau2, read_tau2, companions=list_simulations, passes=passes_tau)
