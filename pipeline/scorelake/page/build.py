"""The page as one text: template, style, script and data put together. The same tables give the same bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from scorelake import metrics as registered
from scorelake.page.data import data, told
from scorelake.page.history import history
from scorelake.page.pairs import pairs
from scorelake.page.problems import problems
from scorelake.page.sections import Asked, Place, view
from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.movers import changed_settings, run_before
from scorelake.read.verdict import warnings
from scorelake.text import escape_controls

SHORT = 24
"""Names up to this length need no places to break at."""
LEAST, PER_MODEL, LARGEST = 260_000, 13_000, 3_000_000
"""Bytes of a page: so many, more for every model of a board, at most so many. Of the data for its script, what would
exceed them is left out, and the page says so."""
SCRIPTS = ("script.js", "table.js", "drawings.js", "start.js")
"""One script, in parts."""
DATA = Markup("<!-- data -->")
"""Where the data will stand. No name can say this: in names, < is escaped."""


def html(folder: Path, metric: str | None = None, title: str | None = None, names: str = "ids", top: int = 50) -> str:
    """The whole page of one output."""
    with opened(folder) as read:
        known = facts(read)
        asked = Asked(known.metric(metric), top, names)
        places = [Place(known, board, read, asked) for board in known.boards]
        boards = [
            view(place) | {"pairs": pairs(place), "problems": problems(place), "history": history(place)}
            for place in places
        ]
        head = _head(known, read, title)
        warned = warnings(known, asked.metric, changed_settings(read, run_before(read, known.run), known.run))
        style, script = _file("style.css"), _script()
        page = (
            _environment()
            .get_template("template.html")
            .render(
                head=head,
                grave=[w.text for w in warned if w.grave],
                mild=[w.text for w in warned if not w.grave],
                boards=boards,
                metric=asked.metric,
                top=top,
                families=_families(known),
                settings="\n".join(_flat(known.settings)),
                confidence=f"{known.confidence:.0%}",
                style=Markup(style),
                script=Markup(script),
                data=DATA,
                policy=_policy(script, style),
            )
        )
        room = min(LEAST + PER_MODEL * sum(len(place.lines) for place in places), LARGEST) - len(page.encode())
        return page.replace(DATA, told(data(places, boards, room)), 1)


def _head(known: Facts, read: Reader, title: str | None) -> dict[str, Any]:
    """What the numbers rest on."""
    run = known.run
    parts = {"graded": run["graded"], "ungraded": run["ungraded"], "duplicate": run["duplicates"]}
    parts["rejected"] = run["rejected"]
    sums = " + ".join(f"{many:,} {what}" for what, many in parts.items() if many or what == "graded")
    seen = read.rows("SELECT n, sum(problems) FROM problem_histogram WHERE n > 0 GROUP BY n ORDER BY n")
    models = {line.model for board in known.boards for lines in board.lines.values() for line in lines}
    names = list(dict.fromkeys(escape_controls(board.benchmark) for board in known.boards))
    distinct = read.rows("SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)")[
        0
    ][0]
    lake = PurePosixPath(str(run["lake"]).rstrip("/")).name or str(run["lake"])
    return {
        "title": title or f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: leaderboard",
        "when": f"{run['started']:%Y-%m-%d %H:%M} UTC",
        "run": run["run_id"],
        "lake": escape_controls(lake),
        "version": run["version"],
        "rows": f"{run['rows_read']:,} attempts = {sums}",
        "models": len(models),
        "problems": distinct,
        "median": _median(seen),
    }


def _median(seen: list[tuple[int, int]]) -> int:
    """The n of the problem in the middle."""
    half, total = sum(many for _, many in seen) / 2, 0
    for n, many in seen:
        total += many
        if total >= half:
            return n
    return 0


def _families(known: Facts) -> list[tuple[str, str, str]]:
    """Formula and source of every family on the page."""
    used = {family for family, _ in known.families.values()}
    return [(f.name, f.formula, f.reference) for f in registered.families() if f.name in used]


def _flat(settings: dict[str, Any], above: str = "") -> list[str]:
    """The settings that are set, a line each."""
    out = []
    for key, value in settings.items():
        if isinstance(value, dict):
            out += _flat(value, f"{above}{escape_controls(key)}.")
        elif value not in (None, (), [], ""):
            out.append(f"{above}{escape_controls(key)} = {escape_controls(json.dumps(value, ensure_ascii=False))}")
    return out


def _policy(script: str, style: str) -> str:
    """Nothing may be loaded; only this script may run, only this style apply."""
    one, two = (b64encode(sha256(text.encode()).digest()).decode() for text in (script, style))
    own = f"script-src 'sha256-{one}'; style-src 'sha256-{two}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def named(text: str) -> Markup:
    """A name that may stand anywhere: isolated from the text around it, broken after / - and _."""
    broken = escape(text)
    for char in "/-_" if len(text) > SHORT else "":
        broken = Markup(broken.replace(char, char + Markup("<wbr>")))
    return Markup("<bdi>{}</bdi>").format(broken)


@cache
def _file(name: str) -> str:
    return (resources.files("scorelake.page") / name).read_text(encoding="utf-8")


def _script() -> str:
    """The parts of the script as one, whose names nothing else sees."""
    return '"use strict";\n(() => {\n' + "\n".join(_file(name) for name in SCRIPTS) + "})();\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["named"] = named
    return environment
