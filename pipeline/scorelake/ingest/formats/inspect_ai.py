"""Inspect AI: .eval archives (only header and summaries are read, never transcripts) and .json logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest import zips
from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import Document, members, parsed
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import brief, mapping, number, shown

VERSIONS = (2, 3)
WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
"""What Inspect itself takes a text for."""
HEADER, START, SUMMARIES, JOURNAL = "header.json", "_journal/start.json", "summaries.json", "_journal/summaries/"


def detect(sight: Sight) -> bool:
    if sight.shape == "zip":
        return HEADER in sight.members or START in sight.members
    about = sight.first.get("eval")
    return sight.shape == "object" and isinstance(about, dict) and {"task", "model"} <= about.keys()


def read(source: Source, options: Options) -> Log:
    log = Log([], "score", "ungraded")
    scores = Scores(options, source.path)
    with source.file.open("rb") as file:
        packed = file.read(2) == b"PK"
    log.rows = _archive(source.file, log, scores) if packed else _document(source.file, log, scores)
    return log


class Scores:
    """Which of the scores of a sample is meant, and what it is worth."""

    def __init__(self, options: Options, where: Path) -> None:
        self.wanted, self.where, self.subject = options.scorer, where, options.subject_key
        self.names: set[str] = set()
        self.uuids = True
        """Every sample has a name that a retried log repeats."""

    def of(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        """The score that was asked for, or the only one; None where the sample has none."""
        scores = mapping(sample.get("scores"), "scores")
        self.names |= {name for score in scores for name in _spelled(score, scores[score])}
        if self.wanted is None:
            if len(self.names) > 1:
                raise refuse(
                    f"{len(self.names)} scores: {', '.join(sorted(self.names))}",
                    self.where,
                    "choose one with --scorer",
                )
            return next(iter(scores.values()), None)
        if self.wanted in scores:
            return dict(scores[self.wanted])
        scorer, _, key = self.wanted.rpartition(".")
        inside = mapping(scores.get(scorer), "score").get("value")
        return {**scores[scorer], "value": inside[key]} if isinstance(inside, dict) and key in inside else None

    def check(self) -> None:
        if self.wanted is not None and self.names and self.wanted not in self.names:
            raise refuse(f"no score {self.wanted}", self.where, f"there are: {', '.join(sorted(self.names))}")

    @property
    def name(self) -> str | None:
        return self.wanted or next(iter(self.names), None)

    def attempt(self, sample: dict[str, Any], prefix: str) -> Attempt:
        self.uuids &= bool(sample.get("uuid"))
        score = None if sample.get("invalidation") or sample.get("invalidated") else self.of(sample)
        value = None if score is None else worth(score.get("value"))
        subject = None
        if self.subject:
            subject = mapping(sample.get("metadata"), "metadata").get(self.subject.removeprefix("metadata."))
        return Attempt(
            sample["id"],
            str(sample.get("uuid") or f"{prefix}:{sample.get('epoch', 1)}"),
            value,
            error=value is None,
            answer=None if score is None else score.get("answer"),
            subject=subject,
        )


def _spelled(score: str, told: Any) -> list[str]:
    value = mapping(told, "score").get("value")
    return [f"{score}.{key}" for key in value] if isinstance(value, dict) else [score]


def worth(value: Any) -> float | None:
    """A value as Inspect's own value_to_float takes it; what that would guess to be 0 is refused."""
    if isinstance(value, str):
        if value in WORDS or value.lower() in WORDS:
            return WORDS.get(value, WORDS.get(value.lower()))
        if re.fullmatch(r"\s*[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*", value):
            return float(value)
        raise ValueError(f"a score of {shown(value)}")
    return number(value, "score")


# --- the two containers -------------------------------------------------------------------------------------------


def _document(path: Path, log: Log, scores: Scores) -> Iterator[Attempt]:
    header: dict[str, Any] = {}
    prefix: str | None = None
    for key, name, value in members(path, ("samples",)):
        if key != "samples" or name is None:
            header[key] = value
            continue
        if prefix is None:
            _version(header, path)
            prefix = _about(header, log, path)
        yield scores.attempt(value, prefix)
    _about(header, log, path)
    _facts(header, log, scores)


