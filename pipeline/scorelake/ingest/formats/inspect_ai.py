"""Inspect AI: .eval archives (header and summaries only, never transcripts) and .json logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from scorelake.ingest.archives import ZipFile, archive_errors
from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, JsonReader
from scorelake.ingest.values import get_object, quote, to_number, to_setting, to_timestamp

VERSIONS = (2, 3)
WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
"""Texts that Inspect itself converts to numbers."""
HEADER, START = "header.json", "_journal/start.json"
SUMMARIES, JOURNAL, SAMPLES = PREFIXES = ("summaries.json", "_journal/summaries/", "samples/")
TRANSCRIPT = ("messages", "events", "attachments", "store", "output")
LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "cost_limit")
NOT_MEASURED = (
    *("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout", "batch", "cache"),
    *("cache_prompt", "logprobs", "top_logprobs"),
)
"""Settings of the generation that change how requests are sent, not what is answered."""


def detect(probe: FileProbe) -> bool:
    if probe.shape == "zip":
        return HEADER in probe.members or START in probe.members
    about = probe.first.get("eval")
    return probe.shape == "object" and isinstance(about, dict) and {"task", "model"} <= about.keys()


def read(run: LogRun) -> Iterator[AttemptRow]:
    with run.file.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    names: dict[str, None] = {}
    scorer = ""
    records = _read_archive(run) if is_archive else run.records("samples", TRANSCRIPT)
    for _, sample in records:
        if not run.run_id:
            _add_names(run)
        uuid, subject_key = sample.get("uuid"), run.options.subject_key
        is_invalid = sample.get("invalidation") or sample.get("invalidated")
        scores = {} if is_invalid else get_object(sample, "scores")
        names |= dict.fromkeys(_score_names(scores))
        if names and not scorer:
            text, wanted = run.options.choice("scorer", str(run.benchmark))
            candidates = _in_order(names, run.document, with_declared=True)
            scorer = wanted if "=" in text or wanted in candidates else candidates[0]
        score = _select_score(scores, scorer)
        yield AttemptRow(
            sample["id"],
            str(uuid or f"{run.run_id}:{sample.get('epoch', 1)}"),
            to_value(score.get("value")),
            answer=score.get("answer"),
            subject=None if subject_key is None else get_object(sample, "metadata").get(subject_key),
            measures=_to_measures(sample),
        )
    _add_names(run, check_version=is_archive)
    if names:
        task, available = str(run.benchmark), _in_order(names, run.document)
        chosen = run.choose("scorer", task, available, "score", "the scorers of the log")
        if chosen != scorer:
            hint = f"choose it with --scorer {task}={chosen}"
            raise refusal(f"score {chosen} is missing in the first samples", run.path, hint)
    else:
        run.notes.append("no sample was scored")
    _add_protocol(run, scorer or None)


def _to_measures(sample: dict[str, Any]) -> dict[str, Any]:
    """Add the usage of all models of a sample."""
    usage = get_object(sample, "model_usage")
    out = {"seconds": sample.get("total_time")}
    for name, theirs in (("input_tokens",) * 2, ("output_tokens",) * 2, ("cost_usd", "total_cost")):
        numbers = [to_number(get_object(usage, model).get(theirs), theirs) for model in usage]
        out[name] = None if not numbers or None in numbers else sum(number or 0 for number in numbers)
    return out


def _read_archive(run: LogRun) -> Iterator[tuple[Any, Any]]:
    """Read the summaries of a finished log, else the journal, else single samples."""
    path = run.file
    with archive_errors(path), ZipFile(path) as archive:
        names = sorted(archive.namelist(), key=lambda name: (len(name) if name.startswith(JOURNAL) else 0, name))
        start = HEADER if HEADER in names else START
        with archive.open(start) as file:
            run.document |= JsonReader(file, f"{path}: {start}").document()
        documents = [name for name in names if name.endswith(".json")]
        prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in documents)), SAMPLES)
        for name in (name for name in documents if name.startswith(prefix)):
            with archive.open(name) as file:
                reader = JsonReader(file, f"{path}: {name}", max_record=run.reading.max_record)
                if prefix == SAMPLES:  # transcripts are read element by element
                    yield name, {key: value for key, i, value in reader.members(TRANSCRIPT) if i is None}
                else:
                    yield from ((name, sample) for *_, sample in reader.members(skip=TRANSCRIPT))


def _score_names(scores: dict[str, Any]) -> Iterator[str]:
    """Yield the scores of a sample: SCORER, or SCORER.KEY for each value of a scorer that gives several."""
    for scorer in scores:
        value = get_object(scores, scorer).get("value")
        yield from (f"{scorer}.{key}" for key in value) if isinstance(value, dict) else [scorer]


def _in_order(names: Iterable[str], header: dict[str, Any], with_declared: bool = False) -> list[str]:
    """Order scores by the scorers that the header declares; others follow as they occur in the samples."""
    entries = [each.get("name") for each in get_object(header, "eval").get("scorers") or []]
    entries += [each.get("scorer") for each in get_object(header, "results").get("scores") or []]
    declared = list(dict.fromkeys(str(name).rpartition("/")[2] for name in entries))
    scorers = {name: name if name in declared else name.split(".")[0] for name in names}
    if with_declared:
        scorers |= {name: name for name in declared if name not in scorers.values()}
    return sorted(scorers, key=lambda name: (*declared, scorers[name]).index(scorers[name]))


def _select_score(scores: dict[str, Any], chosen: str) -> dict[str, Any]:
    """Return the chosen score of a sample; {} if it has none."""
    if chosen in scores:
        return get_object(scores, chosen)
    scorer, _, key = chosen.rpartition(".")
    values = get_object(scores, scorer).get("value")
    return {**scores[scorer], "value": values[key]} if isinstance(values, dict) and key in values else {}


def to_value(value: Any) -> float | None:
    """Convert a score like Inspect's value_to_float, but refuse texts that it would take for 0."""
    if isinstance(value, str):
        try:
            value = float(WORDS.get(value, WORDS.get(value.lower(), value)))
        except ValueError:
            raise ValueError(f"a score of {quote(value)}") from None
    return to_number(value, "score")


