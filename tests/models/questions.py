"""Questions about images of noise, and their answers by a sampler."""

import numpy as np
from PIL import Image
from torch import Generator

from mmrl.models import Policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Rollout

SETTINGS = SamplerConfig(name="static", steps=4)


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """An image of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def question(number: int, width: int, height: int, text: str = "which colour?") -> Prompt:
    """A question about a picture of this seed."""
    return Prompt(str(number), "image_to_text", text, images=[picture(width, height, number)])


PROMPTS = [question(0, 8, 8), question(1, 20, 9, "how many shapes are there?")]


def generators(rows: int) -> list[Generator]:
    """One for each row."""
    return [Generator().manual_seed(row) for row in range(rows)]


def rolled_out(policy: Policy, prompts: list[Prompt], sampler: SamplerConfig = SETTINGS) -> Rollout:
    """Finished canvases of prompts."""
    return sample(policy, policy.canvas(prompts), sampler, generators(len(prompts)))
