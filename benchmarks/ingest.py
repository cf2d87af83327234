"""Ingest one large file of every streaming format: seconds, attempts, and the most memory the process held.

    python benchmarks/ingest.py [--mb 1024] [--only inspect_eval,csv] [--folder /tmp]

Files are made of records that differ in their ids alone, with texts as long as such records have, and are removed
after each measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scorelake.ingest.archives import ZipFile

TEXT = "The quick brown fox jumps over the lazy dog. " * 20
Write = Callable[[Path, int], Path]


def lines(name: str, record: Callable[[int], dict[str, Any]]) -> Write:
    def write(home: Path, size: int) -> Path:
        path, i = home / name, 0
        with path.open("w") as file:
            while file.tell() < size:
                file.write("".join(json.dumps(record(j)) + "\n" for j in range(i, i + 1000)))
                i += 1000
        return path

    return write


def document(name: str, head: str, item: Callable[[int], str], tail: str) -> Write:
    def write(home: Path, size: int) -> Path:
        path, i = home / name, 0
        with path.open("w") as file:
            file.write(head)
            while file.tell() < size:
                file.write(("," if i else "") + ",".join(item(j) for j in range(i, i + 100)))
                i += 100
            file.write(tail)
        return path

    return write


HEADER = {"version": 2, "status": "success", "eval": {"eval_id": "E", "task_id": "T", "task": "toy", "model": "m"}}
INFO = {"agent_info": {"llm": "m"}, "user_info": {"llm": "u"}, "environment_info": {"domain_name": "d"}}


def sample(i: int) -> dict[str, Any]:
    return {
        "id": i // 4,
        "epoch": i % 4 + 1,
        "input": TEXT[:300],
        "scores": {"match": {"value": "CI"[i % 3 > 0], "answer": "A"}},
    }


def evals(samples: int) -> Write:
    def write(home: Path, size: int) -> Path:
        with ZipFile(home / "log.eval", "w", 93) as archive:
            archive.writestr("header.json", json.dumps(HEADER))
            with archive.open("summaries.json", "w") as file:
                file.write(b"[" + b",".join(json.dumps(sample(i)).encode() for i in range(samples)) + b"]")
        return home / "log.eval"

    return write


def csv(home: Path, size: int) -> Path:
    path, i = home / "any.csv", 0
    with path.open("w") as file:
        file.write("model,benchmark,problem_id,passed\n")
        while file.tell() < size:
            file.write("".join(f"m,b,p{j // 8},{j % 3 and 1}\n" for j in range(i, i + 1000)))
            i += 1000
    return path


def parquet(home: Path, size: int) -> Path:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    path, i = home / "any.parquet", 0
    writer = None
    while writer is None or path.stat().st_size < size:
        ids = np.arange(i, i + 10_000)
        table = pa.table(
            {
                "model": ["m"] * 10_000,
                "benchmark": ["b"] * 10_000,
                "problem_id": ids // 8,
                "passed": ids % 3 == 0,
                "text": [draw.bytes(500).hex() for _ in ids],
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table)
        i += 10_000
    writer.close()
    return path


def _trial(i: int) -> str:
    trial = {"trial_name": f"t{i}", "task_id": f"t{i // 5}", "instruction": TEXT, "is_resolved": i % 3 == 0}
    return json.dumps(trial)


def _question(i: int) -> str:
    told = {"question_id": f"q{i}", "platform": "p", "output_list": [TEXT] * 10, "graded_list": [i % 2 == 0] * 10}
    return json.dumps(told | {"difficulty": "easy", "contest_date": "2026-01-01", "pass@1": float(i % 2 == 0)})


def _instance(i: int) -> str:
    names = ["exact_match", *(f"bookkeeping_{j}" for j in range(25))]
    stats = [{"name": {"name": name, "split": "test"}, "count": 1, "mean": float(i % 2)} for name in names]
    return json.dumps({"instance_id": f"id{i}", "train_trial_index": 0, "stats": stats})


def _simulation(i: int) -> dict[str, Any]:
    return {"id": f"s{i}", "task_id": f"{i // 4}", "trial": i % 4, "messages": [{"content": TEXT}] * 20}


FORMATS: dict[str, tuple[str, Write, list[str]]] = {
    "inspect .eval, 200,000 samples": ("inspect", evals(200_000), []),
    "inspect .json": (
        "inspect",
        document(
            "log.json",
            json.dumps(HEADER)[:-1] + ', "samples": [',
            lambda i: json.dumps(sample(i) | {"messages": [{"content": TEXT}] * 20}),
            "]}",
        ),
        [],
    ),
    "lm-eval": (
        "lm-eval",
        lines(
            "samples_toy_2026-01-01T00-00-00.jsonl",
            lambda i: {
                "doc_id": i,
                "doc": {"q": TEXT},
                "resps": [["x"]],
                "filtered_resps": ["x"],
                "filter": "none",
                "metrics": ["acc"],
                "doc_hash": f"{i}",
                "acc": float(i % 2),
            },
        ),
        [],
    ),
    "terminal-bench": (
        "terminal-bench",
        document("results.json", '{"results": [', _trial, "]}"),
        ["--benchmark", "b"],
    ),
    "verifiers": (
        "verifiers",
        lines(
            "results.jsonl",
            lambda i: {
                "example_id": i // 8,
                "prompt": TEXT,
                "completion": TEXT * 4,
                "answer": i // 8,
                "reward": i % 2,
            },
        ),
        ["--model", "m", "--benchmark", "b"],
    ),
    "prime-rl": (
        "prime-rl",
        lines(
            "traces.jsonl",
            lambda i: {
                "id": f"e{i}",
                "env": {"id": "b"},
                "task": {"key": f"k{i // 8}"},
                "ok": True,
                "traces": [
                    {"calls": [{"model": "m"}], "rewards": {"r": {"score": i % 2}}, "nodes": [{"text": TEXT}] * 5}
                ],
            },
        ),
        [],
    ),
    "evalplus": (
        "evalplus",
        document(
            "m_vllm_temp_0.8.eval_results.json",
            '{"hash": "h", "eval": {',
            lambda i: (
                json.dumps(f"HumanEval/{i}")
                + ": "
                + json.dumps([{"solution": TEXT, "base_status": "pass", "plus_status": "fail"}] * 200)
            ),
            "}}",
        ),
        [],
    ),
    "humaneval": (
        "humaneval",
        lines(
            "x.jsonl_results.jsonl",
            lambda i: {"task_id": f"HumanEval/{i // 20}", "completion": TEXT[:200], "passed": i % 3 == 0},
        ),
        ["--model", "m"],
    ),
    "tau-bench": (
        "tau-bench",
        document(
            "runs.json",
            "[",
            lambda i: json.dumps(
                {"task_id": i // 4, "trial": i % 4, "reward": i % 2, "info": {}, "traj": [{"content": TEXT}] * 20}
            ),
            "]",
        ),
        ["--model", "m"],
    ),
    "tau2": (
        "tau2",
        document(
            "results.json",
            json.dumps({"info": INFO})[:-1] + ', "simulations": [',
            lambda i: json.dumps(_simulation(i) | {"reward_info": {"reward": float(i % 2)}}),
            "]}",
        ),
        [],
    ),
    "livecodebench": (
        "livecodebench",
        document("Scenario.codegeneration_10_0.2_eval_all.json", "[", _question, "]"),
        [],
    ),
    "every-eval-ever": (
        "every-eval-ever",
        lines(
            "u_samples.jsonl",
            lambda i: {
                "schema_version": "0.3.0",
                "evaluation_id": "e",
                "model_id": "m",
                "evaluation_name": "b",
                "sample_id": f"{i}",
                "sample_hash": f"{i}",
                "input": {"raw": TEXT},
                "evaluation": {"is_correct": i % 2 == 0},
            },
        ),
        [],
    ),
    "helm": (
        "helm",
        document("per_instance_stats.json", "[", _instance, "]"),
        ["--metric", "exact_match", "--model", "m"],
    ),
    "bare rows": (
        "generic",
        lines("any.jsonl", lambda i: {"model": "m", "benchmark": "b", "problem_id": i, "passed": True}),
        [],
    ),
    "csv": ("generic", csv, []),
    "parquet": ("generic", parquet, []),
}


def measured(command: list[str]) -> tuple[float, float, float, dict[str, Any]]:
    """Seconds, seconds of processor, megabytes and the document of a command in a process of its own."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = child.communicate()
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, most = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    told = json.loads(out)
    assert told["exit_code"] == 0, errors.decode()
    return seconds, cpu, most, told


