"""Settings of the denoising loop, the same for all commit rules."""

from dataclasses import dataclass
from typing import Literal

from mmrl.config import check, check_choice
from mmrl.samplers.guidance import Guidance


@dataclass(kw_only=True)
class LoopConfig:
    """Settings of the denoising loop."""

    name: str = "emerge"
    """Commit rule, one of `mmrl.samplers.RULES`."""
    steps: int = 12
    """Denoising steps S, over all blocks."""
    block_size: int | None = None
    """Response positions of a block; blocks are written one after the other, each in S / blocks
    steps. null writes the whole response at once, or in the blocks of the network, where its
    attention is causal between them."""
    cfg_scale: float = 0.0
    """Classifier-free guidance w: (1 + w) conditional - w unconditional logits; 0 is off."""
    image_guidance_scale: float = 0.0
    """Guidance v by the source image (task image_edit): adds v (conditional - without the image) to
    the logits; 0 is off. With `cfg_scale` a step is three forward passes."""
    temperature: float = 1.0
    """Divides the logits before the token draw; 0 is greedy, the most likely token."""
    top_k: int = 0
    """Only the k most likely tokens can be drawn; 0 keeps all."""
    top_p: float = 1.0
    """Only the most likely tokens that make up this probability can be drawn."""
    eos: Literal["free", "suppress", "last", "stop", "fill", "leave"] = "free"
    """End of a text. free: a token like any other. suppress: the first of the end
    tokens is never written (of LLaDA's two the other one, of a turn, may be). last: written where
    nothing else is left in the block (static, dynamic). stop: no block after it is denoised.
    fill: open positions after it are filled at once. leave: they stay open until the text before
    it is complete (LLaDA-V)."""
    cache: Literal["none", "prefix", "dual", "refresh"] = "none"
    """Keys and values kept from the first step of a block: of the columns before it (prefix), or of
    all columns outside it (dual). refresh: those of most positions are kept, with their logits, and
    the rest computed again, as Lumina-DiMOO does. Faster, and an approximation; prefix and dual are
    exact where attention is causal between blocks (SDAR), where each finished block is computed
    once, and equal prompts once."""
    window: int | None = None
    """With a cache, how many positions after the block are computed with it. null: all (prefix),
    none (dual). Positions beyond are not attended to (prefix) or stale (dual)."""
    cache_ratio: float = 0.9
    """Share of positions that a step keeps, those with the highest logits (cache refresh)."""
    warmup_ratio: float = 0.3
    """Share of steps at the start that compute all positions (cache refresh)."""
    refresh_interval: int = 5
    """After these steps, one in so many computes all positions (cache refresh)."""

    def __post_init__(self) -> None:
        check(self.steps >= 1, "sampler.steps", self.steps, "at least 1")
        check(self.cfg_scale >= 0, "sampler.cfg_scale", self.cfg_scale, "at least 0 (0 = off)")
        image = self.image_guidance_scale
        check(image >= 0, "sampler.image_guidance_scale", image, "at least 0 (0 = off)")
        check(self.temperature >= 0, "sampler.temperature", self.temperature, "at least 0")
        check(0 < self.top_p <= 1, "sampler.top_p", self.top_p, "in (0, 1]")
        check(self.top_k >= 0, "sampler.top_k", self.top_k, "at least 0 (0 = off)")
        size, window = self.block_size, self.window
        check(size is None or size >= 1, "sampler.block_size", size, "null or at least 1")
        ends = ("free", "suppress", "last", "stop", "fill", "leave")
        check_choice("sampler.eos", self.eos, ends)
        check_choice("sampler.cache", self.cache, ("none", "prefix", "dual", "refresh"))
        self._check_refresh()
        check(window is None or window >= 0, "sampler.window", window, "null or at least 0")
        allowed, advice = "null without a cache", "Set sampler.cache to prefix or dual."
        fits = window is None or self.cache in ("prefix", "dual")
        check(fits, "sampler.window", window, allowed, advice)

    def _check_refresh(self) -> None:
        """Check the options of the cache that computes some positions again."""
        for key in ("cache_ratio", "warmup_ratio"):
            share = getattr(self, key)
            check(0 <= share <= 1, f"sampler.{key}", share, "from 0 to 1")
        every = self.refresh_interval
        check(every >= 1, "sampler.refresh_interval", every, "at least 1")
        whole, size = self.cache != "refresh" or self.block_size is None, self.block_size
        check(whole, "sampler.block_size", size, "null with the cache refresh")

    @property
    def takes_every_step(self) -> bool:
        """Whether no step of a block is left out because its positions were written before."""
        return self.eos in ("free", "suppress", "last") and self.cache != "refresh"

    @property
    def guidance(self) -> Guidance:
        """Both scales."""
        return Guidance(self.cfg_scale, self.image_guidance_scale)


def check_blocks(config: LoopConfig, length: int, where: str = "sampler") -> int:
    """The number of blocks of a response of `length` positions.

    Raises:
        ConfigError: blocks that do not divide the response, or steps that do not divide among them.
    """
    size = config.block_size or max(1, length)
    allowed = f"a divisor of the {length} response positions"
    check(length % size == 0, f"{where}.block_size", size, allowed)
    number = max(1, length // size)
    allowed, advice = f"a multiple of the {number} blocks", "Each takes the same number of steps."
    check(config.steps % number == 0, f"{where}.steps", config.steps, allowed, advice)
    return number
