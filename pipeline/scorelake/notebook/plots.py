"""The drawings of a board: the page's own shapes and colours, one picture each that shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scorelake.errors import UsageError
from scorelake.notebook.drawing import HEAD, NAMES, PAD, ROW, WIDTH, Drawing, Panel, inset, stacked
from scorelake.page import svg
from scorelake.page.problems import problems
from scorelake.page.sections import Asked, Place, is_step, leaderboard
from scorelake.read.board import facts, opened
from scorelake.read.names import check_names, shorten
from scorelake.read.verdict import title

_SCORE, _RANGE = NAMES + 110, NAMES + 215
"""Where scores and their intervals end."""
_LINE = 18
"""The height of a model in the matrix."""
_STEPS = ("never", "seldom", "sometimes", "mostly", "always")


class Plots:
    """The drawings of a board. Where it has several benchmarks or protocols, they stand below each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def leaderboard(self, metric: str | None = None, benchmark: str | None = None, top: int = 50) -> Drawing:
        """Models by rank, each with its score and its interval on one axis; at most `top` of them.

        >>> board.plot.leaderboard("pass@4")
        Drawing: synth: pass@4
        """
        return self._drawn(_leaderboard, metric, benchmark, top)

    def curve(self, model: str, benchmark: str | None = None) -> Drawing:
        """pass@k and pass^k of a model over k: what sampling can find, and what can be relied on.

        >>> board.plot.curve("model-00")
        Drawing: synth: pass@k and pass^k of model-00
        """
        return self._drawn(lambda place: _curve(place, model), None, benchmark)

    def matrix(self, benchmark: str | None = None) -> Drawing:
        """Who solves which problem: models by rank, problems from easy to hard, five colours from never to always.

        >>> board.plot.matrix()
        Drawing: synth: who solves which problem
        """
        return self._drawn(_matrix, None, benchmark)

    def _drawn(
        self, panel: Callable[[Place], Panel | None], metric: str | None, benchmark: str | None, top: int = 50
    ) -> Drawing:
        with opened(self._folder) as read:
            known = facts(read)
            name = known.metric(metric)
            check_names("benchmark", [board.benchmark for board in known.boards], [benchmark] if benchmark else [])
            places = [
                Place(known, board, read, Asked(name, top))
                for board in known.boards
                if benchmark in (None, board.benchmark) and (metric is None or name in board.lines)
            ]
            panels = [drawn for drawn in map(panel, places) if drawn is not None]
        if not panels:
            raise UsageError("there is nothing to draw", hint="name another benchmark, or a metric that it has")
        return stacked(panels)


def _leaderboard(place: Place) -> Panel:
    told = leaderboard(place)
    rows = [*told["rows"], *told["below"]]
    shown, left = rows[: place.asked.top], len(rows) - place.asked.top
    across = WIDTH - PAD - _RANGE - 20
    parts = [inset(told["axis"], _RANGE + 20, HEAD - 16, across, 14)]
    for i, row in enumerate(shown):
        y = HEAD + i * ROW
        middle = y + ROW / 2 + 4
        parts += [
            svg.tag("text", row["place"], x=PAD + 28, y=middle, text_anchor="end"),
            svg.tag("text", shorten(row["name"], 26), x=PAD + 40, y=middle, class_="ink"),
            svg.tag("text", row["score"] + told["unit"], x=_SCORE, y=middle, text_anchor="end", class_="ink strong"),
            svg.tag("text", row["range"], x=_RANGE, y=middle, text_anchor="end"),
            inset(row["plot"], _RANGE + 20, y, across, ROW),
        ]
    if left > 0:
        parts.append(svg.tag("text", f"{left:,} more models", x=PAD + 40, y=HEAD + len(shown) * ROW + 16))
    return Panel(f"{title(place.board)}: {place.metric}", HEAD + len(shown) * ROW + (22 if left > 0 else 4), parts)


def _curve(place: Place, model: str) -> Panel | None:
    check_names("model", list(place.facts.label), [model])
    sql = """
        SELECT family, k, value, lo, hi, coverage FROM curve
        WHERE benchmark = ? AND protocol = ? AND model = ? AND value IS NOT NULL ORDER BY k
    """
    found: dict[str, list[svg.Point]] = {"pass@k": [], "pass^k": []}
    for family, k, *numbers in place.read.rows(sql, *place.key, model):
        if is_step(k) and family in found:
            found[family].append(svg.Point(k, *numbers))
    most = max((point.x for points in found.values() for point in points), default=0)
    if not most:
        return None
    frame = svg.Frame(WIDTH - 2 * PAD, 320, 46, 100, 12, 30, (1, max(most, 2)), (0, 1), log=True)
    series = [svg.Series(family, points, i + 1) for i, (family, points) in enumerate(found.items()) if points]
    name = f"{title(place.board)}: pass@k and pass^k of {place.label(model)}"
    drawn = svg.curves(series, frame, name, percent=True, named=True)
    return Panel(name, HEAD + frame.height, [inset(drawn, PAD, HEAD - 14, frame.width, frame.height)])


def _matrix(place: Place) -> Panel | None:
    told = problems(place)
    if told is None or not told["names"]:
        return None
    down = len(told["names"]) * _LINE
    behind = svg.tag("rect", x=NAMES, y=HEAD, width=WIDTH - NAMES - PAD, height=down, class_="nothing")
    parts = [behind, inset(told["heat"], NAMES, HEAD, WIDTH - NAMES - PAD, down)]
    for i, name in enumerate(told["names"]):
        parts.append(svg.tag("text", name, x=NAMES - 8, y=HEAD + i * _LINE + 13, text_anchor="end", class_="ink"))
    for i, word in enumerate(_STEPS):
        x, y = NAMES + i * 95, HEAD + down + 18
        parts.append(svg.tag("path", d=f"M{x} {y - 4}h12", class_=f"s{i}", stroke_width=10))
        parts.append(svg.tag("text", word, x=x + 17, y=y))
    return Panel(f"{title(place.board)}: who solves which problem", HEAD + down + 28, parts)
