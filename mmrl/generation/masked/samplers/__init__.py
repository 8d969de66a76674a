"""Samplers that un-mask tokens: one denoising loop, several commit rules.

A new rule is one file that makes a `Rule` of its two functions and of a dataclass with its own
options, and a line in `RULES`. Its options are keys of the `sampler` section. Settings are read
without torch, so such a file imports torch inside its functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmrl.config import check
from mmrl.generation.generation import Sampler
from mmrl.generation.masked.samplers.confidence import DYNAMIC, LEFT_TO_RIGHT, STATIC
from mmrl.generation.masked.samplers.dream import ENTROPY, MASKGIT_PLUS, ORIGIN, TOPK_MARGIN
from mmrl.generation.masked.samplers.fork import FORK
from mmrl.generation.masked.samplers.loop_config import LoopConfig, check_blocks
from mmrl.generation.masked.samplers.own_blocks import check_own_blocks, write_by_size
from mmrl.generation.masked.samplers.rule import Rule, draw_all
from mmrl.generation.masked.samplers.scheduled import EMERGE, LUMINA, MASKGIT
from mmrl.generation.strategy import OF_PROMPT

if TYPE_CHECKING:
    from mmrl.generation.masked.canvas import MaskedCanvas
    from mmrl.models import Policy
    from mmrl.types import Rollout

RULES = {
    "dynamic": DYNAMIC,
    "emerge": EMERGE,
    "entropy": ENTROPY,
    "fork": FORK,
    "left_to_right": LEFT_TO_RIGHT,
    "lumina": LUMINA,
    "maskgit": MASKGIT,
    "maskgit_plus": MASKGIT_PLUS,
    "origin": ORIGIN,
    "static": STATIC,
    "topk_margin": TOPK_MARGIN,
}
"""Commit rules by the name used in configurations."""


def check_loop(config: LoopConfig, name: str, where: str, length: int | None) -> None:
    """Raise a ConfigError where the rule `name` cannot run: an option that it does not have, or
    blocks that do not divide `length` response positions."""
    ranking = sorted(name for name, rule in RULES.items() if rule.ranks)
    allowed = f"free, suppress or stop with the rule {name}"
    advice = f"Only {', '.join(ranking)} rank positions."
    check(config.eos != "last" or name in ranking, f"{where}.eos", "last", allowed, advice)
    if length is not None:
        check_blocks(config, length, where)


def can_refill(policy: Policy, config: LoopConfig) -> bool:
    """Whether a row that ends can give its place to another: blocks are written one after the
    other, with an exact cache, and none after the end of a text."""
    exact = policy.network.block_size is not None and config.cache == "prefix"
    return exact and config.eos == "stop" and config.guidance.branches == 1


def find_differences(config: LoopConfig, exact_cache: bool) -> list[str]:
    """See `Sampler.find_differences`."""
    found = []
    if config.top_k or config.top_p < 1:
        found.append("the rollout filters tokens (top_k, top_p) and scoring does not")
    if config.eos == "suppress":
        found.append("the rollout never writes the end token (eos: suppress) and scoring allows it")
    if config.cache != "none" and not exact_cache:
        found.append(f"the rollout reads a cache ({config.cache}) and scoring reads none")
    return found


def _sampler(rule: Rule) -> Sampler:
    """The row of a commit rule."""

    def write(
        policy: Policy,
        canvas: MaskedCanvas,
        config: Any,
        generator: Any,
        size: int | None = None,
        place: Any = None,
    ) -> Rollout:
        if config.block_size == OF_PROMPT:
            return write_by_size(write, policy, canvas, config, generator)
        from mmrl.generation.masked.samplers.continuous import denoise_continuously
        from mmrl.generation.masked.samplers.denoise import denoise

        if size is not None and size < len(canvas) and can_refill(policy, config):
            return denoise_continuously(policy, canvas, config, rule, generator, size)
        return denoise(policy, canvas, config, rule, generator)

    return Sampler(
        write,
        rule.Config,
        count_steps=lambda config, length: config.steps,
        check=check_loop,
        check_prompts=check_own_blocks,
        has_fixed_forwards=lambda config: rule.fixed and config.takes_every_step,
        can_refill=can_refill,
        count_logits=lambda config, length: min(length, config.shared_size or length),
        streams=lambda config: config.cache != "refresh",
        keeps_cache=lambda config: config.cache != "none",
        find_differences=find_differences,
        has_forks=rule.draw is not draw_all,
    )


SAMPLERS = {name: _sampler(rule) for name, rule in RULES.items()}
"""The rows of all rules."""
