"""Samplers: one denoising loop, several commit rules.

A new rule is one file with `candidates`, `propose` and `propose_reference`, and a line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Generator

from mmrl.config import check_choice
from mmrl.samplers import emerge, maskgit
from mmrl.samplers.denoise import SamplerConfig, denoise, guided_logits
from mmrl.samplers.state import Rule
from mmrl.types import Canvas, Rollout

if TYPE_CHECKING:
    from models import Policy

RULES = {
    "emerge": Rule(emerge.candidates, emerge.propose, emerge.propose_reference),
    "maskgit": Rule(maskgit.candidates, maskgit.propose, maskgit.propose_reference),
}

__all__ = ["RULES", "SamplerConfig", "guided_logits", "sample"]


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
        ConfigError: an unknown rule.
        ValueError: guidance on a canvas without an unconditional twin, or as many generators as
            the batch has not rows.
    """
    check_choice("sampler.name", config.name, RULES)
    return denoise(policy, canvas, config, RULES[config.name], generator)
