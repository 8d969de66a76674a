"""The tab write: a text token by token, by one or two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import View
from mmrl.demo.sampler_form import NONE, build_form, read_form, sample_each, shows_errors
from mmrl.demo.trace_viewer import Viewer
from mmrl.demo.traces import Trace
from mmrl.types import Prompt

TASK = "text"
PROMPT = "compute 4*4"


def write(
    checkpoints: Checkpoints, names: Sequence[str], text: str, *inputs: Any
) -> dict[str, Trace]:
    """Write one prompt with the same draws by each checkpoint.

    Raises:
        ValueError: see `sample_each` and `read_form`.
    """
    return sample_each(checkpoints, names, Prompt("0", TASK, text), read_form(*inputs))


def build_write_tab(checkpoints: Checkpoints) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    able = able_to(TASK, checkpoints.models)
    if not able:
        gr.Markdown("None of the checkpoints writes texts.")
        return
    first = next((name for name in able if "text/" in name), able[0])
    prompt = gr.Textbox(PROMPT, label="prompt", lines=2)
    with gr.Row():
        left = gr.Dropdown(able, value=first, label="checkpoint")
        right = gr.Dropdown([NONE, *able], value=NONE, label="beside it")
    form = build_form("static", 12, 0.0, "block_size=8", 24)
    button = gr.Button("Write", variant="primary", elem_id="write")
    viewer = Viewer("write")

    def run(text: str, one: str, other: str, how: View, *inputs: Any) -> Any:
        return viewer.fill(write(checkpoints, (one, other), text, *inputs), how)

    button.click(
        shows_errors(run),
        [prompt, left, right, viewer.view, *form],
        viewer.outputs,
        concurrency_id="model",
        api_visibility="private",
    )
