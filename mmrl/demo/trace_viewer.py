"""The viewer of texts: one or two traces, a slider over steps, colours, and the order of writing.

The tabs write and ask share it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.demo.colors import VIEWS, View
from mmrl.demo.frames import describe, legend
from mmrl.demo.traces import Trace
from mmrl.demo.written import list_order, write_tokens


def show_traces(
    traces: Mapping[str, Trace], after: int, view: View, marked: Sequence[int] = ()
) -> list[str]:
    """The HTML of the viewer: what is written after a step, and the order of the first trace."""
    parts = [
        f"<h4>{html.escape(name)}</h4>{write_tokens(trace, after, view, marked)}"
        f"<p>{html.escape(describe(trace))}</p>"
        for name, trace in traces.items()
    ]
    if marked:
        parts.append(f"<p>{len(marked)} positions differ; they have a red border.</p>")
    first = next(iter(traces.values()), None)
    note = "" if first is None else f"<p>{legend(view, first.steps)}</p>"
    order = "" if first is None else list_order(first, after)
    return [note + "".join(parts), order]


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
        with gr.Accordion("Order of writing", open=False):
            self.order = gr.HTML()
        self.traces, self.marked = gr.State({}), gr.State([])
        gr.on(
            [self.step.input, self.view.input],
            lambda traces, marked, after, view: show_traces(traces, int(after), view, marked),
            [self.traces, self.marked, self.step, self.view],
            [self.shown, self.order],
            show_progress="hidden",
            trigger_mode="always_last",
            api_visibility="private",
        )

    @property
    def outputs(self) -> list[Any]:
        """The components that `fill` fills."""
        return [self.traces, self.marked, self.step, self.shown, self.order]

    def fill(self, traces: Mapping[str, Trace], view: View, marked: Sequence[int] = ()) -> Any:
        """What the components become with other traces, all steps done."""
        import gradio as gr

        steps = max(trace.steps for trace in traces.values())
        slider = gr.Slider(maximum=steps, value=steps)
        return [dict(traces), list(marked), slider, *show_traces(traces, steps, view, marked)]
