"""What a newcomer sees first: a click on a tab's button, with every input as the page opens."""

from pathlib import Path
from typing import Any

import pytest

from mmrl.demo.checkpoints import Checkpoints, find_checkpoints, find_runs
from mmrl.demo.demo_config import DemoConfig
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample
from tests.mmrl.demo.test_runs import GOOD, write_rows

RING = {"class": "ring", "count": 1, "color": "blue"}
CIRCLE = {"class": "circle", "count": 1, "color": "red", "position": ["right of", 0]}


@pytest.fixture(scope="module")
def offered() -> Checkpoints:
    return Checkpoints(find_checkpoints(DemoConfig(runs=[])), "cpu", 1)


def build(offered: Checkpoints, runs: dict[str, Path]) -> Any:
    pytest.importorskip("gradio")
    from mmrl.demo.page import build_page

    return build_page(offered, runs)


def click(page: Any, place: str) -> tuple[list[Any], Any]:
    """The values of the inputs as the page opens, and what a click on the button returns."""
    [button] = [n for n, each in page.blocks.items() if getattr(each, "elem_id", "") == place]
    [work] = [each for each in page.fns.values() if (button, "click") in each.targets]
    values = [each.preprocess(each.postprocess(each.value)) for each in work.inputs]
    return values, work.fn(*values)


def test_the_first_drawing_shows_what_its_prompt_asks_for(offered: Checkpoints) -> None:
    values, (traces, *_) = click(build(offered, {}), "draw")
    assert values[1] == "a red circle right of a blue ring"
    [drawn] = traces.values()
    metadata = {"tag": "position", "include": [RING, CIRCLE]}
    asked = Prompt("0", "text_to_image", values[1], metadata=metadata)
    assert build_reward({"name": "shapes"})([Sample.of(asked, drawn.completion)]) == [1.0]


def test_the_first_text_is_right(offered: Checkpoints) -> None:
    values, (traces, *_) = click(build(offered, {}), "write")
    [written] = traces.values()
    assert values[1] == "compute 4*4" and "16" in str(written.completion)
    assert written.blocks == tuple(n // 8 for n in range(len(written.tokens)))


def test_the_first_comparison_shows_the_last_step(offered: Checkpoints, tmp_path: Path) -> None:
    write_rows(tmp_path, GOOD)
    _, table = click(build(offered, find_runs([str(tmp_path)])), "show")
    assert table.headers == ["prompt", "completion", "reward", "advantage"]
