"""The tab draw: a prompt, one or two checkpoints, and their denoising step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import VIEWS, View
from mmrl.demo.frames import SIDE, describe, draw_frame, legend
from mmrl.demo.sampler_form import NONE, build_form, read_form, sample_each, shows_errors
from mmrl.demo.traces import Trace
from mmrl.types import Prompt

TASK = "text_to_image"
PROMPT, STEPS = "a red circle right of a blue ring", 48
"""With the first checkpoint and seed 0 the drawing is right."""


def show_frames(drawn: Mapping[str, Trace], after: float, how: View) -> list[Any]:
    """The legend, two images under the names of their checkpoints, and a line about each; what has
    no drawing is hidden."""
    import gradio as gr

    images = [
        gr.Image(value=draw_frame(trace, int(after), how), label=name, visible=True)
        for name, trace in drawn.items()
    ]
    lines = [gr.Markdown(describe(trace), visible=True) for trace in drawn.values()]
    missing = 2 - len(drawn)
    images += [gr.Image(value=None, visible=False)] * missing
    lines += [gr.Markdown(visible=False)] * missing
    first = next(iter(drawn.values()), None)
    return ["" if first is None else legend(how, first.steps), *images, *lines]


def build_draw_tab(checkpoints: Checkpoints) -> None:
    """Lay out the tab in the current place of the page."""
    import gradio as gr

    able = able_to(TASK, checkpoints.models)
    if not able:
        gr.Markdown("None of the checkpoints writes images.")
        return
    prompt = gr.Textbox(PROMPT, label="prompt", elem_id="draw_prompt")
    with gr.Row():
        left = gr.Dropdown(able, value=able[0], label="checkpoint")
        right = gr.Dropdown([NONE, *able], value=NONE, label="beside it", elem_id="draw_beside")
    form = build_form("emerge", STEPS, 0.5)
    button = gr.Button("Draw", variant="primary", elem_id="draw")
    with gr.Row():
        step = gr.Slider(
            0, STEPS, STEPS, step=1, label="after step", buttons=[], elem_id="draw_step"
        )
        view = gr.Radio(list(VIEWS), value="result", label="shown", elem_id="draw_view")
    note = gr.Markdown()
    with gr.Row():
        look = {"format": "png", "buttons": ["download"], "interactive": False, "visible": False}
        tall = SIDE + 64  # the name of the checkpoint is above the image
        shown = [gr.Image(height=tall, elem_id=f"drawn_{n}", **look) for n in range(2)]
    with gr.Row():
        lines = [gr.Markdown(visible=False) for _ in shown]
    traces = gr.State({})

    def run(text: str, first: str, second: str, how: View, *inputs: Any) -> list[Any]:
        prompt = Prompt("0", TASK, text.strip())
        drawn = sample_each(checkpoints, (first, second), prompt, read_form(*inputs))
        steps = max(trace.steps for trace in drawn.values())
        return [drawn, gr.Slider(maximum=steps, value=steps), *show_frames(drawn, steps, how)]

    outputs = [note, *shown, *lines]
    gr.on(
        [button.click, prompt.submit],
        shows_errors(run),
        [prompt, left, right, view, *form],
        [traces, step, *outputs],
        concurrency_id="model",
        api_visibility="private",
    )
    gr.on(
        [step.input, view.input],
        show_frames,
        [traces, step, view],
        outputs,
        show_progress="hidden",
        trigger_mode="always_last",
        api_visibility="private",
    )
