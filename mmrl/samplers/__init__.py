"""Samplers: one denoising loop, several commit rules.

A new rule is one file that makes a `Rule` of its two functions and of a dataclass with its own
options, and a line in `RULES`. Its options are keys of the `sampler` section. Settings are read
without torch, so such a file imports torch inside its functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from mmrl.config import check, check_choice, one_of
from mmrl.config.options import option_classes
from mmrl.samplers.confidence import DYNAMIC, LEFT_TO_RIGHT, STATIC
from mmrl.samplers.dream import ENTROPY, MASKGIT_PLUS, ORIGIN, TOPK_MARGIN
from mmrl.samplers.loop_config import LoopConfig, check_blocks
from mmrl.samplers.rule import Rule
from mmrl.samplers.scheduled import EMERGE, LUMINA, MASKGIT

if TYPE_CHECKING:
    from torch import Generator

    from mmrl.models import Policy
    from mmrl.types import Canvas, Rollout


RULES = {
    "dynamic": DYNAMIC,
    "emerge": EMERGE,
    "entropy": ENTROPY,
    "left_to_right": LEFT_TO_RIGHT,
    "lumina": LUMINA,
    "maskgit": MASKGIT,
    "maskgit_plus": MASKGIT_PLUS,
    "origin": ORIGIN,
    "static": STATIC,
    "topk_margin": TOPK_MARGIN,
}
"""Commit rules by the name used in configurations."""


@dataclass(kw_only=True)
class SamplerConfig(*option_classes(RULES), LoopConfig):
    """Settings of the denoising loop and of its rules."""

    name: Annotated[str, one_of(RULES)] = "emerge"
    """Commit rule."""


def check_sampler(config: SamplerConfig, where: str = "sampler", length: int | None = None) -> None:
    """Refuse a sampler that cannot run, before any model loads.

    Args:
        config: the sampler; its single values are checked already.
        where: dotted key of the section, for messages.
        length: response positions of a row, where known.

    Raises:
        ConfigError: an unknown rule, an option the rule does not have, blocks that do not divide.
    """
    ranking = sorted(name for name, rule in RULES.items() if rule.ranks)
    allowed = f"free, suppress or stop with the rule {config.name}"
    advice = f"Only {', '.join(ranking)} rank positions."
    check(config.eos != "last" or config.name in ranking, f"{where}.eos", "last", allowed, advice)
    if length is not None:
        check_blocks(config, length, where)


def has_fixed_forwards(config: SamplerConfig) -> bool:
    """Whether all rows of one length take the same number of forward passes, whatever is drawn, on
    processes that share weights (`Policy.shares_forwards`)."""
    return RULES[config.name].fixed and config.takes_every_step


def can_refill(policy: Policy, config: SamplerConfig) -> bool:
    """Whether a row that ends can give its place in the batch to another: blocks are written one
    after the other, with an exact cache, and none after the end of a text."""
    core = getattr(policy.network, "core", None)
    exact = core is not None and core.block_size is not None and config.cache == "prefix"
    return exact and config.eos == "stop" and config.guidance.branches == 1


def sample(
    policy: Policy,
    canvas: Canvas,
    config: SamplerConfig,
    generator: Generator | Sequence[Generator],
    size: int | None = None,
) -> Rollout:
    """Write every masked response position of a canvas.

    Args:
        policy: whose network predicts.
        canvas: B rows; it is not changed.
        config: rule, steps, guidance, temperature.
        generator: one per row, or one from which a generator per row is seeded.
        size: rows that are computed at once where rows that end give their places to others, see
            `can_refill`; None computes all at once.

    Returns:
        The finished canvas with `written_at` and the log-prob of each token when it was written.

    Raises:
        ConfigError: an unknown rule or impossible blocks, see `check_sampler`.
        ValueError: guidance on a canvas without an unconditional branch, or a number of generators
            that is not that of the rows.
    """
    check_sampler(config)
    from mmrl.samplers.continuous import denoise_continuously
    from mmrl.samplers.denoise import denoise

    inputs = policy, canvas, config, RULES[config.name], generator
    if size is not None and size < len(canvas) and can_refill(policy, config):
        return denoise_continuously(*inputs, size)
    return denoise(*inputs)
