"""Drawings as SVG text, from plain data: a page or a notebook sets them as they are.

Colours are classes of the page's style; every number that is drawn stands in a table beside the drawing, too. Texts
are escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

from markupsafe import Markup, escape

from scorelake.read.numbers import ticks

SHAPES = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "m-3 -3h6v6h-6z",
    "m0 -4.5l4.5 8h-9z",
    "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "m-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z",
    "m-1.5 -5h3v10h-3z",
    "m0 4.5l4.5 -8h-9z",
)
"""A shape for every coloured line, drawn around a place, so that colour is never alone."""


@dataclass(frozen=True)
class Point:
    """One value on a curve, and the share of problems it is of."""

    x: float
    value: float
    lo: float | None = None
    hi: float | None = None
    coverage: float = 1.0


@dataclass(frozen=True)
class Series:
    """A named curve; without a colour it is one of the grey others."""

    name: str
    points: Sequence[Point]
    colour: int | None = None


@dataclass(frozen=True)
class Frame:
    """Where a plot lies inside its drawing, and what its axes mean."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False

    @property
    def margins(self) -> tuple[int, int, int, int]:
        return self.left, self.right, self.top, self.bottom

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a value in the drawing."""
        a, b = self.x
        share = ((log2(x) - log2(a)) / (log2(b) - log2(a)) if self.log else (x - a) / (b - a)) if b > a else 0.5
        across = self.left + share * (self.width - self.left - self.right)
        down = self.top + (self.y[1] - y) / (self.y[1] - self.y[0]) * (self.height - self.top - self.bottom)
        return round(across, 1), round(down, 1)


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` is class, an underscore a hyphen."""
    told = "".join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), Markup(told), inside, Markup(name))


