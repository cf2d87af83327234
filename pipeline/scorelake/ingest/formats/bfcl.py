"""BFCL: a score file has totals in the first line, then failures only; the result file lists all problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from scorelake.ingest.contract import AttemptRow, IngestOptions, LogFormat, LogSource, RunInfo, refusal
from scorelake.ingest.json_stream import records_with
from scorelake.ingest.values import get_object, to_name

SCORE, OLD_PREFIX = "_score.json", "gorilla_openfunctions_v1_test_"

GROUPS = ("live", "non_live", "multi_turn", "agentic")
"""Folders of categories below that of the model."""


def companions(path: Path) -> Iterable[Path]:
    """List the result files of the same category: in the same folder, or in the tree `result` next to `score`."""
    category = path.name.removesuffix(SCORE)
    parts = path.parts
    folders = [path.parent]
    trees = [i for i, part in enumerate(parts[:-1]) if part == "score"]
    folders += [Path(*parts[:i], "result", *parts[i + 1 : -1]) for i in trees]
    return [folder / f"{prefix}{category}_result.json" for folder in folders for prefix in ("", OLD_PREFIX)]


def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
    run.run_id, run.benchmark, run.tool = source.digest[:12], "bfcl", "bfcl"
    folders = [folder.name for folder in (source.folder, *source.folder.parents)]
    run.model = next(name for name in folders if name not in GROUPS)
    run.subject = source.file.name.removesuffix(SCORE)
    if len(source.companions) != 1:
        what = "several result files" if source.companions else "no result file"
        hint = f"put {run.subject}_result.json next to it"
        raise refusal(f"{what} next to it, and only failures are listed here", source.path, hint)
    results = source.companions[0]
    problems = [
        to_name(record.get("id", record.get("idx")), f"line {line:,}: id") for line, record in source.lines(results)
    ]
    records = source.lines()
    _, totals = next(records)
    total, passed = totals["total_count"], totals["correct_count"]
    run.add_claim("accuracy", float(totals["accuracy"]), tolerance=1e-3)
    failed: set[str] = set()
    for line, record in records:
        problem = get_object(record, "prompt").get("id", record.get("id"))
        if isinstance(problem, int) and 1 <= problem <= len(problems):
            problem = problems[problem - 1]  # in 2024 a failure without a prompt has the line of its result
        failed.add(to_name(problem, f"line {line:,}: id"))
        run.model = record.get("model_name") or run.model
    if unknown := sorted(failed - set(problems)):
        raise refusal(f"failure {unknown[0]} is not in {results.name}", source.path)
    n_problems = len(set(problems))
    if (n_problems, n_problems - len(failed)) != (total, passed):
        what = f"{total} problems and {passed} passes by the first line, {n_problems} and {n_problems - len(failed)}"
        raise refusal(f"{what} by the records", source.path, "one of the two files is truncated")
    yield from (AttemptRow(problem, run.run_id, float(problem not in failed)) for problem in problems)


FORMAT = LogFormat(
    "bfcl", "passed", "fail", records_with("accuracy", "correct_count", "total_count"), read, companions=companions
)
