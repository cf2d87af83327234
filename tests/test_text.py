"""Names are data: printed, they can be read and do nothing."""

from pathlib import Path

import polars as pl
import pytest

from conftest import call, expand, put
from scorelake.text import escape_control_lines, escape_controls, plural

NASTY = "m\x1b]0;owned\x07\x1b[31m\u202e\u200b\x9b2J\r"
"""A title, a colour, text turned round, a space nobody sees, a one-byte escape, and back to the start."""


@pytest.mark.slow
def test_what_is_not_seen_is_spelled_out() -> None:
    assert escape_controls("plain / ünïcode 🦀") == "plain / ünïcode 🦀"
    assert escape_controls(NASTY) == r"m\x1b]0;owned\x07\x1b[31m\u202e\u200b\x9b2J\r"
    assert escape_controls("a\nb\tc\udcff") == r"a\nb\tc\udcff"
    assert escape_controls("".join(map(chr, range(0x110000)))).isprintable()


def test_lines_of_our_own_stay_lines() -> None:
    assert escape_control_lines("error: x\n  hint: y\x1b") == "error: x\n  hint: y\\x1b"
    assert escape_control_lines("error: a\nfake: b") == "error: a\\nfake: b"


def test_one_problem_is_not_problems() -> None:
    assert [plural(n, "x") for n in (0, 1, 2, 1000)] == ["0 xs", "1 x", "2 xs", "1,000 xs"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for i, model in enumerate((NASTY, "n")):
        counts = [(f"p{j}", 4, (i + j) % 5) for j in range(30)]
        put(tmp_path / "lake", expand(counts, model=model), f"{i}.parquet")
    return tmp_path / "lake"


@pytest.mark.slow
def test_on_every_way_out(lake: Path, out: Path) -> None:
    seen = [call("score", lake, "--out", out, "--metrics", "pass@1,pass@2")]
    seen += [call("show", out), call("compare", out, NASTY, "n"), call("compare", out, NASTY, NASTY + "x")]
    seen += [
        call("sql", out, "SELECT model FROM leaderboard"),
        call("sql", out, f"SELECT '{NASTY}"),
        call("check", out),
    ]
    (lake / f"{NASTY}.parquet").write_text("no")
    seen += [call("score", lake, "--out", out), call("score", lake, "--out", out, "--allow-quarantine")]
    for done in seen:
        assert "Traceback" not in done.stderr
        for character in "\x1b\x07\x9b\u202e\u200b":
            assert character not in done.stdout + done.stderr, done.args
    assert r"\x1b[31m" in seen[1].stdout
    assert r"m\x1b]0;owned" in seen[-2].stderr


def test_counts_in_messages_are_right(lake: Path, out: Path) -> None:
    message = call("score", lake, "--out", out).stderr
    assert "240 new rows in 2 files. Total" in message
    assert "of 2 models on 30 problems as" in message
    put(lake, pl.read_parquet(lake / "1.parquet").with_columns(model=pl.lit("o")), "2.parquet")
    message = call("score", lake, "--out", out, "--metrics", "pass@1").stderr
    assert "120 new rows in 1 file; 240 cached from 2 files" in message
    assert "published 1 metric of 3 models on 30 problems" in message
    assert "1 files" not in message
