"""What is special to Sana: the schedule of its solver, its instruction, and its latents."""

from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch

from mmrl.models import load_policy
from mmrl.samplers import SamplerConfig, sample
from scripts.pipeline_skeletons import write_sana
from tests.models.families.test_latent_families import close
from tests.models.flow import ask, seeded

LIBRARY: Any = diffusers
LENGTH, TEXT = 24, "A red cat on the table"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sana")
    write_sana(path, width=64, layers=1)
    return path


@pytest.fixture(scope="module")
def policy(folder: Path) -> Any:
    return load_policy(folder, max_prompt_length=LENGTH)


def test_the_schedule_has_the_shift_of_the_solver(policy: Any) -> None:
    settings = SamplerConfig(**{"name": "ode", "steps": 4})
    rollout = sample(policy, policy.canvas(ask(TEXT, height=64, width=96)), settings, seeded([0]))
    assert rollout.canvas.written[1][0].tolist() == pytest.approx([1, 0.9, 0.75, 0.5, 0])


def test_texts_are_encoded_behind_the_instruction_and_the_empty_one_alone(
    folder: Path, policy: Any
) -> None:
    layout, public = policy.layouts["text_to_image"], LIBRARY.SanaPipeline.from_pretrained(folder)
    found = layout.encode_text(layout.parts.encoders, ["", TEXT], torch.device("cpu"))
    states, mask, *_ = public.encode_prompt("", False, max_sequence_length=LENGTH)
    close(found["states"][:1], states)
    assert torch.equal(found["mask"][:1], mask) and mask.sum() == 1, "the begin"
    plain = public.encode_prompt(TEXT, False, max_sequence_length=LENGTH)[0]
    assert (found["states"][1, : LENGTH // 2] - plain[0, : LENGTH // 2]).abs().max() > 0.1
    assert found["states"].shape == (2, LENGTH, 64)


def test_pixels_become_what_the_autoencoder_is_given(policy: Any) -> None:
    parts = policy.layouts["text_to_image"].parts
    pixels, vae = torch.rand(2, 3, 64, 96) * 2 - 1, parts.decoder.vae
    found = parts.encode_images(pixels, policy.network.from_encoder)
    with torch.no_grad():
        close(found, vae.encode(pixels).latent * vae.config.scaling_factor)
