"""Sections of series and costs on the page: the numbers of their tables, in charts and beside them."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from counted import rows, scored
from looked_at import model, plain
from scorelake.page.build import build_page
from scorelake.page.svg import WIDE, PlotArea, Point, Series, line_chart


def test_series_have_curves_and_a_table(tmp_path: Path) -> None:
    """Two runs at 1,000 steps: a ribbon each, thinned, in a small page; the table has the values of its steps."""
    rng = np.random.default_rng(0)
    counts = [
        {"model": run, "step": step, "problem_id": i, "n": 2, "c": int(rng.integers(0, 3))}
        for run in ("a", "<b>")
        for step in range(0, 10_000, 10)
        for i in range(4)
    ]
    out = scored(tmp_path, counts, columns={"step": "step"}, metrics={"names": ["pass@1"]})
    page = build_page(out)
    section = page.split("<h3>Training steps</h3>")[1].split("</section>")[0]
    assert len(re.findall('class="band"', section)) == 4, "a wide and a narrow chart"
    assert all(len(path.split("L")) <= 400 for path in re.findall(r'd="(M[^"]*)" class="band"', section))
    (last,) = rows(out, "FROM series WHERE model = 'a' AND step = 9990")
    assert f"{100 * last['value']:.1f}% ({100 * last['lo']:.1f} to {100 * last['hi']:.1f})" in section
    assert "&lt;b&gt;" in section
    assert "<b>" not in section
    assert len(page) < 500_000


def test_costs_have_a_frontier_and_a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    attempts = [
        {
            "model": name,
            "problem_id": i,
            "attempt": j,
            "passed": bool(rng.random() < rate),
            "usd": price * rng.random(),
        }
        for name, rate, price in (("cheap", 0.3, 0.001), ("dear", 0.7, 0.01), ("wasteful", 0.2, 0.1))
        for i in range(30)
        for j in range(2)
    ]
    out = scored(tmp_path, pl.DataFrame(attempts), measures={"usd": {"kind": "cost"}})
    section = build_page(out).split("<h3>Score against usd</h3>")[1].split("</section>")[0]
    for row in rows(out, "FROM measure_summary"):
        assert f"<td>{row['value']:.4g}</td><td>{row['lo']:.4g} to {row['hi']:.4g}</td>" in section
    for row in rows(out, "FROM frontier"):
        assert f"{row['model']}: {row['score']:.3f} at {row['cost']:.4g}" in section
        assert row["on_front"] == (row["model"] != "wasteful")
    assert len(re.findall(r'class="c\d hollow"', section)) == 2, "the mark of wasteful, in a wide and a narrow chart"
    assert len(re.findall('class="line frontier"', section)) == 2
    assert "must not cost more than a budget (usd)" in section
    assert "until solved, at most k times" in section


def test_partial_models_forecasts_and_gates_are_the_rows_of_their_tables(tmp_path: Path) -> None:
    counts = [row for i in range(3) for row in model(f"m{i}", [(i + j) % 5 for j in range(40)], 4)]
    counts += model("half", [3, 4, 2, 4] * 5, 4)
    rule = {"candidate": "m*", "base": "m0", "margin": 0.5}
    out = scored(tmp_path, counts, metrics={"names": ["pass@1", "pass@8"]}, gates={"rule": [rule]})
    page = build_page(out)
    (row,) = rows(out, "FROM adjusted WHERE share_tried < 1")
    interval = f"{100 * row['lo_adjusted']:.1f} to {100 * row['hi_adjusted']:.1f}"
    assert f"<td>50%</td><td>81.3</td><td>{100 * row['value_adjusted']:.1f} ({interval})</td>" in page
    for row in rows(out, "FROM forecast"):
        about = f"{100 * row['lo']:.1f} to {100 * row['hi']:.1f}"
        assert f"<td>forecast {100 * row['value']:.1f} ({about})</td>" in page
    assert 'class="line dotted"' in page
    verdicts = rows(out, "FROM gate")
    assert {row["verdict"] for row in verdicts} == {"pass"}
    for row in verdicts:
        cells = f"<td>m0</td><td>pass@1</td><td>{row['lift']:+.4f}</td><td>{row['lo']:+.4f} to {row['hi']:+.4f}</td>"
        assert f'<span class="gate pass">pass</span></td>{cells}<td>-0.5000</td>' in page


def test_labels_of_a_frontier_do_not_overlap() -> None:
    area = PlotArea(*WIDE, (1, 2), (0, 1), log=True)
    lines = [Series(f"model-{i}", [Point(1 + i / 50, 0.5 + i / 500, 0.4, 0.6)], i % 8) for i in range(20)]
    chart = line_chart(lines, area, "t", intervals="bars")
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)" class="[^"]*">(model-\d+)', chart)
    shift = {"start": 0.0, "end": 1.0, "middle": 0.5}
    boxes = [(float(x) - shift[anchor] * 7 * len(name), float(y), 7 * len(name)) for x, y, anchor, name in found]
    assert 2 <= len(boxes) < 20
    for a, b in combinations(boxes, 2):
        assert abs(a[1] - b[1]) >= 14 or a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0]


def test_nothing_of_it_appears_without_series_and_measures(tmp_path: Path) -> None:
    page = build_page(plain(tmp_path))
    assert [name for name in ("series", "costs", "gates") if f'<section class="{name}">' in page] == []
