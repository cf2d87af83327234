"""BFCL: a score file lists only the failures after a line of totals; all other problems are in the result file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from scorelake.ingest.contract import Attempt, Claim, Format, Log, Options, Source, refuse
from scorelake.ingest.documents import lines
from scorelake.ingest.sight import Sight
from scorelake.ingest.values import mapping, name

SCORE, OLD = "_score.json", "gorilla_openfunctions_v1_test_"


def detect(sight: Sight) -> bool:
    return sight.records and sight.has("accuracy", "correct_count", "total_count")


def beside(path: Path) -> Iterable[Path]:
    """The result file of the same category: in the same folder, or in the tree `result` beside the tree `score`."""
    category = path.name.removesuffix(SCORE)
    names = (f"{category}_result.json", f"{OLD}{category}_result.json")
    parts = path.parts
    homes = [path.parent]
    homes += [Path(*parts[:i], "result", *parts[i + 1 : -1]) for i, part in enumerate(parts[:-1]) if part == "score"]
    return [home / each for home in homes for each in names]


def read(source: Source, options: Options) -> Log:
    log = Log([], "passed", "fail", run=source.digest[:12], benchmark="bfcl", tool="bfcl")
    log.model = source.file.resolve().parent.name
    log.subject = source.file.name.removesuffix(SCORE)
    if len(source.beside) != 1:
        what = "no result file beside it" if not source.beside else "several result files beside it"
        raise refuse(
            f"{what}: only failures are listed here", source.path, f"put {log.subject}_result.json beside it"
        )
    log.rows = _rows(source, log)
    return log


def _rows(source: Source, log: Log) -> Iterator[Attempt]:
    failed: set[str] = set()
    total = right = 0
    for i, (line, record) in enumerate(lines(source.file)):
        if i == 0:
            total, right = record["total_count"], record["correct_count"]
            log.claims.append(Claim("accuracy", float(record["accuracy"]), within=1e-3))
            continue
        problem = mapping(record.get("prompt"), "prompt").get("id", record.get("id"))
        failed.add(name(problem, f"line {line:,}: id"))
        log.model = record.get("model_name") or log.model
    every = [name(record["id"], f"line {line:,}: id") for line, record in lines(source.beside[0])]
    unknown = sorted(failed - set(every))
    if unknown:
        raise refuse(f"failure {unknown[0]} is not in {source.beside[0].name}", source.path)
    if (len(set(every)), len(set(every)) - len(failed)) != (total, right):
        raise refuse(
            f"{total} problems and {right} right by the first line, {len(set(every))} and "
            f"{len(set(every)) - len(failed)} by the records",
            source.path,
            "one of the two files is cut",
        )
    yield from (Attempt(problem, log.run, float(problem not in failed)) for problem in every)


FORMAT = Format("bfcl", "BFCL score files", detect, read, beside=beside)
