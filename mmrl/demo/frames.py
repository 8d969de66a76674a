"""Frames of a drawn image: what is written after a step, as pixels or coloured positions."""

from PIL import Image, ImageDraw

from mmrl.demo.colors import View, position_colors
from mmrl.demo.traces import Trace
from mmrl.run.denoising_frames import cell_boxes, painted
from mmrl.run.image_grid import scale

SIDE = 384


def draw_frame(trace: Trace, after: int, view: View = "result", side: int = SIDE) -> Image.Image:
    """The image after some steps, `side` pixels wide; positions not yet written are grey.

    Args:
        trace: of an image.
        after: steps done, 0 for none.
        view: pixels, or a colour for each position.
        side: width in pixels.
    """
    assert isinstance(trace.completion, Image.Image) and trace.grid is not None
    shown = scale(trace.completion, side)
    if view != "result":
        colors = position_colors(view, trace.written_at, trace.logprobs, trace.steps)
        draw = ImageDraw.Draw(shown)
        for color, box in zip(colors, cell_boxes(shown.size, trace.grid), strict=True):
            draw.rectangle(box, fill=color)
    return painted(shown, trace.written_at, trace.grid, after - 1)


def describe(trace: Trace) -> str:
    """How a completion was written, in one line."""
    mean = sum(trace.logprobs) / max(1, len(trace.logprobs))
    return (
        f"{len(trace.written_at)} positions in {trace.steps} steps, {trace.forwards} forward"
        f" passes, {trace.seconds:.2f} s, mean log-prob {mean:.2f}"
    )


def legend(view: View, steps: int) -> str:
    """What the colours of a view mean."""
    if view == "step":
        return f"dark: step 1; yellow: step {steps}"
    if view == "log-prob":
        return "red: probability of 0.05 or less when written; white: 0.2; blue: 1"
    return "grey: not yet written"