def drawing(frame: Frame, title: str, about: str, *children: object, **attributes: object) -> Markup:
    """An image with a name and a description for those who do not see it."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", about),
        *children,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        **attributes,
    )


def along(value: float, axis: tuple[float, float]) -> str:
    """A place on an axis in percent of its length."""
    return f"{round((value - axis[0]) / (axis[1] - axis[0]) * 100, 2):g}"


def on_axis(axis: tuple[float, float]) -> list[float]:
    """Round numbers on an axis, none beyond its ends."""
    return [tick for tick in ticks(*axis) if axis[0] - 1e-9 <= tick <= axis[1] + 1e-9]


def whisker(value: float | None, lo: float | None, hi: float | None, axis: tuple[float, float]) -> Markup:
    """A dot with its interval on the axis that all rows share; the numbers stand beside it.

    Its width is a hundred units whatever its size: a row has few elements, for there may be hundreds of rows.
    """
    marks = [tag("path", class_="grid", d="".join(f"M{along(t, axis)} 0v10" for t in on_axis(axis)))]
    if lo is not None and hi is not None:
        marks.append(tag("path", class_="span", d=f"M{along(lo, axis)} 5H{along(hi, axis)}"))
    if value is not None:
        marks.append(tag("path", class_="dot", d=f"M{along(value, axis)} 5h0"))
    return tag("svg", *marks, class_="whisker", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true")


def axis_labels(axis: tuple[float, float], percent: bool) -> Markup:
    """The numbers above the whiskers."""
    texts = []
    for tick in on_axis(axis):
        anchor = "start" if tick <= axis[0] else "end" if tick >= axis[1] else "middle"
        words = f"{round(tick * 100, 6):g}" if percent else f"{tick:g}"
        texts.append(tag("text", words, x=f"{along(tick, axis)}%", y="12", text_anchor=anchor))
    return tag("svg", *texts, class_="ticks", aria_hidden="true")


def sparkline(values: Sequence[float | None]) -> Markup:
    """A small line of a score over runs; its numbers stand in the history."""
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return Markup("")
    low, high = min(known), max(known)
    span = high - low or 1.0
    step = 56 / max(len(values) - 1, 1)
    at = [(2 + i * step, 16 - 12 * (v - low) / span) for i, v in enumerate(values) if v is not None]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    last = tag("circle", cx=f"{at[-1][0]:.1f}", cy=f"{at[-1][1]:.1f}", r="2.5", class_="dot")
    return tag(
        "svg", tag("path", d=path, class_="line"), last, class_="spark", viewBox="0 0 62 20", aria_hidden="true"
    )


def stack(part: float, caption: str) -> Markup:
    """One bar of two parts: the first so large a share."""
    cut = f"{round(100 * part, 1):g}%"
    return tag(
        "svg",
        tag("title", caption),
        tag("rect", class_="part-b", x="0", y="0", width="100%", height="100%"),
        tag("rect", class_="part-a", x="0", y="0", width=cut, height="100%"),
        class_="stack",
        role="img",
    )


def strip(difficulties: Sequence[float], title: str) -> Markup:
    """How many problems are how hard: one column per twentieth of the scale, from solved by all to solved by none."""
    bins = binned(difficulties)
    most = max([*bins, 1])
    frame = Frame(600, 126, 0, 0, 8, 30, (0, 20), (0, most))
    bars = []
    for i, many in enumerate(bins):
        x, y = frame.at(i, many)
        about = tag("title", f"{many:,} problems with difficulty {i / 20:.2f} to {(i + 1) / 20:.2f}")
        bars.append(tag("rect", about, class_="bin", x=x + 1, y=y, width=28, height=round(96 - y, 1)))
    ends = [("0 easy: all attempts pass", 0, "start"), ("1 hard: none does", 600, "end")]
    texts = [tag("text", words, x=x, y=118, text_anchor=anchor) for words, x, anchor in ends]
    return drawing(frame, title, bins_told(bins), *bars, *texts, class_="chart strip")


def binned(difficulties: Sequence[float]) -> list[int]:
    """How many problems there are in each twentieth of the scale."""
    bins = [0] * 20
    for d in difficulties:
        bins[min(int(d * 20), 19)] += 1
    return bins


def bins_told(bins: Sequence[int]) -> str:
    told = ", ".join(f"{many:,} from {i / 20:.2f}" for i, many in enumerate(bins) if many)
    return f"Problems per step of difficulty: {told}."


def heat(rows: Sequence[Sequence[int | None]], names: Sequence[str], title: str) -> Markup:
    """Models (rows) by problems (columns); each cell one of five steps, or None where nothing was attempted."""
    wide = max((len(row) for row in rows), default=0)
    frame = Frame(max(wide, 1), max(len(rows), 1), 0, 0, 0, 0, (0, 1), (0, 1))
    paths: dict[int, list[str]] = {}
    for y, row in enumerate(rows):
        start = 0
        for x in range(1, len(row) + 1):
            if x == len(row) or row[x] != row[start]:
                step = row[start]
                if step is not None:
                    paths.setdefault(step, []).append(f"M{start} {y}.5h{x - start}")
                start = x
    drawn = [tag("path", d="".join(paths[step]), class_=f"s{step}") for step in sorted(paths)]
    about = f"{len(rows)} models from {names[0]} down, {wide} problems from easy to hard." if names else ""
    return drawing(frame, title, about, *drawn, class_="heat", preserveAspectRatio="none", tabindex="0")


def curves(series: Sequence[Series], frame: Frame, title: str, percent: bool, named: bool) -> Markup:
    """Curves over k on a log2 axis: coloured ones with marks and names, the others as one grey path.

    A curve is dashed where it is not of all problems, and ends where there is no value.
    """
    grey = "".join(_path(frame, s.points) for s in series if s.colour is None)
    marks = [tag("path", d=grey, class_="others")] if grey else []
    ends = _apart([s for s in series if s.colour is not None and s.points], frame)
    for s, y in ends:
        marks.append(_coloured(frame, s))
        if named:
            x = frame.at(s.points[-1].x, 0)[0]
            last = s.name.rsplit("/", maxsplit=1)[-1]
            words = last if len(last) <= 15 else f"{last[:14]}\u2026"
            marks.append(tag("text", words, x=x + 9, y=y + 4, class_=f"c{s.colour} name"))
    about = "; ".join(
        f"{s.name}: {s.points[0].value:.3f} at {s.points[0].x:g}, {s.points[-1].value:.3f} at {s.points[-1].x:g}"
        for s, _ in ends
    )
    return drawing(
        frame,
        title,
        about or title,
        *_axes(frame, percent),
        *marks,
        tag("g", class_="pins"),
        class_="chart " + ("wide" if named else "narrow"),
        data_frame=" ".join(f"{x:g}" for x in (*frame.margins, frame.x[1], *frame.y)),
    )


def _coloured(frame: Frame, s: Series) -> Markup:
    whole = [p for p in s.points if p.coverage >= 1]
    partly = s.points[max(len(whole) - 1, 0) :] if len(whole) < len(s.points) else []
    drawn = [tag("path", d=_path(frame, whole), class_="line")] if whole else []
    drawn += [tag("path", d=_path(frame, partly), class_="line dashed")] if len(partly) > 1 else []
    drawn.append(mark((s.colour or 1) - 1, *(frame.at(p.x, p.value) for p in s.points)))
    return tag("g", *drawn, class_=f"c{s.colour}")


def mark(which: int, *places: tuple[float, float]) -> Markup:
    """The same small shape at some places."""
    return tag("path", d="".join(f"M{x} {y}{SHAPES[which % len(SHAPES)]}" for x, y in places), class_="mark")


def _path(frame: Frame, points: Iterable[Point]) -> str:
    at = [frame.at(p.x, p.value) for p in points]
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in at) if at else ""


def _apart(series: Sequence[Series], frame: Frame) -> list[tuple[Series, float]]:
    """The curves with the height of their names, which must not lie on each other."""
    order = sorted(series, key=lambda s: frame.at(1, s.points[-1].value)[1])
    out: list[tuple[Series, float]] = []
    for s in order:
        y = frame.at(1, s.points[-1].value)[1]
        out.append((s, max(y, out[-1][1] + 15) if out else y))
    over = max(out[-1][1] - (frame.height - frame.bottom), 0) if out else 0
    return [(s, y - over) for s, y in out]


def _axes(frame: Frame, percent: bool) -> list[Markup]:
    """Gridlines with their numbers, and k = 1, 2, 4, ... below."""
    out, lines = [], ""
    for tick in ticks(*frame.y):
        _, y = frame.at(frame.x[0], tick)
        words = f"{round(tick * 100, 6):g}%" if percent else f"{tick:g}"
        lines += f"M{frame.left} {y}H{frame.width - frame.right}"
        out.append(tag("text", words, x=frame.left - 7, y=y + 4, text_anchor="end"))
    out.append(tag("path", class_="grid", d=lines))
    k = int(frame.x[0])
    while frame.log and k <= frame.x[1]:
        x, _ = frame.at(k, frame.y[0])
        words = f"k = {k}" if k == 1 else str(k)
        out.append(tag("text", words, x=x, y=frame.height - frame.bottom + 18, text_anchor="middle"))
        k *= 2
    return out


def timeline(
    series: Sequence[Series], runs: Sequence[str], changed: Mapping[int, str], percent: bool, title: str
) -> Markup:
    """Scores over runs with their intervals; a dashed line stands where problems or settings changed."""
    ends = [v for s in series for p in s.points for v in (p.value, p.lo, p.hi) if v is not None]
    tick = ticks(min(ends), max(ends))
    if len(tick) < 2:
        tick = [tick[0] - 0.5, tick[0] + 0.5]
    frame = Frame(640, 260, 46, 20, 12, 30, (0, max(len(runs) - 1, 1)), (tick[0], tick[-1]))
    marks = _axes(frame, percent)
    for i, what in changed.items():
        x, _ = frame.at(i, tick[0])
        note = tag("title", f"{runs[i]}: {what}")
        marks.append(tag("path", note, class_="changed", d=f"M{x} 12V230"))
    for i, s in enumerate(series):
        aside = 4 * (i - (len(series) - 1) / 2)  # or intervals of one run would hide each other
        bars = [
            f"M{x} {frame.at(p.x, p.lo)[1]}V{frame.at(p.x, p.hi)[1]}"
            for p in s.points
            if p.lo is not None and p.hi is not None
            for x in [round(frame.at(p.x, p.lo)[0] + aside, 1)]
        ]
        marks.append(tag("g", tag("path", class_="bars", d="".join(bars)), class_=f"c{s.colour}"))
        marks.append(_coloured(frame, s))
    for i, anchor in ((0, "start"), (len(runs) - 1, "end")):
        marks.append(tag("text", runs[i], x=frame.at(i, tick[0])[0], y=252, text_anchor=anchor))
    told = "; ".join(f"{s.name} from {s.points[0].value:.3f} to {s.points[-1].value:.3f}" for s in series if s.points)
    return drawing(frame, title, f"{told}.", *marks, class_="chart time")
