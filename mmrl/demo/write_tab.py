"""The tab write: a text token by token, by one or two checkpoints."""

from __future__ import annotations

from typing import Any

from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import View
from mmrl.demo.sampler_form import SamplerForm, build_form, check_filled, shows_errors
from mmrl.demo.trace_viewer import Viewer
from mmrl.demo.traces import Trace, sample_trace
from mmrl.types import Prompt

TASK, NONE = "text", "none"
PROMPT = "compute 4*4"


def write(
    checkpoints: Checkpoints, text: str, names: list[str], length: float, seed: float, *sampler: Any
) -> dict[str, Trace]:
    """Write one prompt with the same draws by each checkpoint.

    Raises:
        ValueError: see `sample_trace`; an empty input.
    """
    check_filled(positions=length, seed=seed)
    if not text.strip():
        raise ValueError("prompt is empty; write something")
    config, prompt = SamplerForm.read(*sampler), Prompt("0", TASK, text)
    return {
        name: sample_trace(checkpoints.load(name), prompt, config, int(seed), int(length))
        for name in names
    }


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
        length = gr.Number(24, label="positions", precision=0, minimum=1, maximum=4096)
    form = build_form("static", 12, 0.0, "block_size=8")
    button = gr.Button("Write", variant="primary", elem_id="write")
    viewer = Viewer("write")

    def run(text: str, one: str, other: str, n: float, how: View, *inputs: Any) -> Any:
        *sampler, seed = inputs
        names = list(dict.fromkeys(name for name in (one, other) if name != NONE))
        return viewer.fill(write(checkpoints, text, names, n, seed, *sampler), how)

    button.click(
        shows_errors(run),
        [prompt, left, right, length, viewer.view, *form],
        viewer.outputs,
        concurrency_id="model",
        api_visibility="private",
    )
