"""Report, exports and the numbers in them: equal to the tables, and nothing in a name acts."""

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from itertools import product
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import openpyxl
import polars as pl
import pytest
from typer.testing import CliRunner

from conftest import expand, put, run
from counted import rows as asked
from counted import scored
from looked_at import HOSTILE, hostile, model, plain
from scorelake.cli import app
from scorelake.page.build import build_page
from scorelake.read.board import BoardRows, Line, Reader, overall_rows
from scorelake.read.report import plain as inert


def _call(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def _text(path: Path) -> StringIO:
    return StringIO(path.read_bytes().decode(), newline="")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile(tmp_path_factory.mktemp("hostile"))


def test_the_report(out: Path) -> None:
    told = _call("report", out)
    assert "strong-1 share the first place on default at pass@1: 58.3%" in told
    assert "leads" not in told
    assert "The other model is behind." in told
    assert "| 3 | weak | 12.5% |" in told
    assert "1 model is not ranked" in told
    assert "\nfew is not ranked: attempted 5 of 36 problems, 33 needed to be ranked\n" in told
    assert _call("report", out) == told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_every_sentence_follows_from_the_tables(tmp_path: Path, seed: int) -> None:
    """Random boards: headline, rank ranges, bars, bold and colours agree with values and claims."""
    rng = np.random.default_rng(seed)
    for i in range(5):
        n, first = int(rng.integers(1, 9)), int(rng.choice([0, 0, 0, 12]))
        rates = np.clip(rng.beta(2, 2, 40) + (0.4 if i < 2 else 0), 0, 1)
        for s in range(4):
            counts = [(f"p{j}", n, int(rng.binomial(n, rates[j]))) for j in range(first, 40) if j % 4 == s]
            put(tmp_path / "lake", expand(counts, model=f"m{i}", subject=f"s{s}"), f"{i}-{s}.parquet")
    out = tmp_path / "out"
    run(tmp_path / "lake", out, "[compare]\nmin_problems = 5\n", metrics=["pass@1"])
    table = asked(out, "SELECT model, value, rank, rank_lo FROM leaderboard ORDER BY value DESC")
    claims = {(r["model_b"], r["model_a"]): r for r in asked(out, "SELECT model_a, model_b, claim, q FROM pair")}
    ranked = [row for row in table if row["rank"]]
    headline = next(line for line in _call("report", out).splitlines() if " default at pass@1" in line)
    assert headline.startswith(table[0]["model"]), headline
    if table[0]["rank"] is None:
        assert "but is not ranked: attempted 28 of 40 problems, 36 needed" in headline
        assert f"Of the ranked models, {ranked[0]['model']} " in headline
    if alike := re.search(r"\. ([^.]*) (?:is|are) statistically indistinguishable from it", headline):
        for model in re.findall(r"m\d", alike[1]):
            assert claims[model, ranked[0]["model"]]["claim"] == "inconclusive", headline
    page = build_page(out)
    rows = re.findall(r'<tr role="row" data-i="\d+" class="t\d( joined(?: first)?)?', page)
    top = None
    for row, joined in zip(ranked, rows, strict=False):
        top = row if top is None or "first" in joined or not joined else top
        assert row["rank_lo"] <= top["rank"], "a bar joins rows whose range includes the rank of the top row"
    cells = re.findall(r'<td class="([np])(\d)([^"]*)" title="(m\d) vs\. (m\d):', page)
    assert cells
    for sign, step, equal, a, b in cells:
        claim = claims[a, b]["claim"]
        assert (equal == " equal") == (claim not in ("improvement", "regression"))
        assert equal == "" or step == "0", "no colour without a claim"
        assert step == "0" or (sign == "p") == (claim == "improvement")
    bold = re.findall(r"<strong>([\d.]+)</strong></td>", page)
    best = asked(out, "SELECT subject, model FROM subject_leaderboard WHERE rank_hi = 1")
    assert len(bold) <= len(best)
    for row in best if bold else ():
        pairs = asked(out, f"FROM subject_comparison WHERE subject = '{row['subject']}'")
        mine = [pair["q"] for pair in pairs if row["model"] in (pair["model_a"], pair["model_b"])]
        assert max(mine) <= 0.05
    assert ("Rank 1\u20133: significant differences place" in " ".join(_call("show", out).split())) == any(
        row["rank_lo"] for row in ranked
    )


def test_each_benchmark_is_shown_by_its_own_metric() -> None:
    """Verdicts and rewards in one output: the average is over the verdicts, rewards keep their scale."""

    def board(name: str, metric: str, value: float) -> BoardRows:
        line = Line("m", value, value - 0.1, value + 0.1, 1, 1, 1, 1.0, 40, 40, 40, 80, None)
        none = [replace(line, value=None, lo=None, hi=None)]
        return BoardRows(name, "", "", {"avg@N": none, "pass@1": none, metric: [line]})

    class Overall(Reader):
        def rows(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
            return [("", "", "m", 0.5, 0.4, 0.6, 1, None, None, 2, "games")]

    boards = [board("code", "pass@1", 0.5), board("games", "avg@N", 2.25)]
    assert [each.headline("pass@1") for each in boards] == ["pass@1", "avg@N"]
    (overall,) = overall_rows(Overall(None), boards, "pass@1")  # type: ignore[arg-type]
    head, (row,) = overall.cells()
    assert head == ["rank", "model", "average, %", "interval", "code", "games (avg@N)"]
    assert row == ["1", "m", "50.0", "40.0 to 60.0", "50.0", "2.25"]


@pytest.mark.slow
def test_models_that_are_not_compared_are_not_called_indistinguishable(tmp_path: Path) -> None:
    for name, n, c in (("many", 8, 7), ("double", 16, 8), ("single", 1, 0)):
        put(tmp_path / "lake", expand([(f"p{i}", n, c) for i in range(40)], model=name), f"{name}.parquet")
    run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1", "bayes@N"])
    assert "The other two models are behind." in _call("report", tmp_path / "out")
    text = _call("report", tmp_path / "out", "--metric", "bayes@N")
    assert "double and single are not compared with it: n differs, and bayes@N is biased by n." in text


def test_the_report_links_to_the_page(tmp_path: Path) -> None:
    out = plain(tmp_path)
    assert "](" not in _call("report", out)
    told = _call("report", out, "--page", "https://e.org/a b)<x>?y=1#pin=m")
    assert told.endswith("[Full leaderboard](<https://e.org/a%20b%29%3Cx%3E?y=1#pin=m>)\n")
    _call("page", out, "--html", out / "leaderboard.html")
    assert _call("report", out).endswith(f"[Full leaderboard](<{out.as_posix()}/leaderboard.html>)\n")
    (out / "leaderboard.html").write_text("the page of another run", encoding="utf-8")
    assert "](" not in _call("report", out)


@pytest.mark.slow
def test_movers(tmp_path: Path) -> None:
    for i, c in enumerate((1, 4)):
        put(tmp_path / "lake", expand([(f"p{i}", 4, c) for i in range(12)], model="m"), f"{i}.parquet")
        run(tmp_path / "lake", tmp_path / "out", metrics=["pass@1"])
    assert "| m | 25.0 | 62.5 | +37.5 | significant change |" in _call("report", tmp_path / "out")


def test_a_hostile_name_is_only_a_name_in_markdown(wild: Path) -> None:
    told = _call("report", wild)
    assert "<img" not in told.replace("\\<img", "")
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert inert("@all [x](https://e) `c` |") == "\\@all \\[x\\](https\\://e) \\`c\\` \\|"


def test_csv_is_whole_and_starts_no_formula(wild: Path, tmp_path: Path) -> None:
    _call("export", wild, tmp_path)
    for path in tmp_path.glob("*.csv"):
        for line in csv.reader(_text(path)):
            assert not [cell for cell in line if cell[:1] in "=@\t\r" and cell], path.name
    told = list(csv.DictReader(_text(tmp_path / "leaderboard.csv")))
    board = {(row["model"], row["metric"]): row for row in asked(wild, "FROM leaderboard")}
    assert len(told) == len(board)
    for row in told:
        mine = board[row["model"].removeprefix("'"), row["metric"]]
        assert row["value"] == ("" if mine["value"] is None else repr(mine["value"]))
        assert row["lo"] == ("" if mine["lo"] is None else repr(mine["lo"]))
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["settings"]["uncertainty"]
    assert {row["model"].removeprefix("'") for row in told} == set(HOSTILE)


def test_parquet_has_one_layout_whatever_the_lake_is(out: Path, tmp_path: Path) -> None:
    _call("export", out, tmp_path / "a", "--format", "parquet")
    frame = pl.read_parquet(tmp_path / "a" / "pairs.parquet")
    order = "ORDER BY benchmark, protocol, metric, model_a, model_b"
    assert frame["lift"].to_list() == [row["lift"] for row in asked(out, f"FROM pair {order}")]
    one = scored(tmp_path, [{"model": "m", "problem_id": "p", "n": 1, "c": 1, "t": 0.5}], protocol={"columns": ["t"]})
    _call("export", one, tmp_path / "b", "--format", "parquet")
    layouts = [json.loads((tmp_path / name / "schema.json").read_text())["tables"] for name in "ab"]
    assert layouts[1]["protocols"]["columns"].pop() == {
        "name": "t",
        "type": "double",
        "description": "Protocol column",
    }
    for each in layouts:
        for name, table in each.items():
            file = pl.read_parquet(tmp_path / "ab"[each is layouts[1]] / table["file"])
            assert file.height == table.pop("rows")
            assert name == "protocols" or file.columns == [column["name"] for column in table["columns"]]
    assert layouts[0] == layouts[1]


def test_every_eval_ever_is_read_back_to_the_same_counts(tmp_path: Path) -> None:
    rows = [
        {
            "model": name,
            "benchmark": bench,
            "subject": subject,
            "problem_id": f"p{i}",
            "t": t,
            "n": 1 + i,
            "c": i // 2,
        }
        for name, bench, subject, t, i in product(("org/m", "=x"), "ab", "st", (0.2, 1.0), range(5))
    ]
    counts = pl.DataFrame([{**row, "passed": j < row["c"]} for row in rows for j in range(row["n"])]).drop("n", "c")
    ungraded = counts.filter(problem_id="p1").with_columns(passed=pl.lit(None, pl.Boolean))
    one = scored(tmp_path / "1", pl.concat([counts, ungraded]), protocol={"columns": ["t"]})
    _call("export", one, tmp_path / "eee", "--format", "eee")
    _call("ingest", "auto", tmp_path / "eee", "--lake", tmp_path / "lake")
    _call("score", tmp_path / "lake", "--out", tmp_path / "2")
    sql = "SELECT benchmark, subject, model, problem_id, n, c, ungraded FROM problem_counts ORDER BY ALL"
    assert asked(one, sql) == asked(tmp_path / "2", sql)
    for path in tmp_path.glob("eee/*-*.json"):
        whole = json.loads(path.read_text())
        assert (
            len(_text(path.with_name(f"{path.stem}_samples.jsonl")).readlines())
            == (whole["detailed_evaluation_results"]["total_rows"])
        )
        for result in whole["evaluation_results"]:
            t = result["generation_config"]["additional_details"]["t"]
            of = f"model = '{whole['model_info']['id']}' AND benchmark = '{result['evaluation_name']}'"
            (row,) = asked(
                one, f"FROM leaderboard JOIN protocol USING (protocol) WHERE {of} AND metric = 'pass@1' AND t = {t}"
            )
            interval = result["score_details"]["uncertainty"]["confidence_interval"]
            assert (row["value"], row["lo"], row["hi"]) == (
                *(result["score_details"]["score"], interval["lower"], interval["upper"]),
            )


def test_a_protocol_becomes_columns(tmp_path: Path) -> None:
    rows = expand([(f"p{i}", 2, i % 3 % 2) for i in range(12)], model="m", temperature="0.2")
    put(tmp_path / "lake", rows)
    run(tmp_path / "lake", tmp_path / "out", '[protocol]\ncolumns = ["temperature"]\n')
    _call("export", tmp_path / "out", tmp_path / "e")
    (first, *_) = csv.DictReader(_text(tmp_path / "e" / "leaderboard.csv"))
    assert first["temperature"] == "0.2"


@pytest.mark.slow
def test_xlsx_holds_the_same_numbers_and_texts_as_text(wild: Path, tmp_path: Path) -> None:
    _call("export", wild, tmp_path, "--format", "xlsx")
    book = openpyxl.load_workbook(tmp_path / "leaderboard.xlsx")
    names = ["Read me", "Leaderboard", "Curves", "Subjects", "Pairs", "Problems", "History", "Run"]
    assert book.sheetnames == names
    head, *body = book["Leaderboard"].iter_rows()
    at = {cell.value: i for i, cell in enumerate(head)}
    values = [row[at["value"]].value for row in body]
    order = "ORDER BY benchmark, protocol, metric, rank NULLS LAST, model"
    assert values == [row["value"] for row in asked(wild, f"FROM leaderboard {order}")]
    assert {row[at["model"]].data_type for row in body} == {"s"}
    assert "=HYPERLINK(1)" in {row[at["model"]].value for row in body}
    assert book["Leaderboard"].freeze_panes == "A2"
    assert body[0][at["value"]].number_format == "0.0%"
    with ZipFile(tmp_path / "leaderboard.xlsx") as parts:
        assert [name for name in parts.namelist() if "/charts/" in name] == ["xl/charts/chart1.xml"]
    assert any(row[0].value == "pass@k" for row in book["Read me"].iter_rows())


@pytest.mark.slow
def test_the_chart_is_of_one_protocol(tmp_path: Path) -> None:
    """Under two protocols a model has two curves; they must not become one line, nor none."""
    rows = [row for t in ("a", "b") for name in ("m", "o") for row in model(name, [4, 2, 1] * 6, temperature=t)]
    out = scored(tmp_path, rows, protocol={"columns": ("temperature",)})
    _call("export", out, tmp_path, "--format", "xlsx")
    book = openpyxl.load_workbook(tmp_path / "leaderboard.xlsx")
    head, *lines = book["Curves"].iter_rows(values_only=True)
    curves = [dict(zip(head, line, strict=True)) for line in lines]
    chart = ZipFile(tmp_path / "leaderboard.xlsx").read("xl/charts/chart1.xml").decode()
    drawn = []
    for first, last in re.findall(r"<c:yVal>.*?\$(\d+):.*?\$(\d+)</c:f>", chart):
        rows = curves[int(first) - 2 : int(last) - 1]
        assert [row["k"] for row in rows] == sorted({row["k"] for row in rows})
        drawn += [{(row["benchmark"], row["temperature"], row["family"], row["model"]) for row in rows}]
    assert drawn == [{("default", "a", "pass@k", "m")}, {("default", "a", "pass@k", "o")}]


@pytest.mark.parametrize("command", [("report",), ("page", "--html", "x.html"), ("export", "x"), ("show",)])
def test_no_leaderboard_is_said(command: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [command[0], str(tmp_path), *command[1:]])
    assert done.exit_code == 5
    assert "no leaderboard here" in done.output


def test_nothing_is_written_among_the_files_of_the_output(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for command in (
        ("export", out, out),
        ("export", out, out / "snapshots"),
        ("export", out / "leaderboard.duckdb", out / "snapshots" / ".." / "partials" / "x"),
        ("page", out, "--html", out / "leaderboard.duckdb"),
        ("page", out, "--html", "/"),
        ("page", out, "--html", out),
    ):
        done = CliRunner().invoke(app, [str(part) for part in command])
        assert done.exit_code == 2, (command, done.output)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
