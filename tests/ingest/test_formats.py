"""What is special about each format: its traps, its refusals, the tool's own number beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ingested as lakes
from layouts import LAYOUTS, TABLE, inspect_header, inspect_sample
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.ingest_report import IngestReport, format_report
from scorelake.ingest.job import ingest
from scorelake.ingest.zips import ZipFile


def take(home: Path, **options: Any) -> IngestReport:
    return ingest([str(home / "logs")], str(home / "lake"), options=IngestOptions(**options))


def refusal(home: Path, **options: Any) -> str:
    report = take(home, **options)
    assert report.status == "refused", report.sources
    assert not (home / "lake").exists()
    return "; ".join(f"{error.where}: {error.what} ({error.hint})" for error in report.refused)


def receipt(home: Path, **options: Any) -> Any:
    report = take(home, **options)
    assert not report.refused, [str(error) for error in report.refused]
    (told,) = report.sources
    return told


def edited(path: Path, change: Callable[[Any], Any]) -> None:
    """A JSON file, changed in place."""
    told = json.loads(path.read_text())
    path.write_text(json.dumps(change(told) or told))


def edited_lines(path: Path, change: Callable[[int, dict[str, Any]], None]) -> None:
    records = [json.loads(line) for line in path.read_text().split("\n") if line]
    for i, record in enumerate(records):
        change(i, record)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def made(home: Path, layout: str) -> Path:
    return LAYOUTS[layout].write(home / "logs", TABLE)


# --- Inspect ------------------------------------------------------------------------------------------------------


def inspect(home: Path, *samples: dict[str, Any], **header: Any) -> None:
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / "log.json").write_text(json.dumps(inspect_header() | header | {"samples": samples}))


@pytest.mark.parametrize(
    ("value", "worth"),
    [
        ("C", 1),
        ("I", 0),
        ("N", 0),
        ("yes", 1),
        ("No", 0),
        ("TRUE", 1),
        ("1.0", 1),
        (True, 1),
        (False, 0),
        (1, 1),
        (0.0, 0),
    ],
)
def test_inspect_values(tmp_path: Path, value: Any, worth: int) -> None:
    inspect(tmp_path, inspect_sample("p", 0, None, scores={"s": {"value": value}}))
    assert receipt(tmp_path).passed == worth


def test_inspect_partial_credit_is_a_reward(tmp_path: Path) -> None:
    inspect(tmp_path, *(inspect_sample("p", i, value) for i, value in enumerate(["C", "P", float("nan")])))
    told = receipt(tmp_path)
    assert (told.passed, told.mean, told.ungraded) == (None, 0.75, 1)


def test_inspect_scorers(tmp_path: Path) -> None:
    both = {"a": {"value": "C"}, "b": {"value": {"x": 1, "y": 0.5}}}
    inspect(tmp_path, inspect_sample("p", 0, None, scores=both))
    assert "3 scores: a, b.x, b.y (choose one with --scorer)" in refusal(tmp_path)
    assert "no score c (available: a, b.x, b.y)" in refusal(tmp_path, scorer="c")
    inspect(tmp_path, inspect_sample("p", 0, [1, 2]))
    assert "score is [1, 2]" in refusal(tmp_path)
    inspect(tmp_path, inspect_sample("p", 0, "maybe"))
    assert 'a score of "maybe"' in refusal(tmp_path)
    inspect(tmp_path, inspect_sample("p", 0, None, scores=both))
    assert receipt(tmp_path, scorer="b.y").mean == 0.5


def test_inspect_invalidated_and_versions(tmp_path: Path) -> None:
    inspect(tmp_path, inspect_sample("p", 0, 1), version=4)
    assert "version 4 of Inspect's log (2 and 3 are supported)" in refusal(tmp_path)
    inspect(tmp_path, inspect_sample("p", 0, 1, invalidation={"reason": "x"}), inspect_sample("p", 1, 0))
    told = receipt(tmp_path)
    assert (told.graded, told.ungraded) == (1, 1)


def test_inspect_header_is_a_cross_check(tmp_path: Path) -> None:
    scores = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"name": "accuracy", "value": 0.676}}}]
    inspect(tmp_path, *(inspect_sample("p", i, i % 2) for i in range(4)), results={"scores": scores}, status="error")
    told = receipt(tmp_path)
    assert told.warnings == ["the file reports accuracy 0.676, but its attempts give 0.5"]
    assert "warning   the file reports accuracy 0.676" in format_report(told)
    assert "the log's status is error" in format_report(told)


def test_inspect_protocols_are_told_apart(tmp_path: Path) -> None:
    for i, temperature in enumerate((0.0, 1.0)):
        (tmp_path / "logs" / str(i)).mkdir(parents=True)
        told = inspect_header(eval_id=f"E{i}", task_id=f"T{i}") | {"plan": {"config": {"temperature": temperature}}}
        (tmp_path / "logs" / str(i) / "x.json").write_text(
            json.dumps(told | {"samples": [inspect_sample("p", 0, 1)]})
        )
    report = take(tmp_path)
    assert "differ in temperature and are not pooled" in report.total.notes[0]
    assert len(lakes.problems(tmp_path / "lake")) == 2
    ingest([str(tmp_path / "logs")], str(tmp_path / "pooled"), options=IngestOptions(ignore=("temperature",)))
    assert len(lakes.problems(tmp_path / "pooled")) == 1


def test_inspect_damaged_member(tmp_path: Path) -> None:
    path = made(tmp_path, "inspect_eval")
    raw = bytearray(path.read_bytes())
    at = raw.index(b"summaries.json") + len("summaries.json") + 12
    raw[at] ^= 0xFF
    path.write_bytes(raw)
    assert "cannot be read to its end" in refusal(tmp_path)
    with ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        archive.writestr("summaries.json", '[{"id": 1}')
    assert "summaries.json: broken JSON" in refusal(tmp_path)


# --- lm-eval ------------------------------------------------------------------------------------------------------


def test_lm_eval_traps(tmp_path: Path) -> None:
    path = made(tmp_path, "lm_eval")
    whole = path.read_text()
    edited_lines(path, lambda i, record: record.update(doc_id=0))
    assert "problem_id 0 has conflicting contents (attempt 1 and attempt" in refusal(tmp_path)
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(acc_norm=1.0, metrics=["exact_match", "acc_norm"]))
    assert "2 metrics: acc_norm, exact_match (choose one with --metric)" in refusal(tmp_path)
    assert "no metric f1" in refusal(tmp_path, metric="f1")
    edited_lines(path, lambda i, record: record.update(exact_match=[1, 2], metrics=["exact_match"]))
    assert "exact_match is [1, 2]" in refusal(tmp_path)
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(resps=[["a", "b"]], filter="majority"))
    assert "2 responses and one score in line 1" in refusal(tmp_path)
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(filter="x" if i else "none"))
    assert "2 filters: none, x (choose one with --filter)" in refusal(tmp_path)


def test_lm_eval_without_its_results_stays_by_itself(tmp_path: Path) -> None:
    path = made(tmp_path, "lm_eval")
    for other in path.parent.glob("results_*"):
        other.unlink()
    report = take(tmp_path)
    assert all("the protocol is unknown" in told.notes[0] for told in report.sources)
    assert {len(values) for values in lakes.problems(tmp_path / "lake").values()} == {1}
    assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"org/m"}


def test_lm_eval_rows_that_do_not_name_their_filter(tmp_path: Path) -> None:
    """Before 0.4.7: one filter is fine, of several nobody can tell which row is whose."""
    path = made(tmp_path, "lm_eval")
    for other in path.parent.glob("samples_*"):
        edited_lines(other, lambda i, record: [record.pop(key) for key in ("filter", "metrics")] and None)
    published = {"exact_match,a": 0.5, "exact_match_stderr,a": 0.1, "exact_match,b": 0.5}
    for results in path.parent.glob("results_*"):
        edited(results, lambda told: told.update(results={"toy": published}))
    assert "2 filters (a, b), and rows that do not name their filter" in refusal(tmp_path)
    published.pop("exact_match,b")
    for results in path.parent.glob("results_*"):
        edited(results, lambda told: told.update(results={"toy": published}))
    assert take(tmp_path).total.passed == 6
    edited_lines(path, lambda i, record: record.update(doc_id="c__d-22", doc_hash="hash of c__d-22"))
    assert "problem_id c__d-22 occurs twice in one run" in take(tmp_path).refused[0].what


def test_lm_eval_groups(tmp_path: Path) -> None:
    path = made(tmp_path, "lm_eval")
    groups = {"mmlu": ["stem"], "stem": ["toy"], "toy": []}
    for results in path.parent.glob("results_*"):
        edited(results, lambda told: told.update(group_subtasks=groups, results={"toy": {"exact_match,none": 0.9}}))
    report = take(tmp_path)
    assert {(row["benchmark"], row["subject"]) for row in lakes.rows(tmp_path / "lake")} == {("mmlu", "toy")}
    assert all("the file reports exact_match,none 0.9" in told.warnings[0] for told in report.sources)


# --- agents -------------------------------------------------------------------------------------------------------


def test_harbor_traps(tmp_path: Path) -> None:
    path = made(tmp_path, "harbor")
    whole = path.read_text()
    edited(path, lambda told: told["verifier_result"]["rewards"].update(style=0.5))
    assert "2 rewards: reward, style (choose one with --metric)" in refusal(tmp_path)
    path.write_text(whole)
    other = path.parents[1] / "again" / "result.json"
    other.parent.mkdir()
    other.write_text(whole)
    edited(other, lambda told: told.update(task_checksum="another", trial_name="again"))
    assert "problem_id a__b-1 has conflicting contents" in refusal(tmp_path)
    other.unlink()
    edited(path, lambda told: told.update(finished_at=None))
    report = take(tmp_path)
    assert sum(told.refused for told in report.sources) == 1
    assert any("which is not finished" in note for told in report.sources for note in told.notes)


def test_harbor_partial_reward(tmp_path: Path) -> None:
    path = made(tmp_path, "harbor")
    edited(path, lambda told: told["verifier_result"]["rewards"].update(reward=0.5))
    assert take(tmp_path).total.passed == 5, "a pass is a reward of 1"
    assert take(tmp_path, threshold=0.5).total.passed == 6


def test_swebench_traps(tmp_path: Path) -> None:
    path = made(tmp_path, "swebench_report")
    edited(path, lambda told: told["unresolved_ids"].append("a__b-1"))
    assert "1 instances are resolved and unresolved, such as a__b-1" in refusal(tmp_path, benchmark="b")
    edited(path, lambda told: {"resolved": ["a__b-1"]})
    assert "no list of submitted instances" in refusal(tmp_path, benchmark="b", model="m")
    path.rename(path.with_name("gpt-4.1.full.json"))
    edited(
        path.with_name("gpt-4.1.full.json"), lambda told: {"resolved_ids": ["a__b-1"], "submitted_ids": ["a__b-1"]}
    )
    assert "does not show where the model ends (give --model)" in refusal(tmp_path, benchmark="b")


def test_swebench_pending_is_no_verdict(tmp_path: Path) -> None:
    path = made(tmp_path, "swebench_report")
    for other in path.parent.glob("m.run-[12].json"):
        other.unlink()
    ids = {"submitted_ids": ["a__b-1", "a__b-2", "c__d-1"], "resolved_ids": ["a__b-1"], "pending_ids": ["a__b-2"]}
    edited(path, lambda told: ids | {"failed_ids": ["c__d-1"], "unresolved_ids": []})
    told = receipt(tmp_path, benchmark="b", errors="fail")
    assert (told.passed, told.graded, told.ungraded) == (1, 2, 1)
    assert {row["subject"] for row in lakes.rows(tmp_path / "lake")} == {"a/b", "c/d"}


# --- rollouts -----------------------------------------------------------------------------------------------------


def test_verifiers_ids_that_are_wrong(tmp_path: Path) -> None:
    """Each id covers three different prompts: problems are told by what was asked, and that is said."""
    path = made(tmp_path, "verifiers")
    edited_lines(path, lambda i, record: record.update(example_id=i // 3))
    told = receipt(tmp_path)
    assert "have different prompts" in told.notes[0]
    found = lakes.problems(tmp_path / "lake")
    assert sorted((len(values), sum(values)) for values in found.values()) == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert all(key[-1].startswith("content-") for key in found)


def test_verifiers_metrics_errors_and_metadata(tmp_path: Path) -> None:
    path = made(tmp_path, "verifiers")
    edited(path.with_name("metadata.json"), lambda told: told.update(avg_reward=0.0, num_examples=7))
    edited_lines(
        path, lambda i, record: record.update(metrics=json.dumps({"m": i % 2}), error="x" if i < 2 else None)
    )
    told = receipt(tmp_path)
    assert "the file reports avg_reward 0" in told.warnings[0]
    assert "metadata reports 7 examples x 3 rollouts; the file has 4 problems in 12 rows" in told.notes
    assert (told.errors, told.errors_counted_as) == (2, "fail")
    named = ingest([str(path)], str(tmp_path / "named"), options=IngestOptions(metric="m", errors="ungraded"))
    assert (named.sources[0].passed, named.sources[0].graded) == (5, 10)
    assert (
        "no metric x in line 1"
        in ingest([str(path)], str(tmp_path / "x"), options=IngestOptions(metric="x")).refused[0].what
    )


def test_prime_rl_torn_line_and_agents(tmp_path: Path) -> None:
    path = made(tmp_path, "prime_rl")
    whole = path.read_text()
    path.write_text(whole[:-30])
    told = receipt(tmp_path)
    assert (told.rows, told.refused, told.graded) == (12, 1, 11)
    assert {row["model"] for row in lakes.rows(tmp_path / "lake")} == {"org/m@step 7"}
    path.write_text(whole[:200] + "\n" + whole[200:])
    assert "broken JSON at line 1" in str(take(tmp_path).refused[0])
    path.write_text(whole)

    def second(i: int, record: dict[str, Any]) -> None:
        told = {"agent": {"name": "judge", "config": {"model": "j"}}, "rewards": {"r": {"score": 0.0, "weight": 2}}}
        record["traces"].append(told)

    edited_lines(path, second)
    assert "2 agents: agent, judge" in take(tmp_path).refused[0].what
    report = take(tmp_path, scorer="judge")
    assert report.sources[0].passed == 0


# --- the rest -----------------------------------------------------------------------------------------------------


def test_evalplus_claims_and_plus(tmp_path: Path) -> None:
    path = made(tmp_path, "evalplus")
    published = {"base": {"pass@1": 0.5, "pass@10": 1.0}, "plus": {"pass@1": 0.9}}
    edited(path, lambda told: told.update(pass_at_k=published))
    told = receipt(tmp_path)
    assert told.warnings == ["the file reports humaneval+ pass@1 0.9, but its attempts give 0.5"]
    assert (told.model, len(told.claims)) == ("m", 2)

    def worse(told: Any) -> None:
        told["eval"]["HumanEval/a__b-1"][0]["plus_status"] = "timeout"
        told["eval"]["HumanEval/c__d-22"][0]["plus_status"] = None

    edited(path, worse)
    take(tmp_path)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval")) == (6, 12)
    assert lakes.counts(lakes.problems(tmp_path / "lake", "humaneval+")) == (5, 11)
    edited(path, lambda told: told["eval"]["HumanEval/a__b-1"][0].update(base_status="maybe"))
    assert "KeyError: 'maybe'" in take(tmp_path).refused[0].what


def test_evalplus_under_another_name(tmp_path: Path) -> None:
    made(tmp_path, "evalplus")
    assert receipt(tmp_path, benchmark="mine").benchmarks == ["mine", "mine+"]


def test_humaneval_not_graded(tmp_path: Path) -> None:
    path = made(tmp_path, "humaneval")
    samples = path.with_name("samples.jsonl")
    assert "not graded" in ingest([str(samples)], str(tmp_path / "lake")).refused[0].what
    edited_lines(path, lambda i, record: record.pop("passed") if i == 5 else None)
    assert "line 6 has no passed: not graded" in refusal(tmp_path, model="m")
    edited_lines(path, lambda i, record: record.update(passed="passed" if i % 2 else "failed"))
    assert "--true" in refusal(tmp_path, model="m")
    assert receipt(tmp_path, model="m", true=("passed",)).passed == 6


def test_livecodebench_appended_twice(tmp_path: Path) -> None:
    path = made(tmp_path, "livecodebench")
    edited(path, lambda told: told + told[:1])
    told = receipt(tmp_path)
    assert (told.rows, told.graded, told.duplicate) == (15, 12, 3)
    edited(path, lambda told: [{**record, "test_id": i, "pass@1": 0.0} for i, record in enumerate(told)])
    told = take(tmp_path).sources[0]
    assert told.histogram == {"3": 5}
    assert "the file reports mean of pass@1 0" in told.warnings[0]


def test_tau2_index_and_infrastructure(tmp_path: Path) -> None:
    path = made(tmp_path, "tau2")

    def indexed(told: Any) -> Any:
        index = [
            {
                "task_id": one["task_id"],
                "trial": one["trial"],
                "reward": one["reward_info"]["reward"],
                "id": one["id"],
            }
            for one in told["simulations"]
        ]
        index[0]["termination_reason"] = "infrastructure_error"
        return {"info": told["info"], "simulation_index": index}

    edited(path, indexed)
    told = receipt(tmp_path)
    assert (told.rows, told.graded, told.ungraded, told.errors_counted_as) == (12, 11, 1, "ungraded")
    edited(path, lambda told: {"info": told["info"], "tasks": []})
    assert "no folder simulations next to it" in take(tmp_path).refused[0].what


def test_every_eval_ever_traps(tmp_path: Path) -> None:
    path = made(tmp_path, "every_eval_ever")
    whole = path.read_text()
    edited(path.with_name("u.json"), lambda told: told.update(eval_library={"name": "inspect_ai"}))
    edited_lines(path, lambda i, record: record["metadata"].update(epoch=i // 4 + 1))
    assert "ingest the .eval log instead" in refusal(tmp_path)
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(evaluation_result_id=f"r{i % 2}"))
    assert "toy has several results: r0, r1 (choose one with --metric)" in refusal(tmp_path)
    assert receipt(tmp_path, metric="r0").rows == 6
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(sample_hash=str(i)))
    assert "has conflicting contents" in take(tmp_path).refused[0].what
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(schema_version="0.4.0"))
    assert 'schema "0.4.0"' in take(tmp_path).refused[0].what
    path.write_text(whole)
    edited_lines(path, lambda i, record: record.update(error="boom") if i == 0 else None)
    told = take(tmp_path).sources[0]
    assert (told.graded, told.ungraded) == (11, 1)


def test_helm_splits_and_perturbations(tmp_path: Path) -> None:
    path = made(tmp_path, "helm")
    assert "2 metrics: exact_match, num_references (choose one with --metric)" in refusal(tmp_path)

    def split(told: Any) -> None:
        for stat in told[0]["stats"]:
            stat["name"]["split"] = "valid"

    edited(path, split)
    assert "2 splits: test, valid (choose one with --split)" in refusal(tmp_path, metric="exact_match")
    stats = [{"name": {"name": "exact_match", "split": "test"}, "mean": 0.25}]
    path.with_name("stats.json").write_text(json.dumps(stats))
    told = receipt(tmp_path, metric="exact_match", split="test")
    assert told.rows == 11
    assert "the file reports exact_match of test 0.25" in told.warnings[0]

    def robust(told: Any) -> None:
        told[1]["stats"][0]["name"]["perturbation"] = {"name": "typos"}

    edited(path, robust)
    take(tmp_path, metric="exact_match", split="test")
    setups = {row["setup"] for row in lakes.rows(tmp_path / "lake")}
    assert len(setups) == 2
    assert any("perturbation=typos" in setup for setup in setups)


def test_bfcl_needs_both_files_whole(tmp_path: Path) -> None:
    path = made(tmp_path, "bfcl")
    whole = path.read_text()
    path.write_text("\n".join(whole.split("\n")[:-2]) + "\n")
    assert "by the first line" in refusal(tmp_path)
    path.write_text(whole)
    result = path.with_name("simple_result.json")
    told = result.read_text()
    result.write_text("\n".join(told.split("\n")[:-2]) + "\n")
    assert "is not in simple_result.json" in refusal(tmp_path) or "by the first line" in refusal(tmp_path)
    result.unlink()
    assert "no result file next to it" in refusal(tmp_path)
    score, results = tmp_path / "logs" / "score" / "m", tmp_path / "logs" / "result" / "m"
    score.mkdir(parents=True)
    results.mkdir(parents=True)
    path.rename(score / "simple_score.json")
    (results / "simple_result.json").write_text(told)
    assert len(take(tmp_path).sources) == 3


# --- any table ----------------------------------------------------------------------------------------------------


def table(home: Path, name: str, text: str) -> None:
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / name).write_text(text)


def mapped(home: Path, text: str, name: str = "x.jsonl", **options: Any) -> Any:
    table(home, name, text)
    pairs = tuple(pair.split("=", 1) for pair in options.pop("map", "passed=ok").split(","))
    return ingest(
        [str(home / "logs")],
        str(home / "lake"),
        options=IngestOptions(map=pairs, model="m", benchmark="b", **options),
    )


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
    ],
)
def test_generic_documents(tmp_path: Path, text: str, pairs: str, rows: int | None) -> None:
    report = mapped(tmp_path, text, "x.json", map=pairs)
    assert bool(report.refused) == (rows is None)
    assert rows is None or report.sources[0].rows == rows


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ('{"problem_id": 1, "ok": "true"}', {}, "name the texts that mean passed with --true"),
        ('{"problem_id": 1, "ok": 0.5}', {}, "record 1: ok is 0.5, which is neither true nor false"),
        ('{"problem_id": 1, "right": 1}', {}, "no key ok for passed (the first record has: problem_id, right)"),
        ('{"id": 1, "ok": 1}', {}, "has no problem_id"),
        ('{"problem_id": 1, "ok": 1}\n{"problem_id": 2}', {}, "record 2 has no ok"),
        ('{"problem_id": 1, "s": "x"}', {"map": "score=s"}, 's is "x", which is not a finite number'),
        ('{"problem_id": 1, "s": 1e999}', {"map": "score=s"}, "not a finite number"),
        ('{"problem_id": 1, "a": 3, "b": 5}', {"map": "n=a,c=b"}, "n is 3 and c is 5"),
        ('{"problem_id": 1, "a": 3}', {"map": "n=a"}, "n and c must be mapped together"),
        ('{"problem_id": 1, "ok": 1}', {"map": "passed=ok,run=ok"}, "run is a column of scorelake"),
    ],
)
def test_generic_refusals(tmp_path: Path, text: str, options: dict[str, Any], says: str) -> None:
    report = mapped(tmp_path, text + "\n", **options)
    assert says in "; ".join(f"{error.what} ({error.hint})" for error in report.refused)


def test_generic_counts_and_extras(tmp_path: Path) -> None:
    told = mapped(
        tmp_path,
        '{"problem_id": "p", "k": {"n": 20, "c": 7}, "t": 0.8, "level": "hard"}\n',
        map="n=k.n,c=k.c,temperature=t,level=level",
    )
    assert (told.sources[0].rows, told.sources[0].passed) == (20, 7)
    assert {(row["temperature"], row["level"]) for row in lakes.rows(tmp_path / "lake")} == {(0.8, "hard")}


@pytest.mark.parametrize(
    ("text", "passed", "graded"),
    [
        ("problem_id,ok\np,1\np,0\np,\n", 1, 2),
        ("problem_id;ok\r\np;True\r\nq;false\r\n", 1, 2),
        ('problem_id\tok\n"a\n\nb"\t1.0\n', 1, 1),
    ],
)
def test_csv(tmp_path: Path, text: str, passed: int, graded: int) -> None:
    told = mapped(tmp_path, text, "x.csv").sources[0]
    assert (told.passed, told.graded) == (passed, graded)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("problem_id,ok\np,1", "the last line has no end"),
        ("problem_id,ok\np\n", "row 2 has 1 cells, the first line 2"),
        ("problem_id,problem_id\np,1\n", "empty or repeated column names"),
        ('problem_id,ok\n"p,1\n', "broken CSV"),
        ("problem_id,ok\np,maybe\n", "--true"),
        ("problem_id,ok\n,1\n", "record 1 has no problem_id"),
    ],
)
def test_broken_csv(tmp_path: Path, text: str, says: str) -> None:
    report = mapped(tmp_path, text, "x.csv")
    assert says in "; ".join(f"{error.what} ({error.hint})" for error in report.refused)