def each(only: list[str], size: int, folder: str) -> Iterator[str]:
    for name, (format_, write, options) in FORMATS.items():
        if only and not any(part in name for part in only):
            continue
        with tempfile.TemporaryDirectory(dir=folder) as home:
            path = write(Path(home), size)
            lake = f"{home}/lake"
            command = [
                sys.executable,
                "-m",
                "scorelake",
                "ingest",
                format_,
                str(path),
                "--lake",
                lake,
                "--json",
                *options,
            ]
            seconds, cpu, most, told = measured(command)
            rows, mb = told["total"]["rows"], path.stat().st_size / 2**20
            times = f"{seconds:>8.1f} s {cpu:>7.1f} s of CPU"
            yield f"{name:<32} {mb:>8,.0f} MB {rows:>12,} attempts {times} {most:>6.0f} MB held"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    asked = parser.parse_args()
    if os.environ.get("SCORELAKE_CHILD"):  # the system tells the most of all children
        for line in each([asked.only], asked.mb << 20, asked.folder):
            print(line, flush=True)
    else:
        chosen = [name for name in FORMATS if not asked.only or any(part in name for part in asked.only.split(","))]
        for name in chosen:
            arguments = [sys.executable, __file__, "--mb", str(asked.mb), "--only", name, "--folder", asked.folder]
            subprocess.run(arguments, check=True, env={**os.environ, "SCORELAKE_CHILD": "1"})
