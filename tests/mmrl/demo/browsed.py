"""The page of the demo in a real browser, which listens to its console and its requests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.page import start

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs the browser chromium on PATH")


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

    def turn_to(self, name: str) -> None:
        """Open a tab of the page."""
        self.tab.click(f"button[role=tab]:text-is('{name}')")

    def fill(self, place: str, value: str) -> None:
        """Write into an input, and leave it."""
        self.tab.fill(f"{place} :is(input, textarea)", value)
        self.tab.keyboard.press("Tab")

    def choose(self, place: str, option: str) -> None:
        """Take an option of a list."""
        self.tab.click(f"{place} input")
        self.tab.click(f"ul[role=listbox] li:has-text('{option}')")
        self.tab.keyboard.press("Escape")  # a list of several stays open

    def texts(self, place: str) -> list[str]:
        """The texts of all elements at a place, once there is one."""
        self.tab.wait_for_selector(place, timeout=60_000)
        return self.tab.locator(place).all_inner_texts()

    def wait_until_value(self, place: str, value: str) -> None:
        """Wait until an input has a value."""
        self.tab.wait_for_function(
            "([place, value]) => document.querySelector(place + ' input').value === value",
            arg=[place, value],
        )

    def wait_until(self, place: str, says: str) -> None:
        """Wait until an element contains a text."""
        self.tab.wait_for_function(
            "([place, says]) => document.querySelector(place)?.innerText.includes(says)",
            arg=[place, says],
        )


@contextmanager
def browse(config: DemoConfig) -> Iterator[Browsed]:
    """Serve the page and open it, until the block ends."""
    from playwright.sync_api import sync_playwright

    address, page = start(config)
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
