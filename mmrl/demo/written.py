"""A text token by token, as HTML: what is written after a step, coloured by step or log-prob."""

import html
import math
from collections.abc import Collection

from mmrl.demo.colors import View, position_colors, text_color
from mmrl.demo.traces import Trace

MASKED = "▒"
VISIBLE = str.maketrans({"\n": "⏎", " ": "␣", "\t": "⇥"})
STYLE = """
.tokens {line-height: 2.1; font-family: monospace; font-size: 1rem; color: #000}
.tokens span {display: inline-block; padding: 0 .3em; margin: 1px; border: 1px solid #bbb;
 border-radius: 4px; text-align: center; white-space: pre; background: #fff}
.tokens span.open {color: #999; background: #e4e4e4}
.tokens span.differs {border: 2px solid #d00}
.tokens i {display: inline-block; width: 2px; height: 1.5em; background: #888; margin: 0 .4em;
 vertical-align: middle}
"""


def write_tokens(
    trace: Trace, after: int, view: View = "result", marked: Collection[int] = ()
) -> str:
    """The tokens after some steps; a bar separates blocks, and a title says when and how surely.

    Args:
        trace: of a text. What it holds was written by a model and is escaped.
        after: steps done, 0 for none.
        view: white, or a colour for each token.
        marked: positions with a red border.
    """
    colors = position_colors(view, trace.written_at, trace.logprobs, trace.steps)
    parts = []
    for n, (step, color) in enumerate(zip(trace.written_at, colors, strict=True)):
        if n and trace.blocks and trace.blocks[n] != trace.blocks[n - 1]:
            parts.append("<i></i>")
        kind = "differs" if n in marked else ""
        if step >= after:
            parts.append(f'<span class="open {kind}">{MASKED}</span>')
            continue
        ink = f"background:rgb{color};color:{text_color(color)}"
        title = html.escape(describe_position(trace, n), quote=True)
        text = html.escape(trace.tokens[n].translate(VISIBLE))
        parts.append(f'<span class="{kind}" style="{ink}" title="{title}">{text}</span>')
    return f'<div class="tokens">{"".join(parts)}</div>'


def describe_position(trace: Trace, n: int) -> str:
    """When a position was written, and how probable its token was."""
    block = f", block {trace.blocks[n] + 1}" if trace.blocks else ""
    chance = math.exp(min(trace.logprobs[n], 0.0))
    return f"position {n + 1}{block}: step {trace.written_at[n] + 1}, probability {chance:.3f}"


def list_order(trace: Trace, after: int, most: int = 200) -> str:
    """A table of the tokens in the order in which they were written, at most `most` of them."""
    order = sorted(range(len(trace.tokens)), key=lambda n: (trace.written_at[n], n))
    rows = "".join(
        f"<tr><td>{trace.written_at[n] + 1}</td><td>{n + 1}</td>"
        f"<td>{html.escape(trace.tokens[n].translate(VISIBLE))}</td>"
        f"<td>{math.exp(min(trace.logprobs[n], 0.0)):.3f}</td></tr>"
        for n in order[:most]
        if trace.written_at[n] < after
    )
    head = "<tr><th>step</th><th>position</th><th>token</th><th>probability</th></tr>"
    return f"<table>{head}{rows}</table>"
