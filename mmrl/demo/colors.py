"""Colours of positions: by the step that wrote them, or by log-prob."""

from collections.abc import Sequence
from typing import Literal

View = Literal["result", "step", "log-prob"]
VIEWS: tuple[View, ...] = ("result", "step", "log-prob")

EARLY_TO_LATE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
UNSURE_TO_SURE = ((178, 24, 43), (239, 138, 98), (247, 247, 247), (103, 169, 207), (33, 102, 172))
LOWEST = -3.0
"""Log-prob from which on colours stay the same: a probability of 0.05."""

Color = tuple[int, int, int]


def step_color(step: int, steps: int) -> Color:
    """Dark for the first step, yellow for the last."""
    return _between(EARLY_TO_LATE, step / max(1, steps - 1))


def logprob_color(logprob: float) -> Color:
    """Red for an unlikely token, blue for a certain one."""
    return _between(UNSURE_TO_SURE, 1 - min(logprob, 0.0) / LOWEST)


def position_colors(
    view: View, written_at: Sequence[int], logprobs: Sequence[float], steps: int
) -> list[Color]:
    """The colour of each position; white for the view of the result."""
    if view == "step":
        return [step_color(step, steps) for step in written_at]
    if view == "log-prob":
        return [logprob_color(value) for value in logprobs]
    return [(255, 255, 255)] * len(written_at)


def text_color(background: Color) -> str:
    """Black or white, whichever is readable on a background."""
    red, green, blue = background
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


def _between(colors: Sequence[Color], share: float) -> Color:
    """A colour at a share of the way through others."""
    place = min(max(share, 0.0), 1.0) * (len(colors) - 1)
    left = min(int(place), len(colors) - 2)
    rest = place - left
    pairs = zip(colors[left], colors[left + 1], strict=True)
    red, green, blue = (round(a + (b - a) * rest) for a, b in pairs)
    return red, green, blue
