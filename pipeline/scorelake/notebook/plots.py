"""Charts of a board in the page's shapes and colours: images that show themselves in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

from markupsafe import Markup

from scorelake.errors import StorageError, UsageError
from scorelake.page import read_file, svg
from scorelake.page.details import problems
from scorelake.page.figures import CURVES, curve_figure, curve_points, frontier, series
from scorelake.page.sections import BoardView, Figure, board_costs, board_views, leaderboard
from scorelake.read.board import Facts, Reader, facts, opened
from scorelake.read.format import check_names, shorten
from scorelake.read.sentences import title
from scorelake.storage.disk import replace_text

WIDTH, HEAD, PAD, NAMES = 760, 48, 12, 200
"""Width of a drawing, space for its title, padding, and right end of names."""
_SCORE, _RANGE, _AXIS = NAMES + 110, NAMES + 215, NAMES + 235
"""Right ends of scores and intervals, and the left end of the axis."""
_FRAME: svg.Frame = ((WIDTH - 2 * PAD, 320), (46, 130, 12, 30))
_ROW, _LINE = 26, 18
"""Height of a model in the leaderboard and in the heat map."""
_STEPS = ("never", "seldom", "sometimes", "mostly", "always")
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'
Panel: TypeAlias = tuple[str, int, list[Markup]]
"""A part of a drawing: its title, its height including the title, and its elements."""


@dataclass(frozen=True, repr=False)
class Drawing:
    """A chart: `title` is what it shows, `svg` the image with its style. Jupyter and VS Code display it.

    Examples
    --------
    >>> drawing = board.plot.leaderboard()
    >>> drawing.title
    'synth: pass@1'
    >>> drawing.save("leaderboard.svg")
    """

    title: str
    svg: str

    def save(self, path: str | Path) -> None:
        """Write the image to a file, in a folder that exists."""
        file = Path(path)
        if not file.parent.is_dir():
            raise UsageError("no such folder", where=str(file.parent), hint="create it, or give another path")
        if file.is_dir():
            raise UsageError("is a folder", where=str(file), hint="give a file name, such as leaderboard.svg")
        try:
            replace_text(file, self.svg)
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror}", where=str(file)) from None

    def __repr__(self) -> str:
        return f"Drawing: {self.title}"

    def _repr_html_(self) -> str:
        return self.svg


@contextmanager
def open_facts(
    folder: Path, metric: str | None = None, benchmark: str | None = None
) -> Iterator[tuple[Reader, Facts, str]]:
    """Open a session and yield it with its facts and the metric's canonical name; raise if a name does not exist."""
    with opened(folder) as reader:
        output = facts(reader)
        check_names("benchmark", reader.names("benchmark"), [benchmark])
        yield reader, output, output.metric(metric)


def as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


