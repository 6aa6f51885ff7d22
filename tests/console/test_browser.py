# SPDX-License-Identifier: Apache-2.0
"""The console in a real Chromium: every page, live updates, filters, keys, a resubmission, hostile text, 100,000 verdicts.

`VALIDATOR_SCREENSHOTS=docs/console pytest tests/console/test_browser.py` takes the pictures of docs/console.md again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.codecs import encoded
from tests.console.records import HOSTILE, dead_letter, output_of, simulated, verdict
from tests.sending import send
from tests.unit.lanes.chains import config_of
from validator.console.serve import RunningConsole
from validator.kafka.topics import create_topics

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from validator.config import Config

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None, reason="playwright is not installed (the extra `browser`)"
    ),
]

PREFIX = "console-browser."
WAIT_MS = 60_000
BLOCKS = 60
MANY = 100_000
LINK = "/lanes/polkadot"
CAPACITY = "OutboundHrmp/CapacityExceeded"
PICTURES = ("overview", "verdict", "channels", "dead-letter")
"""Pages of which docs/console.md has a picture."""
LIMIT = {"kind": CAPACITY, "idx": 0, "count": 4, "limit": 3}


@pytest.fixture(scope="module")
def config(kafka: dict[str, object]) -> Config:
    """Return the configuration of a chain with empty topics, apart from dead letters: one to be fixed, one that is hostile."""
    chain = simulated(blocks=BLOCKS)
    made = config_of(chain, job={"directory": "nowhere"}, kafka=kafka, topics={"prefix": PREFIX})
    create_topics(kafka, prefix=PREFIX)
    body = next(record for block in chain.blocks for topic, record in block.records if topic == "candidates")
    value = encoded("candidates", body | {"lane": "polkadto", "block": BLOCKS + 1})
    source = f"{PREFIX}candidates"
    letters = [
        dead_letter("lane 'polkadto' is not configured", value, 0, topic=source),
        dead_letter(f"field {HOSTILE}", b"\x00<script>document.title='owned'</script>", 1, topic=source),
    ]
    send(kafka, PREFIX, [(letter.topic, letter.key, letter.value) for letter in letters])
    return made


@pytest.fixture(scope="module")
def console(config: Config) -> Iterator[RunningConsole]:
    """Return a console whose model has a chain of the last minute: the fold is the same for records of Kafka (test_serve.py)."""
    with RunningConsole(config, "127.0.0.1:0", lambda _: None) as running:
        assert running.follower.caught_up.wait(WAIT_MS / 1000)
        now_ms = int(time.time() * 1000)
        running.model.take(output_of(simulated(blocks=BLOCKS), now_ms - BLOCKS * 1_000))
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # a container cannot give it a sandbox
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, console: RunningConsole) -> Iterator[Page]:
    """Return a page that has entered. A script's error, a refused resource and a request elsewhere fail the test."""
    with browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light") as context:
        problems: list[str] = []
        made = context.new_page()
        made.set_default_timeout(WAIT_MS)
        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        origin = console.url.partition("/?")[0]
        made.on(
            "request",
            lambda request: None if request.url.startswith((origin, "data:")) else problems.append(request.url),
        )
        made.goto(console.url)
        yield made
        assert problems == []


def address(console: RunningConsole, path: str) -> str:
    return console.url.partition("/?")[0] + path


