"""lm-evaluation-harness: samples_{task}_{time}.jsonl, next to the results file of the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import records_with
from scorelake.ingest.values import get_object, to_number, to_setting

NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl(?:\.gz)?")
NOT_METRICS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
PROMPT = (
    *("doc_to_text", "doc_to_target", "doc_to_choice", "description", "process_docs", "target_delimiter"),
    *("fewshot_delimiter", "fewshot_config", "fewshot_split", "dataset_path", "dataset_name", "test_split"),
)
SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "gen_kwargs")


def companions(path: Path) -> Iterable[Path]:
    name = NAME.fullmatch(path.name)
    return [path.with_name(f"results_{name['time']}.json")] if name else []


def read(run: LogRun) -> Iterator[AttemptRow]:
    run.unique_attempts = True
    name = NAME.fullmatch(run.file.name)
    task, run.run_id = (name["task"], name["time"]) if name else (run.options.benchmark or "", run.tag)
    run.identity = f"{task} {run.run_id}" if name else ""
    results = run.companion()
    run.model = results.get("model_name") or (run.file.parent.name.replace("__", "/") if name else None)
    run.tool = f"lm_eval {results.get('lm_eval_version') or ''}".strip()
    run.benchmark = run.options.benchmark or _outermost_group(task, get_object(results, "group_subtasks")) or None
    run.subject = task if task and run.benchmark not in (task, None) else None
    aggregates, config = get_object(results, "results", task), get_object(results, "configs", task)
    metric = chosen = ""
    rows = 0
    for line, record in run.lines():
        if not chosen:
            listed, names = _names(config.get("metric_list"), "metric"), _metrics(record)
            names = [*(name for name in listed if name in names), *names]
            filters = _list_filters(record, config, aggregates, run)
            metric = run.choose("metric", task, names, order="the metric_list of the task")
            chosen = run.choose("filter", task, filters, order="the filter_list of the task")
        if record.get("filter", chosen) != chosen:
            continue
        rows += 1
        _check_responses(record, config, chosen, line, run.file)
        if metric not in record:
            hint = f"available: {', '.join(_metrics(record))}"
            raise refusal(f"no metric {metric} in line {line:,}", run.file, hint)
        answers = record["filtered_resps"]
        yield AttemptRow(
            record["doc_id"],
            run.run_id,
            to_number(record[metric], f"line {line:,}: {metric}"),
            answer=answers[0] if isinstance(answers, list) and answers else answers,
            content=record.get("doc_hash"),
        )
    if not rows:
        raise refusal(f"no row of the filter {chosen}" if chosen else "no row", run.file)
    _add_protocol(run, f"{metric},{chosen}", chosen, config, results)
    if results:
        run.add_claim(f"{metric},{chosen}", aggregates.get(f"{metric},{chosen}"))
    expected = get_object(results, "n-samples", task).get("effective")
    if expected is not None and expected != rows:
        run.notes.append(f"the results file reports {expected:,} documents, {rows:,} are here")


def _outermost_group(task: str, groups: dict[str, Any]) -> str:
    """Return the outermost group that contains the task, or the task itself."""
    seen = {task}
    while above := sorted(group for group, tasks in groups.items() if task in (tasks or ()) and group not in seen):
        task = above[0]
        seen.add(task)
    return task


def _metrics(record: dict[str, Any]) -> list[str]:
    names = record.get("metrics")
    return names if isinstance(names, list) else [key for key in record if key not in NOT_METRICS]


def _list_filters(
    record: dict[str, Any], config: dict[str, Any], aggregates: dict[str, Any], run: LogRun
) -> list[str]:
    """List the filters in the order of the task. Rows of versions before 0.4.7 do not name their filter."""
    names = _names(config.get("filter_list"), "name")
    names += [key.partition(",")[2] for key in aggregates if "," in key]
    if "filter" in record:
        # Rows are written filter by filter, in the order of the task.
        return [*(names or [str(other.get("filter")) for _, other in run.lines()]), str(record["filter"])]
    filters = sorted(set(names))
    if len(filters) > 1:
        what = f"{len(filters)} filters ({', '.join(filters)}), and rows that do not name their filter"
        raise refusal(what, run.file, "run it again with lm-eval 0.4.7 or newer")
    return filters or ["none"]


def _names(entries: Any, key: str) -> list[str]:
    return [str(entry[key]) for entry in entries or [] if isinstance(entry, dict) and key in entry]


def _check_responses(record: dict[str, Any], config: dict[str, Any], chosen: str, line: int, path: Path) -> None:
    """Refuse several responses with one score, unless the filter took the first response."""
    responses = record["resps"] if isinstance(record["resps"], list) else []
    repeats = max((len(each) for each in responses if isinstance(each, list)), default=1)
    if repeats < 2:
        return
    filters = {each.get("name"): each.get("filter") for each in config.get("filter_list") or []}
    steps = [step.get("function") for step in filters.get(chosen) or []]
    if steps != ["take_first"] and not (chosen == "none" and not filters):
        hint = "lm-eval keeps no score per repeat; run it K times"
        raise refusal(f"{repeats} responses and one score in line {line:,}", path, hint)


def _add_protocol(run: LogRun, grader: str, chosen: str, config: dict[str, Any], results: dict[str, Any]) -> None:
    if not results:
        run.protocol = {"grader": grader, "run": run.run_id}
        run.notes.append("no results file of the same time: the protocol is unknown, so this run is not pooled")
        return
    kwargs = get_object(config, "generation_kwargs")
    filters = [each for each in config.get("filter_list") or [] if each.get("name") == chosen]
    if filters or config.get("metric_list"):
        # Filters of the same name may have different expressions: 0.0 and 0.8 on the same documents.
        grader += f" {to_setting([filters, config.get('metric_list'), config.get('process_results')])}"
    settings = get_object(results, "config")
    run.protocol = {
        "grader": grader,
        "prompt": to_setting([config.get(key) for key in PROMPT]),
        "num_fewshot": config.get("num_fewshot"),
        "version": get_object(config, "metadata").get("version"),
        "output_type": config.get("output_type"),
        "temperature": kwargs.pop("temperature", None),
        "generation_kwargs": kwargs or None,
        "chat_template": "yes" if results.get("chat_template_sha") or results.get("chat_template") else None,
        "system_instruction": results.get("system_instruction_sha"),
        **{key: settings.get(key) for key in SEEDS},
    }


FORMAT = LogFormat(
    "lm-eval", "score", "ungraded", records_with("doc_id", "resps", "filtered_resps"), read, companions=companions
)