class Plots:
    """The charts of a board. Several benchmarks or protocols are stacked in one drawing; `benchmark` chooses one.

    Methods raise `UsageError` if a name does not exist or there is nothing to draw.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def leaderboard(self, metric: str | None = None, benchmark: str | None = None, top: int = 50) -> Drawing:
        """Draw models by rank, with scores and intervals on one axis.

        Parameters
        ----------
        metric : str, optional
            By default pass@1, or avg@N without pass/fail.
        top : int
            The largest number of models per board.

        Examples
        --------
        >>> board.plot.leaderboard("pass@4")
        Drawing: synth: pass@4
        """
        return self._draw(_leaderboard, metric, benchmark, top)

    def curve(
        self, models: str | Sequence[str] = (), benchmark: str | None = None, family: str | None = None
    ) -> Drawing:
        """Draw pass@k or pass^k over k, with a band from lo to hi; dashed where problems have fewer than k attempts.

        Parameters
        ----------
        models : str or sequence of str
            Names of up to seven models; by default the first seven of each board.
        family : {"pass@k", "pass^k"}, optional
            By default pass@k, and for a single model both.

        Examples
        --------
        >>> board.plot.curve(["model-00", "model-01"])
        Drawing: synth: pass@k of model-00, model-01
        >>> board.plot.curve("model-00")
        Drawing: synth: pass@k and pass^k of model-00
        """
        names = as_tuple(models)
        if len(names) > len(svg.MARKERS):
            raise UsageError(f"{len(names)} curves in one chart", hint=f"choose up to {len(svg.MARKERS)} models")
        check_names("family", list(CURVES), [family])
        return self._draw(lambda view: _curves(view, names, family), None, benchmark)

    def matrix(self, benchmark: str | None = None) -> Drawing:
        """Draw models by problems as a heat map: models by rank, problems from easy to hard.

        Examples
        --------
        >>> board.plot.matrix()
        Drawing: synth: models by problems
        """
        return self._draw(_matrix, None, benchmark)

    def series(self, runs: str | Sequence[str] = (), benchmark: str | None = None) -> Drawing:
        """Draw the scores of runs over their steps, with a band from lo to hi.

        Parameters
        ----------
        runs : str or sequence of str
            Names of runs; by default all.

        Examples
        --------
        >>> steps.plot.series()
        Drawing: default: pass@1 over steps
        """
        return self._draw(lambda view: _series(view, as_tuple(runs)), None, benchmark)

    def frontier(self, measure: str | None = None, benchmark: str | None = None) -> Drawing:
        """Draw score against cost on a log axis, with both intervals, and the frontier.

        Parameters
        ----------
        measure : str, optional
            By default money, else the first measure.

        Examples
        --------
        >>> paid.plot.frontier()
        Drawing: default: score against usd
        """
        return self._draw(lambda view: _frontier(view, measure), None, benchmark)

    def _draw(
        self, draw: Callable[[BoardView], Panel | None], metric: str | None, benchmark: str | None, top: int = 50
    ) -> Drawing:
        with open_facts(self._folder, metric, benchmark) as (reader, output, name):
            panels = [
                draw(view)
                for view in board_views(output, reader, name, top=top)
                if benchmark in (None, view.board.benchmark) and (metric is None or view.metric == name)
            ]
        if not any(panels):
            raise UsageError("there is nothing to draw", hint="choose another benchmark, or a metric that it has")
        return _stack([panel for panel in panels if panel])


def _leaderboard(view: BoardView) -> Panel:
    table = leaderboard(view)
    rows, scale = [*table["ranked"], *table["unranked"]], view.scale
    shown, omitted = rows[: view.top], len(rows) - view.top
    width = WIDTH - PAD - _AXIS
    parts = [_inset(table["axis"], _AXIS, HEAD - 16, width, 14)]
    for i, row in enumerate(shown):
        y, line = HEAD + i * _ROW, row["line"]
        at, score = {"y": y + _ROW / 2 + 4}, line.score(scale) + scale.unit
        parts += [
            svg.element("text", line.rank_range, x=PAD + 28, **at, text_anchor="end"),
            svg.element("text", shorten(row["name"], 26), x=PAD + 40, **at, class_="ink"),
            svg.element("text", score, x=_SCORE, **at, text_anchor="end", class_="ink strong"),
            svg.element("text", scale.between(line.lo, line.hi), x=_RANGE, **at, text_anchor="end"),
            _inset(row["plot"], _AXIS, y, width, _ROW),
        ]
    end = HEAD + len(shown) * _ROW
    if omitted > 0:
        parts.append(svg.element("text", f"{omitted:,} more models", x=PAD + 40, y=end + 16))
    return f"{title(view.board)}: {view.metric}", end + (22 if omitted > 0 else 4), parts


def _curves(view: BoardView, models: Sequence[str], family: str | None) -> Panel | None:
    check_names("model", list(view.facts.label), models)
    names = models or [line.model for line in view.lines[: len(svg.MARKERS)]]
    families = [family] if family else list(CURVES) if len(names) == 1 else ["pass@k"]
    points = curve_points(view)
    drawn = [key for key in product(families, names) if key in points]
    if not drawn:
        return None
    lines = [
        svg.Series(key[0] if len(names) == 1 else view.label(key[1]), points[key], i)
        for i, key in enumerate(drawn, start=1)
    ]
    labels = list(dict.fromkeys(shorten(view.label(model), 26) for _, model in drawn))
    of = ", ".join(labels) if len(labels) <= 3 else f"{len(labels)} models"
    name = f"{title(view.board)}: {' and '.join(families)} of {of}"
    return _framed(name, curve_figure(lines, name, intervals="band"))


def _series(view: BoardView, runs: Sequence[str]) -> Panel | None:
    check_names("series", view.reader.names("model", "series"), runs)
    sections = series(view, runs)
    return _framed(f"{title(view.board)}: {view.metric} over steps", sections[0].figures[0]) if sections else None


def _frontier(view: BoardView, measure: str | None) -> Panel | None:
    by_measure = board_costs(view)
    check_names("measure", sorted(by_measure), [measure])
    chosen = measure or next(iter(by_measure), "")
    name = f"{title(view.board)}: score against {chosen}"
    return _framed(name, frontier(view, by_measure[chosen])) if chosen else None


def _framed(name: str, figure: Figure) -> Panel:
    return name, HEAD + _FRAME[0][1], [_inset(figure.draw(_FRAME), PAD, HEAD - 14, *_FRAME[0])]


def _matrix(view: BoardView) -> Panel | None:
    section = problems(view)
    if section is None or not section["names"]:
        return None
    width, height = WIDTH - NAMES - PAD, len(section["names"]) * _LINE
    background = svg.element("rect", x=NAMES, y=HEAD, width=width, height=height, class_="empty")
    parts = [background, _inset(section["heat_map"], NAMES, HEAD, width, height)]
    for i, name in enumerate(section["names"]):
        y = HEAD + i * _LINE + 13
        parts.append(svg.element("text", name, x=NAMES - 8, y=y, text_anchor="end", class_="ink"))
    for i, step in enumerate(_STEPS):
        x, y = NAMES + i * 95, HEAD + height + 18
        parts.append(svg.element("path", d=f"M{x} {y - 4}h12", class_=f"s{i}", stroke_width=10))
        parts.append(svg.element("text", step, x=x + 17, y=y))
    return f"{title(view.board)}: models by problems", HEAD + height + 28, parts


def _stack(panels: Sequence[Panel]) -> Drawing:
    """Put panels below each other in one image."""
    name, height = "; ".join(title for title, _, _ in panels), sum(height for _, height, _ in panels) + 2 * PAD
    background = svg.element("rect", width=WIDTH, height=height, class_="paper")
    parts, y = [svg.element("style", Markup(chart_style())), background], PAD
    for panel_title, panel_height, panel_parts in panels:
        head = svg.element("text", panel_title, x=PAD, y=18, class_="head")
        parts.append(_inset(Markup("").join([head, *panel_parts]), 0, y, WIDTH, panel_height))
        y += panel_height
    look = {"class_": "scorelake", "style": f"max-width: 100%; height: auto; font-family: {_FONT}"}
    size = {"width": WIDTH, "height": height, "xmlns": "http://www.w3.org/2000/svg"}
    return Drawing(name, str(svg.image((WIDTH, height), name, name, *parts, **look, **size)))


def _inset(chart: Markup, x: float, y: float, width: float, height: float) -> Markup:
    return svg.element("svg", chart, x=x, y=y, width=width, height=height)


def chart_style() -> str:
    """Return the page's style of charts, restricted to our own drawings."""
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", read_file("charts.css").replace(":root", ""))
    restricted = (re.sub(r"[^,]+", lambda name: f".scorelake {name[0].strip()}".strip(), names) for names, _ in rules)
    return "".join(f"{names}{{{body.strip()}}}" for names, (_, body) in zip(restricted, rules, strict=True))
