"""Settings of the denoising loop, the same for all commit rules."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mmrl.config import at_least, check
from mmrl.generation.strategy import OF_PROMPT
from mmrl.generation.tokens.draw import DrawConfig
from mmrl.types.guidance import Guidance


@dataclass(kw_only=True)
class LoopConfig(DrawConfig):
    """Settings of the denoising loop."""

    where: ClassVar[str] = "sampler"

    steps: Annotated[int, at_least(1)] = 12
    """Denoising steps S, over all blocks."""
    block_size: Annotated[int | str | None, at_least(1, or_word=OF_PROMPT)] = None
    """Response positions of a block; blocks are written one after the other, each in S / blocks
    steps. null writes the whole response at once, or in the blocks of the network, where its
    attention is causal between them. prompt: of the size in the column `block_size` of each prompt,
    see `mmrl.generation.masked.samplers.own_blocks`."""
    cfg_scale: Annotated[float, at_least(0)] = 0.0
    """Classifier-free guidance w: (1 + w) conditional - w unconditional logits; 0 is off."""
    image_guidance_scale: Annotated[float, at_least(0)] = 0.0
    """Guidance v by the source image (task image_edit): adds v (conditional - without the image) to
    the logits; 0 is off. With `cfg_scale` a step is three forward passes."""
    eos: Literal["free", "suppress", "last", "stop", "leave"] = "free"
    """End of a text. free: a token like any other. suppress: the first of the end
    tokens is never written (of LLaDA's two the other one, of a turn, may be). last: written where
    nothing else is left in the block (static, dynamic). stop: no block after it is denoised.
    leave: open positions after it stay open until the text before it is complete (LLaDA-V)."""
    cache: Literal["none", "prefix", "dual", "refresh"] = "none"
    """Keys and values kept from the first step of a block: of the columns before it (prefix), or of
    all columns outside it (dual). refresh: those of most positions are kept, with their logits, and
    the rest computed again, as Lumina-DiMOO does. Faster, and an approximation; prefix and dual are
    exact where attention is causal between blocks (SDAR), where each finished block is computed
    once, and equal prompts once."""
    window: Annotated[int | None, at_least(0)] = None
    """With a cache, how many positions after the block are computed with it. null: all (prefix),
    none (dual). Positions beyond are not attended to (prefix) or stale (dual)."""
    cache_ratio: Annotated[float, at_least(0, up_to=1)] = 0.9
    """Share of positions that a step keeps, those with the highest logits (cache refresh)."""
    warmup_ratio: Annotated[float, at_least(0, up_to=1)] = 0.3
    """Share of steps at the start that compute all positions (cache refresh)."""
    refresh_interval: Annotated[int, at_least(1)] = 5
    """After these steps, one in so many computes all positions (cache refresh)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed, advice = "null without a cache", "Set sampler.cache to prefix or dual."
        fits = self.window is None or self.cache in ("prefix", "dual")
        check(fits, "sampler.window", self.window, allowed, advice)
        whole, size = self.cache != "refresh" or self.block_size is None, self.block_size
        check(whole, "sampler.block_size", size, "null with the cache refresh")

    @property
    def takes_every_step(self) -> bool:
        """Whether no step of a block is left out because its positions were written before."""
        whole = self.eos in ("free", "suppress", "last") and self.cache != "refresh"
        return whole and self.block_size != OF_PROMPT

    @property
    def shared_size(self) -> int | None:
        """The block size of all rows; None where there is none."""
        return None if isinstance(self.block_size, str) else self.block_size

    @property
    def guidance(self) -> Guidance:
        """Both scales."""
        return Guidance(self.cfg_scale, self.image_guidance_scale)


def check_blocks(config: LoopConfig, length: int, where: str = "sampler") -> int:
    """The number of blocks of a response of `length` positions. Raises ConfigError: blocks that do
    not divide the response, or steps that do not divide among them."""
    size = config.shared_size or max(1, length)
    allowed = f"a divisor of the {length} response positions"
    check(length % size == 0, f"{where}.block_size", size, allowed)
    number = max(1, length // size)
    allowed, advice = f"a multiple of the {number} blocks", "Each takes the same number of steps."
    check(config.steps % number == 0, f"{where}.steps", config.steps, allowed, advice)
    return number
