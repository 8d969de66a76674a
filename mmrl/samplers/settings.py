"""Settings of the denoising loop and of its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mmrl.config import check, check_choice
from mmrl.samplers.rules import RULES
from mmrl.samplers.schedule import SCHEDULES


@dataclass(kw_only=True)
class SamplerConfig:
    """Settings of the denoising loop."""

    choices: ClassVar = {"name": RULES, "schedule": SCHEDULES}

    name: str = "emerge"
    """Commit rule."""
    steps: int = 12
    """Denoising steps S, over all blocks."""
    block_size: int | None = None
    """Response positions of a block; blocks are written one after the other, each in S / blocks
    steps. null writes the whole response at once."""
    schedule: str = "cosine"
    """Masking schedule: cosine or linear (emerge, maskgit)."""
    cfg_scale: float = 0.0
    """Classifier-free guidance w: (1 + w) conditional - w unconditional logits; 0 is off."""
    temperature: float = 1.0
    """Divides the logits before the token draw; 0 takes the likeliest token."""
    top_k: int = 0
    """Only the k likeliest tokens can be drawn; 0 keeps all."""
    top_p: float = 1.0
    """Only the likeliest tokens that make up this probability can be drawn."""
    choice_temperature: float = 1.0
    """Starting scale of the Gumbel noise on the confidence (maskgit)."""
    target: Literal["confidence", "margin", "neg_entropy", "random"] = "confidence"
    """What ranks positions, certain = high: probability of the drawn token, difference of the two
    largest, negative entropy in nats, or chance (static, dynamic)."""
    threshold: float = 0.9
    """Positions at least this certain are written (dynamic); at most 0 for neg_entropy."""
    eos: Literal["free", "suppress", "last", "stop", "fill", "leave"] = "free"
    """End of a text. free: a token like any other. suppress: the first of the end
    tokens is never written (of LLaDA's two the other one, of a turn, may be). last: written where
    nothing else is left in the block (static, dynamic). stop: no block after it is denoised.
    fill: open positions after it are filled at once. leave: they stay open, not to be written,
    until the text before it is whole (LLaDA-V)."""
    cache: Literal["none", "prefix", "dual"] = "none"
    """Keys and values kept from the first step of a block: of what stands before it (prefix), or
    of everything outside it (dual). Faster, and an approximation."""
    window: int | None = None
    """With a cache, how many positions after the block are computed with it. null: all (prefix),
    none (dual). What is beyond is not seen (prefix) or stale (dual)."""
    rng: Literal["compact", "reference"] = "compact"
    """`compact` is fast and independent per row; `reference` draws as the public samplers do."""
    reference_dtype: Literal["float64", "float32", "bfloat16"] = "float64"
    """Of noise and confidence with `rng: reference` (static, dynamic, left_to_right): float64 in
    LLaDA, MMaDA and Fast-dLLM, that of the model in MaskGRPO."""

    def __post_init__(self) -> None:
        check_choice("sampler.schedule", self.schedule, SCHEDULES)
        check(self.steps >= 1, "sampler.steps", self.steps, "at least 1")
        check(self.cfg_scale >= 0, "sampler.cfg_scale", self.cfg_scale, "at least 0 (0 = off)")
        check(self.temperature >= 0, "sampler.temperature", self.temperature, "at least 0")
        noise = self.choice_temperature
        check(noise >= 0, "sampler.choice_temperature", noise, "at least 0")
        check(0 < self.top_p <= 1, "sampler.top_p", self.top_p, "in (0, 1]")
        check(self.top_k >= 0, "sampler.top_k", self.top_k, "at least 0 (0 = off)")
        size = self.block_size
        check(size is None or size >= 1, "sampler.block_size", size, "null or at least 1")
        for key in _CHOICES:
            check_choice(f"sampler.{key}", getattr(self, key), _CHOICES[key])
        self._check_threshold()
        self._check_window()

    def _check_threshold(self) -> None:
        if self.name != "dynamic":
            return
        check(
            self.target != "random",
            "sampler.target",
            self.target,
            "confidence, margin or neg_entropy for the dynamic rule",
            "Chance has no threshold.",
        )
        if self.target == "neg_entropy":
            check(
                self.threshold <= 0,
                "sampler.threshold",
                self.threshold,
                "at most 0 for neg_entropy",
                "It is a negative entropy in nats, such as -0.5.",
            )
        else:
            check(0 <= self.threshold <= 1, "sampler.threshold", self.threshold, "in [0, 1]")

    def _check_window(self) -> None:
        if self.window is None:
            return
        check(self.window >= 0, "sampler.window", self.window, "null or at least 0")
        check(
            self.cache != "none",
            "sampler.window",
            self.window,
            "null without a cache",
            "Set sampler.cache to prefix or dual.",
        )


_CHOICES = {
    "target": ("confidence", "margin", "neg_entropy", "random"),
    "eos": ("free", "suppress", "last", "stop", "fill", "leave"),
    "cache": ("none", "prefix", "dual"),
    "rng": ("compact", "reference"),
    "reference_dtype": ("float64", "float32", "bfloat16"),
}
