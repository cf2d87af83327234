"""Build the page as one HTML text. The same tables give the same bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from scorelake import metrics
from scorelake.page.data import encode, script_data
from scorelake.page.history import history
from scorelake.page.pairs import pair_matrix
from scorelake.page.problems import problems
from scorelake.page.sections import BoardView, board_views, budget, curves, leaderboard, subjects
from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.movers import changed_settings, run_before
from scorelake.read.verdict import title as board_title
from scorelake.read.verdict import verdict, warnings
from scorelake.text import escape_controls

SCRIPTS = ("state.js", "table.js", "charts.js", "controls.js")
DATA = Markup("<!-- data -->")
"""Where the data goes. No name can contain this: < is escaped in names."""
_MEDIAN = """
SELECT coalesce(min(n), 0) FROM (
    SELECT n, 2 * sum(sum(problems)) OVER (ORDER BY n) >= sum(sum(problems)) OVER () AS reached
    FROM problem_histogram WHERE n > 0 GROUP BY n
) WHERE reached
"""
_PROBLEMS = "SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)"


def build_page(
    folder: Path,
    metric: str | None = None,
    title: str | None = None,
    problem_names: str = "ids",
    top: int = 50,
    max_bytes: int | None = None,
) -> str:
    """Return the page of an output.

    Optional data for the script is left out where the page would exceed max_bytes; by default that is 260 kB and
    13 kB for every model of a board, at most 3 MB.
    """
    with opened(folder) as reader:
        output = facts(reader)
        chosen = output.metric(metric)
        views = board_views(output, reader, chosen, top=top, problem_names=problem_names)
        boards = [_sections(view) for view in views]
        warned = warnings(output, chosen, changed_settings(reader, run_before(reader, output.run), output.run))
        style = read_file("charts.css") + read_file("style.css")
        # In a function of its own, so that the script adds no global names.
        script = '"use strict";\n(() => {\n' + "\n".join(map(read_file, SCRIPTS)) + "})();\n"
        used = {family for family, _ in output.families.values()}
        options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined}
        environment = Environment(loader=FunctionLoader(read_file), trim_blocks=True, lstrip_blocks=True, **options)
        environment.filters |= {"breakable": breakable, "visible": escape_controls}
        page = environment.get_template("template.html").render(
            head=_head(output, reader, title),
            warnings=[w.text for w in warned if w.grave],
            notes=[w.text for w in warned if not w.grave],
            boards=boards,
            families=[(f.name, f.formula, f.reference) for f in metrics.families() if f.name in used],
            settings=_settings(output, reader),
            confidence=f"{output.confidence:.0%}",
            style=Markup(style),
            script=Markup(script),
            data=DATA,
            policy=_security_policy(script, style),
        )
        if max_bytes is None:
            max_bytes = min(260_000 + 13_000 * sum(len(view.lines) for view in views), 3_000_000)
        data = script_data(views, boards, chosen, max_bytes - len(page.encode()))
        return page.replace(DATA, encode(data), 1)


def _sections(view: BoardView) -> dict[str, Any]:
    return {
        "title": board_title(view.board),
        "metric": view.metric,
        "verdict": verdict(view.facts, view.board, view.metric),
        "board": leaderboard(view),
        "curves": curves(view),
        "pairs": pair_matrix(view),
        "subjects": subjects(view),
        "problems": problems(view),
        "history": history(view),
        "budget": budget(view),
    }


def _head(output: Facts, reader: Reader, title: str | None) -> dict[str, Any]:
    """Return the title, the run and the row accounting."""
    run = output.run
    kinds = {"graded": "graded", "ungraded": "ungraded", "duplicates": "duplicate", "rejected": "rejected"}
    sums = " + ".join(f"{run[key]:,} {kind}" for key, kind in kinds.items() if run[key] or key == "graded")
    names = list(dict.fromkeys(escape_controls(board.benchmark) for board in output.boards))
    lake = PurePosixPath(str(run["lake"]).rstrip("/")).name or str(run["lake"])
    return {
        "title": title or f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}: leaderboard",
        "when": f"{run['started']:%Y-%m-%d %H:%M} UTC",
        "run": run["run_id"],
        "lake": escape_controls(lake),
        "version": run["version"],
        "rows": f"{run['rows_read']:,} attempts = {sums}",
        "models": len(output.label),
        "problems": reader.rows(_PROBLEMS)[0][0],
        "median": reader.rows(_MEDIAN)[0][0],
    }


def _settings(output: Facts, reader: Reader) -> str:
    """Return the settings of the run that have a value, one per line."""
    rows = reader.rows("SELECT key, value FROM setting WHERE settings = ?", output.run["settings"])
    values = {key: json.loads(value) for key, value in rows}
    given = {key: value for key, value in values.items() if value or value in (0, False)}
    return "\n".join(
        escape_controls(f"{key} = {json.dumps(value, ensure_ascii=False)}") for key, value in given.items()
    )


def _security_policy(script: str, style: str) -> str:
    """Return a content security policy: load nothing, run this script and apply this style only."""
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (script, style)]
    own = f"script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def breakable(text: str) -> Markup:
    """Isolate a name from the text around it; a long one may break after / - and _."""
    name = escape(text)
    for char in "/-_" if len(text) > 24 else "":
        name = Markup(name.replace(char, char + Markup("<wbr>")))
    return Markup("<bdi>{}</bdi>").format(name)


def read_file(name: str) -> str:
    """Return a file of this package."""
    return (resources.files("scorelake.page") / name).read_text(encoding="utf-8")
