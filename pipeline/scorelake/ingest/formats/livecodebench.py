"""LiveCodeBench: Scenario.{scenario}_{n}_{temperature}_eval_all.json in the folder of its model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import fsum

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import members
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import verdict

NAME = re.compile(r"Scenario\.(?P<scenario>.+?)_(?P<n>\d+)_(?P<temperature>\d+(?:\.\d+)?)_eval_all\.json(?:\.gz)?")


def detect(sight: Sight) -> bool:
    return sight.shape == "list" and sight.has("question_id", "graded_list")


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "ungraded", run=source.tag, tool="livecodebench")
    name = NAME.fullmatch(source.file.name)
    if name:
        log.model = source.file.resolve().parent.name
        log.benchmark = f"livecodebench/{name['scenario']}"
        log.protocol = {"temperature": float(name["temperature"]), "n": int(name["n"])}
    log.rows = _rows(source, log)
    return log


def _rows(source: Source, log: Log) -> Iterator[Attempt]:
    published = []
    for _, i, record in members(source.file):
        question, graded = record["question_id"], record["graded_list"]
        if not isinstance(graded, list):
            raise refuse(f"record {i}: graded_list is no list: not graded", source.path)
        problem = f"{question}/{record['test_id']}" if "test_id" in record else question
        carried = {key: record.get(key) for key in ("difficulty", "contest_date")}
        values = [verdict(each, f"record {i}: graded_list") for each in graded]
        told = record.get("pass@1")
        if isinstance(told, int | float):
            published.append(float(told))
        for j, value in enumerate(values):
            yield Attempt(
                problem,
                f"{source.tag}:{j}",
                value,
                error=value is None,
                subject=record.get("platform"),
                carried=carried,
            )
    if published:
        log.claims.append(Claim("mean of pass@1", fsum(published) / len(published), "problems"))


FORMAT = Format("livecodebench", "LiveCodeBench eval_all.json", detect, read)
