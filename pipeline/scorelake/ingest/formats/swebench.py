"""SWE-bench in five dialects: run reports, sb-cli reports, the experiments repository, reports per instance, Pro."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, load, members, probe
from scorelake.ingest.values import quote, to_verdict

REPORT_LISTS = ("submitted_ids", "resolved_ids", "unresolved_ids", "empty_patch_ids", "error_ids", "failed_ids")
REPORT_ERRORS = ("error_ids", "infra_failure_ids")
FAILED_STEPS = ("install_fail", "reset_failed", "test_errored")
EXPERIMENT_LISTS = ("resolved", "generated", "no_generation", "unresolved", "no_apply", *FAILED_STEPS)
REPOSITORY = re.compile(r"(?:instance_)?(?P<owner>[^/]+?)__(?P<name>.+?)-(?:\d+|[0-9a-f]{40}.*)")


def detect(probe: FileProbe) -> bool:
    return probe.shape == "object" and _dialect(probe.first) is not None


def _dialect(document: dict[str, Any]) -> str | None:
    """Recognise the dialect by its keys."""
    has_list = isinstance(document.get("resolved"), list)
    if "resolved_ids" in document or ("submitted_ids" in document and has_list):
        return None if "results" in document else "report"
    if has_list:
        return "experiments"
    values = list(document.values())
    first = values[0] if values else None
    if isinstance(first, dict) and "resolved" in first and {"patch_exists", "tests_status"} & first.keys():
        return "instance"
    has_flags = any(isinstance(value, bool) for value in values) or all(value is None for value in values)
    return "pro" if values and has_flags and all("__" in key for key in document) else None


def group(path: Path) -> Path:
    """Return the model's folder for a report per instance, which has a folder of its own."""
    return path.parent.parent if path.name == "report.json" else path


def read(run: LogRun) -> Iterator[AttemptRow]:
    run.tool = "swebench"
    dialect = _dialect(probe(run.file).first)
    if dialect == "instance":
        run.model, run.run_id = run.folder.parent.name.replace("__", "/"), run.folder.parent.parent.name
        for path in run.files:
            for instance, _, result in members(path):
                if not isinstance(result, dict) or "resolved" not in result:
                    raise refusal(f"{quote(instance)} has no resolved", path)
                yield _to_row(instance, run.run_id, to_verdict(result["resolved"], f"{instance}: resolved"))
    elif dialect == "pro":
        # The file has nothing but verdicts, and two runs may have the same: the folder is part of the run id.
        run.model, run.run_id = run.folder.name, f"{run.folder.parent.name}:{run.tag}"
        for instance, _, value in run.members():
            yield _to_row(instance, run.run_id, to_verdict(value, instance))
    else:
        yield from _read_lists(run)


def _to_row(instance: str, run_id: str, value: float | None, error: bool | None = None) -> AttemptRow:
    match = REPOSITORY.fullmatch(instance)
    return AttemptRow(instance, run_id, value, error, subject=match and f"{match['owner']}/{match['name']}")


def _read_lists(run: LogRun) -> Iterator[AttemptRow]:
    """Read a report that lists the instances of every result."""
    document = load(run.file)
    lists = {key: _to_ids(value, key) for key, value in document.items() if isinstance(value, list)}
    is_report = _dialect(document) == "report"
    suffix = "_ids" if is_report else ""
    run.model, run.run_id = _parse_name(run, is_report)
    if not is_report and "generated" not in lists and "unresolved" not in lists:
        # The experiments repository lists no failures: they are what was submitted and is not resolved.
        what = "no list of submitted instances (generated, no_generation)"
        raise refusal(what, run.file, "the failures are unknown without one")
    resolved = lists.get(f"resolved{suffix}", lists.get("resolved", {}))
    both = sorted(resolved.keys() & lists.get(f"unresolved{suffix}", {}).keys())
    if both:
        raise refusal(f"{len(both):,} instances are resolved and unresolved, such as {both[0]}", run.file)
    keys = REPORT_LISTS if is_report else EXPERIMENT_LISTS
    submitted = dict.fromkeys(instance for key in keys for instance in lists.get(key, ())) | resolved
    error_keys = REPORT_ERRORS if is_report else (*FAILED_STEPS, "error")
    errors = {instance for key in error_keys for instance in lists.get(key, ())} - resolved.keys()
    pending = lists.get("pending_ids", {}).keys() - resolved.keys()
    for instance in submitted:
        value = None if instance in pending else float(instance in resolved)
        yield _to_row(instance, run.run_id, value, error=instance in errors)
    missing = lists.get(f"incomplete{suffix}", {})
    if run.options.missing == "fail":
        yield from (_to_row(instance, run.run_id, 0.0) for instance in missing if instance not in submitted)
    elif missing:
        run.notes.append(f"{len(missing):,} instances were never attempted; --missing fail counts them as failed")
    if isinstance(document.get("resolved_instances"), int) and submitted:
        run.add_claim("resolved_instances of submitted", document["resolved_instances"] / len(submitted))


def _to_ids(value: list[Any], key: str) -> dict[str, None]:
    """Return unique instance ids in their order."""
    wrong = [each for each in value if not isinstance(each, str)]
    if wrong and key.endswith(("_ids", "resolved", "generated")):
        raise ValueError(f"{key} holds {quote(wrong[0])}, which is not an instance id")
    return dict.fromkeys(each for each in value if isinstance(each, str))


def _parse_name(run: LogRun, is_report: bool) -> tuple[str | None, str]:
    """Parse model and run from {model}.{run}.json. With several dots the end of the model is ambiguous."""
    if not is_report:
        return None, f"{run.folder.name}:{run.tag}"  # the folder is called results in every run
    stem = run.file.name.removesuffix(".gz").removesuffix(".json")
    if run.options.model is not None:
        return None, stem.removeprefix(f"{run.options.model}.")
    model, _, run_id = stem.partition(".")
    if not run_id or "." in run_id:
        raise refusal("the file name does not show where the model ends", run.file, "give --model")
    return model.replace("__", "/"), run_id


FORMAT = LogFormat("swebench", "passed", "fail", detect, read, group=group)
