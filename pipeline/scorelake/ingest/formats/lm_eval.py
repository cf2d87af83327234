"""lm-evaluation-harness: samples_{task}_{time}.jsonl, with the results file of the same time beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, choose, refuse
from scorelake.ingest.documents import lines, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import brief, mapping, number

NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl(?:\.gz)?")
FIXED = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}
"""Keys of a record that are no metric."""
PROMPT = (
    *("doc_to_text", "doc_to_target", "doc_to_choice", "description", "process_docs", "target_delimiter"),
    *("fewshot_delimiter", "fewshot_config", "fewshot_split", "dataset_path", "dataset_name", "test_split"),
)
SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed", "gen_kwargs")


def detect(sight: Sight) -> bool:
    return sight.records and sight.has("doc_id", "resps", "filtered_resps")


def beside(path: Path) -> Iterable[Path]:
    name = NAME.fullmatch(path.name)
    return [path.with_name(f"results_{name['time']}.json")] if name else []


def read(source: Source, options: Options) -> Log:
    log = Log([], "score", "ungraded", once=True)
    name = NAME.fullmatch(source.file.name)
    task, log.run = (name["task"], name["time"]) if name else (options.benchmark or "", source.tag)
    results = mapping(small(source.beside[0]), "results") if source.beside else {}
    log.model = results.get("model_name") or (source.file.parent.name.replace("__", "/") if name else None)
    log.tool = f"lm_eval {results.get('lm_eval_version') or ''}".strip()
    groups = mapping(results.get("group_subtasks"), "group_subtasks")
    log.benchmark = options.benchmark or _group(task, groups) or None
    log.subject = task if log.benchmark not in (task, None) and task else None
    log.rows = _rows(source, options, log, task, results)
    return log


def _group(task: str, groups: Any) -> str:
    """The outermost group that the task belongs to, or the task itself."""
    seen = {task}
    while above := sorted(group for group, tasks in groups.items() if task in (tasks or ()) and group not in seen):
        task = above[0]
        seen.add(task)
    return task


def _rows(source: Source, options: Options, log: Log, task: str, results: Any) -> Iterator[Attempt]:
    path = source.file
    told = mapping(mapping(results.get("results"), "results").get(task), task)
    config = mapping(mapping(results.get("configs"), "configs").get(task), task)
    published = {key.partition(",")[2] for key in told if "," in key}
    metric = chosen = None
    here = 0
    for line, record in lines(path):
        if chosen is None:
            metric = choose(_metrics(record), options.metric, "metric", "--metric", path)
            chosen = _filter(record, options, published, path)
        if "filter" in record and record["filter"] != chosen:
            if options.filter is None:
                names = sorted(published | {chosen, record["filter"]})
                raise refuse(f"{len(names)} filters: {', '.join(names)}", path, "choose one with --filter")
            continue
        here += 1
        _one_response(record, config, chosen, line, path)
        if metric not in record:
            raise refuse(f"no metric {metric} in line {line:,}", path, f"there: {', '.join(_metrics(record))}")
        value = number(record[metric], f"line {line:,}: {metric}")
        answers = record["filtered_resps"]
        yield Attempt(
            record["doc_id"],
            log.run,
            value,
            error=value is None,
            answer=answers[0] if isinstance(answers, list) and answers else answers,
            asked=record.get("doc_hash"),
        )
    if chosen is None or metric is None:
        raise refuse(f"no row of the filter {options.filter}" if options.filter else "no row", path)
    _facts(log, metric, chosen, told, config, results)
    sizes = mapping(results.get("n-samples"), "n-samples")
    expected = mapping(sizes.get(task), "n-samples").get("effective")
    if expected is not None and here and expected != here:
        log.notes.append(f"the results file tells of {expected:,} documents, {here:,} are here")


def _metrics(record: dict[str, Any]) -> list[str]:
    named = record.get("metrics")
    return named if isinstance(named, list) else [key for key in record if key not in FIXED]


def _filter(record: dict[str, Any], options: Options, published: set[str], path: Path) -> str:
    """The filter whose verdicts count. Records of old versions do not say which filter they are of."""
    if "filter" in record:
        return options.filter if options.filter is not None else str(record["filter"])
    if len(published) > 1:
        what = (
            f"{len(published)} filters ({', '.join(sorted(published))}), and rows that do not say of which they are"
        )
        raise refuse(what, path, "run it again with lm-eval 0.4.7 or newer")
    if options.filter is not None and published and options.filter not in published:
        raise refuse(f"no filter {options.filter}", path, f"there is: {', '.join(published)}")
    return next(iter(published), "none")


def _one_response(record: dict[str, Any], config: Any, chosen: str, line: int, path: Path) -> None:
    """Several texts and one score are one attempt only where the filter took the first text."""
    resps = record["resps"]
    many = max((len(some) for some in resps if isinstance(some, list)), default=1) if isinstance(resps, list) else 1
    if many < 2:
        return
    filters = {each.get("name"): each.get("filter") for each in config.get("filter_list") or []}
    steps = [step.get("function") for step in filters.get(chosen) or []]
    if steps != ["take_first"] and not (chosen == "none" and not filters):
        raise refuse(
            f"{many} responses and one score in line {line:,}",
            path,
            "lm-eval keeps no score per repeat; run it K times",
        )


def _facts(log: Log, metric: str, chosen: str, told: Any, config: Any, results: Any) -> None:
    log.protocol = {"grader": f"{metric},{chosen}"}
    if not results:
        log.protocol["run"] = log.run
        log.notes.append("no results file of the same time: the protocol is unknown, so this run stays by itself")
        return
    kwargs = dict(mapping(config.get("generation_kwargs"), "generation_kwargs"))
    filters = [each for each in config.get("filter_list") or [] if each.get("name") == chosen]
    grading = brief([filters, config.get("metric_list"), config.get("process_results")])
    run = mapping(results.get("config"), "config")
    log.protocol |= {
        "grader": f"{metric},{chosen} {grading}" if filters or config.get("metric_list") else f"{metric},{chosen}",
        "prompt": brief([config.get(key) for key in PROMPT]),
        "num_fewshot": config.get("num_fewshot"),
        "version": mapping(config.get("metadata"), "metadata").get("version"),
        "output_type": config.get("output_type"),
        "temperature": kwargs.pop("temperature", None),
        "generation_kwargs": kwargs or None,
        "chat_template": "yes" if results.get("chat_template_sha") or results.get("chat_template") else None,
        "system_instruction": results.get("system_instruction_sha"),
        **{key: run.get(key) for key in SEEDS},
    }
    value = told.get(f"{metric},{chosen}")
    if isinstance(value, int | float):
        log.claims.append(Claim(f"{metric},{chosen}", float(value)))


FORMAT = Format("lm-eval", "lm-evaluation-harness sample files", detect, read, beside=beside)
