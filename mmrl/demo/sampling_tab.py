"""The tabs draw, write and ask: a prompt, and what one or two checkpoints write step by step."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from PIL import Image

from mmrl.config import check
from mmrl.data.prompts import load_prompts
from mmrl.demo.checkpoints import Checkpoints, kind_of
from mmrl.demo.demo_config import DATASETS
from mmrl.demo.trace_view import LEGENDS, View, show_traces
from mmrl.demo.traces import Trace, read_sampler, sample_trace
from mmrl.generation.kinds import SAMPLERS
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt

NONE = "none"
"""In a list: no second one."""
EXAMPLES = DATASETS / "shapes" / "questions_validation.jsonl"


APPENDED = ("autoregressive", 24, 0, 0, "")


@dataclass(frozen=True)
class SamplingTab:
    """What a tab samples, and its inputs as the page opens: a sampler, for each kind of generation,
    has rule, steps, temperature, guidance and other settings, `positions` of a text are 0 for
    images, and the checkpoint comes first whose name has `likes` in it."""

    name: str
    task: str
    about: str
    prompt: str
    samplers: Mapping[str, tuple[str, int, float, float, str]]
    positions: int = 0
    likes: str = ""
    view: View = "step"


TABS = (
    SamplingTab(
        "draw",
        "text_to_image",
        "An image of a prompt, by one or two checkpoints, after each denoising step.",
        "a red circle right of a blue ring",
        # with the first checkpoint and seed 0 the drawing is right
        {"masked": ("emerge", 48, 0.5, 0, ""), "flow": ("ode", 12, 0, 1, "")},
        view="result",
    ),
    SamplingTab(
        "animate",
        "text_to_video",
        "A video of a prompt, by one or two checkpoints, after each denoising step.",
        "a red circle moves to the right",
        {"flow": ("ode", 20, 0, 0, "")},
        view="result",
    ),
    SamplingTab(
        "write",
        "text",
        "A text, token by token, by one or two checkpoints.",
        "compute 4*4",
        {"masked": ("static", 12, 0, 0, "block_size=8"), "causal": APPENDED},
        24,
        "text/",
    ),
    SamplingTab(
        "ask",
        "image_to_text",
        "A question about an image, and the answer token by token.",
        "how many circles are there?\nA. 1\nB. 2\nC. 3\nD. 4",
        {"masked": ("static", 6, 0, 0, "block_size=8 eos=stop"), "causal": APPENDED},
        24,
        "llada_v",
    ),
)


def example_question() -> tuple[Image.Image | None, str]:
    """A shipped image and a question about it; no image where the data is not there."""
    if not EXAMPLES.is_file():
        return None, TABS[-1].prompt
    [question] = load_prompts(str(EXAMPLES), "image_to_text", limit=1)
    return (question.images or [None])[0], question.text


def build_sampling_tab(tab: SamplingTab, checkpoints: Checkpoints, able: Sequence[str]) -> None:
    """Lay out a tab, of the checkpoints that are able to do its task."""
    import gradio as gr

    gr.Markdown(tab.about)
    asks = tab.task == "image_to_text"
    image, prompt, left, beside = _build_inputs(tab, asks, able)
    opened = tab.samplers[kind_of(checkpoints.models[left.value])]
    form = _build_form(*opened, tab.positions)
    button = gr.Button(tab.name.capitalize(), variant="primary", elem_id=tab.name)
    with gr.Row():
        most = opened[1]
        step = gr.Slider(0, most, most, step=1, label="after step", elem_id=f"{tab.name}_step")
        view = gr.Radio(list(LEGENDS), value=tab.view, label="shown", elem_id=f"{tab.name}_view")
    shown, traces = gr.HTML(elem_id=f"{tab.name}_shown"), gr.State({})

    def run(shown_image: Any, text: str, one: str, other: str, how: View, *inputs: Any) -> Any:
        check(bool(text.strip()), "prompt", text, "a text")
        images = [] if shown_image is None else [shown_image.convert("RGB")]
        check(bool(images) == asks, "image", None, "an image")
        prompt = Prompt("0", tab.task, text.strip(), images=images)
        sample = _read_form(*inputs)
        names = [name for name in dict.fromkeys((one, other)) if name != NONE]
        found = {name: sample(checkpoints.load(name), prompt) for name in names}
        steps = max(trace.steps for trace in found.values())
        return found, gr.Slider(maximum=steps, value=steps), show_traces(found, steps, how)

    left.change(
        lambda name: tab.samplers[kind_of(checkpoints.models[name])],
        left,
        form[:5],
        show_progress="hidden",
        api_visibility="private",
    )
    gr.on(
        [button.click, prompt.submit],
        shows_errors(run),
        [image, prompt, left, beside, view, *form],
        [traces, step, shown],
        concurrency_id="model",
        api_visibility="private",
    )
    gr.on(
        [step.input, view.input],
        lambda found, after, how: show_traces(found, int(after), how),
        [traces, step, view],
        shown,
        show_progress="hidden",
        trigger_mode="always_last",
        api_visibility="private",
    )


def _build_inputs(tab: SamplingTab, asks: bool, able: Sequence[str]) -> list[Any]:
    """Lay out the image, shown where a question is asked, the prompt and two checkpoints."""
    import gradio as gr

    first_image, text = example_question() if asks else (None, tab.prompt)
    with gr.Row():
        look = {"type": "pil", "sources": ["upload"], "format": "png", "height": 336}
        image = gr.Image(first_image, label="image", elem_id="image", visible=asks, **look)
        prompt = gr.Textbox(text, label="prompt", elem_id=f"{tab.name}_prompt")
    first = next((name for name in able if tab.likes in name), able[0])
    with gr.Row():
        place, other = f"{tab.name}_checkpoint", f"{tab.name}_beside"
        left = gr.Dropdown([*able], value=first, label="checkpoint", elem_id=place)
        beside = gr.Dropdown([NONE, *able], value=NONE, label="beside it", elem_id=other)
    return [image, prompt, left, beside]


def _build_form(
    name: str, steps: int, temperature: float, cfg_scale: float, more: str, positions: int
) -> list[Any]:
    """Lay out the inputs of a sampler with these first values, in the order of `_read_form`."""
    import gradio as gr

    with gr.Row():
        rule = gr.Dropdown(list(SAMPLERS), value=name, label="sampler", min_width=120)
        count = gr.Number(steps, label="steps", precision=0, minimum=1, min_width=80)
        heat = gr.Number(temperature, label="temperature", minimum=0, step=0.1, min_width=80)
        scale = gr.Number(cfg_scale, label="cfg_scale", minimum=0, step=0.5, min_width=80)
        seed = gr.Number(0, label="seed", precision=0, min_width=80)
        about = {"label": "positions", "visible": positions > 0, "maximum": 4096, "min_width": 80}
        length = gr.Number(positions, precision=0, minimum=min(1, positions), **about)
        others = gr.Textbox(more, label="more settings", placeholder="top_k=50", min_width=200)
    return [rule, count, heat, scale, others, seed, length]


def _read_form(
    name: str, steps: Any, temperature: Any, cfg_scale: Any, more: str, seed: Any, positions: Any
) -> Callable[..., Trace]:
    """What samples a prompt by a policy as the inputs say, without those that the sampler has not;
    equal inputs give equal draws. Raises ConfigError: an empty input, and see `read_sampler`."""
    found = {"steps": steps, "temperature": temperature, "cfg_scale": cfg_scale}
    found |= {"seed": seed, "positions": positions}
    for label, number in found.items():
        check(number is not None, label, number, "a number")
    seed, length = (int(found.pop(label)) for label in ("seed", "positions"))
    has = {each.name for each in fields(SamplerConfig(name=name))}
    settings = {key: value for key, value in found.items() if key in has}
    config = read_sampler({"name": name, **settings}, more)
    return functools.partial(sample_trace, config=config, seed=seed, length=length or None)


def shows_errors(work: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an error of the user into a message on the page; others keep their traceback."""

    @functools.wraps(work)
    def safe(*values: Any) -> Any:
        import gradio as gr

        try:
            return work(*values)
        except (ValueError, OSError) as error:
            raise gr.Error(html.escape(str(error)), print_exception=False) from error

    return safe
