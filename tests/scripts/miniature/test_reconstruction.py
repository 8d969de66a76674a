"""The image tokenizer: its start, its losses against the public code, its examples."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmrl.models.image_tokenizers.magvit import MagvitConfig
from scripts.miniature.reconstruction import (
    Reconstruction,
    ReconstructionConfig,
    commitment_loss,
    entropy_loss,
)
from tests.mmrl.supervised_runs import NETWORK

FIXTURE = Path(__file__).parents[2] / "fixtures" / "magvitv2" / "cases.safetensors"


@pytest.mark.parametrize("size", ["32x32", "32x64", "64x64"])
def test_quantiser_losses_equal_those_of_the_public_code(size: str) -> None:
    cases = load_file(FIXTURE)
    latent = cases[f"outputs/{size}/latent"]
    commitment = cases[f"outputs/{size}/losses/quantizer_loss"]
    entropy = cases[f"outputs/{size}/losses/entropy_loss"]
    torch.testing.assert_close(0.1 * commitment_loss(latent, beta=0.25), commitment)
    torch.testing.assert_close(0.1 * entropy_loss(latent), entropy, atol=1e-6, rtol=1e-4)


def test_the_examples_of_a_step_do_not_depend_on_the_number_of_ranks(images: Path) -> None:
    options = ReconstructionConfig(data=str(images), image_size=8, network=MagvitConfig(**NETWORK))
    alone = Reconstruction(options, seed=1, batch_size=4)
    shared = Reconstruction(options, seed=1, batch_size=2)
    for step in range(7):
        parts = [shared.batch(step, rank, world_size=2) for rank in range(2)]
        assert torch.equal(alone.batch(step, 0, world_size=1), torch.cat(parts))
