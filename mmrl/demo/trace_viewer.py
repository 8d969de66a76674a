"""The viewer of texts: one or two traces, a slider over steps, and colours; the tabs share it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from mmrl.demo.colors import VIEWS, View
from mmrl.demo.frames import describe, legend
from mmrl.demo.traces import Trace
from mmrl.demo.written import write_tokens


def show_traces(traces: Mapping[str, Trace], after: int, view: View) -> str:
    """The HTML of the viewer: what is written after a step."""
    parts = [
        f"<h4>{html.escape(name)}</h4>{write_tokens(trace, after, view)}"
        f"<p>{html.escape(describe(trace))}</p>"
        for name, trace in traces.items()
    ]
    first = next(iter(traces.values()), None)
    note = "" if first is None else f"<p>{legend(view, first.steps)}</p>"
    return note + "".join(parts)


class Viewer:
    """The components of the viewer, laid out in the current place of the page."""

    def __init__(self, name: str) -> None:
        import gradio as gr

        with gr.Row():
            self.step = gr.Slider(
                0, 12, 12, step=1, label="after step", buttons=[], elem_id=f"{name}_step"
            )
            self.view = gr.Radio(list(VIEWS), value="step", label="shown", elem_id=f"{name}_view")
        self.shown = gr.HTML(elem_id=f"{name}_shown")
        self.traces = gr.State({})
        for change in (self.step.input, self.view.input):
            change(
                lambda traces, after, view: show_traces(traces, int(after), view),
                [self.traces, self.step, self.view],
                self.shown,
                show_progress="hidden",
                trigger_mode="always_last",
                api_visibility="private",
            )

    @property
    def outputs(self) -> list[Any]:
        """The components that `fill` fills."""
        return [self.traces, self.step, self.shown]

    def fill(self, traces: Mapping[str, Trace], view: View) -> Any:
        """What the components become with other traces, all steps done."""
        import gradio as gr

        steps = max(trace.steps for trace in traces.values())
        slider = gr.Slider(maximum=steps, value=steps)
        return [dict(traces), slider, show_traces(traces, steps, view)]
