"""What a newcomer sees first: the click on Draw, with every input as the page opens, is right."""

import pytest

from mmrl.demo.checkpoints import Checkpoints, find_checkpoints
from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.page import build_page
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample

RING = {"class": "ring", "count": 1, "color": "blue"}
CIRCLE = {"class": "circle", "count": 1, "color": "red", "position": ["left of", 0]}


def test_the_first_drawing_shows_what_its_prompt_asks_for() -> None:
    pytest.importorskip("gradio")
    page = build_page(Checkpoints(find_checkpoints(DemoConfig(runs=[])), "cpu", 1), {})
    [button] = [n for n, each in page.blocks.items() if getattr(each, "elem_id", "") == "draw"]
    [click] = [each for each in page.fns.values() if (button, "click") in each.targets]
    values = [each.value for each in click.inputs]
    assert values[0] == "a red circle left of a blue ring"
    [drawn] = click.fn(*values)[0].values()
    metadata = {"tag": "position", "include": [RING, CIRCLE]}
    asked = Prompt("0", "text_to_image", values[0], metadata=metadata)
    assert build_reward({"name": "shapes"})([Sample.of(asked, drawn.completion)]) == [1.0]
