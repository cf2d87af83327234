"""What the logs of other tools say was spent is what the tables say: the sums of real files, to the cent.

The files are not part of the repository (see tests/ingest/test_samples.py); without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from conftest import REPO, ask, run
from scorelake.ingest.job import ingest

SAMPLES = Path(os.environ.get("SCORELAKE_SAMPLES", REPO.parent / "shared" / "samples"))
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no samples of other tools in {SAMPLES}")
CONFIG = """
[measures]
cost_usd = {kind = "cost"}
input_tokens = {kind = "tokens"}
output_tokens = {kind = "tokens"}
seconds = {kind = "time"}
"""
Numbers = dict[str, float]


def inspect(path: Path) -> list[Numbers]:
    if path.suffix == ".json":
        samples = json.loads(path.read_text())["samples"]
    else:
        with ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/")]
            samples = [json.loads(archive.read(name)) for name in names]
    keys = ("input_tokens", "output_tokens")
    sums = [{key: sum(each[key] for each in sample["model_usage"].values()) for key in keys} for sample in samples]
    return [each | {"seconds": sample.get("total_time", 0)} for each, sample in zip(sums, samples, strict=True)]


def tau2(path: Path) -> list[Numbers]:
    simulations = json.loads((path / "results.json").read_text())["simulations"]
    return [{"cost_usd": each["agent_cost"], "seconds": each["duration"]} for each in simulations]


def harbor(path: Path) -> list[Numbers]:
    def seconds(times: dict[str, Any]) -> float:
        start, end = (datetime.fromisoformat(times[f"{name}_at"]) for name in ("started", "finished"))
        return (end - start).total_seconds()

    trials = [json.loads(each.read_text()) for each in path.glob("*/result.json")]
    names = {"cost_usd": "cost_usd", "input_tokens": "n_input_tokens", "output_tokens": "n_output_tokens"}
    out: list[Numbers] = []
    for trial in trials:
        usage, times = trial.get("agent_result") or {}, trial.get("agent_execution")
        out.append({name: usage.get(theirs) for name, theirs in names.items()})
        out[-1]["seconds"] = seconds(times) if times else 0
    return out


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (inspect, "inspect/mmlu_subject_metadata.eval"),
        (inspect, "inspect/arc_easy_qwen.json"),
        (inspect, "inspect/security_guide.json"),
        (tau2, "tau2/mock_gpt-4.1-mini_10_tasks"),
        (tau2, "tau2/airline_run_20260601-023242-818996"),
        (harbor, "harbor/z-ai-glm-5-openclaw-terminal-bench-2.0"),
    ],
)
def test_totals_are_the_sums_of_the_files(read: Any, name: str, tmp_path: Path) -> None:
    attempts = read(SAMPLES / name)
    ingest([str(SAMPLES / name)], str(tmp_path / "lake"))
    present = {key for each in attempts for key, value in each.items() if value}
    lines = [line for line in CONFIG.splitlines() if line.split(" ")[0] in present | {"[measures]"}]
    run(tmp_path / "lake", tmp_path / "out", "\n".join(lines))
    rows = ask(
        tmp_path / "out",
        "SELECT measure, sum(total + ungraded_total) FROM measure_summary WHERE subject IS NULL GROUP BY 1",
    )
    totals = dict(rows)
    assert totals.keys() == present
    for key, total in totals.items():
        assert total == pytest.approx(sum(each.get(key) or 0 for each in attempts), abs=0.005), key
