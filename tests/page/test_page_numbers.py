"""Every number of the page's lower sections is that of its table: pairs, subjects, problems, history, budget."""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from counted import rows as asked
from looked_at import LONG, Tables, busy
from scorelake.page.build import html
from scorelake.read.names import shorten

BOARDS = (("code", "0.2"), ("maths", "0.2"), ("maths", "1.0"))


def _percent(x: float, places: int = 1) -> str:
    return str((Decimal(x) * 100).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _signed(x: float) -> str:
    return _percent(x) if x < 0 else f"+{_percent(x)}"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy(tmp_path_factory.mktemp("busy"))


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return html(out)


@pytest.fixture(scope="module")
def parts(page: str) -> dict[tuple[str, str], str]:
    """The page cut into its boards."""
    cut = page.split('<article class="board"')[1:]
    assert len(cut) == len(BOARDS)
    return dict(zip(BOARDS, (part.split("</article>")[0] for part in cut), strict=True))


@pytest.fixture(scope="module")
def data(page: str) -> dict[tuple[str, str], dict[str, Any]]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return dict(zip(BOARDS, json.loads(text)["boards"], strict=True))


def _of(board: tuple[str, str]) -> str:
    return f"benchmark = '{board[0]}' AND protocol LIKE '%{board[1]}%'"


def _table(part: str, caption: str) -> list[list[str]]:
    """The table whose caption begins so, with its head."""
    tables = re.findall(r"<table.*?</table>", part, re.DOTALL)
    words = [re.sub(r"<[^>]*>", "", re.findall(r"<caption>(.*?)</caption>", table)[0]) for table in tables]
    (found,) = (table for table, told in zip(tables, words, strict=True) if told.startswith(caption))
    return Tables(found).tables[0][1]


@pytest.mark.parametrize("board", BOARDS)
def test_problems(board: tuple[str, str], out: Path, parts: dict[Any, str], data: dict[Any, dict[str, Any]]) -> None:
    stats = asked(out, f"FROM problem_stats WHERE {_of(board)} ORDER BY difficulty, subject, problem_id")
    known = {row["problem_id"]: row for row in stats}
    head, *told = _table(parts[board], "The 1" if board[0] == "code" else "The 2")
    assert head == ["Problem", "Subject", "Difficulty", "Solved by", "Attempts"]
    assert [row[0] for row in told] == [row["problem_id"] for row in reversed(stats)][:24]
    for name, subject, difficulty, solved, attempts in told:
        row = known[name]
        mine = [
            row["subject"],
            f"{row['difficulty']:.2f}",
            f"{row['solved_by']} of {row['models']}",
            str(row["attempts"]),
        ]
        assert [subject, difficulty, solved, attempts] == mine
    assert f"<strong>Nobody solves</strong>: {sum(row['never_solved'] for row in stats)}" in parts[board]
    assert f"<strong>Everybody solves, always</strong>: {sum(row['saturated'] for row in stats)}" in parts[board]
    bins = [int(many) for many in re.findall(r"<title>(\d+) problems with difficulty", parts[board])]
    assert bins == [sum(min(int(row["difficulty"] * 20), 19) == i for row in stats) for i in range(20)]
    its = data[board]["problems"]
    cells = {(row["model"], row["problem_id"]): row for row in asked(out, f"FROM problem_counts WHERE {_of(board)}")}
    assert its["names"] == [row["problem_id"] for row in stats]
    for model, line in zip(data[board]["models"], its["cells"], strict=True):
        for problem, sign in zip(its["names"], line, strict=True):
            row = cells.get((model, problem))
            assert its["kinds"].get(sign) == ([row["n"], row["c"]] if row and row["n"] else None)


@pytest.mark.parametrize("board", BOARDS)
def test_history(board: tuple[str, str], out: Path, parts: dict[Any, str], data: dict[Any, dict[str, Any]]) -> None:
    rows = asked(out, f"FROM history WHERE {_of(board)} AND metric = 'pass@1' ORDER BY number")
    by = {(f"{row['started']:%Y-%m-%d %H:%M}", row["number"], row["model"]): row for row in rows}
    numbers = sorted({row["number"] for row in rows})
    head, *told = _table(parts[board], "pass@1 with its interval")
    changed = head[1] == "Changed"
    assert len(told) == len(numbers) == 4
    for number, (when, *cells) in zip(numbers, told, strict=True):
        for name, cell in zip(head[1 + changed :], cells[changed:], strict=True):
            row = by[when, number, name]
            assert cell == f"{_percent(row['value'])}% ({_percent(row['lo'])} to {_percent(row['hi'])})"
    for model, line in zip(data[board]["models"], data[board]["history"]["rows"], strict=True):
        mine = [row for row in rows if row["model"] == model]
        assert [cell for cell in line if cell] == [
            [pytest.approx(row[end] * 1e6, abs=1.5) for end in ("value", "lo", "hi")] for row in mine
        ]
    what = [cells[0] for _, *cells in told] if changed else []
    expected = ["", "", "30 problems before, 33 now", "other settings: compare.min_problems"]
    assert what == (expected if board == ("maths", "0.2") else ["", "", "", "other settings: compare.min_problems"])
    assert parts[board].count('class="changed"') == sum(map(bool, what))


def test_movers(out: Path, parts: dict[Any, str]) -> None:
    board = ("maths", "0.2")
    moved = asked(
        out, f"FROM change WHERE {_of(board)} AND metric = 'pass@1' AND change <> 0 ORDER BY abs(change) DESC"
    )
    _, *told = _table(parts[board], "Who moved most")
    assert [row[:4] for row in told] == [
        [shorten(row["model"], 60), _percent(row["value_before"]), _percent(row["value"]), _signed(row["change"])]
        for row in moved
    ]
    assert moved
    assert "No score moved since the run before." in parts["code", "0.2"]


@pytest.mark.parametrize("board", BOARDS)
def test_budget(board: tuple[str, str], out: Path, parts: dict[Any, str]) -> None:
    z = NormalDist().inv_cdf(0.975)
    budget = {shorten(row["model"], 60): row for row in asked(out, f"FROM budget WHERE {_of(board)}")}
    _, *told = _table(parts[board], "Half width")
    assert {row[0] for row in told} == set(budget)
    for name, now, endless, twice, bar, share, size in told:
        row = budget[name]
        assert now == f"±{100 * z * row['se']:.1f}"
        assert endless == f"±{100 * z * row['se_endless_attempts']:.1f}"
        assert twice == f"±{100 * z * row['se'] / 2**0.5:.1f}"
        assert share == f"{100 * row['share_attempts']:.0f}%"
        assert bar == f"attempts make {share} of the variance, problems {100 - 100 * row['share_attempts']:.0f}%"
        assert size == f"{row['problems']} \u00d7 {row['attempts_per_problem']:.1f}"


@pytest.mark.parametrize("board", BOARDS)
def test_pairs(board: tuple[str, str], out: Path, parts: dict[Any, str], data: dict[Any, dict[str, Any]]) -> None:
    models = data[board]["models"]
    at = {(a, b): i for i, (a, b) in enumerate((a, b) for j, a in enumerate(models) for b in models[j + 1 :])}
    pairs = asked(out, f"FROM pair WHERE {_of(board)}")
    assert pairs
    claims = {"improvement": "+", "regression": "-"}
    for row in pairs:
        its, key = data[board]["pairs"][row["metric"]], (row["model_b"], row["model_a"])
        if key in at and row["lift"] is not None:
            i = at[key]
            mine = [_percent(x).replace(".", "") for x in (row["lift"], row["lo"], row["hi"])]
            assert [its["lift"][i], its["lo"][i], its["hi"][i]] == list(map(int, mine))
            assert its["claim"][i] == claims.get(row["claim"], "=")
    head, *told = _table(parts[board], "Lift of the row")
    short = {model: shorten(model, 60) for model in models}
    lifts = {(short[row["model_b"]], short[row["model_a"]]): row for row in pairs if row["metric"] == "pass@1"}
    for name, *cells in told:
        for other, cell in zip((row[0] for row in told), cells, strict=True):
            row = lifts.get((name, other))
            settled = row is not None and row["claim"] in claims
            assert cell == ("" if row is None else _signed(row["lift"]).replace("-", "\u2212") if settled else "=")
    assert [shorten(row[0], 24) for row in told] == head[1:]


def test_subjects_and_slices(out: Path, parts: dict[Any, str]) -> None:
    board = ("maths", "0.2")
    for what, table, column in (("subject", "subject_summary", "subject"), ("level", "slice_summary", "slice_value")):
        head, *told = _table(parts[board], f"pass@1 in each {what}")
        values = {
            (shorten(r["model"], 60), r[column]): r
            for r in asked(out, f"FROM {table} WHERE {_of(board)} AND metric = 'pass@1'")
        }
        names = sorted({part for _, part in values})
        many = [max(r["problems"] for (_, part), r in values.items() if part == each) for each in names]
        assert head[1:] == [f"{name}{each} problems" for name, each in zip(names, many, strict=True)]
        assert len(told) == 6
        for name, *cells in told:
            assert cells == [
                _percent(values[name, part]["value"]) if (name, part) in values else "\u2013" for part in names
            ]


def test_long_names_and_flags(parts: dict[Any, str], page: str) -> None:
    assert "<wbr>" in parts["maths", "0.2"]
    assert LONG in [row[1] for row in Tables(parts["maths", "0.2"]).of("scores")]
    assert "Not ranked: attempted 6 of 33 problems" in parts["maths", "0.2"]
    assert page.count("<h1>") == 1
