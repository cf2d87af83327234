"""What is special about each format: its traps, its refusals, the tool's own number compared with ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ingested as lakes
from layouts import LAYOUTS, TABLE, inspect_header, inspect_sample
from scorelake.errors import DataError
from scorelake.ingest.archives import MAX_RECORD, ZipFile
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.ingest_report import IngestReport, format_report
from scorelake.ingest.job import ingest

Edit = Callable[[Path], None]
BOTH = {"a": {"value": "C"}, "b": {"value": {"x": 1, "y": 0.5}}}


def load(home: Path, **options: Any) -> IngestReport:
    return ingest([str(home / "logs")], str(home / "lake"), options=IngestOptions(**options))


def load_one(home: Path, **options: Any) -> Any:
    report = load(home, **options)
    assert not report.refused, [str(error) for error in report.refused]
    (source,) = report.sources
    return source


def refusals(report: IngestReport) -> str:
    return "; ".join(f"{error.where}: {error.what} ({error.hint})" for error in report.refused)


def write(home: Path, layout: str) -> Path:
    return LAYOUTS[layout].write(home / "logs", TABLE)


def edit(change: Callable[[Any], Any]) -> Edit:
    """Change a JSON document in place, or replace it by what the function returns."""

    def apply(path: Path) -> None:
        document = json.loads(path.read_text())
        path.write_text(json.dumps(change(document) or document))

    return apply


def edit_lines(change: Callable[[int, dict[str, Any]], Any]) -> Edit:
    """Change every record of JSON Lines."""

    def apply(path: Path) -> None:
        records = [json.loads(line) for line in path.read_text().split("\n") if line]
        for i, record in enumerate(records):
            change(i, record)
        path.write_text("".join(json.dumps(record) + "\n" for record in records))

    return apply


def update(**values: Any) -> Edit:
    return edit_lines(lambda i, record: record.update(values))


def samples(*samples: dict[str, Any], **header: Any) -> Edit:
    """Replace an Inspect log."""
    return edit(lambda log: inspect_header() | header | {"samples": samples})


def add_judge(i: int, record: dict[str, Any]) -> None:
    judge = {"agent": {"name": "judge", "config": {"model": "j"}}, "rewards": {"r": {"score": 0.0, "weight": 2}}}
    record["traces"].append(judge)


def other_checksum(path: Path) -> None:
    other = path.parents[1] / "again" / "result.json"
    other.parent.mkdir()
    other.write_text(path.read_text())
    edit(lambda trial: trial.update(task_checksum="another", trial_name="again"))(other)


def rename_report(path: Path) -> None:
    path.write_text(json.dumps({"resolved_ids": ["a__b-1"], "submitted_ids": ["a__b-1"]}))
    path.rename(path.with_name("gpt-4.1.full.json"))


def drop_last_line(path: Path) -> None:
    path.write_text("\n".join(path.read_text().split("\n")[:-2]) + "\n")


def several_epochs(path: Path) -> None:
    edit(lambda aggregate: aggregate.update(eval_library={"name": "inspect_ai"}))(path.with_name("u.json"))
    edit_lines(lambda i, record: record["metadata"].update(epoch=i // 4 + 1))(path)


def two_splits(path: Path) -> None:
    edit(lambda records: [stat["name"].update(split="valid") for stat in records[0]["stats"]] and None)(path)


def cut_first_line(path: Path) -> None:
    path.write_text(path.read_text()[:200] + "\n" + path.read_text()[200:])


TWO_METRICS = update(acc=1.0, metrics=["exact_match", "acc"])
TWO_FILTERS = edit_lines(lambda i, record: record.update(filter="x" if i else "none"))
TWO_REWARDS = edit(lambda trial: trial["verifier_result"]["rewards"].update(style=0.5))
TWO_RESULTS = edit_lines(lambda i, record: record.update(evaluation_result_id=f"r{i % 2}"))
TWO_SCORES = samples(inspect_sample("p", 0, None, scores=BOTH))
NEW_STATUS = edit(lambda results: results["eval"]["HumanEval/a__b-1"][0].update(base_status="maybe"))
CONTRADICTION = edit(lambda report: report["unresolved_ids"].append("a__b-1"))
NOT_GRADED = edit_lines(lambda i, record: record.pop("passed") if i == 5 else None)
NEW_HASHES = edit_lines(lambda i, record: record.update(sample_hash=str(i)))
B, M, BM = {"benchmark": "b"}, {"model": "m"}, {"benchmark": "b", "model": "m"}


@pytest.mark.parametrize(
    ("layout", "change", "options", "message"),
    [
        ("inspect_json", TWO_SCORES, {"scorer": ("toy=c",)}, "no score c (available: a, b.x, b.y)"),
        ("inspect_json", samples(inspect_sample("p", 0, [1, 2])), {}, "score is [1, 2]"),
        ("inspect_json", samples(inspect_sample("p", 0, "maybe")), {}, 'a score of "maybe"'),
        ("inspect_json", samples(inspect_sample("p", 0, 1), version=4), {}, "version 4 of Inspect's log (2 and 3"),
        ("lm_eval", update(doc_id=0), {}, "problem_id 0 has conflicting contents (attempt 1 and attempt"),
        ("lm_eval", TWO_METRICS, {"metric": ("t*=f1",)}, "no metric f1 (available: acc, exact_match)"),
        ("lm_eval", update(exact_match=[1, 2]), {}, "exact_match is [1, 2]"),
        ("lm_eval", update(resps=[["a", "b"]], filter="majority"), {}, "2 responses and one score in line 1"),
        ("lm_eval", TWO_FILTERS, {"filter": ("toy=y",)}, "no filter y (available: none, x)"),
        ("harbor", TWO_REWARDS, {}, "2 rewards: reward, style (choose one with --metric)"),
        ("harbor", other_checksum, {}, "problem_id a__b-1 has conflicting contents"),
        ("swebench_report", CONTRADICTION, B, "1 instances are resolved and unresolved, such as a__b-1"),
        ("swebench_report", edit(lambda _: {"resolved": ["a__b-1"]}), BM, "no list of submitted instances"),
        ("swebench_report", rename_report, B, "does not show where the model ends (give --model)"),
        ("verifiers", update(metrics="{}"), {"metric": ("x",)}, "no metric x (available: reward)"),
        ("prime_rl", cut_first_line, {}, "broken JSON at line 1"),
        ("prime_rl", edit_lines(add_judge), {"scorer": ("toy=x",)}, "no agent x (available: agent, judge)"),
        ("evalplus", NEW_STATUS, {}, '"maybe" is missing or unknown'),
        ("humaneval", NOT_GRADED, M, "line 6 has no passed: not graded"),
        ("humaneval", update(passed="yes"), M, "--true"),
        ("tau2", edit(lambda results: {"info": results["info"]}), {}, "no folder simulations next to it"),
        ("every_eval_ever", several_epochs, {}, "ingest the .eval log instead"),
        ("every_eval_ever", TWO_RESULTS, {}, "toy has several results: r0, r1 (choose one with --metric)"),
        ("every_eval_ever", update(), {"metric": ("r0",)}, "no metric r0 (available: toy.accuracy)"),
        ("every_eval_ever", NEW_HASHES, {}, "has conflicting contents"),
        ("every_eval_ever", update(schema_version="0.4.0"), {}, 'schema "0.4.0"'),
        ("helm", lambda path: None, {}, "2 metrics: exact_match, num_references (choose one with --metric)"),
        ("helm", two_splits, {"metric": ("exact_match",)}, "2 splits: test, valid (choose one with --split)"),
        (
            "promptfoo",
            edit(lambda out: out["results"].update(version=4)),
            {},
            "version 4 of promptfoo's results (2 and 3",
        ),
        (
            "deepeval",
            edit(lambda run: run["testRunData"].pop("hyperparameters") and None),
            {},
            "no model in the file",
        ),
        ("opencompass", edit(lambda run: run["details"][0].update(correct=["yes"])), {}, 'correct is "yes"'),
        ("verl", update(), {}, "no model in the file (give --model)"),
        ("slime", edit(lambda run: run["samples"][0].update(reward={"a": 1})), M, 'reward is {"a": 1}'),
        ("bfcl", drop_last_line, {}, "by the first line"),
        ("bfcl", lambda path: drop_last_line(path.with_name("simple_result.json")), {}, "simple_score.json"),
        ("bfcl", lambda path: path.with_name("simple_result.json").unlink(), {}, "no result file next to it"),
    ],
)
def test_refusal(tmp_path: Path, layout: str, change: Edit, options: dict[str, Any], message: str) -> None:
    change(write(tmp_path, layout))
    report = load(tmp_path, **options)
    assert report.status == "refused", report.sources
    assert not (tmp_path / "lake").exists()
    assert message in refusals(report)


@pytest.mark.parametrize(
    "layout", ["harbor", "livecodebench", "tau2", "swebench_report", "inspect_json", "verifiers"]
)
def test_a_long_text_before_the_result_does_not_hide_it(tmp_path: Path, layout: str) -> None:
    """Trials with long rollouts, which had failed more often, were passed over as no results."""
    path = write(tmp_path, layout)
    text = path.read_text()
    long = json.dumps("x" * (1 << 19))
    path.write_text(text.replace("{", f'{{"rollout": {long}, ', 1))
    report = load(tmp_path, **LAYOUTS[layout].options)
    assert not report.refused, refusals(report)
    assert (report.total.graded, report.ignored) == (12, {})


USAGE = {"model_usage": {m: {"input_tokens": 5, "output_tokens": 1, "total_cost": 0.25} for m in "ab"}}
TIMES = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T02:00:30+02:00"}
RESULT = {"cost_usd": 0.5, "n_input_tokens": 10, "n_output_tokens": 2}
TB = {"total_input_tokens": 10, "total_output_tokens": 2}
TB |= {"agent_started_at": "2026-01-01T00:00:00", "agent_ended_at": "2026-01-01T00:00:30"}
STATS = [("num_prompt_tokens", 10), ("num_output_tokens", 2), ("inference_runtime", 30)]


@pytest.mark.parametrize(
    ("layout", "change", "options", "expected"),
    [
        ("inspect_json", samples(inspect_sample("p", 0, 1, total_time=30, **USAGE)), {}, (0.5, 10, 2, 30, None)),
        (
            "harbor",
            edit(lambda trial: trial.update(agent_result=RESULT, agent_execution=TIMES)),
            {},
            (0.5, 10, 2, 30, None),
        ),
        ("terminal_bench", edit(lambda run: run["results"][0].update(TB)), {}, (None, 10, 2, 30, None)),
        (
            "tau2",
            edit(lambda run: run["simulations"][0].update(agent_cost=0.5, duration=30)),
            {},
            (0.5, None, None, 30, None),
        ),
        ("verifiers", update(num_input_tokens=10, num_output_tokens=2, step=7), {}, (None, 10, 2, None, 7)),
        ("prime_rl", update(), {}, (None, None, None, None, 7)),
        ("promptfoo", edit(lambda out: None), {}, (0.5, 10, 2, 30, None)),
        ("deepeval", edit(lambda out: None), {}, (0.5, 10, 2, 30, None)),
        ("verl", update(), M, (None, None, None, None, 7)),
        ("slime", edit(lambda out: None), M, (None, None, 2, None, 7)),
        ("trl", lambda path: None, M, (None, None, None, None, 7)),
        (
            "every_eval_ever",
            update(token_usage={"input_tokens": 10, "output_tokens": 2}),
            {},
            (None, 10, 2, None, None),
        ),
        (
            "helm",
            edit(
                lambda rows: rows[0]["stats"].extend(
                    {"name": {"name": n, "split": "test"}, "mean": v} for n, v in STATS
                )
            ),
            {"metric": ("exact_match",)},
            (None, 10, 2, 30, None),
        ),
    ],
)
def test_measures(
    tmp_path: Path, layout: str, change: Edit, options: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    change(write(tmp_path, layout))
    load(tmp_path, **options)
    names = ("cost_usd", "input_tokens", "output_tokens", "seconds", "step")
    assert expected in {tuple(row.get(name) for name in names) for row in lakes.rows(tmp_path / "lake")}


# --- which of several verdicts counts -----------------------------------------------------------------------------

FILTERS, METRICS = [{"name": "x"}, {"name": "none"}], [{"metric": "acc"}, {"metric": "exact_match"}]
SCORERS = {"eval": inspect_header()["eval"] | {"scorers": [{"name": "pkg/b"}, {"name": "a"}]}}
DECLARED = samples(inspect_sample("p", 0, None, scores=BOTH), **SCORERS)
FIRST = "chosen because it is the first in"


def two_filters(path: Path) -> None:
    """The rows of both filters in every file; the results files are removed."""
    for other in path.parent.glob("samples_*"):
        text = other.read_text()
        other.write_text(text + text.replace('"filter": "none"', '"filter": "x"'))
        other.with_name(other.name.replace("samples_toy", "results")).with_suffix(".json").unlink()


def two_listed(path: Path) -> None:
    """Rows of two filters and metrics, which the task lists in another order."""
    for other in path.parent.glob("samples_*"):
        TWO_FILTERS(other)
        TWO_METRICS(other)
    for results in path.parent.glob("results_*"):
        edit(lambda each: each["configs"]["toy"].update(filter_list=FILTERS, metric_list=METRICS))(results)


@pytest.mark.parametrize(
    ("layout", "change", "options", "choice"),
    [
        ("inspect_json", TWO_SCORES, {}, f"score a, {FIRST} the scorers of the log; also there: b.x, b.y"),
        ("inspect_json", DECLARED, {}, f"score b.x, {FIRST} the scorers of the log"),
        ("inspect_json", TWO_SCORES, {"scorer": ("b.y",)}, "score b.y, chosen by --scorer b.y; also there: a, b.x"),
        ("inspect_json", TWO_SCORES, {"scorer": ("a", "t?y=b.x")}, "score b.x, chosen by --scorer t?y=b.x; also"),
        ("inspect_json", TWO_SCORES, {"scorer": ("t*=a", "toy=b.x")}, "score b.x, chosen by --scorer toy=b.x; also"),
        ("inspect_json", TWO_SCORES, {"scorer": ("z",)}, "score a, chosen because there is no z, and it is the f"),
        ("inspect_json", TWO_SCORES, {"scorer": ("other=z",)}, f"score a, {FIRST} the scorers of the log"),
        ("lm_eval", two_filters, {}, f"filter none, {FIRST} the filter_list of the task"),
        ("lm_eval", two_filters, {"filter": ("x",)}, "filter x, chosen by --filter x; also there: none"),
        ("lm_eval", two_listed, {}, f"metric acc, {FIRST} the metric_list of the task"),
        ("lm_eval", two_listed, {}, f"filter x, {FIRST} the filter_list of the task; also there: none"),
        (
            "lm_eval",
            update(),
            {"filter": ("x",)},
            "filter none, chosen because there is no x, and it is the only one",
        ),
        ("prime_rl", edit_lines(add_judge), {}, f"agent agent, {FIRST} the traces of an episode"),
    ],
)
def test_choice(tmp_path: Path, layout: str, change: Edit, options: dict[str, Any], choice: str) -> None:
    change(write(tmp_path, layout))
    report = load(tmp_path, **options)
    assert not report.refused, refusals(report)
    assert all(f"  chosen    toy: {choice}" in format_report(source) for source in report.sources)
    unused = "other=z" in options.get("scorer", ())
    assert ("no task for --scorer other=z; tasks: toy" in report.total.notes) == unused


def test_score_that_is_missing_in_the_first_samples_must_be_chosen_by_task(tmp_path: Path) -> None:
    change = samples(*(inspect_sample("p", i, None, scores={name: {"value": 1}}) for i, name in enumerate("ab")))
    change(write(tmp_path, "inspect_json"))
    report = load(tmp_path, scorer=("b",))
    assert "b is missing in the first samples (choose it with --scorer toy=b)" in refusals(report)
    assert load_one(tmp_path, scorer=("toy=b",)).graded == 1


def test_one_filter_for_all_tasks_does_not_refuse_those_that_lack_it(tmp_path: Path) -> None:
    two_filters(write(tmp_path, "lm_eval"))
    LAYOUTS["lm_eval"].write(tmp_path / "logs" / "plain", TABLE)
    TWO_SCORES(LAYOUTS["inspect_json"].write(tmp_path / "logs" / "inspect", TABLE))
    report = load(tmp_path, filter=("x",), scorer=("b.x",))
    assert not report.refused, refusals(report)
    assert {row["grader"] for row in lakes.rows(tmp_path / "lake")} == {"exact_match,x", "exact_match,none", "b.x"}


# --- Inspect ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("C", 1), ("I", 0), ("N", 0), ("yes", 1), ("No", 0), ("TRUE", 1), ("1.0", 1)),
        *((True, 1), (False, 0), (1, 1), (0.0, 0)),
    ],
)
def test_inspect_values(tmp_path: Path, value: Any, expected: int) -> None:
    samples(inspect_sample("p", 0, None, scores={"s": {"value": value}}))(write(tmp_path, "inspect_json"))
    assert load_one(tmp_path).passed == expected


def test_inspect_partial_credit_key_of_a_scorer_and_invalidated_samples(tmp_path: Path) -> None:
    path = write(tmp_path, "inspect_json")
    samples(*(inspect_sample("p", i, value) for i, value in enumerate(["C", "P", float("nan")])))(path)
    source = load_one(tmp_path)
    assert (source.passed, source.mean, source.ungraded) == (None, 0.75, 1)
    samples(inspect_sample("p", 0, None, scores=BOTH))(path)
    assert load_one(tmp_path, scorer=("b.y",)).mean == 0.5
    samples(inspect_sample("p", 0, 1, invalidation={"reason": "x"}), inspect_sample("p", 1, 0))(path)
    source = load_one(tmp_path)
    assert (source.graded, source.ungraded) == (1, 1)


def test_inspect_header_is_a_cross_check(tmp_path: Path) -> None:
    scores = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"name": "accuracy", "value": 0.676}}}]
    change = samples(*(inspect_sample("p", i, i % 2) for i in range(4)), results={"scores": scores}, status="error")
    change(write(tmp_path, "inspect_json"))
    source = load_one(tmp_path)
    assert source.warnings == ["the file reports accuracy 0.676, but its attempts give 0.5"]
    assert "warning   the file reports accuracy 0.676" in format_report(source)
    assert "the log's status is error" in format_report(source)


TOOLS = {"solver": "use_tools", "params": {"tools": ["bash"], "new": 1}, "params_passed": {"tools": ["bash"]}}


@pytest.mark.parametrize(
    ("about", "plan", "setting"),
    [
        ({}, {"config": {"temperature": 1.0}}, "temperature"),
        ({}, {"config": {"top_p": 0.9}}, "top_p"),
        ({}, {"steps": [{"solver": "system_message", "params": {"template": "Think."}}]}, "solver"),
        ({}, {"steps": [TOOLS]}, "solver"),
        ({"task_args_passed": {"fewshot": 5}}, {}, "task_args"),
        ({"config": {"epochs_reducer": ["pass_at_2"]}}, {}, "epochs_reducer"),
        ({"config": {"message_limit": 10}}, {}, "message_limit"),
        ({"model_roles": {"grader": {"model": "g"}}}, {}, "model_roles"),
        ({"scorers": [{"name": "pkg/match", "options": {"location": "end"}}]}, {}, "grader"),
        ({"revision": {"commit": "abc"}}, {}, None),
        ({"packages": {"inspect_ai": "0.3.9"}}, {}, None),
        ({"config": {"epochs_reducer": ["mean"], "max_samples": 4, "limit": 3}}, {}, None),
        ({}, {"config": {"max_connections": 7, "timeout": 60, "max_retries": 2}}, None),
    ],
)
def test_inspect_settings_that_change_what_is_measured_are_not_pooled(
    tmp_path: Path, about: dict[str, Any], plan: dict[str, Any], setting: str | None
) -> None:
    for i, (more, steps) in enumerate([({}, {}), (about, plan)]):
        path = tmp_path / "logs" / str(i) / "x.json"
        path.parent.mkdir(parents=True)
        log = inspect_header(eval_id=f"E{i}", task_id=f"T{i}", **more) | {"plan": steps}
        path.write_text(json.dumps(log | {"samples": [inspect_sample("p", 0, 1)]}))
    notes = load(tmp_path).total.notes
    assert len(lakes.problems(tmp_path / "lake")) == (1 if setting is None else 2)
    expected = "(provenance) and are pooled" if setting is None else f"differ in {setting} and are not pooled"
    assert all(expected in note for note in notes)
    assert notes or setting is None
    if setting is not None:
        load(tmp_path, ignore=(setting,))
        assert len(lakes.problems(tmp_path / "lake")) == 1
    recorded = {row["provenance"] for row in lakes.rows(tmp_path / "lake")}
    assert recorded <= {None, "commit=abc", "inspect_ai=0.3.9", "max_connections=7; max_retries=2; timeout=60"}
    assert (recorded == {None}) == (setting is not None or "config" in about)


def test_inspect_damaged_member(tmp_path: Path) -> None:
    path = write(tmp_path, "inspect_eval")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"summaries.json") + len("summaries.json") + 12] ^= 0xFF
    path.write_bytes(raw)
    assert "cannot be read to its end" in refusals(load(tmp_path))
    with ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        archive.writestr("summaries.json", '[{"id": 1}')
    assert "summaries.json: broken JSON" in refusals(load(tmp_path))


# --- lm-eval ------------------------------------------------------------------------------------------------------


def test_lm_eval_without_its_results_file_is_not_pooled(tmp_path: Path) -> None:
    for results in write(tmp_path, "lm_eval").parent.glob("results_*"):
        results.unlink()
    assert all("the protocol is unknown" in source.notes[0] for source in load(tmp_path).sources)
    assert {len(values) for values in lakes.problems(tmp_path / "lake").values()} == {1}
    assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"org/m"}


def test_lm_eval_rows_that_do_not_name_their_filter(tmp_path: Path) -> None:
    """Before 0.4.7: one filter is fine; of several, rows cannot be assigned."""
    path = write(tmp_path, "lm_eval")
    for other in path.parent.glob("samples_*"):
        edit_lines(lambda i, record: [record.pop(key) for key in ("filter", "metrics")])(other)
    published = {"exact_match,a": 0.5, "exact_match_stderr,a": 0.1, "exact_match,b": 0.5}
    for results in path.parent.glob("results_*"):
        edit(lambda document: document.update(results={"toy": published}))(results)
    assert "2 filters (a, b), and rows that do not name their filter" in refusals(load(tmp_path))
    published.pop("exact_match,b")
    for results in path.parent.glob("results_*"):
        edit(lambda document: document.update(results={"toy": published}))(results)
    assert load(tmp_path).total.passed == 6
    update(doc_id="c__d-22", doc_hash="hash of c__d-22")(path)
    assert "one attempt, two verdicts: problem c__d-22" in refusals(load(tmp_path))
    edit_lines(lambda i, record: record.update(exact_match=1.0))(path)
    assert "problem_id c__d-22 occurs twice in one run" in refusals(load(tmp_path))


def test_lm_eval_task_is_the_subject_of_its_outermost_group(tmp_path: Path) -> None:
    groups = {"mmlu": ["stem"], "stem": ["toy"], "toy": []}
    for results in write(tmp_path, "lm_eval").parent.glob("results_*"):
        new = {"group_subtasks": groups, "results": {"toy": {"exact_match,none": 0.9}}}
        edit(lambda document, new=new: document.update(new))(results)  # type: ignore[misc]
    report = load(tmp_path)
    assert {(row["benchmark"], row["subject"]) for row in lakes.rows(tmp_path / "lake")} == {("mmlu", "toy")}
    assert all("the file reports exact_match,none 0.9" in source.warnings[0] for source in report.sources)


# --- agents and rollouts ------------------------------------------------------------------------------------------


def test_harbor_skips_unfinished_trials_and_passes_with_a_reward_of_1(tmp_path: Path) -> None:
    path = write(tmp_path, "harbor")
    edit(lambda trial: trial["verifier_result"]["rewards"].update(reward=0.5))(path)
    assert load(tmp_path).total.passed == 5
    assert load(tmp_path, threshold=0.5).total.passed == 6
    edit(lambda trial: trial.update(finished_at=None))(path)
    report = load(tmp_path)
    assert sum(source.refused for source in report.sources) == 1
    assert any("which is not finished" in note for source in report.sources for note in source.notes)


def test_swebench_pending_is_no_verdict(tmp_path: Path) -> None:
    path = write(tmp_path, "swebench_report")
    for other in path.parent.glob("m.run-[12].json"):
        other.unlink()
    ids = {"submitted_ids": ["a__b-1", "a__b-2", "c__d-1"], "resolved_ids": ["a__b-1"], "pending_ids": ["a__b-2"]}
    edit(lambda report: ids | {"failed_ids": ["c__d-1"], "unresolved_ids": []})(path)
    source = load_one(tmp_path, benchmark="b", errors="fail")
    assert (source.passed, source.graded, source.ungraded) == (1, 2, 1)
    assert {row["subject"] for row in lakes.rows(tmp_path / "lake")} == {"a/b", "c/d"}


def test_verifiers_ids_that_cover_several_prompts_are_replaced(tmp_path: Path) -> None:
    edit_lines(lambda i, record: record.update(example_id=i // 3))(write(tmp_path, "verifiers"))
    assert "have different prompts" in load_one(tmp_path).notes[0]
    problems = lakes.problems(tmp_path / "lake")
    assert sorted((len(values), sum(values)) for values in problems.values()) == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert all(key[-1].startswith("content-") for key in problems)


def test_verifiers_metrics_errors_and_metadata(tmp_path: Path) -> None:
    path = write(tmp_path, "verifiers")
    edit(lambda metadata: metadata.update(avg_reward=0.0, num_examples=7))(path.with_name("metadata.json"))
    edit_lines(lambda i, row: row.update(metrics=json.dumps({"m": i % 2}), error="x" if i < 2 else None))(path)
    source = load_one(tmp_path)
    assert "the file reports avg_reward 0" in source.warnings[0]
    assert "metadata reports 7 examples x 3 rollouts; the file has 4 problems in 12 rows" in source.notes
    assert (source.errors, source.errors_counted_as) == (2, "fail")
    source = load_one(tmp_path, metric=("m",), errors="ungraded")
    assert (source.passed, source.graded) == (5, 10)


def test_steps_of_a_run_are_models_of_their_own_also_under_a_given_name(tmp_path: Path) -> None:
    edit_lines(lambda i, row: row.update(step=i % 2))(write(tmp_path, "verifiers"))
    for options, name in (({}, "org/m"), ({"model": "run"}, "run")):
        load(tmp_path, **options)
        assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {f"{name}@step 0", f"{name}@step 1"}


def test_prime_rl_torn_line_is_excluded_and_agents_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "prime_rl")
    complete = path.read_text()
    path.write_text(complete[:-30])
    source = load_one(tmp_path)
    assert (source.rows, source.refused, source.graded) == (12, 1, 11)
    assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"org/m@step 7"}
    path.write_text(complete)
    edit_lines(add_judge)(path)
    assert load_one(tmp_path, scorer=("judge",)).passed == 0


# --- others -------------------------------------------------------------------------------------------------------


def test_evalplus_plus_needs_both_and_claims_are_compared(tmp_path: Path) -> None:
    path = write(tmp_path, "evalplus")
    published = {"base": {"pass@1": 0.5, "pass@10": 1.0}, "plus": {"pass@1": 0.9}}
    edit(lambda results: results.update(pass_at_k=published))(path)
    source = load_one(tmp_path)
    assert source.warnings == ["the file reports humaneval+ pass@1 0.9, but its attempts give 0.5"]
    assert (source.model, len(source.claims)) == ("m", 2)
    edit(lambda results: results["eval"]["HumanEval/a__b-1"][0].update(plus_status="timeout"))(path)
    edit(lambda results: results["eval"]["HumanEval/c__d-22"][0].update(plus_status=None))(path)
    load(tmp_path)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval")) == (6, 12)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval+")) == (5, 11)
    assert load_one(tmp_path, benchmark="mine").benchmarks == ["mine", "mine+"]


def test_humaneval_samples_without_verdicts(tmp_path: Path) -> None:
    path = write(tmp_path, "humaneval")
    assert "not graded" in refusals(ingest([str(path.with_name("samples.jsonl"))], str(tmp_path / "lake")))
    edit_lines(lambda i, record: record.update(passed="passed" if i % 2 else "failed"))(path)
    assert load_one(tmp_path, model="m", true=("passed",)).passed == 6


def test_livecodebench_appended_twice(tmp_path: Path) -> None:
    path = write(tmp_path, "livecodebench")
    edit(lambda records: records + records[:1])(path)
    source = load_one(tmp_path)
    assert (source.rows, source.graded, source.duplicate) == (15, 12, 3)
    edit(lambda records: [{**record, "test_id": i, "pass@1": 0.0} for i, record in enumerate(records)])(path)
    source = load_one(tmp_path)
    assert source.histogram == {"3": 5}
    assert "the file reports mean of pass@1 0" in source.warnings[0]


def test_tau2_index_and_infrastructure_errors(tmp_path: Path) -> None:
    def to_index(results: Any) -> Any:
        keys = ("task_id", "trial", "id")
        simulations = [(each, each["reward_info"]["reward"]) for each in results["simulations"]]
        index = [{key: each[key] for key in keys} | {"reward": reward} for each, reward in simulations]
        index[0]["termination_reason"] = "infrastructure_error"
        return {"info": results["info"], "simulation_index": index}

    edit(to_index)(write(tmp_path, "tau2"))
    source = load_one(tmp_path)
    assert (source.rows, source.graded, source.ungraded, source.errors_counted_as) == (12, 11, 1, "ungraded")


def test_every_eval_ever_errors_and_chosen_metric(tmp_path: Path) -> None:
    path = write(tmp_path, "every_eval_ever")
    edit_lines(lambda i, record: record.update(error=None if i else "boom"))(path)
    source = load_one(tmp_path)
    assert (source.graded, source.ungraded) == (11, 1)
    TWO_RESULTS(path)
    assert load_one(tmp_path, metric=("r0",)).rows == 6


def test_helm_split_claim_and_perturbation(tmp_path: Path) -> None:
    path = write(tmp_path, "helm")
    two_splits(path)
    stats = [{"name": {"name": "exact_match", "split": "test"}, "mean": 0.25}]
    path.with_name("stats.json").write_text(json.dumps(stats))
    source = load_one(tmp_path, metric=("exact_match",), split="test")
    assert source.rows == 11
    assert "the file reports exact_match of test 0.25" in source.warnings[0]
    edit(lambda records: records[1]["stats"][0]["name"].update(perturbation={"name": "typos"}))(path)
    load(tmp_path, metric=("exact_match",), split="test")
    setups = {row["setup"] for row in lakes.rows(tmp_path / "lake")}
    assert sorted("perturbation=typos" in setup for setup in setups) == [False, True]


@pytest.mark.parametrize(
    ("layout", "where", "change", "claim"),
    [
        ("promptfoo", "out.json", ('"successes": 6', '"successes": 9'), "successes of all tests 0.6"),
        ("deepeval", "run.json", ('"testPassed": 6', '"testPassed": 9'), "testPassed of all tests 0.6"),
        ("evalscope", "reports/m/toy.json", ("0.5", "0.9"), "mean_acc of the report 0.9"),
        ("opencompass", "20260101/results/m/toy.json", (": 50", ": 1"), "accuracy (3 runs average) 0.01"),
        ("lighteval", "results/m/results_2026-01-01T00-00-00.5.json", ('"em": 0.5', '"em": 0.9'), "results 0.9"),
    ],
)
def test_numbers_of_the_tool_are_reproduced(
    tmp_path: Path, layout: str, where: str, change: tuple[str, str], claim: str
) -> None:
    write(tmp_path, layout)
    if layout == "deepeval":
        edit(lambda run: run["testRunData"].update(testPassed=6, testFailed=6))(tmp_path / "logs" / where)
    sources = load(tmp_path).sources
    assert all(len(source.claims) == 1 and not source.warnings for source in sources), sources
    path = tmp_path / "logs" / where
    path.write_text(path.read_text().replace(*change))
    changed = load(tmp_path).sources
    assert sum(claim in "".join(source.warnings) for source in changed) == 1, changed


def test_promptfoo_repeats_are_attempts_and_prompts_are_not_pooled(tmp_path: Path) -> None:
    path = write(tmp_path, "promptfoo")
    assert load_one(tmp_path).histogram == {"3": 4}  # testIdx is another for each repeat
    edit(lambda out: out["results"]["results"][0].update(promptId="other"))(path)
    load(tmp_path)
    assert len(lakes.problems(tmp_path / "lake")) == 5
    edit(lambda out: out["results"]["results"][1].update(failureReason=1, error="expected 4"))(path)
    assert load_one(tmp_path).errors == 0, "a failed assertion is a verdict"
    edit(lambda out: {"version": 2, **out["results"], "results": out["results"]["results"]} | {"version": 2})(path)
    assert load_one(tmp_path).rows == 12
    assert load_one(tmp_path, metric=("style",)).mean == 0.5


def test_deepeval_in_its_hidden_folder_only_if_named(tmp_path: Path) -> None:
    path = write(tmp_path, "deepeval")
    hidden = path.parent / ".deepeval" / ".latest_test_run.json"
    hidden.parent.mkdir()
    path.rename(hidden)
    with pytest.raises(DataError, match="a hidden folder: name it to read it"):
        load(tmp_path)
    options = IngestOptions(metric=("Correctness.score",))
    report = ingest([str(hidden.parent)], str(tmp_path / "lake"), options=options)
    assert (report.total.rows, report.total.mean) == (12, 0.25)
    hidden.write_text('{"testRunLink": "https://example.com"}')
    report = ingest([str(hidden.parent)], str(tmp_path / "lake"))
    assert "has only a link to the test run" in refusals(report)


def test_evalscope_subsets_are_subjects_and_its_first_report_is_not_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "evalscope")
    other = path.with_name("toy_other.jsonl")
    other.write_text(path.read_text())
    report = load(tmp_path)
    assert {(row["model"], row["benchmark"]) for row in lakes.rows(tmp_path / "lake")} == {
        ("org/m", "toy"),
        ("m", "toy_other"),
    }
    assert sum(source.rows for source in report.sources) == 24


def test_lighteval_metrics_are_chosen_and_torch_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "lighteval")
    rows = pl.read_parquet(path).with_columns(metric=pl.struct(em=1.0, f1=0.5))
    rows.write_parquet(path)
    assert "2 metrics: em, f1 (choose one with --metric)" in refusals(load(tmp_path))
    load(tmp_path, metric=("em",))
    row = next(iter(lakes.rows(tmp_path / "lake")))
    assert (row["benchmark"], row["subject"], row["temperature"]) == ("toy", "sub", 0.5)
    with ZipFile(tmp_path / "7.pt", "w") as archive:
        archive.writestr("archive/data.pkl", "")
        archive.writestr("archive/data/0", "")
    assert "which is not loaded since it may run code" in refusals(
        ingest([str(tmp_path / "7.pt")], str(tmp_path / "lake"))
    )


def test_bfcl_result_files_in_a_tree_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, "bfcl")
    for name, folder in (("simple_score.json", "score_2024"), ("simple_result.json", "result_2024")):
        new = tmp_path / "logs" / folder / "m" / name
        new.parent.mkdir(parents=True)
        path.with_name(name).rename(new)
    assert len(load(tmp_path).sources) == 3


# --- any table ----------------------------------------------------------------------------------------------------


def load_table(home: Path, text: str, name: str = "x.jsonl", **options: Any) -> IngestReport:
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / name).write_text(text)
    pairs = tuple(pair.split("=", 1) for pair in options.pop("map", "passed=ok").split(","))
    return load(home, map=pairs, model="m", benchmark="b", **options)


@pytest.mark.parametrize(
    ("text", "pairs", "rows"),
    [
        ('{"p": {"ok": 1}, "q": {"ok": 0}}', "passed=ok", 2),
        ('[{"problem_id": "p", "ok": 1}]', "passed=ok", 1),
        ('{"n": 2, "rows": [{"id": 1, "ok": true}]}', "passed=ok,problem_id=id,records=rows", 1),
        ('{"n": 2, "rows": {"p": {"ok": true}, "q": {"ok": null}}}', "passed=ok,records=rows", 2),
        ('{"n": 2, "rows": [{"id": 1, "ok": true}]}', "passed=ok,problem_id=id", None),
        ('{"n": 2, "rows": []}', "passed=ok,records=other", None),
        ("[1, 2]", "passed=ok", None),
        ('{"a": {"rows": [{"id": 1, "ok": true}], "other": [1]}}', "passed=ok,problem_id=id,records=a.rows", 1),
        ('{"idx": 1, "score": [true, false, null]}', "passed=score[],problem_id=idx", 3),
        ('{"raw": {"p": [true, false], "q": []}}', "passed=value[],records=raw", 2),
        ('{"id": 1, "runs": {"r1": {"ok": 1}, "r2": {"ok": 0}}}', "passed=ok,problem_id=parent.id,records=runs", 2),
        ('{"id": 1, "tries": [false, true]}', "passed=tries[-1],problem_id=id", 1),
    ],
)
def test_generic_documents(tmp_path: Path, text: str, pairs: str, rows: int | None) -> None:
    report = load_table(tmp_path, text, "x.json", map=pairs)
    assert bool(report.refused) == (rows is None)
    assert rows is None or report.sources[0].rows == rows


@pytest.mark.parametrize(
    ("text", "pairs", "message"),
    [
        ('{"problem_id": 1, "ok": "true"}', "passed=ok", "name the texts that mean passed with --true"),
        ('{"problem_id": 1, "ok": 0.5}', "passed=ok", "record 1: ok is 0.5, which is neither true nor false"),
        ('{"problem_id": 1, "x": 1}', "passed=ok", "no key ok for passed (the first record has: problem_id, x)"),
        (
            '{"id": 1, "ok": 1}',
            "passed=ok",
            "no problem_id (give --map problem_id=...; the first record has: id, ok)",
        ),
        ('{"problem_id": 1, "ok": 1}\n{"problem_id": 2}', "passed=ok", "record 2 has no ok"),
        ('{"problem_id": 1, "s": "x"}', "score=s", 's is "x", which is not a finite number'),
        ('{"problem_id": 1, "s": 1e999}', "score=s", "not a finite number"),
        ('{"problem_id": 1, "a": 3, "b": 5}', "n=a,c=b", "n is 3 and c is 5"),
        ('{"problem_id": 1, "a": 3}', "n=a", "n must be mapped together with c or rate"),
        ('{"problem_id": 1, "a": 3, "r": 0.33}', "n=a,rate=r", "n is 3 and rate is 0.33"),
        ('{"problem_id": 1, "ok": 1}', "passed=ok[]", "record 1 has 1, not a list, at ok[]"),
        ('{"problem_id": 1, "ok": [1], "a": []}', "passed=ok[],answer=a[]", "different lengths: 0 at a[], 1 at ok[]"),
        ('{"problem_id": 1, "ok": 1}', "passed=ok,level=path[-99]", "path[-99] is no name of the path"),
        ('{"problem_id": 1, "ok": 1}', "passed=ok,run=ok", "run is a column of scorelake"),
        ("problem_id,ok\np\n", "passed=ok", "row 2 has 1 cells, the first line 2"),
        ("problem_id,problem_id\np,1\n", "passed=ok", "empty or repeated column names"),
        ('problem_id,ok\n"p,1\n', "passed=ok", "broken CSV"),
        ("problem_id,ok\np,maybe\n", "passed=ok", "--true"),
        ("problem_id,ok\n,1\n", "passed=ok", "record 1 has no problem_id"),
        ("problem_id,ok\np,1", "passed=ok", "the last line has no end"),
    ],
)
def test_generic_refusals(tmp_path: Path, text: str, pairs: str, message: str) -> None:
    name = "x.jsonl" if text[0] == "{" else "x.csv"
    assert message in refusals(load_table(tmp_path, text, name, map=pairs))


def test_generic_reports_all_missing_mappings_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 1, "n": 3}\n')
    pairs = (("answer", "pred"), ("level", "hard"), ("run", "id"))
    (error,) = ingest([str(path)], str(tmp_path / "lake"), "generic", IngestOptions(map=pairs)).refused
    for part in ("no key pred for answer", "no key hard for level", "no problem_id", "neither passed nor score"):
        assert part in error.what
    assert "no benchmark; no model" in error.what
    assert "run is a column of scorelake" in error.what
    assert str(error.hint).endswith("--benchmark, --model; the first record has: id, n")
    (tmp_path / "lines.jsonl").write_text('{"task_id": "t", "passed": true}\n')
    (error,) = ingest([str(tmp_path / "lines.jsonl")], str(tmp_path / "lake")).refused
    assert (error.what, error.hint) == ("no benchmark and no model in the file", "give --benchmark and --model")


def test_empty_cells_are_null_and_measures_are_numbers(tmp_path: Path) -> None:
    (source,) = load_table(
        tmp_path, "problem_id,ok,usd\np,C,0.5\np,,\np,I,1\n", "x.csv", map="passed=ok,cost_usd=usd", true=("C",)
    ).sources
    assert (source.passed, source.graded, source.ungraded) == (1, 2, 1)
    assert sorted(row["cost_usd"] or 0 for row in lakes.rows(tmp_path / "lake")) == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("pred", "gt", "passed"),
    [("18", 18, 1), ("18", 18.0, 1), ([1], [1], 1), ("a", "b", 0), ("true", True, 1), (["a"], "a", None)],
)
def test_generic_comparison(tmp_path: Path, pred: Any, gt: Any, passed: int | None) -> None:
    report = load_table(tmp_path, json.dumps({"problem_id": 1, "pred": pred, "gt": gt}) + "\n", map="passed=pred==gt")
    assert (report.total.passed if not report.refused else None) == passed


def test_indented_document_of_one_record(tmp_path: Path) -> None:
    text = json.dumps({"problem_id": "p", "ok": True}, indent=1) + "\n"
    assert load_table(tmp_path, text, "x.json").sources[0].passed == 1


def test_swebench_report_and_instances_have_one_model(tmp_path: Path) -> None:
    path = write(tmp_path, "swebench_report")
    path.rename(path.with_name("acme__m1.run-0.json"))
    load(tmp_path, benchmark="b")
    assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"m", "acme/m1"}


def test_bfcl_model_is_not_the_group_of_its_category(tmp_path: Path) -> None:
    folder = write(tmp_path, "bfcl").parent
    folder.rename(folder.with_name("moved"))
    (folder / "live").mkdir(parents=True)
    for path in folder.with_name("moved").iterdir():
        path.rename(folder / "live" / path.name)
    assert {source.model for source in load(tmp_path).sources} == {"m"}


def test_bfcl_failures_without_a_prompt_have_the_line_of_their_result(tmp_path: Path) -> None:
    path = write(tmp_path, "bfcl")
    head = {"accuracy": 0.75, "correct_count": 3, "total_count": 4}
    path.write_text(f'{json.dumps(head)}\n{{"id": 3, "valid": false}}\n')
    load(tmp_path)
    failed = {row["problem_id"] for row in lakes.rows(tmp_path / "lake") if not row["passed"]}
    assert "e__f-333" in failed, "the third result"


def test_a_model_that_the_file_names_is_not_called_after_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "terminal_bench")
    edit(lambda about: about.pop("agent_name") and None)(tmp_path / "logs" / "run_metadata.json")
    assert load_one(tmp_path).model == "org/m"


def test_prompts_of_one_model_at_livecodebench_are_not_pooled(tmp_path: Path) -> None:
    path = write(tmp_path, "livecodebench")
    other = tmp_path / "logs" / "output_prompt2" / "m" / path.name
    other.parent.mkdir(parents=True)
    other.write_text(path.read_text().replace("true", "false"))
    path.with_name(path.name.replace("_eval", "_cot_eval")).write_text(path.read_text())
    assert "3 sources differ in variant and are not pooled" in load(tmp_path).total.notes[0]
    assert len({row["setup"] for row in lakes.rows(tmp_path / "lake")}) == 3


def test_runs_of_swebench_in_folders_of_the_same_name_are_two_attempts(tmp_path: Path) -> None:
    for run, resolved in (("a", ["x__y-1"]), ("b", [])):
        path = tmp_path / "logs" / run / "results" / "results.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"resolved": resolved, "generated": ["x__y-1"]}))
    report = load(tmp_path, benchmark="b", model="m")
    assert (report.total.passed, report.total.graded) == (1, 2)


@pytest.mark.slow
def test_a_small_archive_with_a_huge_record_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "inspect_eval")
    with ZipFile(path, "w", 8) as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        archive.writestr("summaries.json", json.dumps([inspect_sample("p", 0, 1, text="x" * (MAX_RECORD + 1))]))
    assert "one record is longer than" in refusals(load(tmp_path))


def test_helm_predictions_are_no_statistics_and_other_models_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path, "helm")
    shown = [{"instance_id": "p", "train_trial_index": 0, "predicted_text": "x", "stats": {"exact_match": 1.0}}]
    path.with_name("display_predictions.json").write_text(json.dumps(shown))
    source = load_one(tmp_path, metric=("exact_match",), model="mine")
    assert "the file names the model org/m; --model makes it mine" in source.notes


def test_harbor_job_whose_names_of_tasks_are_cut_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    stats = {"evals": {"e": {"reward_stats": {"reward": {"1.0": [f"{'t' * 32}__a", f"{'t' * 32}__b"]}}}}}
    (tmp_path / "logs" / "result.json").write_text(json.dumps({"n_total_trials": 2, "stats": stats}))
    assert "is cut to 32 characters: several tasks may share it" in refusals(load(tmp_path, model="m", benchmark="b"))


def test_generic_counts_and_carried_columns(tmp_path: Path) -> None:
    text = '{"problem_id": "p", "k": {"n": 20, "c": 7}, "t": 0.8, "level": "hard"}\n'
    (source,) = load_table(tmp_path, text, map="n=k.n,c=k.c,temperature=t,level=level").sources
    assert (source.rows, source.passed) == (20, 7)
    assert {(row["temperature"], row["level"]) for row in lakes.rows(tmp_path / "lake")} == {(0.8, "hard")}


def test_generic_lists_of_verdicts_answers_and_shares(tmp_path: Path) -> None:
    text = '{"problem_id": "p", "ok": [true, false, true], "pred": ["x", "y", "x"]}\n'
    (source,) = load_table(tmp_path, text, map="passed=ok[],answer=pred[]").sources
    assert (source.rows, source.passed, source.histogram) == (3, 2, {"3": 1})
    assert sorted((row["answer"], row["passed"]) for row in lakes.rows(tmp_path / "lake")) == [
        *(("x", True), ("x", True), ("y", False))
    ]
    (source,) = load_table(tmp_path, '{"problem_id": "p", "k": 20, "r": 0.35}\n', map="n=k,rate=r").sources
    assert (source.rows, source.passed) == (20, 7)


def write_tasks(home: Path) -> list[str]:
    """Two runs with a document per task; those of the second task are equal."""
    for run, task, text in (("a", "p", "1.0\n"), ("a", "q", "0.0\n"), ("b", "p", "0.0\n"), ("b", "q", "0.0\n")):
        path = home / "m1" / run / task / "result.txt"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.with_name(".meta.json").write_text(json.dumps({"result": {"success": text == "1.0\n"}}, indent=1))
    return [str(path) for path in home.rglob("result.txt")]


@pytest.mark.parametrize("kind", ["folder", "texts", "files", "zip"])
def test_generic_documents_whose_path_has_names(tmp_path: Path, kind: str) -> None:
    paths, success = write_tasks(tmp_path / "logs"), "value"
    if kind == "texts":
        for path in (tmp_path / "logs").rglob("*.json"):
            path.rename(path.with_suffix(".log"))
        paths = [str(tmp_path / "logs")]
    elif kind != "files":
        paths, success = [str(tmp_path / "logs")], "result.success"
    if kind == "zip":
        with ZipFile(tmp_path / "x.zip", "w") as archive:
            for path in (tmp_path / "logs").rglob("*.json"):
                archive.write(path, path.relative_to(tmp_path))
        paths = [str(tmp_path / "x.zip")]
    pairs = (("problem_id", "path[-2]"), ("model", "path[-4]"), ("passed", success))
    for _ in range(2):
        report = ingest(paths, str(tmp_path / "lake"), "generic", IngestOptions(map=pairs, benchmark="b"))
        assert not report.refused, refusals(report)
        assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"m1"}
        found = {key[-1]: sorted(values) for key, values in lakes.problems(tmp_path / "lake").items()}
        assert found == {"p": [False, True], "q": [False, False]}


def test_generic_runs_of_equal_documents_are_attempts_of_their_own(tmp_path: Path) -> None:
    for run in "ab":
        (tmp_path / "logs" / "m1" / run / "p").mkdir(parents=True)
        (tmp_path / "logs" / "m1" / run / "p" / "x.json").write_text('{"ok": false}')
    options = {"map": (("problem_id", "path[-2]"), ("passed", "ok")), "benchmark": "b", "model": "m"}
    report = load(tmp_path, **options)
    assert (report.total.rows, report.total.graded, len(report.sources)) == (2, 2, 2)
    (tmp_path / "logs").rename(tmp_path / "moved")
    ingest([str(tmp_path / "moved" / "m1" / "a")], str(tmp_path / "lake"), options=IngestOptions(**options))
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (0, 2)


@pytest.mark.parametrize(
    ("text", "passed", "graded"),
    [
        ("problem_id,ok\np,1\np,0\np,\n", 1, 2),
        ("problem_id;ok\r\np;True\r\nq;false\r\n", 1, 2),
        ('problem_id\tok\n"a\n\nb"\t1.0\n', 1, 1),
    ],
)
def test_csv(tmp_path: Path, text: str, passed: int, graded: int) -> None:
    (source,) = load_table(tmp_path, text, "x.csv").sources
    assert (source.passed, source.graded) == (passed, graded)
