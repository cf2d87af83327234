"""Bad input, one kind at a time: the right verdict, the file named, the rows accounted for."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ask, attempts, expand, failed_checks, put, run
from differential import pages
from scorelake import tasks
from scorelake.counting.merge import merge, plan_buckets
from scorelake.errors import DataError, UsageError
from scorelake.lake.listing import listing
from scorelake.lake.shards import shards
from scorelake.settings import Settings

GOOD = expand([("a", 4, 2), ("b", 4, 4)], model="m")
GOOD.write_parquet(buffer := BytesIO())
DATA = buffer.getvalue()
NAN, INF = float("nan"), float("inf")


def refused(home: Path, config: str | None = None) -> str:
    """The message of a refused run; nothing may have been published."""
    with pytest.raises(DataError) as error:
        run(home / "lake", home / "out", config)
    assert not (home / "out" / "leaderboard.duckdb").exists()
    return str(error.value)


def accounted(home: Path, **numbers: int) -> None:
    """With the bad files left out, the balance is as given and the recount agrees."""
    config = "[policy]\nmax_rejected = 1000\n"
    report = run(home / "lake", home / "out", config, allow_quarantine=True)
    assert {key: report.run[key] for key in numbers} == numbers
    parts = [report.run[key] for key in ("graded", "ungraded", "duplicates", "rejected")]
    assert report.run["rows_read"] == sum(parts)
    assert failed_checks(home / "out") == []


def damage(path: Path, at: int, byte: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= byte
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty (0 bytes)"),
        (b"PAR1", "not a readable Parquet file"),
        (b"PAR1" + b"\0" * 100 + b"PAR1", "not a readable Parquet file"),
        (b"hello, world, this is text\n" * 10, "not a readable Parquet file"),
        (DATA[:-100], "not a readable Parquet file"),
        (DATA[:-8] + b"\xff\xff\xff\x7f" + DATA[-4:], "not a readable Parquet file"),
    ],
    ids=["empty", "short", "no footer", "text", "truncated", "wrong length"],
)
def test_files_that_are_not_parquet(lake: Path, tmp_path: Path, content: bytes, says: str) -> None:
    put(lake, GOOD)
    (lake / "bad.parquet").write_bytes(content)
    assert f"bad.parquet: {says}" in refused(tmp_path)
    accounted(tmp_path, rows_read=8, graded=8, quarantined=1)


def test_a_flipped_bit_is_found_by_its_checksum(lake: Path, tmp_path: Path) -> None:
    put(lake, GOOD)
    path = lake / "flip.parquet"
    table = expand([(f"p{i}", 50, i % 50) for i in range(40)], model="n").to_arrow()
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    footer = pq.read_metadata(path)
    passed = footer.row_group(0).column(1)
    damage(path, passed.data_page_offset + passed.total_compressed_size - 40, 0x01)
    assert pq.read_table(path).num_rows == 2000, "readers do not notice"
    assert "flip.parquet: damaged: column passed, row group 0: a page does not match its checksum" in refused(
        tmp_path
    )
    accounted(tmp_path, rows_read=8, quarantined=1)


def test_a_page_of_an_unknown_type_hides_no_rows(lake: Path, tmp_path: Path) -> None:
    """Arrow skips such pages: it reads 0 of 8 rows and finds nothing wrong."""
    path = put(lake, GOOD)
    damage(path, pages(path.read_bytes())[0]["header"][-1][0] + 1, 54)
    assert "part-0.parquet: damaged: 0 rows were read where the footer says 8" in refused(tmp_path)


def test_a_damaged_name_is_not_a_missing_column(lake: Path, out: Path) -> None:
    """`benchmark` is optional; spoilt anywhere in the file, the run is refused or the counts are what they were."""
    path = put(lake, GOOD.with_columns(benchmark=pl.lit("mathematics")))
    data, messages = path.read_bytes(), []
    for at in (i for i in range(len(data)) if data.startswith(b"benchmark", i)):
        path.write_bytes(data[: at + 8] + b"l" + data[at + 9 :])
        try:
            run(lake, out)
            assert ask(out, "SELECT DISTINCT benchmark FROM problem_counts") == [("mathematics",)]
        except DataError as error:
            messages.append(str(error))
    assert any(
        "part-0.parquet: damaged: the footer has other column names for row group 0" in message
        for message in messages
    )


def test_columns_that_differ_between_files(lake: Path, out: Path, tmp_path: Path) -> None:
    put(lake, GOOD, "0.parquet")
    put(lake, GOOD.with_columns(extra=pl.lit(1)).select("extra", "passed", "model", "problem_id"), "extra.parquet")
    put(lake, GOOD.with_columns(pl.col("passed").cast(pl.Int64)), "retyped.parquet")
    put(lake, GOOD.with_columns(pl.col("passed").cast(pl.String)), "text.parquet")
    put(lake, GOOD.rename({"passed": "verdict"}), "renamed.parquet")
    put(lake, GOOD.drop("problem_id"), "missing.parquet")
    message = refused(tmp_path)
    assert "3 of the lake's files cannot be read" in message
    for name in ("text", "renamed", "missing"):
        assert f"{name}.parquet: " in message
    accounted(tmp_path, rows_read=24, graded=24, quarantined=3)
    assert ask(out, "SELECT problem_id, n, c FROM problem_counts ORDER BY 1") == [("a", 12, 6), ("b", 12, 12)]


def test_duplicate_column_names(lake: Path, tmp_path: Path) -> None:
    put(lake, GOOD)
    columns = [pa.array(["m"]), pa.array(["a"]), pa.array([True]), pa.array([False])]
    table = pa.Table.from_arrays(columns, names=["model", "problem_id", "passed", "passed"])
    pq.write_table(table, lake / "twice.parquet")
    assert "twice.parquet: " in refused(tmp_path)
    accounted(tmp_path, rows_read=8, quarantined=1)


def test_a_folder_in_conflict_with_a_column(lake: Path, tmp_path: Path) -> None:
    put(lake, GOOD, "model=m/agrees.parquet")
    put(lake, GOOD, "model=other/disagrees.parquet")
    message = refused(tmp_path)
    assert "model=other/disagrees.parquet: 8 rows: in conflict with the folder's name" in message
    accounted(tmp_path, rows_read=16, graded=8, rejected=8)


def test_attempts_in_folder_names(lake: Path, out: Path) -> None:
    """Small numbers, texts and numbers in a column beside them: repeats are found in all of them."""
    rows = attempts(model="m", problem_id=["a", "b"], passed=[True, False])
    for name in ("run=1/0", "run=1/1", "run=2/0", "run=x/0", "run=__HIVE_DEFAULT_PARTITION__/0"):
        put(lake, rows, f"{name}.parquet")
    report = run(lake, out, '[columns]\nattempt = "run"\n')
    assert (report.run["graded"], report.run["duplicates"]) == (8, 2)
    shutil.rmtree(lake / "run=x")
    shutil.rmtree(lake / "run=__HIVE_DEFAULT_PARTITION__")
    put(lake, rows.with_columns(run=pl.Series([1, 3])), "column.parquet")
    report = run(lake, out, '[columns]\nattempt = "run"\n', metrics=["pass@1"])
    assert (report.run["graded"], report.run["duplicates"]) == (5, 3)
    assert failed_checks(out) == []


@pytest.mark.parametrize(
    ("key", "config", "values"),
    [
        ("t", "[protocol]\ncolumns = ['t']\n", {"0.70": 0.7, "0.7": 0.0}),
        ("level", "by = ['level']\n", {"Easy": "easy", "hard": "easy"}),
        ("attempt", "", {"1": 1, "2": 3}),
        ("flag", "[columns]\ncarry = ['flag']\n", {"True": True, "False": None}),
        ("passed", "", {"true": True, "false": True}),
    ],
)
def test_any_column_in_conflict_with_its_folder(
    lake: Path, tmp_path: Path, key: str, config: str, values: dict[str, Any]
) -> None:
    """A temperature of 0 in the folder temperature=0.7 was published as 0."""
    for i, (folder, value) in enumerate(values.items()):
        rows = attempts(**{"model": "m", "problem_id": [f"p{i}", f"q{i}"], "passed": True, key: value})
        put(lake, rows, f"{key}={folder}/{i}.parquet")
    assert f"{key}={folder}/1.parquet: 2 rows: in conflict with the folder's name" in refused(tmp_path, config)
    config = f"{config}[policy]\nmax_rejected = 2\n"
    report = run(lake, tmp_path / "out", config, metrics=["pass@1"])
    assert (report.run["graded"], report.run["rejected"]) == (2, 2)
    assert failed_checks(tmp_path / "out") == []


def test_a_verdict_cannot_be_a_folder(lake: Path, tmp_path: Path) -> None:
    put(lake, attempts(model="m", problem_id=["a"]), "passed=true/0.parquet")
    with pytest.raises(UsageError, match="no column passed and no score; a folder cannot hold it"):
        run(lake, tmp_path / "out")


@pytest.mark.parametrize("apart", [False, True])
def test_times_in_two_units_are_one_column(lake: Path, out: Path, apart: bool) -> None:
    """Counted together and in two shards; a file without values agrees with both."""
    at = pl.Series([datetime(2026, 1, 1, 12), datetime(2026, 1, 2)])
    for unit in ("ms", "us", "ns", None):
        when = at.dt.cast_time_unit(unit) if unit else pl.Series([None, None], dtype=pl.Null)
        problems = [f"{unit} a", f"{unit} b"]
        put(lake, attempts(model="m", problem_id=problems, passed=True, when=when), f"{unit}.parquet")
        if apart:
            run(lake, out, by=("when",), metrics=["pass@1"])
    run(lake, out, by=("when",), metrics=["pass@1"])
    assert ask(out, 'SELECT "when", sum(n) FROM problem_counts GROUP BY 1 ORDER BY 1') == [
        (at[0], 3),
        (at[1], 3),
        (None, 2),
    ]


@pytest.mark.parametrize(
    ("fails", "graded"), [("[]", 4), ('["I"]', 4), ('["I", ""]', 6)], ids=["pass", "pass and fail", "named"]
)
def test_an_empty_verdict_is_no_failure(lake: Path, out: Path, fails: str, graded: int) -> None:
    """Unless the config names it. It was a failure, or rejected with `fail_values`."""
    rows = attempts(model="m", problem_id=["p", "q", "r"], passed=["C", "", "I"])
    put(lake, rows, "a.parquet")
    put(lake, rows.with_columns(pl.col("passed").cast(pl.Categorical)), "b.parquet")
    config = f'[columns]\npass_values = ["C"]\nfail_values = {fails}\n'
    report = run(lake, out, config, metrics=["pass@1"])
    assert (report.run["graded"], report.run["ungraded"], report.run["rejected"]) == (graded, 6 - graded, 0)
    assert failed_checks(out) == []


def test_null_names_are_rejected(lake: Path, tmp_path: Path) -> None:
    put(lake, attempts(model=["m", None], problem_id=["a", "a"], passed=[True, True]), "subject=x/0.parquet")
    put(lake, GOOD, "subject=__HIVE_DEFAULT_PARTITION__/0.parquet")
    message = refused(tmp_path)
    assert "subject=x/0.parquet: 1 rows: no model" in message
    assert "subject=__HIVE_DEFAULT_PARTITION__/0.parquet: 8 rows: no subject" in message
    accounted(tmp_path, rows_read=10, graded=1, rejected=9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "bad"),
    [*(("passed", x) for x in (NAN, INF, -1.0, 0.5, 2.0)), *(("score", x) for x in (NAN, INF, -INF))],
)
def test_outcomes_out_of_range(tmp_path: Path, column: str, bad: float) -> None:
    put(tmp_path / "lake", attempts(model="m", problem_id="a", **{column: [1.0, 0.0, None, bad]}))
    assert "1 rows rejected, 0 allowed" in refused(tmp_path)
    accounted(tmp_path, rows_read=4, graded=2, ungraded=1, rejected=1)


def test_invalid_utf8(tmp_path: Path) -> None:
    """In a column of bytes; test_hostile has texts that are none."""
    put(tmp_path / "lake", attempts(model=[b"fine", b"\xff\xfe"], problem_id="a", passed=True), "binary.parquet")
    assert "binary.parquet: cannot be read to its end: invalid utf8" in refused(tmp_path)


def test_a_file_name_that_is_not_utf8_is_quarantined(lake: Path, tmp_path: Path) -> None:
    put(lake, GOOD)
    (lake / os.fsdecode(b"caf\xe9.parquet")).write_bytes(DATA)
    assert r"caf\xe9.parquet: the file name is not UTF-8; rename it" in refused(tmp_path)
    accounted(tmp_path, rows_read=8, quarantined=1)


def test_what_is_left_out_is_on_the_screen(lake: Path, tmp_path: Path, cli: Any) -> None:
    put(lake, GOOD)
    put(lake, GOOD, "old.parquet")
    (lake / "latest.parquet").symlink_to(lake / "part-0.parquet")
    (tmp_path / "c.toml").write_text('[lake]\nexclude = ["old*"]\n')
    done = cli("score", lake, "--out", tmp_path / "out", "--config", tmp_path / "c.toml")
    assert "left out 1 (a link to another place of this lake): latest.parquet" in done.stderr
    assert "left out 1 (matches [lake] exclude): old.parquet" in done.stderr
    assert "Total: 8 graded" in done.stderr


def test_files_that_change_while_they_are_read(lake: Path, tmp_path: Path) -> None:
    path = put(lake, GOOD)
    listed = listing(lake)
    (shard,) = shards(listed.root, listed.files, 1)
    task = tasks.Count(shard, Settings(), str(tmp_path / "partials"))
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match=r"part-0.parquet: the file changed or vanished while the lake was read"):
        tasks.count(task)
    path.unlink()
    with pytest.raises(DataError, match="the file changed or vanished"):
        tasks.count(task)
    assert list((tmp_path / "partials").glob("[!.]*")) == []


@pytest.mark.slow
def test_thousands_of_tiny_files(lake: Path, out: Path, tmp_path: Path) -> None:
    lake.mkdir()
    table = GOOD.to_arrow()
    for i in range(300):
        pq.write_table(table, lake / f"{i}.parquet")
    accounted(tmp_path, files=300, rows_read=2400, graded=2400)
    again = run(lake, out, "[policy]\nmax_rejected = 1000\n", allow_quarantine=True)
    assert again.status == "unchanged"


@pytest.mark.slow
def test_more_than_two_to_the_32_rows(lake: Path, tmp_path: Path) -> None:
    """Five hundred copies of one file of ten million equal rows: 5e9 attempts of one problem, counted in 64 bits."""
    lake.mkdir()
    rows = 10_000_000
    one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), ["m"])
    table = pa.table({"model": one, "problem_id": one, "passed": pa.array(np.ones(rows, bool))})
    pq.write_table(table, lake / "000.parquet", row_group_size=rows)
    listed = listing(lake)
    (shard,) = shards(listed.root, listed.files, 1)
    partial = tasks.count(tasks.Count(shard, Settings(), str(tmp_path / "partials")))
    partials = [replace(partial, files=(replace(listed.files[0], inode=i),)) for i in range(500)]
    (bucket,) = plan_buckets(tmp_path / "partials", partials, tmp_path, "error", rows_per_bucket=10**12)
    merged = merge(bucket)
    assert merged.graded == 500 * rows > 2**32
    assert pl.read_parquet(bucket.path).select("n", "c").row(0) == (500 * rows, 500 * rows)


@pytest.mark.slow
def test_a_full_disk(lake: Path, out: Path) -> None:
    """No file may grow beyond 64 KiB: the run fails with a clear word, and what was published stays."""
    run(GOOD, out)
    before = (out / "leaderboard.duckdb").read_bytes()
    put(lake, GOOD, "more.parquet")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); "
        "from scorelake.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "score", str(lake), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "nothing was published" in done.stderr
    assert (out / "leaderboard.duckdb").read_bytes() == before
    assert run(lake, out).status == "published"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted(lake: Path, tmp_path: Path, name: str) -> None:
    import signal

    for i in range(60):
        put(lake, expand([(f"p{j}", 20, j % 21) for j in range(200)], model=f"m{i % 5}"), f"{i}.parquet")
    config = tmp_path / "scorelake.toml"
    config.write_text("[run]\nshard_mb = 0.001\n")  # every file is a shard, so that some are done and some are not
    command = [sys.executable, "-m", "scorelake", "score", str(lake), "--out", str(tmp_path / "out"), "--json"]
    command += ["--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while len(list((tmp_path / "out" / "partials").glob("[!.]*"))) < 3 and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert '"exit_code": 130' in out
    assert "interrupted; nothing was published" in err
    report = run(lake, tmp_path / "out")
    assert report.files_reused >= 3, "what was counted is kept"


def test_a_name_that_looks_like_a_pattern_is_a_name(lake: Path, out: Path) -> None:
    frame = expand([("p", 4, 1)], model="m")
    for name in ("[x]*.parquet", "x.parquet"):
        put(lake, frame, name)
    assert run(lake, out).run["rows_read"] == 8
