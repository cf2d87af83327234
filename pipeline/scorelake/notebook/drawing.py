"""One picture: panels below each other, with the page's style for drawings, and for nothing around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from scorelake.errors import StorageError, UsageError
from scorelake.page import svg
from scorelake.storage.disk import replace_text

WIDTH, ROW, HEAD, PAD, NAMES = 760, 26, 48, 12, 200
"""Of a drawing: its width, a row, the room for a title, the rim, and where names end."""
_SHAPES = re.compile(
    r"(svg|text|line|path|\.whisker|\.ticks|\.grid|\.dot|\.line|\.dashed|\.chart|\.others|\.mark|\.heat|\[class\^=c\]"
    r"|\.c\d|\.s\d)(?![\w-])"
)
"""How the rules of the page's style begin that are for drawings."""
_OWN = (
    '.scorelake{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}'
    ".scorelake .whisker,.scorelake .ticks{width:100%;height:100%;overflow:visible}"
    ".scorelake .paper{fill:var(--paper)}.scorelake .nothing{fill:var(--grid)}"
    ".scorelake text.ink{fill:var(--ink)}.scorelake text.strong{font-weight:650}"
    ".scorelake text.head{fill:var(--ink);font-size:15px;font-weight:600}"
)


class Drawing:
    """A picture as SVG text. It shows itself in Jupyter and VS Code; `save` writes it as a file for any browser.

    >>> drawing = board.plot.leaderboard()
    >>> drawing.title
    'synth: pass@1'
    >>> drawing.save("leaderboard.svg")
    """

    def __init__(self, title: str, picture: str) -> None:
        self.title = title
        """What it shows."""
        self.svg = picture
        """The whole picture, style included."""

    def save(self, path: str | Path) -> None:
        """Write it as a file, into a folder that is there."""
        file = Path(path)
        if not file.parent.is_dir():
            raise UsageError("no such folder", where=str(file.parent), hint="make it first, or name another")
        if file.is_dir():
            raise UsageError("is a folder", where=str(file), hint="name a file in it, such as leaderboard.svg")
        try:
            replace_text(file, self.svg)
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror}", where=str(file)) from None

    def __repr__(self) -> str:
        return f"Drawing: {self.title}"

    def _repr_html_(self) -> str:
        return self.svg


class Panel(NamedTuple):
    """A part of a picture: its title, its height with the room for that, and what is drawn."""

    title: str
    height: int
    parts: Sequence[Markup]


def stacked(panels: Sequence[Panel]) -> Drawing:
    """Panels below each other on one sheet."""
    title, height = "; ".join(panel.title for panel in panels), sum(panel.height for panel in panels) + 2 * PAD
    frame = svg.Frame(WIDTH, height, 0, 0, 0, 0, (0, 1), (0, 1))
    drawn, at = [svg.tag("rect", width=WIDTH, height=height, class_="paper")], PAD
    for panel in panels:
        head = svg.tag("text", panel.title, x=PAD, y=18, class_="head")
        drawn.append(inset(Markup("").join([head, *panel.parts]), 0, at, WIDTH, panel.height))
        at += panel.height
    sheet = svg.tag("style", Markup(style()))
    size = {"width": WIDTH, "height": height, "style": "max-width: 100%; height: auto"}
    picture = svg.drawing(
        frame, title, title, sheet, *drawn, class_="scorelake", xmlns="http://www.w3.org/2000/svg", **size
    )
    return Drawing(title, str(picture))


def inset(drawn: Markup, x: float, y: float, width: float, height: float) -> Markup:
    """A drawing at a place of another."""
    return svg.tag("svg", drawn, x=x, y=y, width=width, height=height)


@cache
def style() -> str:
    """The rules of the page's style that are for drawings, by day, and for drawings of ours alone."""
    text = (resources.files("scorelake.page") / "style.css").read_text(encoding="utf-8")
    text = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text)
    rules = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        names = [name.strip() for name in selectors.split(",")]
        told = [f".scorelake {name}" for name in names if _SHAPES.match(name)]
        told = [".scorelake"] if names == [":root"] else told
        rules += [f"{','.join(told)}{{{body.strip()}}}"] if told else []
    return "".join(rules) + _OWN
