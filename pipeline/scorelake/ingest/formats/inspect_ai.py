"""Inspect AI: .eval archives (header and summaries only, never transcripts) and .json logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, choose, refusal
from scorelake.ingest.json_stream import JsonReader, ZipFile, archive_errors, decode
from scorelake.ingest.probe import FileProbe
from scorelake.ingest.values import get_object, quote, to_number, to_setting

VERSIONS = (2, 3)
WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
"""Texts that Inspect itself converts to numbers."""
HEADER, START = "header.json", "_journal/start.json"
SUMMARIES, JOURNAL, SAMPLES = PREFIXES = ("summaries.json", "_journal/summaries/", "samples/")


def detect(probe: FileProbe) -> bool:
    if probe.shape == "zip":
        return HEADER in probe.members or START in probe.members
    about = probe.first.get("eval")
    return probe.shape == "object" and isinstance(about, dict) and {"task", "model"} <= about.keys()


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    names: set[str] = set()
    with source.file.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    header: dict[str, Any] = {}
    has_uuids = True
    for sample in _read_archive(source.file, header) if is_archive else _read_document(source, header):
        if not run.run_id:
            _add_names(header, run, source.path)
        uuid, subject_key = sample.get("uuid"), options.subject_key
        has_uuids &= bool(uuid)
        is_invalid = sample.get("invalidation") or sample.get("invalidated")
        score = {} if is_invalid else _select_score(sample, options.scorer, names, source.path)
        yield AttemptRow(
            sample["id"],
            str(uuid or f"{run.run_id}:{sample.get('epoch', 1)}"),
            to_value(score.get("value")),
            answer=score.get("answer"),
            subject=None if subject_key is None else get_object(sample, "metadata").get(subject_key),
        )
    _add_names(header, run, source.path, check_version=is_archive)
    if names:
        choose(names, options.scorer, "score", "--scorer", source.path)
    _add_protocol(header, run, options.scorer or next(iter(names), None))
    if not names:
        run.notes.append("no sample was scored")
    run.has_attempt_ids = has_uuids


def _read_document(source: LogSource, header: dict[str, Any]) -> Iterator[Any]:
    for key, name, value in source.members("samples"):
        if key == "samples" and name is not None:
            yield value
        else:
            header[key] = value


def _read_archive(path: Path, header: dict[str, Any]) -> Iterator[Any]:
    """Read the summaries of a finished log, else the journal, else single samples."""
    with archive_errors(path), ZipFile(path) as archive:
        names = sorted(archive.namelist(), key=lambda name: (len(name) if name.startswith(JOURNAL) else 0, name))
        start = HEADER if HEADER in names else START
        header |= decode(archive.read(start).decode("utf-8-sig"), f"{path}: {start}")
        documents = [name for name in names if name.endswith(".json")]
        prefix = next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in documents)), SAMPLES)
        for name in (name for name in documents if name.startswith(prefix)):
            with archive.open(name) as file:
                reader = JsonReader(file, f"{path}: {name}")
                yield from [reader.value()] if prefix == SAMPLES else (sample for *_, sample in reader.members())
                reader.finish()


def _select_score(sample: dict[str, Any], chosen: str | None, names: set[str], where: Path) -> dict[str, Any]:
    """Return the score that --scorer names, or the only one; {} if the sample has none. Names of scores are added."""
    scores = get_object(sample, "scores")
    for scorer in scores:
        value = get_object(scores, scorer).get("value")
        names |= {f"{scorer}.{key}" for key in value} if isinstance(value, dict) else {scorer}
    if chosen is None:
        if len(names) > 1:
            choose(names, None, "score", "--scorer", where)
        return next(iter(scores.values()), None) or {}
    if chosen in scores:
        return get_object(scores, chosen)
    scorer, _, key = chosen.rpartition(".")
    values = get_object(scores, scorer).get("value")
    return {**scores[scorer], "value": values[key]} if isinstance(values, dict) and key in values else {}


def to_value(value: Any) -> float | None:
    """Convert a score like Inspect's value_to_float, but refuse texts that it would take for 0."""
    if not isinstance(value, str):
        return to_number(value, "score")
    if value in WORDS or value.lower() in WORDS:
        return WORDS.get(value, WORDS.get(value.lower()))
    if re.fullmatch(r"\s*[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*", value):
        return float(value)
    raise ValueError(f"a score of {quote(value)}")


def _add_names(header: dict[str, Any], run: RunInfo, path: Path, check_version: bool = True) -> None:
    """Set model, task and run id, which samples need. The layout of other versions is unknown."""
    if check_version and header.get("version") not in VERSIONS:
        raise refusal(f"version {quote(header.get('version'))} of Inspect's log", path, "2 and 3 are supported")
    if "eval" not in header:
        raise refusal("has samples before the header", path, "convert it with `inspect log convert`")
    about = get_object(header, "eval")
    run.model, run.benchmark = about.get("model"), about.get("task")
    run.run_id = str(about.get("eval_id") or f"{about.get('run_id')}-{about.get('task_id')}")


def _add_protocol(header: dict[str, Any], run: RunInfo, scorer: str | None) -> None:
    about, plan = get_object(header, "eval"), get_object(header, "plan")
    packages = get_object(about, "packages")
    run.tool = f"inspect_ai {packages.get('inspect_ai', '')}".strip()
    scorers = [one for one in about.get("scorers") or [] if one.get("name") == (scorer or "").split(".")[0]]
    options = get_object(scorers[0], "options") if scorers else {}
    run.protocol = {
        **get_object(plan, "config"),
        **get_object(about, "model_generate_config"),
        "task_version": about.get("task_version"),
        "task_args": get_object(about, "task_args") or None,
        "commit": get_object(about, "revision").get("commit"),
        "solver": about.get("solver") or [step.get("solver") for step in plan.get("steps") or []] or None,
        "grader": f"{scorer} {to_setting(options)}" if options else scorer,
        **packages,
    }
    status = header.get("status", "started")
    if status != "success":
        run.notes.append(f"the log's status is {status}; its samples are used")
    if about.get("task_id"):
        run.task_id, run.created = str(about["task_id"]), str(about.get("created", ""))
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


FORMAT = LogFormat("inspect", "Inspect AI logs, .eval and .json", "score", "ungraded", detect, read)
