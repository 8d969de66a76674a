"""Classifier-free guidance: its scales, and what they make of logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.types.canvas import Canvas

    AnyCanvas = TypeVar("AnyCanvas", bound=Canvas)


class Guidance(NamedTuple):
    """The scales of guidance, 0 where it is off: logits are c + text (c - u) + image (c - v).

    c has the whole prompt, u no text (`Canvas.unconditional`), v no source image
    (`Canvas.image_unconditional`), as in InstructPix2Pix and Lumina-DiMOO.
    """

    text: float = 0.0
    image: float = 0.0

    @property
    def branches(self) -> int:
        """Forward passes of a step: one, and one for each scale above 0."""
        return 1 + (self.text != 0) + (self.image != 0)

    def build_branches(self, canvas: AnyCanvas) -> list[AnyCanvas]:
        """The canvas, and the unconditional branches that the scales need. Raises ValueError: the
        canvas has no such branch."""
        text = [canvas.unconditional()] if self.text != 0 else []
        image = [canvas.image_unconditional()] if self.image != 0 else []
        return [canvas, *text, *image]

    @property
    def factors(self) -> tuple[float, ...]:
        """By which the logits of each branch are multiplied before they are added."""
        scales = [scale for scale in self if scale != 0]
        return (1.0 + sum(scales), *(-scale for scale in scales))

    def combine(self, logits: Sequence[Tensor]) -> Tensor:
        """Guided logits from those of the branches."""
        conditional, *others = logits
        if self.image == 0:
            if self.text == 0:
                return conditional
            return (1 + self.text) * conditional - self.text * others[0]
        scales = [scale for scale in self if scale != 0]
        pairs = zip(scales, others, strict=True)
        return conditional + sum(scale * (conditional - other) for scale, other in pairs)
