"""Every Eval Ever: {uuid}_samples.jsonl with instances, {uuid}.json with aggregates beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import lines, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, shown, verdict

SAMPLES = "_samples.jsonl"
VERSION = re.compile(r"0\.(2\.[2-9]|3)(\..*)?.*")


def detect(sight: Sight) -> bool:
    instance = sight.records and sight.has("schema_version", "evaluation_id", "sample_id", "evaluation")
    return instance or (sight.shape == "object" and sight.has("schema_version", "evaluation_results", "model_info"))


def unit(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix(SAMPLES)}.json") if path.name.endswith(SAMPLES) else path


def beside(path: Path) -> Iterable[Path]:
    whole = unit(path)
    return [whole, whole.with_name(f"{whole.stem}{SAMPLES}")]


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "ungraded", tool="every_eval_ever")
    every = (*source.files, *source.beside)
    samples = [path for path in every if path.name.endswith(SAMPLES) or path.suffix == ".jsonl"]
    wholes = [path for path in every if path not in samples]
    aggregate = mapping(small(wholes[0]), "aggregate") if wholes else {}
    log.model = mapping(aggregate.get("model_info"), "model_info").get("id")
    log.run = str(aggregate.get("evaluation_id") or source.tag)
    _version(aggregate.get("schema_version"), source.path)
    log.rows = _rows(samples[0], options, log, aggregate) if samples else iter(())
    if not samples:
        log.notes.append("aggregates without a file of instances: no attempts in it")
    return log


def _version(told: Any, path: Path) -> None:
    if told is not None and not (isinstance(told, str) and VERSION.fullmatch(told)):
        raise refuse(f"schema {shown(told)}", path, "known are 0.2.2 to 0.3")


def _rows(path: Path, options: Options, log: Log, aggregate: Any) -> Iterator[Attempt]:
    results = {each.get("evaluation_name"): each for each in aggregate.get("evaluation_results") or []}
    library = str(mapping(aggregate.get("eval_library"), "eval_library").get("name", "inspect"))
    chosen: dict[Any, Any] = {}
    rows = 0
    for line, record in lines(path):
        rows += 1
        _version(record.get("schema_version"), path)
        about = mapping(record.get("metadata"), "metadata")
        epoch = about.get("epoch")
        if isinstance(epoch, int) and epoch > 1 and "inspect" in library.lower():
            raise refuse(
                "converted from Inspect, with one score for all epochs", path, "ingest the .eval log instead"
            )
        name, result = record["evaluation_name"], record.get("evaluation_result_id")
        if options.metric is not None and result != options.metric:
            continue
        if chosen.setdefault(name, result) != result:
            raise refuse(f"{name} has several results: {chosen[name]}, {result}", path, "choose one with --metric")
        told = mapping(record.get("evaluation"), "evaluation")
        value = verdict(told.get("is_correct"), f"line {line:,}: is_correct")
        yield Attempt(
            record["sample_id"],
            f"{record['evaluation_id']}:{line if epoch is None else f'epoch {epoch}'}",
            value,
            error=value is None or record.get("error") is not None,
            answer=_answer(record),
            subject=about.get("subject"),
            benchmark=name,
            model=record.get("model_id"),
            asked=record.get("sample_hash"),
            protocol=dict(mapping(mapping(results.get(name), "result").get("generation_config"), "config")) or None,
        )
    for name in chosen:
        score = mapping(mapping(results.get(name), "result").get("score_details"), "score_details").get("score")
        if isinstance(score, int | float):
            log.claims.append(Claim(f"score of {name}", float(score), "mean", name))
    total = mapping(aggregate.get("detailed_evaluation_results"), "detailed").get("total_rows")
    if isinstance(total, int) and total != rows:
        log.notes.append(f"the aggregate tells of {total:,} instances, {rows:,} are here")


def _answer(record: dict[str, Any]) -> Any:
    told = record.get("answer_attribution")
    return told[-1].get("extracted_value") if isinstance(told, list) and told else None


FORMAT = Format("every-eval-ever", "Every Eval Ever instances", detect, read, unit=unit, beside=beside)
