"""The tab runs in a real browser, with runs that were trained here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.run_files import find_completions, read_completions
from tests.mmrl.demo.browsed import Browsed, browse, needs_chromium
from tests.mmrl.demo.test_written import GOOD, write_rows

pytestmark = needs_chromium
MARKUP = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
CELLS = "#completions .completions > div"


@pytest.fixture(scope="module")
def browsed(short_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    harmful = tmp_path_factory.mktemp("harmful")
    write_rows(harmful, {**GOOD, "prompt": MARKUP, "completion": MARKUP, MARKUP: 0.5})
    with browse(DemoConfig(port=0, runs=[str(short_runs), str(harmful)])) as seen:
        seen.turn_to("runs")
        yield seen


def show(browsed: Browsed, containing: str = "") -> list[str]:
    """Show the completions that contain some words; return their texts."""
    browsed.fill("#containing", "what no completion says")
    browsed.tab.click("#show")
    browsed.wait_until("#completions", "No completions.")
    browsed.fill("#containing", containing)
    browsed.tab.click("#show")
    return browsed.texts(CELLS)


def score(cell: str, key: str) -> float:
    """A score that a completion is shown with."""
    [line] = [line for line in cell.splitlines() if line.startswith(f"{key}: ")]
    return float(line.partition(": ")[2])


def test_completions_of_a_step_come_by_reward_with_advantage_and_components(
    browsed: Browsed, short_runs: Path
) -> None:
    cells = show(browsed)
    recorded = read_completions(find_completions(short_runs / "fast")["arithmetic, step 2"])
    rewards = [score(cell, "reward") for cell in cells]
    assert rewards == sorted((round(row["reward"], 3) for row in recorded), reverse=True)
    assert len(set(rewards)) > 1
    for cell in cells:
        assert score(cell, "reward") == score(cell, "math") + 0.5 * score(cell, "format")
    shown = sorted(score(cell, "advantage") for cell in cells)
    assert shown == sorted(round(row["advantage"], 3) for row in recorded)


def test_completions_are_filtered_by_words(browsed: Browsed) -> None:
    every = show(browsed)
    words = every[0].splitlines()[0]
    assert show(browsed, containing=words.upper()) == [c for c in every if words in c]


def test_held_out_completions_of_the_end_are_beside_those_of_the_start(browsed: Browsed) -> None:
    browsed.choose("#of_step", "held out, step 2")
    alone = show(browsed)
    browsed.choose("#other_step", "held out, step 0")
    both = show(browsed)
    assert len(both) == len(alone)
    assert all(len(two) > len(one) for one, two in zip(alone, both, strict=True))
    browsed.choose("#other_step", "none")


def test_scores_to_sort_by_follow_the_chosen_step(browsed: Browsed) -> None:
    browsed.choose("#of_step", "held out, step 0")
    browsed.wait_until_value("#sorted_by", "format")
    scores = [score(cell, "format") for cell in show(browsed)]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1


def test_markup_in_a_recorded_completion_is_shown_as_text(browsed: Browsed) -> None:
    browsed.choose("#of_run", "harmful")
    browsed.wait_until_value("#of_step", "sums, step 10")
    [cell] = show(browsed)
    assert cell.count(MARKUP) == 3
    assert browsed.tab.locator("#completions img, #completions script").count() == 0
    assert browsed.tab.evaluate("window.harmed") is None


def test_at_the_end_the_console_has_no_errors_and_nothing_was_asked_elsewhere(
    browsed: Browsed,
) -> None:
    assert browsed.said == [] and browsed.asked == []
