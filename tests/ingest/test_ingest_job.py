"""Sources checked against each other and against the lake: repeats, contradictions, outcomes, names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ingested as lakes
from conftest import ask, run
from layouts import LAYOUTS, TABLE, inspect_header, inspect_json, inspect_sample, swebench_report
from scorelake.errors import DataError, LakeError, UsageError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.ingest_report import IngestReport
from scorelake.ingest.job import ingest
from scorelake.lake.listing import listing

PROTOCOL = '[protocol]\ncolumns = ["temperature", "grader", "setup"]\n'


def write_rows(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"model": "m", "benchmark": "b", **record}) + "\n" for record in records))
    return path


def load(lake: Path, *paths: Path, format: str = "generic", skip: bool = False, **options: Any) -> IngestReport:  # noqa: A002
    return ingest([str(path) for path in paths], str(lake), format, IngestOptions(**options), skip)


def write_log(path: Path, *samples: dict[str, Any], **about: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(inspect_header(**about) | {"samples": samples}))
    return path


# --- contradictions and repeats -----------------------------------------------------------------------------------


def test_one_attempt_with_two_verdicts_is_refused(tmp_path: Path) -> None:
    one = write_rows(tmp_path / "one.jsonl", {"problem_id": "p", "attempt": 1, "passed": True})
    two = write_rows(tmp_path / "two.jsonl", {"problem_id": "p", "attempt": 1, "passed": False})
    three = write_rows(tmp_path / "three.jsonl", {"problem_id": "q", "attempt": 1, "passed": False})
    report = load(tmp_path / "lake", one, two, three)
    assert report.status == "refused"
    assert "one attempt, two verdicts: problem p, attempt 1" in report.refused[0].what
    assert {error.where for error in report.refused} == {str(one), str(two)}, "both are in the account"
    assert not (tmp_path / "lake").exists()
    report = load(tmp_path / "lake", one, two, three, skip=True)
    assert [source.source for source in report.sources] == [str(three)]
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (0, 1)
    records = [{"problem_id": "p", "attempt": 1, "passed": passed} for passed in (True, False)]
    report = load(tmp_path / "lake", write_rows(tmp_path / "both.jsonl", *records))
    assert "one attempt, two verdicts" in report.refused[0].what


def test_problem_id_with_two_contents_in_two_files_is_refused(tmp_path: Path) -> None:
    path = LAYOUTS["lm_eval"].write(tmp_path / "logs", TABLE)
    path.write_text(path.read_text().replace("hash of a__b-1", "another hash"))
    report = load(tmp_path / "lake", tmp_path / "logs", format="auto")
    assert "problem_id a__b-1 has conflicting contents" in report.refused[0].what
    report = load(tmp_path / "lake", tmp_path / "logs", format="auto", skip=True)
    assert len(report.sources) == 1


def test_the_same_attempt_or_file_twice_is_a_duplicate(tmp_path: Path) -> None:
    record = {"problem_id": "p", "attempt": 1, "passed": True}
    one, two = (write_rows(tmp_path / f"{n}.jsonl", *[record] * n) for n in (2, 1))
    report = load(tmp_path / "lake", one, two)
    assert (report.total.rows, report.total.graded, report.total.duplicate) == (3, 1, 2)
    run(tmp_path / "lake", tmp_path / "out", PROTOCOL)
    assert ask(tmp_path / "out", "SELECT graded, duplicates FROM run") == [(1, 2)]
    records = [{"problem_id": "p", "passed": True}, {"problem_id": "p", "passed": False}]
    files = [write_rows(tmp_path / folder / "x.jsonl", *records) for folder in ("a", "b")]
    report = load(tmp_path / "other", *files)
    assert (report.total.graded, report.total.duplicate) == (2, 2)
    assert any("the same attempts as another file" in note for source in report.sources for note in source.notes)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (None,)])
@pytest.mark.parametrize("uuid", [None, "u"])
def test_a_retry_replaces_what_it_retries_in_any_order(
    order: tuple[Any, ...], uuid: str | None, tmp_path: Path
) -> None:
    """The newest log of a task counts, as in Inspect; a log that was only started does not."""
    more = {"uuid": uuid} if uuid else {}
    new = {"eval_id": "E2", "created": "2026-01-01T20:00:00+02:00"}
    logs = [
        write_log(tmp_path / "b.json", inspect_sample("p", 0, 1, **more), inspect_sample("q", 0, 0), eval_id="E1"),
        write_log(tmp_path / "a.json", *[inspect_sample(x, 0, 1) for x in "pq"], **new),
    ]
    started = write_log(tmp_path / "c.json", inspect_sample("p", 0, 0), eval_id="E3", created="2026-01-03")
    started.write_text(started.read_text().replace("success", "started"))
    for at in order:
        report = load(tmp_path / "lake", *(logs if at is None else [logs[at]]), started, format="auto")
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (2, 2)
    statuses = [source.status for source in report.sources]
    assert statuses.count("superseded") == (1 if order == (0, 1) else 2)
    assert any("is a newer log of the same run" in note for source in report.sources for note in source.notes)


def test_an_emptied_log_takes_its_attempts_along(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.json", inspect_sample("p", 0, 1))
    load(tmp_path / "lake", log, format="auto")
    write_log(log)
    assert load(tmp_path / "lake", log, format="auto").sources[0].status == "empty"
    assert not list(lakes.rows(tmp_path / "lake"))


def test_a_contradiction_with_an_unchanged_file_is_refused(tmp_path: Path) -> None:
    for name, passed in (("one", True), ("two", False)):
        write_rows(tmp_path / "logs" / f"{name}.jsonl", {"problem_id": "p", "attempt": 1, "passed": passed})
        report = load(tmp_path / "lake", tmp_path / "logs")
    assert "one attempt, two verdicts" in report.refused[0].what
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (1, 1)


def test_a_contradiction_with_a_log_that_was_read_before_is_refused(tmp_path: Path) -> None:
    """`score` would refuse the lake; each log was accepted on its own."""
    record = {"problem_id": "p", "attempt": 1}
    for name, passed in (("one", True), ("same", True), ("null", None)):
        load(tmp_path / "lake", write_rows(tmp_path / f"{name}.jsonl", record | {"passed": passed}))
    other = write_rows(tmp_path / "other.jsonl", record | {"passed": False})
    with pytest.raises(DataError, match=r"attempt 1 is 0 in other.jsonl and 1 in the lake"):
        load(tmp_path / "lake", other)
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (1, 1)
    assert load(tmp_path / "lake", other, benchmark="c").status == "written"
    assert load(tmp_path / "lake", other, model="n").status == "written"


def test_score_reads_the_files_in_force(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.jsonl", {"problem_id": "p", "passed": True})
    load(tmp_path / "lake", path)
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    shutil.copy(file, file.with_name(f"{'0' * 32}.parquet"))
    lake = listing(tmp_path / "lake")
    assert [each.path for each in lake.files] == [file.relative_to(tmp_path / "lake").as_posix()]
    assert "not named in _scorelake.json" in lake.left_out[-1][1]
    file.unlink()
    with pytest.raises(DataError, match="1 files that ingest wrote are missing"):
        listing(tmp_path / "lake")


# --- verdicts and rewards -----------------------------------------------------------------------------------------


def test_numbers_that_are_all_0_or_1_are_verdicts_unless_others_are_not(tmp_path: Path) -> None:
    binary = write_rows(tmp_path / "binary.jsonl", {"problem_id": "p", "score": 1}, {"problem_id": "q", "score": 0.0})
    real = write_rows(tmp_path / "real.jsonl", {"problem_id": "p", "score": 0.25, "model": "n"})
    load(tmp_path / "passes", binary)
    assert {row["passed"] for row in lakes.rows(tmp_path / "passes")} == {True, False}
    load(tmp_path / "rewards", binary, real)
    assert {row["score"] for row in lakes.rows(tmp_path / "rewards")} == {0.0, 0.25, 1.0}
    report = load(tmp_path / "passes", real)
    assert "1 of 1 values are not 0 or 1 (from 0.25 to 0.25)" in report.refused[0].what
    assert "--threshold" in str(report.refused[0].hint)
    load(tmp_path / "passes", real, threshold=0.25)
    assert lakes.counts(lakes.problems(tmp_path / "passes")) == (2, 3)
    verdicts = write_rows(tmp_path / "verdicts.jsonl", {"problem_id": "p", "passed": True})
    assert "the lake has rewards of b" in load(tmp_path / "rewards", verdicts).refused[0].what
    assert "0.25" in load(tmp_path / "both", verdicts, real).refused[0].what


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_outcome_of_a_benchmark_does_not_depend_on_the_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """One benchmark gets rewards, the other keeps its verdicts; logs that were read before are converted."""
    rows = [("b", "m", 1), ("b", "n", 0.25), ("c", "m", 1)]
    for i in order:
        benchmark, model, score = rows[i]
        record = {"problem_id": "p", "score": score, "benchmark": benchmark, "model": model}
        write_rows(tmp_path / "logs" / f"{i}.jsonl", record)
        report = load(tmp_path / "lake", tmp_path / "logs")
    found = {(row["benchmark"], row.get("passed"), row.get("score")) for row in lakes.rows(tmp_path / "lake")}
    assert found == {("b", None, 1.0), ("b", None, 0.25), ("c", True, None)}
    report = load(tmp_path / "fresh", tmp_path / "logs")
    assert (report.total.passed, report.total.mean) == (None, None), "verdicts and rewards have no common mean"
    assert report.total.notes[-1].startswith("rewards, not verdicts: b")
    write_rows(tmp_path / "logs" / "1.jsonl", record | {"benchmark": "b", "score": 0})
    load(tmp_path / "lake", tmp_path / "logs")
    assert {row["passed"] for row in lakes.rows(tmp_path / "lake")} == {True, False}


# --- what is in the lake ------------------------------------------------------------------------------------------


def test_names_survive(tmp_path: Path) -> None:
    names = ["a/b", "x=y", "007", "7", "%41", "__HIVE_DEFAULT_PARTITION__", "..", " "]
    names += ["'; DROP TABLE", "é\n\t\x1b[0m"]
    columns = ("benchmark", "model", "subject", "problem_id")
    records = [dict.fromkeys(columns, name) | {"passed": True} for name in names]
    load(tmp_path / "lake", write_rows(tmp_path / "names.jsonl", *records))
    run(tmp_path / "lake", tmp_path / "out", PROTOCOL)
    published = ask(tmp_path / "out", "SELECT benchmark, subject, model, problem_id FROM problem_counts ORDER BY ALL")
    assert published == sorted((name,) * 4 for name in names)


@pytest.mark.slow
def test_lake_of_two_tools_can_be_scored(tmp_path: Path) -> None:
    """Protocols are not pooled; columns are carried where all files have them."""
    swebench_report(tmp_path / "logs" / "swe", TABLE)
    LAYOUTS["livecodebench"].write(tmp_path / "logs" / "lcb", TABLE)
    report = load(tmp_path / "lake", tmp_path / "logs", format="auto", benchmark="toy")
    assert report.status == "written"
    described = json.loads((tmp_path / "lake" / "_scorelake.json").read_text())
    columns = {key: key for key in ("model", "benchmark", "subject", "problem_id", "attempt", "passed")}
    protocol = ["temperature", "grader", "setup"]
    assert described["columns"] == columns | {"answer": ""}
    assert (described["version"], described["protocol"], described["carry"]) == (1, protocol, [])
    run(tmp_path / "lake", tmp_path / "out", PROTOCOL, metrics=("pass@1", "pass^3"))
    values = ask(tmp_path / "out", "SELECT metric, value, protocol FROM model_summary ORDER BY ALL")
    assert [value for _, value, _ in values] == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert len({protocol for *_, protocol in values}) == 2


def test_the_description_follows_the_files(tmp_path: Path) -> None:
    def describe() -> tuple[list[str], str]:
        described = json.loads((tmp_path / "lake" / "_scorelake.json").read_text())
        return described["carry"], described["columns"]["answer"]

    LAYOUTS["livecodebench"].write(tmp_path / "lcb", TABLE)
    load(tmp_path / "lake", tmp_path / "lcb", format="auto")
    assert describe() == (["difficulty", "contest_date"], "")
    one = write_rows(tmp_path / "one.jsonl", {"problem_id": "p", "passed": True, "answer": "x", "level": "easy"})
    load(tmp_path / "lake", one, map=(("difficulty", "level"),))
    assert describe() == (["difficulty"], "answer"), "all attempts of one benchmark have answers"
    load(tmp_path / "lake", write_rows(tmp_path / "two.jsonl", {"problem_id": "q", "passed": True}))
    assert describe() == ([], "")


def test_other_options_replace_what_was_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "one.jsonl", *({"problem_id": "p", "passed": passed} for passed in (None, True)))
    load(tmp_path / "lake", path)
    before = list((tmp_path / "lake").rglob("*.parquet"))
    load(tmp_path / "lake", path, errors="fail", benchmark="other")
    after = list((tmp_path / "lake").rglob("*.parquet"))
    assert len(before) == len(after) == 1
    assert before != after
    assert lakes.counts(lakes.problems(tmp_path / "lake")) == (1, 2)
    after[0].unlink()
    report = load(tmp_path / "lake", path, errors="fail", benchmark="other")
    assert report.sources[0].status == "written", "what was removed from the lake is read again"


@pytest.mark.slow
def test_processes_in_parallel_read_the_same(tmp_path: Path) -> None:
    for i in range(3):
        inspect_json(tmp_path / "logs" / str(i), {**TABLE, f"p{i}": [1, 0, 1]})
    bad = write_rows(tmp_path / "logs" / "bad" / "x.jsonl", {"task_id": "HumanEval/1", "passed": "yes"})
    steps: list[tuple[str, int, int]] = []
    written = []
    for workers in (1, 2):
        lake, more = tmp_path / f"lake{workers}", {"workers": workers, "skip_refused": True}
        report = ingest([str(tmp_path / "logs")], str(lake), progress=lambda *step: steps.append(step), **more)
        assert [error.where for error in report.refused] == [str(bad)]
        written.append({path.relative_to(lake): path.read_bytes() for path in lake.rglob("*.parquet")})
    assert written[0] == written[1]
    assert {stage for stage, *_ in steps} == {"reading"}
    assert sum(done == of for _, done, of in steps) == 2


# --- where ingest stops -------------------------------------------------------------------------------------------


def test_wrong_paths_and_lakes_are_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "logs" / "one.jsonl", {"problem_id": "p", "passed": True})
    lake, foreign, empty = tmp_path / "lake", tmp_path / "foreign", tmp_path / "empty"
    for folder in (foreign, empty):
        folder.mkdir()

    def refuse(error: type[Exception], message: str, lake: object, source: Path, format: str = "auto") -> None:  # noqa: A002
        with pytest.raises(error, match=message):
            ingest([str(source)], str(lake), format)

    refuse(LakeError, "no such file or folder", lake, tmp_path / "none")
    refuse(UsageError, "unknown format inspekt", lake, path, "inspekt")
    refuse(UsageError, "local files only", "s3://bucket/lake", path)
    refuse(UsageError, "is a file", path, path)
    refuse(DataError, "no results in 0 files", lake, empty)
    (foreign / "x.parquet").touch()
    refuse(UsageError, "did not write", foreign, path)
    (foreign / "_scorelake.json").write_text('{"version": 2}')
    refuse(DataError, "another version", foreign, path)
    (foreign / "_scorelake.json").write_text('{"version": 1, "columns": {}}')
    refuse(DataError, "into a new folder", foreign, path)


def test_the_lake_is_not_read_as_a_source(tmp_path: Path) -> None:
    write_rows(tmp_path / "home" / "one.jsonl", {"problem_id": "p", "passed": True})
    for _ in range(2):
        report = load(tmp_path / "home" / "lake", tmp_path / "home")
    assert len(report.sources) == 1
    assert lakes.counts(lakes.problems(tmp_path / "home" / "lake")) == (1, 1)


def test_files_that_are_not_results_are_listed_or_refused(tmp_path: Path) -> None:
    inspect_json(tmp_path / "logs", TABLE)
    (tmp_path / "logs" / "README.md").write_text("about")
    (tmp_path / "logs" / "package.json").write_text('{"name": "x"}')
    (tmp_path / "logs" / "notes.txt").write_text("")
    report = load(tmp_path / "lake", tmp_path / "logs", format="auto")
    skipped = {Path(name).name: reason for name, reason in report.ignored.items()}
    assert skipped["package.json"] == "has no known format; object, keys: name"
    assert {skipped["README.md"], skipped["notes.txt"]} == {"no data file by its name"}
    for name, text, says in (
        ("cut.json", '{"ver', "broken JSON"),
        ("empty.jsonl", "", "is empty"),
        ("pointer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:x\n", "git-LFS pointer"),
        ("table.jsonl", '{"id": 1, "reward": 1}\n{"id": 2, "reward": 0}\n', "format; lines, keys: id, reward"),
        ("table.csv", "id;passed\n1;0\n", "has no known format; text, keys: id, passed"),
        ("broken.eval", "PK\x03\x04 and no more", "cannot be read to its end"),
    ):
        path = tmp_path / "logs" / name
        path.write_text(text)
        assert says in load(tmp_path / "other", tmp_path / "logs", format="auto").refused[0].what
        path.unlink()
    named = tmp_path / "logs" / "package.json"
    assert "has no known format; object, keys: name" in load(tmp_path / "other", named, format="auto").refused[0].what
    assert "is not a helm result" in load(tmp_path / "other", named, format="helm").refused[0].what


def test_a_broken_companion_is_refused_once_and_its_logs_are_listed(tmp_path: Path) -> None:
    review = LAYOUTS["evalscope"].write(tmp_path, TABLE)
    shutil.copy(review, review.with_name("toy_other.jsonl"))
    (tmp_path / "reports" / "m" / "toy.json").write_text("[1]")
    report = load(tmp_path / "lake", tmp_path / "reviews", format="auto")
    assert [str(error) for error in report.refused] == [f"{tmp_path}/reports/m/toy.json: is [1], not an object"]
    assert [Path(name).name for name in report.ignored] == ["toy_main_set.jsonl", "toy_other.jsonl"]
    assert all("which is refused" in reason for reason in report.ignored.values())


@pytest.mark.slow
def test_progress_moves_within_a_file(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"problem_id": "p", "passed": true}\n' * 40_000)
    steps: list[tuple[str, int, int]] = []
    options = IngestOptions(model="m", benchmark="b")
    ingest([str(path)], str(tmp_path / "lake"), "generic", options, progress=lambda *step: steps.append(step))
    done = [at for _, at, _ in steps]
    assert len(done) == 10
    assert 0 < done[0] < done[-1] == path.stat().st_size
    assert done == sorted(done)
