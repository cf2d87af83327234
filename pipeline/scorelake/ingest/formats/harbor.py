"""Harbor: a job folder with one result.json per trial, or the job's own result.json where there are no trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, choose, refuse
from scorelake.ingest.documents import small
from scorelake.ingest.sight import Sight, look
from scorelake.ingest.values import mapping, number

TRIAL = ("task_name", "trial_name", "verifier_result")
JOB = ("n_total_trials", "stats")
SETUP = ("timeout_multiplier", "agent_timeout_multiplier", "verifier_timeout_multiplier")


def detect(sight: Sight) -> bool:
    return sight.shape == "object" and (sight.has(*TRIAL) or sight.has(*JOB))


def unit(path: Path) -> Path:
    """The folder of the job: the one above a trial's, the one of the job's own result."""
    return path.parent if look(path).has(*JOB) else path.parent.parent


def beside(path: Path) -> Iterable[Path]:
    job = unit(path)
    return [job / "config.json", job / "result.json"]


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed" if options.threshold is None else "score", "fail", tool="harbor")
    log.run = unit(source.file.resolve()).name
    config: Mapping[str, Any] = {}
    job: Mapping[str, Any] = {}
    for path in dict.fromkeys((*source.files, *source.beside)):
        if path.name == "config.json":
            config = mapping(small(path), "config")
        elif look(path).has(*JOB):
            job = mapping(small(path), "result")
    trials = [path for path in source.files if not look(path).has(*JOB)]
    log.protocol = _protocol(config)
    log.rows = _trials(trials, options, log, config, job) if trials else _job(source, options, log, config, job)
    return log


def _protocol(config: Any) -> dict[str, Any]:
    agents = config.get("agents") or [{}]
    return {
        **{key: config.get(key) for key in SETUP},
        "environment": mapping(config.get("environment"), "environment").get("type"),
        "agent_kwargs": agents[0].get("kwargs") or None,
    }


def _benchmark(source: str | None, config: Any) -> str | None:
    versions = {each.get("name"): each.get("version") for each in config.get("datasets") or []}
    name = source or next(iter(versions), None)
    return f"{name}@{versions[name]}" if versions.get(name) else name


def _worth(reward: float | None, options: Options) -> float | None:
    return reward if reward is None or options.threshold is not None else float(reward >= 1)


def _trials(paths: list[Path], options: Options, log: Log, config: Any, job: Any) -> Iterator[Attempt]:
    commits, versions = set(), set()
    for path in paths:
        trial = small(path)
        if trial.get("finished_at") is None and "finished_at" in trial:
            log.left_out += 1
            log.notes.append(f"{trial['trial_name']} is not finished and is left out")
            continue
        agent = mapping(trial.get("agent_info"), "agent_info")
        versions.add(agent.get("version"))
        where = trial.get("task_id")
        commits.add(where.get("git_commit_id") if isinstance(where, dict) else None)
        reward = _reward(trial, options, path)
        yield Attempt(
            trial["task_name"],
            trial["trial_name"],
            _worth(reward, options),
            error=reward is None,
            model=_model(agent),
            benchmark=_benchmark(trial.get("source"), config),
            carried={"task_checksum": trial.get("task_checksum")},
            asked=trial.get("task_checksum"),
        )
    log.protocol |= {"tasks": _one(commits), "agent_version": _one(versions), "grader": options.metric or "reward"}
    _claims(job, log)
    total = job.get("n_total_trials")
    if isinstance(total, int) and total != len(paths):
        log.notes.append(f"the job tells of {total:,} trials, {len(paths):,} are here")
    if job and job.get("finished_at") is None:
        log.notes.append("the job is not finished")


def _one(values: set[Any]) -> Any:
    """The value that all trials share, or a list of them."""
    known = sorted(str(value) for value in values if value is not None)
    return known[0] if len(known) == 1 else ", ".join(known) or None


def _model(agent: Any) -> str | None:
    info = mapping(agent.get("model_info"), "model_info")
    model = "/".join(str(info[key]) for key in ("provider", "name") if info.get(key))
    return " ".join(str(part) for part in (agent.get("name"), model) if part) or None


def _reward(trial: Any, options: Options, path: Path) -> float | None:
    """The reward that was asked for; None where the verifier gave none. An exception is not a verdict."""
    result = trial["verifier_result"]
    rewards = None if result is None else result.get("rewards")
    if not rewards:
        return None
    key = choose(rewards, options.metric, "reward", "--metric", path)
    return number(rewards[key], f"{path}: {key}")


def _claims(job: Any, log: Log) -> None:
    evals = mapping(mapping(job.get("stats"), "stats").get("evals"), "evals")
    if len(evals) == 1:
        for metric in next(iter(evals.values())).get("metrics") or []:
            if isinstance(metric.get("mean"), int | float):
                log.claims.append(Claim("mean of the job", float(metric["mean"])))


def _job(source: Source, options: Options, log: Log, config: Any, job: Any) -> Iterator[Attempt]:
    """From the job's own result: names of trials per reward. With an exception and no reward, there is no verdict."""
    evals = mapping(mapping(job.get("stats"), "stats").get("evals"), "evals")
    agents = config.get("agents") or []
    if len(evals) != 1 or len(agents) > 1:
        raise refuse(
            f"{len(evals)} evals and {len(agents)} agents in one job", source.path, "ingest the trials instead"
        )
    told = next(iter(evals.values()))
    rewards = mapping(told.get("reward_stats"), "reward_stats")
    seen = set()
    if agents:
        log.model = " ".join(str(agents[0][key]) for key in ("name", "model_name") if agents[0].get(key))
    log.benchmark = _benchmark(None, config)
    if rewards:
        key = choose(rewards, options.metric, "reward", "--metric", source.path)
        for reward, names in rewards[key].items():
            for name in names:
                seen.add(name)
                yield Attempt(_task(name), name, _worth(float(reward), options))
    for names in mapping(told.get("exception_stats"), "exception_stats").values():
        for name in names:
            if name not in seen:
                seen.add(name)
                yield Attempt(_task(name), name, None, error=True)
    log.protocol["grader"] = options.metric or "reward"
    _claims(job, log)


def _task(trial: str) -> str:
    return trial.rpartition("__")[0] or trial


FORMAT = Format("harbor", "Harbor job folders", detect, read, unit=unit, beside=beside)
