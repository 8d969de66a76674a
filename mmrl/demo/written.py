"""A text token by token, as HTML: what is written after a step, coloured by step or log-prob."""

import html
import math

from mmrl.demo.colors import View, position_colors, text_color
from mmrl.demo.traces import Trace

MASKED = "▒"
VISIBLE = str.maketrans({"\n": "⏎", " ": "␣", "\t": "⇥"})
STYLE = """
.tokens {line-height: 2.1; font-family: monospace; font-size: 1rem; color: #000}
.tokens span {display: inline-block; padding: 0 .3em; margin: 1px; border: 1px solid #bbb;
 border-radius: 4px; text-align: center; white-space: pre; background: #fff}
.tokens span.open {color: #999; background: #e4e4e4}
.tokens i {display: inline-block; width: 2px; height: 1.5em; background: #888; margin: 0 .4em;
 vertical-align: middle}
"""


def write_tokens(trace: Trace, after: int, view: View = "result") -> str:
    """The tokens after some steps; a bar separates blocks, and a title says when and how surely.

    Args:
        trace: of a text. What it holds was written by a model and is escaped.
        after: steps done, 0 for none.
        view: white, or a colour for each token.
    """
    colors = position_colors(view, trace.written_at, trace.logprobs, trace.steps)
    parts = []
    for n, (step, color) in enumerate(zip(trace.written_at, colors, strict=True)):
        if n and trace.blocks and trace.blocks[n] != trace.blocks[n - 1]:
            parts.append("<i></i>")
        if step >= after:
            parts.append(f'<span class="open">{MASKED}</span>')
            continue
        ink = f"background:rgb{color};color:{text_color(color)}"
        title = html.escape(describe_position(trace, n), quote=True)
        text = html.escape(trace.tokens[n].translate(VISIBLE))
        parts.append(f'<span style="{ink}" title="{title}">{text}</span>')
    return f'<div class="tokens">{"".join(parts)}</div>'


def describe_position(trace: Trace, n: int) -> str:
    """When a position was written, and how probable its token was."""
    block = f", block {trace.blocks[n] + 1}" if trace.blocks else ""
    chance = math.exp(min(trace.logprobs[n], 0.0))
    return f"position {n + 1}{block}: step {trace.written_at[n] + 1}, probability {chance:.3f}"
