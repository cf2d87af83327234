"""Build the page as one HTML text with the data of its script. The same tables give the same bytes.

A page must stay small enough for mail. Required data comes first, then optional parts in order of priority as long as
they fit. The script lists the parts that did not fit. Without the script none of this is needed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from scorelake import metrics
from scorelake.page import read_file, svg
from scorelake.page.details import packed_pairs, pair_matrix, problems
from scorelake.page.figures import costs, curves, history, series
from scorelake.page.sections import (
    MANY,
    MATRIX,
    QUERIES,
    BoardView,
    board_views,
    budget,
    leaderboard,
    query_section,
    subjects,
)
from scorelake.read.board import BoardRows, Facts, OverallRows, Reader, board_rows, facts, opened, overall_rows
from scorelake.read.format import labels
from scorelake.read.report import warnings
from scorelake.read.sentences import RANK_RANGE, verdict
from scorelake.read.sentences import title as board_title
from scorelake.text import escape_controls, protocol_label

SCRIPTS = ("table.js", "charts.js", "controls.js")
DATA = Markup("<!-- data -->")
"""Where the data goes. No name can contain this: < is escaped in names."""
_MEDIAN = """
SELECT coalesce(min(n), 0) FROM (
    SELECT n, 2 * sum(sum(problems)) OVER (ORDER BY n) >= sum(sum(problems)) OVER () AS reached
    FROM problem_histogram WHERE n > 0 GROUP BY n
) WHERE reached
"""
_SUBJECT_ROWS = "SELECT count(*) FROM subject_summary WHERE benchmark = ? AND protocol = ?"
_PROBLEMS = "SELECT count(*) FROM (SELECT DISTINCT benchmark, subject, problem_id FROM problem_counts)"
Json = dict[str, Any]
Entry = tuple[Json, str, Any]
"""What to add: the dictionary, the key and the value."""
OPTIONAL = (
    *("scores by subject", "other metrics", "pairs of all models", "curves and histories of all models"),
    *("the problems of all models", "other metrics by subject"),
)
"""Data that the page can do without, by priority."""
MAX_SUBJECT_ROWS = 60_000
"""With more rows by subject and metric, those of other metrics are not read: they do not fit."""
SECTIONS: dict[str, Callable[[BoardView], Any]] = {
    **{"board": leaderboard, "curves": curves, "pairs": pair_matrix, "subjects": subjects, "problems": problems},
    **{"history": history, "series": series, "costs": costs, "budget": budget},
    **{kind: partial(query_section, kind) for kind in QUERIES},
}
"""What the template shows of a board. Those of `Section` are drawn alike, the others have their own markup."""


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
        grave, notes = warnings(reader, output, chosen)
        style = read_file("charts.css") + read_file("style.css")
        # In a function of its own, so that the script adds no global names.
        script = '"use strict";\n(() => {\n' + "\n".join(map(read_file, SCRIPTS)) + "})();\n"
        used = {family for family, _ in output.families.values()}
        options: dict[str, Any] = {"autoescape": True, "undefined": StrictUndefined}
        environment = Environment(loader=FunctionLoader(read_file), trim_blocks=True, lstrip_blocks=True, **options)
        environment.filters |= {"breakable": breakable, "visible": escape_controls}
        page = environment.get_template("template.html").render(
            head=_head(output, reader, views, title),
            warnings=grave,
            notes=notes,
            overall=[_overall(each, views) for each in overall_rows(reader, output.boards, chosen)],
            marker=lambda colour: svg.markers(colour - 1, (7, 7)),
            metric=chosen,
            rank_range=RANK_RANGE,
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


def _sections(view: BoardView) -> Json:
    out = {name: section(view) for name, section in SECTIONS.items()}
    return out | {
        "title": board_title(view.board),
        "metric": view.metric,
        "verdict": verdict(view.facts, view.board, view.metric),
    }


def _overall(overall: OverallRows, views: list[BoardView]) -> Json:
    """Return a table of models by benchmarks, whose heads link to the boards; missing cells have the reason."""
    boards = {}
    for i, view in reversed(list(enumerate(views))):
        if overall.label in ("", protocol_label(view.board.protocol)):
            name = escape_controls(view.board.benchmark)
            boards[name] = boards[f"{name} ({view.metric})"] = i
    head, texts = overall.cells(views[0].top)
    rows: list[list[Any]] = []
    for (line, values), row in zip(overall.lines, texts, strict=False):
        reasons = [
            (_reason(line.model, views[boards[name]]),) if value is None and name in boards else text
            for name, value, text in zip(head[-len(values) :], values, row[-len(values) :], strict=True)
        ]
        rows.append([row[0], views[0].label(line.model), *row[2 : -len(values)], *reasons])
    return {
        "label": overall.label,
        "head": [(name, boards.get(name)) for name in head],
        "rows": rows,
        "omitted": len(overall.lines) - len(rows),
        "notes": overall.notes if len(overall.notes) == 1 else [],
    }


def _reason(model: str, view: BoardView) -> str:
    """Return why a model has no value on a board."""
    reasons = {line.model: line.reason or "no value" for line in view.lines}
    return escape_controls(reasons.get(model, "not attempted"))


def _head(output: Facts, reader: Reader, views: list[BoardView], title: str | None) -> Json:
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
        "models": len({line.model for view in views for line in view.lines}),
        "problems": reader.rows(_PROBLEMS)[0][0],
        "median": reader.rows(_MEDIAN)[0][0],
    }


def _settings(output: Facts, reader: Reader) -> str:
    """Return the settings of the run that have a value, one per line."""
    rows = reader.rows("SELECT key, value FROM setting WHERE settings = ?", output.run["settings"])
    given = {key: json.loads(value) for key, value in rows if value not in ('""', "null", "[]", "{}")}
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


def encode(data: Any) -> str:
    """Encode as JSON that no HTML parser takes for markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def script_data(views: list[BoardView], sections: list[Json], metric: str, max_bytes: int) -> Json:
    """Return the data for the script: what the first view needs, and optional parts as long as they fit."""
    names = labels(view.board.benchmark for view in views)
    optional: dict[str, list[Entry]] = {name: [] for name in OPTIONAL}
    boards, is_short = [], False
    for view, parts in zip(views, sections, strict=True):
        overall, problem_data = _scores(view, view.board), parts["problems"] and parts["problems"]["data"]
        points = {f.source: f.points for section in parts["curves"] + parts["history"] for f in section.figures}
        board = {
            "benchmark": names[view.board.benchmark],
            "protocol": view.board.label,
            "models": [view.label(line.model) for line in view.lines],
            "overall": {"name": "", **overall},
            "subjects": [],
            "pairs": {},
            "points": {source: of_models[:MATRIX] for source, of_models in points.items()},
            "problems": problem_data and problem_data | {"cells": problem_data["cells"][:MATRIX]},
        }
        boards.append(board)
        is_large = view.rows(_SUBJECT_ROWS)[0][0] > MAX_SUBJECT_ROWS
        subjects = board_rows(view.reader, by_subject=True, metric=view.metric if is_large else None, of=view.board)
        subjects = subjects if len(subjects) > 1 else []
        is_short |= is_large
        labelled = labels(str(subject.part) for subject in subjects)
        scores = [{"name": labelled[str(subject.part)], **_scores(view, subject)} for subject in subjects]
        by_subject, others, pairs, curves, cells, others_by_subject = optional.values()
        by_subject.append((board, "subjects", scores))
        others += [
            (overall["metrics"], n, _metric(view, view.board, n)) for n in view.board.lines if n != view.metric
        ]
        pairs.append((board, "pairs", packed_pairs(view)))
        curves += [(board["points"], *item) for item in points.items()]
        cells += [(board["problems"], "cells", problem_data["cells"])] if problem_data else []
        for subject, its_scores in zip(subjects, scores, strict=True):
            others_by_subject += [(its_scores["metrics"], n, _metric(view, subject, n)) for n in subject.lines]
    data: Json = {"metric": metric, "top": views[0].top, "matrix": MATRIX, "many": MANY, "markers": svg.MARKERS}
    data |= {"omitted": [], "boards": boards}
    left = max_bytes - len(encode(data).encode())
    for name, entries in optional.items():
        size = sum(len(encode({key: value}).encode()) for _, key, value in entries)
        if size > left or (is_short and name == OPTIONAL[-1]):
            data["omitted"].append(name)
            continue
        left -= size
        for target, key, value in entries:
            target[key] = value
    return data


