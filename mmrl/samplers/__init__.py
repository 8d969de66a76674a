"""Samplers: one denoising loop, several commit rules.

A new rule is one file with `candidates`, `propose` and `propose_reference`, and a line in `RULES`
of `mmrl.samplers.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.config import check, check_choice
from mmrl.config.lazy_names import lazy_names
from mmrl.samplers.blocks import check_blocks
from mmrl.samplers.rules import RULES
from mmrl.samplers.settings import SamplerConfig

if TYPE_CHECKING:
    from torch import Generator

    from mmrl.samplers.logits import guided_logits
    from mmrl.types import Canvas, Rollout
    from models import Policy

__all__ = ["RULES", "SamplerConfig", "check_sampler", "guided_logits", "sample", "unread"]

__getattr__ = lazy_names(__name__, {"logits": ("guided_logits",)})


def check_sampler(config: SamplerConfig, where: str = "sampler", length: int | None = None) -> None:
    """Refuse a sampler that cannot run, before any model loads.

    Args:
        config: the sampler; its single values are checked already.
        where: dotted key of the section, for messages.
        length: response positions of a row, where known.

    Raises:
        ConfigError: an unknown rule, an option the rule does not have, blocks that do not divide.
    """
    check_choice(f"{where}.name", config.name, RULES)
    ranking = sorted(name for name, rule in RULES.items() if rule.ranks)
    check(
        config.eos != "last" or RULES[config.name].ranks,
        f"{where}.eos",
        config.eos,
        f"free, suppress, stop or fill with the rule {config.name}",
        f"Only {' and '.join(ranking)} rank positions.",
    )
    if length is not None:
        check_blocks(config, length, where)


def unread(config: SamplerConfig) -> list[str]:
    """Settings that were changed and that the rule never looks at."""
    defaults, own = SamplerConfig(), RULES[config.name].reads
    keys = dict.fromkeys(key for rule in RULES.values() for key in rule.reads if key not in own)
    return [
        f"{key} is {getattr(config, key)}, and the rule {config.name} does not read it"
        f" ({', '.join(name for name, rule in RULES.items() if key in rule.reads)} would)"
        for key in keys
        if getattr(config, key) != getattr(defaults, key)
    ]


def sample(
    policy: Policy,
    canvas: Canvas,
    config: SamplerConfig,
    generator: Generator | Sequence[Generator],
) -> Rollout:
    """Write every masked response position of a canvas.

    Args:
        policy: whose network predicts.
        canvas: B rows; it is not changed.
        config: rule, steps, guidance, temperature.
        generator: one per row, or one from which a generator per row is seeded. With
            `rng: reference` a single one, consumed as the public sampler consumes its own.

    Returns:
        The finished canvas with `written_at` and the log-prob of each token when it was written.

    Raises:
        ConfigError: an unknown rule or impossible blocks, see `check_sampler`.
        ValueError: guidance on a canvas without an unconditional twin, or as many generators as
            the batch has not rows.
    """
    check_sampler(config)
    from mmrl.samplers.denoise import denoise

    return denoise(policy, canvas, config, RULES[config.name], generator)