def shot(page: Page, name: str) -> None:
    """Take a picture for the documents, if pictures are wanted."""
    folder = os.environ.get("VALIDATOR_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.mouse.move(0, 0)
        path = Path(folder) / f"{name}.png"
        page.screenshot(path=str(path))
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width


CROWDED = """[...document.querySelectorAll('main .scroll, main tr')].filter((each) => {
  if (each.matches('.scroll')) return each.scrollWidth > each.clientWidth;
  const boxes = [];
  const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    if (texts.currentNode.data.trim() && !texts.currentNode.parentElement.closest('.sr, svg')) boxes.push(...range.getClientRects());
  }
  return boxes.some((one, at) => boxes.slice(at + 1).some((other) =>
    one.left < other.right - 1 && other.left < one.right - 1 && one.top < other.bottom - 2 && other.top < one.bottom - 2));
}).map((each) => each.textContent.trim().slice(0, 60))"""
"""Tables that have to be moved sideways, and rows in which text lies over other text."""


def pages_of(console: RunningConsole) -> dict[str, str]:
    lane = console.model.lanes["polkadot"]
    full = next(each for each in lane.newest() if each.error == CAPACITY)
    ends = max(lane.channels, key=lambda each: lane.channels[each].messages)
    return {
        "overview": LINK,
        "verdicts": f"{LINK}/verdicts",
        "verdict": f"{LINK}/verdicts/{full.block}/{full.kind}/{full.index}",
        "channels": f"{LINK}/channels",
        "channel": f"{LINK}/channels/{ends[0]}/{ends[1]}",
        "paras": f"{LINK}/paras",
        "para": f"{LINK}/paras/{full.para_id}",
        "runtime": f"{LINK}/runtime",
        "dead-letters": "/dead-letters",
        "dead-letter": "/dead-letters/0/0",
        "rule": f"/rules?name={CAPACITY}",
    }


def test_every_page_in_both_themes_and_on_a_phone(page: Page, console: RunningConsole) -> None:
    for name, path in pages_of(console).items():
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(address(console, path))
        assert page.locator("h1").count() == 1, name
        assert overflow(page) == 0, name
        assert page.evaluate(CROWDED) == [], name
        if name in PICTURES:
            shot(page, name)
        page.set_viewport_size({"width": 390, "height": 844})
        assert overflow(page) == 0, name
        assert page.evaluate(CROWDED) == [], f"{name} on a phone"
        if name == "verdicts":
            shot(page, f"{name}-phone")
        small: int = page.evaluate(
            "[...document.querySelectorAll('button, select, nav a')].filter(each => each.offsetParent && each.offsetHeight < 24).length"
        )
        assert small == 0, f"{name}: targets of less than 24 pixels"
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="dark")
    for name in ("overview", "channels"):
        page.goto(address(console, pages_of(console)[name]))
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 21, 27)"
        if name == "overview":
            shot(page, f"{name}-dark")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 248)"


def test_text_has_contrast(page: Page, console: RunningConsole) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(address(console, LINK))
        ratios: list[float] = page.evaluate(_CONTRAST)
        assert len(ratios) > 5
        assert min(ratios) >= 4.5, scheme


_CONTRAST = """() => {
  const shade = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
      .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const panel = shade(getComputedStyle(document.querySelector('.panel')).backgroundColor);
  return [...document.querySelectorAll('.panel h2, .panel td, .panel a, .panel .soft, .panel .out')].map((each) => {
    const ink = shade(getComputedStyle(each).color);
    return (Math.max(ink, panel) + 0.05) / (Math.min(ink, panel) + 0.05);
  });
}"""


def test_new_verdicts_come_by_themselves_but_not_under_the_reader(page: Page, console: RunningConsole) -> None:
    page.goto(address(console, f"{LINK}/verdicts?outcome=rejected"))
    page.mouse.move(0, 0)
    console.model.take([verdict("polkadot", 101, 0, LIMIT)])
    page.wait_for_selector("tr.fresh[data-row='101/candidate/0']")
    page.goto(address(console, f"{LINK}/verdicts"))
    page.locator("#list tbody tr").nth(2).hover()
    console.model.take([verdict("polkadot", 102, 0, LIMIT), verdict("polkadot", 102, 1, LIMIT)])
    page.wait_for_selector("#more:not([hidden])")
    assert page.locator("#pending").inner_text() == "2 new"
    assert page.locator("[data-row='102/candidate/0']").count() == 0
    page.keyboard.press("n")
    page.wait_for_selector("[data-row='102/candidate/0']")
    page.keyboard.press("p")
    assert page.locator("#pause .state").inner_text() == "Paused"
    page.mouse.move(0, 0)
    console.model.take([verdict("polkadot", 103, 0, LIMIT)])
    page.wait_for_selector("#more:not([hidden])")
    assert page.locator("[data-row='103/candidate/0']").count() == 0
    page.keyboard.press("p")
    page.wait_for_selector("[data-row='103/candidate/0']")


def test_filter_by_form_and_by_facet(page: Page, console: RunningConsole) -> None:
    page.goto(address(console, f"{LINK}/verdicts"))
    page.select_option("select[name=outcome]", "rejected")
    page.select_option("select[name=kind]", "request")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**outcome=rejected**")
    rows = page.locator("#list tbody tr").all_inner_texts()
    assert rows
    assert all("rejected" in row and "request" in row for row in rows)
    page.locator(".facets a", has_text="ToSelf").click()
    page.wait_for_url("**rule=**")
    assert {"asked for a channel to itself" in row for row in page.locator("#list tbody tr").all_inner_texts()} == {
        True
    }
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/verdicts")