def _scores(view: BoardView, board: BoardRows) -> Json:
    """Return a board, or one subject of it, at the metric of the page."""
    metric = view.metric if view.metric in board.lines else next(iter(board.lines))
    lines = {line.model: [line.problems, line.problems_of_benchmark, line.attempts] for line in board.lines[metric]}
    counts = [lines.get(line.model, 0) for line in view.lines]
    return {"counts": counts, "metrics": {metric: _metric(view, board, metric)}}


def _metric(view: BoardView, board: BoardRows, name: str) -> Json:
    """Return a board at one metric: of each model value, lo, hi, its ranks, and 1 where problems are left out."""
    scale, by_model = board.scale(name), {line.model: line for line in board.lines[name]}
    lines = [by_model.get(line.model) for line in view.lines]
    family, k = view.facts.families[name]
    rows = [
        line
        and [
            *scale.pack(line.value, line.lo, line.hi),
            line.rank,
            line.rank_lo,
            line.rank_hi,
            int(line.problems_scored < line.problems),
        ]
        for line in lines
    ]
    return {
        **{"family": family, "k": k, "percent": int(scale.percent), "places": scale.places},
        "verdict": verdict(view.facts, board, name),
        "rows": [row or 0 for row in rows],
        "reasons": {i: line.reason for i, line in enumerate(lines) if line and line.rank is None and line.reason},
    }
