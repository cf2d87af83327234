"""Every Eval Ever: {uuid}_samples.jsonl with instances, next to {uuid}.json with aggregates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, load_object
from scorelake.ingest.values import get_object, pick, quote, to_verdict

TOKENS = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
SAMPLES = "_samples.jsonl"
VERSION = re.compile(r"0\.(2\.[2-9]|3)(\..*)?.*")


def detect(probe: FileProbe) -> bool:
    is_instance = probe.has_records and probe.has("schema_version", "evaluation_id", "sample_id", "evaluation")
    is_aggregate = probe.shape == "object" and probe.has("schema_version", "evaluation_results", "model_info")
    return is_instance or is_aggregate


def group(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix(SAMPLES)}.json") if path.name.endswith(SAMPLES) else path


def companions(path: Path) -> Iterable[Path]:
    aggregate = group(path)
    return [aggregate, aggregate.with_name(f"{aggregate.stem}{SAMPLES}")]


def read(run: LogRun) -> Iterator[AttemptRow]:
    files = (*run.files, *run.companions)
    samples = [path for path in files if path.name.endswith(SAMPLES) or path.suffix == ".jsonl"]
    aggregates = [path for path in files if path not in samples]
    aggregate = load_object(aggregates[0]) if aggregates else {}
    run.tool, run.model = "every_eval_ever", get_object(aggregate, "model_info").get("id")
    run.identity = str(aggregate.get("evaluation_id") or "")
    run.run_id = run.identity or run.tag
    _check_version(aggregate.get("schema_version"), run.path)
    if samples:
        yield from _read_samples(run, samples[0], aggregate)
    else:
        run.notes.append("has aggregates but no file of instances, so no attempts")


def _check_version(version: Any, path: Path) -> None:
    if version is not None and not (isinstance(version, str) and VERSION.fullmatch(version)):
        raise refusal(f"schema {quote(version)}", path, "0.2.2 to 0.3 are supported")


def _read_samples(run: LogRun, path: Path, aggregate: dict[str, Any]) -> Iterator[AttemptRow]:
    results = {result.get("evaluation_name"): result for result in aggregate.get("evaluation_results") or []}
    library = str(get_object(aggregate, "eval_library").get("name", "inspect"))
    chosen: dict[Any, Any] = {}
    skipped: dict[Any, set[str]] = {}
    rows = 0
    for line, record in run.lines(path):
        rows += 1
        _check_version(record.get("schema_version"), path)
        metadata = get_object(record, "metadata")
        epoch = metadata.get("epoch")
        if isinstance(epoch, int) and epoch > 1 and "inspect" in library.lower():
            # The converter writes the reduced score of all epochs into every record.
            what = "converted from Inspect, with one score for all epochs"
            raise refusal(what, path, "ingest the .eval log instead")
        name, result = record["evaluation_name"], record.get("evaluation_result_id")
        if run.options.choice("metric", str(name))[1] not in ("", result):
            skipped.setdefault(name, set()).add(str(result))
            continue
        if chosen.setdefault(name, result) != result:
            raise refusal(f"{name} has several results: {chosen[name]}, {result}", path, "choose one with --metric")
        value = to_verdict(get_object(record, "evaluation").get("is_correct"), f"line {line:,}: is_correct")
        answers = record.get("answer_attribution")
        yield AttemptRow(
            record["sample_id"],
            f"{record['evaluation_id']}:{line if epoch is None else f'epoch {epoch}'}",
            value,
            error=value is None or record.get("error") is not None,
            answer=answers[-1].get("extracted_value") if isinstance(answers, list) and answers else None,
            subject=metadata.get("subject"),
            benchmark=name,
            model=record.get("model_id"),
            content=record.get("sample_hash"),
            measures=pick(get_object(record, "token_usage"), TOKENS),
            protocol=get_object(results.get(name) or {}, "generation_config") or None,
        )
    for name in skipped.keys() - chosen.keys():
        run.choose("metric", str(name), skipped[name])  # raises, since the task has other metrics only
    for name in chosen:
        score = get_object(results.get(name) or {}, "score_details").get("score")
        run.add_claim(f"score of {name}", score, "problems" if library == "scorelake" else "mean", benchmark=name)
    total = get_object(aggregate, "detailed_evaluation_results").get("total_rows")
    if isinstance(total, int) and total != rows:
        run.notes.append(f"the aggregate reports {total:,} instances, the file has {rows:,}")


FORMAT = LogFormat("every-eval-ever", "passed", "ungraded", detect, read, group, companions)
