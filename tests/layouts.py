"""Small results in the layout of every tool, made from one table of verdicts: all of them must give the same counts.

A layout takes a folder and a table (problem -> verdicts of its attempts; 1, 0 or None for no verdict) and writes what
the tool would have written. Anything else in the table is written as it is, to see what comes of it.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from scorelake.ingest.json_stream import ZipFile

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


def _json(path: Path, told: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def _lines(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def attempts(table: Table) -> list[tuple[str, int, Any]]:
    """Problem, number of the attempt from 0, verdict; in the order of the attempts."""
    most = max(len(told) for told in table.values())
    return [(name, i, told[i]) for i in range(most) for name, told in table.items() if i < len(told)]


# --- Inspect ------------------------------------------------------------------------------------------------------

_WORD = {1: "C", 0: "I"}


def inspect_header(**about: Any) -> dict[str, Any]:
    told = {
        "eval_id": "E1",
        "run_id": "R1",
        "task_id": "T1",
        "created": "2026-01-01T00:00:00",
        "task": "toy",
        "model": "org/m",
    }
    return {"version": 2, "status": "success", "eval": told | about, "plan": {"config": {"temperature": 0.5}}}


def inspect_sample(name: str, i: int, value: Any, **more: Any) -> dict[str, Any]:
    word = _WORD.get(value, value) if isinstance(value, int) else value
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
    first = None
    for i in range(max(map(len, table.values()))):
        time = f"2026-01-0{i + 1}T00-00-00.5"
        records = [
            {
                "doc_id": name,
                "doc": {"q": "line\u2028separator"},
                "resps": [["x"]],
                "filtered_resps": ["x"],
                "filter": "none",
                "metrics": ["exact_match"],
                "doc_hash": f"hash of {name}",
                "exact_match": float(value) if value in (0, 1) and not isinstance(value, bool) else value,
            }
            for name, j, value in attempts(table)
            if j == i
        ]
        path = home / "org__m" / f"samples_toy_{time}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8"
        )
        _json(
            home / "org__m" / f"results_{time}.json",
            {"model_name": "org/m", "configs": {"toy": config}, "results": {}},
        )
        first = first or path
    assert first is not None
    return first


# --- agents -------------------------------------------------------------------------------------------------------


def harbor(home: Path, table: Table) -> Path:
    first = None
    for name, i, value in attempts(table):
        job = home / f"job-{i}"
        _json(job / "config.json", {"datasets": [{"name": "toy", "version": "1"}], "agents": [{"name": "agent"}]})
        result = None if value is None else {"rewards": {"reward": value}}
        trial = {
            "task_name": name,
            "trial_name": f"{name}__{i}",
            "task_checksum": f"sum of {name}",
            "source": "toy",
            "agent_info": {"name": "agent", "version": "1", "model_info": {"provider": "org", "name": "m"}},
            "verifier_result": result,
            "exception_info": {"exception_type": "AgentTimeoutError"},
            "finished_at": "2026-01-01",
        }
        path = _json(job / f"{name}__{i}" / "result.json", trial)
        first = first or path
    assert first is not None
    return first


def terminal_bench(home: Path, table: Table) -> Path:
    trials = [
        {
            "trial_name": f"{name}.{i}-of-3",
            "task_id": name,
            "is_resolved": _flag(value),
            "failure_mode": "agent_timeout",
        }
        for name, i, value in attempts(table)
    ]
    about = {
        "run_id": "r",
        "agent_name": "agent",
        "model_name": "org/m",
        "dataset_name": "toy",
        "dataset_version": "1",
    }
    _json(home / "run_metadata.json", about)
    return _json(home / "results.json", {"results": trials})


def _flag(value: Any) -> Any:
    return bool(value) if value in (0, 1) and isinstance(value, int) else value


def swebench_report(home: Path, table: Table) -> Path:
    first = None
    for i in range(3):
        run = {name: told[i] for name, told in table.items()}
        path = _json(
            home / f"m.run-{i}.json",
            {
                "submitted_ids": list(run),
                "resolved_ids": [name for name, value in run.items() if value == 1],
                "unresolved_ids": [name for name, value in run.items() if value == 0],
                "error_ids": [name for name, value in run.items() if value is None],
                "incomplete_ids": ["never__tried-1"],
                "schema_version": 2,
            },
        )
        first = first or path
    assert first is not None
    return first


def swebench_experiments(home: Path, table: Table) -> Path:
    first = None
    for i in range(3):
        told = {
            "resolved": [name for name, values in table.items() if values[i] == 1],
            "generated": [name for name in table if name != "c__d-22"],
            "no_generation": ["c__d-22"],
            "test_errored": [name for name, values in table.items() if values[i] is None],
        }
        path = _json(home / f"run-{i}" / "results.json", told)
        first = first or path
    assert first is not None
    return first


def swebench_instances(home: Path, table: Table) -> Path:
    first = None
    for name, i, value in attempts(table):
        told = {name: {"patch_exists": True, "resolved": _flag(value), "tests_status": {}}}
        path = _json(home / f"run-{i}" / "org__m" / name / "report.json", told)
        first = first or path
    assert first is not None
    return first


def swebench_pro(home: Path, table: Table) -> Path:
    for i in range(3):
        told = {name: _flag(values[i]) for name, values in table.items()}
        _json(home / f"try-{i}" / "m" / "eval_results.json", told)
    return home / "try-0" / "m" / "eval_results.json"


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

_STATUS = {1: "pass", 0: "fail", None: None}


def _status(value: Any) -> Any:
    return _STATUS[value] if value is None or (isinstance(value, int) and value in _STATUS) else value


def evalplus(home: Path, table: Table) -> Path:
    told = {
        f"HumanEval/{name}": [
            {"task_id": name, "solution": "s", "base_status": _status(value), "plus_status": "pass"}
            for value in values
        ]
        for name, values in table.items()
    }
    return _json(home / "m_vllm_temp_0.2.eval_results.json", {"date": "d", "hash": "h", "eval": told})


def evalplus_old(home: Path, table: Table) -> Path:
    words = {1: "success", 0: "failed", None: None}

    def word(value: Any) -> Any:
        return words[value] if value is None or (isinstance(value, int) and value in words) else value

    told = {
        f"HumanEval/{name}": {
            "nfiles": len(values),
            "base": [[word(value), []] for value in values],
            "plus": [["timed out", []] for _ in values],
        }
        for name, values in table.items()
    }
    return _json(home / "m" / "eval_results.json", {"hash": "h", "eval": told})


def humaneval(home: Path, table: Table) -> Path:
    rows = [
        {"task_id": f"HumanEval/{name}", "completion": "c", "result": "r", "passed": _flag(value)}
        for name, _, value in attempts(table)
    ]
    _lines(home / "samples.jsonl", [{"task_id": "HumanEval/1", "completion": "not graded"}])
    return _lines(home / "samples.jsonl_results.jsonl", rows)


def livecodebench(home: Path, table: Table) -> Path:
    told = [
        {
            "question_id": name,
            "platform": "atcoder",
            "difficulty": "easy",
            "contest_date": "2026-01-01",
            "graded_list": [_flag(value) for value in values],
        }
        for name, values in table.items()
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
        {
            "id": f"{name}-{i}",
            "task_id": name,
            "trial": i,
            "termination_reason": "user_stop",
            "reward_info": None if value is None else {"reward": value},
        }
        for name, i, value in attempts(table)
    ]


def _info() -> dict[str, Any]:
    agent = {"implementation": "llm_agent", "llm": "org/m", "llm_args": {"temperature": 0.0}}
    return {
        "git_commit": "abc",
        "agent_info": agent,
        "user_info": {"llm": "u"},
        "environment_info": {"domain_name": "mock"},
    }


def tau2(home: Path, table: Table) -> Path:
    return _json(home / "results.json", {"info": _info(), "tasks": [], "simulations": _tau2(table)})


def tau2_folder(home: Path, table: Table) -> Path:
    for one in _tau2(table):
        _json(home / "simulations" / f"{one['id']}.json", one)
    return _json(home / "results.json", {"info": _info(), "tasks": []})


# --- the rest -----------------------------------------------------------------------------------------------------


def every_eval_ever(home: Path, table: Table) -> Path:
    rows = [
        {
            "schema_version": "0.3.0",
            "evaluation_id": "e/1",
            "model_id": "org/m",
            "evaluation_name": "toy",
            "evaluation_result_id": "toy.accuracy",
            "sample_id": name,
            "sample_hash": f"hash of {name}",
            "evaluation": {"score": 1.0, "is_correct": _flag(value)},
            "answer_attribution": [{"extracted_value": "x"}],
            "metadata": {"subject": "s"},
        }
        for name, _, value in attempts(table)
    ]
    whole = {
        "schema_version": "0.3.0",
        "evaluation_id": "e/1",
        "eval_library": {"name": "helm"},
        "model_info": {"id": "org/m"},
        "evaluation_results": [{"evaluation_name": "toy", "generation_config": {"temperature": 0.1}}],
    }
    _json(home / "u.json", whole)
    return _lines(home / "u_samples.jsonl", rows)


def helm(home: Path, table: Table) -> Path:
    told = [
        {
            "instance_id": name,
            "train_trial_index": i,
            "stats": [
                {"name": {"name": "exact_match", "split": "test"}, "mean": value},
                {"name": {"name": "exact_match@5", "split": "test"}, "mean": 1.0},
                {"name": {"name": "num_references", "split": "test"}, "mean": 4.0},
            ],
        }
        for name, i, value in attempts(table)
    ]
    spec = {"name": "toy:model=m", "adapter_spec": {"model": "org/m", "temperature": 0.0}, "groups": ["toy"]}
    _json(home / "run" / "run_spec.json", spec)
    return _json(home / "run" / "per_instance_stats.json", told)


def bfcl(home: Path, table: Table) -> Path:
    for i in range(3):
        run = {name: told[i] for name, told in table.items()}
        failed = [name for name, value in run.items() if value == 0]
        right = len(run) - len(failed)
        head = {"accuracy": right / len(run), "correct_count": right, "total_count": len(run)}
        failures = [{"id": 1, "prompt": {"id": name}, "valid": False} for name in failed]
        _lines(home / f"run-{i}" / "m" / "simple_score.json", [head, *failures])
        _lines(
            home / f"run-{i}" / "m" / "simple_result.json", [{"id": name, "result": "r", "try": i} for name in run]
        )
    return home / "run-0" / "m" / "simple_score.json"


# --- any table ----------------------------------------------------------------------------------------------------


def _records(table: Table) -> list[dict[str, Any]]:
    return [{"who": "org/m", "task": {"id": name}, "ok": _flag(value)} for name, _, value in attempts(table)]


def generic_lines(home: Path, table: Table) -> Path:
    return _lines(home / "any.jsonl", _records(table))


def generic_json(home: Path, table: Table) -> Path:
    return _json(home / "any.json", _records(table))


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
    "generic_lines": Layout("generic", generic_lines, _MAP, lines=True),
    "generic_json": Layout("generic", generic_json, _MAP),
    "generic_gzip": Layout("generic", generic_gzip, _MAP),
    "generic_csv": Layout("generic", generic_csv, _MAP, lines=True, raw=False),
    "generic_parquet": Layout("generic", generic_parquet, _MAP, raw=False),
}