def test_keyboard_reaches_everything(page: Page, console: RunningConsole) -> None:
    page.goto(address(console, LINK))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("2000")
    page.keyboard.press("Enter")
    page.wait_for_url("**/paras/2000")
    for key, part in (("c", "channels"), ("v", "verdicts"), ("o", "polkadot")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/{part}")
    page.goto(address(console, f"{LINK}/channels?as=circle"))
    assert page.locator("#map a[tabindex='0']").count() == 1
    page.locator("#map a[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#map").evaluate("each => each.classList.contains('sel')")
    assert page.locator("#map path.near").count() > 0
    page.keyboard.press("Enter")
    page.wait_for_url("**/paras/*")


def test_dead_letter_is_fixed_and_put_back(page: Page, console: RunningConsole) -> None:
    page.goto(address(console, "/dead-letters?done=no"))
    page.get_by_role("link", name="0/0", exact=True).click()
    page.wait_for_url("**/dead-letters/0/0")
    assert "UNKNOWN_LANE" in page.locator("#problem").inner_text()
    record = page.locator("#record")
    record.fill(record.input_value().replace("polkadto", "polkadot"))
    page.get_by_role("button", name="Check").click()
    page.wait_for_selector("#answer.fine")
    page.get_by_role("button", name="Put back").click()
    page.wait_for_selector("#answer.fine >> text=Put back with other bytes")
    page.goto(address(console, "/dead-letters"))
    page.wait_for_selector("tr:has(a[href='/dead-letters/0/0']) >> text=attempt 1")


def test_hostile_text_is_only_text(page: Page, console: RunningConsole) -> None:
    for path in ("/dead-letters", "/dead-letters/0/1"):
        page.goto(address(console, path))
        assert "owned" not in page.title()
        assert "<script>document.title='owned'</script>\\u202e\\x1b[31m" in page.locator("main").inner_text()
    assert page.locator("main script").count() == 0
    page.goto(address(console, f"{LINK}/verdicts"))
    console.model.take([verdict("polkadot", 110, 0, {"kind": HOSTILE, "text": HOSTILE})])
    page.wait_for_selector("[data-row='110/candidate/0']")  # through a live update, too
    assert "owned" not in page.title()


def test_only_the_own_script_inserts_markup(browser: Browser, console: RunningConsole) -> None:
    with browser.new_context() as context:
        made = context.new_page()
        made.goto(console.url)
        refused = "() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } }"
        assert made.evaluate(refused)
        made.evaluate(
            "document.head.append(Object.assign(document.createElement('style'), {textContent: 'body { color: red }'}))"
        )
        assert made.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


def test_without_scripts_pages_can_be_read_and_filtered(browser: Browser, console: RunningConsole) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        made = context.new_page()
        made.goto(console.url)
        made.goto(address(console, f"{LINK}/verdicts"))
        made.select_option("select[name=outcome]", "rejected")
        made.get_by_role("button", name="Filter").click()
        made.wait_for_url("**outcome=rejected**")
        assert made.locator("#list tbody tr").count() > 10
        assert made.locator("#pause").is_hidden()


def test_no_page_without_the_token(browser: Browser, console: RunningConsole) -> None:
    with browser.new_context() as context:
        made = context.new_page()
        answer = made.goto(address(console, LINK))
        assert answer is not None
        assert answer.status == 401
        made.goto(console.url)
        assert "token" not in made.url
        cookie: Any = context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


def test_hundred_thousand_verdicts_leave_pages_quick(page: Page, console: RunningConsole) -> None:
    page.goto(address(console, "/lanes/polkadot/runtime"))
    records = (verdict("westend", 1 + at // 100, at % 100, LIMIT if at % 9 == 0 else None) for at in range(MANY))
    console.model.take(records)
    assert console.model.verdicts == MANY  # the limit holds for all lanes together
    for query in (
        "",
        "?outcome=rejected&para=2036",
        "?view=every",
        "?block=17..900&view=every",
        "?outcome=rejected&para=4000",
    ):
        page.goto(address(console, f"/lanes/westend/verdicts{query}"))
        assert page.locator("#list tbody tr").count() <= 100
    assert page.evaluate("document.querySelectorAll('*').length") < 2_500
    page.goto(address(console, "/lanes/westend/verdicts"))
    page.mouse.move(0, 0)
    console.model.take([verdict("westend", 2_000, 0, LIMIT)])
    page.wait_for_selector("[data-row='2000/candidate/0']")
