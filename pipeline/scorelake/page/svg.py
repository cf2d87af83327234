"""Charts as SVG text, for the page and for notebooks.

Colours are classes of charts.css. Every number in a chart is also in a table of the page. All text is escaped here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log2, log10
from typing import TypeAlias, TypeVar

from markupsafe import Markup, escape

from scorelake.read.format import shorten, ticks

MARKERS = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "m-3 -3h6v6h-6z",
    "m0 -4.5l4.5 8h-9z",
    "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "m-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z",
    "m-1.5 -5h3v10h-3z",
    "m0 4.5l4.5 -8h-9z",
)
"""Marker shapes as paths around a point. Each coloured line has its own, so that colour is never the only cue."""
Frame: TypeAlias = tuple[tuple[int, int], tuple[int, int, int, int]]
"""Size of an image and its margins."""
Tick: TypeAlias = tuple[float, str]
_T = TypeVar("_T")
WIDE: Frame = ((520, 320), (46, 122, 12, 30))
NARROW: Frame = ((328, 250), (42, 12, 12, 28))
_KINDS = (" dotted", " dashed", "")
_SPARK = Markup(
    '<svg class="spark" viewBox="0 0 62 20" aria-hidden="true"><path d="M{}" class="line"/>'
    '<circle cx="{}" cy="{}" r="2.5" class="dot"/></svg>'
)
MARKED = 40
"""Curves with more points have a marker at the last one only."""


@dataclass(frozen=True)
class Point:
    """A value with its interval, and the share of problems it is based on; 0 for a forecast."""

    x: float
    value: float
    lo: float | None = None
    hi: float | None = None
    coverage: float = 1.0
    x_ends: tuple[float, float] | None = None
    """The interval of x."""

    @property
    def kind(self) -> int:
        """0 for a forecast, 1 where some problems are missing, 2 for all problems."""
        return (self.coverage > 0) + (self.coverage >= 1)


@dataclass(frozen=True)
class Series:
    """A named line, or a single point; colour 0 is grey. Lines without a colour are drawn as one."""

    name: str
    points: Sequence[Point]
    colour: int | None = None
    has_column: bool = True
    """Whether its values are in the table below."""
    outline: Sequence[Point] = ()
    """The simultaneous band: points with its ends as lo and hi."""
    is_hollow: bool = False
    """Whether its markers are not filled."""


@dataclass(frozen=True)
class PlotArea:
    """The plotting rectangle inside an image, and the ranges of its axes."""

    size: tuple[int, int]
    margins: tuple[int, int, int, int]
    """Left, right, top, bottom."""
    x: tuple[float, float]
    y: tuple[float, float]
    ticks: Sequence[Tick] = ()
    """Numbers below the x axis."""
    log: bool = False
    percent: bool = True

    @property
    def is_wide(self) -> bool:
        """Whether there is room for names at the ends of lines."""
        return self.size[0] > 400

    @property
    def frame(self) -> str:
        """Margins, ranges and kinds of the axes, for the script."""
        return " ".join(f"{x:.12g}" for x in (*self.margins, *self.x, *self.y, self.log, self.percent))

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Convert a data point to image coordinates."""
        (width, height), (left, right, top, bottom), (a, b) = self.size, self.margins, self.x
        share = ((log2(x) - log2(a)) / (log2(b) - log2(a)) if self.log else (x - a) / (b - a)) if b > a else 0.5
        down = top + (self.y[1] - y) / (self.y[1] - self.y[0]) * (height - top - bottom)
        return round(left + share * (width - left - right), 1), round(down, 1)

    def path(self, points: Iterable[Point]) -> str:
        """Return the path data of a line through the points."""
        positions = [self.position(p.x, p.value) for p in points]
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in positions) if positions else ""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Build an element; `class_` becomes class, and an underscore becomes a hyphen."""
    written = "".join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    content = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), Markup(written), content, Markup(name))


def image(size: tuple[int, int], title: str, description: str, *children: object, **attributes: object) -> Markup:
    """Build an svg element with a title and a description for screen readers."""
    parts = (element("title", title), element("desc", description), *children)
    return element("svg", *parts, viewBox=f"0 0 {size[0]} {size[1]}", role="img", **attributes)


def value_ticks(values: Iterable[float | None]) -> list[float]:
    """Return round numbers that enclose all values and span an axis, also around a single value."""
    given = [value for value in values if value is not None]
    around = ticks(min(given), max(given)) if given else [0.0, 1.0]
    return around if around[0] < around[-1] else [around[0] - 0.5, around[0] + 0.5]


def axis_ticks(axis: tuple[float, float]) -> list[float]:
    """Return round numbers on an axis, none beyond its ends."""
    return [tick for tick in ticks(*axis) if axis[0] - 1e-9 <= tick <= axis[1] + 1e-9]


def _tick_label(tick: float, percent: bool) -> str:
    return f"{round(tick * 100, 6):g}" if percent else f"{tick:g}"


def _along(value: float, axis: tuple[float, float]) -> str:
    """Return the position on an axis in percent of its length."""
    return f"{round((value - axis[0]) / (axis[1] - axis[0]) * 100, 2):g}"


def whisker(value: float | None, lo: float | None, hi: float | None, axis: tuple[float, float]) -> Markup:
    """Draw a dot with its interval on the axis that all rows share.

    The width is 100 units at any size. A row has few elements because there may be hundreds of rows.
    """
    parts = [element("path", class_="grid", d="".join(f"M{_along(tick, axis)} 0v10" for tick in axis_ticks(axis)))]
    if lo is not None and hi is not None:
        parts.append(element("path", class_="span", d=f"M{_along(lo, axis)} 5H{_along(hi, axis)}"))
    if value is not None:
        parts.append(element("path", class_="dot", d=f"M{_along(value, axis)} 5h0"))
    box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none"}
    return element("svg", *parts, class_="whisker", **box, aria_hidden="true")


def axis_labels(axis: tuple[float, float], percent: bool) -> Markup:
    """Draw the numbers above the whiskers."""
    texts = []
    for tick in axis_ticks(axis):
        anchor = "start" if tick <= axis[0] else "end" if tick >= axis[1] else "middle"
        label = _tick_label(tick, percent)
        texts.append(element("text", label, x=f"{_along(tick, axis)}%", y="12", text_anchor=anchor))
    return element("svg", *texts, class_="ticks", aria_hidden="true")


def sparkline(values: Sequence[float | None]) -> Markup:
    """Draw a small line of a score over runs; empty with fewer than two values."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return Markup("")
    low, span = min(present), max(present) - min(present) or 1.0
    step = 56 / (len(values) - 1)
    points = [(2 + i * step, 16 - 12 * (v - low) / span) for i, v in enumerate(values) if v is not None]
    path, (x, y) = "L".join(f"{x:.1f} {y:.1f}" for x, y in points), points[-1]
    return _SPARK.format(path, round(x, 1), round(y, 1))