def _add_names(run: LogRun, check_version: bool = True) -> None:
    """Set model, task and run id, which samples need. The layout of other versions is unknown."""
    header = run.document
    if check_version and header.get("version") not in VERSIONS:
        raise refusal(f"version {quote(header.get('version'))} of Inspect's log", run.path, "2 and 3 are supported")
    if "eval" not in header:
        raise refusal("has samples before the header", run.path, "convert it with `inspect log convert`")
    about = get_object(header, "eval")
    run.model, run.benchmark = about.get("model"), about.get("task")
    run.run_id = str(about.get("eval_id") or f"{about.get('run_id')}-{about.get('task_id')}")


def _add_protocol(run: LogRun, scorer: str | None) -> None:
    header = run.document
    about, plan = get_object(header, "eval"), get_object(header, "plan")
    packages, config, roles = (get_object(about, key) for key in ("packages", "config", "model_roles"))
    run.tool = f"inspect_ai {packages.get('inspect_ai', '')}".strip()
    name = (scorer or "").split(".")[0]
    scorers = [one for one in about.get("scorers") or [] if str(one.get("name")).rpartition("/")[2] == name]
    options = get_object(scorers[0], "options") if scorers else {}
    generation = get_object(plan, "config") | get_object(about, "model_generate_config")
    reducer = config.get("epochs_reducer")
    # Arguments as they were passed: a release that adds an argument with a default changes nothing.
    steps = [(step.get("solver"), step.get("params_passed", step.get("params"))) for step in plan.get("steps") or []]
    solvers = [{solver: params} if params else solver for solver, params in steps]
    run.protocol = {
        **{key: value for key, value in generation.items() if key not in NOT_MEASURED},
        **{key: config.get(key) for key in LIMITS},
        "epochs_reducer": None if reducer in (["mean"], "mean") else reducer,
        "task_version": about.get("task_version"),
        "task_args": about.get("task_args_passed", about.get("task_args")) or None,
        "solver": solvers or about.get("solver"),
        "model_roles": {role: get_object(roles, role).get("model") for role in roles} or None,
        "grader": f"{scorer} {to_setting(options)}" if options else scorer,
    }
    run.provenance = {key: generation.get(key) for key in NOT_MEASURED} | packages
    run.provenance["commit"] = get_object(about, "revision").get("commit")
    status = header.get("status", "started")
    if status != "success":
        run.notes.append(f"the log's status is {status}; its samples are used")
    # eval-retry keeps the task_id and copies finished samples into a new log. Inspect itself reads the newest log of
    # a task, but not one that was only started.
    run.identity = str(about.get("task_id") or about.get("eval_id") or "")
    run.precedence = to_timestamp(about.get("created")) or 0.0
    run.precedence -= 1e12 * (status == "started")
    for entry in get_object(header, "results").get("scores") or []:
        names = (entry.get("scorer"), entry.get("name"), f"{entry.get('scorer')}.{entry.get('name')}")
        if scorer is not None and scorer not in names:
            continue
        reducer = entry.get("reducer") or "mean"
        k = re.fullmatch(r"pass_(at|k)_(\d+)", reducer)
        metric = "problems" if reducer == "mean" else f"pass{'@' if k[1] == 'at' else '^'}{k[2]}" if k else None
        for label, reported in get_object(entry, "metrics").items():
            if metric and label in ("accuracy", "mean"):
                run.add_claim(f"{label} of {reducer}" if k else label, reported.get("value"), metric)


FORMAT = LogFormat("inspect", "score", "ungraded", detect, read)
