"""LiveCodeBench: Scenario.{scenario}_{n}_{temperature}_eval_all.json in the folder of its model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import fsum

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.probe import list_with
from scorelake.ingest.values import to_verdict

NAME = re.compile(r"Scenario\.(?P<scenario>.+?)_(?P<n>\d+)_(?P<temperature>\d+(?:\.\d+)?)_eval_all\.json(?:\.gz)?")


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.run_id, run.tool = source.tag, "livecodebench"
    name = NAME.fullmatch(source.file.name)
    if name:
        run.model = source.folder.name
        run.benchmark = f"livecodebench/{name['scenario']}"
        run.protocol = {"temperature": float(name["temperature"]), "n": int(name["n"])}
    reported = []
    for _, i, record in source.members():
        question, graded = record["question_id"], record["graded_list"]
        if not isinstance(graded, list):
            raise refusal(f"record {i}: graded_list is not a list: not graded", source.path)
        problem = f"{question}/{record['test_id']}" if "test_id" in record else question
        carried = {key: record.get(key) for key in ("difficulty", "contest_date")}
        values = [to_verdict(value, f"record {i}: graded_list") for value in graded]
        if isinstance(record.get("pass@1"), int | float):
            reported.append(float(record["pass@1"]))
        for j, value in enumerate(values):
            yield AttemptRow(problem, f"{source.tag}:{j}", value, subject=record.get("platform"), carried=carried)
    if reported:
        run.add_claim("mean of pass@1", fsum(reported) / len(reported), "problems")


FORMAT = LogFormat("livecodebench", "passed", "ungraded", list_with("question_id", "graded_list"), read)
