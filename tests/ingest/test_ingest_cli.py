"""`scorelake ingest` as people call it: receipts, one line per refusal, one document, exit codes; then `score`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layouts import LAYOUTS, TABLE, humaneval, inspect_header, inspect_json, inspect_sample
from scorelake.errors import UsageError
from scorelake.ingest.contract import IngestOptions


def test_from_logs_to_a_leaderboard(tmp_path: Path, cli: Any) -> None:
    inspect_json(tmp_path / "logs", TABLE)
    lake, out = tmp_path / "lake", tmp_path / "out"
    done = cli("ingest", "auto", tmp_path / "logs", "--lake", lake)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    for line in (
        f"{tmp_path / 'logs' / 'log.json'} (inspect)",
        "  rows      12 = 12 graded + 0 ungraded + 0 duplicate + 0 refused",
        "  passed    6 of 12 = 0.5",
        "  n         problems by attempts: 4 with 3",
    ):
        assert line in done.stderr.splitlines()
    assert cli("score", lake, "--out", out).returncode == 0
    shown = cli("show", out).stdout
    assert "org/m" in shown
    assert "50.0" in shown
    assert "unchanged" in cli("ingest", "auto", tmp_path / "logs", "--lake", lake).stderr


def test_protocols_of_a_log_are_kept_apart_without_a_config(tmp_path: Path, cli: Any) -> None:
    """The lake message itself which of its columns tell protocols apart."""
    for i, temperature in enumerate((0.0, 1.0)):
        path = inspect_json(tmp_path / "logs" / str(i), TABLE if i else {name: [1, 1, 1] for name in TABLE})
        log = json.loads(path.read_text())
        log["eval"] |= {"eval_id": f"E{i}", "task_id": f"T{i}"}
        path.write_text(json.dumps(log | {"plan": {"config": {"temperature": temperature}}}))
    done = cli("ingest", "auto", tmp_path / "logs", "--lake", tmp_path / "lake")
    assert "2 sources differ in temperature and are not pooled" in done.stderr
    assert cli("score", tmp_path / "lake", "--out", tmp_path / "out", "--metrics", "pass@1").returncode == 0
    query = "SELECT protocol::JSON ->> 'temperature' AS t, value FROM model_summary ORDER BY 1"
    rows = cli("sql", tmp_path / "out", query, "--format", "csv").stdout.split()
    assert rows[1:] == ["0,1.0", "1,0.5"]


def test_a_task_with_a_float_score_has_rewards_and_the_others_verdicts(tmp_path: Path, cli: Any) -> None:
    for task, last in (("toy", 1), ("cyse", 0.25)):
        samples = [inspect_sample("p", i, value, total_time=2 + i) for i, value in enumerate([0, last])]
        log = inspect_header(task=task, eval_id=task, task_id=task) | {"samples": samples}
        (tmp_path / f"{task}.json").write_text(json.dumps(log))
        done = cli("ingest", "auto", tmp_path / f"{task}.json", "--lake", tmp_path / "lake")
        assert done.returncode == 0, done.stderr
    done = cli("score", tmp_path / "lake", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    which = "metric IN ('pass@1', 'pass@2', 'max@2')"
    query = f"SELECT benchmark, metric, value FROM model_summary WHERE {which} ORDER BY ALL"
    rows = cli("sql", tmp_path / "out", query, "--format", "csv").stdout.split()
    assert [row for row in rows[1:] if not row.endswith(",")] == [
        "cyse,max@2,0.25",
        "toy,pass@1,0.5",
        "toy,pass@2,1.0",
    ]
    shown = cli("show", tmp_path / "out").stdout
    assert "toy" in shown
    assert "cyse" in shown
    query = "SELECT DISTINCT measure FROM measure_summary"
    assert cli("sql", tmp_path / "out", query, "--format", "csv").stdout.split() == ["measure", "seconds"]


def test_one_document_on_every_exit_path(tmp_path: Path, cli: Any) -> None:
    def run(*arguments: object) -> dict[str, Any]:
        done = cli("ingest", *arguments, "--json")
        document = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode, done.stderr
        assert "Traceback" not in done.stderr
        return document  # type: ignore[no-any-return]

    path, lake = humaneval(tmp_path / "logs", TABLE), tmp_path / "lake"
    document = run("auto", path, "--lake", lake)
    assert (document["status"], document["refused"][0]["hint"]) == ("refused", "give --model")
    assert (document["exit_code"], lake.exists()) == (3, False)
    document = run("auto", tmp_path / "logs", "--lake", lake, "--model", "m")
    assert (document["status"], document["exit_code"], document["total"]["rows"]) == ("written", 0, 12)
    (source,) = document["sources"]
    assert source["rows"] == source["graded"] + source["ungraded"] + source["duplicate"] + source["refused"]
    assert (source["histogram"], source["errors_counted_as"]) == ({"3": 4}, "ungraded")
    assert [Path(name).name for name in document["ignored"]] == ["samples.jsonl"]
    assert run("auto", path, "--lake", lake, "--model", "m")["status"] == "unchanged"
    assert run("auto", tmp_path / "none", "--lake", lake)["exit_code"] == 5
    assert run("nonsense", path, "--lake", lake)["exit_code"] == 2
    assert cli("ingest", "auto", path, "--lake", lake, "--errors", "maybe").returncode == 2
    assert run("generic", path, "--lake", lake, "--map", "passed")["exit_code"] == 2
    assert run("helm", tmp_path / "logs", "--lake", lake)["exit_code"] == 3
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    assert run("auto", path, "--lake", blocked / "lake", "--model", "m")["exit_code"] == 4


def test_refusals_are_one_line_each(tmp_path: Path, cli: Any) -> None:
    for name in ("swebench_report", "evalplus"):
        LAYOUTS[name].write(tmp_path / "logs", TABLE)
    (tmp_path / "logs" / "pointer.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:x\n")
    done = cli("ingest", "auto", tmp_path / "logs", "--lake", tmp_path / "lake")
    assert done.returncode == 3
    refused = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 4
    assert refused[0].endswith("pointer.json: is a git-LFS pointer, not a result (git lfs pull)")
    assert all(line.endswith("no benchmark in the file (give --benchmark)") for line in refused[1:])
    assert not (tmp_path / "lake").exists()
    done = cli("ingest", "auto", tmp_path / "logs", "--lake", tmp_path / "lake", "--skip-refused")
    assert done.returncode == 0
    assert len([line for line in done.stderr.splitlines() if line.startswith("refused: ")]) == 4
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"map": ["passed"]}, "not a pair: passed"),
        ({"map": ["passed=a==b==c"]}, "not a pair"),
        ({"map": ["problem_id=a==b"]}, "not a pair"),
        ({"map": ["passed=a,passed=b"]}, "passed is mapped twice"),
        ({"scorer": ["a", "b"]}, "--scorer: 2 choices for every task"),
        ({"filter": ["t=a,t=b"]}, "--filter: 2 choices for t"),
        ({"metric": ["t="]}, "--metric: not a choice"),
        ({"model": ""}, "--model: invalid value ''"),
        ({"threshold": float("nan")}, "--threshold: invalid value nan"),
    ],
)
def test_options_that_say_nothing(typed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IngestOptions.parse(**typed)


def test_options_as_typed() -> None:
    options = IngestOptions.parse(map=["passed=a==b, model=m", "x=y"], true=["C,P"], ignore=["commit"], model="m")
    assert dict(options.map) == {"passed": "a==b", "model": "m", "x": "y"}
    assert (options.true, options.ignore, options.model) == (("C", "P"), ("commit",), "m")
