"""The tab ask: an image, a question, and the answer token by token."""

from __future__ import annotations

import base64
import json
from typing import Any

from PIL import Image

from mmrl.data.lazy_images import LazyImage
from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import View
from mmrl.demo.demo_config import DATASETS
from mmrl.demo.sampler_form import build_form, read_form, sample_each, shows_errors
from mmrl.demo.trace_viewer import Viewer
from mmrl.types import Prompt

TASK = "image_to_text"
QUESTION = "how many circles are there?\nA. 1\nB. 2\nC. 3\nD. 4"
EXAMPLES = DATASETS / "shapes" / "questions_validation.jsonl"


def example() -> tuple[Image.Image | None, str]:
    """A shipped image and a question about it; no image where the data is not there."""
    if not EXAMPLES.is_file():
        return None, QUESTION
    with EXAMPLES.open(encoding="utf-8") as lines:
        row = json.loads(next(lines))
    content = base64.b64decode(row["image"].partition(",")[2])
    return LazyImage(content, str(EXAMPLES)).open(), row["question"]


def build_ask_tab(checkpoints: Checkpoints) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    able = able_to(TASK, checkpoints.models)
    if not able:
        gr.Markdown("None of the checkpoints answers questions about images.")
        return
    first = next((name for name in able if "question" in name), able[0])
    shown, asked = example()
    with gr.Row():
        image = gr.Image(
            shown,
            type="pil",
            sources=["upload"],
            format="png",
            height=336,
            label="image",
            elem_id="image",
        )
        with gr.Column():
            question = gr.Textbox(asked, label="question", lines=5, elem_id="question")
            name = gr.Dropdown(able, value=first, label="checkpoint")
    form = build_form("static", 6, 0.0, "block_size=8 eos=stop", 24)
    button = gr.Button("Ask", variant="primary", elem_id="ask")
    answer = gr.Textbox(label="answer", interactive=False, elem_id="answer")
    viewer = Viewer("ask")

    def run(shown: Any, text: str, chosen: str, how: View, *inputs: Any) -> Any:
        if shown is None:
            raise ValueError("image is empty; give one")
        prompt = Prompt("0", TASK, text, images=[shown.convert("RGB")])
        found = sample_each(checkpoints, [chosen], prompt, read_form(*inputs))
        return [found[chosen].completion, *viewer.fill(found, how)]

    button.click(
        shows_errors(run),
        [image, question, name, viewer.view, *form],
        [answer, *viewer.outputs],
        concurrency_id="model",
        api_visibility="private",
    )
