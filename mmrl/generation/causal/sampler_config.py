"""Settings of the sampler that appends tokens."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from mmrl.config import above, at_least
from mmrl.generation.tokens.draw import DrawConfig


@dataclass(kw_only=True)
class AutoregressiveConfig(DrawConfig):
    """Tokens appended one after the other, with a cache of keys and values; a prompt that several
    rows share is read once."""

    where: ClassVar[str] = "sampler"

    min_p: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Only tokens can be drawn with at least this share of the probability of the most likely."""
    repetition_penalty: Annotated[float, above(0)] = 1.0
    """Divides the positive logits of tokens that the row holds already, and multiplies the negative
    ones (CTRL, arXiv 1909.05858); 1 is off."""

    @property
    def filters(self) -> bool:
        """Whether tokens come from another distribution than the network's at that temperature."""
        narrowed = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return narrowed or self.repetition_penalty != 1
