"""What a newcomer sees first: a click on a tab's button, with every input as the page opens."""

from typing import Any

import pytest

from mmrl.demo.checkpoints import Checkpoints, find_checkpoints
from mmrl.demo.demo_config import DemoConfig
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample

RING = {"class": "ring", "count": 1, "color": "blue"}
CIRCLE = {"class": "circle", "count": 1, "color": "red", "position": ["right of", 0]}


@pytest.fixture(scope="module")
def page() -> Any:
    pytest.importorskip("gradio")
    from mmrl.demo.page import build_page

    return build_page(Checkpoints(find_checkpoints(DemoConfig(runs=[])), "cpu", 1), {})


def click(page: Any, place: str) -> tuple[list[Any], Any]:
    """The values of the inputs as the page opens, and what a click on the button returns."""
    [button] = [n for n, each in page.blocks.items() if getattr(each, "elem_id", "") == place]
    [work] = [each for each in page.fns.values() if (button, "click") in each.targets]
    values = [
        work.inputs[n].preprocess(work.inputs[n].postprocess(v))
        for n, v in enumerate(each.value for each in work.inputs)
    ]
    return values, work.fn(*values)


def test_the_first_drawing_shows_what_its_prompt_asks_for(page: Any) -> None:
    values, (traces, *_) = click(page, "draw")
    assert values[0] == "a red circle right of a blue ring"
    [drawn] = traces.values()
    metadata = {"tag": "position", "include": [RING, CIRCLE]}
    asked = Prompt("0", "text_to_image", values[0], metadata=metadata)
    assert build_reward({"name": "shapes"})([Sample.of(asked, drawn.completion)]) == [1.0]


def test_the_first_text_is_right(page: Any) -> None:
    values, (traces, *_) = click(page, "write")
    [written] = traces.values()
    assert values[0] == "compute 4*4" and "16" in str(written.completion)
