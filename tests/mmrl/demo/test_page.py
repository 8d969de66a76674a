"""The page in a real browser: it answers within seconds, loads nothing from elsewhere, and its
console has no errors."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.page import start

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium on PATH")


@dataclass
class Browsed:
    """The open page, what its console said, and what it asked of other machines."""

    address: str
    tab: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def hear(self, message: Any) -> None:
        """Keep errors of the console."""
        if message.type == "error":
            self.said.append(message.text)

    def see(self, request: Any) -> None:
        """Keep requests that leave this page's server."""
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.asked.append(request.url)


@pytest.fixture(scope="module")
def browsed() -> Iterator[Browsed]:
    from playwright.sync_api import sync_playwright

    address, page = start(DemoConfig(port=0, runs=[]))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        seen = Browsed(address, browser.new_page())
        seen.tab.on("console", seen.hear)
        seen.tab.on("pageerror", lambda error: seen.said.append(str(error)))
        seen.tab.on("request", seen.see)
        seen.tab.goto(address)
        yield seen
        browser.close()
    page.close()


def source(browsed: Browsed, place: str) -> str:
    """Address of the image at a place, once it is loaded."""
    image = browsed.tab.wait_for_selector(f"{place} img", timeout=60_000)
    browsed.tab.wait_for_function(
        "place => document.querySelector(place + ' img').naturalWidth > 0", arg=place
    )
    return image.get_attribute("src")


def test_the_first_drawing_appears_within_ten_seconds(browsed: Browsed) -> None:
    browsed.tab.wait_for_selector("#draw")
    began = time.monotonic()
    browsed.tab.click("#draw")
    source(browsed, "#drawn_0")
    assert time.monotonic() - began < 10


def test_the_film_goes_back_and_its_positions_are_colored(browsed: Browsed) -> None:
    last = source(browsed, "#drawn_0")
    for change in (
        lambda: browsed.tab.fill("#draw_step input[type=number]", "5"),
        lambda: browsed.tab.click("#draw_view >> text=log-prob"),
    ):
        change()
        browsed.tab.keyboard.press("Tab")
        browsed.tab.wait_for_function(
            "old => document.querySelector('#drawn_0 img')?.getAttribute('src') !== old", arg=last
        )
        last = source(browsed, "#drawn_0")


def test_a_text_is_written_token_by_token(browsed: Browsed) -> None:
    browsed.tab.click("button[role=tab]:has-text('write')")
    browsed.tab.click("#write")
    browsed.tab.wait_for_selector("#write_shown .tokens span", timeout=60_000)
    assert "16" in browsed.tab.inner_text("#write_shown").replace("\n", "")


def test_a_request_under_another_host_name_is_refused(browsed: Browsed) -> None:
    assert httpx.get(browsed.address).status_code == 200
    other = httpx.get(browsed.address, headers={"host": "example.org"})
    assert other.status_code == 400


def test_at_the_end_the_console_has_no_errors_and_nothing_was_asked_elsewhere(
    browsed: Browsed,
) -> None:
    assert browsed.said == [] and browsed.asked == []
