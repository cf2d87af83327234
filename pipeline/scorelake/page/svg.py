"""Charts as SVG text, for the page and for notebooks.

Colours are classes of charts.css. Every number in a chart is also in a table of the page. All text is escaped here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log2, log10
from typing import TypeAlias

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
MARKED = 40
"""Curves with more points have a marker at the last one only."""
BINS = 20
"""Columns of the difficulty histogram."""


@dataclass(frozen=True)
class Point:
    """A value with its interval, and the share of problems it is based on."""

    x: float
    value: float
    lo: float | None = None
    hi: float | None = None
    coverage: float = 1.0


@dataclass(frozen=True)
class Series:
    """A named line; without a colour it is drawn in grey."""

    name: str
    points: Sequence[Point]
    colour: int | None = None


@dataclass(frozen=True)
class Place:
    """A model in a chart of score against cost: both with the ends of their intervals."""

    name: str
    cost: tuple[float, ...]
    score: tuple[float, ...]
    front_by_value: bool
    on_front: bool

    def text(self) -> str:
        return f"{self.name}: {self.score[0]:.3f} at {self.cost[0]:.4g}"


@dataclass(frozen=True)
class PlotArea:
    """The plotting rectangle inside an image, and the ranges of its axes."""

    size: tuple[int, int]
    margins: tuple[int, int, int, int]
    """Left, right, top, bottom."""
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Convert a data point to image coordinates."""
        (width, height), (left, right, top, bottom), (a, b) = self.size, self.margins, self.x
        share = ((log2(x) - log2(a)) / (log2(b) - log2(a)) if self.log else (x - a) / (b - a)) if b > a else 0.5
        down = top + (self.y[1] - y) / (self.y[1] - self.y[0]) * (height - top - bottom)
        return round(left + share * (width - left - right), 1), round(down, 1)

    def distance(self, a: float, b: float) -> float:
        """Return how far two values of x are apart in the image."""
        return abs(self.position(b, self.y[0])[0] - self.position(a, self.y[0])[0])

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
    line = element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_="line")
    last = element("circle", cx=f"{points[-1][0]:.1f}", cy=f"{points[-1][1]:.1f}", r="2.5", class_="dot")
    return element("svg", line, last, class_="spark", viewBox="0 0 62 20", aria_hidden="true")


def share_bar(share: float, title: str) -> Markup:
    """Draw a bar of two parts; the first has the given share."""
    full = {"x": "0", "y": "0", "height": "100%"}
    parts = [
        element("title", title),
        element("rect", class_="part-b", width="100%", **full),
        element("rect", class_="part-a", width=f"{round(100 * share, 1):g}%", **full),
    ]
    return element("svg", *parts, class_="stack", role="img")


def bin_difficulties(difficulties: Iterable[float]) -> list[int]:
    """Count the problems in each bin of the difficulty scale."""
    counts = Counter(min(int(difficulty * BINS), BINS - 1) for difficulty in difficulties)
    return [counts[i] for i in range(BINS)]


def describe_bins(bins: Sequence[int]) -> str:
    """List the bins that are not empty."""
    filled = ", ".join(f"{count:,} from {i / BINS:.2f}" for i, count in enumerate(bins) if count)
    return f"Problems by difficulty: {filled}."


def difficulty_histogram(bins: Sequence[int], title: str) -> Markup:
    """Draw one column per bin, from problems that all attempts solve to problems that none solves."""
    area = PlotArea((600, 126), (0, 0, 8, 30), (0, BINS), (0, max([*bins, 1])))
    parts = []
    for i, count in enumerate(bins):
        x, y = area.position(i, count)
        tip = element("title", f"{count:,} problems with difficulty {i / BINS:.2f} to {(i + 1) / BINS:.2f}")
        parts.append(element("rect", tip, class_="bin", x=x + 1, y=y, width=28, height=round(96 - y, 1)))
    for label, x, anchor in (("0: all attempts pass", 0, "start"), ("1: no attempt passes", 600, "end")):
        parts.append(element("text", label, x=x, y=118, text_anchor=anchor))
    return image(area.size, title, describe_bins(bins), *parts, class_="chart histogram")


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


