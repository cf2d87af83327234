"""SWE-bench in five dialects: run reports, sb-cli reports, the experiments repository, reports per instance, Pro."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import members, small
from scorelake.ingest.sight import Sight, look
from scorelake.ingest.values import shown, verdict

SUBMITTED = ("submitted_ids", "resolved_ids", "unresolved_ids", "empty_patch_ids", "error_ids", "failed_ids")
ERRORS = ("error_ids", "infra_failure_ids")
MADE_UP = ("install_fail", "reset_failed", "test_errored")
REPOSITORY = re.compile(r"(?:instance_)?(?P<owner>[^/]+?)__(?P<name>.+?)-(?:\d+|[0-9a-f]{40}.*)")


def detect(sight: Sight) -> bool:
    return sight.shape == "object" and _dialect(sight.first) is not None


def _dialect(told: dict[str, Any]) -> str | None:
    """Told apart by their keys."""
    if "resolved_ids" in told or ("submitted_ids" in told and isinstance(told.get("resolved"), list)):
        return None if "results" in told else "report"
    if isinstance(told.get("resolved"), list):
        return "experiments"
    first = next(iter(told.values()), None)
    if isinstance(first, dict) and "resolved" in first and {"patch_exists", "tests_status"} & first.keys():
        return "instance"
    flags = any(isinstance(value, bool) for value in told.values()) or all(value is None for value in told.values())
    return "pro" if told and flags and all("__" in key for key in told) else None


def unit(path: Path) -> Path:
    """Reports per instance lie in a folder each; the folder of the model holds them all."""
    return path.parent.parent if path.name == "report.json" else path


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "fail", tool="swebench")
    dialect = _dialect(look(source.file).first)
    if dialect == "instance":
        folder = source.file.resolve().parent.parent
        log.model, log.run = folder.name.replace("__", "/"), folder.parent.name
        log.rows = _instances(source, log)
    elif dialect == "pro":
        folder = source.file.resolve().parent  # the file has nothing but verdicts: two runs may have the same
        log.model, log.run = folder.name, f"{folder.parent.name}:{source.tag}"
        log.rows = (_attempt(key, log.run, verdict(value, key)) for key, _, value in members(source.file))
    else:
        log.rows = _report(source, options, log)
    return log


def _attempt(instance: str, run: str, value: float | None, error: bool = False) -> Attempt:
    found = REPOSITORY.fullmatch(instance) if isinstance(instance, str) else None
    return Attempt(
        instance, run, value, error=error or value is None, subject=found and f"{found['owner']}/{found['name']}"
    )


def _instances(source: Source, log: Log) -> Iterator[Attempt]:
    for path in source.files:
        for instance, _, told in members(path):
            if not isinstance(told, dict) or "resolved" not in told:
                raise refuse(f"{shown(instance)} has no resolved", path)
            yield _attempt(instance, log.run, verdict(told["resolved"], f"{instance}: resolved"))


def _report(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    told = small(source.file)
    lists = {key: _ids(value, key) for key, value in told.items() if isinstance(value, list)}
    dialect = _dialect(told)
    log.model, log.run = _named(source.file, options, dialect)
    if dialect == "report":
        resolved, failed = lists.get("resolved_ids", lists.get("resolved", {})), lists.get("unresolved_ids", {})
        every = dict.fromkeys(instance for key in SUBMITTED for instance in lists.get(key, ()))
        every |= resolved
        errors = {instance for key in ERRORS for instance in lists.get(key, ())}
        missing = lists.get("incomplete_ids", {})
    else:
        resolved, failed, missing = lists["resolved"], lists.get("unresolved", {}), lists.get("incomplete", {})
        every = _submitted(lists, resolved, source.file)
        errors = {instance for key in (*MADE_UP, "error") for instance in lists.get(key, ())}
    both = sorted(resolved.keys() & failed.keys())
    if both:
        raise refuse(f"{len(both):,} instances are resolved and unresolved, such as {both[0]}", source.file)
    for instance in every:
        pending = instance in lists.get("pending_ids", ()) and instance not in resolved
        value = None if pending else float(instance in resolved)
        yield _attempt(instance, log.run, value).but(error=instance in errors and instance not in resolved)
    if options.missing == "fail":
        yield from (_attempt(instance, log.run, 0.0) for instance in missing if instance not in every)
    elif missing:
        log.notes.append(
            f"{len(missing):,} instances were never attempted and are no rows; --missing fail counts them"
        )
    _claim(told, log, len(every))


def _ids(value: list[Any], key: str) -> dict[str, None]:
    """Instance ids in their order."""
    wrong = [each for each in value if not isinstance(each, str)]
    if wrong and key.endswith(("_ids", "resolved", "generated")):
        raise ValueError(f"{key} holds {shown(wrong[0])}, which is no instance id")
    return dict.fromkeys(each for each in value if isinstance(each, str))


def _submitted(lists: dict[str, dict[str, None]], resolved: dict[str, None], path: Path) -> dict[str, None]:
    """The experiments repository lists no failures: they are what was generated or not, and is not resolved."""
    if "generated" not in lists and "unresolved" not in lists:
        raise refuse("no list of what was submitted (generated, no_generation)", path, "the failures cannot be known")
    keys = ("generated", "no_generation", "unresolved", "no_apply", *MADE_UP)
    return dict.fromkeys([*resolved, *(instance for key in keys for instance in lists.get(key, ()))])


def _named(path: Path, options: Options, dialect: str | None) -> tuple[str | None, str]:
    """Model and run from {model}.{run}.json. With several dots nobody can tell where the model ends."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    if dialect != "report" or options.model is not None:
        return None, stem.removeprefix(f"{options.model}.") if dialect == "report" else path.resolve().parent.name
    model, _, run = stem.partition(".")
    if not run or "." in run:
        raise refuse("the file's name does not say where the model ends", path, "give --model")
    return model, run


def _claim(told: dict[str, Any], log: Log, submitted: int) -> None:
    resolved = told.get("resolved_instances")
    if isinstance(resolved, int) and submitted:
        log.claims.append(Claim("resolved_instances of submitted", resolved / submitted))


FORMAT = Format("swebench", "SWE-bench reports in five dialects", detect, read, unit=unit)
