"""Generation by un-masking tokens, as a kind of generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.generation.generation import Generation, late
from mmrl.generation.masked.samplers import RULES, SAMPLERS
from mmrl.generation.masked.samplers.confidence import StaticConfig
from mmrl.generation.masked.strategies import STRATEGIES

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.masked.canvas import MaskedCanvas
    from mmrl.models import Policy
    from mmrl.types import Rollout

RENAMED = {"mask": "strategy"}
"""Names that columns of a method had in earlier versions, which runs on disk may hold."""


def finish(policy: Policy, rollout: Rollout, unwritten: Tensor) -> MaskedCanvas:
    """Rollouts with some positions ([B, L] bool) written anew: the most likely token of each, in
    one forward pass, or in one for each block of the network's attention."""
    import torch

    from mmrl.generation.masked.samplers.denoise import denoise

    canvas, settings = rollout.canvas.hide(unwritten), rollout.settings
    guidance = {key: settings[key] for key in ("cfg_scale", "image_guidance_scale")}
    config = StaticConfig(steps=count_blocks(canvas), temperature=0.0, **guidance)
    # greedy, so its seed changes nothing
    return denoise(policy, canvas, config, RULES["static"], torch.Generator()).canvas


def count_blocks(canvas: MaskedCanvas) -> int:
    """Blocks of the network's attention that a response has; 1 where all attend to all."""
    if canvas.block_size is None or canvas.blocks is None:
        return 1
    return -(-int(canvas.response[0].sum()) // canvas.block_size)


SCORE = late("mmrl.generation.tokens.scoring.scoring:score")
MASKED = Generation(SAMPLERS, STRATEGIES, SCORE, finish)
