"""Ingest one large file of every streaming format: seconds, attempts, and the peak memory of the process.

    python benchmarks/ingest.py [--mb 1024] [--only inspect,csv] [--folder /tmp]

Files are made of records that differ in their ids alone, with texts as long as such records have, and are removed
after each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scorelake.ingest.archives import ZipFile

TEXT = "The quick brown fox jumps over the lazy dog. " * 20
CONVERSATION = [{"content": TEXT}] * 20
HEADER = {"version": 2, "status": "success", "eval": {"eval_id": "E", "task_id": "T", "task": "toy", "model": "m"}}
INFO = {"agent_info": {"llm": "m"}, "user_info": {"llm": "u"}, "environment_info": {"domain_name": "d"}}
Write = Callable[[Path, int], Path]
Record = Callable[[int], dict[str, Any]]


def document(name: str, record: Callable[[int], str], head: str = "", comma: str = "\n", tail: str = "\n") -> Write:
    """Write records between a head and a tail until the file has its size; by default JSON Lines or CSV."""

    def write(home: Path, size: int) -> Path:
        path, i = home / name, 0
        with path.open("w") as file:
            file.write(head)
            while file.tell() < size:
                file.write(comma * (i > 0) + comma.join(record(j) for j in range(i, i + 100)))
                i += 100
            file.write(tail)
        return path

    return write


def lines(name: str, record: Record) -> Write:
    return document(name, lambda i: json.dumps(record(i)))


def elements(name: str, record: Record, head: str = "[", tail: str = "]") -> Write:
    return document(name, lambda i: json.dumps(record(i)), head, ",", tail)


def write_eval(home: Path, size: int) -> Path:
    with ZipFile(home / "log.eval", "w", 93) as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        with archive.open("summaries.json", "w") as file:
            file.write(b"[" + b",".join(json.dumps(sample(i)).encode() for i in range(200_000)) + b"]")
    return home / "log.eval"


def write_parquet(home: Path, size: int) -> Path:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw, path, i = np.random.default_rng(0), home / "any.parquet", 0
    writer = None
    while writer is None or path.stat().st_size < size:
        ids = np.arange(i, i + 10_000)
        columns = {
            "model": ["m"] * 10_000,
            "benchmark": ["b"] * 10_000,
            "problem_id": ids // 8,
            "passed": ids % 3 == 0,
        }
        table = pa.table(columns | {"text": [draw.bytes(500).hex() for _ in ids]})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table)
        i += 10_000
    writer.close()
    return path


def sample(i: int) -> dict[str, Any]:
    scores = {"match": {"value": "CI"[i % 3 > 0], "answer": "A"}}
    return {"id": i // 4, "epoch": i % 4 + 1, "input": TEXT[:300], "scores": scores}


def lm_eval(i: int) -> dict[str, Any]:
    responses = {"resps": [["x"]], "filtered_resps": ["x"], "filter": "none", "metrics": ["acc"]}
    return {"doc_id": i, "doc": {"q": TEXT}, "doc_hash": f"{i}", "acc": float(i % 2)} | responses


def trial(i: int) -> dict[str, Any]:
    return {"trial_name": f"t{i}", "task_id": f"t{i // 5}", "instruction": TEXT, "is_resolved": i % 3 == 0}


def rollout(i: int) -> dict[str, Any]:
    return {"example_id": i // 8, "prompt": TEXT, "completion": TEXT * 4, "answer": i // 8, "reward": i % 2}


def episode(i: int) -> dict[str, Any]:
    trace = {"calls": [{"model": "m"}], "rewards": {"r": {"score": i % 2}}, "nodes": [{"text": TEXT}] * 5}
    return {"id": f"e{i}", "env": {"id": "b"}, "task": {"key": f"k{i // 8}"}, "ok": True, "traces": [trace]}


def evalplus(i: int) -> str:
    solution = {"solution": TEXT, "base_status": "pass", "plus_status": "fail"}
    return f"{json.dumps(f'HumanEval/{i}')}: {json.dumps([solution] * 200)}"


def completion(i: int) -> dict[str, Any]:
    return {"task_id": f"HumanEval/{i // 20}", "completion": TEXT[:200], "passed": i % 3 == 0}


def conversation(i: int) -> dict[str, Any]:
    return {"task_id": i // 4, "trial": i % 4, "reward": i % 2, "info": {}, "traj": CONVERSATION}


def simulation(i: int) -> dict[str, Any]:
    ids = {"id": f"s{i}", "task_id": f"{i // 4}", "trial": i % 4}
    return ids | {"messages": CONVERSATION, "reward_info": {"reward": float(i % 2)}}


def question(i: int) -> dict[str, Any]:
    about = {"question_id": f"q{i}", "platform": "p", "difficulty": "easy", "contest_date": "2026-01-01"}
    return about | {"output_list": [TEXT] * 10, "graded_list": [i % 2 == 0] * 10, "pass@1": float(i % 2 == 0)}


def every_eval_ever(i: int) -> dict[str, Any]:
    run = {"schema_version": "0.3.0", "evaluation_id": "e", "model_id": "m", "evaluation_name": "b"}
    instance = {"sample_id": f"{i}", "sample_hash": f"{i}", "input": {"raw": TEXT}}
    return run | instance | {"evaluation": {"is_correct": i % 2 == 0}}


def instance(i: int) -> dict[str, Any]:
    names = ["exact_match", *(f"bookkeeping_{j}" for j in range(25))]
    stats = [{"name": {"name": name, "split": "test"}, "count": 1, "mean": float(i % 2)} for name in names]
    return {"instance_id": f"id{i}", "train_trial_index": 0, "stats": stats}


def transcript(i: int) -> dict[str, Any]:
    return sample(i) | {"messages": CONVERSATION}


def row(i: int) -> dict[str, Any]:
    return {"model": "m", "benchmark": "b", "problem_id": i, "passed": True}


LOG = json.dumps(HEADER)[:-1] + ', "samples": ['
SIMULATIONS = json.dumps({"info": INFO})[:-1] + ', "simulations": ['
MODEL, BENCHMARK = ["--model", "m"], ["--benchmark", "b"]
FORMATS: dict[str, tuple[str, Write, list[str]]] = {
    "inspect .eval, 200,000 samples": ("inspect", write_eval, []),
    "inspect .json": ("inspect", elements("log.json", transcript, LOG, "]}"), []),
    "lm-eval": ("lm-eval", lines("samples_toy_2026-01-01T00-00-00.jsonl", lm_eval), []),
    "terminal-bench": ("terminal-bench", elements("results.json", trial, '{"results": [', "]}"), BENCHMARK),
    "verifiers": ("verifiers", lines("results.jsonl", rollout), MODEL + BENCHMARK),
    "prime-rl": ("prime-rl", lines("traces.jsonl", episode), []),
    "evalplus": (
        "evalplus",
        document("m_vllm_temp_0.8.eval_results.json", evalplus, '{"hash": "h", "eval": {', ",", "}}"),
        [],
    ),
    "humaneval": ("humaneval", lines("x.jsonl_results.jsonl", completion), MODEL),
    "tau-bench": ("tau-bench", elements("runs.json", conversation), MODEL),
    "tau2": ("tau2", elements("results.json", simulation, SIMULATIONS, "]}"), []),
    "livecodebench": ("livecodebench", elements("Scenario.codegeneration_10_0.2_eval_all.json", question), []),
    "every-eval-ever": ("every-eval-ever", lines("u_samples.jsonl", every_eval_ever), []),
    "helm": ("helm", elements("per_instance_stats.json", instance), ["--metric", "exact_match", *MODEL]),
    "bare rows": ("generic", lines("any.jsonl", row), []),
    "csv": (
        "generic",
        document("any.csv", lambda i: f"m,b,p{i // 8},{i % 3 and 1}", "model,benchmark,problem_id,passed\n"),
        [],
    ),
    "parquet": ("generic", write_parquet, []),
}


def measure(name: str, size: int, folder: str) -> str:
    """Ingest one file in a process of its own, and describe what it took."""
    format_name, write, options = FORMATS[name]
    with tempfile.TemporaryDirectory(dir=folder) as home:
        path = write(Path(home), size)
        command = [sys.executable, "-m", "scorelake", "ingest", format_name, str(path), "--lake", f"{home}/lake"]
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            assert child.stdout is not None
            report = json.load(child.stdout)
            _, status, usage = os.wait4(child.pid, 0)
        assert status == 0, report
        times = f"{time.perf_counter() - start:>8.1f} s {usage.ru_utime + usage.ru_stime:>7.1f} s of CPU"
        rows, mb = report["total"]["rows"], path.stat().st_size / 2**20
        return f"{name:<32} {mb:>8,.0f} MB {rows:>12,} attempts {times} {usage.ru_maxrss / 1024:>6.0f} MB of memory"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    for name in FORMATS:
        if any(part in name for part in arguments.only.split(",")):
            print(measure(name, arguments.mb << 20, arguments.folder), flush=True)