def curve_chart(
    series: Sequence[Series],
    area: PlotArea,
    title: str,
    labelled: bool,
    bands: bool = False,
    percent: bool = True,
    x_ticks: Sequence[Tick] = (),
) -> Markup:
    """Draw curves over k, or over other ticks: coloured ones with markers and names, the others as one grey path.

    A curve is dashed where it does not cover all problems, and ends where there is no value. With `bands`, coloured
    curves have a band from lo to hi.
    """
    x_ticks = x_ticks or [(2**i, str(2**i) if i else "k = 1") for i in range(int(log2(area.x[1])) + 1)]
    grey = "".join(area.path(s.points) for s in series if s.colour is None)
    parts = [element("path", d=grey, class_="others")] if grey else []
    labels = _label_heights([s for s in series if s.colour is not None and s.points], area)
    parts += [_band(area, s) for s, _ in labels if bands]
    for s, y in labels:
        parts.append(_coloured_line(area, s))
        if labelled:
            short = shorten(s.name.rsplit("/", maxsplit=1)[-1], 15)
            x = area.position(s.points[-1].x, 0)[0]
            parts.append(element("text", short, x=x + 9, y=y + 4, class_=f"c{s.colour} name"))
    about = "; ".join(
        f"{s.name}: {s.points[0].value:.3f} at {s.points[0].x:g}, {s.points[-1].value:.3f} at {s.points[-1].x:g}"
        for s, _ in labels
    )
    parts = [*_axes(area, axis_ticks(area.y), percent, x_ticks), *parts, element("g", class_="pins")]
    # For the script, which adds pinned models.
    frame = " ".join(f"{x:g}" for x in (*area.margins, area.x[1], *area.y))
    size = "wide" if labelled else "narrow"
    return image(area.size, title, about or title, *parts, class_=f"chart {size}", data_frame=frame)


def markers(shape: int, *points: tuple[float, float]) -> Markup:
    """Draw the same marker at each point."""
    return element("path", d="".join(f"M{x} {y}{MARKERS[shape % len(MARKERS)]}" for x, y in points), class_="mark")


def _band(area: PlotArea, s: Series) -> Markup:
    """Draw the area between lo and hi, as far as there are intervals."""
    ends = [(p.x, p.lo, p.hi) for p in s.points if p.lo is not None and p.hi is not None]
    outline = [*(Point(x, hi) for x, _, hi in ends), *(Point(x, lo) for x, lo, _ in reversed(ends))]
    return element(
        "g", element("path", d=f"{area.path(outline)}Z" * bool(ends), class_="band"), class_=f"c{s.colour}"
    )


def _coloured_line(area: PlotArea, s: Series) -> Markup:
    full = [p for p in s.points if p.coverage >= 1]
    partial = s.points[max(len(full) - 1, 0) :] if len(full) < len(s.points) else []
    parts = [element("path", d=area.path(full), class_="line")] if full else []
    parts += [element("path", d=area.path(partial), class_="line dashed")] if len(partial) > 1 else []
    marked = s.points if len(s.points) <= MARKED else s.points[-1:]
    parts.append(markers((s.colour or 1) - 1, *(area.position(p.x, p.value) for p in marked)))
    return element("g", *parts, class_=f"c{s.colour}")


def _label_heights(series: Sequence[Series], area: PlotArea) -> list[tuple[Series, float]]:
    """Return the curves with the heights of their names, which must not overlap."""
    ends = sorted(((s, area.position(1, s.points[-1].value)[1]) for s in series), key=lambda end: end[1])
    out: list[tuple[Series, float]] = []
    for s, y in ends:
        out.append((s, max(y, out[-1][1] + 15) if out else y))
    excess = max(out[-1][1] - (area.size[1] - area.margins[3]), 0) if out else 0
    return [(s, y - excess) for s, y in out]


def log_ticks(lo: float, hi: float) -> list[Tick]:
    """Return 1, 2, 5, 10, ... on a log axis, or powers of ten if these are many."""
    marks = [(digit, digit * 10.0**e) for e in range(floor(log10(lo)), ceil(log10(hi)) + 1) for digit in (1, 2, 5)]
    inside = [(digit, x) for digit, x in marks if lo <= x <= hi]
    return [(x, f"{x:,g}") for digit, x in inside if digit == 1 or len(inside) <= 6]


