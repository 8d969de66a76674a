"""The page in a real browser: it answers within seconds, loads nothing from elsewhere, and its
console has no errors."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.written import MASKED
from tests.mmrl.demo.browsed import Browsed, browse, needs_chromium
from tests.mmrl.runs import SHAPES

pytestmark = needs_chromium
SEED = "label:visible:has-text('seed')"


@pytest.fixture(scope="module")
def browsed() -> Iterator[Browsed]:
    with browse(DemoConfig(port=0, runs=[])) as seen:
        yield seen


@pytest.fixture
def question(tmp_path: Path) -> tuple[str, Path]:
    """A held-out question of the shapes world and its image as a file."""
    row = json.loads((SHAPES / "questions_test.jsonl").read_text().splitlines()[0])
    path = tmp_path / "shapes.png"
    path.write_bytes(base64.b64decode(row["image"].partition(",")[2]))
    return row["question"], path


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


def test_two_drawings_are_side_by_side_under_the_names_of_their_checkpoints(
    browsed: Browsed,
) -> None:
    browsed.choose("#draw_beside", "mmada_careless")
    browsed.tab.click("#draw")
    source(browsed, "#drawn_1")
    shown = [browsed.tab.locator(f"#drawn_{n}") for n in range(2)]
    names = [each.inner_text().strip() for each in shown]
    assert names[0].endswith("mmada") and names[1].endswith("mmada_careless")
    left, right = (each.bounding_box() for each in shown)
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]


def test_an_input_that_is_empty_is_named_on_the_page(browsed: Browsed) -> None:
    browsed.fill(SEED, "")
    browsed.tab.click("#draw")
    assert "seed is empty" in browsed.texts(".toast-body")[0]
    browsed.fill(SEED, "0")


def test_a_text_is_written_token_by_token(browsed: Browsed) -> None:
    browsed.turn_to("write")
    browsed.tab.click("#write")
    browsed.tab.wait_for_selector("#write_shown .tokens span", timeout=60_000)
    assert "16" in browsed.tab.inner_text("#write_shown").replace("\n", "")


def test_an_uploaded_image_is_answered_token_by_token(
    browsed: Browsed, question: tuple[str, Path]
) -> None:
    words, image = question
    browsed.turn_to("ask")
    example = source(browsed, "#image")
    browsed.tab.click("#image button[aria-label='Remove Image']")
    browsed.tab.set_input_files("#image input[type=file]", image)
    assert source(browsed, "#image") != example
    browsed.fill("#question", words)
    browsed.tab.click("#ask")
    tokens = browsed.texts("#ask_shown .tokens span")
    answer = browsed.tab.input_value("#answer textarea")
    assert "".join(tokens).replace("␣", " ").startswith(answer) and len(tokens) > 4
    assert "purple circle" in answer  # what the question is about


def test_the_answer_goes_back_to_what_was_written_after_a_step(browsed: Browsed) -> None:
    whole = browsed.texts("#ask_shown .tokens span")
    browsed.fill("#ask_step", "1")
    browsed.wait_until("#ask_shown", MASKED)
    early = browsed.texts("#ask_shown .tokens span")
    assert len(early) == len(whole) and 0 < early.count(MASKED) < len(whole)
    assert all(token in (MASKED, last) for token, last in zip(early, whole, strict=True))


def test_without_runs_the_page_says_how_to_name_them(browsed: Browsed) -> None:
    browsed.turn_to("runs")
    browsed.tab.wait_for_selector("text=python -m mmrl.demo runs=")


def test_a_request_under_another_host_name_is_refused(browsed: Browsed) -> None:
    assert httpx.get(browsed.address).status_code == 200
    other = httpx.get(browsed.address, headers={"host": "example.org"})
    assert other.status_code == 400


def test_at_the_end_the_console_has_no_errors_and_nothing_was_asked_elsewhere(
    browsed: Browsed,
) -> None:
    assert browsed.said == [] and browsed.asked == []
