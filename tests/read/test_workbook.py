"""The workbook in LibreOffice: it opens, and every number is the one that the tables hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import datetime, timedelta
from math import ulp
from pathlib import Path
from zipfile import ZipFile

import openpyxl
import pytest
from typer.testing import CliRunner

from counted import scored
from looked_at import busy, model
from scorelake.cli import app

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
needs_office = pytest.mark.skipif(OFFICE is None, reason="NO LIBREOFFICE: the workbook was not opened in it")


def _opened(path: Path, home: Path) -> openpyxl.Workbook:
    """What LibreOffice makes of a workbook: opened there, and written anew."""
    profile = f"-env:UserInstallation={(home / 'profile').as_uri()}"
    convert = ("--headless", "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(home / "new"))
    command = [OFFICE or "", profile, *convert]
    subprocess.run([*command, str(path)], check=True, capture_output=True, timeout=300)
    return openpyxl.load_workbook(home / "new" / path.name, data_only=True)


@pytest.mark.slow
def test_the_chart_is_of_one_protocol(tmp_path: Path) -> None:
    """Under two protocols a model has two curves; they must not become one line, nor none."""
    rows = [row for t in ("a", "b") for name in ("m", "o") for row in model(name, [4, 2, 1] * 6, temperature=t)]
    _export(scored(tmp_path, rows, protocol={"columns": ("temperature",)}), tmp_path)
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


def _export(out: Path, folder: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(out), str(folder), "--format", "xlsx"])
    assert done.exit_code == 0, done.output


@needs_office
def test_libreoffice_reads_the_same_numbers(tmp_path: Path) -> None:
    """LibreOffice writes fifteen digits of every number; what it holds beyond them, a formula tells.

    Decimals are read there to the last place of a float (7.4 is off by one in it now and then), which is all it has.
    """
    _export(busy(tmp_path / "busy"), tmp_path)
    path = tmp_path / "leaderboard.xlsx"
    ours, theirs = openpyxl.load_workbook(path), _opened(path, tmp_path)
    assert theirs.sheetnames == ours.sheetnames
    seen = 0
    for name in ours.sheetnames:
        for mine, yours in zip(ours[name].iter_rows(), theirs[name].iter_rows(), strict=True):
            for x, y in zip(mine, yours, strict=False):
                if isinstance(x.value, datetime):
                    assert abs(y.value - x.value) < timedelta(seconds=1), (name, x.coordinate)
                    continue
                told = pytest.approx(x.value, rel=1e-14, abs=0) if isinstance(x.value, float) else x.value
                assert y.value == told, (name, x.coordinate)
                seen += isinstance(x.value, float)
    assert seen > 500

    sheet, rest = ours["Leaderboard"], ours.create_sheet("Rest")
    columns = [cell.column_letter for cell in sheet[1] if cell.value in ("value", "lo", "hi", "se")]
    places = [f"{column}{row}" for column in columns for row in range(2, sheet.max_row + 1)]
    for place in places:
        rest[place] = f"=(Leaderboard!{place}-ROUND(Leaderboard!{place},8))*1E8"
    ours.save(tmp_path / "rest.xlsx")
    told = _opened(tmp_path / "rest.xlsx", tmp_path)["Rest"]
    found = 0
    for place in places:
        x = sheet[place].value
        if x is not None and abs(x - round(x, 8)) > 1e-12:  # a smaller rest is taken for nothing there
            assert abs(told[place].value - (x - round(x, 8)) * 1e8) <= 1.01 * ulp(x) * 1e8, place
            found += 1
    assert found > 50