def frontier_chart(places: Sequence[Place], frame: Frame, title: str) -> Markup:
    """Draw score against cost on a log axis, with both intervals, and the frontier as a staircase."""
    costs = [x for place in places for x in place.cost if x > 0]
    y_ticks = value_ticks(x for place in places for x in place.score)
    area = PlotArea(*frame, (min(costs) / 1.2, max(costs) * 1.2), (y_ticks[0], y_ticks[-1]), log=True)
    at = [area.position(place.cost[0], place.score[0]) for place in places]
    front = sorted(xy for xy, place in zip(at, places, strict=True) if place.front_by_value)
    stairs = "".join(f"{'H' if i else f'M{x} {y}H'}{x}V{y}" for i, (x, y) in enumerate(front))
    parts = [*_axes(area, axis_ticks(area.y), True, log_ticks(*area.x))]
    parts += [element("path", class_="line frontier", d=stairs)] if front else []
    for (x, y), place in zip(at, places, strict=True):
        left, bottom = area.position(max(place.cost[1], area.x[0]), place.score[1])
        right, top = area.position(place.cost[2], place.score[2])
        bars = element("path", class_="bars", d=f"M{left} {y}H{right}M{x} {bottom}V{top}")
        shape, colour = (0, "c1") if place.on_front else (1, "c7")
        parts.append(element("g", element("title", place.text()), bars, markers(shape, (x, y)), class_=colour))
    parts += _labels([place.name for place in places], at, area)
    about = "; ".join(place.text() for place in places)
    return image(area.size, title, about, *parts, class_=f"chart {'wide' if frame[0][0] > 400 else 'narrow'}")


def _labels(names: Sequence[str], at: Sequence[tuple[float, float]], area: PlotArea) -> Iterator[Markup]:
    """Yield a name beside each point, where it hides no other name or point; there is none where nothing is free."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at]
    for name, (x, y) in zip(names, at, strict=True):
        short = shorten(name.rsplit("/", maxsplit=1)[-1], 15)
        width = 7 * len(short)
        places = (
            (x + 9, y + 4, "start", 0),
            (x - 9, y + 4, "end", width),
            (x, y - 10, "middle", width / 2),
            (x, y + 19, "middle", width / 2),
        )
        for left, base, anchor, shift in places:
            box = (left - shift, base - 11, left - shift + width, base + 3)
            is_free = not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            if (
                is_free
                and box[0] >= area.margins[0]
                and box[2] <= area.size[0]
                and box[3] <= area.size[1] - area.margins[3]
            ):
                taken.append(box)
                yield element("text", short, x=round(left, 1), y=round(base, 1), text_anchor=anchor)
                break


def _axes(area: PlotArea, y_ticks: Iterable[float], percent: bool, x_ticks: Iterable[Tick] = ()) -> list[Markup]:
    """Draw grid lines with their numbers, and the numbers below the x axis."""
    (width, height), (left, right, _, bottom) = area.size, area.margins
    parts, lines = [], ""
    for tick in y_ticks:
        y = area.position(area.x[0], tick)[1]
        lines += f"M{left} {y}H{width - right}"
        label = _tick_label(tick, percent) + "%" * percent
        parts.append(element("text", label, x=left - 7, y=y + 4, text_anchor="end"))
    parts.append(element("path", class_="grid", d=lines))
    for value, label in x_ticks:
        x = area.position(value, area.y[0])[0]
        parts.append(element("text", label, x=x, y=height - bottom + 18, text_anchor="middle"))
    return parts


def history_chart(
    series: Sequence[Series], runs: Sequence[str], changes: Mapping[int, str], percent: bool, title: str
) -> Markup:
    """Draw scores over runs with their intervals, and a dashed line where problems or settings changed."""
    y_ticks = value_ticks(v for s in series for p in s.points for v in (p.value, p.lo, p.hi))
    area = PlotArea((640, 260), (46, 20, 12, 30), (0, max(len(runs) - 1, 1)), (y_ticks[0], y_ticks[-1]))
    parts = _axes(area, y_ticks, percent)
    for i, change in changes.items():
        tip = element("title", f"{runs[i]}: {change}")
        parts.append(element("path", tip, class_="changed", d=f"M{area.position(i, y_ticks[0])[0]} 12V230"))
    for i, s in enumerate(series):
        shift = 4 * (i - (len(series) - 1) / 2)  # intervals of one run must not hide each other
        bars = ""
        for p in s.points:
            if p.lo is not None and p.hi is not None:
                (x, low), (_, high) = area.position(p.x, p.lo), area.position(p.x, p.hi)
                bars += f"M{round(x + shift, 1)} {low}V{high}"
        parts.append(element("g", element("path", class_="bars", d=bars), class_=f"c{s.colour}"))
        parts.append(_coloured_line(area, s))
    for i, anchor in ((0, "start"), (len(runs) - 1, "end")):
        parts.append(element("text", runs[i], x=area.position(i, y_ticks[0])[0], y=252, text_anchor=anchor))
    about = "; ".join(f"{s.name} from {s.points[0].value:.3f} to {s.points[-1].value:.3f}" for s in series)
    return image(area.size, title, f"{about}.", *parts, class_="chart history-chart")
