"""Code: HumanEval-style JSON Lines, EvalPlus, whose samples are attempts at two benchmarks, and LiveCodeBench.

BFCL: a score file has totals in the first line, then failures only; the result file lists all problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import fsum
from pathlib import Path
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, list_with, records_with
from scorelake.ingest.values import get_object, quote, to_name, to_verdict

BENCHMARKS = {"HumanEval": "humaneval", "Mbpp": "mbpp", "MBPP": "mbpp"}
TEXTS = ("completion", "solution", "generation")
NAME = re.compile(r"(?P<model>.+)_[a-z]+_temp_(?P<temperature>\d+(?:\.\d+)?)(?:[-_].*?)?[._]eval_results\.json")
SCENARIO = re.compile(
    r"Scenario\.(?P<scenario>.+?)_(?P<n>\d+)_(?P<temperature>\d+(?:\.\d+)?)(?P<variant>_.+?)?_eval_all\.json(?:\.gz)?"
)
STATUS = {"pass": 1.0, "success": 1.0, "fail": 0.0, "failed": 0.0, "timeout": 0.0, "timed out": 0.0, None: None}


def explain(probe: FileProbe) -> str | None:
    is_sample = probe.has_records and probe.has("task_id") and any(probe.has(key) for key in TEXTS)
    return "not graded: rows have task_id but not passed" if is_sample else None


def read_humaneval(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id = run.tag
    for line, record in run.lines():
        if missing := [key for key in ("task_id", "passed") if key not in record]:
            raise refusal(f"line {line:,} has no {missing[0]}: not graded", run.file)
        if run.benchmark is None:
            run.benchmark = BENCHMARKS.get(str(record["task_id"]).partition("/")[0])
        value = to_verdict(record["passed"], f"line {line:,}: passed", run.options.true)
        yield AttemptRow(record["task_id"], f"{run.tag}:{line}", value)


def detect_evalplus(probe: FileProbe) -> bool:
    tasks = probe.first.get("eval")
    if probe.shape != "object" or not isinstance(tasks, dict) or not tasks:
        return False
    first = next(iter(tasks.values()))
    if isinstance(first, list) and first:
        return isinstance(first[0], dict) and "base_status" in first[0]
    return isinstance(first, dict) and {"nfiles", "base"} <= first.keys()


def read_evalplus(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id, run.tool, run.rows_name_benchmark = run.tag, "evalplus", True
    name = NAME.fullmatch(run.file.name)
    if name:
        run.model = name["model"].replace("--", "/")
        run.protocol["temperature"] = float(name["temperature"])
    elif run.file.name == "eval_results.json":
        run.model = run.folder.name
    benchmark = ""
    for task, value in run.records("eval"):
        prefix, _, rest = str(task).partition("/")
        if not rest:
            raise ValueError(f"task {quote(task)} has no benchmark in its name")
        benchmark = run.options.benchmark or prefix.lower()
        for i, (base, plus) in enumerate(_statuses(value)):
            both = None if base is None or plus is None else min(base, plus)
            yield AttemptRow(task, f"{run.tag}:{i}", base, benchmark=benchmark)
            yield AttemptRow(task, f"{run.tag}:{i}", both, benchmark=f"{benchmark}+")
    run.protocol["dataset"] = run.document.get("hash")
    for kind, name_ in (("base", benchmark), ("plus", f"{benchmark}+")):
        for metric, value in get_object(run.document, "pass_at_k", kind).items():
            if re.fullmatch(r"pass@\d+", metric):
                run.add_claim(f"{name_} {metric}", value, metric, name_)


def _statuses(value: Any) -> Iterator[tuple[float | None, float | None]]:
    """Yield the base and plus verdicts of every sample, in today's layout or in that until 2024."""
    if isinstance(value, dict):
        base, plus = value["base"], value.get("plus") or [[None]] * len(value["base"])
        if not len(base) == len(plus) == value["nfiles"]:
            counts = f"{len(base)} base and {len(plus)} plus results"
            raise ValueError(f"nfiles is {quote(value['nfiles'])}, but there are {counts}")
        yield from ((STATUS[one[0]], STATUS[two[0]]) for one, two in zip(base, plus, strict=True))
    else:
        yield from ((STATUS[sample["base_status"]], STATUS[sample.get("plus_status")]) for sample in value)


