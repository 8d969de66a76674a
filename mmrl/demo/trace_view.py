"""A trace as HTML: what is written after a step, coloured by step or by log-prob."""

import html
import math
from collections.abc import Mapping
from typing import Literal

from PIL import Image, ImageDraw

from mmrl.demo.traces import Trace
from mmrl.run.image_grid import cell_boxes, painted, scale
from mmrl.run.sample_files import embed
from mmrl.types import Video

View = Literal["result", "step", "log-prob"]
LEGENDS: dict[View, str] = {
    "result": "grey: not yet written",
    "step": "dark: the first step; yellow: the last",
    "log-prob": "red: probability of 0.05 or less when written; white: 0.2; blue: 1",
}
"""What the colours of a view mean."""
LOWEST = -3.0
"""Log-prob from which on colours stay the same: a probability of 0.05."""
SIDE = 384
"""Width of an image in pixels."""
MASKED = "▒"
VISIBLE = str.maketrans({"\n": "⏎", " ": "␣", "\t": "⇥"})
STYLE = """
.traces {display: flex; flex-wrap: wrap; gap: 1rem}
.traces > div {flex: 1 1 20rem}
.tokens {line-height: 2.1; font-family: monospace; font-size: 1rem; color: #000}
.tokens span {display: inline-block; padding: 0 .3em; margin: 1px; border: 1px solid #bbb;
 border-radius: 4px; text-align: center; white-space: pre; background: #fff}
.tokens span.open {color: #999; background: #e4e4e4}
.tokens i {display: inline-block; width: 2px; height: 1.5em; background: #888; margin: 0 .4em;
 vertical-align: middle}
"""


def show_traces(traces: Mapping[str, Trace], after: int, view: View) -> str:
    """What each trace has written after some steps, 0 for none, under the name of its checkpoint
    and above how it was written; what models wrote is escaped."""
    if not traces:
        return ""
    parts = []
    for name, trace in traces.items():
        text = isinstance(trace.completion, str)
        shown = _tokens(trace, after, view) if text else embed(draw_frame(trace, after, view), SIDE)
        parts.append(f"<div><h4>{html.escape(name)}</h4>{shown}<p>{describe(trace)}</p></div>")
    return f'<p>{LEGENDS[view]}</p><div class="traces">{"".join(parts)}</div>'


def draw_frame(trace: Trace, after: int, view: View = "result") -> Image.Image | Video:
    """The image of a trace after some steps, or its video; positions not yet written are grey."""
    if trace.frames:
        frame = trace.frames[min(after, len(trace.frames) - 1)]
        return scale(frame, SIDE) if isinstance(frame, Image.Image) else frame
    assert isinstance(trace.completion, Image.Image) and trace.grid is not None
    shown = scale(trace.completion, SIDE)
    if view != "result":
        draw = ImageDraw.Draw(shown)
        for n, box in enumerate(cell_boxes(shown.size, trace.grid)):
            draw.rectangle(box, fill=position_color(trace, n, view))
    return painted(shown, trace.written_at, trace.grid, after - 1)


def _tokens(trace: Trace, after: int, view: View) -> str:
    """The tokens of a text; a bar separates blocks, and a title says when and how surely."""
    parts = []
    for n, step in enumerate(trace.written_at):
        block = f", block {trace.blocks[n] + 1}" if trace.blocks else ""
        if n and trace.blocks and trace.blocks[n] != trace.blocks[n - 1]:
            parts.append("<i></i>")
        if step >= after:
            parts.append(f'<span class="open">{MASKED}</span>')
            continue
        red, green, blue = color = position_color(trace, n, view)
        ink = "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"
        chance = math.exp(min(trace.logprobs[n], 0.0))
        title = f"position {n + 1}{block}: step {step + 1}, probability {chance:.3f}"
        text = html.escape(trace.tokens[n].translate(VISIBLE))
        style = f"background:rgb{color};color:{ink}"
        parts.append(f'<span style="{style}" title="{title}">{text}</span>')
    return f'<div class="tokens">{"".join(parts)}</div>'


def position_color(trace: Trace, n: int, view: View) -> tuple[int, int, int]:
    """White; or dark for the first step and yellow for the last; or red for an unlikely token and
    blue for a certain one."""
    import matplotlib

    if view == "result":
        return 255, 255, 255
    if view == "step":
        name, share = "viridis", trace.written_at[n] / max(1, trace.steps - 1)
    else:
        name, share = "RdBu", 1 - min(trace.logprobs[n], 0.0) / LOWEST
    red, green, blue, _ = matplotlib.colormaps[name](max(0.0, share), bytes=True)
    return int(red), int(green), int(blue)


def describe(trace: Trace) -> str:
    """How a completion was written, in one line."""
    written, surely = "", ""
    if trace.logprobs:
        written = f"{len(trace.written_at)} positions in " * (not trace.frames)
        surely = f", mean log-prob {sum(trace.logprobs) / len(trace.logprobs):.2f}"
    cost = f"{trace.forwards} forward passes, {trace.seconds:.2f} s"
    return f"{written}{trace.steps} steps, {cost}{surely}"
