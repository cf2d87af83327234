"""Every number of the page is that of its table."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

import scorelake as sl
from counted import Row, rows
from looked_at import Tables, busy, script_data
from scorelake.page.build import build_page
from scorelake.read.format import shorten

Board = tuple[str, str]
BOARDS = (("code", "0.2"), ("maths", "0.2"), ("maths", "1.0"))
SIGNIFICANT = {"improvement": "+", "regression": "-"}
each_board = pytest.mark.parametrize("board", BOARDS)


def _percent(x: float) -> str:
    return str((Decimal(x) * 100).quantize(Decimal("0.1"), ROUND_HALF_UP))


def _signed(x: float) -> str:
    return _percent(x) if x < 0 else f"+{_percent(x)}"


def _between(row: Row) -> str:
    return f"{_percent(row['lo'])} to {_percent(row['hi'])}"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy(tmp_path_factory.mktemp("busy"))


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return build_page(out)


@pytest.fixture(scope="module")
def parts(page: str) -> dict[Board, str]:
    """The page cut into its boards."""
    cut = page.split('<article class="board"')[1:]
    return dict(zip(BOARDS, (part.split("</article>")[0] for part in cut), strict=True))


@pytest.fixture(scope="module")
def data(page: str) -> dict[Board, dict[str, Any]]:
    assert script_data(page)["omitted"] == []
    return dict(zip(BOARDS, script_data(page)["boards"], strict=True))


def _where(board: Board, metric: str | None = "pass@1") -> str:
    one = f"benchmark = '{board[0]}' AND protocol LIKE '%{board[1]}%'"
    return f"{one} AND metric = '{metric}'" if metric else one


def _table(part: str, caption: str) -> list[list[str]]:
    """The table whose caption begins so, with its head."""
    tables = re.findall(r"<table.*?</table>", part, re.DOTALL)
    captions = [re.sub(r"<[^>]*>", "", re.findall(r"<caption>(.*?)</caption>", table)[0]) for table in tables]
    (match,) = (table for table, text in zip(tables, captions, strict=True) if text.startswith(caption))
    return Tables(match).tables[0][1]


@each_board
def test_leaderboard(board: Board, out: Path, parts: dict[Board, str]) -> None:
    cells = {row[1]: row for row in Tables(parts[board]).of("scores")}
    lines = rows(out, f"FROM leaderboard WHERE {_where(board)}")
    assert len(cells) == len(lines)
    for line in lines:
        name = line["model"] if line["rank"] else f"{line['model']}Not ranked: {line['reason']}"
        rank = str(line["rank"] or "\u2013")
        if line["rank_lo"] != line["rank_hi"]:
            rank = f"{line['rank_lo']}\u2013{line['rank_hi']}"
        counts = [f"{line['problems']} of {line['problems_of_benchmark']}", str(line["attempts"])]
        assert [*cells[name][:4], *cells[name][-2:]] == [rank, name, _percent(line["value"]), _between(line), *counts]


@each_board
def test_script_data(board: Board, out: Path, data: dict[Board, dict[str, Any]]) -> None:
    views = {None: data[board]["overall"]} | {view["name"]: view for view in data[board]["subjects"]}
    lines = rows(
        out,
        f"SELECT NULL AS subject, * FROM leaderboard WHERE {_where(board, None)} "
        f"UNION ALL BY NAME FROM subject_leaderboard WHERE {_where(board, None)}",
    )
    assert len(lines) == sum(row != 0 for v in views.values() for m in v["metrics"].values() for row in m["rows"])
    for line in lines:
        view, i = views[line["subject"]], data[board]["models"].index(line["model"])
        value, lo, hi, *ranks = view["metrics"][line["metric"]]["rows"][i]
        assert view["counts"][i] == [line["problems"], line["problems_of_benchmark"], line["attempts"]]
        assert ranks[:3] == [line["rank"], line["rank_lo"], line["rank_hi"]]
        expected = [
            x if x is None else pytest.approx(x * 1e6, abs=2) for x in (line["value"], line["lo"], line["hi"])
        ]
        assert [value, lo, hi] == expected


@each_board
@pytest.mark.parametrize("family", ["pass@k", "pass^k"])
def test_curves(board: Board, family: str, out: Path, parts: dict[Board, str]) -> None:
    head, *body = _table(parts[board], f"{family}, %")
    cells = {(name, row[0]): cell for row in body for name, cell in zip(head[1:], row[1:], strict=True)}
    points = rows(
        out,
        f"FROM curve WHERE {_where(board, None)} AND family = '{family}' AND value IS NOT NULL "
        "AND k IN (1, 2, 3, 4, 6, 8, 12, 16, 24)",
    )
    assert len(points) == sum(cell != "\u2013" for cell in cells.values())
    for p in points:
        assert cells[p["model"], str(p["k"])] == _percent(p["value"]) + "*" * (p["scored"] < 1)


@each_board
def test_problems(board: Board, out: Path, parts: dict[Board, str], data: dict[Board, dict[str, Any]]) -> None:
    stats = rows(out, f"FROM problem_stats WHERE {_where(board, None)} ORDER BY difficulty, subject, problem_id")
    head, *body = _table(parts[board], "The 1" if board[0] == "code" else "The 2")
    assert head == ["Problem", "Subject", "Difficulty", "Solved by", "Attempts"]
    hardest = [
        (p["problem_id"], p["subject"], f"{p['difficulty']:.2f}", f"{p['solved_by']} of {p['models']}", p["attempts"])
        for p in reversed(stats)
    ]
    assert body == [list(map(str, row)) for row in hardest[:24]]
    for flag, column in (("Never solved", "never_solved"), ("Always solved by every model", "saturated")):
        assert f"<strong>{flag}</strong>: {sum(row[column] for row in stats)}" in parts[board]
    bins = [int(count) for count in re.findall(r"<title>(\d+) problems with difficulty", parts[board])]
    assert bins == [sum(min(int(row["difficulty"] * 20), 19) == i for row in stats) for i in range(20)]
    packed = data[board]["problems"]
    counts = {
        (row["model"], row["problem_id"]): row
        for row in rows(out, f"FROM problem_counts WHERE {_where(board, None)}")
    }
    assert packed["names"] == [row["problem_id"] for row in stats]
    for model, line in zip(data[board]["models"], packed["cells"], strict=True):
        for problem, char in zip(packed["names"], line, strict=True):
            row = counts.get((model, problem))
            assert packed["codes"].get(char) == ([row["n"], row["c"]] if row and row["n"] else None)


@each_board
def test_history(board: Board, out: Path, parts: dict[Board, str], data: dict[Board, dict[str, Any]]) -> None:
    scores = rows(out, f"FROM history WHERE {_where(board)} ORDER BY number")
    by_run = {(f"{row['started']:%Y-%m-%d %H:%M}", row["number"], row["model"]): row for row in scores}
    numbers = sorted({row["number"] for row in scores})
    head, *body = _table(parts[board], "pass@1 with interval, by run")
    assert len(numbers) == 4
    for number, (when, *cells) in zip(numbers, body, strict=True):
        for name, cell in zip(head[1:], cells, strict=True):
            row = by_run[when[:16], number, name]
            assert cell == f"{_percent(row['value'])}% ({_between(row)})"
    for model, line in zip(data[board]["models"], data[board]["points"]["history"], strict=True):
        assert [point[1:4] for point in line] == [
            [round(row[end] * 1e4) for end in ("value", "lo", "hi")] for row in scores if row["model"] == model
        ]
    changes = [row[0][18:] for row in body]
    more = "30 problems before, 33 now" if board == ("maths", "0.2") else ""
    assert changes == ["", "", more, "settings changed: compare.min_problems"]
    assert parts[board].count('class="changed"') == 2 * sum(map(bool, changes)), "a wide and a narrow chart"


def test_largest_changes(out: Path, parts: dict[Board, str]) -> None:
    board = ("maths", "0.2")
    changes = rows(out, f"FROM change WHERE {_where(board)} AND change <> 0 ORDER BY abs(change) DESC")
    _, *body = _table(parts[board], "Largest changes")
    assert changes
    assert [row[:4] for row in body] == [
        [shorten(row["model"], 60), _percent(row["value_before"]), _percent(row["value"]), _signed(row["change"])]
        for row in changes
    ]
    assert "No score changed since the previous run." in parts["code", "0.2"]


@each_board
def test_budget(board: Board, out: Path, parts: dict[Board, str]) -> None:
    """The last columns are the answers of `scorelake plan`."""
    z = NormalDist().inv_cdf(0.975)
    head, *body = _table(parts[board], "Approximate half-width")
    cells = {name: row for name, *row in body}
    budget = rows(out, f"FROM budget WHERE {_where(board, None)}")
    target = float(re.findall("\u00b1(.*)", head[-1])[0]) / 100
    plans = sl.plan(str(out), f"half-width {target:g}", board[0])
    needs = {need.about: need for need in plans if board[1] in need.protocol}
    assert set(cells) == {shorten(row["model"], 60) for row in budget}
    for row in budget:
        need = needs[f"{row['model']}, half-width {target:g}"]
        share = f"{row['share_attempts']:.0%}"
        assert [cell.strip() for cell in cells[shorten(row["model"], 60)]] == [
            f"{row['problems']} \u00d7 {row['attempts_per_problem']:.1f}",
            *(f"±{100 * z * x:.1f}" if x else "unknown" for x in (row["se"], row["se_endless_attempts"])),
            f"±{100 * z * row['se'] / 2**0.5:.1f}",
            share,
            f"{need.problems_needed:,.0f}",
            f"{need.attempts_needed:,.0f}" if need.attempts_needed else "not possible",
        ]


@each_board
def test_pairs(board: Board, out: Path, parts: dict[Board, str], data: dict[Board, dict[str, Any]]) -> None:
    models = data[board]["models"]
    index = {pair: i for i, pair in enumerate((a, b) for j, a in enumerate(models) for b in models[j + 1 :])}
    pairs = rows(out, f"FROM pair WHERE {_where(board, None)}")
    assert pairs
    for row in pairs:
        packed, i = data[board]["pairs"][row["metric"]], index.get((row["model_b"], row["model_a"]))
        if i is not None and row["lift"] is not None:
            tenths = [int(_percent(row[end]).replace(".", "")) for end in ("lift", "lo", "hi")]
            assert [packed["lift"][i], packed["lo"][i], packed["hi"][i]] == tenths
            assert packed["claim"][i] == SIGNIFICANT.get(row["claim"], "=")
    head, *body = _table(parts[board], "Lift of the row")
    short = {model: shorten(model, 60) for model in models}
    lifts = {(short[row["model_b"]], short[row["model_a"]]): row for row in pairs if row["metric"] == "pass@1"}
    for name, *cells in body:
        for other, cell in zip((row[0] for row in body), cells, strict=True):
            pair = lifts.get((name, other))
            lift = _signed(pair["lift"]).replace("-", "\u2212") if pair and pair["claim"] in SIGNIFICANT else "="
            assert cell == (lift if pair else "")
    assert [shorten(row[0], 24) for row in body] == head[1:]


@pytest.mark.parametrize(
    ("by", "table", "column"), [("subject", "subject_summary", "subject"), ("level", "slice_summary", "slice_value")]
)
def test_subjects_and_slices(by: str, table: str, column: str, out: Path, parts: dict[Board, str]) -> None:
    board = ("maths", "0.2")
    head, *body = _table(parts[board], f"pass@1 by {by}")
    scores = {(shorten(r["model"], 60), r[column]): r for r in rows(out, f"FROM {table} WHERE {_where(board)}")}
    names = sorted({value for _, value in scores})
    problems = [max(r["problems"] for (_, value), r in scores.items() if value == name) for name in names]
    assert head[1:] == [f"{name}{count} problems" for name, count in zip(names, problems, strict=True)]
    assert len(body) == 6
    for model, *cells in body:
        expected = [scores.get((model, name)) for name in names]
        assert cells == [_percent(row["value"]) if row else "\u2013" for row in expected]