def heat_map(rows: Sequence[Sequence[int | None]], names: Sequence[str], title: str) -> Markup:
    """Draw models (rows) by problems (columns); a cell is one of five steps, or None if not attempted."""
    width = max((len(row) for row in rows), default=0)
    paths: dict[int, list[str]] = defaultdict(list)
    for y, row in enumerate(rows):
        x = 0
        for step, cells in groupby(row):  # one path segment per run of equal cells
            length = len(list(cells))
            if step is not None:
                paths[step].append(f"M{x} {y}.5h{length}")
            x += length
    parts = [element("path", d="".join(paths[step]), class_=f"s{step}") for step in sorted(paths)]
    about = f"{len(rows)} models from {names[0]} down, {width} problems from easy to hard." if names else ""
    size = (max(width, 1), max(len(rows), 1))
    return image(size, title, about, *parts, class_="heat", preserveAspectRatio="none", tabindex="0")


def line_chart(
    series: Sequence[Series],
    area: PlotArea,
    title: str,
    intervals: str = "",
    changes: Mapping[float, str] | None = None,
    source: str = "",
    stairs: Sequence[Point] = (),
) -> Markup:
    """Draw lines: coloured ones with markers and names, the others as one grey path.

    A line is dashed where it does not cover all problems, and dotted where it is a forecast. `intervals` are drawn as
    a ribbon ("band") or as "bars". `changes` are marked by vertical lines, `stairs` are the corners of a frontier.
    `source` names the data by which the script adds pinned models.
    """
    parts = _axes(area)
    bottom, top = (area.position(area.x[0], end)[1] for end in area.y)
    for x, change in (changes or {}).items():
        path = f"M{area.position(x, area.y[0])[0]} {top}V{bottom}"
        parts.append(element("path", element("title", change), class_="changed", d=path))
    if grey := "".join(area.path(s.points) for s in series if s.colour is None):
        parts.append(element("path", d=grey, class_="others"))
    if corners := [area.position(p.x, p.value) for p in stairs]:
        path = "".join(f"H{x}V{y}" for x, y in corners[1:])
        parts.append(element("path", class_="line frontier", d=f"M{corners[0][0]} {corners[0][1]}{path}"))
    lines = [s for s in series if s.colour is not None and s.points]
    for i, s in enumerate(lines):
        shift = 4 * (i - (len(lines) - 1) / 2) * (len(s.points) > 1)  # bars of one x must not hide each other
        forecast = [p for p in s.points if p.coverage == 0]
        shape = (
            _bars(area, s.points, shift) if intervals == "bars" else _band(area, s.points if intervals else forecast)
        )
        parts += [element("g", *shape, *_band(area, s.outline, "outline"), class_=f"c{s.colour}")]
    parts += [_coloured_line(area, s) for s in lines]
    parts += _names([s for s in lines if area.is_wide or len(s.points) == 1], area)
    about = "; ".join(
        f"{s.name}: {', '.join(f'{p.value:.3f} at {p.x:.4g}' for p in dict.fromkeys((s.points[0], s.points[-1])))}"
        for s in lines
    )
    kind = {"class_": f"chart {'wide' if area.is_wide else 'narrow'}", "data_frame": area.frame}
    kind |= {"data_source": source} if source else {}
    return image(area.size, title, about or title, *parts, element("g", class_="pins"), **kind)


