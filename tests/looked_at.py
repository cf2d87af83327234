"""Outputs worth looking at, and a page taken apart: its tables as rows of texts."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path

from counted import Row, scored

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


def browser() -> str | None:
    """Chromium or Chrome with its driver, if they are here."""
    if shutil.which("chromedriver") is None:
        return None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None)
