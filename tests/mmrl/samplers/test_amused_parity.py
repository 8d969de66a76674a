"""diffusers' `AmusedPipeline`, image for image, from the same random numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mmrl.models import load_policy
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt
from tests.mmrl.samplers.public_samplers import sample_publicly
from tests.models.amused import write_amused

diffusers = pytest.importorskip("diffusers")
TEXTS = ["a red cat", "two dogs, one of them asleep beside a long text"]


@pytest.mark.parametrize(
    ("guidance", "temperature", "steps"),
    [
        (10.0, 2, 6),
        pytest.param(1.0, 2, 6, marks=pytest.mark.slow),
        pytest.param(3.0, 0, 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("halved", [False, True])
def test_images_are_those_of_the_pipeline(
    tmp_path: Path, halved: bool, guidance: float, temperature: int, steps: int
) -> None:
    folder = write_amused(tmp_path / "amused", halved, side=6 if halved else 4)
    pipeline = diffusers.AmusedPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    how: dict[str, Any] = {
        "guidance_scale": guidance,
        "num_inference_steps": steps,
        "temperature": (temperature, 0),
    }
    draws = [torch.Generator().manual_seed(3) for _ in range(2)]
    codes = pipeline(TEXTS, generator=draws[0], output_type="latent", **how).images
    images = pipeline(TEXTS, generator=draws[1], **how).images

    policy = load_policy(folder, vq=folder / "vqvae")
    prompts = [Prompt(str(n), "text_to_image", text) for n, text in enumerate(TEXTS)]
    config = SamplerConfig(
        name="maskgit",
        steps=steps,
        cfg_scale=guidance - 1,
        choice_temperature=temperature,
        annealing="linear",
    )
    done = sample_publicly(policy, policy.canvas(prompts), config, seed=3).canvas
    assert torch.equal(done.tokens[done.response].view(codes.shape), codes)
    assert len(codes.unique()) > 5
    for mine, theirs in zip(policy.decode(done, prompts), images, strict=True):
        assert mine.size == theirs.size and np.array_equal(np.array(mine), np.array(theirs))