def markers(shape: int, *points: tuple[float, float]) -> Markup:
    """Draw the same marker at each point."""
    return element("path", d="".join(f"M{x} {y}{MARKERS[shape % len(MARKERS)]}" for x, y in points), class_="mark")


def _band(area: PlotArea, points: Sequence[Point], kind: str = "band") -> list[Markup]:
    """Draw the area between lo and hi, as far as there are intervals."""
    ends = [(p.x, p.lo, p.hi) for p in points if p.lo is not None and p.hi is not None]
    outline = [*(Point(x, hi) for x, _, hi in ends), *(Point(x, lo) for x, lo, _ in reversed(ends))]
    return [element("path", d=f"{area.path(outline)}Z", class_=kind)] if ends else []


def _bars(area: PlotArea, points: Sequence[Point], shift: float) -> list[Markup]:
    path = ""
    for p in points:
        x, y = area.position(p.x, p.value)
        if p.lo is not None and p.hi is not None:
            path += f"M{round(x + shift, 1)} {area.position(p.x, p.lo)[1]}V{area.position(p.x, p.hi)[1]}"
        if p.x_ends:
            left, right = (area.position(max(end, area.x[0]), p.value)[0] for end in p.x_ends)
            path += f"M{left} {y}H{right}"
    return [element("path", class_="bars", d=path)]


