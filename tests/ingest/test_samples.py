"""Real result files of every tool, each with the numbers that must come out, or the refusal.

They are not part of the repository: SCORELAKE_SAMPLES names the folder, or it is ../shared/samples next to the
repository. Without it these tests are skipped.
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
SWE = {"benchmark": "swe"}
TB1, TB2 = "terminal_bench/orchestrator_qwen-3-coder-480B_n5", "terminal_bench/mini-swe-agent_claude-sonnet-4"
REPORT = "swebench/report/claude-haiku-4-5-20251001.validation"
BASELINE, POLYDEV = f"{REPORT}-baseline-eval.json", f"{REPORT}-polydev-eval.json"
SB_CLI = "swebench/sb-cli/swe-bench_verified__test__polydev_v3_30tasks.json"
M, UNGRADED = {"model": "m"}, {"errors": "ungraded"}
CYSE = "inspect/cyse2_float_score.json"
HUMANEVAL = "humaneval/samples_multi.jsonl_results.jsonl"
VEXP = "vexp-swebench-1774184993333"
MATH, TOOLS = "verifiers/math-python--gpt-4.1-mini", "verifiers/tool-test--gpt-4.1-mini"
WORDLE = "verifiers/wordle--qwen--qwen3-30b-a3b-thinking-2507"
INSPECT = "inspect/generated_0.3.285_zstd_5x4_epochs.eval"
PHILOSOPHY = "helm/mmlu-subject=philosophy,method=multiple_choice_joint,model=openai_gpt2"
HELLASWAG = "helm/commonsense-dataset=hellaswag,method=multiple_choice_joint,model=eleutherai_pythia-1b-v0"
QA = "helm/narrative_qa-model=openai_gpt2"
TAU = "tau_bench/act-gemini-2.0-flash_19_tasks.json"
MMLU = {
    "map": (("problem_id", "question_id"), ("subject", "category"), ("passed", "pred==answer"), ("answer", "pred")),
    "model": "Llama-2-7b",
    "benchmark": "mmlu-pro",
}


def load(lake: Path, *names: str, **options: Any) -> IngestReport:
    return ingest([str(SAMPLES / name) for name in names], str(lake), options=IngestOptions(**options))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("inspect/popularity_2x2_epochs.eval", {}, {"passed": 3, "graded": 4, "rows": 4, "claims": [0.75]}),
        ("inspect/popularity_scored.eval", {}, {"passed": 8, "graded": 10, "claims": [0.8]}),
        ("inspect/mmlu_subject_metadata.eval", {}, {"passed": 0, "graded": 1, "claims": [0.0]}),
        ("inspect/message_dedup_v3.eval", {}, {"passed": 0, "graded": 1, "claims": [0.0]}),
        ("inspect/popularity_cancelled.json", {}, {"passed": 2, "rows": 3, "claims": [2 / 3], "note": "cancelled"}),
        ("inspect/security_guide.json", {}, {"passed": 3, "graded": 3, "claims": [1.0]}),
        ("inspect/arc_easy_qwen.json", {}, {"passed": 1, "graded": 3, "claims": [1 / 3]}),
        ("inspect/popularity_unscored.eval", {}, {"rows": 10, "graded": 0, "ungraded": 10, "mean": None}),
        ("inspect/no_samples_cancelled.json", {}, {"status": "empty", "rows": 0, "warning": "no graded attempts"}),
        ("inspect/simpleqa_header_only.json", {}, {"status": "empty", "rows": 0, "warning": "no graded attempts"}),
        ("inspect/log_with_nan.json", {}, {"status": "empty", "rows": 0, "files": []}),
        (CYSE, {}, {"rows": 1, "passed": None, "mean": 0.65, "warning": "accuracy 0.38109"}),
        (CYSE, {"threshold": 0.5}, {"rows": 1, "passed": 1, "mean": 1}),
        (
            INSPECT,
            {"scorer": ("verdict",), "subject": "metadata.subject"},
            {"rows": 20, "graded": 18, "passed": 10, "errors": 2, "claims": [8 / 15, 23 / 30, 0.3]},
        ),
        ("lm_eval/gpt-4o", {}, {"passed": 390, "graded": 397, "format": "lm-eval", "n_claims": 1}),
        ("lm_eval/meta-llama__Llama-3.1-8B-Instruct", {}, {"passed": 5, "graded": 10, "n_claims": 1}),
        ("lm_eval/eee", {}, {"passed": 0, "graded": 10, "n_claims": 1}),
        ("lm_eval/granite", {"filter": ("strict-match",)}, {"passed": 1, "rows": 1}),
        ("lm_eval/granite", {"filter": ("flexible-extract",)}, {"passed": 1, "rows": 1}),
        ("harbor", {}, {"rows": 28, "passed": 12, "errors": 4, "mean_errors_failed": 12 / 28, "warning": "0.41573"}),
        ("harbor", UNGRADED, {"graded": 24, "ungraded": 4, "passed": 12, "mean": 0.5, "warning": "0.4"}),
        (TB1, {}, {"rows": 400, "passed": 77, "errors": 42, "claims": [0.1925, 0.2725, 0.3575, 0.3875]}),
        (BASELINE, SWE, {"passed": 25, "rows": 40}),
        (BASELINE, {**SWE, "missing": "fail"}, {"passed": 25, "mean": 0.05, "warning": "0.625"}),
        (POLYDEV, SWE, {"passed": 25, "rows": 40, "mean_errors_failed": 0.625}),
        (POLYDEV, {**SWE, **UNGRADED}, {"passed": 25, "mean": 25 / 39, "warning": "0.625"}),
        (f"swebench/report/{VEXP}.{VEXP}.json", SWE, {"passed": 73, "rows": 100}),
        (SB_CLI, {**SWE, "model": "m"}, {"passed": 26, "rows": 30}),
        ("swebench/per_instance", SWE, {"passed": 19, "rows": 24, "model": VEXP, "run": VEXP}),
        ("swebench/experiments_legacy/results.json", {**SWE, "model": "aider"}, {"passed": 79, "rows": 300}),
        ("swebench/pro/gpt-4o-paper/eval_results.json", SWE, {"passed": 36, "rows": 619}),
        ("swebench/pro/claude-sonnet-4-paper/eval_results.json", SWE, {"passed": 166, "rows": 663}),
        (MATH, {}, {"passed": 14, "rows": 15, "histogram": {"3": 5}, "note": "identified by prompt and answer"}),
        ("verifiers/math-python--gpt-5-nano", {}, {"passed": 15, "rows": 15, "histogram": {"3": 5}}),
        (TOOLS, {}, {"passed": 15, "histogram": {"3": 5}, "warning": "avg_reward 0, but its attempts give 1"}),
        ("verifiers/wordle--gpt-5-mini", {}, {"mean": 1.3806349206, "warning": "avg_reward 0"}),
        (WORDLE, {}, {"mean": 1.1165439153, "warning": "avg_reward 0"}),
        (WORDLE, {"metric": ("check_answer_reward_func",)}, {"passed": 8, "graded": 15}),
        ("verifiers/hangman--gpt-5-mini", {}, {"mean": 0.325, "note": "5 rollouts; the file has 20 problems in 20"}),
        ("verifiers/prime_hosted_run", {}, {"rows": 25, "mean": 1.7852}),
        (HUMANEVAL, M, {"rows": 166, "histogram": {"1": 162, "2": 2}}),
        ("humaneval/samples4.jsonl_results.jsonl", {"model": "m"}, {"passed": 105, "rows": 164}),
        ("humaneval/qwen2.5-coder_7b_results.jsonl", {"model": "m"}, {"passed": 120, "benchmarks": ["humaneval"]}),
        ("livecodebench/Gemma-2-9b-Ins", {}, {"passed": 201, "rows": 600, "model": "Gemma-2-9b-Ins"}),
        ("livecodebench/Qwen2.5-Ins-7B", {}, {"passed": 13, "rows": 43}),
        ("tau2/mock_gpt-4.1-mini_10_tasks", {}, {"passed": 8, "graded": 10, "model": "openai/gpt-4.1-mini"}),
        (TAU, {"model": "m"}, {"passed": 3, "graded": 19, "errors": 13, "mean_errors_ungraded": 0.5}),
        (TAU, {"model": "m", "errors": "ungraded"}, {"passed": 3, "graded": 6, "ungraded": 13}),
        ("eee/676f4465-ce78-411a-9f5a-c97b3d2eac4f.json", {}, {"status": "empty", "note": "so no attempts"}),
        ("eee/demo", {}, {"passed": 1, "rows": 1, "model": "demo-org/demo-model", "warning": "0.75"}),
        (PHILOSOPHY, {"metric": ("exact_match",), "split": "test"}, {"passed": 1, "rows": 9, "n_claims": 1}),
        (
            PHILOSOPHY,
            {"metric": ("exact_match",), "split": "valid"},
            {"passed": 0, "rows": 1, "model": "openai/gpt2"},
        ),
        (HELLASWAG, {"metric": ("exact_match",)}, {"passed": 3, "rows": 10}),
        (QA, {"metric": ("f1_score",), "split": "test"}, {"rows": 4, "mean": 0.1742424242}),
        (QA, {"metric": ("f1_score",), "split": "valid"}, {"rows": 1, "mean": 0.0}),
        (QA, {"metric": ("exact_match",), "split": "test"}, {"rows": 4, "passed": 0}),
        ("generic", {**MMLU, "errors": "fail"}, {"passed": 23, "graded": 151, "errors": 27, "mean": 23 / 151}),
        ("generic", MMLU, {"passed": 23, "graded": 124, "ungraded": 27, "mean": 23 / 124}),
    ],
)
def test_source_report(tmp_path: Path, name: str, options: dict[str, Any], expected: dict[str, Any]) -> None:
    report = load(tmp_path / "lake", name, **options)
    assert not report.refused, [str(error) for error in report.refused]
    (source,) = report.sources
    assert source.rows == source.graded + source.ungraded + source.duplicate + source.refused
    if source.passed is not None:
        assert lakes.counts(lakes.problems(tmp_path / "lake")) == (source.passed, source.graded)
    expected = dict(expected)
    warning, note = expected.pop("warning", None), expected.pop("note", None)
    assert warning in source.warnings[0] if warning else not source.warnings
    assert note is None or any(note in text for text in source.notes)
    assert len(source.claims) >= expected.pop("n_claims", 0)
    found = {key: getattr(source, key) for key in expected} | {"claims": [each["theirs"] for each in source.claims]}
    for key, value in expected.items():
        assert found[key] == (pytest.approx(value) if isinstance(value, float | list) and value else value)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([INSPECT], {"scorer": ("toy=x",)}, "no score x (available: length, verdict)"),
        (["lm_eval/three_filters"], {}, "3 filters (get-answer1, get-answer2, get-option)"),
        (["lm_eval/granite"], {"filter": ("gsm*=x",)}, "no filter x (available: flexible-extract, strict-match)"),
        ([TB2], {}, "no benchmark in the file (give --benchmark)"),
        (["swebench/sb-cli"], SWE, "give --model"),
        (["swebench/report"], {}, "no benchmark in the file (give --benchmark)"),
        (["verifiers/lfs_pointer"], {}, "is a git-LFS pointer, not a result (git lfs pull)"),
        (["livecodebench/lfs_pointer"], {}, "git-LFS pointer"),
        (["humaneval/samples4.jsonl_results.jsonl"], {}, "give --model"),
        (["tau2/dir_format_no_simulations"], {}, "no folder simulations next to it"),
        ([PHILOSOPHY], {}, "choose one with --metric"),
        ([PHILOSOPHY], {"metric": ("exact_match",)}, "2 splits: test, valid (choose one with --split)"),
    ],
)
def test_refusal(tmp_path: Path, names: list[str], options: dict[str, Any], message: str) -> None:
    report = load(tmp_path / "lake", *names, **options)
    assert report.status == "refused"
    assert not (tmp_path / "lake").exists()
    assert message in "\n".join(f"{error.where}: {error.what} ({error.hint})" for error in report.refused)


def test_edited_file_is_refused_by_line(tmp_path: Path) -> None:
    report = ingest([str(SAMPLES / "lm_eval/multiline_edited")], str(tmp_path / "lake"), "lm-eval")
    assert "broken JSON at line" in report.refused[0].what


def test_job_file_without_trials(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("result.json", "config.json"):
        (job / name).write_bytes((SAMPLES / "harbor/z-ai-glm-5-openclaw-terminal-bench-2.0" / name).read_bytes())
    (source,) = ingest([str(job)], str(tmp_path / "lake")).sources
    assert (source.rows, source.passed, source.errors, source.warnings) == (89, 37, 4, [])


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
def test_evalplus_has_two_benchmarks(tmp_path: Path, name: str, base: int, plus: int, n: int) -> None:
    model = None if "phi" in name else "m"
    (source,) = load(tmp_path / "lake", f"evalplus/{name}", model=model).sources
    assert (source.rows, source.graded, source.benchmarks) == (2 * n, 2 * n, ["humaneval", "humaneval+"])
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval")) == (base, n)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval+")) == (plus, n)
    assert model or source.model == name.split("/", maxsplit=1)[0]


def test_graders_are_not_pooled_and_commits_are(tmp_path: Path) -> None:
    report = load(tmp_path / "graders", "lm_eval/upstage__SOLAR-10.7B-Instruct-v1.0")
    assert sorted((source.passed, source.graded) for source in report.sources) == [(0, 10), (8, 10)]
    assert "differ in grader" in report.total.notes[0]
    problems = lakes.problems(tmp_path / "graders")
    assert (len(problems), {len(values) for values in problems.values()}) == (20, {1})
    names = [f"tau2/{folder.name}" for folder in sorted((SAMPLES / "tau2").glob("airline*"))]
    load(tmp_path / "commits", *names)
    ((values),) = lakes.problems(tmp_path / "commits").values()
    assert sorted(values) == [False, False, True]
    assert len({row["provenance"] for row in lakes.rows(tmp_path / "commits")}) == 3


def test_report_and_instances_of_one_run_are_the_same_attempts(tmp_path: Path) -> None:
    total = load(tmp_path / "lake", "swebench/per_instance", f"swebench/report/{VEXP}.{VEXP}.json", **SWE).total
    assert (total.rows, total.graded, total.duplicate, total.passed) == (124, 100, 24, 73)
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (73, 100)


def test_folder_of_all_tools_lists_every_refusal_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no results in"):
        ingest([str(SAMPLES / "bfcl")], str(tmp_path / "lake"), "inspect")
    report = load(tmp_path / "lake", ".")
    assert report.status == "refused"
    assert not (tmp_path / "lake").exists()
    assert not [error for error in report.refused if "could be" in error.what]
