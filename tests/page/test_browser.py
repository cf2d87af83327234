"""The page in a real Chromium: what scripts do, what works without them, by keyboard, on a phone, in the dark."""

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

from counted import rows as asked
from looked_at import HOSTILE, Tables, browser, busy, heavy, hostile, plain
from scorelake.page.build import html
from scorelake.read.names import shorten

pytestmark = [
    pytest.mark.skipif(
        browser() is None, reason="NO BROWSER: the page was not tried in Chromium; `make browser` installs it"
    ),
    pytest.mark.xdist_group("browser"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser() or ""
    home = tmp_path_factory.mktemp("profile")
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "no-first-run",
        f"user-data-dir={home}",
    ):
        options.add_argument(f"--{flag}")
    for flag in (
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "window-size=1280,1000",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    running = webdriver.Chrome(options=options, service=service)
    running.set_script_timeout(120)  # a crowded machine is slow, not wrong
    yield running
    running.quit()


@pytest.fixture(scope="module")
def busy_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy(tmp_path_factory.mktemp("busy"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, busy_out: Path) -> Path:
    """plain.html, hostile.html, busy.html, and heavy.html: 300 models."""
    home = tmp_path_factory.mktemp("pages")
    (home / "plain.html").write_text(html(plain(home / "a")), encoding="utf-8")
    (home / "hostile.html").write_text(html(hostile(home / "b")), encoding="utf-8")
    (home / "busy.html").write_text(html(busy_out), encoding="utf-8")
    (home / "heavy.html").write_text(html(heavy(home / "d")), encoding="utf-8")
    return home


class Page:
    """One page in the browser, seen as people see it."""

    def __init__(self, driver: Any, home: Path) -> None:
        self.driver, self.home = driver, home

    def open(self, name: str, state: str = "", width: int = 1280, scheme: str = "light", media: str = "") -> Page:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        cdp = self.driver.execute_cdp_cmd
        cdp(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        cdp("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.driver.get(f"file://{self.home / name}{'#' + state if state else ''}")
        return self

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[Any]:
        return [e for e in self.driver.find_elements("css selector", f".board {selector}") if e.is_displayed()]

    def names(self) -> list[str]:
        told = "return [...document.querySelectorAll('.scores tbody tr[data-i]')]"
        return self.js(told + ".map(tr => tr.querySelector('.model bdi').textContent)")  # type: ignore[no-any-return]

    def board(self) -> list[list[str]]:
        told = "return [...document.querySelectorAll('.scores tbody tr[data-i]')]"
        return self.js(
            told + ".map(tr => ['place','score','range'].map(c => tr.querySelector('.' + c).textContent.trim()))"
        )  # type: ignore[no-any-return]

    def put(self, element: str, value: object) -> None:
        """Set a control as a person does."""
        self.js(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "for (const what of ['input', 'change']) e.dispatchEvent(new Event(what, {bubbles: true}));",
            element,
            value,
        )

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for what comes with the next picture."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60).until(lambda _: true())

    def hash(self) -> str:
        return self.js("return location.hash")  # type: ignore[no-any-return]

    def complaints(self) -> list[Any]:
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def fetched(self) -> list[str]:
        return self.js("return performance.getEntriesByType('resource').map(e => e.name)")  # type: ignore[no-any-return]


@pytest.fixture
def page(driver: Any, pages: Path) -> Page:
    return Page(driver, pages)


def test_the_script_shows_what_the_server_wrote(page: Page, pages: Path) -> None:
    """Switched to another metric and back, every cell says what the table of the file says."""
    page.open("plain.html")
    first = page.board()
    written = [
        [row[0], row[2], row[3]] for row in Tables((pages / "plain.html").read_text(encoding="utf-8")).of("scores")
    ]
    assert first == written
    page.put("k", 1)
    assert "metric=pass%402" in page.hash()
    assert page.board() != first
    assert "pass@2" in page.all(".verdict")[0].text
    assert "Pairs were not compared at pass@2" in page.all(".pairs .other")[0].text
    page.put("k", 0)
    assert not page.all(".pairs .other")
    assert page.board() == first
    assert page.hash() == ""
    assert page.complaints() == []
    assert page.fetched() == []


def test_search_sort_pin_and_a_link(page: Page) -> None:
    page.open("heavy.html")
    assert len(page.names()) == 50
    page.all(".more .all")[0].click()
    assert len(page.names()) == 300
    page.put("search", "lab-3")
    assert all(name.startswith("lab-3") for name in page.names())
    assert len(page.names()) == 30
    page.put("search", "")
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names())
    assert page.all(".scores thead th.model")[0].get_attribute("aria-sort") == "ascending"
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names(), reverse=True)
    page.all(".scores .pin")[2].click()
    pinned = page.names()[2]
    assert page.all(".curves .pins .c4 .line"), "a pinned model is drawn"
    state = page.hash()[1:]
    page.open("heavy.html", state)
    assert page.names()[2] == pinned
    assert page.all(".scores .pin")[2].get_attribute("aria-pressed") == "true"
    assert page.names() == sorted(page.names(), reverse=True)
    assert page.complaints() == []


def test_three_hundred_models(page: Page, pages: Path) -> None:
    """Few elements, however many models; a model that is pinned from far below joins every drawing."""
    page.open("heavy.html")
    assert page.js("return document.querySelectorAll('*').length") <= 5000
    text = (pages / "heavy.html").read_text(encoding="utf-8")
    assert len(text.encode()) <= 3_000_000
    assert len(re.findall("<[a-z]", text.split("<script")[0])) <= 5000, "without script, too"
    first = page.js("return document.querySelector('.duel').textContent")
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
    duel = "return [...document.querySelectorAll('.duel tbody th')].map(th => th.textContent)"
    assert page.js(duel)[-1] == last
    assert len(page.js(duel)) == 41
    told = page.js("return document.querySelector('.duel tbody tr:last-child td').title")
    assert told.startswith(f"{last} against {page.names()[0]}: \u2212")
    assert told.endswith(": settled")
    assert page.js("return document.querySelector('.matrix .rows').lastChild.textContent") == last
    assert page.js("return document.querySelector('svg.heat').viewBox.baseVal.height") == 41
    assert page.js("return document.querySelectorAll('.differ tbody tr').length") == 10
    page.js("document.querySelectorAll('.scores .pin[aria-pressed=true]').forEach(b => b.click())")
    assert page.js("return document.querySelector('.duel').textContent") == first
    assert page.js("return document.querySelector('svg.heat').viewBox.baseVal.height") == 40
    assert page.complaints() == []


def test_benchmark_protocol_subject(page: Page, pages: Path, busy_out: Path) -> None:
    """Three selectors; what they show is what the tables of those boards say; an address keeps all three."""
    page.open("busy.html")
    chosen = "return document.getElementById(arguments[0]).value"
    page.put("benchmark", "maths")
    assert page.js("return document.querySelectorAll('.board').length") == 1
    assert page.js(chosen, "protocol") == "temperature=0.2"
    page.put("protocol", "temperature=1.0")
    assert "maths · temperature=1.0" in page.all("h2")[0].text
    page.put("protocol", "temperature=0.2")
    tables = Tables((pages / "busy.html").read_text(encoding="utf-8"))
    written = [rows for kind, rows in tables.tables if kind.startswith("scores")][1]
    assert page.board() == [[row[0], row[2], row[3]] for row in written[1:]]
    (heat,) = (rows for kind, rows in tables.tables if "by-subject" in kind and len(rows) == 7)
    page.put("subject", "7")
    scores = dict(zip(page.names(), (row[1] for row in page.board()), strict=True))
    short = {shorten(name, 60): name for name in scores}
    assert scores == {short[row[0]]: row[1] for row in heat[1:]}
    assert "in 7" in page.all("h2")[0].text
    assert "maths · temperature=0.2 · 7" in page.all(".verdict")[0].text
    assert page.all(".scope")
    state = page.hash()[1:]
    assert "subject=7" in state
    page.open("busy.html", state)
    assert dict(zip(page.names(), (row[1] for row in page.board()), strict=True)) == scores
    page.put("k", 1)
    cells = "return [...document.querySelectorAll('.by-subject tbody tr')].map(tr => tr.cells[1].textContent)"
    assert page.js(cells) == [
        dict(zip(page.names(), (row[1] for row in page.board()), strict=True))[short[row[0]]] for row in heat[1:]
    ]
    page.put("subject", "")
    pairs = (
        "return [...document.querySelectorAll('.duel tbody tr')].map(tr => [...tr.cells].map(td => td.textContent))"
    )
    lifts = {
        (row["model_b"][:59], row["model_a"][:59]): row
        for row in asked(
            busy_out, "FROM pair WHERE benchmark = 'maths' AND protocol LIKE '%0.2%' AND metric = 'pass@2'"
        )
    }
    told = page.js(pairs)
    for name, *cells in told:
        for (other, *_), cell in zip(told, cells, strict=True):
            row = lifts.get((name[:59], other[:59]))
            settled = row is not None and row["claim"] in ("improvement", "regression")
            signed = f"{Decimal(row['lift'] * 100).quantize(Decimal('0.1'), ROUND_HALF_UP):+}" if row else ""
            assert cell == ("" if row is None else signed.replace("-", "\u2212") if settled else "=")
    page.put("k", 0)
    assert page.js(pairs) != told
    assert page.board() == [[row[0], row[2], row[3]] for row in written[1:]]
    page.put("benchmark", "code")
    assert page.js(chosen, "protocol") == "temperature=0.2"
    assert page.complaints() == []


def test_a_pinned_model_over_runs(page: Page, pages: Path) -> None:
    page.open("busy.html", "benchmark=maths&protocol=temperature%3D0.2&pin=alone&pin=nobody")
    section = "document.querySelector('.history')"
    assert page.js(f"return {section}.querySelectorAll('svg .line').length") == 4
    assert page.js(f"return {section}.querySelectorAll('svg .changed').length") == 2
    assert page.js(f"return {section}.querySelector('.legend').lastChild.textContent") == "alone"
    column = page.js(f"return [...{section}.querySelectorAll('td.pinned')].map(td => td.textContent)")
    tables = Tables((pages / "busy.html").read_text(encoding="utf-8"))
    boards = [rows for kind, rows in tables.tables if kind.startswith("scores")]
    now = next(row for row in boards[1] if row[1] == "alone")
    assert column[-1] == f"{now[2]}% ({now[3]})"
    page.js("document.querySelector('.pin[aria-pressed=true]').click()")
    assert page.js(f"return {section}.querySelectorAll('svg .line').length") == 3
    assert page.js(f"return {section}.querySelectorAll('.pinned').length") == 0
    assert page.complaints() == []


def test_an_address_that_means_nothing(page: Page) -> None:
    page.open(
        "plain.html",
        "benchmark=constructor&subject=__proto__&metric=constructor&sort=constructor&pin=nobody&axis="
        + quote("</script>"),
    )
    assert len(page.names()) == 4
    assert page.complaints() == []


def test_by_keyboard(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open("plain.html")
    seen = set()
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        active = page.driver.switch_to.active_element
        seen.add(active.get_attribute("id") or active.get_attribute("class") or active.tag_name)
        if active.tag_name == "td":
            break
    assert {"family", "k", "pin", "all"} - seen <= {"all"}, seen
    assert page.driver.switch_to.active_element.tag_name == "td"
    told = page.all(".pairs .told")[0].text
    assert "against" in told
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert page.all(".pairs .told")[0].text != told
    heat = page.all("svg.heat")[0]
    assert abs(heat.size["height"] - page.all(".matrix .rows")[0].size["height"]) <= 2, (
        "a row of it stands at its name"
    )
    page.js("arguments[0].focus()", heat)
    heat.send_keys(Keys.ARROW_RIGHT)
    assert " of 4" in page.all(".problems .told")[0].text


def test_without_script(page: Page, pages: Path) -> None:
    text = (pages / "plain.html").read_text(encoding="utf-8")
    (pages / "still.html").write_text(
        text.replace("script-src 'sha256-", "script-src 'sha256-x").replace(
            "script-src &#39;sha256-", "script-src &#39;sha256-x"
        ),
        encoding="utf-8",
    )
    page.open("still.html")
    assert not page.driver.find_element("id", "controls").is_displayed()
    assert len(page.all(".scores tbody tr")) == 4
    assert len(page.all(".whisker")) == 4
    assert len(page.all(".curves svg.chart")) == 2
    assert not page.all("button")


def test_on_a_phone_nothing_hangs_over(page: Page) -> None:
    for name in ("plain.html", "hostile.html", "busy.html", "heavy.html"):
        page.open(name, width=360)
        assert page.js("return document.documentElement.scrollWidth") <= 360, name
        small = page.js(
            "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg')"
            " && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())"
            " && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.tagName + '.' + e.className)"
        )
        assert small == [], name
    page.open("busy.html", "benchmark=maths&protocol=temperature%3D0.2", width=360)
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
    page.open("busy.html", scheme="dark", media="print")
    assert not page.driver.find_element("id", "controls").is_displayed()
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("return [...document.querySelectorAll('.board')].every(e => e.checkVisibility())")
    assert page.js("return document.querySelectorAll('.board').length") == 3
    assert page.js("return [...document.querySelectorAll('details:not(#controls)')].every(e => e.open)")
    inside = "[...document.querySelectorAll('details:not(#controls) table, pre')]"
    assert page.js(f"return {inside}.map(e => e.getBoundingClientRect().height > 20)") == [True] * 11
    page.open("heavy.html")
    assert len(page.names()) == 50
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.until(lambda: len(page.names()) == 300)
    assert page.js("return [...document.querySelectorAll('.scores tbody tr')].every(e => e.checkVisibility())")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.until(lambda: len(page.names()) == 50)


def test_hostile_names_do_nothing(page: Page) -> None:
    page.open("hostile.html")
    assert len(page.names()) == len(HOSTILE)
    assert page.js("return document.querySelectorAll('img, b, script').length") == 2
    for at in range(len(page.all(".scores .pin"))):
        page.all(".scores .pin")[at].click()
    page.put("k", 1)
    page.all(".copy-md")[0].click()
    assert page.js("return document.querySelectorAll('img, b, script').length") == 2
    assert page.complaints() == []
    assert page.fetched() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("name", "width"), [("plain.html", 1280), ("hostile.html", 360), ("busy.html", 768), ("heavy.html", 1440)]
)
def test_accessible(page: Page, name: str, width: int, scheme: str) -> None:
    """axe-core, levels A and AA, every fold open."""
    page.open(name, "pin=lab-3/model-293&group=1" if name == "heavy.html" else "", width, scheme)
    page.js("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    page.js((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        ".then(r => done(r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html, v.nodes[0].failureSummary])))"
    )
    assert found == []
