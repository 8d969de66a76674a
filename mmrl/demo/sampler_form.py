"""The inputs of a sampler, shared by the tabs that sample."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.demo.traces import read_sampler
from mmrl.samplers import RULES, SamplerConfig


class SamplerForm(NamedTuple):
    """Components in the order in which `read` takes their values."""

    name: Any
    steps: Any
    temperature: Any
    cfg_scale: Any
    more: Any
    seed: Any

    @staticmethod
    def read(
        name: str, steps: float, temperature: float, cfg_scale: float, more: str
    ) -> SamplerConfig:
        """The sampler that the inputs describe.

        Raises:
            ConfigError: an empty input, and see `read_sampler`.
        """
        check_filled(steps=steps, temperature=temperature, cfg_scale=cfg_scale)
        settings = {"name": name, "steps": int(steps)}
        scales = {"temperature": float(temperature), "cfg_scale": float(cfg_scale)}
        return read_sampler({**settings, **scales}, more)


def build_form(name: str, steps: int, temperature: float, more: str = "") -> SamplerForm:
    """Lay the inputs out in the current place of the page, with these first values."""
    import gradio as gr

    with gr.Row():
        rule = gr.Dropdown(list(RULES), value=name, label="rule", min_width=120)
        count = gr.Number(steps, label="steps", precision=0, minimum=1, min_width=80)
        heat = gr.Number(temperature, label="temperature", minimum=0, step=0.1, min_width=80)
        scale = gr.Number(0, label="cfg_scale", minimum=0, step=0.5, min_width=80)
        seed = gr.Number(0, label="seed", precision=0, min_width=80)
        others = gr.Textbox(more, label="more settings", placeholder="top_k=50", min_width=200)
    return SamplerForm(rule, count, heat, scale, others, seed)


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
