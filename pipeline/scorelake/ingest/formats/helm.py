"""HELM: per_instance_stats.json of a run folder, next to run_spec.json and stats.json."""

from __future__ import annotations

from collections.abc import Iterator

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal, siblings
from scorelake.ingest.json_stream import FileProbe, load
from scorelake.ingest.values import get_object, to_number

SETTINGS = ("method", "max_train_instances", "num_outputs", "max_tokens", "stop_sequences", "num_train_trials")
MEASURED = {
    "input_tokens": "num_prompt_tokens",
    "output_tokens": "num_output_tokens",
    "seconds": "inference_runtime",
}
PROMPT = (
    *("global_prefix", "global_suffix", "instructions", "input_prefix", "input_suffix", "reference_prefix"),
    *("reference_suffix", "output_prefix", "output_suffix", "instance_prefix", "substitutions"),
)


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    spec = source.companion("run_spec.json")
    adapter = get_object(spec, "adapter_spec")
    run.tool, run.model = "helm", adapter.get("model")
    run.run_id = str(spec.get("name") or source.folder.name)
    run.benchmark = str((spec.get("groups") or [run.run_id.partition(":")[0]])[0])
    args = get_object(spec, "scenario_spec", "args")
    run.subject = args.get("subject") or args.get("dataset")
    run.protocol = {key: adapter.get(key) for key in (*SETTINGS, "temperature")}
    run.protocol["prompt"] = [adapter.get(key) for key in PROMPT]
    metric, split = None, options.split
    for _, i, record in source.members():
        stats = [(get_object(stat, "name"), stat) for stat in record["stats"] if isinstance(stat, dict)]
        if metric is None:
            # exact_match@5 and the like are computed from several outputs and are not attempts.
            names = {str(name["name"]) for name, _ in stats if "@" not in str(name.get("name"))}
            metric = run.choose("metric", run.benchmark, names)
        splits = {str(name.get("split")) for name, _ in stats}
        if options.split is None:
            split = split or next(iter(splits), None)
            if splits - {split}:
                several = sorted(splits | {str(split)})
                what = f"{len(several)} splits: {', '.join(several)}"
                raise refusal(what, source.path, "choose one with --split")
        elif options.split not in splits:
            continue
        selected = [item for item in stats if (item[0].get("name"), item[0].get("split")) == (metric, split)]
        if len(selected) > 1:
            raise refusal(f"record {i} has {metric} of {split} twice", source.path)
        name, stat = selected[0] if selected else ({}, {})
        perturbation = get_object(record, "perturbation") or get_object(name, "perturbation")
        yield AttemptRow(
            record["instance_id"],
            f"{run.run_id}:{record['train_trial_index']}",
            to_number(stat.get("mean"), f"record {i}: {metric}"),
            measures={
                ours: next((stat.get("mean") for name, stat in stats if name.get("name") == theirs), None)
                for ours, theirs in MEASURED.items()
            },
            protocol={"perturbation": perturbation.get("name")} if perturbation else None,
        )
    run.protocol |= {"grader": metric, "split": split}
    for path in source.companions:
        for stat in load(path) if path.name == "stats.json" else []:
            name = get_object(stat, "name")
            if (name.get("name"), name.get("split")) == (metric, split) and not name.get("perturbation"):
                run.add_claim(f"{metric} of {split}", to_number(stat.get("mean"), "mean"))


def detect(probe: FileProbe) -> bool:
    """Accept lists of statistics; those of display_predictions.json are an object for every instance."""
    has_keys = probe.shape == "list" and probe.has("instance_id", "train_trial_index")
    return has_keys and isinstance(probe.first.get("stats"), list)


COMPANIONS = siblings("run_spec.json", "stats.json")
FORMAT = LogFormat("helm", "score", "ungraded", detect, read, companions=COMPANIONS)