def read_livecodebench(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id, run.tool = run.tag, "livecodebench"
    name = SCENARIO.fullmatch(run.file.name)
    if name:
        run.model, run.benchmark = run.folder.name, f"livecodebench/{name['scenario']}"
        # Prompts differ by a suffix (_cot), or by the folder of all models (output_prompt2).
        home = run.folder.parent.name
        variant = home.removeprefix("output") * home.startswith("output") + (name["variant"] or "")
        run.protocol = {"temperature": float(name["temperature"]), "n": int(name["n"]), "variant": variant or None}
    reported = []
    for _, i, record in run.members():
        question, graded = record["question_id"], record["graded_list"]
        if not isinstance(graded, list):
            raise refusal(f"record {i}: graded_list is not a list: not graded", run.path)
        problem = f"{question}/{record['test_id']}" if "test_id" in record else question
        carried = {key: record.get(key) for key in ("difficulty", "contest_date")}
        if isinstance(record.get("pass@1"), int | float):
            reported.append(float(record["pass@1"]))
        for j, verdict in enumerate(graded):
            value = to_verdict(verdict, f"record {i}: graded_list")
            yield AttemptRow(problem, f"{run.tag}:{j}", value, subject=record.get("platform"), carried=carried)
    if reported:
        run.add_claim("mean of pass@1", fsum(reported) / len(reported), "problems")


IS_HUMANEVAL, IS_LIVECODEBENCH = records_with("task_id", "passed"), list_with("question_id", "graded_list")
HUMANEVAL = LogFormat("humaneval", "passed", "ungraded", IS_HUMANEVAL, read_humaneval, explain=explain)
EVALPLUS = LogFormat("evalplus", "passed", "ungraded", detect_evalplus, read_evalplus)
LIVECODEBENCH = LogFormat("livecodebench", "passed", "ungraded", IS_LIVECODEBENCH, read_livecodebench)


BFCL_SCORE, BFCL_OLD_PREFIX = "_score.json", "gorilla_openfunctions_v1_test_"
BFCL_GROUPS = ("live", "non_live", "multi_turn", "agentic")
"""Folders of categories below that of the model."""


def list_bfcl_results(path: Path) -> Iterable[Path]:
    """List the result files of the same category: in the same folder, or in the tree `result` next to `score`."""
    category, parts = path.name.removesuffix(BFCL_SCORE), path.parts
    # Folders of runs are also called score_2024 or fc-score.
    trees = [i for i, part in enumerate(parts[:-1]) if "score" in part.lower()]
    others = [Path(*parts[:i], parts[i].replace("score", "result"), *parts[i + 1 : -1]) for i in trees]
    names = [f"{prefix}{category}_result.json" for prefix in ("", BFCL_OLD_PREFIX)]
    return [folder / name for folder in (path.parent, *others) for name in names]


def read_bfcl(run: LogRun) -> Iterator[AttemptRow]:
    run.run_id, run.benchmark, run.tool = run.digest[:12], "bfcl", "bfcl"
    folders = [folder.name for folder in (run.folder, *run.folder.parents)]
    run.model = next(name for name in folders if name not in BFCL_GROUPS)
    run.subject = run.file.name.removesuffix(BFCL_SCORE)
    if len(run.companions) != 1:
        what = "several result files" if run.companions else "no result file"
        hint = f"put {run.subject}_result.json next to it"
        raise refusal(f"{what} next to it, and only failures are listed here", run.path, hint)
    results = run.companions[0]
    problems = [
        to_name(record.get("id", record.get("idx")), f"line {line:,}: id") for line, record in run.lines(results)
    ]
    records = run.lines()
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
        raise refusal(f"failure {unknown[0]} is not in {results.name}", run.path)
    n_problems = len(set(problems))
    if (n_problems, n_problems - len(failed)) != (total, passed):
        what = f"{total} problems and {passed} passes by the first line, {n_problems} and {n_problems - len(failed)}"
        raise refusal(f"{what} by the records", run.path, "one of the two files is truncated")
    yield from (AttemptRow(problem, run.run_id, float(problem not in failed)) for problem in problems)


IS_BFCL = records_with("accuracy", "correct_count", "total_count")
BFCL = LogFormat("bfcl", "passed", "fail", IS_BFCL, read_bfcl, companions=list_bfcl_results)
