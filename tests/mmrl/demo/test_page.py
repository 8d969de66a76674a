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
from mmrl.demo.trace_view import MASKED
from tests.mmrl.demo.browsed import Browsed, browse, needs_chromium
from tests.mmrl.demo.test_runs import GOOD, write_rows
from tests.mmrl.runs import SHAPES

pytestmark = needs_chromium
MARKUP = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"


@pytest.fixture(scope="module")
def browsed(short_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    harmful = tmp_path_factory.mktemp("harmful")
    write_rows(harmful, {**GOOD, "prompt": MARKUP, "completion": MARKUP, MARKUP: 0.5})
    with browse(DemoConfig(port=0, runs=[str(short_run), str(harmful)])) as seen:
        yield seen
        assert seen.said == [], "errors of the console"
        assert seen.asked == [], "requests to others"


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
    source(browsed, "#draw_shown")
    assert time.monotonic() - began < 10


def test_the_film_goes_back_and_its_positions_are_colored(browsed: Browsed) -> None:
    last = source(browsed, "#draw_shown")
    for change in (
        lambda: browsed.fill("#draw_step", "5"),
        lambda: browsed.tab.click("#draw_view >> text=log-prob"),
    ):
        change()
        browsed.tab.wait_for_function(
            "old => document.querySelector('#draw_shown img')?.getAttribute('src') !== old",
            arg=last,
        )
        last = source(browsed, "#draw_shown")


def test_two_drawings_are_side_by_side_under_their_checkpoints_names(browsed: Browsed) -> None:
    browsed.choose("#draw_beside", "mmada_careless")
    browsed.tab.click("#draw")
    browsed.tab.wait_for_selector("#draw_shown .traces > div:nth-child(2) img", timeout=60_000)
    names = browsed.texts("#draw_shown h4")
    assert names[0].endswith("mmada") and names[1].endswith("mmada_careless")
    drawn = browsed.tab.locator("#draw_shown img")
    left, right = (drawn.nth(n).bounding_box() for n in range(2))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]


def test_an_input_that_is_empty_is_named_on_the_page(browsed: Browsed) -> None:
    seed = "label:visible:has-text('seed')"
    browsed.fill(seed, "")
    browsed.tab.click("#draw")
    assert "seed is None; it must be a number" in browsed.texts(".toast-body")[0]
    browsed.fill(seed, "0")


def test_an_uploaded_image_is_answered_token_by_token(
    browsed: Browsed, question: tuple[str, Path]
) -> None:
    words, image = question
    browsed.turn_to("ask")
    example = source(browsed, "#image")
    browsed.tab.click("#image button[aria-label='Remove Image']")
    browsed.tab.set_input_files("#image input[type=file]", image)
    assert source(browsed, "#image") != example
    browsed.fill("#ask_prompt", words)
    browsed.tab.click("#ask")
    whole = browsed.texts("#ask_shown .tokens span")
    assert "purple" in "".join(whole)  # what the question is about
    browsed.fill("#ask_step", "1")
    browsed.wait_until("#ask_shown", MASKED)
    early = browsed.texts("#ask_shown .tokens span")
    assert len(early) == len(whole) and 0 < early.count(MASKED) < len(whole)
    assert all(token in (MASKED, last) for token, last in zip(early, whole, strict=True))


def rows(browsed: Browsed) -> list[str]:
    """The texts of the rows of the table, once it is filled."""
    browsed.tab.click("#show")
    browsed.tab.wait_for_timeout(1000)
    return browsed.texts("#completions .virtual-row, #completions tbody tr:visible")


@pytest.mark.parametrize(
    ("tab", "checkpoint"),
    [("draw", "shapes/checkpoints/flow"), ("write", "qwen3"), ("ask", "qwen3_vl")],
)
def test_every_kind_is_sampled_as_its_checkpoint_is_chosen(
    browsed: Browsed, tab: str, checkpoint: str
) -> None:
    browsed.turn_to(tab)
    browsed.choose(f"#{tab}_beside", "none")
    browsed.choose(f"#{tab}_checkpoint", checkpoint)
    sampler = "ode" if tab == "draw" else "autoregressive"
    browsed.tab.wait_for_function(
        "name => [...document.querySelectorAll('input')]"
        ".some(each => each.offsetParent && each.value === name)",
        arg=sampler,
    )
    browsed.tab.click(f"#{tab}")
    browsed.wait_until(f"#{tab}_shown h4", checkpoint)


def test_held_out_completions_of_the_end_are_beside_those_of_the_start(browsed: Browsed) -> None:
    browsed.turn_to("compare")
    browsed.choose("#of_step", "held out, step 2")
    alone = rows(browsed)
    browsed.choose("#other_step", "held out, step 0")
    both = rows(browsed)
    assert len(both) == len(alone) > 1
    assert all(two.count("\n") > one.count("\n") for one, two in zip(alone, both, strict=True))
    browsed.choose("#other_step", "none")


def test_markup_in_a_recorded_completion_is_shown_as_text(browsed: Browsed) -> None:
    browsed.choose("#of_run", "harmful")
    browsed.wait_until_value("#of_step", "sums, step 10")
    [row] = rows(browsed)
    assert row.count(MARKUP) == 2
    assert browsed.tab.locator("#completions img, #completions script").count() == 0
    assert browsed.tab.evaluate("window.harmed") is None


def test_a_narrow_window_shows_inputs_whole_and_enter_in_the_prompt_draws(browsed: Browsed) -> None:
    browsed.turn_to("draw")
    browsed.tab.set_viewport_size({"width": 360, "height": 800})
    drawn = source(browsed, "#draw_shown")
    browsed.fill("label:visible:has-text('seed')", "1")
    browsed.tab.focus("#draw_prompt textarea")
    browsed.tab.keyboard.press("Enter")
    browsed.tab.wait_for_function(
        "old => document.querySelector('#draw_shown img')?.getAttribute('src') !== old", arg=drawn
    )
    for place in ("#draw", "#draw_checkpoint", "#draw_prompt", "#draw_shown img"):
        box = browsed.tab.locator(place).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360, place


def test_a_request_under_another_host_name_is_refused(browsed: Browsed) -> None:
    assert httpx.get(browsed.address).status_code == 200
    other = httpx.get(browsed.address, headers={"host": "example.org"})
    assert other.status_code == 400
