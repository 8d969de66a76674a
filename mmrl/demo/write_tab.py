"""The tab write: a text token by token, by one or two checkpoints, or as a run recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmrl.demo.checkpoints import Checkpoints, able_to
from mmrl.demo.colors import View
from mmrl.demo.compared import by_short_name
from mmrl.demo.recorded import open_rollout
from mmrl.demo.run_files import find_rollouts
from mmrl.demo.sampler_form import (
    NONE,
    build_form,
    check_filled,
    read_form,
    sample_each,
    shows_errors,
)
from mmrl.demo.trace_viewer import Viewer
from mmrl.demo.traces import Trace, differing
from mmrl.types import Prompt

TASK = "text"
PROMPT = "compute 4*4"
UNCACHED = "the same without cache"


def write(
    checkpoints: Checkpoints, names: Sequence[str], text: str, *inputs: Any
) -> dict[str, Trace]:
    """Write one prompt with the same draws by each checkpoint; where a cache is used, and one
    checkpoint alone writes, without it as well.

    Raises:
        ValueError: see `sample_each` and `read_form`.
    """
    form, prompt = read_form(*inputs), Prompt("0", TASK, text)
    found = sample_each(checkpoints, names, prompt, form)
    if form.config.cache != "none" and len(found) == 1:
        plain = form._replace(config=replace(form.config, cache="none", window=None))
        [found[UNCACHED]] = sample_each(checkpoints, names, prompt, plain).values()
    return found


def marked(traces: Mapping[str, Trace]) -> list[int]:
    """Positions where the two texts of a comparison with and without cache differ."""
    if UNCACHED not in traces:
        return []
    one, other = traces.values()
    return differing(one, other)


def build_write_tab(checkpoints: Checkpoints, runs: Mapping[str, Path]) -> None:
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
        found = write(checkpoints, (one, other), text, *inputs)
        return viewer.fill(found, how, marked(found))

    button.click(
        shows_errors(run),
        [prompt, left, right, viewer.view, *form],
        viewer.outputs,
        concurrency_id="model",
        api_visibility="private",
    )
    if runs:
        _build_recorded(viewer, runs)


def _build_recorded(viewer: Viewer, runs: Mapping[str, Path]) -> None:
    """The inputs that show a recorded rollout in the same viewer."""
    import gradio as gr

    with gr.Accordion("A recorded rollout of a run", open=False), gr.Row():
        run = gr.Dropdown(by_short_name(runs), value=None, label="run", elem_id="recorded_run")
        file = gr.Dropdown(
            [], label="completions", allow_custom_value=True, elem_id="recorded_step"
        )
        row = gr.Number(0, label="row", precision=0, minimum=0, elem_id="recorded_row")
        button = gr.Button("Show", min_width=80, elem_id="recorded_show")

    def offer(name: str) -> Any:
        files = list(find_rollouts(runs[name]))
        return gr.Dropdown(choices=files, value=files[-1] if files else None)

    def show(name: str, chosen: str, n: float, how: View) -> Any:
        if name not in runs:
            raise ValueError("run is empty; choose one")
        check_filled(row=n)
        title, trace = open_rollout(runs[name], chosen, int(n))
        if trace.grid is not None:
            raise ValueError("this completion is an image; the tab runs shows it")
        return viewer.fill({title: trace}, how)

    run.input(shows_errors(offer), run, file, api_visibility="private")
    button.click(
        shows_errors(show), [run, file, row, viewer.view], viewer.outputs, api_visibility="private"
    )
