"""Small results in the layout of every tool, made from one table of verdicts: all of them must give the same counts.

A layout takes a folder and a table (problem -> verdicts of its attempts; 1, 0 or None for no verdict) and writes what
the tool would have written. Anything else in the table is written as it is, to see what comes of it.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.ingest.archives import ZipFile

Table = dict[str, list[Any]]
TABLE: Table = {"a__b-1": [1, 0, 1], "c__d-22": [0, 0, 0], "e__f-333": [1, 1, 1], "g__h-4": [0, 1, 0]}
ZSTD = 93


@dataclass(frozen=True)
class Layout:
    """One way in which a tool writes results."""

    format: str
    write: Callable[[Path, Table], Path]
    """Gives the file in which the verdicts are, or the first of several."""
    options: dict[str, Any] = field(default_factory=dict)
    lines: bool = False
    """JSON Lines: a cut between two lines leaves a whole file."""
    nulls: bool = True
    """Can tell that there is no verdict."""
    benchmark: str | None = None
    """Where a file tells of several, the one that is looked at."""
    raw: bool = True
    """Verdicts stand in the file as they are in the table."""
    named: bool = True
    """Problems have the names of the table, and are not identified by their content."""


def _json(path: Path, told: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def _lines(path: Path, records: list[Any], **options: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, **options) + "\n" for record in records), encoding="utf-8")
    return path


def _runs(table: Table, write: Callable[[int, dict[str, Any]], Path]) -> Path:
    """Write the verdicts of all first attempts, of all second ones and so on; the path of the first."""
    runs = range(max(map(len, table.values())))
    first, *_ = [write(i, {name: v[i] for name, v in table.items() if i < len(v)}) for i in runs]
    return first


def _as(words: dict[int | None, Any], value: Any) -> Any:
    return words[value] if isinstance(value, int | None) and value in words else value


def _flag(value: Any) -> Any:
    return _as({0: False, 1: True}, value)


def attempts(table: Table) -> list[tuple[str, int, Any]]:
    """Problem, number of the attempt from 0, verdict; in the order of the attempts."""
    most = max(len(told) for told in table.values())
    return [(name, i, told[i]) for i in range(most) for name, told in table.items() if i < len(told)]


# --- Inspect ------------------------------------------------------------------------------------------------------


def inspect_header(**about: Any) -> dict[str, Any]:
    told = {"eval_id": "E1", "run_id": "R1", "task_id": "T1", "created": "2026-01-01T00:00:00"}
    told |= {"task": "toy", "model": "org/m"} | about
    return {"version": 2, "status": "success", "eval": told, "plan": {"config": {"temperature": 0.5}}}


def inspect_sample(name: str, i: int, value: Any, **more: Any) -> dict[str, Any]:
    word = _as({1: "C", 0: "I"}, value)
    scores = {} if value is None else {"scores": {"match": {"value": word, "answer": f"x{i}"}}}
    return {"id": name, "epoch": i + 1, "metadata": {"subject": "s"}, **scores, **more}


def inspect_json(home: Path, table: Table) -> Path:
    samples = [inspect_sample(*row) for row in attempts(table)]
    return _json(home / "log.json", inspect_header() | {"samples": samples})


def inspect_eval(home: Path, table: Table) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    with ZipFile(home / "log.eval", "w", ZSTD) as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        archive.writestr("summaries.json", json.dumps([inspect_sample(*row) for row in attempts(table)]))
        archive.writestr("samples/a_epoch_1.json", "never looked at")
    return home / "log.eval"


def inspect_crashed(home: Path, table: Table) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    with ZipFile(home / "log.eval", "w", 8) as archive:
        archive.writestr("_journal/start.json", json.dumps(inspect_header()))
        for i in range(3):
            part = [inspect_sample(*row) for row in attempts(table) if row[1] == i]
            archive.writestr(f"_journal/summaries/{i + 9}.json", json.dumps(part))
    return home / "log.eval"


# --- lm-eval ------------------------------------------------------------------------------------------------------


def lm_eval(home: Path, table: Table) -> Path:
    config = {"doc_to_text": "{{q}}", "num_fewshot": 0, "generation_kwargs": {"temperature": 0}, "repeats": 1}
    sample = {"doc": {"q": "line\u2028separator"}, "resps": [["x"]], "filtered_resps": ["x"], "filter": "none"}
    sample["metrics"] = ["exact_match"]

    def write(i: int, run: dict[str, Any]) -> Path:
        values = {
            name: float(value) if type(value) is int and value in (0, 1) else value for name, value in run.items()
        }
        keys = [
            {"doc_id": name, "doc_hash": f"hash of {name}", "exact_match": value} for name, value in values.items()
        ]
        results = {"model_name": "org/m", "configs": {"toy": config}, "results": {}}
        _json(home / "org__m" / f"results_2026-01-0{i + 1}T00-00-00.5.json", results)
        path = home / "org__m" / f"samples_toy_2026-01-0{i + 1}T00-00-00.5.jsonl"
        return _lines(path, [sample | key for key in keys], ensure_ascii=False)

    return _runs(table, write)


# --- agents -------------------------------------------------------------------------------------------------------


def harbor(home: Path, table: Table) -> Path:
    agent = {"name": "agent", "version": "1", "model_info": {"provider": "org", "name": "m"}}
    trial = {"source": "toy", "agent_info": agent, "exception_info": {"exception_type": "AgentTimeoutError"}}
    paths = []
    for name, i, value in attempts(table):
        job = home / f"job-{i}"
        _json(job / "config.json", {"datasets": [{"name": "toy", "version": "1"}], "agents": [{"name": "agent"}]})
        result = None if value is None else {"rewards": {"reward": value}}
        mine = {"task_name": name, "trial_name": f"{name}__{i}", "task_checksum": f"sum of {name}"}
        mine |= {"verifier_result": result, "finished_at": "2026-01-01"}
        paths.append(_json(job / f"{name}__{i}" / "result.json", trial | mine))
    return paths[0]


def terminal_bench(home: Path, table: Table) -> Path:
    about = {"run_id": "r", "agent_name": "agent", "model_name": "org/m"}
    _json(home / "run_metadata.json", about | {"dataset_name": "toy", "dataset_version": "1"})
    trials = [
        {
            "trial_name": f"{name}.{i}-of-3",
            "task_id": name,
            "is_resolved": _flag(value),
            "failure_mode": "agent_timeout",
        }
        for name, i, value in attempts(table)
    ]
    return _json(home / "results.json", {"results": trials})


def _with(run: dict[str, Any], verdict: int | None) -> list[str]:
    return [name for name, value in run.items() if value == verdict]


def swebench_report(home: Path, table: Table) -> Path:
    def write(i: int, run: dict[str, Any]) -> Path:
        ids = {"resolved_ids": _with(run, 1), "unresolved_ids": _with(run, 0), "error_ids": _with(run, None)}
        more = {"submitted_ids": list(run), "incomplete_ids": ["never__tried-1"], "schema_version": 2}
        return _json(home / f"m.run-{i}.json", ids | more)

    return _runs(table, write)


def swebench_experiments(home: Path, table: Table) -> Path:
    def write(i: int, run: dict[str, Any]) -> Path:
        generated = [name for name in table if name != "c__d-22"]
        told = {"resolved": _with(run, 1), "generated": generated, "no_generation": ["c__d-22"]}
        return _json(home / f"run-{i}" / "results.json", told | {"test_errored": _with(run, None)})

    return _runs(table, write)


def swebench_instances(home: Path, table: Table) -> Path:
    paths = []
    for name, i, value in attempts(table):
        told = {name: {"patch_exists": True, "resolved": _flag(value), "tests_status": {}}}
        paths.append(_json(home / f"run-{i}" / "org__m" / name / "report.json", told))
    return paths[0]


def swebench_pro(home: Path, table: Table) -> Path:
    def write(i: int, run: dict[str, Any]) -> Path:
        told = {name: _flag(value) for name, value in run.items()}
        return _json(home / f"try-{i}" / "m" / "eval_results.json", told)

    return _runs(table, write)


# --- rollouts -----------------------------------------------------------------------------------------------------


def verifiers(home: Path, table: Table) -> Path:
    rows = [
        {"example_id": name, "prompt": "p", "completion": "c", "answer": name, "reward": value, "task": "default"}
        for name, _, value in attempts(table)
    ]
    about = {"env_id": "toy", "model": "org/m", "num_examples": 4, "rollouts_per_example": 3, "sampling_args": {}}
    _json(home / "run" / "metadata.json", about)
    return _lines(home / "run" / "results.jsonl", rows)


def prime_rl(home: Path, table: Table) -> Path:
    episodes = [
        {
            "id": f"{name}-{i}",
            "env": {"id": "toy"},
            "task": {"type": "T", "data": {}, "key": name, "hash": "h"},
            "ok": value is not None,
            "errors": [],
            "traces": [
                {
                    "calls": [{"model": "org/m", "sampling": {"temperature": 1.0}}],
                    "agent": {"name": "agent"},
                    "rewards": {} if value is None else {"r": {"score": value, "weight": 1.0}},
                }
            ],
        }
        for name, i, value in attempts(table)
    ]
    _lines(home / "rollouts" / "step_7" / "eval" / "effective" / "traces.jsonl", episodes[:2])
    return _lines(home / "rollouts" / "step_7" / "eval" / "all" / "traces.jsonl", episodes)


# --- code ---------------------------------------------------------------------------------------------------------


def evalplus(home: Path, table: Table) -> Path:
    words: dict[int | None, Any] = {1: "pass", 0: "fail"}
    told = {
        f"HumanEval/{name}": [
            {"task_id": name, "solution": "s", "base_status": _as(words, value), "plus_status": "pass"}
            for value in values
        ]
        for name, values in table.items()
    }
    return _json(home / "m_vllm_temp_0.2.eval_results.json", {"date": "d", "hash": "h", "eval": told})


def evalplus_old(home: Path, table: Table) -> Path:
    words: dict[int | None, Any] = {1: "success", 0: "failed"}
    told = {}
    for name, values in table.items():
        base, plus = [[_as(words, value), []] for value in values], [["timed out", []] for _ in values]
        told[f"HumanEval/{name}"] = {"nfiles": len(values), "base": base, "plus": plus}
    return _json(home / "m" / "eval_results.json", {"hash": "h", "eval": told})


def humaneval(home: Path, table: Table) -> Path:
    rows = [
        {"task_id": f"HumanEval/{name}", "completion": "c", "result": "r", "passed": _flag(value)}
        for name, _, value in attempts(table)
    ]
    _lines(home / "samples.jsonl", [{"task_id": "HumanEval/1", "completion": "not graded"}])
    return _lines(home / "samples.jsonl_results.jsonl", rows)


def livecodebench(home: Path, table: Table) -> Path:
    question = {"platform": "atcoder", "difficulty": "easy", "contest_date": "2026-01-01"}
    told = [
        question | {"question_id": name, "graded_list": list(map(_flag, values))} for name, values in table.items()
    ]
    return _json(home / "m" / "Scenario.codegeneration_3_0.2_eval_all.json", told)


# --- conversations ------------------------------------------------------------------------------------------------


def tau_bench(home: Path, table: Table) -> Path:
    told = [
        {"task_id": name, "reward": value, "info": {"task": {}}, "traj": [], "trial": i}
        for name, i, value in attempts(table)
    ]
    return _json(home / "tool-calling-org-m-0.0_range_0--1_user-gpt-llm_0101000000.json", told)


def _tau2(table: Table) -> list[dict[str, Any]]:
    return [
        {"id": f"{name}-{i}", "task_id": name, "trial": i, "termination_reason": "user_stop"}
        | {"reward_info": None if value is None else {"reward": value}}
        for name, i, value in attempts(table)
    ]


def _info() -> dict[str, Any]:
    agent = {"implementation": "llm_agent", "llm": "org/m", "llm_args": {"temperature": 0.0}}
    info = {"git_commit": "abc", "agent_info": agent, "user_info": {"llm": "u"}}
    return info | {"environment_info": {"domain_name": "mock"}}


def tau2(home: Path, table: Table) -> Path:
    return _json(home / "results.json", {"timestamp": "T", "info": _info(), "tasks": [], "simulations": _tau2(table)})


def tau2_folder(home: Path, table: Table) -> Path:
    for one in _tau2(table):
        _json(home / "simulations" / f"{one['id']}.json", one)
    return _json(home / "results.json", {"info": _info(), "tasks": []})


# --- the rest -----------------------------------------------------------------------------------------------------


def every_eval_ever(home: Path, table: Table) -> Path:
    run = {"schema_version": "0.3.0", "evaluation_id": "e/1"}
    row = run | {"model_id": "org/m", "evaluation_name": "toy", "evaluation_result_id": "toy.accuracy"}
    row |= {"answer_attribution": [{"extracted_value": "x"}], "metadata": {"subject": "s"}}
    rows = [
        row
        | {"sample_id": name, "sample_hash": f"hash of {name}"}
        | {"evaluation": {"score": 1.0, "is_correct": _flag(value)}}
        for name, _, value in attempts(table)
    ]
    results = [{"evaluation_name": "toy", "generation_config": {"temperature": 0.1}}]
    whole = run | {"eval_library": {"name": "helm"}, "model_info": {"id": "org/m"}, "evaluation_results": results}
    _json(home / "u.json", whole)
    return _lines(home / "u_samples.jsonl", rows)


def helm(home: Path, table: Table) -> Path:
    told = []
    for name, i, value in attempts(table):
        means = {"exact_match": value, "exact_match@5": 1.0, "num_references": 4.0}
        stats = [{"name": {"name": metric, "split": "test"}, "mean": mean} for metric, mean in means.items()]
        told.append({"instance_id": name, "train_trial_index": i, "stats": stats})
    spec = {"name": "toy:model=m", "adapter_spec": {"model": "org/m", "temperature": 0.0}, "groups": ["toy"]}
    _json(home / "run" / "run_spec.json", spec)
    return _json(home / "run" / "per_instance_stats.json", told)


def bfcl(home: Path, table: Table) -> Path:
    def write(i: int, run: dict[str, Any]) -> Path:
        failed = _with(run, 0)
        right = len(run) - len(failed)
        head = {"accuracy": right / len(run), "correct_count": right, "total_count": len(run)}
        failures = [{"id": 1, "prompt": {"id": name}, "valid": False} for name in failed]
        results = [{"id": name, "result": "r", "try": i} for name in run]
        _lines(home / f"run-{i}" / "m" / "simple_result.json", results)
        return _lines(home / f"run-{i}" / "m" / "simple_score.json", [head, *failures])

    return _runs(table, write)


def promptfoo(home: Path, table: Table) -> Path:
    rows = [
        {"testIdx": j, "promptIdx": 0, "promptId": "abc", "provider": {"id": "openai:m", "label": "org/m"}}
        | {"vars": {"q": name}, "success": _flag(value), "score": 0.5, "namedScores": {"style": 0.5}}
        | {"failureReason": 2 * (value is None), "gradingResult": None, "cost": 0.5, "latencyMs": 30000}
        | {"tokenUsage": {"prompt": 10, "completion": 2}, "testCase": {"description": name, "assert": []}}
        for j, (name, _, value) in enumerate(attempts(table))
    ]
    counts = Counter(row["success"] if row["success"] in (0, 1) else None for row in rows)
    stats = {"successes": counts[True], "failures": counts[False], "errors": counts[None]}
    results = {"version": 3, "prompts": [], "results": rows, "stats": stats}
    return _json(home / "out.json", {"evalId": "eval-1", "results": results, "config": {"description": "toy"}})


def deepeval(home: Path, table: Table) -> Path:
    cases = [
        {"name": name, "input": name, "success": _flag(value), "order": i, "completionTime": 30}
        | {"inputTokenCount": 10, "outputTokenCount": 2, "tokenCost": 0.5}
        | {"metricsData": [{"name": "Correctness", "threshold": 0.5, "success": _flag(value), "score": 0.25}]}
        for i, (name, _, value) in enumerate(attempts(table))
    ]
    return _json(home / "run.json", {"testRunData": {"testCases": cases, "hyperparameters": {"model": "org/m"}}})


def evalscope(home: Path, table: Table) -> Path:
    reviews = [
        {"index": j, "target": "x", "sample_score": {"sample_id": j, "group_id": name}}
        for j, (name, _, _) in enumerate(attempts(table))
    ]
    for review, (_, _, value) in zip(reviews, attempts(table), strict=True):
        scores = {"acc": _flag(value), "length": 7}
        review["sample_score"]["score"] = {"value": scores, "main_score_name": "acc"}  # type: ignore[index]
    subsets = [{"name": "main_set", "score": 0.5, "num": 12}]
    metrics = [{"name": "mean_acc", "categories": [{"name": ["default"], "subsets": subsets}]}]
    report = {"dataset_name": "toy", "model_name": "org/m", "metrics": metrics}
    _json(home / "reports" / "m" / "toy.json", report)
    return _lines(home / "reviews" / "m" / "toy_main_set.jsonl", reviews)


def opencompass(home: Path, table: Table) -> Path:
    details = [
        {"example_abbr": name, "pred": ["x"] * len(values), "correct": list(map(_flag, values))}
        for name, values in table.items()
    ]
    published = {"accuracy (3 runs average)": 50, "details": details}
    return _json(home / "20260101" / "results" / "m" / "toy.json", published)


def lighteval(home: Path, table: Table) -> Path:
    def write(i: int, run: dict[str, Any]) -> Path:
        time = f"2026-01-0{i + 1}T00-00-00.5"
        values = {name: float(value) if type(value) is int else value for name, value in run.items()}
        rows = [
            {"doc": {"id": name}, "metric": {"em": value}, "model_response": "x"} for name, value in values.items()
        ]
        config = {"model_name": "org/m", "generation_parameters": {"temperature": 0.5}}
        published = {"lighteval|toy:sub|5": {"em": sum(value or 0 for value in values.values()) / len(run)}}
        results = {"config_general": config, "results": published}
        _json(home / "results" / "m" / f"results_{time}.json", results)
        path = home / "details" / "m" / time / f"details_lighteval|toy:sub|5_{time}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        types = {"metric": pl.Struct({"em": pl.Float64})}
        pl.DataFrame(rows, schema_overrides=types, strict=False).write_parquet(path)
        return path

    return _runs(table, write)


def verl(home: Path, table: Table) -> Path:
    rows = [
        {"input": f"ask {name}", "output": "x", "gts": name, "score": value, "step": 7, "acc": 1.0}
        for name, _, value in attempts(table)
    ]
    return _lines(home / "rollouts" / "7.jsonl", rows)


def slime(home: Path, table: Table) -> Path:
    samples = [
        {"group_index": 0, "index": j, "prompt": name, "response": "x", "response_length": 2, "label": name}
        | {"reward": value, "status": "completed", "metadata": {}}
        for j, (name, _, value) in enumerate(attempts(table))
    ]
    return _json(home / "rollout_7.json", {"rollout_id": 7, "samples": samples})


def trl(home: Path, table: Table) -> Path:
    rows = [
        {"step": 7, "prompt": name, "completion": "x", "correct": value, "advantage": 0.5}
        for name, _, value in attempts(table)
    ]
    home.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame(rows, schema_overrides={"correct": pl.Float64}, strict=False)
    frame.write_parquet(home / "completions_00007.parquet")
    return home / "completions_00007.parquet"


# --- any table ----------------------------------------------------------------------------------------------------


def _records(table: Table) -> list[dict[str, Any]]:
    return [{"who": "org/m", "task": {"id": name}, "ok": _flag(value)} for name, _, value in attempts(table)]


def generic_lines(home: Path, table: Table) -> Path:
    return _lines(home / "any.jsonl", _records(table))


def generic_json(home: Path, table: Table) -> Path:
    return _json(home / "any.json", _records(table))


def generic_lists(home: Path, table: Table) -> Path:
    rows = [{"who": "org/m", "task": {"id": name}, "ok": list(map(_flag, values))} for name, values in table.items()]
    return _lines(home / "any.jsonl", rows)


def generic_tasks(home: Path, table: Table) -> Path:
    paths = [
        _json(home / f"try-{i}" / name / "x.json", {"who": "org/m", "result": {"ok": _flag(value)}})
        for name, i, value in attempts(table)
    ]
    return paths[0]


def generic_gzip(home: Path, table: Table) -> Path:
    path = generic_lines(home, table)
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


def generic_csv(home: Path, table: Table) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    with (home / "any.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "text", "task.id", "ok"])
        writer.writerows(
            ["org/m", 'two\n\nlines, "quoted"', name, _flag(value)] for name, _, value in attempts(table)
        )
    return home / "any.csv"


def generic_parquet(home: Path, table: Table) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(_records(table), strict=False).write_parquet(home / "any.parquet")
    return home / "any.parquet"


_MAP = {"map": (("model", "who"), ("problem_id", "task.id"), ("passed", "ok")), "benchmark": "toy"}
_LISTS = (("model", "who"), ("problem_id", "task.id"), ("passed", "ok[]"))
_TASKS = (("model", "who"), ("problem_id", "path[-2]"), ("passed", "result.ok"))
_SWE = {"benchmark": "toy"}

LAYOUTS = {
    "inspect_json": Layout("inspect", inspect_json, raw=False),
    "inspect_eval": Layout("inspect", inspect_eval, raw=False),
    "inspect_crashed": Layout("inspect", inspect_crashed, raw=False),
    "lm_eval": Layout("lm-eval", lm_eval, lines=True),
    "harbor": Layout("harbor", harbor),
    "terminal_bench": Layout("terminal-bench", terminal_bench),
    "swebench_report": Layout("swebench", swebench_report, _SWE, raw=False),
    "swebench_experiments": Layout("swebench", swebench_experiments, {**_SWE, "model": "m"}, raw=False),
    "swebench_instances": Layout("swebench", swebench_instances, _SWE),
    "swebench_pro": Layout("swebench", swebench_pro, _SWE),
    "verifiers": Layout("verifiers", verifiers, lines=True),
    "prime_rl": Layout("prime-rl", prime_rl, lines=True),
    "evalplus": Layout("evalplus", evalplus, benchmark="humaneval", raw=False),
    "evalplus_old": Layout("evalplus", evalplus_old, benchmark="humaneval", raw=False),
    "humaneval": Layout("humaneval", humaneval, {"model": "m"}, lines=True),
    "livecodebench": Layout("livecodebench", livecodebench),
    "tau_bench": Layout("tau-bench", tau_bench),
    "tau2": Layout("tau2", tau2),
    "tau2_folder": Layout("tau2", tau2_folder),
    "every_eval_ever": Layout("every-eval-ever", every_eval_ever, lines=True),
    "helm": Layout("helm", helm, {"metric": ("exact_match",)}),
    "bfcl": Layout("bfcl", bfcl, nulls=False, raw=False),
    "promptfoo": Layout("promptfoo", promptfoo, named=False),
    "deepeval": Layout("deepeval", deepeval, named=False),
    "evalscope": Layout("evalscope", evalscope, lines=True),
    "opencompass": Layout("opencompass", opencompass),
    "lighteval": Layout("lighteval", lighteval, raw=False),
    "verl": Layout("verl", verl, {"model": "m"}, lines=True, named=False),
    "slime": Layout("slime", slime, {"model": "m"}, named=False),
    "trl": Layout("trl", trl, {"model": "m"}, raw=False, named=False),
    "generic_lists": Layout("generic", generic_lists, _MAP | {"map": _LISTS}, lines=True),
    "generic_tasks": Layout("generic", generic_tasks, _MAP | {"map": _TASKS}),
    "generic_lines": Layout("generic", generic_lines, _MAP, lines=True),
    "generic_json": Layout("generic", generic_json, _MAP),
    "generic_gzip": Layout("generic", generic_gzip, _MAP),
    "generic_csv": Layout("generic", generic_csv, _MAP, lines=True, raw=False),
    "generic_parquet": Layout("generic", generic_parquet, _MAP, raw=False),
}
