"""Outputs worth looking at, and a page taken apart: its tables as rows of texts."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl

from counted import Row, scored
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "evil\u202egnp.exe",
    "nul\x00and\x1b[31mred\x07",
    "=HYPERLINK(1)",
    "long-" + "x" * 10_000,
    "{{ 7*7 }} & <b>bold</b>",
)


def model(name: str, rates: list[int], n: int = 4, **more: str) -> list[Row]:
    """A model that solved rates[i] of n attempts at problem i."""
    return [
        {"model": name, "subject": "xy"[i % 2], "problem_id": f"p{i}", "n": n, "c": c, **more}
        for i, c in enumerate(rates)
    ]


def plain(home: Path) -> Path:
    """Four models, two of them alike, one that tried too little."""
    easy, hard = [4, 3, 2, 4, 0, 1], [1, 0, 0, 2, 0, 0]
    return scored(
        home,
        [
            *model("vendor/strong-1", easy * 6),
            *model("twin_2", easy * 6),
            *model("weak", hard * 6),
            *model("few", [4] * 5),
        ],
    )


def hostile(home: Path) -> Path:
    """Models, subjects, problems and a benchmark with names that would like to act."""
    rows = [
        row | {"subject": f"{row['subject']}<img src=x>", "problem_id": f"{row['problem_id']}</td>\x1b"}
        for i, name in enumerate(HOSTILE)
        for row in model(name, [max(0, 4 - i), 2, 1, 3] * 5, benchmark="b</script><i>\u202e")
    ]
    return scored(home, rows)


LONG = "lab/" + "a-very-long-name_" * 10 + "end"


def busy(home: Path) -> Path:
    """Two benchmarks, two protocols, subjects, slices, makers, a long name, an unranked model, and four runs.

    The third run has more problems, the fourth other settings.
    """
    rates = {"north/big": 30, "north/small": 18, "south/one": 29, LONG: 12, "alone": 6}
    first = [row for name, rate in rates.items() for row in _tries(name, rate, 30, "maths", "0.2")]
    first += _tries("few", 20, 6, "maths", "0.2")
    first += [row for name in ("north/big", "south/one") for row in _tries(name, 22, 30, "maths", "1.0")]
    first += [row for name in ("north/big", "alone") for row in _tries(name, 15, 12, "code", "0.2")]
    again = [row for name, rate in rates.items() for row in _tries(name, rate + 4, 30, "maths", "0.2", "b")]
    more = [row for name in rates for row in _tries(name, 10, 33, "maths", "0.2", "c")[-18:]]
    keys = {
        "protocol": {"columns": ("temperature",)},
        "by": ("level",),
        "columns": {"carry": ("level",)},
    }
    runs = [(first, {}), (again, {}), (more, {}), (_tries("alone", 30, 30, "maths", "0.2", "d"), {"min_problems": 9})]
    for i, (rows, compare) in enumerate(runs):
        (home / "lake").mkdir(parents=True, exist_ok=True)
        pl.DataFrame(rows).write_parquet(home / "lake" / f"{i}.parquet")
        settings = Settings.model_validate({**keys, "compare": compare, "metrics": {"names": ("pass@1", "pass@2")}})
        score_lake(home / "lake", Output(home / "out"), settings)
    return home / "out"


def measured(home: Path) -> Path:
    """Two runs at four steps, with the cost of every attempt."""
    rows = [
        {
            "model": run,
            "step": step,
            "problem_id": f"p{i}",
            "attempt": j,
            "passed": (i * 7 + j * 5) % 29 < rate + step,
        }
        | {"usd": (1 + step / 40) * (1 + (i + j) % 5) / 1000}
        for run, rate in (("base", 3), ("kl-0.1", 8))
        for step in (0, 5, 10, 15)
        for i in range(24)
        for j in range(4)
    ]
    kinds: dict[str, Any] = {"columns": {"step": "step"}, "measures": {"usd": {"kind": "cost"}}}
    return scored(home, pl.DataFrame(rows), metrics={"names": ["pass@1", "pass@4"]}, **kinds)


def heavy(home: Path) -> Path:
    """300 models of ten makers, 60 problems, two attempts each."""
    rows: list[Row] = []
    for i in range(300):
        solved = [sum((i * 7 + j * 11 + k * 31) % 97 < 90 - i // 4 for k in range(2)) for j in range(60)]
        rows += model(f"lab-{i % 10}/model-{i:03d}", solved, 2)
    return scored(home, rows, metrics={"names": ("pass@1",)}, compare={"resamples": 200})


def _tries(model: str, rate: int, problems: int, benchmark: str, temperature: str, batch: str = "a") -> list[Row]:
    """Six attempts a problem; the higher the rate, the more problems are solved more often."""
    return [
        {
            "model": model,
            "benchmark": benchmark,
            "subject": ("algebra", "7", "geometry")[i % 3],
            "problem_id": f"{benchmark}-{i}",
            "attempt": f"{batch}{j}",
            "temperature": temperature,
            "level": "hard" if i % 4 else "easy",
            "passed": (i * 7 + j * 5 + len(batch + model)) % 41 < rate,
        }
        for i in range(problems)
        for j in range(6)
    ]


class Tables(HTMLParser):
    """Every table of a page: its class, and its rows of cell texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append((dict(attrs).get("class") or "", []))
        elif tag == "tr" and self.tables:
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][1][-1].append("".join(self._cell).strip())
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def of(self, kind: str) -> list[list[str]]:
        """The first table with this class, without its head."""
        return next(rows for name, rows in self.tables if kind in name.split())[1:]


def script_data(page: str) -> dict[str, Any]:
    """The data that the page's script reads."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)  # type: ignore[no-any-return]


def browser() -> str | None:
    """Chromium or Chrome with its driver, if they are here."""
    if shutil.which("chromedriver") is None:
        return None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None)
