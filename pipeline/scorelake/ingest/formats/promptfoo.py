"""promptfoo: the file of `promptfoo eval --output`, version 2 or 3, checked against its own numbers.

DeepEval: `.deepeval/.latest_test_run.json`. In both, equal tests are repeats of one problem.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from scorelake.ingest.contract import AttemptRow, LogFormat, LogRun, refusal
from scorelake.ingest.json_stream import FileProbe, probe
from scorelake.ingest.values import get_object, pick, quote, to_number, to_setting

VERSIONS = (2, 3)
ERROR = 2
"""failureReason of a test that was not graded; an assertion that failed is 1."""
SUCCESS = "success"
TOKENS = {"input_tokens": "prompt", "output_tokens": "completion"}
MEASURED = {"input_tokens": "inputTokenCount", "output_tokens": "outputTokenCount"}
MEASURED |= {"cost_usd": "tokenCost", "seconds": "completionTime"}


def detect(probe: FileProbe) -> bool:
    results = probe.first.get("results")
    summary = results if isinstance(results, dict) else probe.first
    rows = summary.get("results")
    has_rows = isinstance(rows, list) and all("success" in row and "provider" in row for row in rows)
    return probe.shape == "object" and has_rows and "stats" in summary


def read(run: LogRun) -> Iterator[AttemptRow]:
    above = "results." if isinstance(probe(run.file).first["results"], dict) else ""
    run.benchmark = run.tool = "promptfoo"
    for i, row in run.records(f"{above}results"):
        test, provider, prompt = get_object(row, "testCase"), row["provider"], get_object(row, "prompt")
        usage = get_object(row, "tokenUsage") or get_object(row, "response", "tokenUsage")
        named = {SUCCESS: row[SUCCESS]} | get_object(row, "namedScores")
        time = row["latencyMs"] / 1000 if isinstance(row.get("latencyMs"), int | float) else None
        template = row.get("promptId") or prompt.get("id") or prompt.get("label") or prompt.get("display")
        metric = run.choose("metric", "", [SUCCESS, *named], order="the verdicts of a test")
        # A failed assertion also has a text in `error`.
        reason = row.get("failureReason", ERROR if row.get("error") and not row.get("gradingResult") else None)
        variables = row.get("vars") or test.get("vars") or {}
        label = test.get("description") or next((value for value in variables.values() if value), "test")
        yield AttemptRow(
            name_test(label, [variables, test.get("assert")]),
            str(row.get("id") or f"{run.tag}:{i}"),
            to_number(named[metric], f"result {i}: {metric}"),
            error=reason == ERROR,
            model=(provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider,
            subject=get_object(test, "metadata").get(run.options.subject_key or ""),
            protocol={"prompt": template, "grader": metric},
            measures=pick(usage, TOKENS) | {"cost_usd": row.get("cost"), "seconds": time},
        )
    version = run.document.get(f"{above}version")
    if version not in VERSIONS:
        raise refusal(f"version {quote(version)} of promptfoo's results", run.path, "2 and 3 are supported")
    run.identity = run.run_id = str(run.document.get("evalId") or run.tag)
    run.benchmark = get_object(run.document, "config").get("description") or run.benchmark
    stats = get_object(run.document, f"{above}stats")
    claim_share(run, "successes", stats.get("successes"), stats.get("failures"), stats.get("errors"))


def name_test(label: Any, content: Any) -> str:
    """Return a name for a test that says what it is, and is the same for equal tests only."""
    text = " ".join((label if isinstance(label, str) else json.dumps(label)).split())
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{text[:60]} #{digest[:8]}"


def claim_share(run: LogRun, name: str, passed: Any, *others: Any) -> None:
    """Compare the share of tests that passed, if the tool counts them and its own verdict was read."""
    total = sum(count for count in (passed, *others) if isinstance(count, int))
    if isinstance(passed, int) and total and not run.options.metric:
        run.add_claim(f"{name} of all tests", passed / total)


def detect_deepeval(probe: FileProbe) -> bool:
    run = probe.first.get("testRunData", probe.first)
    has_cases = isinstance(run, dict) and isinstance(run.get("testCases"), list)
    return probe.shape == "object" and (has_cases or probe.has("testRunLink"))


def read_deepeval(run: LogRun) -> Iterator[AttemptRow]:
    first = probe(run.file).first
    if not first.get("testRunData") and "testCases" not in first:
        raise refusal("has only a link to the test run at Confident AI, not its results", run.path)
    above = "testRunData." if "testRunData" in first else ""
    run.tool, run.run_id = "deepeval", run.tag
    kinds = (f"{above}testCases", f"{above}conversationalTestCases")
    for key, i, case in run.members(*kinds):
        if key not in kinds or i is None:
            run.document[key.removeprefix(above)] = case
            continue
        metrics = {str(each["name"]): each for each in case.get("metricsData") or []}
        scores = [f"{name}.score" for name in metrics]
        metric = run.choose("metric", "", [SUCCESS, *metrics, *scores], order="the verdicts of a test")
        name = metric.removesuffix(".score") if metric not in metrics else metric
        graded = case if metric == SUCCESS else metrics.get(name, {})
        value = graded.get(SUCCESS if metric == name else "score")
        asked = [case.get(key) for key in ("input", "expectedOutput", "scenario", "expectedOutcome", "context")]
        is_numbered = str(case["name"]).startswith(("test_case_", "conversational_test_case_"))
        yield AttemptRow(
            name_test(asked[0] or asked[2] or case["name"] if is_numbered else case["name"], asked),
            f"{run.tag}:{key}:{i}",
            to_number(value, f"{case['name']}: {metric}"),
            error=value is None or bool(graded.get("error")),
            subject=get_object(case, "metadata").get(run.options.subject_key or ""),
            protocol={
                **pick(graded, {"judge": "evaluationModel", "threshold": "threshold"}),
                "grader": metric if metric != SUCCESS else f"{SUCCESS} {to_setting(sorted(metrics))}",
            },
            measures=pick(case, MEASURED),
        )
    model = get_object(run.document, "hyperparameters").get("model")
    run.model = model if isinstance(model, str) else None
    run.benchmark = run.document.get("datasetAlias") or run.document.get("testFile") or "deepeval"
    claim_share(run, "testPassed", run.document.get("testPassed"), run.document.get("testFailed"))


PROMPTFOO = LogFormat("promptfoo", "score", "fail", detect, read)
DEEPEVAL = LogFormat("deepeval", "score", "fail", detect_deepeval, read_deepeval)
