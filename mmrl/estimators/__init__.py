"""Estimators: what a policy is shown of finished canvases, and the log-probs it gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.generation.kinds import GENERATIONS, STRATEGIES
from mmrl.types import Canvas, Passes, Rollout, Scores
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from torch import Generator

    from mmrl.algorithms import AlgorithmConfig
    from mmrl.models import Policy


def draw_passes(
    rollout: Rollout, config: AlgorithmConfig, generators: Sequence[Generator], iteration: int = 0
) -> Passes:
    """The passes of an inner iteration, 0 .. num_iterations - 1, over B finished rows with a
    generator each, on which all policies are scored; `config` has the strategy and its options."""
    return STRATEGIES[config.strategy](rollout, config, generators, iteration)


def score(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    cfg_scale: float = 0.0,
    temperature: float = 1.0,
    image_guidance_scale: float = 0.0,
) -> Scores:
    """Log-probs of the scored actions of K passes over B finished rows, and the entropy of their
    distributions; of the policy, with gradient where the caller enables it. Both scales are of
    guidance applied while scoring, 0 scores the conditional policy; the temperature divides the
    logits."""
    guidance = Guidance(cfg_scale, image_guidance_scale)
    return GENERATIONS[canvas.kind].score(policy, canvas, passes, guidance, temperature)
