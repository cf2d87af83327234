"""`scorelake count --shard I/N`: the parts of a lake, counted by anybody, and picked up by `score`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from conftest import put, run, tables
from scorelake import synth, tasks
from scorelake.errors import UsageError
from scorelake.lake import shards
from scorelake.lake.listing import listing
from scorelake.pipeline import count_part
from scorelake.publish.publication import collect_garbage
from scorelake.publish.snapshot import Output, locked
from scorelake.settings import Settings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    synth.write(tmp_path / "lake", synth.Plan(3, 40, 8, layout="shuffled", files=7))
    return tmp_path


def names(out: Path) -> set[str]:
    return {path.name for path in (out / "partials").iterdir()}


STUCK = """
import pathlib, sys, time, scorelake.cli
from scorelake.counting import shard
def count(task, folder):
    pathlib.Path(sys.argv[2]).with_name("begun").touch()
    time.sleep(600)
shard.count = count
scorelake.cli.main()
"""
"""The command line, in which counting a shard never ends."""


@pytest.mark.slow
def test_three_processes_share_the_parts_and_one_is_killed(home: Path) -> None:
    """What the killed one has not counted is counted by the next with its part; the bytes are those of one run."""
    lake, out = home / "lake", home / "out"

    def start(part: int, code: str = "import scorelake.cli; scorelake.cli.main()") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, "count", str(lake), "--out", str(out), "--shard", f"{part}/3"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, process_group=0)

    stuck, *others = start(2, STUCK), start(1), start(3)
    until = time.monotonic() + 120
    while not (home / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(stuck.pid, signal.SIGKILL)
    assert [process.wait() for process in (stuck, *others)] == [-signal.SIGKILL, 0, 0]
    assert start(2).wait() == 0
    report = run(lake, out)
    assert (report.status, report.files_read, report.files_reused) == ("published", 0, 7)
    run(lake, home / "alone")
    assert tables(out) == tables(home / "alone")
    assert not [name for name in names(out) if name.startswith(".")], "nothing of the killed process is left"


def test_parts_may_be_counted_while_a_run_holds_the_lock(home: Path) -> None:
    out = Output(home / "out")
    with locked(out):
        assert count_part(home / "lake", out, Settings(), 1, 1)


@pytest.mark.slow
def test_only_what_is_new_is_counted(home: Path) -> None:
    out = Output(home / "out")
    run(home / "lake", out.root)
    assert count_part(home / "lake", out, Settings(), 1, 1) == []
    put(home / "lake", pl.DataFrame({"model": "m", "problem_id": "p", "passed": True, "attempt": 0}), "new.parquet")
    (one,) = [p for i in (1, 2) for p in count_part(home / "lake", out, Settings(), i, 2)]
    assert [file.path for file in one.files] == ["new.parquet"]
    assert run(home / "lake", out.root).files_read == 0


def test_parts_are_the_same_whatever_is_done_already(home: Path) -> None:
    """A machine that starts late finds other partials than one that started early, and still does its own part."""
    out = Output(home / "out")
    early = count_part(home / "lake", out, Settings(), 1, 3)
    late = count_part(home / "lake", out, Settings(), 2, 3)
    other = Output(home / "other")
    assert count_part(home / "lake", other, Settings(), 2, 3) == late
    assert not {p.name for p in early} & {p.name for p in late}


def test_parts_do_not_depend_on_the_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for pages in (1 << 18, 1 << 28):
        real = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": pages}
        monkeypatch.setattr("scorelake.settings.os.sysconf", real.__getitem__)
        monkeypatch.setattr(shards, "FEW_FILES", 0)  # small files are batched by size, too
        found.append([p.name for p in count_part(home / "lake", Output(home / f"{pages}"), Settings(), 1, 2)])
    assert found[0] == found[1] != []


@pytest.mark.slow
def test_the_same_part_twice_at_once(home: Path) -> None:
    """Two hosts that were given the same part: no error, one partial each, nothing left over."""
    command = [sys.executable, "-m", "scorelake", "count", str(home / "lake"), "--out", str(home / "out")]
    both = [subprocess.Popen([*command, "--shard", "1/1"], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate()[1] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(said) == 1
    (line,) = said
    assert line.startswith("part 1 of 1: ")
    assert line.endswith("rows of 7 files counted in 7 partials\n")
    assert len(names(home / "out")) == 7
    assert not [name for name in names(home / "out") if name.startswith(".")]


def test_quarantine_is_told_and_left_to_score(home: Path, cli) -> None:  # type: ignore[no-untyped-def]
    (home / "lake" / "cut.parquet").write_bytes(b"PAR1 cut")
    done = cli("count", home / "lake", "--out", home / "out", "--shard", "1/1")
    assert (done.returncode, done.stdout) == (0, "")
    assert "quarantined: cut.parquet: " in done.stderr
    assert cli("score", home / "lake", "--out", home / "out").returncode == 3


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/", "/3", "a/b", "-1/3", "1/0", "1/3/5"])
def test_parts_that_are_none(home: Path, shard: str) -> None:
    from scorelake.cli import lakes

    with pytest.raises(UsageError, match="no such part"):
        lakes.part_of(shard)


@pytest.mark.slow
def test_garbage_leaves_what_no_run_has_used_yet(home: Path) -> None:
    out = Output(home / "out")
    run(home / "lake", out.root)
    put(home / "lake", pl.DataFrame({"model": "m", "problem_id": "p", "passed": True, "attempt": 0}), "new.parquet")
    (waiting,) = count_part(home / "lake", out, Settings(), 1, 1)
    assert collect_garbage(out, 1).partials == ()
    assert waiting.name in names(out.root)
    (home / "lake" / "new.parquet").unlink()
    time.sleep(0.01)
    put(home / "lake", pl.DataFrame({"model": "m", "problem_id": "q", "passed": True, "attempt": 0}), "newer.parquet")
    run(home / "lake", out.root)
    assert collect_garbage(out, 1).partials == (waiting.name,), "a later run has not used it"


def test_a_partial_that_vanishes_while_it_is_looked_at(home: Path) -> None:
    """As by gc on another machine: it is counted again, without an error."""
    out = Output(home / "out")
    before = count_part(home / "lake", out, Settings(), 1, 1)
    for name in names(out.root):
        (out.partials / name / "counts-00000.parquet").unlink()
    assert tasks.reusable(out.partials, listing(home / "lake").files, Settings()) == []
    assert count_part(home / "lake", out, Settings(), 1, 1) == before
    (out.partials / before[0].name / "shard.json").write_text("{")
    assert count_part(home / "lake", out, Settings(), 1, 1) == before
    assert json.loads((out.partials / before[0].name / "shard.json").read_text())["name"] == before[0].name
