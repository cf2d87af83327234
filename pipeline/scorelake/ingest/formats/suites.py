"""Suites of benchmarks: EvalScope reviews, OpenCompass results with details, lighteval details, HELM run folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.archives import read_parquet
from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal, siblings
from scorelake.ingest.json_stream import FileProbe, load, load_object, probe, records_with
from scorelake.ingest.values import get_object, pick, to_number, to_verdict

CORRECT = ("cascade_correct", "correct", "is_correct")
"""Verdicts of OpenCompass, the last of several graders first."""
DETAILS = re.compile(r"details_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.parquet")


def in_tree(path: Path, tree: str, other: str) -> Path | None:
    """Return the folder of a path below another tree: reviews/m -> reports/m."""
    parts = path.parent.parts if tree in path.parent.parts else path.absolute().parent.parts
    at = max((i for i, part in enumerate(parts) if part == tree), default=None)
    return None if at is None else Path(*parts[:at], other, *parts[at + 1 :])


def list_reports(path: Path) -> Iterable[Path]:
    """List the reports that {dataset}_{subset}.jsonl may belong to; both names may have underscores."""
    folder, words = in_tree(path, "reviews", "reports"), path.stem.split("_")
    return [folder / f"{'_'.join(words[:i])}.json" for i in range(len(words), 0, -1)] if folder else []


def read_evalscope(run: LogRun) -> Iterator[AttemptRow]:
    run.tool, run.run_id, run.model = "evalscope", run.tag, run.folder.name
    run.benchmark = run.file.stem.removesuffix("_default")
    scores: dict[str, float] = {}
    for path in run.companions:
        report = load_object(path)
        subsets = {
            (str(metric["name"]), str(subset["name"])): subset["score"]
            for metric in report.get("metrics") or []
            for category in metric.get("categories") or []
            for subset in category.get("subsets") or []
        }
        subset = run.file.stem.removeprefix(f"{path.stem}_")
        if any(name == subset for _, name in subsets):
            run.model, run.benchmark, run.subject = report.get("model_name"), report["dataset_name"], subset
            scores = {metric: score for (metric, name), score in subsets.items() if name == subset}
    metric = ""
    for line, record in run.lines():
        review, score = get_object(record, "sample_score"), get_object(record, "sample_score", "score")
        values = get_object(score, "value")
        names = [*([score["main_score_name"]] if score.get("main_score_name") in values else []), *values]
        if names:
            metric = run.choose("metric", str(run.benchmark), names, order="the scores of a review")
        ids = [review.get("group_id"), review.get("sample_id"), record["index"]]
        problem, value = (
            next(each for each in ids if each is not None),
            to_number(values.get(metric), f"line {line:,}"),
        )
        yield AttemptRow(problem, f"{run.tag}:{line}", value, answer=score.get("extracted_prediction"))
    run.protocol["grader"] = metric or None
    for name in (metric, f"mean_{metric}"):
        run.add_claim(f"{name} of the report", scores.get(name), tolerance=1e-4)


def _first_detail(probe: FileProbe) -> dict[str, Any]:
    details = probe.first.get("details") if probe.shape == "object" else None
    each = details.values() if isinstance(details, dict) else details if isinstance(details, list) else ()
    return next((detail for detail in each if isinstance(detail, dict)), {})


def explain_opencompass(probe: FileProbe) -> str | None:
    is_ungraded = not {"prompt", "origin_prompt"}.isdisjoint(_first_detail(probe))
    return "details without verdicts: the evaluator of this dataset gives totals only" if is_ungraded else None


def read_opencompass(run: LogRun) -> Iterator[AttemptRow]:
    run.tool, run.model, run.benchmark = "opencompass", run.folder.name, run.file.name.split(".json")[0]
    run.run_id = f"{run.folder.parent.parent.name}:{run.tag}"
    for i, detail in run.records("details"):
        if not isinstance(detail, dict):  # {"type": "GEN"} beside the details
            continue
        key = next((key for key in CORRECT if detail.get(key) is not None), CORRECT[1])
        both = detail.get(key), detail.get("pred")
        verdicts, answers = (each if isinstance(each, list) else [each] for each in both)
        for j, verdict in enumerate(verdicts):
            value = to_verdict(verdict, f"detail {i}: {key}")
            answer = answers[j] if len(answers) == len(verdicts) else None
            yield AttemptRow(detail.get("example_abbr", i), f"{run.run_id}:{j}", value, answer=answer)
    names = [name for name in run.document if re.fullmatch(r"(accuracy|score)( \(\d+ runs average\))?", name)]
    if names and isinstance(run.document[names[0]], int | float):
        run.add_claim(names[0], run.document[names[0]] / 100)


def list_results(path: Path) -> Iterable[Path]:
    folder, name = in_tree(path, "details", "results"), DETAILS.fullmatch(path.name)
    return [folder.parent / f"results_{name['time']}.json"] if folder and name else []


def detect_lighteval(probe: FileProbe) -> bool:
    has_columns = probe.has("doc", "metric", "model_response") or probe.has("metrics", "predictions", "gold")
    return probe.shape == "parquet" and has_columns


def read_lighteval(run: LogRun) -> Iterator[AttemptRow]:
    name = DETAILS.fullmatch(run.file.name)
    results = run.companion()
    config = get_object(results, "config_general")
    model = get_object(config, "model_config")
    run.model = config.get("model_name") or model.get("model_name") or (run.folder.parent.name if name else None)
    run.tool, run.run_id = "lighteval", name["time"] if name else run.tag
    task = name["task"] if name else ""
    # suite|task:subset|few-shot, where the suite is gone since 0.12
    words = task.split("|")
    shots = words.pop() if len(words) > 1 else ""
    benchmark, _, subset = words[-1].partition(":")
    run.benchmark, run.subject = benchmark or None, subset or None
    key = "metric" if probe(run.file).has("metric") else "metrics"
    metric = ""
    for i, row in enumerate(read_parquet(run.file, (key, "doc"))):
        values, doc = get_object(row, key), get_object(row, "doc")
        metric = run.choose("metric", benchmark, values)
        yield AttemptRow(doc.get("id") or i, run.run_id, to_number(values[metric], f"row {i:,}: {metric}"))
    generation = get_object(model, "generation_parameters") or get_object(config, "generation_parameters")
    run.protocol = {
        "grader": metric or None,
        "num_fewshot": int(shots) if shots.isdecimal() else None,
        "temperature": generation.pop("temperature", None),
        "generation": {name: value for name, value in generation.items() if value is not None} or None,
    }
    run.provenance = {"lighteval_sha": config.get("lighteval_sha"), "model_sha": config.get("model_sha")}
    run.add_claim(f"{metric} of the results", get_object(results, "results", task).get(metric))


def detect_opencompass(probe: FileProbe) -> bool:
    return not {*CORRECT}.isdisjoint(_first_detail(probe))


IS_EVALSCOPE = records_with("index", "sample_score")
EVALSCOPE = LogFormat("evalscope", "score", "ungraded", IS_EVALSCOPE, read_evalscope, companions=list_reports)
OPENCOMPASS = LogFormat(
    "opencompass", "passed", "ungraded", detect_opencompass, read_opencompass, explain=explain_opencompass
)
LIGHTEVAL = LogFormat("lighteval", "score", "ungraded", detect_lighteval, read_lighteval, companions=list_results)


HELM_SETTINGS = ("method", "max_train_instances", "num_outputs", "max_tokens", "stop_sequences", "num_train_trials")
HELM_MEASURED = {"input_tokens": "num_prompt_tokens", "output_tokens": "num_output_tokens"}
HELM_MEASURED |= {"seconds": "inference_runtime"}
HELM_PROMPT = (
    *("global_prefix", "global_suffix", "instructions", "input_prefix", "input_suffix", "reference_prefix"),
    *("reference_suffix", "output_prefix", "output_suffix", "instance_prefix", "substitutions"),
)


def read_helm(run: LogRun) -> Iterator[AttemptRow]:
    spec = run.companion("run_spec.json")
    adapter = get_object(spec, "adapter_spec")
    run.tool, run.model = "helm", adapter.get("model")
    run.run_id = str(spec.get("name") or run.folder.name)
    run.benchmark = str((spec.get("groups") or [run.run_id.partition(":")[0]])[0])
    args = get_object(spec, "scenario_spec", "args")
    run.subject = args.get("subject") or args.get("dataset")
    run.protocol = {key: adapter.get(key) for key in (*HELM_SETTINGS, "temperature")}
    run.protocol["prompt"] = [adapter.get(key) for key in HELM_PROMPT]
    metric, split = None, run.options.split
    for _, i, record in run.members():
        stats = [(get_object(stat, "name"), stat) for stat in record["stats"] if isinstance(stat, dict)]
        if metric is None:
            # exact_match@5 and the like are computed from several outputs and are not attempts.
            names = dict.fromkeys(str(name["name"]) for name, _ in stats if "@" not in str(name.get("name")))
            metric = run.choose("metric", run.benchmark, names)
        splits = {str(name.get("split")) for name, _ in stats}
        if run.options.split is None:
            split = split or next(iter(splits), None)
            if splits - {split}:
                several = sorted(splits | {str(split)})
                what = f"{len(several)} splits: {', '.join(several)}"
                raise refusal(what, run.path, "choose one with --split")
        elif run.options.split not in splits:
            continue
        selected = [item for item in stats if (item[0].get("name"), item[0].get("split")) == (metric, split)]
        if len(selected) > 1:
            raise refusal(f"record {i} has {metric} of {split} twice", run.path)
        name, stat = selected[0] if selected else ({}, {})
        perturbation = get_object(record, "perturbation") or get_object(name, "perturbation")
        yield AttemptRow(
            record["instance_id"],
            f"{run.run_id}:{record['train_trial_index']}",
            to_number(stat.get("mean"), f"record {i}: {metric}"),
            measures=pick({str(name.get("name")): stat.get("mean") for name, stat in stats}, HELM_MEASURED),
            protocol={"perturbation": perturbation.get("name")} if perturbation else None,
        )
    run.protocol |= {"grader": metric, "split": split}
    for path in run.companions:
        for stat in load(path) if path.name == "stats.json" else []:
            name = get_object(stat, "name")
            if (name.get("name"), name.get("split")) == (metric, split) and not name.get("perturbation"):
                run.add_claim(f"{metric} of {split}", to_number(stat.get("mean"), "mean"))


def detect_helm(probe: FileProbe) -> bool:
    """Accept lists of statistics; those of display_predictions.json are an object for every instance."""
    has_keys = probe.shape == "list" and probe.has("instance_id", "train_trial_index")
    return has_keys and isinstance(probe.first.get("stats"), list)


HELM_COMPANIONS = siblings("run_spec.json", "stats.json")
HELM = LogFormat("helm", "score", "ungraded", detect_helm, read_helm, companions=HELM_COMPANIONS)
