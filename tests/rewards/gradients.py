"""What every differentiable reward keeps."""

from typing import Any

import torch
from PIL import Image

from mmrl.rewards.parsing.images import read_pixels
from mmrl.types import Sample


def check_gradient(reward: Any, prompts: list[str], pictures: list[Image.Image], side: int) -> None:
    """Scores of pixels are those of images, exactly where nothing is resized and closely elsewhere;
    and their gradient is the slope of the score."""
    fitting = pictures[0].resize((side, side))
    samples = [Sample(p, each) for p, each in zip(prompts, [fitting, *pictures[1:]], strict=True)]
    pixels = [read_pixels(sample.completion).requires_grad_() for sample in samples]
    scores, expected = reward.score_pixels(pixels, samples), torch.tensor(reward(samples))
    torch.testing.assert_close(scores[0], expected[0], atol=1e-5, rtol=1e-5)
    assert (scores - expected).abs().max() < 0.1 * expected.std()
    scores.sum().backward()
    direction = pixels[0].grad
    assert direction is not None and direction.abs().max() > 0
    step = 1e-3 * direction / direction.norm()
    with torch.no_grad():
        ends = [reward.score_pixels([pixels[0] + s * step], samples[:1]) for s in (1, -1)]
    slope = (ends[0] - ends[1])[0] / 2e-3
    torch.testing.assert_close(slope, direction.norm(), rtol=0.02, atol=0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in pixels)