def _archive(path: Path, log: Log, scores: Scores) -> Iterator[Attempt]:
    with zips.unpacking(path), zips.ZipFile(path) as archive:
        names = set(archive.namelist())
        start = HEADER if HEADER in names else START
        header = parsed(archive.read(start).decode("utf-8-sig"), f"{path}: {start}")
        _version(header, path)
        prefix = _about(header, log, path)
        for name in _members(names):
            with archive.open(name) as file:
                document = Document(file, f"{path}: {name}")
                alone = name.startswith("samples/")
                samples = [document.value()] if alone else (sample for *_, sample in document.members(()))
                for sample in samples:
                    yield scores.attempt(sample, prefix)
                document.finish()
    _facts(header, log, scores)


def _members(names: set[str]) -> list[str]:
    """Where the samples are: in the summaries of a finished log, else in the journal, else one by one."""
    if SUMMARIES in names:
        return [SUMMARIES]
    journal = [name for name in names if name.startswith(JOURNAL) and name.endswith(".json")]
    if journal:
        return sorted(journal, key=lambda name: (len(name), name))
    return sorted(name for name in names if name.startswith("samples/") and name.endswith(".json"))


# --- the header ---------------------------------------------------------------------------------------------------


def _version(header: dict[str, Any], path: Path) -> None:
    """Samples of a version that nobody here knows are not guessed at."""
    if header.get("version") not in VERSIONS:
        raise refuse(f"version {shown(header.get('version'))} of Inspect's log", path, "known are 2 and 3")


def _about(header: dict[str, Any], log: Log, path: Path) -> str:
    """Names and run; gives what attempts without a name of their own are named by."""
    if "eval" not in header:
        raise refuse("samples stand before the header", path, "convert it with `inspect log convert`")
    about = mapping(header["eval"], "eval")
    log.model, log.benchmark = about.get("model"), about.get("task")
    eval_id = about.get("eval_id") or f"{about.get('run_id')}-{about.get('task_id')}"
    log.run = str(eval_id)
    return str(eval_id)


def _facts(header: dict[str, Any], log: Log, scores: Scores) -> None:
    about = mapping(header["eval"], "eval")
    scores.check()
    packages = mapping(about.get("packages"), "packages")
    log.tool = f"inspect_ai {packages.get('inspect_ai', '')}".strip()
    plan = mapping(header.get("plan"), "plan")
    config = {**mapping(plan.get("config"), "plan"), **mapping(about.get("model_generate_config"), "config")}
    revision = mapping(about.get("revision"), "revision")
    args = mapping(about.get("task_args"), "task_args")
    solver = about.get("solver") or [step.get("solver") for step in plan.get("steps") or []]
    named = [one for one in about.get("scorers") or [] if one.get("name") == (scores.name or "").split(".")[0]]
    options = mapping(named[0].get("options"), "options") if named else {}
    log.protocol = {
        **config,
        "task_version": about.get("task_version"),
        "task_args": dict(args) or None,
        "commit": revision.get("commit"),
        "solver": solver or None,
        "grader": f"{scores.name} {brief(dict(options))}" if options else scores.name,
        **packages,
    }
    status = header.get("status", "started")
    if status != "success":
        log.notes.append(f"the log's status is {status}; what it holds is taken")
    if not scores.names:
        log.notes.append("no sample was scored")
    created, task = str(about.get("created", "")), about.get("task_id")
    if task:
        log.supersedes = (str(task), created, scores.uuids)
    log.claims = list(_claims(mapping(header.get("results"), "results"), scores.name))


def _claims(results: Any, name: str | None) -> Iterator[Claim]:
    for entry in results.get("scores") or []:
        if name is not None and name not in (entry.get("scorer"), entry.get("name"), _both(entry)):
            continue
        reducer = entry.get("reducer") or "mean"
        k = re.fullmatch(r"pass_(at|k)_(\d+)", reducer)
        metric = "problems" if reducer == "mean" else f"pass{'@' if k[1] == 'at' else '^'}{k[2]}" if k else None
        for label, told in mapping(entry.get("metrics"), "metrics").items():
            value = told.get("value")
            if metric and label in ("accuracy", "mean") and isinstance(value, int | float):
                yield Claim(f"{label} of {reducer}" if k else label, float(value), metric)


def _both(entry: dict[str, Any]) -> str:
    return f"{entry.get('scorer')}.{entry.get('name')}"


FORMAT = Format("inspect", "Inspect AI logs, .eval and .json", detect, read)
