"""Real result files of every tool, each with the number that must come out, or the refusal.

They are not part of the repository: SCORELAKE_SAMPLES names the folder, or it lies beside the repository as
../shared/samples. Without it these tests are skipped, and say so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ingested as lakes
from conftest import REPO
from scorelake.errors import DataError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.ingest_report import IngestReport
from scorelake.ingest.job import ingest

SAMPLES = Path(os.environ.get("SCORELAKE_SAMPLES", REPO.parent / "shared" / "samples"))
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no samples of other tools in {SAMPLES}")


def load(lake: Path, *names: str, format: str = "auto", skip: bool = False, **options: Any) -> IngestReport:  # noqa: A002
    return ingest([str(SAMPLES / name) for name in names], str(lake), format, IngestOptions(**options), skip)


def refused(lake: Path, *names: str, **options: Any) -> str:
    """The refusals as they are told; nothing may have been written."""
    report = load(lake, *names, **options)
    assert report.status == "refused", report
    assert not lake.exists()
    return "\n".join(f"{error.where}: {error.what} ({error.hint})" for error in report.refused)


def only(report: IngestReport) -> Any:
    assert not report.refused, [str(error) for error in report.refused]
    (receipt,) = report.sources
    assert receipt.rows == receipt.graded + receipt.ungraded + receipt.duplicate + receipt.refused
    return receipt


# --- Inspect ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "passed", "graded", "accuracy"),
    [
        ("popularity_2x2_epochs.eval", 3, 4, 0.75),
        ("popularity_scored.eval", 8, 10, 0.8),
        ("mmlu_subject_metadata.eval", 0, 1, 0.0),
        ("message_dedup_v3.eval", 0, 1, 0.0),
        ("popularity_cancelled.json", 2, 3, 2 / 3),
        ("security_guide.json", 3, 3, 1.0),
        ("arc_easy_qwen.json", 1, 3, 1 / 3),
    ],
)
def test_inspect(tmp_path: Path, name: str, passed: int, graded: int, accuracy: float) -> None:
    told = only(load(tmp_path / "lake", f"inspect/{name}"))
    assert (told.format, told.passed, told.graded, told.rows) == ("inspect", passed, graded, graded)
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (passed, graded)
    assert told.claims
    assert told.claims[0]["theirs"] == pytest.approx(accuracy)
    assert not told.warnings
    assert ("cancelled" in name) == any("cancelled" in note for note in told.notes)


def test_inspect_epochs(tmp_path: Path) -> None:
    load(tmp_path / "lake", "inspect/popularity_2x2_epochs.eval")
    found = lakes.problems(tmp_path / "lake")
    assert (lakes.pass_at(found, 2), lakes.pass_all(found, 2)) == (1.0, 0.5)
    (row, *_) = lakes.rows(tmp_path / "lake")
    assert (row["model"], row["benchmark"]) == ("azureai/Meta-Llama-3-1-405B-Instruct-jqf", "popularity")


def test_inspect_unscored_is_ungraded(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "inspect/popularity_unscored.eval"))
    assert (told.rows, told.graded, told.ungraded, told.mean) == (10, 0, 10, None)


@pytest.mark.parametrize("name", ["no_samples_cancelled.json", "log_with_nan.json", "simpleqa_header_only.json"])
def test_inspect_without_samples(tmp_path: Path, name: str) -> None:
    told = only(load(tmp_path / "lake", f"inspect/{name}"))
    assert (told.status, told.rows, told.files) == ("empty", 0, [])
    assert name == "log_with_nan.json" or any(
        "no graded attempts to check it against" in warning for warning in told.warnings
    )


def test_inspect_reward(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "inspect/cyse2_float_score.json"))
    assert (told.rows, told.passed, told.mean) == (1, None, 0.65)
    assert [row["score"] for row in lakes.rows(tmp_path / "lake")] == [0.65]
    told = only(load(tmp_path / "passes", "inspect/cyse2_float_score.json", threshold=0.5))
    assert (told.passed, told.graded) == (1, 1)


def test_inspect_of_today(tmp_path: Path) -> None:
    name = "inspect/generated_0.3.285_zstd_5x4_epochs.eval"
    assert "2 scores: length, verdict (choose one with --scorer)" in refused(tmp_path / "lake", name)
    told = only(load(tmp_path / "lake", name, scorer="verdict", subject="metadata.subject"))
    assert (told.rows, told.graded, told.passed, told.ungraded, told.errors) == (20, 18, 10, 2, 2)
    assert [claim["theirs"] for claim in told.claims] == pytest.approx([8 / 15, 23 / 30, 0.3])
    assert not told.warnings
    found = lakes.problems(tmp_path / "lake")
    assert lakes.pass_at(found, 1) == pytest.approx(8 / 15)
    assert (lakes.pass_at(found, 3), lakes.pass_all(found, 3)) == (pytest.approx(0.95), pytest.approx(0.25))
    assert {row["subject"] for row in lakes.rows(tmp_path / "lake")} == {"alg", "geo", "num"}


# --- lm-evaluation-harness ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "passed", "graded"),
    [("gpt-4o", 390, 397), ("meta-llama__Llama-3.1-8B-Instruct", 5, 10), ("eee", 0, 10)],
)
def test_lm_eval(tmp_path: Path, folder: str, passed: int, graded: int) -> None:
    report = load(tmp_path / "lake", f"lm_eval/{folder}")
    told = only(report)
    assert (told.format, told.passed, told.graded) == ("lm-eval", passed, graded)
    assert told.claims
    assert not told.warnings
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (passed, graded)
    assert len(report.ignored) == 1, "the results file is no samples file"


def test_lm_eval_filters(tmp_path: Path) -> None:
    assert "3 filters (get-answer1, get-answer2, get-option)" in refused(tmp_path / "lake", "lm_eval/three_filters")
    assert "2 filters: flexible-extract, strict-match" in refused(tmp_path / "lake", "lm_eval/granite")
    for name in ("strict-match", "flexible-extract"):
        told = only(load(tmp_path / name, "lm_eval/granite", filter=name))
        assert (told.rows, told.passed, told.warnings) == (1, 1, [])


def test_lm_eval_two_graders_are_not_pooled(tmp_path: Path) -> None:
    report = load(tmp_path / "lake", "lm_eval/upstage__SOLAR-10.7B-Instruct-v1.0")
    assert sorted((told.passed, told.graded) for told in report.sources) == [(0, 10), (8, 10)]
    found = lakes.problems(tmp_path / "lake")
    assert {len(values) for values in found.values()} == {1}
    assert len(found) == 20
    assert "differ in grader" in report.total.notes[0]


def test_lm_eval_edited(tmp_path: Path) -> None:
    assert "broken JSON at line" in refused(tmp_path / "lake", "lm_eval/multiline_edited", format="lm-eval")


# --- Harbor and Terminal-Bench ------------------------------------------------------------------------------------


def test_harbor(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "harbor"))
    assert (told.rows, told.graded, told.passed, told.errors) == (28, 28, 12, 4)
    assert told.mean_errors_failed == pytest.approx(12 / 28)
    assert told.mean_errors_ungraded == pytest.approx(0.5)
    assert any("0.41573" in warning for warning in told.warnings)
    told = only(load(tmp_path / "ungraded", "harbor", errors="ungraded"))
    assert (told.graded, told.ungraded, told.passed) == (24, 4, 12)
    (row, *_) = lakes.rows(tmp_path / "lake")
    assert (row["benchmark"], row["model"]) == ("terminal-bench@2.0", "openclaw openai/z-ai/glm-5")


def test_harbor_job_file_alone(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("result.json", "config.json"):
        (job / name).write_bytes((SAMPLES / "harbor/z-ai-glm-5-openclaw-terminal-bench-2.0" / name).read_bytes())
    told = only(ingest([str(job)], str(tmp_path / "lake")))
    assert (told.rows, told.passed, told.errors) == (89, 37, 4)
    assert told.warnings == []


def test_terminal_bench(tmp_path: Path) -> None:
    name = "terminal_bench/orchestrator_qwen-3-coder-480B_n5"
    told = only(load(tmp_path / "lake", name))
    assert (told.rows, told.graded, told.passed, told.errors) == (400, 400, 77, 42)
    assert told.model == "orchestrator_qwen-3-coder-480B_n5"
    assert {claim["name"]: claim["theirs"] for claim in told.claims} == {
        "accuracy": 0.1925,
        "pass@2": 0.2725,
        "pass@4": 0.3575,
        "pass@5": 0.3875,
    }
    assert not told.warnings
    found = lakes.problems(tmp_path / "lake")
    assert lakes.pass_all(found, 2) == pytest.approx(0.1125)
    assert lakes.pass_all(found, 5) == pytest.approx(0.05)
    only(load(tmp_path / "ungraded", name, errors="ungraded"))
    assert lakes.pass_at(lakes.problems(tmp_path / "ungraded"), 1) == pytest.approx(0.204375)


def test_terminal_bench_two_runs(tmp_path: Path) -> None:
    name = "terminal_bench/mini-swe-agent_claude-sonnet-4"
    assert "no benchmark in the file (give --benchmark)" in refused(tmp_path / "lake", name)
    report = load(tmp_path / "lake", name, benchmark="terminal-bench-core@0.1.1")
    assert sorted(round(told.mean, 6) for told in report.sources) == [0.075, 0.1375]
    assert not [warning for told in report.sources for warning in told.warnings]
    assert {told.model for told in report.sources} == {"mini-swe-agent_claude-sonnet-4"}
    found = lakes.problems(tmp_path / "lake")
    assert lakes.pass_at(found, 1) == pytest.approx(0.10625)
    assert (lakes.pass_at(found, 2), lakes.pass_all(found, 2)) == (pytest.approx(0.1875), pytest.approx(0.025))
    load(tmp_path / "ungraded", name, benchmark="tb", errors="ungraded")
    found = lakes.problems(tmp_path / "ungraded")
    assert lakes.counts(found) == (17, 65)
    assert sum(not values for values in found.values()) == 26


# --- SWE-bench ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "passed", "rows"),
    [
        ("report/claude-haiku-4-5-20251001.validation-baseline-eval.json", None, 25, 40),
        ("report/claude-haiku-4-5-20251001.validation-polydev-eval.json", None, 25, 40),
        ("report/vexp-swebench-1774184993333.vexp-swebench-1774184993333.json", None, 73, 100),
        ("sb-cli/swe-bench_verified__test__polydev_v3_30tasks.json", "polydev", 26, 30),
        ("per_instance", None, 19, 24),
        ("experiments_legacy/results.json", "aider", 79, 300),
        ("pro/gpt-4o-paper/eval_results.json", None, 36, 619),
        ("pro/claude-sonnet-4-paper/eval_results.json", None, 166, 663),
    ],
)
def test_swebench(tmp_path: Path, name: str, model: str | None, passed: int, rows: int) -> None:
    told = only(load(tmp_path / "lake", f"swebench/{name}", benchmark="swe", model=model))
    assert (told.format, told.passed, told.graded, told.rows) == ("swebench", passed, rows, rows)
    assert not told.warnings
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (passed, rows)
    assert all("/" in row["subject"] for row in lakes.rows(tmp_path / "lake"))


def test_swebench_names(tmp_path: Path) -> None:
    assert "give --model" in refused(tmp_path / "lake", "swebench/sb-cli", benchmark="swe")
    assert "no benchmark in the file (give --benchmark)" in refused(tmp_path / "lake", "swebench/report")
    told = only(load(tmp_path / "lake", "swebench/per_instance", benchmark="swe"))
    assert told.model == told.run == "vexp-swebench-1774184993333"


def test_swebench_denominators(tmp_path: Path) -> None:
    name = "swebench/report/claude-haiku-4-5-20251001.validation-polydev-eval.json"
    told = only(load(tmp_path / "lake", name, benchmark="swe", errors="ungraded"))
    assert (told.passed, told.graded, told.ungraded) == (25, 39, 1)
    assert told.mean == pytest.approx(25 / 39)
    assert told.mean_errors_failed == pytest.approx(0.625)
    name = "swebench/report/claude-haiku-4-5-20251001.validation-baseline-eval.json"
    told = only(load(tmp_path / "all", name, benchmark="swe", missing="fail"))
    assert (told.passed, told.graded, told.mean) == (25, 500, 0.05)


def test_swebench_report_and_instances_of_one_run_are_the_same_attempts(tmp_path: Path) -> None:
    names = ("swebench/per_instance", "swebench/report/vexp-swebench-1774184993333.vexp-swebench-1774184993333.json")
    report = load(tmp_path / "lake", *names, benchmark="swe")
    assert (report.total.rows, report.total.graded, report.total.duplicate, report.total.passed) == (124, 100, 24, 73)
    found = lakes.problems(tmp_path / "lake")
    assert lakes.counts(found) == (73, 100)


# --- verifiers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "passed", "rows", "found"),
    [
        ("math-python--gpt-4.1-mini", 14, 15, 5),
        ("math-python--gpt-5-nano", 15, 15, 5),
        ("tool-test--gpt-4.1-mini", 15, 15, 5),
    ],
)
def test_verifiers_passes(tmp_path: Path, name: str, passed: int, rows: int, found: int) -> None:
    told = only(load(tmp_path / "lake", f"verifiers/{name}"))
    assert (told.format, told.passed, told.graded, told.rows) == ("verifiers", passed, rows, rows)
    grouped = lakes.problems(tmp_path / "lake")
    assert len(grouped) == found
    assert {len(values) for values in grouped.values()} == {3}
    assert ("math" in name) == any("problems are identified by prompt and answer" in note for note in told.notes)
    if passed == 14:
        assert (lakes.pass_at(grouped, 3), lakes.pass_all(grouped, 3)) == (1.0, pytest.approx(0.8))
        assert not told.warnings
    if "tool" in name:
        assert "the file reports avg_reward 0, but its attempts give 1" in told.warnings


@pytest.mark.parametrize(
    ("name", "mean", "best"),
    [
        ("wordle--gpt-5-mini", 1.3806349206, (1.4088888889, 1.4266666667)),
        ("wordle--qwen--qwen3-30b-a3b-thinking-2507", 1.1165439153, (1.2848550265, 1.3249333333)),
    ],
)
def test_verifiers_rewards(tmp_path: Path, name: str, mean: float, best: tuple[float, float]) -> None:
    told = only(load(tmp_path / "lake", f"verifiers/{name}"))
    assert told.mean == pytest.approx(mean)
    found = lakes.problems(tmp_path / "lake")
    assert (lakes.best_of(found, 2), lakes.best_of(found, 3)) == (pytest.approx(best[0]), pytest.approx(best[1]))
    assert len(found) == 5
    assert told.warnings, "metadata says 0.0"


def test_verifiers_named_metric(tmp_path: Path) -> None:
    name = "verifiers/wordle--qwen--qwen3-30b-a3b-thinking-2507"
    told = only(load(tmp_path / "lake", name, metric="check_answer_reward_func"))
    assert (told.passed, told.graded) == (8, 15)
    found = lakes.problems(tmp_path / "lake")
    values = [lakes.pass_at(found, 1), lakes.pass_at(found, 2), lakes.pass_all(found, 2), lakes.pass_at(found, 3)]
    assert values == [pytest.approx(each) for each in (8 / 15, 0.8, 4 / 15, 0.8)]
    assert lakes.pass_all(found, 3) == 0


def test_verifiers_other_runs(tmp_path: Path) -> None:
    told = only(load(tmp_path / "hangman", "verifiers/hangman--gpt-5-mini"))
    assert (told.rows, told.mean, told.warnings) == (20, pytest.approx(0.325), [])
    assert any("5 examples x 5 rollouts; the file has 20 problems in 20 rows" in note for note in told.notes)
    told = only(load(tmp_path / "hosted", "verifiers/prime_hosted_run"))
    assert (told.rows, told.mean) == (25, pytest.approx(1.7852))
    assert len(lakes.problems(tmp_path / "hosted")) == 3
    assert {row["model"] for row in lakes.rows(tmp_path / "hosted")} == {"Qwen/Qwen3.5-2B@step 40"}
    assert "is a git-LFS pointer, not a result (git lfs pull)" in refused(tmp_path / "lfs", "verifiers/lfs_pointer")


# --- code ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "base", "plus", "n"),
    [
        ("phi-3-mini_none/eval_results.json", 114, 104, 164),
        ("phi-3-mini_archive_none/eval_results.json", 105, 98, 164),
        ("rd_gene_1_1samples_eval_results.json", 98, 89, 164),
        ("v01_n10_samples_eval_results.json", 0, 0, 1640),
        ("v01_n1_samples_eval_results.json", 0, 0, 164),
    ],
)
def test_evalplus(tmp_path: Path, name: str, base: int, plus: int, n: int) -> None:
    model = None if "phi" in name else "m"
    told = only(load(tmp_path / "lake", f"evalplus/{name}", model=model))
    assert (told.rows, told.graded, told.benchmarks) == (2 * n, 2 * n, ["humaneval", "humaneval+"])
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval")) == (base, n)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval+")) == (plus, n)
    assert model or told.model == name.split("/", maxsplit=1)[0]


@pytest.mark.parametrize(
    ("name", "passed", "rows", "value"),
    [
        ("samples_multi.jsonl_results.jsonl", 89, 166, 0.5365853659),
        ("samples4.jsonl_results.jsonl", 105, 164, 0.6402439024),
        ("qwen2.5-coder_7b_results.jsonl", 120, 164, 0.7317073171),
    ],
)
def test_humaneval(tmp_path: Path, name: str, passed: int, rows: int, value: float) -> None:
    assert "give --model" in refused(tmp_path / "lake", f"humaneval/{name}")
    told = only(load(tmp_path / "lake", f"humaneval/{name}", model="m"))
    assert (told.passed, told.rows, told.benchmarks) == (passed, rows, ["humaneval"])
    assert told.histogram == ({"1": 162, "2": 2} if rows == 166 else {"1": 164})
    assert lakes.pass_at(lakes.problems(tmp_path / "lake"), 1) == pytest.approx(value)


def test_livecodebench(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "livecodebench/Gemma-2-9b-Ins"))
    assert (told.passed, told.rows, told.model, told.warnings) == (201, 600, "Gemma-2-9b-Ins", [])
    found = lakes.problems(tmp_path / "lake")
    assert lakes.pass_at(found, 1) == pytest.approx(0.335)
    assert lakes.pass_at(found, 5) == pytest.approx(0.3499338624)
    assert (lakes.pass_at(found, 10), lakes.pass_all(found, 10)) == (pytest.approx(0.35), pytest.approx(0.3166666667))
    assert {(row["difficulty"], row["subject"]) for row in lakes.rows(tmp_path / "lake")} == {("easy", "HumanEval")}


def test_livecodebench_difficulties(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "livecodebench/Qwen2.5-Ins-7B"))
    assert (told.passed, told.rows) == (13, 43)
    by: dict[str, list[bool]] = {}
    for row in lakes.rows(tmp_path / "lake"):
        by.setdefault(row["difficulty"], []).append(row["passed"])
    assert {key: (sum(told), len(told)) for key, told in by.items()} == {
        "easy": (6, 13),
        "medium": (5, 14),
        "hard": (2, 16),
    }
    assert "git-LFS pointer" in refused(tmp_path / "none", "livecodebench/lfs_pointer")


# --- tau ----------------------------------------------------------------------------------------------------------


def test_tau2(tmp_path: Path) -> None:
    told = only(load(tmp_path / "lake", "tau2/mock_gpt-4.1-mini_10_tasks"))
    assert (told.passed, told.graded, told.model) == (8, 10, "openai/gpt-4.1-mini")
    assert {row["subject"] for row in lakes.rows(tmp_path / "lake")} == {"mock"}
    assert "no folder simulations next to it" in refused(tmp_path / "none", "tau2/dir_format_no_simulations")


def test_tau2_three_runs(tmp_path: Path) -> None:
    names = [f"tau2/{folder.name}" for folder in sorted((SAMPLES / "tau2").glob("airline*"))]
    report = load(tmp_path / "apart", *names)
    assert {len(values) for values in lakes.problems(tmp_path / "apart").values()} == {1}
    assert "--protocol-ignore git_commit pools them" in report.total.notes[0]
    load(tmp_path / "lake", *names, ignore=("git_commit",))
    found = lakes.problems(tmp_path / "lake")
    assert lakes.counts(found) == (1, 3)
    assert len(found) == 1
    values = [lakes.pass_at(found, 1), lakes.pass_at(found, 2), lakes.pass_all(found, 2)]
    assert values == [pytest.approx(1 / 3), pytest.approx(2 / 3), 0]


def test_tau_bench(tmp_path: Path) -> None:
    name = "tau_bench/act-gemini-2.0-flash_19_tasks.json"
    told = only(load(tmp_path / "lake", name, model="gemini"))
    assert (told.passed, told.graded, told.errors) == (3, 19, 13)
    assert told.mean == pytest.approx(0.1578947368)
    assert told.mean_errors_ungraded == pytest.approx(0.5)
    told = only(load(tmp_path / "ungraded", name, model="gemini", errors="ungraded"))
    assert (told.passed, told.graded, told.ungraded) == (3, 6, 13)


# --- the rest -----------------------------------------------------------------------------------------------------


def test_every_eval_ever(tmp_path: Path) -> None:
    told = only(load(tmp_path / "none", "eee/676f4465-ce78-411a-9f5a-c97b3d2eac4f.json"))
    assert (told.status, told.rows) == ("empty", 0)
    assert any("so no attempts" in note for note in told.notes)
    told = only(load(tmp_path / "lake", "eee/demo"))
    assert (told.passed, told.rows, told.model) == (1, 1, "demo-org/demo-model")
    (row,) = lakes.rows(tmp_path / "lake")
    assert (row["subject"], row["answer"], row["benchmark"]) == ("arithmetic", "4", "demo-source.demo_bench")


def test_helm(tmp_path: Path) -> None:
    name = "helm/mmlu-subject=philosophy,method=multiple_choice_joint,model=openai_gpt2"
    assert "choose one with --metric" in refused(tmp_path / "lake", name)
    assert "2 splits: test, valid (choose one with --split)" in refused(tmp_path / "lake", name, metric="exact_match")
    for split, passed, rows in (("test", 1, 9), ("valid", 0, 1)):
        told = only(load(tmp_path / split, name, metric="exact_match", split=split))
        assert (told.passed, told.rows, told.warnings, told.model) == (passed, rows, [], "openai/gpt2")
        assert told.claims
    assert {row["subject"] for row in lakes.rows(tmp_path / "test")} == {"philosophy"}


def test_helm_others(tmp_path: Path) -> None:
    name = "helm/commonsense-dataset=hellaswag,method=multiple_choice_joint,model=eleutherai_pythia-1b-v0"
    told = only(load(tmp_path / "hellaswag", name, metric="exact_match"))
    assert (told.passed, told.rows, told.warnings) == (3, 10, [])
    for split, rows, value in (("test", 4, 0.1742424242), ("valid", 1, 0.0)):
        told = only(load(tmp_path / split, "helm/narrative_qa-model=openai_gpt2", metric="f1_score", split=split))
        assert (told.rows, told.warnings) == (rows, [])
        assert told.mean == pytest.approx(value)
    told = only(load(tmp_path / "exact", "helm/narrative_qa-model=openai_gpt2", metric="exact_match", split="test"))
    assert told.passed == 0


def test_bfcl(tmp_path: Path) -> None:
    report = load(tmp_path / "lake", "bfcl")
    assert sorted((told.passed, told.rows) for told in report.sources) == [(48, 50), (100, 100)]
    assert not [warning for told in report.sources for warning in told.warnings]
    failed = {row["problem_id"] for row in lakes.rows(tmp_path / "lake") if not row["passed"]}
    assert "executable_multiple_function_45" in failed


def test_generic(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "map": (
            ("problem_id", "question_id"),
            ("subject", "category"),
            ("passed", "pred==answer"),
            ("answer", "pred"),
        ),
        "model": "Llama-2-7b",
        "benchmark": "mmlu-pro",
    }
    told = only(load(tmp_path / "lake", "generic", errors="fail", **options))
    assert (told.passed, told.graded, told.errors) == (23, 151, 27)
    assert told.mean == pytest.approx(0.1523178808)
    told = only(load(tmp_path / "ungraded", "generic", **options))
    assert (told.passed, told.graded, told.ungraded) == (23, 124, 27)
    assert told.mean == pytest.approx(0.1854838710)


def test_everything_at_once(tmp_path: Path) -> None:
    """A folder of all tools: every refusal is listed, nothing is written; what is left out is named."""
    with pytest.raises(DataError, match="no results in"):
        load(tmp_path / "lake", "bfcl", format="inspect")
    report = load(tmp_path / "lake", ".")
    assert report.status == "refused"
    assert not (tmp_path / "lake").exists()
    assert not [error for error in report.refused if "could be" in error.what]
