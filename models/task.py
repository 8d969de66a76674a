"""What a layout of prompts is to the rest: how one kind of prompt becomes canvases and text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

from PIL import Image

from mmrl.types import Canvas, Prompt

WRITES_IMAGES = {"image_to_text": False, "text": False, "text_to_image": True}
"""The tasks of all families by the names that prompts carry, and whether completions are images."""
TASKS = sorted(WRITES_IMAGES)
"""Their names."""
MAX_COMPLETION_LENGTH = 256
"""Response positions of a text where nobody asks for another number."""
ImageFit = Literal["crop", "squash"]
"""How an image becomes a square: `crop` resizes its shorter side and keeps the middle; `squash`
resizes both sides, as MMaDA does for charts, documents and diagrams."""


def writes_images(task: str) -> bool:
    """Whether completions of a task are images."""
    return WRITES_IMAGES.get(task, False)


class Task(Protocol):
    """How prompts of one kind become canvases, and finished canvases completions.

    `writes_images`: whether completions are images, whose number of tokens the checkpoints decide.
    `needs_vq`: whether images, of prompts or completions, are codes of an image tokenizer.
    `needs_tower`: whether prompts show images to a vision tower.
    """

    writes_images: ClassVar[bool]
    needs_vq: ClassVar[bool]
    needs_tower: ClassVar[bool]

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError for a prompt that no checkpoint with this layout can take."""
        ...

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether `canvas` takes a prompt with that many response positions."""
        ...

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas: ...

    def decode(self, canvas: Canvas) -> Sequence[str | Image.Image]: ...
