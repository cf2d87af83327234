"""The page in a real Chromium: what scripts do, what works without them, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from counted import scored
from looked_at import HOSTILE, Tables, browser, hostile, model, plain
from scorelake.page.build import html

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
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plain.html, hostile.html, and many.html: 60 models on two benchmarks."""
    home = tmp_path_factory.mktemp("pages")
    (home / "plain.html").write_text(html(plain(home / "a")), encoding="utf-8")
    (home / "hostile.html").write_text(html(hostile(home / "b")), encoding="utf-8")
    rows = [
        row
        for i in range(60)
        for bench in ("one", "two")
        for row in model(f"lab-{i % 5}/model-{i:02d}", [(i * 7 + j * 3) % 5 for j in range(30)], benchmark=bench)
    ]
    (home / "many.html").write_text(html(scored(home / "c", rows), top=50), encoding="utf-8")
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
        return [
            e
            for e in self.driver.find_elements("css selector", f".board:not([hidden]) {selector}")
            if e.is_displayed()
        ]

    def names(self) -> list[str]:
        told = "return [...document.querySelectorAll('.board:not([hidden]) .scores tbody tr:not([hidden])')]"
        return self.js(told + ".map(tr => tr.querySelector('.model bdi').textContent)")  # type: ignore[no-any-return]

    def board(self) -> list[list[str]]:
        told = "return [...document.querySelectorAll('.board:not([hidden]) .scores tbody tr:not([hidden])')]"
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
    page.put("k", 0)
    assert page.board() == first
    assert page.hash() == ""
    assert page.complaints() == []
    assert page.fetched() == []


def test_search_sort_pin_and_a_link(page: Page) -> None:
    page.open("many.html")
    assert len(page.names()) == 50
    page.all(".more .all")[0].click()
    assert len(page.names()) == 60
    page.put("search", "lab-3")
    assert all(name.startswith("lab-3") for name in page.names())
    assert len(page.names()) == 12
    page.put("search", "")
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names())
    assert page.all(".scores thead th.model")[0].get_attribute("aria-sort") == "ascending"
    page.all(".scores thead th.model button")[0].click()
    assert page.names() == sorted(page.names(), reverse=True)
    page.all(".scores .pin")[2].click()
    pinned = page.names()[2]
    assert page.all(".curves .pins .c4 .line"), "a pinned model is drawn"
    page.put("board", 1)
    page.put("board", 0)
    page.all(".scores .pin")[2].click()
    state = page.hash()[1:]
    page.open("many.html", state)
    assert page.names()[2] == pinned
    assert page.all(".scores .pin")[2].get_attribute("aria-pressed") == "true"
    assert page.names() == sorted(page.names(), reverse=True)
    assert page.js("return document.querySelectorAll('*').length") < 2 * 5000, "two boards"
    assert page.complaints() == []


def test_an_address_that_means_nothing(page: Page) -> None:
    page.open("plain.html", "board=77&metric=nonsense&sort=constructor&pin=nobody&axis=" + quote("</script>"))
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
    for name in ("plain.html", "hostile.html", "many.html"):
        page.open(name, width=360)
        assert page.js("return document.documentElement.scrollWidth") <= 360, name
        small = page.js(
            "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg')"
            " && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())"
            " && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.tagName + '.' + e.className)"
        )
        assert small == [], name
    assert page.all(".whisker")[0].size["width"] > 250


def test_print_is_light_and_complete(page: Page) -> None:
    page.open("many.html", scheme="dark", media="print")
    assert not page.driver.find_element("id", "controls").is_displayed()
    assert page.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("return [...document.querySelectorAll('.board')].every(e => e.checkVisibility())")
    assert page.js("return [...document.querySelectorAll('.scores tbody tr')].every(e => e.checkVisibility())")


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
@pytest.mark.parametrize(("name", "width"), [("plain.html", 1280), ("hostile.html", 360)])
def test_accessible(page: Page, name: str, width: int, scheme: str) -> None:
    """axe-core, levels A and AA, every fold open."""
    page.open(name, width=width, scheme=scheme)
    page.js("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    page.js((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        ".then(r => done(r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html, v.nodes[0].failureSummary])))"
    )
    assert found == []
