"""What hostile use of an earlier counter found, a test for each: wrong numbers, sound lakes refused, runs killed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ask, attempts, put, run
from scorelake import tasks
from scorelake.errors import DataError, StorageError
from scorelake.lake.listing import listing
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import mark


def counts(out: Path) -> list[tuple[Any, ...]]:
    return ask(out, "SELECT model, protocol, problem_id, n, c, ungraded FROM problem_counts ORDER BY ALL")


# --- wrong numbers ------------------------------------------------------------------------------------------


def forced(lake: Path, out: Path, method: str, **settings: Any) -> Settings:
    """Count a lake by one method, for a later run with the returned settings to reuse."""
    out.mkdir(parents=True, exist_ok=True)
    mark(out)
    shard = tasks.Shard(str(lake.absolute()), listing(lake).files)
    chosen = Settings.model_validate({**settings, "metrics": {"names": ("pass@1",)}})
    tasks.count(tasks.Count(shard, chosen, str(out / "partials"), method=method))
    return chosen


NAN, INF, BY_T = float("nan"), float("inf"), {"protocol": {"columns": ("t",)}}


@pytest.mark.parametrize("method", ["auto", "query"])
@pytest.mark.parametrize(
    ("files", "settings", "expected"),
    [
        (
            [{"t": [NAN, NAN, INF, None]}],
            BY_T,
            {'{"t":"Infinity"}': (1, 1), '{"t":"NaN"}': (2, 2), '{"t":null}': (1, 1)},
        ),
        ([{"t": [0]}, {"t": [0.0]}, {"t": ["0"]}], BY_T, {'{"t":0}': (3, 3)}),
        ([{"attempt": [0, 0]}, {"passed": [True, False]}], {}, {"": (3, 2)}),
        ([{"attempt": [0, 0], "level": ["easy", "hard"]}], {"by": ("level",)}, {"": (1, 1)}),
    ],
    ids=[
        "protocols that are no numbers",
        "equal protocols",
        "ids in some files",
        "repeats with another carried value",
    ],
)
def test_counts_are_exact(
    lake: Path, out: Path, method: str, files: list[Any], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    for i, columns in enumerate(files):
        put(lake, attempts(model="m", problem_id="p", **({"passed": True} | columns)), f"{i}.parquet")
    score_lake(lake, Output(out), forced(lake, out, method, **settings))
    assert {row[1]: row[3:5] for row in counts(out)} == expected


def test_folders_that_are_not_utf8_are_refused_by_name(lake: Path, out: Path) -> None:
    for name in ("caf%E9", "caf%E8", "caf%C3%A9"):
        put(lake, attempts(problem_id=["p"], passed=True), f"model={name}/a.parquet")
    with pytest.raises(DataError) as refused:
        run(lake, out)
    assert "model=caf%E8/a.parquet: the folder name caf%E8 is not UTF-8" in refused.value.what
    assert "caf%C3%A9/" not in refused.value.what
    run(lake, out, allow_quarantine=True)
    assert [row[0] for row in counts(out)] == ["café"]


def test_problems_without_a_cluster_are_not_told_by_joined_names(lake: Path, out: Path) -> None:
    """("A", "1 p") and ("A 1", "p") joined by a space were one cluster: two clusters have a larger standard error."""
    rows = attempts(
        model="m", subject=["A", "A 1"] * 2, problem_id=["1 p", "p"] * 2, passed=[True, False] * 2, passage=[None] * 4
    )
    put(lake, rows.with_columns(pl.col("passage").cast(pl.String)))
    run(lake, out, '[columns]\ncluster = "passage"\n', metrics=["pass@1"])
    assert ask(out, "SELECT se FROM model_summary") == [(0.5,)]


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_noticed(lake: Path, out: Path, tmp_path: Path) -> None:
    path = put(lake, attempts(model="m", problem_id=["p"], passed=[True]))
    run(lake, out, metrics=["pass@1"])
    before = path.stat()
    other = put(tmp_path, attempts(model="m", problem_id=["p"], passed=[False]), "other.parquet")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert other.stat().st_size == before.st_size
    os.replace(other, path)
    run(lake, out, metrics=["pass@1"])
    assert counts(out) == [("m", "", "p", 1, 0, 0)]


@pytest.mark.parametrize(
    ("inside", "kind"),
    [("_delta_log/0.json", "Delta"), (".hoodie/x", "Hudi"), ("metadata/v1.metadata.json", "Iceberg")],
)
@pytest.mark.parametrize("below", ["", "deep/inside/"])
def test_a_table_of_some_format_is_not_loose_files(lake: Path, out: Path, inside: str, kind: str, below: str) -> None:
    put(lake, attempts(model="m", problem_id=["p"], passed=True), f"{below}a.parquet")
    (lake / below / inside).parent.mkdir(parents=True)
    (lake / below / inside).write_text("{}")
    with pytest.raises(DataError, match=f"{kind} table"):
        run(lake, out)


# --- sound lakes --------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_from_a_broken_file() -> None:
    """Polars has no error class for it; a lake of scores on a full disk was blamed on its files."""
    written = pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)")
    trouble = parquet.machine_trouble(written)
    assert isinstance(trouble, StorageError)
    assert "free disk space" in str(trouble.hint)
    assert parquet.machine_trouble(pl.exceptions.ComputeError("invalid utf8")) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_trouble_of_the_machine_is_never_remembered_against_a_file(
    lake: Path, out: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, attempts(model="m", problem_id=["p"], passed=True))
    footer = parquet.footer

    def failing(path: str) -> Any:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(parquet, "footer", failing)
    with pytest.raises(StorageError) as trouble:
        run(lake, out, allow_quarantine=True)
    assert trouble.value.exit_code == 4
    assert os.strerror(number) in str(trouble.value)
    monkeypatch.setattr(parquet, "footer", footer)
    assert run(lake, out, metrics=["pass@1"]).status == "published"


# --- runs that were killed ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_that_ends_the_process_is_named(tmp_path: Path) -> None:
    """By `score`, and by `count`, even where it would be counted together with others."""
    lake, out, part = (str(tmp_path / name) for name in ("lake", "out", "part"))
    for name in ("good", "evil", "other"):
        put(tmp_path / "lake", attempts(model=name, problem_id=["p"], passed=True), f"{name}.parquet")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import crashing\n"
        "tasks = crashing.armed()\n"
        "tasks.count_apart = crashing.count_apart\n"
        "from scorelake import cli\n"
        "from scorelake.lake import shards\n"
        "shards.SMALL = 0\n"
        "sys.argv = ['scorelake', *MORE]\n"
        "cli.main()\n"
    )
    command = [sys.executable, "-c", code.replace("MORE", repr(["count", lake, "--out", part, "--shard", "1/1"]))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "quarantined: evil.parquet: reading it ends the process (SIGABRT)" in done.stderr
    assert "part 1 of 1: 2 rows of 3 files counted in 2 partials" in done.stderr
    for more, exit_code in (([], 3), (["--allow-quarantine"], 0), (["--allow-quarantine", "--full"], 0)):
        asked = ["score", lake, "--out", out, "--json", *more]
        command = [sys.executable, "-c", code.replace("MORE", repr(asked))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        told = json.loads(done.stdout)
        assert (done.returncode, told["exit_code"]) == (exit_code, exit_code), done.stderr
        assert "evil.parquet: reading it ends the process (SIGABRT)" in done.stderr
    assert [row[0] for row in counts(tmp_path / "out")] == ["good", "other"]


# --- the cliff, and what else was measured --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["problem_id", "attempt", "passed", "subject", "carry"])
def test_long_texts_take_no_more_than_themselves(tmp_path: Path, setting: str) -> None:
    """Twenty texts of 35,000 letters on 200,000 rows: seven gigabytes, if they were copied for every row."""
    rows = 200_000
    texts = [letter * 35_000 for letter in "abcdefghijklmnopqrst"]
    codes = pa.array((np.arange(rows) % 20).astype(np.int32))
    names = [pa.array([f"p{i}" for i in range(20)]), pa.array(texts)]
    short, long = (pa.DictionaryArray.from_arrays(codes, each) for each in names)
    columns = {"model": pa.array(["m"] * rows), "problem_id": short, "passed": pa.array(np.arange(rows) % 20 < 7)}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns | {"long": long}), path)
    chosen: dict[str, Any] = {"columns": {setting: ("long",) if setting == "carry" else "long"}}
    chosen["columns"] |= {"pass_values": texts[:7]} if setting == "passed" else {}
    code = (
        "import json, re, sys\n"
        "from scorelake import tasks\nfrom scorelake.lake.listing import listing\n"
        "from scorelake.settings import Settings\n"
        "lake, out, chosen = sys.argv[1], sys.argv[2], json.load(sys.stdin)\n"
        "shard = tasks.Shard(*(lambda each: (each.root, each.files))(listing(lake)))\n"
        "made = tasks.count(tasks.Count(shard, Settings(**chosen, run={'memory_gb': 1}), out))\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"  # rusage would be our own, too
        "print(made.read, made.problems, int(peak) >> 10)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "partials")]
    done = subprocess.run(command, input=json.dumps(chosen), capture_output=True, text=True, check=True, timeout=120)
    read, problems, peak = map(int, done.stdout.split())
    assert (read, problems) == (rows, 20)
    assert peak < 1000


# --- found by random and by damaged lakes ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "query"])
@pytest.mark.parametrize("column", ["attempt", "level", "model", "problem_id"])
def test_bytes_that_are_not_utf8_are_refused_by_column(lake: Path, out: Path, method: str, column: str) -> None:
    offsets = np.array([0, 2, 3], np.int32).tobytes()
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfeb"))
    table = {"model": ["m", "m"], "problem_id": ["p", "q"], "passed": [True, False], "level": ["a", "b"], column: bad}
    lake.mkdir()
    pq.write_table(pa.table(table), lake / "f.parquet")
    forced(lake, out, method, by=("level",))
    with pytest.raises(DataError, match=rf"f.parquet: column {column}, .* not UTF-8"):
        run(lake, out, by=("level",), metrics=["pass@1"])


def test_a_million_possible_groups_are_counted(lake: Path, out: Path, cli: Any) -> None:
    """50 benchmarks, 200 subjects, 200 models: more combinations than the kernel's table has."""
    i = np.arange(5000)
    groups = (("benchmark", 1, 50), ("subject", 3, 200), ("model", 7, 200))
    keys = {name: np.char.add(name, (i * 7919 // step % many).astype(str)) for name, step, many in groups}
    put(lake, pl.DataFrame({**keys, "problem_id": i, "passed": i % 3 == 0}))
    assert cli("score", lake, "--out", out, "--metrics", "pass@1").returncode == 0
    assert ask(out, "SELECT count(*), sum(n), sum(c) FROM problem_counts") == [(5000, 5000, 1667)]
