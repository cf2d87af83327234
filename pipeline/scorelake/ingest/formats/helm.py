"""HELM: per_instance_stats.json of a run folder, with run_spec.json and stats.json beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, choose, refuse
from scorelake.ingest.documents import members, small
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, number

SETUP = ("method", "max_train_instances", "num_outputs", "max_tokens", "stop_sequences", "num_train_trials")
PROMPT = (
    *("global_prefix", "global_suffix", "instructions", "input_prefix", "input_suffix", "reference_prefix"),
    *("reference_suffix", "output_prefix", "output_suffix", "instance_prefix", "substitutions"),
)


def detect(sight: Sight) -> bool:
    return sight.shape == "list" and sight.has("instance_id", "train_trial_index", "stats")


def beside(path: Path) -> Iterable[Path]:
    return [path.with_name("run_spec.json"), path.with_name("stats.json")]


def read(source: Source, options: Options) -> Log:
    log = Log([], "score", "ungraded", tool="helm")
    specs = source.companion("run_spec.json")
    spec = mapping(small(specs), "run_spec") if specs else {}
    log.run = str(spec.get("name") or source.file.resolve().parent.name)
    adapter = mapping(spec.get("adapter_spec"), "adapter_spec")
    log.model = adapter.get("model")
    groups = spec.get("groups") or [log.run.partition(":")[0]]
    log.benchmark = str(groups[0])
    args = mapping(mapping(spec.get("scenario_spec"), "scenario_spec").get("args"), "args")
    log.subject = args.get("subject") or args.get("dataset")
    log.protocol = {
        **{key: adapter.get(key) for key in SETUP},
        "temperature": adapter.get("temperature"),
        "prompt": [adapter.get(key) for key in PROMPT],
        "grader": options.metric,
    }
    log.rows = _rows(source, options, log)
    return log


def _rows(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    metric, split = None, options.split
    for _, i, record in members(source.file):
        stats = [stat for stat in record["stats"] if isinstance(stat, dict)]
        names = [mapping(stat.get("name"), "name") for stat in stats]
        if metric is None:
            known = {str(name["name"]) for name in names if "@" not in str(name.get("name"))}
            metric = choose(known, options.metric, "metric", "--metric", source.path)
        splits = {str(name.get("split")) for name in names}
        if options.split is None:
            split = split or next(iter(splits), None)
            if splits - {split}:
                many = sorted(splits | {str(split)})
                raise refuse(f"{len(many)} splits: {', '.join(many)}", source.path, "choose one with --split")
        elif options.split not in splits:
            continue
        found = [
            (name, stat)
            for name, stat in zip(names, stats, strict=True)
            if (name.get("name"), name.get("split")) == (metric, split)
        ]
        if len(found) > 1:
            raise refuse(f"record {i} has {metric} of {split} twice", source.path)
        value = number(found[0][1].get("mean"), f"record {i}: {metric}") if found else None
        changed = mapping(
            record.get("perturbation") or (found[0][0].get("perturbation") if found else None), "perturbation"
        )
        yield Attempt(
            record["instance_id"],
            f"{log.run}:{record['train_trial_index']}",
            value,
            error=value is None,
            protocol={"perturbation": changed.get("name")} if changed else None,
        )
    log.protocol |= {"grader": metric, "split": split}
    _claims(source, log, metric, split)


def _claims(source: Source, log: Log, metric: str | None, split: str | None) -> None:
    stats: Any = source.companion("stats.json")
    for stat in small(stats) if stats else []:
        name = mapping(stat.get("name"), "name")
        if (name.get("name"), name.get("split")) == (metric, split) and not name.get("perturbation"):
            mean = number(stat.get("mean"), "mean")
            if mean is not None:
                log.claims.append(Claim(f"{metric} of {split}", mean))


FORMAT = Format("helm", "HELM per_instance_stats.json", detect, read, beside=beside)
