"""The page in Chromium: with and without its script, by keyboard, on a phone, in print, in the dark."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Decimal
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from counted import rows
from looked_at import HOSTILE, LONG, Tables, browser, busy, heavy, hostile, measured, plain
from scorelake.page.build import build_page
from scorelake.read.format import shorten

pytestmark = [
    pytest.mark.skipif(
        browser() is None, reason="NO BROWSER: the page was not tested in Chromium; `make system` installs it"
    ),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
FLAGS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run", "window-size=1280,1000"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
)
ROWS = "return [...document.querySelectorAll('.scores tbody tr[data-i]')]"
PAIRS = (
    "return [...document.querySelectorAll('.pair-matrix tbody tr')].map(tr => [...tr.cells].map(c => c.textContent))"
)
MATHS = "benchmark=maths&protocol=temperature%3D0.2"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser() or ""
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    running = webdriver.Chrome(options=options, service=service)
    running.set_script_timeout(120)  # a busy machine is slow, not wrong
    yield running
    running.quit()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("outputs")
    made = {"plain": plain, "hostile": hostile, "busy": busy, "heavy": heavy, "measured": measured}
    return {name: make(home / name) for name, make in made.items()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, outputs: dict[str, Path]) -> Path:
    home = tmp_path_factory.mktemp("pages")
    for name, out in outputs.items():
        (home / f"{name}.html").write_text(build_page(out), encoding="utf-8")
    return home


class Page:
    """One page in the browser, as people see it."""

    def __init__(self, driver: Any, home: Path) -> None:
        self.driver, self.home = driver, home

    def open(self, name: str, state: str = "", width: int = 1280, scheme: str = "light", media: str = "") -> Page:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.media(media, [{"name": "prefers-color-scheme", "value": scheme}])
        self.driver.get(f"file://{self.home / name}.html{'#' + state if state else ''}")
        return self

    def media(self, media: str, features: list[dict[str, str]] | None = None) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features or []})

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[Any]:
        return [e for e in self.driver.find_elements("css selector", f".board {selector}") if e.is_displayed()]

    def names(self) -> list[str]:
        return self.js(ROWS + ".map(tr => tr.querySelector('.model bdi').textContent)")  # type: ignore[no-any-return]

    def board(self) -> list[list[str]]:
        """Rank, score and interval of each row."""
        cells = "['rank','score','range'].map(c => tr.querySelector('.' + c).textContent.trim())"
        return self.js(f"{ROWS}.map(tr => {cells})")  # type: ignore[no-any-return]

    def scores(self) -> dict[str, str]:
        return dict(zip(self.names(), (row[1] for row in self.board()), strict=True))

    def written(self, name: str, board: int = 0) -> list[list[str]]:
        """What `board` returns if the page shows the table of its file."""
        tables = Tables((self.home / f"{name}.html").read_text(encoding="utf-8")).tables
        scores = [cells for kind, cells in tables if kind.startswith("scores")]
        return [[row[0], row[2], row[3]] for row in scores[board][1:]]

    def set(self, element: str, value: object) -> None:
        """Set a control as a person does."""
        self.js(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "for (const what of ['input', 'change']) e.dispatchEvent(new Event(what, {bubbles: true}));",
            element,
            value,
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the next frames to show it."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60).until(lambda _: condition())

    def hash(self) -> str:
        return self.js("return location.hash")  # type: ignore[no-any-return]

    def is_quiet(self) -> bool:
        """Whether nothing was logged and nothing fetched."""
        logged = [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        return not logged and not self.js("return performance.getEntriesByType('resource').map(e => e.name)")


@pytest.fixture
def page(driver: Any, pages: Path) -> Page:
    return Page(driver, pages)


def test_the_script_shows_the_table_of_the_file(page: Page) -> None:
    """Also after a switch to another metric and back."""
    page.open("plain")
    first = page.board()
    assert first == page.written("plain")
    page.set("k", 1)
    assert "metric=pass%402" in page.hash()
    assert page.board() != first
    assert "pass@2" in page.all(".verdict")[0].text
    assert not page.all(".pairs .missing-metric"), "pairs are compared by every metric of the page"
    page.set("k", 0)
    assert page.board() == first
    assert page.hash() == ""
    assert page.is_quiet()


def test_search_sort_and_pin_are_kept_in_a_link(page: Page) -> None:
    page.open("heavy")
    assert len(page.names()) == 50
    page.all(".more .all")[0].click()
    assert len(page.names()) == 300
    page.set("search", "lab-3")
    assert all(name.startswith("lab-3") for name in page.names())
    assert len(page.names()) == 30
    page.set("search", "")
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names())
    assert page.all(".scores thead th.model")[0].get_attribute("aria-sort") == "ascending"
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names(), reverse=True)
    page.all(".scores .pin")[2].click()
    pinned = page.names()[2]
    assert page.all(".curves .pins .c4 .line"), "a pinned model is drawn"
    page.open("heavy", page.hash()[1:])
    assert page.names()[2] == pinned
    assert page.all(".scores .pin")[2].get_attribute("aria-pressed") == "true"
    assert page.names() == sorted(page.names(), reverse=True)
    assert page.is_quiet()


def test_three_hundred_models(page: Page, pages: Path) -> None:
    """Few elements, however many models; a model that is pinned from far below joins every chart."""
    page.open("heavy")
    assert page.js("return document.querySelectorAll('*').length") <= 5000
    text = (pages / "heavy.html").read_text(encoding="utf-8")
    assert len(text.encode()) <= 3_000_000
    assert len(re.findall("<[a-z]", text.split("<script")[0])) <= 5000, "without the script, too"
    first = page.js(PAIRS)
    page.js("document.getElementById('group').click()")
    heads = page.js("return [...document.querySelectorAll('.scores tr.group')].map(tr => tr.textContent)")
    assert len(heads) == 10
    assert sum(int(head.split(": ")[1].split(" of ")[0]) for head in heads) == 50
    assert all(head.endswith(" of 30") for head in heads)
    makers = [name.split("/")[0] for name in page.names()]
    assert len(set(makers)) == sum(a != b for a, b in zip(makers, [None, *makers], strict=False)) == 10
    page.js("document.getElementById('group').click()")
    page.all(".more .all")[0].click()
    last = page.names()[-1]
    page.js("[...document.querySelectorAll('.scores .pin')].at(-1).click()")
    page.js("document.querySelectorAll('.scores .pin')[0].click()")
    assert page.js(PAIRS)[-1][0] == last
    assert len(page.js(PAIRS)) == 41
    about = page.js("return document.querySelector('.pair-matrix tbody tr:last-child td').title")
    assert about.startswith(f"{last} vs. {page.names()[0]}: \u2212")
    assert about.endswith(": significant")
    height = "return document.querySelector('svg.heat').viewBox.baseVal.height"
    assert page.js("return document.querySelector('.matrix .rows').lastChild.textContent") == last
    assert page.js(height) == 41
    assert page.js("return document.querySelectorAll('.differences tbody tr').length") == 10
    page.js("document.querySelectorAll('.scores .pin[aria-pressed=true]').forEach(b => b.click())")
    assert page.js(PAIRS) == first
    assert page.js(height) == 40
    assert page.is_quiet()


def test_benchmark_protocol_and_subject(page: Page, pages: Path, outputs: dict[str, Path]) -> None:
    """Each choice shows the numbers of its tables; a link keeps all three."""
    page.open("busy")
    chosen = "return document.getElementById(arguments[0]).value"
    page.set("benchmark", "maths")
    assert page.js("return document.querySelectorAll('.board').length") == 1
    assert page.js(chosen, "protocol") == "temperature=0.2"
    page.set("protocol", "temperature=1.0")
    assert "maths · temperature=1.0" in page.all("h2")[0].text
    page.set("protocol", "temperature=0.2")
    assert page.board() == page.written("busy", 1)
    tables = Tables((pages / "busy.html").read_text(encoding="utf-8")).tables
    (heat,) = (cells for kind, cells in tables if "by-subject" in kind and len(cells) == 7)
    page.set("subject", "7")
    scores = page.scores()
    full = {shorten(name, 60): name for name in scores}
    assert scores == {full[row[0]]: row[1] for row in heat[1:]}
    assert "in 7" in page.all("h2")[0].text
    assert "maths · temperature=0.2 · 7" in page.all(".verdict")[0].text
    assert page.all(".scope")
    state = page.hash()[1:]
    assert "subject=7" in state
    page.open("busy", state)
    assert page.scores() == scores
    page.set("k", 1)
    cells = "return [...document.querySelectorAll('.by-subject tbody tr')].map(tr => tr.cells[1].textContent)"
    assert page.js(cells) == [page.scores()[full[row[0]]] for row in heat[1:]]
    page.set("subject", "")
    where = "benchmark = 'maths' AND protocol LIKE '%0.2%' AND metric = 'pass@2'"
    lifts = {
        tuple(shorten(r[key], 60) for key in ("model_b", "model_a")): r
        for r in rows(outputs["busy"], f"FROM pair WHERE {where}")
    }
    matrix = page.js(PAIRS)
    for name, *values in matrix:
        for (other, *_), value in zip(matrix, values, strict=True):
            row = lifts.get((name, other))
            lift = f"{Decimal(row['lift'] * 100).quantize(Decimal('0.1'), ROUND_HALF_UP):+}" if row else ""
            is_significant = row is not None and row["claim"] in ("improvement", "regression")
            assert value == ("" if row is None else lift.replace("-", "\u2212") if is_significant else "=")
    page.set("k", 0)
    assert page.js(PAIRS) != matrix
    assert page.board() == page.written("busy", 1)
    page.set("benchmark", "code")
    assert page.js(chosen, "protocol") == "", "code has one protocol, which needs no name"
    assert page.is_quiet()


def test_a_pinned_model_joins_the_history(page: Page) -> None:
    page.open("busy", f"{MATHS}&pin=alone&pin=nobody")
    section = "document.querySelector('.history')"
    lines = f"return {section}.querySelectorAll('svg.wide .line').length"
    assert page.js(lines) == 4
    assert page.js(f"return {section}.querySelectorAll('svg.wide .changed').length") == 2
    assert page.js(f"return {section}.querySelector('.legend').lastChild.textContent") == "alone"
    page.js("document.querySelector('.pin[aria-pressed=true]').click()")
    assert page.js(lines) == 3
    assert page.js(f"return {section}.querySelectorAll('.pinned').length") == 0
    assert page.is_quiet()


def test_a_chart_is_read_by_slider_and_click(page: Page) -> None:
    """The values are the cells of the table below it; the band of all steps is shown on demand."""
    page.open("measured")
    figure = "document.querySelector('.series figure')"
    slide = f"const s = {figure}.querySelector('.slider input'); s.value = 1; s.dispatchEvent(new Event('input'));"
    page.js(slide)
    cells = page.js(f"return [...{figure}.querySelectorAll('tbody tr')[1].cells].map(c => c.textContent)")
    heads = page.js(f"return [...{figure}.querySelectorAll('thead th')].map(c => c.textContent)")
    expected = f"Step {cells[0]}" + "".join(f"{h}: {c}" for h, c in zip(heads[1:], cells[1:], strict=True))
    assert page.js(f"return {figure}.querySelector('.readout').textContent") == expected
    end = "const s = document.querySelector('.costs figure:nth-of-type(2) svg.wide'), b = s.getBoundingClientRect();"
    page.js(f"{end} s.dispatchEvent(new MouseEvent('click', {{clientX: b.right - 1, clientY: b.top + 9}}))")
    assert page.js("return document.querySelector('.costs .readout strong').textContent").startswith("Budget 0.00")
    band = "return getComputedStyle(document.querySelector('.series svg.wide .outline')).display"
    assert page.js(band) == "none"
    page.js("document.querySelector('.show-band').click()")
    assert page.js(band) == "inline"
    page.open("busy")
    page.js("document.querySelector('.overall a[href=\"#t1\"]').click()")
    page.until(lambda: "benchmark=maths" in page.hash())
    assert page.all("h2")[0].text.startswith("maths")
    assert page.is_quiet()


def test_a_link_with_unknown_names_is_ignored(page: Page) -> None:
    state = "benchmark=constructor&subject=__proto__&metric=constructor&sort=constructor&pin=nobody&axis="
    page.open("plain", state + quote("</script>"))
    assert len(page.names()) == 4
    assert page.is_quiet()


def test_keyboard(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open("plain")
    seen = set()
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = page.driver.switch_to.active_element
        seen.add(active.get_attribute("id") or active.get_attribute("class") or active.tag_name)
        if active.tag_name == "td":
            break
    assert {"family", "k", "pin"} <= seen, seen
    assert page.driver.switch_to.active_element.tag_name == "td"
    text = page.all(".pairs .readout")[0].text
    assert " vs. " in text
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert page.all(".pairs .readout")[0].text != text
    heat = page.all("svg.heat")[0]
    rows_height = page.all(".matrix .rows")[0].size["height"]
    assert abs(heat.size["height"] - rows_height) <= 2, "each row is next to its name"
    page.js("arguments[0].focus()", heat)
    heat.send_keys(Keys.ARROW_RIGHT)
    assert " of 4" in page.all(".problems .readout")[0].text


def test_without_script(page: Page, pages: Path) -> None:
    text = (pages / "plain.html").read_text(encoding="utf-8")
    blocked = re.sub(r"(script-src (?:'|&#39;)sha256-)", r"\1x", text)
    assert blocked != text
    (pages / "static.html").write_text(blocked, encoding="utf-8")
    page.open("static")
    assert not page.driver.find_element("id", "controls").is_displayed()
    assert len(page.all(".scores tbody tr")) == 4
    assert len(page.all(".whisker")) == 4
    assert len(page.all(".curves svg.chart")) == 2
    assert not page.all("button")


def test_on_a_phone(page: Page) -> None:
    for name in ("plain", "hostile", "busy", "heavy"):
        page.open(name, width=360)
        assert page.js("return document.documentElement.scrollWidth") <= 360, name
        small = page.js(
            "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg')"
            " && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())"
            " && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.tagName + '.' + e.className)"
        )
        assert small == [], name
    page.open("busy", MATHS, width=360)
    assert (
        page.js("return document.querySelector('.overall tbody td:nth-child(3)').getBoundingClientRect().top") < 640
    )
    name = ".overall tbody tr:nth-child(4) bdi"
    read = f"return document.querySelector('{name}').textContent"
    assert page.js(read) == shorten(LONG, 20)
    page.js(f"document.querySelector('{name}').click()")
    assert page.js(read) == LONG, "a tap shows the whole name"
    assert shorten(LONG, 28) in page.names()
    assert page.all(".whisker")[0].size["width"] > 250
    assert page.all(".ticks text"), "the axis of the cards"
    assert not page.driver.find_element("id", "family").is_displayed(), "controls are folded"
    card = ".scores tbody tr:first-child"
    assert not page.all(f"{card} .problems")
    page.all(f"{card} .range")[0].click()
    assert page.all(f"{card} .pin")[0].get_attribute("aria-pressed") == "true", "a tap pins"
    assert page.all(f"{card} .problems"), "and unfolds the card"
    assert len(page.all(".scores .problems")) == 1
    assert len(page.all(".scores thead button")) == 3


def test_print_is_light_and_complete(page: Page) -> None:
    page.open("busy", scheme="dark", media="print")
    assert not page.driver.find_element("id", "controls").is_displayed()
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("return [...document.querySelectorAll('.board')].map(e => e.checkVisibility())") == [True] * 3
    assert page.js("return [...document.querySelectorAll('details:not(#controls)')].every(e => e.open)")
    inside = "[...document.querySelectorAll('details:not(#controls) table, pre')]"
    assert set(page.js(f"return {inside}.map(e => e.getBoundingClientRect().height > 20)")) == {True}
    page.open("heavy")
    assert len(page.names()) == 50
    page.media("print")
    page.until(lambda: len(page.names()) == 300)
    assert page.js("return [...document.querySelectorAll('.scores tbody tr')].every(e => e.checkVisibility())")
    page.media("")
    page.until(lambda: len(page.names()) == 50)


def test_hostile_names_do_nothing(page: Page) -> None:
    page.open("hostile")
    assert len(page.names()) == len(HOSTILE)
    elements = "return document.querySelectorAll('img, b, script').length"
    assert page.js(elements) == 2
    for i in range(len(page.all(".scores .pin"))):
        page.all(".scores .pin")[i].click()
    page.set("k", 1)
    page.all(".copy-md")[0].click()
    assert page.js(elements) == 2
    assert page.is_quiet()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("plain", 1280, "dark"), ("hostile", 360, "light"), ("busy", 768, "light"), ("measured", 360, "dark"),
     ("measured", 1280, "light"), ("heavy", 1440, "light")],
)  # fmt: skip
def test_accessible(page: Page, name: str, width: int, scheme: str) -> None:
    """axe-core, levels A and AA, with all details open."""
    page.open(name, "pin=lab-3/model-293&group=1" if name == "heavy" else "", width, scheme)
    page.js("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    page.js((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    violations = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        ".then(r => done(r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html, v.nodes[0].failureSummary])))"
    )
    assert violations == []
