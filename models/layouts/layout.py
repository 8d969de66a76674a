"""The protocol of a layout: how prompts of one task become canvases, and canvases completions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from PIL import Image

from mmrl.types import Canvas, Prompt


class Layout(Protocol):
    """Renders the prompts of one task for one checkpoint.

    `ids`: special tokens of the checkpoint by role; `mask` is one where tokens are un-masked.
    `needs_vq`: whether images, of prompts or completions, are codes of an image tokenizer.
    `needs_tower`: whether prompts show images to a vision tower.
    """

    needs_vq: ClassVar[bool]
    needs_tower: ClassVar[bool]

    @property
    def ids(self) -> Mapping[str, int]: ...

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError for a prompt that no checkpoint with this layout can take."""
        ...

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether `canvas` takes a prompt with `length` response positions."""
        ...

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas with `length` open positions; None takes the layout's default."""
        ...

    def decode(self, canvas: Any) -> Sequence[str | Image.Image]:
        """Finished canvas -> B completions."""
        ...
