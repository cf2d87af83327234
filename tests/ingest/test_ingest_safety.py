"""Hostile input: memory stays within --memory, names forge nothing, and nothing outside of the lake is touched."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ingested as lakes
from conftest import REPO
from layouts import TABLE, harbor, inspect_eval, inspect_header, inspect_json, inspect_sample
from scorelake.errors import StorageError
from scorelake.ingest.archives import ZipFile
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.job import ingest

MEASURED = """
import sys
from scorelake.ingest import contract, job
report = job.ingest([sys.argv[1]], sys.argv[2], sys.argv[3], contract.IngestOptions(model="m", benchmark="b"),
                    memory_gb=0.6)
kilobytes = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
print(report.status, kilobytes / 2**20, [str(error) for error in report.refused])
"""
RECORD = {"problem_id": "p", "passed": True, "model": "m", "benchmark": "b"}


def write_lines(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def long_sample(home: Path) -> Path:
    with ZipFile(home / "log.eval", "w", 8) as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        texts = [inspect_sample("p", 0, 1, text="\U0001f600" + "x" * 100_000_000)]
        archive.writestr("summaries.json", json.dumps(texts, ensure_ascii=False))
    return home / "log.eval"


def long_answers(home: Path) -> Path:
    with gzip.open(home / "x.jsonl.gz", "wt", 1) as file:
        file.writelines(json.dumps(RECORD | {"problem_id": i, "answer": "x" * 1_000_000}) + "\n" for i in range(450))
    return home / "x.jsonl.gz"


def long_parquet(home: Path) -> Path:
    answers = {"problem_id": range(500), "passed": True, "answer": "x" * 1_000_000}
    pl.LazyFrame(answers).sink_parquet(home / "x.parquet")
    return home / "x.parquet"


def long_cell(home: Path) -> Path:
    (home / "x.csv").write_text('problem_id,passed,answer\np,true,"' + ("z" * 99 + "\n") * 2_000_000 + '"\n')
    return home / "x.csv"


def many_keys(home: Path) -> Path:
    with gzip.open(home / "x.json.gz", "wt", 1) as file:
        file.writelines(["{", *(f'"{"k" * 1500} {i}": 0, ' for i in range(300_000)), '"z": 1}'])
    return home / "x.json.gz"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize(
    ("write", "format_name", "result"),
    [
        (long_sample, "auto", "a larger --memory"),
        (long_answers, "generic", "written"),
        (long_parquet, "generic", "written"),
        (long_cell, "generic", "one row is longer"),
        (many_keys, "auto", "has no known format"),
    ],
)
def test_memory_of_a_small_file_with_long_texts(
    write: Callable[[Path], Path], format_name: str, result: str, tmp_path: Path
) -> None:
    arguments = [str(write(tmp_path)), str(tmp_path / "lake"), format_name]
    environment = {**os.environ, "PYTHONPATH": str(REPO / "pipeline"), "POLARS_MAX_THREADS": "2"}
    command = [sys.executable, "-c", MEASURED, *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert result in done.stdout
    assert float(done.stdout.split()[1]) < 0.6, done.stdout


@pytest.mark.slow
def test_long_transcripts_are_passed_over(tmp_path: Path) -> None:
    """A sample is longer than any record may be, and its scores come last."""
    messages = {"messages": ["x" * (1 << 20)] * 40, "store": {f"k{i}": "y" * (1 << 20) for i in range(40)}}
    samples = [messages | inspect_sample(name, 0, 1) for name in "pq"]
    (tmp_path / "log.json").write_text(json.dumps(inspect_header() | {"samples": samples}))
    report = ingest([str(tmp_path / "log.json")], str(tmp_path / "lake"), memory_gb=0.4)
    assert (report.total.passed, report.total.graded) == (2, 2)


@pytest.mark.parametrize("link", ["_ingest", "benchmark=b"])
def test_links_in_the_lake_are_refused(link: str, tmp_path: Path) -> None:
    elsewhere, lake = tmp_path / "elsewhere", tmp_path / "lake"
    kept = [elsewhere / "staged" / "x", elsewhere / f"{'0' * 32}.parquet"]
    kept[0].mkdir(parents=True)
    kept[1].touch()
    rows = write_lines(tmp_path / "x.jsonl", RECORD)
    if link != "_ingest":
        ingest([str(write_lines(tmp_path / "y.jsonl", RECORD | {"benchmark": "other"}))], str(lake), "generic")
    lake.mkdir(exist_ok=True)
    (lake / link).symlink_to(elsewhere)
    with pytest.raises(StorageError, match="is a link to another folder"):
        ingest([str(rows)], str(lake), "generic")
    assert all(path.exists() for path in kept)
    assert len(list(elsewhere.iterdir())) == 2


def test_names_forge_no_line(tmp_path: Path, cli: Any) -> None:
    name = "m\n  passed    9 of 9 = 1\x1b[2K"
    log = inspect_json(tmp_path / "logs\n  passed    8 of 8 = 1\x1b[2K", TABLE)
    log.write_text(log.read_text().replace('"org/m"', json.dumps(name)))
    log.with_name("a\n  note      forged.json").write_text("{}")
    log.with_name("b.json").write_text('{"cut\\n  error: forged')
    done = cli("ingest", "auto", log.parent, "--lake", tmp_path / "lake", "--model", "mine", "--skip-refused")
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith(("  passed", "  note", "  error", "error"))]
    assert [line for line in lines if "forged" in line.split("names the model")[0]] == []
    assert [line for line in lines if line.startswith("  passed")] == ["  passed    6 of 12 = 0.5"]
    assert any("the file names the model m\\n" in line for line in lines)


def test_paths_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    path = inspect_eval(tmp_path / "logs", TABLE)
    with ZipFile(path, "a") as archive:
        for name in ("../../escaped.json", "/escaped.json", "samples/../../escaped.json", "_journal/summaries/../x"):
            archive.writestr(name, "[]")
    report = ingest([str(tmp_path / "logs")], str(tmp_path / "lake"))
    assert report.total.graded == 12
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "lake"}


def test_linked_folders_are_listed_and_linked_files_count_once(tmp_path: Path) -> None:
    log = inspect_json(tmp_path / "logs", TABLE)
    log.with_name("latest.json").symlink_to(log)
    (tmp_path / "logs" / "more").symlink_to(tmp_path / "elsewhere")
    inspect_json(tmp_path / "elsewhere", TABLE)
    report = ingest([str(tmp_path / "logs")], str(tmp_path / "lake"))
    assert [source.rows for source in report.sources] == [12]
    assert report.ignored == {str(tmp_path / "logs" / "more"): "a link to a folder: name it to read it"}


def test_a_result_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    trial = harbor(tmp_path / "logs", TABLE)
    trial.write_bytes(trial.read_bytes().replace(b"agent", b"ag\xffnt"))
    report = ingest([str(tmp_path / "logs")], str(tmp_path / "lake"))
    assert [(error.where, error.what) for error in report.refused] == [
        (str(trial), "line 1 is not UTF-8: invalid start byte")
    ]


def test_file_names_that_are_not_utf_8(tmp_path: Path, cli: Any) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/logs-\xff"))
    log = inspect_json(folder, TABLE)
    log.rename(Path(os.fsdecode(os.fsencode(folder) + b"/\xfe.json")))
    done = cli("ingest", "auto", folder, "--lake", tmp_path / "lake", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total"]["graded"] == 12
    assert {row["source"] for row in lakes.rows(tmp_path / "lake")} == {"\\udcfe.json"}


def test_one_name_for_rows_of_several_models_is_noted(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "x.jsonl", RECORD, RECORD | {"model": "n", "problem_id": "q"})
    report = ingest([str(rows)], str(tmp_path / "lake"), "generic", IngestOptions(model="mine"))
    assert report.sources[0].notes == ["the file names the model m, n; --model makes it mine"]
