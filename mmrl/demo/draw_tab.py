"""The tab draw: a prompt, one or two checkpoints, and their denoising step by step."""

from __future__ import annotations

from typing import Any

from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import VIEWS, View
from mmrl.demo.frames import SIDE, describe, draw_frame, legend
from mmrl.demo.sampler_form import SamplerForm, build_form, shows_errors
from mmrl.demo.traces import Trace, sample_trace
from mmrl.types import Prompt

TASK, NONE = "text_to_image", "none"
PROMPT = "a red circle left of a blue ring"


def draw(
    checkpoints: Checkpoints, text: str, names: list[str], seed: int, *sampler: Any
) -> list[Trace]:
    """Draw one prompt with the same draws by each checkpoint.

    Raises:
        ValueError: see `sample_trace`; an empty prompt.
    """
    if not text.strip():
        raise ValueError("prompt is empty; write what to draw")
    config = SamplerForm.read(*sampler)
    prompt = Prompt("0", TASK, text.strip())
    return [sample_trace(checkpoints.load(name), prompt, config, int(seed)) for name in names]


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
        right = gr.Dropdown([NONE, *able], value=NONE, label="beside it")
    form = build_form("emerge", 20, 0.5)
    button = gr.Button("Draw", variant="primary", elem_id="draw")
    with gr.Row():
        step = gr.Slider(0, 20, 20, step=1, label="after step", buttons=[], elem_id="draw_step")
        view = gr.Radio(list(VIEWS), value="result", label="shown", elem_id="draw_view")
    note = gr.Markdown()
    with gr.Row():
        shown = [_image(n) for n in range(2)]
    with gr.Row():
        lines = [gr.Markdown() for _ in shown]
    traces = gr.State([])

    def show(drawn: list[Trace], after: float, how: View) -> list[Any]:
        frames = [draw_frame(trace, int(after), how) for trace in drawn]
        empty = 2 - len(drawn)
        images = [gr.Image(value=frame, visible=True) for frame in frames]
        images += [gr.Image(value=None, visible=False)] * empty
        described = [*map(describe, drawn), *[""] * empty]
        return [legend(how, drawn[0].steps) if drawn else "", *images, *described]

    def run(text: str, first: str, second: str, how: View, *inputs: Any) -> list[Any]:
        *sampler, seed = inputs
        names = [name for name in (first, second) if name != NONE]
        drawn = draw(checkpoints, text, names, seed, *sampler)
        steps = max(trace.steps for trace in drawn)
        return [drawn, gr.Slider(maximum=steps, value=steps), *show(drawn, steps, how)]

    outputs = [note, *shown, *lines]
    gr.on(
        [button.click, prompt.submit],
        shows_errors(run),
        [prompt, left, right, view, *form],
        [traces, step, *outputs],
        concurrency_id="model",
        api_visibility="private",
    )
    for change in (step.input, view.input):
        change(
            show,
            [traces, step, view],
            outputs,
            show_progress="hidden",
            trigger_mode="always_last",
            api_visibility="private",
        )


def _image(number: int) -> Any:
    import gradio as gr

    return gr.Image(
        format="png",
        height=SIDE + 40,
        interactive=False,
        buttons=["download"],
        show_label=False,
        visible=number == 0,
        elem_id=f"drawn_{number}",
    )
