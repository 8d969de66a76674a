"""The inputs of a sampler, shared by the tabs that sample, and what is sampled with them."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.demo.checkpoints import Checkpoints
from mmrl.demo.traces import Trace, read_sampler, sample_trace
from mmrl.samplers import RULES, SamplerConfig
from mmrl.types import Prompt

NONE = "none"
"""In a list of checkpoints: no second one."""


class Filled(NamedTuple):
    """What the inputs say: the sampler, the seed, and the positions of a text."""

    config: SamplerConfig
    seed: int
    length: int | None


def build_form(
    name: str, steps: int, temperature: float, more: str = "", positions: int = 0
) -> list[Any]:
    """Lay the inputs out in the current place of the page, with these first values; no positions
    for images. `read_form` takes their values in this order."""
    import gradio as gr

    with gr.Row():
        rule = gr.Dropdown(list(RULES), value=name, label="rule", min_width=120)
        count = gr.Number(steps, label="steps", precision=0, minimum=1, min_width=80)
        heat = gr.Number(temperature, label="temperature", minimum=0, step=0.1, min_width=80)
        scale = gr.Number(0, label="cfg_scale", minimum=0, step=0.5, min_width=80)
        seed = gr.Number(0, label="seed", precision=0, min_width=80)
        length = gr.Number(positions, label="positions", precision=0, min_width=80)
        length.minimum, length.maximum, length.visible = min(1, positions), 4096, positions > 0
        others = gr.Textbox(more, label="more settings", placeholder="top_k=50", min_width=200)
    return [rule, count, heat, scale, others, seed, length]


def read_form(
    name: str,
    steps: float,
    temperature: float,
    cfg_scale: float,
    more: str,
    seed: float,
    positions: float,
) -> Filled:
    """Read the inputs.

    Raises:
        ConfigError: an empty input, and see `read_sampler`.
    """
    scales = {"temperature": temperature, "cfg_scale": cfg_scale}
    check_filled(steps=steps, **scales, seed=seed, positions=positions)
    config = read_sampler({"name": name, "steps": int(steps), **scales}, more)
    return Filled(config, int(seed), int(positions) or None)


def sample_each(
    checkpoints: Checkpoints, names: Iterable[str], prompt: Prompt, form: Filled
) -> dict[str, Trace]:
    """Sample a prompt with each checkpoint, with the same draws.

    Raises:
        ValueError: see `sample_trace`; an empty prompt.
    """
    if not prompt.text.strip():
        raise ValueError("prompt is empty; write one")
    return {
        name: sample_trace(checkpoints.load(name), prompt, *form)
        for name in dict.fromkeys(names)
        if name != NONE
    }


def check_filled(**numbers: float | None) -> None:
    """Check inputs by their labels: one that was emptied has the value None.

    Raises:
        ConfigError: there is one.
    """
    for label, number in numbers.items():
        if number is None:
            raise ConfigError(f"{label} is empty; give a number.")


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
