"""EvalPlus: eval_results.json of HumanEval+ and MBPP+; every sample is an attempt at two benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source
from scorelake.ingest.documents import members
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, shown

NAME = re.compile(r"(?P<model>.+)_[a-z]+_temp_(?P<temperature>\d+(?:\.\d+)?)(?:[-_].*?)?[._]eval_results\.json")
STATUS = {"pass": 1.0, "success": 1.0, "fail": 0.0, "failed": 0.0, "timeout": 0.0, "timed out": 0.0, None: None}


def detect(sight: Sight) -> bool:
    tasks = sight.first.get("eval")
    if sight.shape != "object" or not isinstance(tasks, dict) or not tasks:
        return False
    first = next(iter(tasks.values()))
    if isinstance(first, list) and first:
        first = first[0]
        return isinstance(first, dict) and "base_status" in first
    return isinstance(first, dict) and {"nfiles", "base"} <= first.keys()


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "ungraded", run=source.tag, tool="evalplus", names_benchmarks=True)
    name = NAME.fullmatch(source.file.name)
    if name:
        log.model = name["model"].replace("--", "/")
        log.protocol["temperature"] = float(name["temperature"])
    elif source.file.name == "eval_results.json":
        log.model = source.file.resolve().parent.name
    log.rows = _rows(source, options, log)
    return log


def _rows(source: Source, options: Options, log: Log) -> Iterator[Attempt]:
    published: dict[str, Any] = {}
    benchmark = ""
    for key, task, value in members(source.file, ("eval",)):
        if key == "hash":
            log.protocol["dataset"] = value
        elif key == "pass_at_k":
            published = dict(mapping(value, "pass_at_k"))
        elif key == "eval":
            prefix, _, rest = str(task).partition("/")
            if not rest:
                raise ValueError(f"task {shown(task)} has no benchmark in its name")
            benchmark = options.benchmark or prefix.lower()
            for i, (base, plus) in enumerate(_statuses(value)):
                attempt = f"{source.tag}:{i}"
                both = None if base is None or plus is None else min(base, plus)
                yield Attempt(task, attempt, base, error=base is None, benchmark=benchmark)
                yield Attempt(task, attempt, both, error=both is None, benchmark=f"{benchmark}+")
    for kind, name in (("base", benchmark), ("plus", f"{benchmark}+")):
        for metric, told in mapping(published.get(kind), kind).items():
            if isinstance(told, int | float) and re.fullmatch(r"pass@\d+", metric):
                log.claims.append(Claim(f"{name} {metric}", float(told), metric, name))


def _statuses(value: Any) -> Iterator[tuple[float | None, float | None]]:
    """Base and plus verdict of every sample, in the layout of today or in that of before 2024."""
    if isinstance(value, dict):
        base, plus = value["base"], value.get("plus") or [[None]] * len(value["base"])
        if not len(base) == len(plus) == value["nfiles"]:
            raise ValueError(
                f"nfiles is {shown(value['nfiles'])}, and there are {len(base)} base and {len(plus)} plus"
            )
        yield from ((STATUS[one[0]], STATUS[two[0]]) for one, two in zip(base, plus, strict=True))
    else:
        yield from ((STATUS[each["base_status"]], STATUS[each.get("plus_status")]) for each in value)


FORMAT = Format("evalplus", "EvalPlus eval_results.json", detect, read)
