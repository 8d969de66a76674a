"""What every layout does: prompts of one task become canvases, and canvases completions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mmrl.types import Canvas, Completion, Prompt


class Layout:
    """Renders the prompts of one task for one checkpoint.

    `ids`: special tokens of the checkpoint by role; `mask` is one where tokens are un-masked.
    `needs_vq`: whether images, of prompts or completions, are codes of an image tokenizer.
    `needs_tower`: whether prompts show images to a vision tower.
    """

    needs_vq: ClassVar[bool] = False
    needs_tower: ClassVar[bool] = False

    ids: Mapping[str, int]

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError for a prompt that no checkpoint with this layout can take."""

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether `canvas` takes a prompt with `length` response positions; where longer ones are
        cut every prompt fits."""
        return True

    def cuts(self, prompt: Prompt) -> bool:
        """Whether the canvas leaves out a part of a prompt."""
        return False

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas with `length` open positions; None takes the layout's default."""
        raise NotImplementedError

    def decode(self, canvas: Any) -> Sequence[Completion]:
        """Finished canvas -> B completions."""
        raise NotImplementedError
