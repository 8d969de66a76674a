"""Images and videos as they were written: one before the first step, and one after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from mmrl.generation.kinds import GENERATIONS
from mmrl.run.image_grid import painted
from mmrl.types import Completion, Prompt, Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy

NEAREST = Image.Resampling.NEAREST


def draw_frames(
    policy: Policy, rollout: Rollout, row: int, prompt: Prompt, image: Completion, steps: int
) -> Sequence[Completion]:
    """Draw a row of a finished rollout before its first step and after each; `image` is what it
    became, maybe scaled.

    Where every state can be decoded it is; elsewhere what is not yet written is painted grey in the
    finished image."""
    canvas: Any = rollout.canvas
    unroll = GENERATIONS[canvas.kind].unroll
    if unroll is not None:
        states = unroll(canvas, row)
        frames = policy.decode(states, [prompt] * len(states))
        if not isinstance(image, Image.Image):
            return frames
        return [
            frame.resize(image.size, NEAREST) for frame in frames if isinstance(frame, Image.Image)
        ]
    assert isinstance(image, Image.Image)
    written = rollout.trace[row][canvas.response[row]].tolist()
    grid = canvas.grid or (1, 1)
    return [painted(image, written, grid, step) for step in range(-1, steps)]
