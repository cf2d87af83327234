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
from scorelake.page.history import history
from scorelake.page.problems import problems
from scorelake.page.sections import Asked, Place, axis, view
from scorelake.read.board import Board, Facts, Reader, facts, opened
from scorelake.read.movers import changed_settings
from scorelake.read.numbers import millionths
from scorelake.read.verdict import verdict, warnings
from scorelake.words import visible

SHORT = 24
"""Names up to this length need no places to break at."""
BUDGET = 400_000
"""Numbers of boards in the page's data; beyond, only the metric of the page stays, and the page says so."""


def html(folder: Path, metric: str | None = None, title: str | None = None, names: str = "ids", top: int = 50) -> str:
    """The whole page of one output."""
    with opened(folder) as read:
        known = facts(read)
        asked = Asked(known.metric(metric), top, names)
        places = [Place(known, board, read, asked) for board in known.boards]
        boards = [view(place) | {"problems": problems(place), "history": history(place)} for place in places]
        head = _head(known, read, title)
        warned = warnings(known, asked.metric, changed_settings(read, known.run))
    heavy = sum(len(lines) for board in known.boards for lines in board.lines.values()) * 7 > BUDGET
    data = {
        "metric": asked.metric,
        "top": top,
        "boards": [
            _data(known, place, shown, [place.metric] if heavy else list(place.board.lines))
            for place, shown in zip(places, boards, strict=True)
        ],
    }
    style, script = (_file(name) for name in ("style.css", "script.js"))
    return (
        _environment()
        .get_template("template.html")
        .render(
            head=head,
            warned=warned,
            boards=boards,
            metric=asked.metric,
            top=top,
            families=_families(known),
            settings=_flat(known.settings),
            cut=heavy,
            confidence=f"{known.confidence:.0%}",
            style=Markup(style),
            script=Markup(script),
            data=Markup(_json(data)),
            policy=_policy(script, style),
        )
    )


def _head(known: Facts, read: Reader, title: str | None) -> dict[str, Any]:
    """What the numbers rest on."""
    run = known.run
    parts = {"graded": run["graded"], "ungraded": run["ungraded"], "duplicate": run["duplicates"]}
    parts["rejected"] = run["rejected"]
    sums = " + ".join(f"{many:,} {what}" for what, many in parts.items() if many or what == "graded")
    seen = read.rows("SELECT n, sum(problems) FROM problem_histogram WHERE n > 0 GROUP BY n ORDER BY n")
    models = {line.model for board in known.boards for lines in board.lines.values() for line in lines}
    names = list(dict.fromkeys(visible(board.benchmark) for board in known.boards))
    distinct = read.rows("SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)")[
        0
    ][0]
    lake = PurePosixPath(str(run["lake"]).rstrip("/")).name or str(run["lake"])
    return {
        "title": title or f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: leaderboard",
        "when": f"{run['started']:%Y-%m-%d %H:%M} UTC",
        "run": run["run_id"],
        "lake": visible(lake),
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


def _data(known: Facts, place: Place, shown: dict[str, Any], metrics: list[str]) -> dict[str, Any]:
    """What the script switches between: every metric of a board, its models in the order of the page."""
    order = {line.model: i for i, line in enumerate(place.lines)}
    out: dict[str, Any] = {
        "title": shown["title"],
        "models": [known.label[model] for model in order],
        "metrics": {name: _metric(known, place.board, name, order, place.asked.top) for name in metrics},
    }
    if shown["curves"]:
        out["curves"] = shown["curves"]["data"]
    if shown["problems"]:
        out["problems"] = shown["problems"]["data"]
    return out


def _metric(known: Facts, board: Board, name: str, order: dict[str, int], top: int) -> dict[str, Any]:
    lines, scale = board.lines[name], board.scale(name)
    number = millionths if scale.percent else float
    rows: list[Any] = [None] * len(order)
    reasons = {}
    for line in lines:
        if line.model in order:
            ends = [None if x is None else number(x) for x in (line.value, line.lo, line.hi)]
            partly = int(line.scored < line.problems)
            rows[order[line.model]] = [*ends, line.rank, line.rank_lo, line.rank_hi, partly]
            if line.rank is None and line.reason:
                reasons[order[line.model]] = line.reason
    family, k = known.families[name]
    return {
        "family": family,
        "k": k,
        "percent": int(scale.percent),
        "places": scale.places,
        "axis": axis(lines[:top]),
        "whole": axis(lines),
        "verdict": verdict(known, board, name),
        "rows": rows,
        "reasons": reasons,
    }


def _families(known: Facts) -> list[tuple[str, str, str]]:
    """Formula and source of every family on the page."""
    used = {family for family, _ in known.families.values()}
    return [(f.name, f.formula, f.reference) for f in registered.families() if f.name in used]


def _flat(settings: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    out = []
    for key, value in settings.items():
        if isinstance(value, dict):
            out += _flat(value, f"{above}{key}.")
        elif value not in (None, (), [], ""):
            out.append((f"{above}{visible(key)}", visible(json.dumps(value, ensure_ascii=False))))
    return out


def _json(data: dict[str, Any]) -> str:
    """JSON that no HTML parser and no script takes for anything else."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
    for char, escaped in escapes.items():
        text = text.replace(char, escaped)
    return text


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


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["named"] = named
    return environment