def _coloured_line(area: PlotArea, s: Series) -> Markup:
    """Draw a line with its markers; each stretch of another kind continues from the last point before it."""
    parts, start = [], 0
    for kind, stretch in groupby(s.points, key=lambda p: p.kind):
        end = start + len(list(stretch))
        drawn = s.points[max(start - 1, 0) : end] if kind < 2 else s.points[start:end]
        parts += (
            [element("path", d=area.path(drawn), class_=f"line{_KINDS[kind]}")] if len(drawn) > 1 - kind // 2 else []
        )
        start = end
    marked = s.points if len(s.points) <= MARKED else s.points[-1:]
    parts.append(markers((s.colour or 1) - 1, *(area.position(p.x, p.value) for p in marked)))
    return element("g", *parts, class_=f"c{s.colour}{' hollow' if s.is_hollow else ''}")


def _names(lines: Sequence[Series], area: PlotArea) -> Iterator[Markup]:
    """Yield a name beside the end of each line, where it hides no other name or end; none where nothing is free."""
    ends = sorted(((s, *area.position(s.points[-1].x, s.points[-1].value)) for s in lines), key=lambda end: end[2])
    taken = [(x - 5, y - 5, x + 5, y + 5) for _, x, y in ends]
    for s, x, y in ends:
        short = shorten(s.name.rsplit("/", maxsplit=1)[-1], 15)
        width = 7 * len(short)
        # Beside a single point are the bars of its interval.
        shifts = (0, 15, -15, 30, -30, 45, -45) if len(s.points) > 1 else (-11, 13, -26, 28, -41, 43)
        right = [(x + 9, y + 4 + shift, "start", 0) for shift in shifts]
        left = [(x - 9, y + 4 + shift, "end", width) for shift in shifts]
        for at, base, anchor, before in right + left:
            box = (at - before, base - 11, at - before + width, base + 3)
            is_free = not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            is_inside = box[0] >= area.margins[0] and box[1] >= 0 and box[2] <= area.size[0]
            if is_free and is_inside and box[3] <= area.size[1] - area.margins[3] + 8:
                taken.append(box)
                name = {"x": round(at, 1), "y": round(base, 1), "text_anchor": anchor, "class_": f"c{s.colour} name"}
                yield element("text", short, **name)
                break


def thin(points: Sequence[_T], count: int) -> list[_T]:
    """Return at most so many of the points, evenly, the last included."""
    step = max(1, -(-len(points) // count))
    return list(points[::-1][::step][::-1])


def linear_ticks(ends: tuple[float, float]) -> list[Tick]:
    """Return round numbers on an axis; only the ends where these are dates."""
    if ends[0] == ends[1] or ends[1] >= 1e7:
        return [(end, f"{end:.0f}") for end in dict.fromkeys(ends)]
    return [(tick, f"{tick:,g}") for tick in axis_ticks(ends)]


def log_ticks(lo: float, hi: float) -> list[Tick]:
    """Return 1, 2, 5, 10, ... on a log axis, or powers of ten if these are many."""
    marks = [(digit, digit * 10.0**e) for e in range(floor(log10(lo)), ceil(log10(hi)) + 1) for digit in (1, 2, 5)]
    inside = [(digit, x) for digit, x in marks if lo <= x <= hi]
    if len(inside) < 2:
        return [(tick, f"{tick:.3g}") for tick in axis_ticks((lo, hi))]
    return [(x, f"{x:,g}") for digit, x in inside if digit == 1 or len(inside) <= 6]


def _axes(area: PlotArea) -> list[Markup]:
    """Draw grid lines with their numbers, and the numbers below the x axis."""
    (width, height), (left, right, _, bottom) = area.size, area.margins
    parts, lines = [], ""
    for tick in axis_ticks(area.y):
        y = area.position(area.x[0], tick)[1]
        lines += f"M{left} {y}H{width - right}"
        label = _tick_label(tick, area.percent) + "%" * area.percent
        parts.append(element("text", label, x=left - 7, y=y + 4, text_anchor="end"))
    parts.append(element("path", class_="grid", d=lines))
    for value, label in area.ticks:
        x = area.position(value, area.y[0])[0]
        anchor = "middle" if len(label) < 9 else "start" if x == left else "end"
        parts.append(element("text", label, x=x, y=height - bottom + 18, text_anchor=anchor))
    return parts
